//! Tests of the contents of wrapped archives, and of archives that cannot be wrapped. The conformance tests run the modules.

mod ports;

use std::fmt::Write;

use byte_source::Blob;
use tensor::Storage;

use super::*;

fn archive(code: &str, more: &[(&str, &[u8])]) -> Vec<(String, Storage)> {
    let pickle = b"\x80\x02c__torch__.net\nNet\nq\x00)\x81}(X\x01\x00\x00\x00kq\x01h\x01ubq\x02.trailing";
    let records: [(&str, &[u8]); 3] =
        [("data.pkl", pickle), ("code/__torch__/net.py", code.as_bytes()), ("version", b"3\n")];
    let all = records.iter().chain(more).filter(|(_, bytes)| !bytes.is_empty());
    all.map(|(name, bytes)| ((*name).to_owned(), Storage::owned(bytes.to_vec()))).collect()
}

fn net(signature: &str) -> String {
    format!("class Net(Module):\n  def forward(self: __torch__.net.Net{signature}:\n    return x\n")
}

fn scripted(records: Vec<(String, Storage)>, options: &ScriptOptions) -> Result<WrapOutcome> {
    wrap_script(records, &Storage::owned(b"whole".to_vec()), options, OnInvalidInput::Return)
}

fn module(code: &str, more: &[(&str, &[u8])]) -> Module {
    match scripted(archive(code, more), &ScriptOptions::default()).expect("it is whole") {
        WrapOutcome::Module(converted) => converted,
        WrapOutcome::Uncallable(why) => panic!("{why}"),
    }
}

fn uncallable(records: Vec<(String, Storage)>) -> String {
    match scripted(records, &ScriptOptions::default()).expect("it is whole") {
        WrapOutcome::Module(_) => panic!("it is a module"),
        WrapOutcome::Uncallable(why) => why.to_string(),
    }
}

#[test]
fn the_pickle_of_the_original_is_inside_that_of_the_wrapper() {
    let converted = module(&net(", x: Tensor) -> Tensor"), &[("data/0", b"1234")]);
    assert_eq!(
        converted.archive.data_pkl(),
        b"\x80\x02c__torch__.torch2carton\nWrapper\n)\x81}(X\x08\x00\x00\x00training\x89X\x06\x00\x00\x00modulec__torch__.net\n\
        Net\nq\x00)\x81}(X\x01\x00\x00\x00kq\x01h\x01ubq\x02r\x03\x00\x00\x00X\x07\x00\x00\x00forwardc__torch__.torch2carton\nEntry\n\
        )\x81}(X\x08\x00\x00\x00training\x89X\x06\x00\x00\x00modulej\x03\x00\x00\x00ubub."
    );
    let kept: Vec<&str> = converted.archive.kept_records().iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(kept, ["code/__torch__/net.py", "version", "data/0"]);
    let mut file: Vec<u8> = Vec::new();
    converted.archive.write_to(&mut file).expect("memory takes it");
    assert_eq!(file.len() as u64, converted.archive.len());
    let ModuleCode::Script { signature } = &converted.code else { panic!("it has code") };
    assert_eq!(signature, "(x: Tensor) -> Tensor");
}

#[test]
fn a_wrapper_is_taken_off() {
    for (code, more) in
        [("", "data/0"), ("class Wrapper(Module):\n  pass\n", "code/__torch__/torch2carton.py")]
    {
        let original = archive(&net(", x: Tensor) -> Tensor"), &[("data/1", b"12"), (more, code.as_bytes())]);
        let WrapOutcome::Module(converted) =
            scripted(original.clone(), &ScriptOptions::default()).expect("whole")
        else {
            panic!("it has code")
        };
        let head = converted
            .archive
            .head_records()
            .map(|(name, bytes)| (name.to_owned(), Storage::owned(bytes.to_vec())));
        let wrapped: Vec<_> = head.chain(converted.archive.kept_records().iter().cloned()).collect();
        let found = unwrap_script(&wrapped).expect("whole").expect("a wrapper");
        let text = |records: &[(String, Storage)]| {
            let mut read: Vec<_> = records
                .iter()
                .map(|(name, storage)| (name.clone(), read_record(name, storage, 999).expect("small")))
                .collect();
            read.sort();
            read
        };
        let expected: Vec<_> = text(&original)
            .into_iter()
            .map(|(name, bytes)| {
                let bytes = if name == DATA {
                    bytes.strip_suffix(b"trailing").expect("it ends so").to_vec()
                } else {
                    bytes
                };
                (name, bytes)
            })
            .collect();
        assert_eq!(text(&found), expected);
    }
    let original = archive(&net(", x: Tensor) -> Tensor"), &[]);
    assert!(unwrap_script(&original).expect("whole").is_none());
}

/// Checks that a wrapper is kept unchanged, whatever its code: it is recognised by its namespace and signature.
#[test]
fn a_wrapper_is_kept_as_it_is() {
    const CODE: &str = "code/__torch__/torch2carton.py";
    let new = module(&net(", x: Tensor) -> Tensor"), &[]);
    let stored: &[u8] = include_bytes!("../../../tests/written/wrapper.txt");
    let more = [stored, b"\ndef more(x: int) -> int:\n  return x\n"].concat();
    for code in [stored, &more] {
        let mut records = archive(&net(", x: Tensor) -> Tensor"), &[(CODE, code)]);
        records.retain(|(name, _)| name != DATA);
        records.push((DATA.to_owned(), Storage::owned(new.archive.data_pkl().to_vec())));
        let Ok(WrapOutcome::Module(kept)) = scripted(records, &ScriptOptions::default()) else {
            panic!("one")
        };
        let ModuleCode::Script { signature } = &kept.code else { panic!("it has code") };
        assert_eq!(signature, "(inputs: Any) -> Dict[str, Any]");
        assert_eq!((kept.archive.head_records().count(), kept.archive.len()), (0, 5));
    }
}

#[test]
fn the_text_of_the_wrapper_is_the_stored_one() {
    let new = module(&net(", x: Tensor, mode: str=\"sum\") -> Tensor"), &[]);
    let stored = include_str!("../../../tests/written/wrapper.txt");
    assert_eq!(String::from_utf8_lossy(new.archive.code()), stored);
}

/// Checks the text for arguments and results of each type, which the conformance tests run.
#[test]
fn the_text_for_each_type_is_the_stored_one() {
    let code = net(
        ", t: Tensor, b: Tensor, h: Tensor, z: Tensor, i: int, f: float, k: bool=True, c: complex, n: number, s: str, \
         e: __torch__.net.E, g: __torch__.net.G, il: List[int], fl: List[float], bl: List[bool], tl: List[Tensor], sl: List[str], \
         d: Dict[str, Tensor], o: Optional[Tensor]=None, p: Tuple[Tensor, int]) -> Tuple[Tensor, int, float, bool, complex, str, \
         __torch__.net.E, List[int], List[float], List[bool], List[str], List[Tensor], Dict[str, Tensor], Optional[Tensor]]",
    ) + "class E(Enum):\n  ONE = 1\n  TWO = 2\nclass G(Enum):\n  A = \"a\"\n  B = \"b\"\n  C = \"c\"\n";
    let input = |name: &str, dtype| DeclaredInput {
        name: name.to_owned(),
        dtype,
        shape: vec![Dim::Symbol("n".to_owned()), Dim::Size(3)],
    };
    let options = ScriptOptions {
        inputs: vec![
            input("t", Dtype::Float32),
            input("b", Dtype::Bool),
            input("h", Dtype::Float16),
            input("z", Dtype::Complex64),
            input("tl_1", Dtype::Int64),
        ],
        ..ScriptOptions::default()
    };
    let Ok(WrapOutcome::Module(made)) = scripted(archive(&code, &[]), &options) else {
        panic!("it is a module")
    };
    let mut text = String::from_utf8_lossy(made.archive.code()).into_owned();
    let none = [].to_vec().into();
    let inputs = made.inputs.iter().cloned().map(|port| ("input", port));
    for (kind, port) in inputs.chain(made.outputs.ports(&none).map(|port| ("output", port))) {
        let ModulePort { name, dtype, shape, description, optional } = port;
        writeln!(text, "# {kind} {name} {dtype} {shape:?} {description:?} {optional}")
            .expect("memory takes it");
    }
    assert_eq!(text, include_str!("../../../tests/written/wrapper_types.txt"));
}

#[test]
fn constants_without_values_are_refused() {
    let code = net(", x: Tensor) -> Tensor") + "    w = ops.prim.ConstantMKLDNNTensor()\n";
    let error = scripted(archive(&code, &[]), &ScriptOptions::default()).expect_err("PyTorch loads none");
    assert!(error.to_string().contains("no version of PyTorch loads"), "{error}");
}

#[test]
fn float16_tensors_are_widened_by_the_object_that_python_calls() {
    let tensor = b"ctorch._utils\n_rebuild_tensor_v2\n((X\x07\x00\x00\x00storagectorch\nHalfStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x01tQ\
        K\x00(K\x01t(K\x01t\x89ccollections\nOrderedDict\n)RtR";
    let pickled = |name: &str| {
        let mut bytes =
            b"\x80\x02c__torch__.net\nNet\n)\x81}(X\x01\x00\x00\x00kK\x01X\x01\x00\x00\x00ac__torch__.net\nPart\n)\x81}(".to_vec();
        bytes.extend(
            [b"X".as_slice(), &u32::try_from(name.len()).expect("short").to_le_bytes(), name.as_bytes()]
                .concat(),
        );
        bytes.extend([tensor.as_slice(), b"ubub."].concat());
        bytes
    };
    let input = |name: &str, dtype| DeclaredInput { name: name.to_owned(), dtype, shape: Vec::new() };
    let options = ScriptOptions {
        inputs: vec![input("x", Dtype::Float16), input("y", Dtype::BFloat16)],
        ..ScriptOptions::default()
    };
    let text = |name: &str, code: &str| {
        let mut records = archive(&net(code), &[]);
        records.retain(|(name, _)| name != DATA);
        records.push((DATA.to_owned(), Storage::owned(pickled(name))));
        let Ok(WrapOutcome::Module(made)) = scripted(records, &options) else { panic!("one") };
        let noted = made.notes.iter().any(|note| matches!(note, ModuleNote::Float16Code));
        (String::from_utf8_lossy(made.archive.code()).into_owned(), noted)
    };
    let (code, noted) = text("w", ", x: Tensor, y: Tensor) -> Tensor");
    let statements = "    m1 = state.a\n    m1.w = __torch__.torch2carton.widen(unchecked_cast(Tensor, m1.w))\n    return None\n";
    assert!(code.contains(statements) && !noted, "{code}");
    // Inputs of float16 are widened like the weights; other inputs are cast.
    let casts =
        |code: &str| ["5", "15"].map(|number| code.contains(&format!("value = torch.to(value, {number})")));
    assert_eq!(casts(&code), [false, true], "{code}");
    // A name that no statement assigns, and code that makes float16 tensors itself.
    let (code, noted) = text("0", ", x: Tensor, y: Tensor) -> Tensor");
    assert!(!code.contains("__setstate__") && noted, "{code}");
    assert_eq!(casts(&code), [true, true], "{code}");
    let (code, noted) = text(
        "w",
        ", x: Tensor, y: Tensor) -> Tensor:\n    y = torch.to(x, 5)\n    return y\n  def more(self: __torch__.net.Net) -> Tensor",
    );
    assert!(!code.contains("__setstate__") && noted, "{code}");
}

#[test]
fn the_namespace_is_one_that_the_archive_does_not_have() {
    let code = net(", x: Tensor) -> Tensor");
    let taken: &[(&str, &[u8])] =
        &[("code/__torch__/torch2carton.py", b"#"), ("code/__torch__/torch2carton_1/inner.py", b"#")];
    let converted = module(&code, taken);
    let (name, text) = converted.archive.head_records().next().expect("the code is first");
    assert_eq!(name, "code/__torch__/torch2carton_2.py");
    assert!(!String::from_utf8_lossy(text).contains("__torch__.torch2carton."));
    assert!(converted.archive.data_pkl().starts_with(b"\x80\x02c__torch__.torch2carton_2\nWrapper\n"));
}

#[test]
fn records_for_mobile_devices_are_left_out() {
    let mobile: &[(&str, &[u8])] = &[
        ("bytecode.pkl", b"1"),
        ("bytecode/0", b"1"),
        ("mobile_debug_handles.pkl", b"1"),
        ("extra/a", b"1"),
    ];
    let converted = module(&net(", x: Tensor) -> Tensor"), mobile);
    let kept: Vec<&str> = converted.archive.kept_records().iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(kept, ["code/__torch__/net.py", "version", "extra/a"]);
    let error = scripted(archive("", mobile), &ScriptOptions::default()).expect_err("no source text");
    assert_eq!(error.code(), "torchscript::MobileOnly", "{error}");
    assert_eq!(uncallable(archive("", &[])), "there is no code of the class __torch__.net.Net");
}

#[test]
fn what_tensors_cannot_express_is_named() {
    for (signature, why) in [
        (") -> Any", "its forward returns Any, which tensors cannot express"),
        (
            ", x: Device) -> Tensor",
            "the argument `x` of its forward has the type Device, which tensors cannot express",
        ),
        (
            ", x: Union[int, float]) -> Tensor",
            "the argument `x` of its forward has the type Union[int, float], which tensors cannot express",
        ),
        (
            ", x: List[Optional[Tensor]]) -> Tensor",
            "the argument `x` of its forward has the type List[Optional[Tensor]], which tensors cannot express",
        ),
        (
            ", x: __torch__.net.Net) -> Tensor",
            "the argument `x` of its forward has the type __torch__.net.Net, which tensors cannot express",
        ),
        (
            ", x: Dict[int, Tensor]) -> Tensor",
            "the argument `x` of its forward has the type Dict[int, Tensor], which tensors cannot express",
        ),
        (
            ", x: Dict[str, int]) -> Tensor",
            "the argument `x` of its forward has the type Dict[str, int], which tensors cannot express",
        ),
        (
            ", x: Tuple[Tensor, Device]) -> Tensor",
            "the argument `x` of its forward has the type Tuple[Tensor, Device], which tensors cannot express",
        ),
        (") -> Dict[float, Tensor]", "its forward returns Dict[float, Tensor], which tensors cannot express"),
    ] {
        assert_eq!(uncallable(archive(&net(signature), &[])), why);
    }
    for (arguments, pair) in [
        ("x: Tuple[Tensor, Tensor], x_1: Tensor", "`x` and `x_1`"),
        ("x_1: Tensor, x: List[Tensor]", "`x` and `x_1`"),
        ("d: Dict[str, Tensor], d_a_b: int=1", "`d` and `d_a_b`"),
    ] {
        let code = net(&format!(", {arguments}) -> Tensor"));
        let why = uncallable(archive(&code, &[]));
        assert_eq!(why, format!("the arguments {pair} of its forward would have inputs of the same name"));
    }
    module(&net(", x: List[Tensor], x1: Tensor, xs: Tuple[List[int], List[Tensor]]) -> Tensor"), &[]);
    let hooked = net(", x: Tensor) -> Tensor") + "  __forward_hooks__ = [\"after\", ]\n";
    assert_eq!(uncallable(archive(&hooked, &[])), "its hooks `after` would not be called");
    let code = net(", x: Tensor) -> Tensor");
    assert_eq!(
        uncallable(archive(&code, &[("byteorder", b"big")])),
        "the numbers in the archive are big-endian"
    );
    let no_object = vec![("data.pkl".to_owned(), Storage::owned(b"\x80\x02K\x01.".to_vec()))];
    assert_eq!(uncallable(no_object), "there is no object with methods in the archive");
    let itself =
        net(") -> __torch__.net.Loop") + "class Loop(NamedTuple):\n  a : Tuple[__torch__.net.Loop]\n";
    let why = uncallable(archive(&itself, &[]));
    assert_eq!(why, "its forward returns __torch__.net.Loop, which tensors cannot express");
}

#[test]
fn inputs_whose_types_say_their_dtypes_are_listed() {
    let code = net(
        ", t: Tensor, s: str, z: complex, c: __torch__.net.C, u: Union[Tensor, int, NoneType], m: List[str]) -> complex",
    ) + "class C(Enum):\n  RED = 1.\n  BLUE = -2.\n";
    let Module { inputs, outputs, notes, .. } = module(&code, &[]);
    let listed: Vec<String> =
        inputs.iter().map(|port| format!("{} {} {}", port.name, port.dtype, port.shape.len())).collect();
    assert_eq!(listed, ["s uint8 1", "z float64 1", "c float64 0"]);
    assert_eq!(
        outputs.ports(&[].to_vec().into()).map(|port| port.shape).collect::<Vec<_>>(),
        [[Dim::Size(2)]]
    );
    assert!(matches!(notes.as_slice(), [ModuleNote::UnlistedInputs { names }] if names == &["t", "u"]));
    // An enumeration with values of several types is not supported.
    let mixed = net(", c: __torch__.net.C) -> Tensor") + "class C(Enum):\n  RED = 1\n  BLUE = \"b\"\n";
    let why = uncallable(archive(&mixed, &[]));
    assert_eq!(
        why,
        "the argument `c` of its forward has the type __torch__.net.C, which tensors cannot express"
    );
}

#[test]
fn named_tuples_of_named_tuples_are_not_expanded_without_end() {
    use std::fmt::Write;

    let mut code = net(", x: __torch__.net.T0) -> __torch__.net.T0");
    for number in 0..200 {
        let inner =
            if number == 199 { "Tensor".to_owned() } else { format!("__torch__.net.T{}", number + 1) };
        write!(code, "class T{number}(NamedTuple):\n  a : {inner}\n  b : {inner}\n").expect("memory");
    }
    let converted = module(&code, &[]);
    assert!(converted.inputs.len() <= 1000 && converted.archive.code().len() < 1 << 20);
}

#[test]
fn what_pytorch_2_0_does_not_have_is_noted() {
    let code =
        net(", x: Tensor) -> Tensor") + "    y = torch.newest_thing(x)\n    z = ops.torchvision.nms(x)\n";
    let notes = module(&code, &[]).notes;
    let texts: Vec<String> = notes.iter().map(ToString::to_string).collect();
    assert_eq!(
        texts,
        [
            "PyTorch 2.0 does not have the operator `aten::newest_thing`",
            "the code needs a library, which Carton's runner does not have, for the name `torchvision::nms`",
            "carton.toml does not list the input `x`: the code does not say the dtypes and shapes",
        ]
    );
    assert_eq!(notes.iter().map(ModuleNote::is_newer).collect::<Vec<_>>(), [true, false, false]);
    let mut newer = archive(&net(") -> Tensor"), &[]);
    newer.retain(|(name, _)| name != "version");
    newer.push(("version".to_owned(), Storage::owned(b"11\n".to_vec())));
    let Ok(WrapOutcome::Module(converted)) = scripted(newer, &ScriptOptions::default()) else {
        panic!("one")
    };
    assert_eq!(
        converted.notes.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["the archive has format version 11, which PyTorch 2.0 does not load"]
    );
}

#[test]
fn texts_of_a_user_are_literals() {
    let options =
        ScriptOptions { output_names: vec!["{ns} {type} _EMPTY_ \"".to_owned()], ..ScriptOptions::default() };
    let Ok(WrapOutcome::Module(converted)) = scripted(archive(&net(", x: Tensor) -> Tensor"), &[]), &options)
    else {
        panic!("it is a module")
    };
    let code = String::from_utf8_lossy(converted.archive.code()).into_owned();
    assert!(code.contains(r#"(out, "\173ns} \173type} \137EMPTY_ \"", value)"#), "{code}");
}

#[test]
fn names_of_outputs_fit_the_type_of_the_result() {
    let outcome = |returns: &str, names: &[&str]| {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let options = ScriptOptions { output_names: names, ..ScriptOptions::default() };
        scripted(archive(&net(&format!(", x: Tensor) -> {returns}")), &[]), &options)
    };
    for (returns, names) in [
        ("Tensor", &["a"][..]),
        ("List[int]", &["a"]),
        ("List[Tensor]", &["a", "b", "c"]),
        ("Tuple[Tensor, int]", &["a", "b"]),
    ] {
        assert!(matches!(outcome(returns, names), Ok(WrapOutcome::Module(_))), "{returns}");
    }
    for (returns, names, count) in [
        ("Tensor", &["a", "b"][..], 1),
        ("List[int]", &["a", "b"], 1),
        ("Tuple[Tensor, int]", &["a"], 2),
        ("Dict[str, Tensor]", &["a"], 0),
    ] {
        let refused = outcome(returns, names);
        assert!(
            refused.as_ref().is_err_and(|error| matches!(error.detail(), Some(Problem::OutputNameCount { expected, .. }) if *expected == count)),
            "{returns}: {refused:?}"
        );
    }
}

#[test]
fn records_have_a_largest_length() {
    let read = |len| read_record("x", &Storage::owned(vec![7; len]), 3);
    assert_eq!(read(3).expect("short enough"), [7; 3]);
    for len in [4, 5] {
        assert!(read(len).is_err_and(|error| error.code() == "torchscript::LargeRecord"));
    }
}

#[test]
fn a_module_of_dicts_can_be_kept_as_it_is() {
    let keep = ScriptOptions { keep_unchanged: true, ..ScriptOptions::default() };
    let code = net(", d: Dict[str, Tensor]) -> Dict[str, Tensor]");
    let Ok(WrapOutcome::Module(kept)) = scripted(archive(&code, &[]), &keep) else { panic!("it is one") };
    let mut file: Vec<u8> = Vec::new();
    kept.archive.write_to(&mut file).expect("memory takes it");
    assert_eq!(file, b"whole");
    for signature in [
        ", x: Tensor) -> Tensor",
        ", d: Dict[int, Tensor]) -> Dict[str, Tensor]",
        ", d: Dict[str, int]) -> Dict[str, Tensor]",
        ", d: Dict[str, Tensor]) -> Dict[str, int]",
    ] {
        let error = scripted(archive(&net(signature), &[]), &keep).expect_err("no dict");
        assert_eq!(error.code(), "torchscript::NoDictForward", "{signature}: {error}");
    }
}

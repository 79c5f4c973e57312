//! Pickles that change what a call took or returned: what PyTorch reads is read, or the file is refused.
//!
//! Facts: `Tensor.__setstate__`, `_set_obj_state` and the unpicklers of PyTorch 2.0.1 and 2.15, with which
//! `tests/conformance/test_mutations.py` compares more such programs.

use super::programs::{call, check, named, read, storage, tensor, text};

#[test]
fn build_on_a_tensor_is_applied_or_refused() {
    let state = |key| call(&[&storage("FloatStorage", key, 2), b"K\x01K\x01\x85K\x01\x85"]);
    check(&[
        ("nothing", named(&[("a", tensor("0"))]), Ok(&[("a", &[1.0, 2.0])])),
        (
            "set_ with another storage",
            named(&[("a", [tensor("0"), state("1"), b"b".to_vec()].concat())]),
            Ok(&[("a", &[4.0])]),
        ),
        (
            "set_ with a storage of another dtype",
            named(&[(
                "a",
                [
                    tensor("0"),
                    call(&[&storage("IntStorage", "1", 2), b"K\0K\x02\x85K\x01\x85"]),
                    b"b".to_vec(),
                ]
                .concat(),
            )]),
            Err("tensor `a`: torch._utils._rebuild_tensor_v2 at offset 0x"),
        ),
        (
            "the state of a variable",
            named(&[("a", [tensor("0"), call(&[&tensor("1"), b"N\x89N\x89"]), b"b".to_vec()].concat())]),
            Ok(&[("a", &[3.0, 4.0])]),
        ),
        (
            "whether it requires gradients",
            named(&[("a", [tensor("0"), b"\x89\x89N\x87b".to_vec()].concat())]),
            Ok(&[("a", &[1.0, 2.0])]),
        ),
        (
            "two states",
            named(&[("a", [tensor("0"), state("1"), b"b".to_vec(), state("0"), b"b".to_vec()].concat())]),
            Err("sets several states on its result (BUILD)"),
        ),
        (
            "a dict",
            named(&[("a", [tensor("0"), b"}b".to_vec()].concat())]),
            Err("sets a state on its result (BUILD) that is a dict"),
        ),
        (
            "a parameter whose tensor is changed after it was made",
            named(&[
                ("t", [tensor("0"), b"q\x01".to_vec()].concat()),
                ("p", parameter(b"h\x01")),
                ("u", [b"h\x01".to_vec(), state("1"), b"b".to_vec()].concat()),
            ]),
            Err("tensor `p`: torch._utils._rebuild_parameter at offset 0x"),
        ),
        (
            "a class with a state",
            named(&[("a", [b"ctorch\nFloatTensor\n)\x81".to_vec(), state("1"), b"b".to_vec()].concat())]),
            Ok(&[("a", &[4.0])]),
        ),
        (
            "a class of another dtype",
            named(&[("a", [b"ctorch\nLongTensor\n)\x81".to_vec(), state("1"), b"b".to_vec()].concat())]),
            Err("it is a tensor of int64, and its storage is one of float32"),
        ),
    ]);
}

#[test]
fn attributes_replace_the_data_or_change_nothing() {
    let with_state = |state: &[u8]| {
        let args = call(&[&tensor("0"), b"\x89ccollections\nOrderedDict\n)R", state]);
        named(&[(
            "a",
            [b"ctorch._utils\n_rebuild_parameter_with_state\n".to_vec(), args, b"R".to_vec()].concat(),
        )])
    };
    let of_type = |version: &str, state: &[u8]| {
        let inner = [
            b"ctorch._utils\n_rebuild_tensor_v2\ncmine\nTensor\n".to_vec(),
            call(&[
                &storage("FloatStorage", "0", 2),
                b"K\0K\x02\x85K\x01\x85\x89ccollections\nOrderedDict\n)R",
            ]),
        ];
        let args = call(&[&inner.concat(), state]);
        let function = format!("ctorch._tensor\n_rebuild_from_type{version}\n").into_bytes();
        named(&[("a", [function, args, b"R".to_vec()].concat())])
    };
    let data = [b"}".to_vec(), text("data"), tensor("1"), b"s".to_vec()].concat();
    let pairs = [b"ccollections\nOrderedDict\n]".to_vec(), text("data"), tensor("1"), b"\x86a\x85R".to_vec()]
        .concat();
    let slots = [b"N".to_vec(), data.clone(), b"\x86".to_vec()].concat();
    let real = [b"}".to_vec(), text("real"), tensor("1"), b"s".to_vec()].concat();
    let harmless = [b"}".to_vec(), text("quant_state"), tensor("1"), b"s".to_vec()].concat();
    let other: Result<&'static [_], _> = Ok(&[("a", &[3.0_f32, 4.0] as &[f32])]);
    let same: Result<&'static [_], _> = Ok(&[("a", &[1.0_f32, 2.0] as &[f32])]);
    check(&[
        ("data of a parameter", with_state(&data), other),
        ("data in an OrderedDict", with_state(&pairs), other),
        ("data in slots", with_state(&slots), other),
        ("an attribute of a parameter", with_state(&harmless), same),
        ("no attributes", with_state(b"N"), same),
        ("a view of the values", with_state(&real), Err("its state sets `real`, which changes the tensor")),
        ("data of a subclass", of_type("_v2", &data), other),
        ("attributes of a subclass", of_type("_v2", &harmless), same),
        ("the first version replaces __dict__", of_type("", &data), same),
    ]);
}

#[test]
fn changes_of_shared_numbers_are_refused() {
    let item = b"K\0G\x40\x22\0\0\0\0\0\0s";
    let changed = |object: Vec<u8>, change: &[u8]| {
        [
            b"\x80\x02".to_vec(),
            object,
            change.to_vec(),
            b"0".to_vec(),
            named(&[("a", tensor("0"))])[2..].to_vec(),
        ]
        .concat()
    };
    check(&[
        (
            "SETITEM on a tensor",
            named(&[("a", [tensor("0"), item.to_vec()].concat())]),
            Err("tensor `a`: torch._utils._rebuild_tensor_v2 at offset 0x"),
        ),
        (
            "SETITEM on another tensor of the storage",
            changed(tensor("0"), item),
            Err("the pickle sets items of its result (SETITEM)"),
        ),
        ("SETITEM on a storage", changed(storage("FloatStorage", "0", 2), item), Err("changes the storage")),
        ("APPEND on a storage", changed(storage("FloatStorage", "0", 2), b"Na"), Err("changes the storage")),
        ("BUILD on a storage", changed(storage("FloatStorage", "0", 2), b"}b"), Err("changes the storage")),
        (
            "BUILD on a function",
            changed(b"ctorch._utils\n_rebuild_tensor_v2\n".to_vec(), b"}b"),
            Err("torch._utils._rebuild_tensor_v2 at offset 0x2: the pickle changes this function"),
        ),
        ("APPENDS on a tensor", named(&[("a", [tensor("0"), b"(NNe".to_vec()].concat())]), Err("(APPEND)")),
        (
            "a storage under another dtype first",
            changed(storage("IntStorage", "0", 2), b""),
            Err("storage `0` is 2 of int32 here but was 2 of float32 before"),
        ),
    ]);
}

#[test]
fn what_changes_after_a_call_took_it_is_refused() {
    let shared = |size: &[u8], stride: &[u8], metadata: &[u8]| {
        let hooks = b"\x89ccollections\nOrderedDict\n)R";
        let args = call(&[&storage("FloatStorage", "0", 2), b"K\0", size, stride, hooks, metadata]);
        [b"ctorch._utils\n_rebuild_tensor_v2\n".to_vec(), args, b"R".to_vec()].concat()
    };
    let later = |call: &[u8], list: &[u8], change: &[u8]| {
        [
            b"\x80\x02}(".to_vec(),
            text("x"),
            list.to_vec(),
            b"q\x01".to_vec(),
            text("a"),
            call.to_vec(),
            text("y"),
        ]
        .into_iter()
        .chain([b"h\x01".to_vec(), change.to_vec(), b"u.".to_vec()])
        .collect::<Vec<_>>()
        .concat()
    };
    let loaded = [b"ctorch.storage\n_load_from_bytes\nh\x01\x85R".to_vec()].concat();
    let of_loaded = {
        let args = call(&[&loaded, b"K\0K\x02\x85K\x01\x85\x89ccollections\nOrderedDict\n)R"]);
        [b"ctorch._utils\n_rebuild_tensor_v2\n".to_vec(), args, b"R".to_vec()].concat()
    };
    let neg = [text("neg"), b"\x88s".to_vec()].concat();
    let pair = [b"ccollections\nOrderedDict\nh\x01\x85R".to_vec()].concat();
    let entry = [text("w"), tensor("1"), b"\x86a".to_vec()].concat();
    check(&[
        (
            "the size",
            later(&shared(b"h\x01", b"K\x01\x85", b""), b"]K\x01a", b"K\x02a"),
            Err("(list) changes afterwards"),
        ),
        (
            "the stride",
            later(&shared(b"K\x02\x85", b"h\x01", b""), b"]K\x01a", b"K\x02a"),
            Err("(list) changes afterwards"),
        ),
        (
            "the metadata",
            later(&shared(b"K\x02\x85", b"K\x01\x85", b"h\x01"), b"}", &neg),
            Err("(dict) changes afterwards"),
        ),
        ("the pairs of an OrderedDict", later(&pair, b"]", &entry), Err("(list) changes afterwards")),
        (
            "a bytearray",
            later(&of_loaded, b"c__builtin__\nbytearray\n)R", b"(K\x01K\x02e"),
            Err("changes afterwards"),
        ),
        (
            "a bytearray that changes before",
            later(&of_loaded, b"c__builtin__\nbytearray\n)R(K\x01K\x02e", b""),
            Err("torch.storage._load_from_bytes at offset 0x"),
        ),
        ("a list that was complete", later(&shared(b"h\x01", b"K\x01\x85", b""), b"]K\x02a", b""), {
            Ok(&[("a", &[1.0, 2.0])])
        }),
        (
            "the state of an object",
            later(b"cmine\nModel\n)\x81h\x01b", b"}", &[text("w"), tensor("1"), b"s".to_vec()].concat()),
            Err("(dict) changes afterwards"),
        ),
    ]);
}

#[test]
fn storages_under_several_dtypes_are_read_as_pytorch_reads_them() {
    let view = |class: &str, dtype: &str, numel: u8, size: u8| {
        let hooks = b"\x85K\x01\x85\x89ccollections\nOrderedDict\n)R".as_slice();
        let dtype = format!("ctorch\n{dtype}\n").into_bytes();
        let (module, class) = class.split_once('.').unwrap_or(("torch", class));
        let storage = [
            [b"(".to_vec(), text("storage")].concat(),
            format!("c{}\n{class}\n", module.replace('/', ".")).into_bytes(),
            [text("0"), text("cpu"), vec![b'K', numel], b"tQ".to_vec()].concat(),
        ];
        let args = call(&[&storage.concat(), b"K\0K", &[size], hooks, &dtype]);
        [b"ctorch._utils\n_rebuild_tensor_v3\n".to_vec(), args, b"R".to_vec()].concat()
    };
    let bytes = |class: &str| view(class, "uint8", 8, 8);
    for order in [false, true] {
        let mut both =
            [("a", bytes("ByteStorage")), ("b", view("torch/storage.UntypedStorage", "uint16", 8, 4))];
        if order {
            both.reverse();
        }
        let read = read(&named(&both)).expect("PyTorch 2.15 reads it");
        let mut dtypes: Vec<&str> = read.iter().map(|(_, dtype, _)| dtype.as_str()).collect();
        dtypes.sort_unstable();
        assert_eq!(dtypes, ["uint16", "uint8"]);
        assert_eq!(read[0].2, read[1].2, "the same bytes");
    }
    // Empty storages have one key under several dtypes, since they have no address.
    let empty =
        named(&[("a", view("FloatStorage", "float32", 0, 0)), ("b", view("LongStorage", "int64", 0, 0))]);
    let dtypes: Vec<String> =
        read(&empty).expect("PyTorch reads it").into_iter().map(|(_, dtype, _)| dtype).collect();
    assert_eq!(dtypes, ["float32", "int64"]);
    // With elements, what PyTorch reads depends on its version and on the order.
    let error = read(&named(&[
        ("a", view("FloatStorage", "float32", 2, 2)),
        ("b", view("IntStorage", "int32", 2, 2)),
    ]));
    assert!(error.is_err_and(|error| error.contains("is 2 of int32 here but was 2 of float32 before")));
}

/// Facts: `fastai/torch_core.py`. Versions 2.0 to 2.3 write `_fa_rebuild_tensor`, 2.5 to 2.8 with PyTorch 1 their own copy of
/// `_rebuild_from_type`; `TensorBase.__new__` calls `tensor`, which rounds float64 to float32.
#[test]
fn tensors_of_fastai_are_read() {
    let fastai = |name: &str, args: &[&[u8]]| {
        let function = format!("cfastai.torch_core\n{name}\n").into_bytes();
        [function, call(args), b"R".to_vec()].concat()
    };
    let rest = b"K\0K\x02\x85K\x01\x85\x89ccollections\nOrderedDict\n)R".as_slice();
    let of_one = b"K\0K\x01\x85K\x01\x85\x89ccollections\nOrderedDict\n)R";
    let doubles = storage("DoubleStorage", "0", 1);
    let tensor = |class: &str, of: &[u8]| {
        let class = format!("c{}\n", class.replace(' ', "\n")).into_bytes();
        named(&[("a", fastai("_fa_rebuild_tensor", &[&class, of, rest]))])
    };
    let floats = storage("FloatStorage", "0", 2);
    let of_type = |state: &[u8]| {
        let class = b"cfastai.torch_core\nTensorImage\n";
        let inner = call(&[&floats, rest]);
        let function = b"ctorch._utils\n_rebuild_tensor_v2\n";
        named(&[("a", fastai("_rebuild_from_type", &[function, class, &inner, state]))])
    };
    let same: Result<&'static [_], _> = Ok(&[("a", &[1.0_f32, 2.0] as &[f32])]);
    check(&[
        ("one of its classes", tensor("fastai.torch_core TensorImage", &floats), same),
        ("a class of a program", tensor("__main__ TensorScan", &floats), same),
        ("a function of torch", tensor("torch neg", &floats), Err("expected one of fastai's classes")),
        (
            "no class",
            named(&[("a", fastai("_fa_rebuild_tensor", &[]))]),
            Err("expected one of fastai's classes"),
        ),
        (
            "float64",
            named(&[(
                "a",
                fastai("_fa_rebuild_tensor", &[b"cfastai.torch_core\nTensorBase\n", &doubles, of_one]),
            )]),
            Err("fastai's classes round float64 to float32"),
        ),
        ("its copy of PyTorch's function", of_type(b"}"), same),
        (
            "a quantized tensor, which no version of PyTorch reads",
            named(&[(
                "a",
                fastai(
                    "_fa_rebuild_qtensor",
                    &[
                        b"cfastai.torch_core\nTensorBase\n",
                        &storage("QInt8Storage", "0", 8),
                        b"K\0K\x02\x85K\x01\x85G?\xe0\0\0\0\0\0\0K\0\x89ccollections\nOrderedDict\n)R",
                    ],
                ),
            )]),
            Err("expected a scheme, a scale and a zero point"),
        ),
    ]);
}

/// Facts: the full unpickler of PyTorch 2.15 returns zeros for `a` in the first two; that of `weights_only` refuses both.
#[test]
fn calls_that_change_their_argument_are_refused() {
    let kept = [tensor("0"), b"q\x01".to_vec()].concat();
    let of = |function: &[u8]| named(&[("a", kept.clone()), ("z", [function, b"h\x01\x85R"].concat())]);
    let method =
        [b"c__builtin__\ngetattr\nctorch._C\nTensorBase\n".to_vec(), text("zero_"), b"\x86R".to_vec()];
    let relu =
        [b"c__builtin__\ngetattr\nctorch\nTensor\n".to_vec(), text("relu_"), b"\x86R".to_vec()].concat();
    check(&[
        ("a method", of(&method.concat()), Err("zero_ at offset 0x")),
        ("a function", of(b"ctorch.nn.init\nzeros_\n"), Err("which changes its argument in place")),
        (
            "a function that is not called",
            named(&[("a", kept.clone()), ("f", relu)]),
            Ok(&[("a", &[1.0, 2.0])]),
        ),
    ]);
}

fn parameter(data: &[u8]) -> Vec<u8> {
    let args = call(&[data, b"\x89ccollections\nOrderedDict\n)R"]);
    [b"ctorch._utils\n_rebuild_parameter\n".to_vec(), args, b"R".to_vec()].concat()
}

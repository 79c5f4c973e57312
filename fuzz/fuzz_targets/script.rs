//! The source text of a TorchScript archive, and the module that the archive becomes: an error, or one whose own text has
//! the signature that Carton calls, which holds the pickle of the original, and which is kept as it is when it is read again.

#![no_main]

use byte_source::Blob;
use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::{Corpus, fuzz_target};
use tensor::Dtype;
use torch_import::Container;
use torch2carton_fuzz::archive;
use torch2carton_fuzz::input::source;
use torchscript::script_text::ScriptSources;
use torchscript::{DeclaredInput, Dim, Module, OnInvalidInput, ScriptOptions, WrapOutcome};

/// An object of `__torch__.net.Net` with an attribute that is a memoised text.
const PICKLE: &[u8] = b"\x80\x02c__torch__.net\nNet\nq\x00)\x81}(X\x01\x00\x00\x00kq\x01h\x01ubq\x02.";
const START: &[u8] = b"class Net(Module):\n  def forward(self: __torch__.net.Net";
/// What signatures, classes and calls are made of.
const PIECES: &[&str] = &[
    "Tensor",
    "int",
    "float",
    "bool",
    "str",
    "complex",
    "number",
    "Any",
    "NoneType",
    "Device",
    "Optional[",
    "List[",
    "Dict[str, ",
    "Dict[int, ",
    "Tuple[",
    "Union[",
    "Tuple[()]",
    "Final[",
    "]",
    ", ",
    ", x: ",
    ", y: ",
    ", inputs: ",
    ": ",
    "=",
    "=None",
    "=-1.5e-05",
    "=\"a\\\"\"",
    "=[1, 2]",
    "=(1, {})",
    ")",
    "(",
    ") -> ",
    ":\n    return x\n",
    "\n",
    "  a : ",
    "  RED = 1\n",
    "  BLUE = \"b\"\n",
    "class P(NamedTuple):\n",
    "class C(Enum):\n",
    "class Net(Module):\n",
    "class Q(NamedTuple):\n",
    "__torch__.net.P",
    "__torch__.net.C",
    "__torch__.net.Q",
    "__torch__.net.Net",
    "  __forward_hooks__ = [\"a\", ]\n",
    "    y = torch.to_dense(x, masked_grad=True)\n",
    "torch.add(",
    "torch.add_relu(",
    "ops.torchvision.nms(",
    "ops.quantized.linear(",
    "__torch__.torch.classes.",
    "None",
    "dtype=",
    "# ",
    "\"",
    "'''",
    "\\",
    ".5",
    "é",
    "  def forward(self",
    "output",
    "error",
];
const NAMES: &[&str] =
    &["x", "y", "x_0", "x_a", "inputs", "output", "a\"\n{ns}", "error", "", "é", "_EMPTY_", "{id}"];
const RECORDS: &[&str] = &[
    "net/code/__torch__.py",
    "net/code/__torch__/torch2carton.py",
    "net/code/__torch__/other.py",
    "net/bytecode.pkl",
    "net/byteorder",
    "net/data/0",
    "net/extra/a",
    "net/version",
];
const DTYPES: &[Dtype] = &[Dtype::Float32, Dtype::Float16, Dtype::Bool, Dtype::Complex64, Dtype::Int64];

fuzz_target!(|bytes: &[u8]| -> Corpus {
    if bytes.starts_with(b"PK") {
        check(bytes, &ScriptOptions::default(), OnInvalidInput::Return);
    } else if bytes.starts_with(b"class ") {
        // Text that was written by hand, or by PyTorch.
        check(&net(bytes, PICKLE, &[]), &ScriptOptions::default(), OnInvalidInput::Return);
    } else if arbitrary(&mut Unstructured::new(bytes)).is_err() {
        return Corpus::Reject;
    }
    Corpus::Keep
});

fn net(code: &[u8], pickle: &[u8], more: &[(&str, &[u8])]) -> Vec<u8> {
    let mut records = vec![
        ("net/data.pkl", pickle),
        ("net/code/__torch__/net.py", code),
        ("net/constants.pkl", b"\x80\x02)."),
    ];
    records.extend(more);
    archive::zip(&records)
}

fn arbitrary(u: &mut Unstructured<'_>) -> Result<()> {
    let errors = if u.arbitrary()? { OnInvalidInput::Raise } else { OnInvalidInput::Return };
    let mut options = ScriptOptions { keep_unchanged: u.ratio(1, 16)?, ..ScriptOptions::default() };
    for _ in 0..u.int_in_range(0..=2)? {
        let shape = vec![Dim::Size(u.arbitrary()?), Dim::Symbol("batch".to_owned())];
        options.inputs.push(DeclaredInput {
            name: (*u.choose(NAMES)?).to_owned(),
            dtype: *u.choose(DTYPES)?,
            shape,
        });
    }
    for _ in 0..u.int_in_range(0..=2)? {
        options.output_names.push((*u.choose(NAMES)?).to_owned());
    }
    let mut more: Vec<(&str, &[u8])> = Vec::new();
    for _ in 0..u.int_in_range(0..=2)? {
        let len = u.int_in_range(0..=8)?;
        more.push((*u.choose(RECORDS)?, u.bytes(len)?));
    }
    let mut pickle = PICKLE.to_vec();
    if u.ratio(1, 16)? {
        archive::patch(u, &mut pickle)?;
    }
    let mut code = START.to_vec();
    while !u.is_empty() {
        match u.arbitrary::<u8>()? {
            255 => code.push(u.arbitrary()?),
            number => code.extend(PIECES[usize::from(number) % PIECES.len()].as_bytes()),
        }
    }
    check(&net(&code, &pickle, &more), &options, errors);
    Ok(())
}

/// Reads a file, makes the module of it, and reads that.
fn check(bytes: &[u8], options: &ScriptOptions, errors: OnInvalidInput) {
    let input = source(bytes);
    let Ok(container) = Container::from_source(input) else { return };
    let Some(converted) = module(&container, options, errors) else { return };
    let again = module(&container, options, errors).expect("it was one");
    // A record whose checksum is wrong is found when it is copied.
    let Some(file) = written(&converted) else { return };
    assert_eq!(Some(&file), written(&again).as_ref());
    assert_eq!(converted.notes, again.notes);
    if options.keep_unchanged || file == bytes {
        assert_eq!(file, bytes);
        return;
    }
    let mut sources = ScriptSources::default();
    let (record, code) = converted.archive.head_records().next().expect("our code is first");
    sources.add(record, code).expect("it is text");
    let namespace = record.trim_start_matches("code/").trim_end_matches(".py").replace('/', ".");
    let signature = sources.signature(&namespace, "Wrapper", "forward").expect("PyTorch reads it, too");
    assert_eq!(signature.to_string(), "(inputs: Dict[str, Tensor]) -> Dict[str, Any]");
    pickle_vm::load(converted.archive.data_pkl()).expect("the pickle of the original is inside it");

    let input = source(&file);
    let container = Container::from_source(input).expect("it was written");
    let kept = module(&container, &ScriptOptions::default(), OnInvalidInput::Return).expect("it is a module");
    assert_eq!(written(&kept), Some(file));
}

fn module(container: &Container, options: &ScriptOptions, errors: OnInvalidInput) -> Option<Module> {
    match torchscript::wrap_script(
        container.script_records().ok()?,
        &container.file_storage(),
        options,
        errors,
    ) {
        Ok(WrapOutcome::Module(converted)) => Some(converted),
        Ok(WrapOutcome::Uncallable(why)) => {
            assert!(!why.to_string().contains('\n'));
            None
        }
        Err(error) => {
            assert!(!error.to_string().contains('\n'));
            None
        }
    }
}

fn written(converted: &Module) -> Option<Vec<u8>> {
    let mut file: Vec<u8> = Vec::new();
    converted.archive.write_to(&mut file).ok()?;
    assert_eq!(file.len() as u64, converted.archive.len());
    Some(file)
}

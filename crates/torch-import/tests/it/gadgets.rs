//! Callables that run code are dangerous, however a pickle names and calls them.
//!
//! Facts: `gadgets/advisories.txt`, the callables that published advisories for picklescan, fickling and modelscan name;
//! `gadgets/reaches.txt`, those of CPython, torch and numpy whose source reaches exec, eval, import or unpickle, which
//! `lists/generate.py` writes; `gadgets/once.txt`, what earlier versions called dangerous.

use std::error::Error;

use torch_import::{Risk, Scan, ScanDepth};

const ADVISORIES: &str = include_str!("../gadgets/advisories.txt");
const REACHES: &str = include_str!("../gadgets/reaches.txt");
const ONCE: &str = include_str!("../gadgets/once.txt");

type Result = std::result::Result<(), Box<dyn Error>>;

/// The modules and names of a list.
fn gadgets(list: &'static str) -> impl Iterator<Item = (&'static str, &'static str)> {
    let lines = list.lines().filter(|line| !line.starts_with('#'));
    lines
        .filter_map(|line| line.split_once(' '))
        .map(|(module, rest)| (module, rest.split(' ').next().unwrap_or(rest)))
}

#[test]
fn the_lists_are_as_long_as_the_documents_say() {
    assert!(gadgets(ADVISORIES).count() >= 130, "{}", gadgets(ADVISORIES).count());
    assert!(gadgets(REACHES).count() >= 250, "{}", gadgets(REACHES).count());
}

#[test]
fn gadgets_are_dangerous_by_name() {
    let missed: Vec<_> = gadgets(ADVISORIES)
        .chain(gadgets(REACHES))
        .filter(|(module, name)| Risk::from_names(module, name) != Risk::Dangerous)
        .collect();
    assert!(missed.is_empty(), "{} are not dangerous: {missed:?}", missed.len());
}

#[test]
fn what_was_once_dangerous_stays_so() {
    let lines = |text: &'static str| text.lines().filter(|line| !line.starts_with('#'));
    let (modules, names) = ONCE.split_once("\n\n").expect("two parts");
    let modules = lines(modules).flat_map(str::split_whitespace).map(|module| (module, "something_new"));
    let mut owner = "";
    let names = lines(names).chain(lines(include_str!("../../lists/dangerous.txt"))).flat_map(|line| {
        let mut words = line.split_whitespace();
        if !line.starts_with(' ') {
            owner = words.next().unwrap_or_default();
        }
        let module = owner;
        words.map(move |name| (module, name))
    });
    let missed: Vec<_> = modules
        .chain(names)
        .filter(|names| {
            Risk::from_names(names.0, names.1) != Risk::Dangerous && !JUDGED_SINCE.contains(names)
        })
        .collect();
    assert!(missed.is_empty(), "{} are not dangerous: {missed:?}", missed.len());
}

/// Classes whose instances only keep what they are given, and functions whose arguments are judged, which people have reviewed since.
const JUDGED_SINCE: [(&str, &str); 8] = [
    ("logging", "LogRecord"),
    ("torch.nested._internal.nested_tensor", "NestedTensor"),
    ("torch.nested._internal.nested_tensor", "_rebuild_njt"),
    ("torch.storage", "_load_from_bytes"),
    ("typing", "TypeVar"),
    ("typing", "_BoundVarianceMixin"),
    ("typing", "_TypeVarLike"),
    ("xml.etree.ElementTree", "ElementTree"),
];

/// A module may import any other, so that a dotted name may lead to a gadget from anywhere.
#[test]
fn gadgets_are_dangerous_by_dotted_names() {
    let carriers = ["torch.serialization", "collections", "numpy", "mylib.tools"];
    let missed: Vec<_> = gadgets(ADVISORIES)
        .chain(gadgets(REACHES))
        .flat_map(|(module, name)| carriers.map(|carrier| (carrier, format!("{module}.{name}"))))
        .filter(|(carrier, name)| Risk::from_names(carrier, name) != Risk::Dangerous)
        .collect();
    assert!(missed.is_empty(), "{} are not dangerous: {missed:?}", missed.len());
}

#[test]
fn a_scan_finds_calls_of_gadgets_under_every_opcode() -> Result {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("gadget.pkl");
    // An itemgetter of a plain key only remembers it, as in ordinary files.
    for (module, name) in gadgets(ADVISORIES).filter(|(_, name)| *name != "itemgetter") {
        for (form, pickle) in [
            ("GLOBAL", global(module, name)),
            ("STACK_GLOBAL", stack_global(module, name)),
            ("INST", inst(module, name)),
        ] {
            std::fs::write(&path, pickle)?;
            let scan = Scan::file(&path, ScanDepth::Everything, &())?;
            let found =
                scan.uses().any(|(_, found)| found.risk == Risk::Dangerous && found.global.name == name);
            assert!(found, "{form} {module} {name}");
        }
    }
    Ok(())
}

/// `module.name('id')`, in protocol 2.
fn global(module: &str, name: &str) -> Vec<u8> {
    [b"\x80\x02c", module.as_bytes(), b"\n", name.as_bytes(), b"\nX\x02\x00\x00\x00id\x85R."].concat()
}

/// The same in protocol 4, where the names are on the stack.
fn stack_global(module: &str, name: &str) -> Vec<u8> {
    let text = |text: &str| [&[0x8c, u8::try_from(text.len()).unwrap_or(u8::MAX)], text.as_bytes()].concat();
    [b"\x80\x04".to_vec(), text(module), text(name), b"\x93\x8c\x02id\x85R.".to_vec()].concat()
}

/// The same in protocol 0, where one opcode names and calls.
fn inst(module: &str, name: &str) -> Vec<u8> {
    [b"(S'id'\ni", module.as_bytes(), b"\n", name.as_bytes(), b"\n."].concat()
}

//! Pickles of objects, for the tests of their uses.

pub(crate) fn text(text: &str) -> Vec<u8> {
    [&[0x8c, u8::try_from(text.len()).expect("a short text")], text.as_bytes()].concat()
}

pub(crate) fn global(module: &str, name: &str) -> Vec<u8> {
    [text(module), text(name), b"\x93".to_vec()].concat()
}

pub(crate) fn tuple(items: &[Vec<u8>]) -> Vec<u8> {
    [b"(", items.concat().as_slice(), b"t"].concat()
}

pub(crate) fn call(function: &[u8], args: &[Vec<u8>]) -> Vec<u8> {
    [function, &tuple(args), b"R"].concat()
}

pub(crate) fn new(class: &[u8], args: &[Vec<u8>]) -> Vec<u8> {
    [class, &tuple(args), b"\x81"].concat()
}

pub(crate) fn dict(entries: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let entries = entries.iter().map(|(key, value)| [text(key), value.clone()].concat());
    [b"}(".to_vec(), entries.collect::<Vec<_>>().concat(), b"u".to_vec()].concat()
}

pub(crate) fn list(items: &[Vec<u8>]) -> Vec<u8> {
    [b"](", items.concat().as_slice(), b"e"].concat()
}

pub(crate) fn build(object: &[u8], state: &[u8]) -> Vec<u8> {
    [object, state, b"b"].concat()
}

/// An instance whose methods run if a function reads it.
pub(crate) fn loader() -> Vec<u8> {
    let class = global("torch.utils.data.dataloader", "DataLoader");
    build(&new(&class, &[]), &dict(&[("dataset", list(&[]))]))
}

pub(crate) fn graph() -> Vec<u8> {
    global("torch.ao.quantization.fx._lower_to_native_backend", "Graph")
}

//! Checkpoints that tests make by hand: `.pth` files as `torch.save` writes them, and safetensors.

#![expect(clippy::arithmetic_side_effects, reason = "a test fails by panicking")]

use std::path::Path;

use pickle_vm::Writer;
use zip_format::{EntryContent, NewZipEntry, ZipWriter};

use crate::carton_tools::write;

/// What a pickle holds.
#[derive(Clone)]
pub(crate) enum Value {
    /// A tensor of bytes with this shape.
    Tensor(Vec<u64>),
    /// A view of a storage of so many bytes: its shape and its stride.
    View(u64, Vec<u64>, Vec<u64>),
    Int(i64),
    Dict(Vec<(String, Value)>),
    Tuple(Vec<Value>),
    /// So many of the same number.
    Repeated(i64, usize),
}

/// A dict of the pickle.
pub(crate) fn dict(items: &[(&str, Value)]) -> Value {
    Value::Dict(items.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect())
}

/// A tensor of bytes with one dimension.
pub(crate) fn tensor(len: u64) -> Value {
    Value::Tensor(vec![len])
}

/// Writes `root` as the zip archive that `torch.save` makes of it. The bytes of tensor number N are all N + 1.
pub(crate) fn write_pth(path: &Path, root: &Value) {
    write_pth_with(path, root, &[]);
}

/// Writes the records of that archive into a folder.
pub(crate) fn write_unpacked(folder: &Path, root: &Value) {
    for (name, bytes) in pth_records(root) {
        write(folder.join(name), bytes);
    }
}

fn pth_records(root: &Value) -> Vec<(String, Vec<u8>)> {
    let mut pickler = Pickler { writer: Writer::new(), storages: Vec::new() };
    pickler.value(root);
    let mut records = vec![
        ("data.pkl".to_owned(), pickler.writer.finish()),
        ("byteorder".to_owned(), b"little".to_vec()),
        ("version".to_owned(), b"3\n".to_vec()),
    ];
    let storages = (1_u8..).zip(&pickler.storages);
    records.extend(storages.map(|(key, len)| (format!("data/{}", key - 1), vec![key; *len])));
    records
}

/// The same, with more records in the archive's folder.
pub(crate) fn write_pth_with(path: &Path, root: &Value, records: &[(&str, &[u8])]) {
    let mut sink: Vec<u8> = Vec::new();
    let mut zip = ZipWriter::new(&mut sink);
    let mut add = |name: &str, bytes: &[u8]| {
        let name = format!("archive/{name}");
        let entry = NewZipEntry { name: &name, alignment: 64, content: EntryContent::Bytes(bytes) };
        zip.add(&entry).expect("writing to memory does not fail");
    };
    for (name, bytes) in pth_records(root) {
        add(&name, &bytes);
    }
    for (name, bytes) in records {
        add(name, bytes);
    }
    zip.finish().expect("writing to memory does not fail");
    write(path.to_owned(), sink);
}

struct Pickler {
    writer: Writer,
    /// The bytes of each storage.
    storages: Vec<usize>,
}

impl Pickler {
    fn value(&mut self, value: &Value) {
        match value {
            Value::Int(number) => self.writer.int(*number),
            Value::Tensor(shape) => {
                let stride: Vec<u64> =
                    (1..=shape.len()).map(|from| shape.iter().skip(from).product()).collect();
                self.tensor(shape.iter().product(), shape, &stride);
            }
            Value::View(len, shape, stride) => self.tensor(*len, shape, stride),
            Value::Repeated(number, count) => {
                self.writer.mark();
                (0..*count).for_each(|_| self.writer.int(*number));
                self.writer.tuple();
            }
            Value::Tuple(items) => {
                self.writer.mark();
                for item in items {
                    self.value(item);
                }
                self.writer.tuple();
            }
            Value::Dict(items) => {
                self.writer.empty_dict();
                self.writer.mark();
                for (name, value) in items {
                    self.text(name);
                    self.value(value);
                }
                self.writer.setitems();
            }
        }
    }

    fn tensor(&mut self, numel: u64, shape: &[u64], stride: &[u64]) {
        let key = self.storages.len().to_string();
        self.storages.push(usize::try_from(numel).expect("a small tensor"));
        self.global("torch._utils", "_rebuild_tensor_v2");
        self.writer.mark();
        self.writer.mark();
        self.text("storage");
        self.global("torch", "ByteStorage");
        self.text(&key);
        self.text("cpu");
        self.number(numel);
        self.writer.tuple();
        self.writer.binpersid();
        self.writer.int(0);
        self.numbers(shape.iter().copied());
        self.numbers(stride.iter().copied());
        self.writer.bool(false);
        self.global("collections", "OrderedDict");
        self.writer.empty_tuple();
        self.writer.reduce();
        self.writer.tuple();
        self.writer.reduce();
    }

    fn text(&mut self, text: &str) {
        self.writer.text(text).expect("less than 4 GiB");
    }

    fn global(&mut self, module: &str, name: &str) {
        self.writer.global(module, name).expect("no newlines");
    }

    fn number(&mut self, number: u64) {
        self.writer.int(i64::try_from(number).expect("a small number"));
    }

    fn numbers(&mut self, numbers: impl Iterator<Item = u64>) {
        self.writer.mark();
        numbers.for_each(|number| self.number(number));
        self.writer.tuple();
    }
}

/// Writes a safetensors file. The bytes of tensor number N are all N + 1.
pub(crate) fn write_safetensors(path: &Path, metadata: &[(&str, &str)], tensors: &[(&str, &[u64])]) {
    let mut header = serde_json::Map::new();
    if !metadata.is_empty() {
        let metadata = metadata.iter().map(|(key, value)| ((*key).to_owned(), (*value).into()));
        header.insert("__metadata__".to_owned(), serde_json::Value::Object(metadata.collect()));
    }
    let mut data = Vec::new();
    for (byte, (name, shape)) in (1_u8..).zip(tensors) {
        let start = data.len();
        let len = usize::try_from(shape.iter().product::<u64>()).expect("a small tensor");
        data.resize(start + len, byte);
        let info = serde_json::json!({ "dtype": "U8", "shape": shape, "data_offsets": [start, data.len()] });
        header.insert((*name).to_owned(), info);
    }
    let header = serde_json::to_vec(&header).expect("it is JSON");
    let len = u64::try_from(header.len()).expect("a small header").to_le_bytes();
    write(path.to_owned(), [&len[..], &header, &data].concat());
}

//! Programs in protocol 2, and what the files with them read as.

use std::io::Write;

use byte_source::Blob;
use torch_import::{Checkpoint, Container};

/// A program, and the tensors that PyTorch reads or a part of the error.
pub(crate) type Case =
    (&'static str, Vec<u8>, Result<&'static [(&'static str, &'static [f32])], &'static str>);

/// The name, the dtype and the bytes of each tensor.
pub(crate) type Read = Result<Vec<(String, String, Vec<u8>)>, String>;

/// Compares what programs read as.
pub(crate) fn check(cases: &[Case]) {
    for (name, pickle, expected) in cases {
        let read = read(pickle);
        match expected {
            Ok(tensors) => {
                let read = read.unwrap_or_else(|error| panic!("{name}: {error}"));
                let bytes =
                    |numbers: &[f32]| numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
                let expected: Vec<(String, String, Vec<u8>)> = tensors
                    .iter()
                    .map(|(name, numbers)| ((*name).to_owned(), "float32".to_owned(), bytes(numbers)))
                    .collect();
                assert_eq!(read, expected, "{name}");
            }
            Err(part) => {
                let error = read.expect_err(name);
                assert!(error.contains(part), "{name}: {error}");
            }
        }
    }
}

/// What an archive with this pickle reads as: the name, the dtype and the bytes of each tensor, or the error.
pub(crate) fn read(pickle: &[u8]) -> Read {
    read_file(&archive(pickle))
}

pub(crate) fn read_file(bytes: &[u8]) -> Read {
    with_checkpoint(bytes, |checkpoint| {
        let mut tensors = Vec::new();
        for (name, tensor) in checkpoint.tensors() {
            let mut bytes: Vec<u8> = Vec::new();
            tensor.gathered().write_to(&mut bytes).expect("the file is readable");
            tensors.push((name.into_owned(), tensor.dtype().to_string(), bytes));
        }
        tensors
    })
}

/// What a function finds in the checkpoint in a file, or why it cannot be read.
pub(crate) fn with_checkpoint<T>(bytes: &[u8], found: impl FnOnce(&Checkpoint) -> T) -> Result<T, String> {
    let mut file = tempfile::NamedTempFile::new().expect("the temporary folder is writable");
    file.write_all(bytes).expect("the temporary folder is writable");
    let container = Container::open(file.path()).map_err(|error| error.to_string())?;
    let checkpoint = Checkpoint::read(&container).map_err(|error| error.to_string())?;
    Ok(found(&checkpoint))
}

/// A dict of these programs by their names.
pub(crate) fn named(entries: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let entries = entries.iter().flat_map(|(name, program)| [text(name), program.clone()].concat());
    [b"\x80\x02}(".to_vec(), entries.collect(), b"u.".to_vec()].concat()
}

pub(crate) fn global(name: &str) -> Vec<u8> {
    let (module, name) = name.rsplit_once('.').expect("globals have modules");
    format!("c{module}\n{name}\n").into_bytes()
}

pub(crate) fn dict(entries: &[(&str, &[u8])]) -> Vec<u8> {
    let entries: Vec<u8> =
        entries.iter().flat_map(|(key, value)| [text(key), value.to_vec()].concat()).collect();
    [b"}(".as_slice(), &entries, b"u"].concat()
}

pub(crate) fn one(program: Vec<u8>) -> Vec<u8> {
    named(&[("a", program)])
}

pub(crate) fn text(text: &str) -> Vec<u8> {
    let len = u32::try_from(text.len()).expect("names are short");
    [b"X".as_slice(), &len.to_le_bytes(), text.as_bytes()].concat()
}

pub(crate) fn call(args: &[&[u8]]) -> Vec<u8> {
    [b"(".to_vec(), args.concat(), b"t".to_vec()].concat()
}

pub(crate) fn storage(class: &str, key: &str, numel: u8) -> Vec<u8> {
    let class = format!("ctorch\n{class}\n").into_bytes();
    [b"(".to_vec(), text("storage"), class, text(key), text("cpu"), vec![b'K', numel], b"tQ".to_vec()]
        .concat()
}

/// All of storage `key`, which has two numbers.
pub(crate) fn tensor(key: &str) -> Vec<u8> {
    let args =
        call(&[&storage("FloatStorage", key, 2), b"K\0K\x02\x85K\x01\x85\x89ccollections\nOrderedDict\n)R"]);
    [b"ctorch._utils\n_rebuild_tensor_v2\n".to_vec(), args, b"R".to_vec()].concat()
}

/// A zip archive with this pickle and the storages `0`, which is 1 and 2, and `1`, which is 3 and 4. It has no checksums.
pub(crate) fn archive(pickle: &[u8]) -> Vec<u8> {
    let numbers = |numbers: [f32; 2]| numbers.map(f32::to_le_bytes).concat();
    let records = [
        ("a/data.pkl", pickle.to_vec()),
        ("a/data/0", numbers([1.0, 2.0])),
        ("a/data/1", numbers([3.0, 4.0])),
    ];
    let (mut out, mut directory) = (Vec::new(), Vec::new());
    for (name, bytes) in &records {
        let len = u32::try_from(bytes.len()).expect("records are short").to_le_bytes();
        let name_len = u16::try_from(name.len()).expect("names are short").to_le_bytes();
        let start = u32::try_from(out.len()).expect("archives are short").to_le_bytes();
        // Version, flags, method, time, date and CRC-32.
        let common = [&[20, 0][..], &[0; 12], &len, &len, &name_len, &[0; 2]].concat();
        out.extend([b"PK\x03\x04", common.as_slice(), name.as_bytes(), bytes].concat());
        directory
            .extend([b"PK\x01\x02\x14\0", common.as_slice(), &[0; 10], &start, name.as_bytes()].concat());
    }
    let start = u32::try_from(out.len()).expect("archives are short").to_le_bytes();
    let len = u32::try_from(directory.len()).expect("archives are short").to_le_bytes();
    out.extend([&directory[..], b"PK\x05\x06\0\0\0\0\x03\0\x03\0", &len, &start, b"\0\0"].concat());
    out
}

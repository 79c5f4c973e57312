//! The tensors of a carton of 139 GB can be used at once: only the pages that are read come into memory.
//!
//! The carton is sparse: its tensors are holes in the file, except for their first and last values.

#![cfg(target_os = "linux")]
#![expect(
    clippy::arithmetic_side_effects,
    clippy::print_stdout,
    reason = "an overflow is a failed test; the figures are shown with --nocapture"
)]

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::time::Instant;

use byte_source::{Crc32, OwnedBlob, hex, sha256};
use carton_format::{Carton, MODEL_PT};
use torch_import::{Checkpoint, Container};

/// The number of tensors, and the number of elements, of four bytes each, of a tensor.
const TENSORS: u64 = 100;
const NUMEL: u32 = 347_500_000;

/// A zip file of stored entries of any length, written from the file's current position. Offsets are relative to it.
struct Zip<'f> {
    file: &'f mut File,
    start: u64,
    directory: Vec<u8>,
    entries: u64,
}

impl<'f> Zip<'f> {
    fn new(file: &'f mut File) -> Self {
        let start = file.stream_position().expect("a file");
        Self { file, start, directory: Vec::new(), entries: 0 }
    }

    /// Writes an entry of `len` bytes, which `write` fills; CRC 0 means that it is unknown.
    fn add(&mut self, name: &str, len: u64, crc: u32, write: &mut dyn FnMut(&mut File)) {
        let (version, narrow) = (45_u16.to_le_bytes(), u32::MAX.to_le_bytes());
        let offset = self.file.stream_position().expect("a file") - self.start;
        let name_len = u16::try_from(name.len()).expect("it is short").to_le_bytes();
        let sizes = [len.to_le_bytes(), len.to_le_bytes()].concat();
        // No flags, stored, no time, checksum, sizes, name.
        let middle = [&[0; 6][..], &[33, 0], &crc.to_le_bytes(), &narrow, &narrow, &name_len].concat();
        let local = [b"PK\x03\x04", &version[..], &middle, &[20, 0], name.as_bytes(), &[1, 0, 16, 0], &sizes];
        self.file.write_all(&local.concat()).expect("a temporary folder");
        let data = self.file.stream_position().expect("a file");
        write(self.file);
        self.file.seek(SeekFrom::Start(data + len)).expect("a file");
        self.directory.extend([b"PK\x01\x02", &version[..], &version, &middle, &[28, 0]].concat());
        self.directory.extend([&[0; 10], &narrow[..], name.as_bytes(), &[1, 0, 24, 0], &sizes].concat());
        self.directory.extend(offset.to_le_bytes());
        self.entries += 1;
    }

    fn bytes(&mut self, name: &str, bytes: &[u8]) {
        let mut crc = Crc32::default();
        crc.add_bytes(bytes);
        self.add(name, bytes.len() as u64, crc.sum(), &mut |file| {
            file.write_all(bytes).expect("a temporary folder");
        });
    }

    /// Writes the directory; the length of the whole zip file.
    fn finish(self) -> u64 {
        let offset = self.file.stream_position().expect("a file") - self.start;
        let (len, entries) = ((self.directory.len() as u64).to_le_bytes(), self.entries.to_le_bytes());
        let (at, end) = (offset.to_le_bytes(), (offset + self.directory.len() as u64).to_le_bytes());
        let numbers = [&entries[..], &entries, &len, &at].concat();
        let wide = [b"PK\x06\x06", &44_u64.to_le_bytes()[..], &[45, 0, 45, 0], &[0; 8], &numbers].concat();
        let locator = [b"PK\x06\x07", &[0; 4][..], &end, &[1, 0, 0, 0]].concat();
        let last = [b"PK\x05\x06", &[0; 4][..], &[255; 12], &[0; 2]].concat();
        self.file.write_all(&[self.directory, wide, locator, last].concat()).expect("a temporary folder");
        self.file.stream_position().expect("a file") - self.start
    }
}

/// What `torch.save` writes of a dict of float32 tensors, each with a storage of its own.
fn pickle() -> Vec<u8> {
    let text = |text: &str| {
        [&[b'X'][..], &u32::try_from(text.len()).expect("it is short").to_le_bytes(), text.as_bytes()]
            .concat()
    };
    let numel = [&[b'J'][..], &NUMEL.to_le_bytes()].concat();
    let mut out = b"\x80\x02}".to_vec();
    for number in 0..TENSORS {
        let key = text(&number.to_string());
        let storage =
            [b"(", &text("storage")[..], b"ctorch\nFloatStorage\n", &key, &text("cpu"), &numel, b"tQ"];
        out.extend(text(&format!("layers.{number}.weight")));
        out.extend(b"ctorch._utils\n_rebuild_tensor_v2\n(");
        out.extend(storage.concat());
        out.extend([b"K\x00", &numel[..], b"\x85K\x01\x85\x89ccollections\nOrderedDict\n)RtRs"].concat());
    }
    out.push(b'.');
    out
}

/// The first and the last value of a tensor.
fn ends(number: u64) -> [[u8; 4]; 2] {
    [number, number + 1000].map(|value| u32::try_from(value).expect("it is small").to_le_bytes())
}

fn model(file: &mut File) {
    let nbytes = u64::from(NUMEL) * 4;
    let mut zip = Zip::new(file);
    zip.bytes("model/data.pkl", &pickle());
    zip.bytes("model/version", b"3\n");
    for number in 0..TENSORS {
        let [first, last] = ends(number);
        zip.add(&format!("model/data/{number}"), nbytes, 0, &mut |file| {
            file.write_all(&first).expect("a temporary folder");
            let skip = i64::try_from(nbytes - 8).expect("63 bits");
            file.seek_relative(skip).expect("a file");
            file.write_all(&last).expect("a temporary folder");
        });
    }
    zip.finish();
}

/// A number of `/proc/self`: the one after `key` in one of its files.
fn counted(file: &str, key: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/self/{file}")).expect("Linux has it");
    let line = text.lines().find_map(|line| line.strip_prefix(key)).expect("Linux counts it");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

#[test]
fn the_first_tensor_of_139_gb_is_available_at_once() {
    let test = "in_place::the_first_tensor_of_139_gb_is_available_at_once";
    test_support::each_in_own_process(test, ["139 GB"], |_| first_tensor());
}

fn first_tensor() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    // The length of the model is known only after writing it, so it is written to a scratch file first.
    let path = folder.path().join("x.carton");
    let mut file = File::create(&path).expect("a temporary folder");
    let model_len = {
        let mut scratch = tempfile::tempfile().expect("a temporary folder");
        model(&mut scratch);
        scratch.stream_position().expect("a file")
    };
    let toml =
        b"spec_version = 1\n[runner]\nrunner_name = 'torchscript'\nrequired_framework_version = '=2.0'\n\
        runner_compat_version = 1\n";
    let hash = hex(&sha256(&OwnedBlob(toml.to_vec()), &()).expect("in memory"));
    let manifest = format!("carton.toml={hash}\n{MODEL_PT}={}\n", "0".repeat(64));
    let mut zip = Zip::new(&mut file);
    zip.bytes("carton.toml", toml);
    zip.add(MODEL_PT, model_len, 0, &mut model);
    zip.bytes("MANIFEST", manifest.as_bytes());
    let len = zip.finish();
    assert!(len > 139_000_000_000, "{len}");
    drop(file);

    let before = [counted("io", "rchar:"), counted("status", "VmRSS:")];
    let start = Instant::now();
    let carton = Carton::open(&path).expect("it is right");
    let source = carton.source(MODEL_PT, &()).expect("it is stored");
    let model = Container::from_source(source).expect("it is right");
    let checkpoint = Checkpoint::read(&model).expect("it is right");
    let (name, tensor) = checkpoint.tensors().next().expect("there are tensors");
    let bytes = tensor.mapped_bytes().expect("it lies in place");
    let first: [u8; 4] = bytes.first_chunk().copied().expect("four bytes");
    let time = start.elapsed();
    let after = [counted("io", "rchar:"), counted("status", "VmRSS:")];

    assert_eq!((name.as_ref(), first), ("layers.0.weight", ends(0)[0]));
    assert_eq!(bytes.len() as u64, u64::from(NUMEL) * 4);
    assert_eq!(checkpoint.items.len() as u64, TENSORS);
    let [read, resident] =
        [0, 1].map(|it: usize| after.get(it).zip(before.get(it)).map_or(0, |(a, b)| a - b));
    println!("first tensor of {len} bytes: {time:?}, {read} bytes read, {resident} kB more resident");
    assert!(read < 1 << 20, "{read} bytes were read");
    assert!(resident < 16 << 10, "{resident} kB came into memory");
    // All other tensors can be read in the same way.
    for (number, (_, tensor)) in (0..).zip(checkpoint.tensors()) {
        let bytes = tensor.mapped_bytes().expect("it lies in place");
        let found = [bytes.first_chunk(), bytes.last_chunk()].map(|it| it.copied().expect("four bytes"));
        assert_eq!(found, ends(number), "tensor {number}");
    }
}

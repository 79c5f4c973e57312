//! Archives of a few hundred kilobytes whose records inflate to a thousand times that: they are refused in memory that
//! follows the file, while a compressed checkpoint as `torch.save` would write it is read.

use std::io::{Cursor, Write};
use std::time::Instant;

use test_support::peak_memory;
use torch_import::{Checkpoint, Container};

/// Most bytes that reading one of the files may take.
const MOST: u64 = 120 << 20;

/// A record of an archive: its name, and its content as repeated byte strings.
type Record = (&'static str, &'static [(&'static [u8], usize)]);

/// A name, the records, and what the error says.
type Bomb = (&'static str, &'static [Record], &'static str);

const PICKLE: &str = "archive/data.pkl";

const BOMBS: &[Bomb] = &[
    ("numbers", &[(PICKLE, &[(b"(", 1), (b"N", 100_000_000), (b"t.", 1)])], "inflates from"),
    ("dicts", &[(PICKLE, &[(b"(", 1), (b"}", 2_500_000), (b"t.", 1)])], "bytes of memory"),
    ("lists of one", &[(PICKLE, &[(b"(", 1), (b"]Na", 1_000_000), (b"t.", 1)])], "bytes of memory"),
    ("dicts of one", &[(PICKLE, &[(b"(", 1), (b"}NNs", 800_000), (b"t.", 1)])], "bytes of memory"),
    ("marks", &[(PICKLE, &[(b"(", 4_190_000), (b"(", 10_000), (b"N.", 1)])], "bytes of memory"),
    ("copies", &[(PICKLE, &[(b"N", 1), (b"2", 5_000_000), (b".", 1)])], "opcodes"),
    ("texts that are dropped", &[(PICKLE, &[(b"U\x01a0", 3_000_000), (b"N.", 1)])], "bytes of memory"),
    ("calls with states", &[(PICKLE, &[(b"(", 1), (b"N)RNb", 800_000), (b"t.", 1)])], "bytes of memory"),
    ("escaped texts", &[(PICKLE, &[(b"(", 1), (b"V\xff\n", 1_000_000), (b"t.", 1)])], "bytes of memory"),
    ("instructions", &[(PICKLE, &[(b"N", 1), (b"(1", 3_000_000), (b".", 1)])], "opcodes"),
    (
        "constants",
        &[(PICKLE, &[(b"N.", 1)]), ("archive/constants.pkl", &[(b"(", 1), (b"}", 2_500_000), (b"t.", 1)])],
        "bytes of memory",
    ),
    (
        "a long byte order",
        &[(PICKLE, &[(b"N.", 1)]), ("archive/byteorder", &[(b"little", 10_000_000)])],
        "inflates from",
    ),
    ("storages", &[(PICKLE, &[(b"N.", 1)]), ("archive/data/0", &[(b"\0", 330_000_000)])], "storages inflate"),
];

fn archive<'r>(records: impl IntoIterator<Item = (&'r str, &'r [u8])>) -> Vec<u8> {
    let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
    for (name, bytes) in records {
        let options = zip::write::SimpleFileOptions::default();
        zip.start_file(name, options.compression_level(Some(9))).expect("memory takes it");
        zip.write_all(bytes).expect("memory takes it");
    }
    zip.finish().expect("memory takes it").into_inner()
}

fn file(bytes: &[u8]) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().expect("the temporary folder is writable");
    file.write_all(bytes).expect("the temporary folder is writable");
    file
}

/// Returns the file of a bomb, which another process writes: this one measures its own memory.
fn bomb(records: &[Record]) -> tempfile::NamedTempFile {
    let records: Vec<(&str, Vec<u8>)> = records
        .iter()
        .map(|(name, parts)| (*name, parts.iter().flat_map(|(bytes, times)| bytes.repeat(*times)).collect()))
        .collect();
    file(&archive(records.iter().map(|(name, bytes)| (*name, bytes.as_slice()))))
}

#[cfg(target_os = "linux")]
#[test]
#[expect(clippy::print_stdout, reason = "the figures are shown with --nocapture")]
fn records_that_inflate_are_refused_in_little_memory() {
    const PATH: &str = "COMPRESSED_BOMB";
    if let Ok(path) = std::env::var(PATH) {
        // The child opens the file that its parent wrote.
        let (before, started) = (peak_memory(), Instant::now());
        let outcome = Container::open(path.as_ref()).and_then(|container| Checkpoint::read(&container));
        println!("outcome: {}", outcome.expect_err("it is refused"));
        println!("peak: {}", peak_memory().saturating_sub(before));
        println!("time: {:?}", started.elapsed());
        return;
    }
    for (name, records, expected) in BOMBS {
        let file = bomb(records);
        let program = std::env::current_exe().expect("this program has a path");
        let output = std::process::Command::new(program)
            .args([
                "--exact",
                "--nocapture",
                "compressed_bombs::records_that_inflate_are_refused_in_little_memory",
            ])
            .env(PATH, file.path())
            .output()
            .expect("this program starts again");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let value = |key: &str| text.lines().find_map(|line| Some(line.split_once(key)?.1.trim()));
        let outcome = value("outcome: ").unwrap_or_else(|| panic!("{name}: {text}"));
        assert!(outcome.contains(expected) && outcome.contains("without compression"), "{name}: {outcome}");
        let memory: u64 = value("peak: ").and_then(|number| number.parse().ok()).expect("a number");
        assert!(memory < MOST, "{name} took {memory} bytes");
        println!("{name}: {memory} bytes, {}", value("time: ").unwrap_or_default());
    }
}

/// A compressed checkpoint of many small tensors, as `zip` would compress the archive of `torch.save`.
#[test]
fn a_compressed_checkpoint_is_read() {
    const TENSORS: usize = 20_000;
    let mut pickle = b"\x80\x02}q\0(".to_vec();
    for index in 0..TENSORS {
        let name = format!("model.layers.{}.block.{}.weight", index / 7, index % 7);
        let key = index.to_string();
        pickle.push(b'X');
        pickle.extend(u32::try_from(name.len()).expect("short").to_le_bytes());
        pickle.extend(name.bytes());
        pickle.extend(b"ctorch._utils\n_rebuild_tensor_v2\n((X\x07\0\0\0storagectorch\nFloatStorage\nX");
        pickle.extend(u32::try_from(key.len()).expect("short").to_le_bytes());
        pickle.extend(key.bytes());
        pickle.extend(b"X\x03\0\0\0cpuK\x01tQK\0K\x01\x85K\x01\x85\x89ccollections\nOrderedDict\n)RtR");
    }
    pickle.extend(b"u.");
    let keys: Vec<String> = (0..TENSORS).map(|index| format!("archive/data/{index}")).collect();
    let storages = keys.iter().map(|key| (key.as_str(), b"\0\0\0\0".as_slice()));
    let bytes = archive([("archive/data.pkl", pickle.as_slice())].into_iter().chain(storages));
    let file = file(&bytes);
    let container = Container::open(file.path()).expect("it is a checkpoint");
    assert_eq!(Checkpoint::read(&container).expect("it is whole").tensors().count(), TENSORS);
}

/// A dict of 400,000 values takes a megabyte of a file: the values that are listed follow the file, too.
#[test]
fn a_small_file_lists_some_of_its_values() {
    const VALUES: u32 = 400_000;
    let mut pickle = b"\x80\x02}(".to_vec();
    for index in 0..VALUES {
        pickle.extend(b"X\x06\0\0\0");
        pickle.extend(format!("{index:06}N").bytes());
    }
    pickle.extend(b"u.");
    let bytes = archive([(PICKLE, pickle.as_slice())]);
    let file = file(&bytes);
    let container = Container::open(file.path()).expect("it is a checkpoint");
    let checkpoint = Checkpoint::read(&container).expect("it is whole");
    // The bytes of a compressed pickle are its compressed length and an eighth of the file.
    let most = (1 << 18) + (bytes.len() + bytes.len() / 8) / 64;
    assert!(checkpoint.items.len() <= most, "{} of {most} items", checkpoint.items.len());
    let notes = checkpoint.notes.iter().map(ToString::to_string).collect::<String>();
    assert!(notes.contains("are not listed: there are too many"), "{notes}");
}

//! Cartons both ways: what is packed can be read, verified, unpacked, shrunk and resolved, and what is
//! wrong is named.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::program::{torch2carton, transcript};

const CARTON_TOML: &str = r#"spec_version = 1
model_name = "everything"
model_description = "See @misc/cat.txt."
[[input]]
name = "x"
dtype = "float32"
shape = ["n", 2]
[[output]]
name = "y"
dtype = "string"
shape = ["n"]
[[self_test]]
name = "first"
inputs = { x = "@tensor_data/x" }
expected_out = { y = "@tensor_data/y" }
[[example]]
inputs = { x = "@misc/cat.txt" }
sample_out = { y = "@tensor_data/y" }
[runner]
runner_name = "torchscript"
required_framework_version = "=2.0"
runner_compat_version = 1
[runner.opts]
num_threads = 4
"#;

const INDEX: &str = r#"[[tensor]]
name = "x"
dtype = "float32"
shape = [1, 2]
file = "x.bin"
inner = []
[[tensor]]
name = "y"
dtype = "string"
shape = [1]
file = "y.toml"
inner = []
"#;

fn scratch() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

fn write(path: PathBuf, bytes: impl AsRef<[u8]>) {
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("a temporary folder");
    std::fs::write(path, bytes).expect("a temporary folder");
}

/// A folder with everything in it.
fn model(root: &Path) -> PathBuf {
    let folder = root.join("everything");
    write(folder.join("carton.toml"), CARTON_TOML);
    write(folder.join("tensor_data/index.toml"), INDEX);
    write(folder.join("tensor_data/x.bin"), 1.5_f32.to_le_bytes().repeat(2));
    write(folder.join("tensor_data/y.toml"), "data = [\"a cat\"]\n");
    write(folder.join("misc/cat.txt"), "meow ".repeat(2000));
    write(folder.join("model/model.pt"), (0..20_000_u32).flat_map(u32::to_le_bytes).collect::<Vec<_>>());
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink("model.pt", folder.join("model/link.pt")).expect("a temporary folder");
    }
    folder
}

fn run(root: &Path, args: &[&str]) -> (Option<i32>, String) {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_torch2carton"))
        .args(args)
        .current_dir(root)
        .output()
        .expect("the program was built for this test");
    (output.status.code(), transcript(&output))
}

fn ok(root: &Path, args: &[&str]) -> String {
    let (status, text) = run(root, args);
    assert_eq!(status, Some(0), "{args:?}: {text}");
    text
}

fn manifest(carton: &Path) -> Vec<u8> {
    let mut zip =
        zip::ZipArchive::new(std::fs::File::open(carton).expect("it is there")).expect("a zip file");
    let mut bytes = Vec::new();
    let mut entry = zip.by_name("MANIFEST").expect("it is there");
    std::io::Read::read_to_end(&mut entry, &mut bytes).expect("its CRC is right");
    bytes
}

#[test]
fn unpacked_and_packed_again_it_is_the_same_model() {
    let scratch = scratch();
    let root = scratch.path();
    model(root);
    ok(root, &["pack", "everything", "-o", "first.carton", "-q"]);
    let first = manifest(&root.join("first.carton"));
    for method in ["auto", "stored", "deflate", "zstd"] {
        let (carton, folder) = (format!("{method}.carton"), format!("{method}.d"));
        ok(root, &["pack", "everything", "-o", &carton, "--compression", method, "-q"]);
        ok(root, &["verify", &carton, "-q"]);
        ok(root, &["unpack", &carton, "-C", &folder, "-q"]);
        ok(root, &["verify", &folder, "-q"]);
        ok(root, &["pack", &folder, "-o", "again.carton", "-q"]);
        for carton in [&carton, "again.carton"] {
            assert_eq!(manifest(&root.join(carton)), first, "{method}");
        }
    }
    let (status, text) = run(root, &["unpack", "zstd.carton", "-C", "zstd.d"]);
    assert_eq!(status, Some(1));
    assert!(text.contains("already there: zstd.d/MANIFEST"), "{text}");
    ok(root, &["unpack", "zstd.carton", "-C", "zstd.d", "--force", "-q"]);
}

#[test]
fn what_is_in_a_carton() {
    let scratch = scratch();
    let root = scratch.path();
    model(root);
    ok(root, &["pack", "everything", "-o", "x.carton", "--compression", "stored", "-q"]);
    // Its model is no checkpoint: the rest is told all the same.
    insta::assert_snapshot!(ok(root, &["inspect", "x.carton"]));
}

#[test]
fn one_bit_flipped_in_any_entry_is_found_and_the_entry_named() {
    let scratch = scratch();
    let root = scratch.path();
    model(root);
    for method in ["stored", "deflate", "zstd"] {
        ok(root, &["pack", "everything", "-o", "x.carton", "--compression", method, "-q"]);
        let whole = std::fs::read(root.join("x.carton")).expect("it was written");
        let mut zip = zip::ZipArchive::new(std::io::Cursor::new(&whole)).expect("a zip file");
        let places: Vec<(String, u64, u64)> = (0..zip.len())
            .map(|index| {
                let entry = zip.by_index_raw(index).expect("its header is right");
                let name = entry.name().expect("UTF-8 names").into_owned();
                (name, entry.data_start().expect("its header was read"), entry.compressed_size())
            })
            .collect();
        assert!(places.len() >= 7);
        for (name, start, len) in places {
            // The last byte of a deflate stream ends in bits that mean nothing.
            let last = if method == "deflate" { len - 2 } else { len - 1 };
            for at in [start, start + len / 2, start + last] {
                let mut flipped = whole.clone();
                flipped[usize::try_from(at).expect("a small file")] ^= 0x10;
                std::fs::write(root.join("flipped.carton"), flipped).expect("a temporary folder");
                let (status, text) = run(root, &["verify", "flipped.carton"]);
                assert_eq!(status, Some(1), "{method} {name} at {at}: {text}");
                assert!(text.contains(&name), "{method} {name} at {at}: {text}");
            }
        }
    }
}

#[test]
fn folders_that_make_no_carton() {
    let scratch = scratch();
    let root = scratch.path();
    let folder = model(root);
    let mut texts = String::new();
    let refused = |texts: &mut String, what: &str| {
        let (status, text) = run(root, &["pack", "everything", "-o", "x.carton"]);
        assert_eq!(status, Some(1), "{what}: {text}");
        assert!(!root.join("x.carton").exists());
        texts.extend(["--- ", what, "\n", &text]);
    };
    write(folder.join("notes.txt"), "");
    refused(&mut texts, "a file that has no place");
    std::fs::remove_file(folder.join("notes.txt")).expect("it was written");
    write(folder.join("tensor_data/x.bin"), [0; 7]);
    refused(&mut texts, "a tensor of another length");
    write(folder.join("tensor_data/x.bin"), [0; 8]);
    write(
        folder.join("carton.toml"),
        CARTON_TOML.replace("\"float32\"", "\"float16\"").replace("=2.0", "two"),
    );
    refused(&mut texts, "two problems");
    write(folder.join("carton.toml"), CARTON_TOML.replace("@misc/cat", "@misc/dog"));
    refused(&mut texts, "references to nothing");
    write(folder.join("carton.toml"), "spec_version = \n[runner\n");
    refused(&mut texts, "no TOML");
    write(folder.join("carton.toml"), CARTON_TOML);
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink("../../../secret", folder.join("model/out.pt"))
            .expect("a temporary folder");
        refused(&mut texts, "a link that leads out");
        std::fs::remove_file(folder.join("model/out.pt")).expect("it was made");
    }
    std::fs::remove_dir_all(folder.join("model")).expect("it was made");
    refused(&mut texts, "no model");
    insta::assert_snapshot!(texts);
}

#[test]
fn what_the_client_needs_is_added_and_told() {
    let scratch = scratch();
    let root = scratch.path();
    let text = "[[output]]\nname = 'y'\ndtype = 'int8'\n[runner]\nrunner_name = 't'\nrequired_framework_version = '*'\n";
    write(root.join("m/carton.toml"), text);
    write(root.join("m/model/weights"), "w");
    insta::assert_snapshot!(ok(root, &["pack", "m", "-o", "m.carton"]));
    assert_eq!(ok(root, &["verify", "m.carton"]), "m.carton: 4 files, 411 B, all hashes are right\n");
}

#[test]
fn arrays_become_tensors() {
    let scratch = scratch();
    let root = scratch.path();
    let text = CARTON_TOML.replace("@misc/cat.txt", "@tensor_data/x").replace("See @tensor_data/x.", "");
    write(root.join("m/carton.toml"), text);
    write(root.join("m/model/weights"), "w");
    let npy = |descr: &str, shape: &str, data: &[u8]| {
        let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n");
        let len = u16::try_from(header.len()).expect("it is short").to_le_bytes();
        [b"\x93NUMPY\x01\x00", &len[..], header.as_bytes(), data].concat()
    };
    // Big-endian, to be turned.
    write(root.join("x.npy"), npy(">f4", "(1, 2)", &1.5_f32.to_be_bytes().repeat(2)));
    let text: Vec<u8> = "miau".chars().flat_map(|c| u32::from(c).to_le_bytes()).collect();
    write(root.join("y.npy"), npy("<U4", "(1,)", &text));
    ok(root, &["pack", "m", "-o", "m.carton", "--tensor", "x=x.npy", "--tensor", "y=y.npy", "-q"]);
    ok(root, &["unpack", "m.carton", "-C", "d", "-q"]);
    let read = |path: &str| std::fs::read(root.join("d/tensor_data").join(path)).expect("it was unpacked");
    assert_eq!(read("tensor_0.bin"), 1.5_f32.to_le_bytes().repeat(2));
    assert_eq!(read("tensor_1.toml"), b"data = [\"miau\"]\n");
    let (status, text) = run(root, &["pack", "m", "--tensor", "x=carton.toml"]);
    assert_eq!(status, Some(1), "{text}");
}

/// What a server does with one request.
type Answer = fn(&mut TcpStream, &[u8], &[String], usize) -> std::io::Result<()>;

/// Serves `bytes` on loopback until the test ends; the address.
fn server(bytes: Vec<u8>, answer: Answer) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let address = listener.local_addr().expect("it is bound");
    let count = Arc::new(AtomicUsize::new(0));
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (bytes, count) = (bytes.clone(), Arc::clone(&count));
            std::thread::spawn(move || {
                let mut stream = stream;
                let lines = BufReader::new(stream.try_clone().expect("a socket")).lines();
                let request: Vec<String> =
                    lines.map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
                let number = count.fetch_add(1, Ordering::Relaxed);
                // Who cuts the connection leaves early.
                let _ = answer(&mut stream, &bytes, &request, number);
            });
        }
    });
    format!("http://{address}")
}

fn whole(stream: &mut TcpStream, status: &str, headers: &str, bytes: &[u8]) -> std::io::Result<()> {
    let len = bytes.len();
    write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {len}\r\nConnection: close\r\n{headers}\r\n")?;
    stream.write_all(bytes)
}

/// A shrunk carton whose one blob comes from a server; the blob is known to `answer`.
fn resolved(answer: Answer, allow: bool) -> (Option<i32>, String) {
    let scratch = scratch();
    let root = scratch.path();
    model(root);
    ok(root, &["pack", "everything", "-o", "x.carton", "--compression", "stored", "-q"]);
    let blob = std::fs::read(root.join("everything/model/model.pt")).expect("it was written");
    let base = server(blob, answer);
    let shrink = [
        "shrink",
        "x.carton",
        "--base",
        &base,
        "--blobs",
        "b",
        "--min-size",
        "20000",
        "-o",
        "s.carton",
        "-q",
    ];
    ok(root, &shrink);
    assert_eq!(manifest(&root.join("s.carton")), manifest(&root.join("x.carton")));
    ok(root, &["verify", "s.carton", "-q"]);
    let mut args = vec!["resolve", "s.carton", "-o", "r.carton", "-q"];
    if allow {
        args.push("--allow-http");
    }
    let (status, text) = run(root, &args);
    if status == Some(0) {
        ok(root, &["verify", "r.carton", "-q"]);
        assert_eq!(manifest(&root.join("r.carton")), manifest(&root.join("x.carton")));
    } else {
        assert!(!root.join("r.carton").exists());
    }
    let left = root.read_dir().expect("it is there").flatten();
    let left: Vec<_> = left.filter(|entry| entry.file_name().to_string_lossy().starts_with('.')).collect();
    assert!(left.is_empty(), "{left:?}");
    (status, text.replace(&base, "http://SERVER"))
}

#[test]
fn links_are_resolved() {
    assert_eq!(
        resolved(|stream, bytes, _, _| whole(stream, "200 OK", "", bytes), true),
        (Some(0), String::new())
    );
}

#[test]
fn a_slow_server_is_waited_for() {
    let slow: Answer = |stream, bytes, _, _| {
        write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", bytes.len())?;
        bytes.chunks(20_000).try_for_each(|chunk| {
            std::thread::sleep(std::time::Duration::from_millis(100));
            stream.write_all(chunk)
        })
    };
    assert_eq!(resolved(slow, true), (Some(0), String::new()));
}

#[test]
fn a_cut_connection_is_resumed_where_it_broke() {
    let cut: Answer = |stream, bytes, request, number| {
        if number == 0 {
            write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", bytes.len())?;
            return stream.write_all(&bytes[..30_000]);
        }
        let range = request.iter().find_map(|line| {
            line.to_ascii_lowercase().strip_prefix("range: bytes=")?.strip_suffix('-').map(str::to_owned)
        });
        let start: usize = range.expect("it asks to go on").parse().expect("a number");
        assert!(start > 0);
        let headers = format!("Content-Range: bytes {start}-{}/{}\r\n", bytes.len() - 1, bytes.len());
        whole(stream, "206 Partial Content", &headers, &bytes[start..])
    };
    assert_eq!(resolved(cut, true), (Some(0), String::new()));
}

#[test]
fn content_encodings_are_undone() {
    let gzip: Answer = |stream, bytes, _, _| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes)?;
        whole(stream, "200 OK", "Content-Encoding: gzip\r\n", &encoder.finish()?)
    };
    let deflate: Answer = |stream, bytes, _, _| {
        let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes)?;
        whole(stream, "200 OK", "Content-Encoding: deflate\r\n", &encoder.finish()?)
    };
    let zstd: Answer = |stream, bytes, _, _| {
        whole(stream, "200 OK", "Content-Encoding: zstd\r\n", &zstd::encode_all(bytes, 1)?)
    };
    for answer in [gzip, deflate, zstd] {
        assert_eq!(resolved(answer, true), (Some(0), String::new()));
    }
}

#[test]
fn downloads_that_are_refused() {
    let answers: [(&str, bool, Answer); 6] = [
        ("http without --allow-http", false, |stream, bytes, _, _| whole(stream, "200 OK", "", bytes)),
        ("404", true, |stream, _, _, _| whole(stream, "404 Not Found", "", b"gone")),
        ("wrong content", true, |stream, bytes, _, _| {
            let mut bytes = bytes.to_vec();
            bytes[1000] ^= 1;
            whole(stream, "200 OK", "", &bytes)
        }),
        ("cut off for good", true, |stream, bytes, _, _| {
            write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", bytes.len())?;
            stream.write_all(&bytes[..10])
        }),
        ("redirects without end", true, |stream, _, _, _| {
            whole(stream, "302 Found", "Location: /again\r\n", b"")
        }),
        ("an unknown encoding", true, |stream, bytes, _, _| {
            whole(stream, "200 OK", "Content-Encoding: rot13\r\n", bytes)
        }),
    ];
    let mut texts = String::new();
    for (what, allow, answer) in answers {
        let (status, text) = resolved(answer, allow);
        assert_eq!(status, Some(1), "{what}: {text}");
        texts.extend(["--- ", what, "\n", &text]);
    }
    insta::assert_snapshot!(texts);
}

#[test]
fn a_configuration_is_merged() {
    let scratch = scratch();
    let root = scratch.path();
    let text = "license = 'MIT'\nmodel_name = 'other'\nnew = 1\n[[output]]\nname = 'w'\ndescription = 'weights'\n\
                [runner.opts]\nnum_threads = 2\n";
    write(root.join("c.toml"), text);
    let (config, target) = (root.join("c.toml"), root.join("x.carton"));
    let convert = |more: &[&str]| {
        let mut args = vec!["checkpoints/plain.pth", "-q", "--config", config.to_str().expect("UTF-8")];
        args.extend(["-o", target.to_str().expect("UTF-8")]);
        args.extend(more);
        torch2carton(args)
    };
    let output = convert(&["--name", "mine"]);
    assert!(output.status.success(), "{}", transcript(&output));
    ok(root, &["unpack", "x.carton", "-C", "d", "-q"]);
    let text = std::fs::read_to_string(root.join("d/carton.toml")).expect("it was unpacked");
    insta::assert_snapshot!(text);
    write(root.join("c.toml"), "homepage = 3\n[runner]\nrequired_framework_version = 'x'\n");
    assert_eq!(convert(&[]).status.code(), Some(1));
}

//! What the subcommands for cartons refuse, with the error texts.

#![expect(clippy::indexing_slicing, clippy::arithmetic_side_effects, reason = "a test fails by panicking")]

use std::path::Path;

use carton_format::Manifest;
use zip_format::{CompressedContent, CompressionMethod, EntryContent, NewZipEntry, ZipWriter};

use crate::carton_tools::{model, ok, run, scratch, write};
use crate::program::folder;

/// Appends the transcript of a command that must fail, after a line with `what` it tests.
fn refused(texts: &mut String, root: &Path, what: &str, args: &[&str]) {
    let (status, text) = run(root, args);
    assert!(matches!(status, Some(1 | 2)), "{what}: {text}");
    let text = text.replace(&root.display().to_string(), "ROOT");
    texts.extend(["--- ", what, "\n", &text]);
}

/// A zip file of these entries, valid or not.
fn zip(entries: &[(&str, EntryContent<'_>)]) -> Vec<u8> {
    let mut sink: Vec<u8> = Vec::new();
    let mut writer = ZipWriter::new(&mut sink);
    for (name, content) in entries {
        writer
            .add(&NewZipEntry { name, alignment: 1, content: *content })
            .expect("writing to memory does not fail");
    }
    writer.finish().expect("writing to memory does not fail");
    sink
}

fn sha256(bytes: &[u8]) -> String {
    byte_source::hex(&byte_source::Sha256::of(bytes))
}

const RUNNER: &str = "spec_version = 1\n[runner]\nrunner_name = 'r'\nrequired_framework_version = '*'\nrunner_compat_version = 1\n";

/// A carton of these files and the two required documents; its MANIFEST is right.
fn carton(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut all = vec![("model/w", &b"w"[..]), ("tensor_data/index.toml", b"tensor = []\n")];
    if !files.iter().any(|(name, _)| *name == "carton.toml") {
        all.push(("carton.toml", RUNNER.as_bytes()));
    }
    all.retain(|(name, _)| !files.iter().any(|(other, _)| other == name));
    all.extend(files);
    all.sort_by_key(|(name, _)| *name);
    let mut manifest = Manifest::default();
    for (name, bytes) in all.iter().filter(|(name, _)| !["MANIFEST", "LINKS"].contains(name)) {
        // Two files with the same name have one line.
        let _ = manifest.add(name, byte_source::Sha256::of(bytes));
    }
    let manifest = manifest.to_string();
    if !files.iter().any(|(name, _)| *name == "MANIFEST") {
        all.push(("MANIFEST", manifest.as_bytes()));
    }
    let entries: Vec<_> = all.iter().map(|(name, bytes)| (*name, EntryContent::Bytes(bytes))).collect();
    zip(&entries)
}

/// Like `carton`, with an additional link.
fn linked(name: &str, target: &str) -> Vec<u8> {
    let hash = sha256(b"w");
    let mut lines = [
        format!("carton.toml={}\n", sha256(RUNNER.as_bytes())),
        format!("{name}={hash}\n"),
        format!("model/w={hash}\n"),
        format!("tensor_data/index.toml={}\n", sha256(b"tensor = []\n")),
    ];
    lines.sort();
    zip(&[
        ("carton.toml", EntryContent::Bytes(RUNNER.as_bytes())),
        ("tensor_data/index.toml", EntryContent::Bytes(b"tensor = []\n")),
        ("model/w", EntryContent::Bytes(b"w")),
        (name, EntryContent::Link(target.as_bytes())),
        ("MANIFEST", EntryContent::Bytes(lines.concat().as_bytes())),
    ])
}

/// Like `carton`, with a model that is compressed to `packed`.
fn compressed(packed: &[u8], method: CompressionMethod) -> Vec<u8> {
    let (toml, index) = (RUNNER.as_bytes(), b"tensor = []\n");
    let blob = byte_source::OwnedBlob(packed.to_vec());
    let content = EntryContent::Packed(CompressedContent {
        blob: &blob,
        method,
        len: 7,
        crc: crc32fast::hash(b"weights"),
    });
    let manifest = format!(
        "carton.toml={}\nmodel/w={}\ntensor_data/index.toml={}\n",
        sha256(toml),
        sha256(b"weights"),
        sha256(index)
    );
    zip(&[
        ("carton.toml", EntryContent::Bytes(toml)),
        ("tensor_data/index.toml", EntryContent::Bytes(index)),
        ("model/w", content),
        ("MANIFEST", EntryContent::Bytes(manifest.as_bytes())),
    ])
}

/// Like `carton`, with these flags of all entries.
fn flagged(flags: u16) -> Vec<u8> {
    let mut carton = carton(&[]);
    for at in 0..carton.len() {
        let place = match carton.get(at..at + 4) {
            Some(b"PK\x03\x04") => at + 6,
            Some(b"PK\x01\x02") => at + 8,
            _ => continue,
        };
        let [low, high] = flags.to_le_bytes();
        carton[place] |= low;
        carton[place + 1] |= high;
    }
    carton
}

/// Ten mistakes in one document.
const TEN: &str = r#"spec_version = 2
model_name = ["a"]
short_description = "----------------------------------------------------------------------------------------------------!"
homepage = "carton.run"
required_platforms = ["toaster"]
[[input]]
name = "x"
dtype = "float16"
shape = [-1]
[[output]]
dtype = "float32"
[[self_test]]
[runner]
required_framework_version = "newest"
[runner.opts]
deep = { a = 1 }
"#;

fn hostile() -> Vec<(&'static str, Vec<u8>)> {
    let zstd = |bytes: &[u8]| zstd::encode_all(bytes, 1).expect("writing to memory does not fail");
    let two_frames = [zstd(b"wei"), zstd(b"ghts")].concat();
    let behind = [zstd(b"weights"), b"more".to_vec()].concat();
    let mut method = carton(&[]);
    for at in 0..method.len() {
        let place = match method.get(at..at + 4) {
            Some(b"PK\x03\x04") => at + 8,
            Some(b"PK\x01\x02") => at + 10,
            _ => continue,
        };
        // bzip2.
        method[place] = 12;
    }
    let front = [b"#!/bin/sh\n".to_vec(), carton(&[])].concat();
    let cut = carton(&[])[..300].to_vec();
    let hash = "0".repeat(64);
    let big = vec![b'#'; (16 << 20) + 1];
    let strings = "[[tensor]]\nname = 's'\ndtype = 'string'\nshape = [2]\nfile = 's.toml'\ninner = []\n";
    let index = "[[tensor]]\nname = 'a'\ndtype = 'int8'\nshape = [3]\nfile = 'a.bin'\n[[tensor]]\nname = 'a'\n\
        dtype = 'half'\nshape = 'n'\nfile = 'b.bin'\n[[tensor]]\nname = 'n'\ndtype = 'nested'\ninner = ['n', 'z']\n";
    let manifest = format!(
        "b={hash}\nb={hash}\na={hash}\n../c={hash}\nMANIFEST={hash}\nd = {hash}\ne\r\nf={}\n",
        "A".repeat(64)
    );
    let links = "version = 2\n[urls]\nx = ['https://example.org']\n0707070707070707070707070707070707070707070707070707070707070707 = ['ftp://a', 3]\n";
    let listed = format!("carton.toml={}\nmisc/gone={hash}\n", sha256(RUNNER.as_bytes()));
    let model_link = linked("model/l", &format!("{}w", "./".repeat(2048)));
    vec![
        ("no zip file", b"PK\x03\x04 and no more".to_vec()),
        ("a text", b"hello, world\n".to_vec()),
        ("a zip file of another program", zip(&[("word/document.xml", EntryContent::Bytes(b"text"))])),
        ("cut short", cut),
        ("marked as strongly encrypted", flagged(1 << 6)),
        ("marked as a patch", flagged(1 << 5)),
        ("bytes in front", front),
        ("no MANIFEST", zip(&[("carton.toml", EntryContent::Bytes(RUNNER.as_bytes()))])),
        ("a bad MANIFEST", carton(&[("MANIFEST", manifest.as_bytes())])),
        (
            "files that are not listed, and listed files that are not there",
            carton(&[("MANIFEST", listed.as_bytes())]),
        ),
        ("no carton.toml, no model", zip(&[("MANIFEST", EntryContent::Bytes(b""))])),
        ("ten mistakes in carton.toml", carton(&[("carton.toml", TEN.as_bytes())])),
        ("a carton.toml that is no text", carton(&[("carton.toml", b"\xff\xfe")])),
        ("a carton.toml that is too large", carton(&[("carton.toml", &big)])),
        (
            "a bad index",
            carton(&[("tensor_data/index.toml", index.as_bytes()), ("tensor_data/a.bin", b"12")]),
        ),
        (
            "a string too few",
            carton(&[
                ("tensor_data/index.toml", strings.as_bytes()),
                ("tensor_data/s.toml", b"data = [\"one\"]\n"),
            ]),
        ),
        ("a bad LINKS", carton(&[("LINKS", links.as_bytes())])),
        ("an entry twice", carton(&[("misc/a", b"1"), ("misc/a", b"2")])),
        ("a file below a file", carton(&[("misc/a", b"1"), ("misc/a/b", b"2")])),
        ("a path that climbs", carton(&[("misc/../../evil", b"1")])),
        ("an absolute path", carton(&[("/tmp/evil", b"1")])),
        ("a path with a backslash", carton(&[("misc\\..\\evil", b"1")])),
        ("a path with a drive", carton(&[("C:evil", b"1")])),
        ("a path with an empty part", carton(&[("misc//evil", b"1")])),
        ("a path that begins with ./", carton(&[("./misc/evil", b"1")])),
        ("a path with a zero", carton(&[("misc/evil\0.txt", b"1")])),
        ("a path with an escape sequence", carton(&[("misc/\x1b[2Jevil", b"1")])),
        ("a link that climbs", linked("model/l", "../../evil")),
        ("a link to an absolute path", linked("model/l", "/etc/passwd")),
        ("links in a circle", linked("model/l", "./l")),
        ("a link to nothing", linked("model/l", "nothing")),
        ("a link that is too long", model_link),
        ("a link in misc", linked("misc/l", "w")),
        ("bzip2", method),
        ("two frames of zstd", compressed(&two_frames, CompressionMethod::Zstd)),
        ("bytes behind the frame", compressed(&behind, CompressionMethod::Zstd)),
        ("no zstd at all", compressed(b"weights", CompressionMethod::Zstd)),
        ("more than was promised", compressed(&zstd(&[0; 1000]), CompressionMethod::Zstd)),
        ("other content than was promised", compressed(&zstd(b"WEIGHTS"), CompressionMethod::Zstd)),
    ]
}

#[test]
fn hostile_cartons_are_refused_by_every_subcommand() {
    let mut texts = String::new();
    for (what, bytes) in hostile() {
        let scratch = scratch();
        let root = scratch.path();
        write(root.join("x.carton"), bytes);
        refused(&mut texts, root, what, &["verify", "x.carton"]);
        // Faults that only verify looks for do no harm to the other subcommands.
        let harmless = ["bytes in front", "ten mistakes in carton.toml", "a carton.toml that is too large"];
        let is_document =
            harmless.contains(&what) || what.starts_with("a bad index") || what.starts_with("a string");
        let is_text = what == "a carton.toml that is no text" || what == "no carton.toml, no model";
        for args in [
            &["unpack", "x.carton", "-o", "d", "-q"][..],
            &["resolve", "x.carton", "-o", "r.carton", "-q"],
            &[
                "shrink",
                "x.carton",
                "--base",
                "https://a.b",
                "--blobs",
                "b",
                "--min-size",
                "1",
                "-o",
                "s.carton",
                "-q",
            ],
        ] {
            let (status, text) = run(root, args);
            assert!(status == Some(1) || is_document || is_text, "{what}: {args:?}: {text}");
        }
        // Nothing is written outside the folder, and no part of a damaged carton remains in it.
        let left = |path: &Path| path.read_dir().map_or(0, Iterator::count);
        assert!(is_document || is_text || left(&root.join("d")) == 0, "{what}");
        let names: Vec<_> =
            root.read_dir().expect("it is there").flatten().map(|it| it.file_name()).collect();
        let known = ["x.carton", "d", "b", "r.carton", "s.carton"];
        assert!(names.iter().all(|name| known.iter().any(|known| name == known)), "{what}: {names:?}");
    }
    insta::assert_snapshot!(texts);
}

#[test]
fn what_pack_refuses() {
    let scratch = scratch();
    let root = scratch.path();
    model(root);
    let mut texts = String::new();
    let mut refused = |what: &str, args: &[&str]| refused(&mut texts, root, what, args);
    write(root.join("file"), "");
    refused("a file", &["pack", "file"]);
    refused("an output in the folder", &["pack", "everything", "-o", "everything/misc/x.carton"]);
    refused("an output below a file", &["pack", "everything", "-o", "file/x.carton"]);
    refused("a folder as output", &["pack", "everything", "-o", "everything"]);
    refused("a tensor without a file", &["pack", "everything", "--tensor", "x"]);
    refused("a tensor without a name", &["pack", "everything", "--tensor", "=file"]);
    refused("two tensors of one name", &["pack", "everything", "--tensor", "a=file", "--tensor", "a=file"]);
    refused("no array", &["pack", "everything", "--tensor", "a=file"]);
    let npy = |descr: &str, order: &str, shape: &str, data: &[u8]| {
        let header = format!("{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}\n");
        let len = u16::try_from(header.len()).expect("it is short").to_le_bytes();
        [b"\x93NUMPY\x01\x00", &len[..], header.as_bytes(), data].concat()
    };
    for (what, bytes) in [
        ("a header that is no text", b"\x93NUMPY\x01\x00\x01\x00\xff".to_vec()),
        (
            "a header without a shape",
            b"\x93NUMPY\x01\x00\x26\x00{'descr': '<f4', 'fortran_order': True}".to_vec(),
        ),
        ("named fields", npy("[('a', '<f4')]", "False", "(1,)", b"1234")),
        ("no order", npy("'<f4'", "Maybe", "(1,)", b"1234")),
        ("no shape", npy("'<f4'", "False", "(n,)", b"1234")),
        ("complex numbers", npy("'<c8'", "False", "(1,)", b"12345678")),
        ("bytes that are missing", npy("'<f4'", "False", "(2,)", b"1234")),
        ("bytes that are too many", npy("'<f4'", "False", "(1,)", b"12345")),
        ("a shape without end", npy("'<f4'", "False", "(9223372036854775807, 9)", b"1234")),
        ("strings in Fortran order", npy("'<U1'", "True", "(1,)", b"a\0\0\0")),
        ("strings of some length", npy("'<Ux'", "False", "(1,)", b"a\0\0\0")),
        ("strings of no length", npy("'<U0'", "False", "(1000000000000,)", b"")),
        ("strings that are missing", npy("'<U1'", "False", "(2,)", b"a\0\0\0")),
        ("strings that take too much", npy("'<U1'", "False", "(3400000,)", &b"a\0\0\0".repeat(3_400_000))),
        ("strings that are none", npy("'<U1'", "False", "(1,)", b"\0\xd8\0\0")),
    ] {
        write(root.join("a.npy"), bytes);
        refused(what, &["pack", "everything", "--tensor", "a=a.npy"]);
    }
    write(root.join("a.npy"), npy("'<f4'", "False", "(1,)", b"1234"));
    refused("a tensor that is there", &["pack", "everything", "--tensor", "x=a.npy"]);
    #[cfg(unix)]
    {
        let misc = root.join("everything/misc");
        let remove = |name: &str| std::fs::remove_file(misc.join(name)).expect("it was made");
        std::os::unix::fs::symlink("cat.txt", misc.join("link")).expect("a temporary folder");
        refused("a link outside of model", &["pack", "everything"]);
        remove("link");
        std::os::unix::net::UnixListener::bind(misc.join("socket")).expect("a temporary folder");
        refused("a socket", &["pack", "everything"]);
        remove("socket");
        for name in ["12:30.txt", "a\nb"] {
            write(misc.join(name), "");
            refused("a name that no carton has", &["pack", "everything"]);
            remove(name);
        }
        let name = <std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(b"\xff");
        // Some filesystems do not allow such names.
        if std::fs::write(misc.join(name), "").is_ok() {
            refused("a name that is no UTF-8", &["pack", "everything"]);
            std::fs::remove_file(misc.join(name)).expect("it was made");
        }
    }
    write(root.join("everything/tensor_data/y.toml"), "data = [1, \"a\"]\n");
    refused("strings that are numbers", &["pack", "everything"]);
    write(root.join("everything/tensor_data/y.toml"), "data = []\n");
    refused("a string too few", &["pack", "everything"]);
    write(root.join("everything/carton.toml"), TEN);
    refused("ten mistakes", &["pack", "everything"]);
    assert!(!root.join("everything.carton").exists());
    insta::assert_snapshot!(texts);
}

#[test]
fn what_unpack_shrink_and_resolve_refuse() {
    let scratch = scratch();
    let root = scratch.path();
    model(root);
    ok(root, &["pack", "everything", "-o", "x.carton", "--compression", "stored", "-q"]);
    let mut texts = String::new();
    let mut refused = |what: &str, args: &[&str]| refused(&mut texts, root, what, args);
    for (command, more) in [
        ("unpack", &["-o", "d"][..]),
        ("shrink", &["--base", "https://a.b", "--blobs", "b", "-o", "y.carton"]),
        ("resolve", &["-o", "y.carton"]),
    ] {
        refused("a folder", &[&[command, "everything"], more].concat());
    }
    for base in ["example.org", "ftp://example.org", "https://example.org/?a=b"] {
        refused("a base", &["shrink", "x.carton", "--base", base, "--blobs", "b", "-o", "y.carton"]);
    }
    ok(root, &["unpack", "x.carton", "-q"]);
    assert!(root.join("x/model/model.pt").is_file(), "without -C the folder is named after the carton");
    refused("a folder of that name", &["unpack", "x.carton"]);
    let shrink = ["shrink", "x.carton", "--base", "https://a.b/", "--blobs", "b", "-o"];
    refused("an output that is the input", &[&shrink[..], &["./x.carton"]].concat());
    ok(root, &[&shrink[..], &["s.carton", "-q"]].concat());
    let blob = root.join("b").read_dir().expect("it was made").flatten().next().expect("a blob").path();
    let mut bytes = std::fs::read(&blob).expect("it was written");
    bytes[0] ^= 1;
    write(blob.clone(), &bytes);
    refused("a blob that is damaged", &[&shrink[..], &["s.carton"]].concat());
    write(blob, "short");
    refused("a blob that is too short", &[&shrink[..], &["s.carton"]].concat());
    refused("an output that is there", &["resolve", "s.carton", "-o", "x.carton", "--no-clobber"]);
    write(root.join("in_the_way"), "");
    refused("an output of another program", &["resolve", "s.carton", "-o", "in_the_way"]);
    refused("a cache that is a file", &["resolve", "s.carton", "-o", "y.carton", "--cache", "in_the_way"]);
    refused("a timeout", &["resolve", "s.carton", "-o", "y.carton", "--timeout", "0"]);
    refused(
        "blobs in a file",
        &["shrink", "x.carton", "--base", "https://a.b", "--blobs", "in_the_way", "-o", "y"],
    );
    refused("a target that is a file", &["unpack", "x.carton", "-o", "in_the_way"]);
    write(root.join("d/MANIFEST"), "mine");
    write(root.join("d/model/model.pt/file"), "mine");
    refused("a folder where a file goes", &["unpack", "x.carton", "-o", "d", "--force"]);
    write(root.join("e/model"), "mine");
    refused("a file where a folder goes", &["unpack", "x.carton", "-o", "e", "--force"]);
    write(root.join("f/carton.toml"), "mine");
    refused("a file that is there", &["unpack", "x.carton", "-o", "f"]);
    assert_eq!(std::fs::read(root.join("f/carton.toml")).expect("it is there"), b"mine");
    for name in
        ["MANIFEST", "tensor_data/index.toml", "tensor_data/x.bin", "tensor_data/y.toml", "misc/cat.txt"]
    {
        write(root.join("g").join(name), "mine");
    }
    write(root.join("g/model/model.pt"), "mine");
    refused("more files that are there than are listed", &["unpack", "x.carton", "-o", "g"]);
    #[cfg(unix)]
    {
        std::fs::create_dir_all(root.join("outside")).expect("a temporary folder");
        std::fs::create_dir_all(root.join("h")).expect("a temporary folder");
        std::os::unix::fs::symlink("../outside", root.join("h/misc")).expect("a temporary folder");
        refused("a link where a folder goes", &["unpack", "x.carton", "-o", "h", "--force"]);
        assert_eq!(root.join("outside").read_dir().expect("it is there").count(), 0);
        assert_eq!(root.join("h").read_dir().expect("it is there").count(), 1, "the link alone");
        // A link at the path of a file is replaced, not followed.
        write(root.join("outside/secret"), "mine");
        write(root.join("i/misc/other"), "mine");
        std::os::unix::fs::symlink("../../outside/secret", root.join("i/misc/cat.txt"))
            .expect("a temporary folder");
        ok(root, &["unpack", "x.carton", "-o", "i", "--force", "-q"]);
        assert_eq!(std::fs::read(root.join("outside/secret")).expect("it is there"), b"mine");
        assert!(!root.join("i/misc/cat.txt").is_symlink());
    }
    insta::assert_snapshot!(texts);
}

#[test]
fn what_a_configuration_is_refused_for() {
    let scratch = scratch();
    let root = scratch.path();
    let checkpoint = folder().join("checkpoints/plain.pth");
    let checkpoint = checkpoint.to_str().expect("UTF-8");
    let mut texts = String::new();
    let mut refused = |what: &str, text: &str| {
        write(root.join("c.toml"), text);
        refused(&mut texts, root, what, &[checkpoint, "--config", "c.toml", "-o", "x.carton"]);
        assert!(!root.join("x.carton").exists());
    };
    refused("no TOML", "a = 1\nb = [\n");
    refused(
        "mistakes",
        "homepage = 3\n\n[[output]]\nname = 'n'\ndtype = 'half'\n[runner]\nrequired_framework_version = 'x'\n",
    );
    refused("a picture that is not there", "model_description = '''\n![](@misc/cat.png)'''\n");
    refused("a configuration without end", &"#".repeat((16 << 20) + 1));
    insta::assert_snapshot!(texts);
}

#[test]
fn a_checkpoint_is_not_a_carton() {
    let scratch = scratch();
    let root = scratch.path();
    let mut texts = String::new();
    write(root.join("plain.pth"), std::fs::read(folder().join("checkpoints/plain.pth")).expect("checked in"));
    for args in [
        &["verify", "plain.pth"] as &[&str],
        &["unpack", "plain.pth", "-o", "out"],
        &["shrink", "plain.pth", "--base", "https://example.com", "--blobs", "blobs", "-o", "small.carton"],
        &["resolve", "plain.pth", "-o", "out.carton"],
    ] {
        refused(&mut texts, root, args[0], args);
    }
    ok(root, &["plain.pth", "-q"]);
    insta::assert_snapshot!(texts);
}

//! The subcommands for cartons: a packed carton can be read, verified, unpacked, shrunk and resolved, and
//! errors name what is wrong.

use std::path::{Path, PathBuf};

use crate::program::{torch2carton, transcript};

pub(crate) const CARTON_TOML: &str = r#"spec_version = 1
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

/// The sorted names of what is in a folder.
pub(crate) fn names(folder: &Path) -> Vec<String> {
    let entries = folder.read_dir().expect("a folder");
    let mut names: Vec<String> =
        entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

pub(crate) fn scratch() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

pub(crate) fn write(path: PathBuf, bytes: impl AsRef<[u8]>) {
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("a temporary folder");
    std::fs::write(path, bytes).expect("a temporary folder");
}

/// A folder that uses every feature.
pub(crate) fn model(root: &Path) -> PathBuf {
    let folder = root.join("everything");
    write(folder.join("carton.toml"), CARTON_TOML);
    write(folder.join("tensor_data/index.toml"), INDEX);
    write(folder.join("tensor_data/x.bin"), 1.5_f32.to_le_bytes().repeat(2));
    write(folder.join("tensor_data/y.toml"), "data = [\"a cat\"]\n");
    write(folder.join("misc/cat.txt"), "meow ".repeat(2000));
    write(folder.join("model/model.pt"), (0..20_000_u32).flat_map(u32::to_le_bytes).collect::<Vec<_>>());
    #[cfg(unix)]
    {
        use std::os::unix::fs::symlink;
        let target = |name: &str| folder.join("model").join(name);
        symlink("model.pt", target("link.pt")).expect("a temporary folder");
        // A link to a link, a link that leads up from a folder, and an absolute link, which Carton stores as a relative one.
        std::fs::create_dir_all(target("sub")).expect("a temporary folder");
        symlink("../link.pt", target("sub/link.pt")).expect("a temporary folder");
        symlink(target("model.pt"), target("sub/absolute.pt")).expect("a temporary folder");
    }
    folder
}

pub(crate) fn run(root: &Path, args: &[&str]) -> (Option<i32>, String) {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_torch2carton"))
        .args(args)
        .current_dir(root)
        .output()
        .expect("the program was built for this test");
    (output.status.code(), transcript(&output))
}

pub(crate) fn ok(root: &Path, args: &[&str]) -> String {
    let (status, text) = run(root, args);
    assert_eq!(status, Some(0), "{args:?}: {text}");
    text
}

/// The text of a command that is refused. Its exit status is that of an error, not that of a panic.
pub(crate) fn refused(root: &Path, args: &[&str]) -> String {
    let (status, text) = run(root, args);
    assert!(matches!(status, Some(1 | 2)), "{args:?}: {status:?}: {text}");
    text
}

pub(crate) fn manifest(carton: &Path) -> Vec<u8> {
    let mut zip =
        zip::ZipArchive::new(std::fs::File::open(carton).expect("it is there")).expect("a zip file");
    let mut bytes = Vec::new();
    let mut entry = zip.by_name("MANIFEST").expect("it is there");
    std::io::Read::read_to_end(&mut entry, &mut bytes).expect("its CRC is right");
    bytes
}

#[cfg(unix)]
#[test]
fn every_command_counts_the_same_files() {
    let scratch = scratch();
    let root = scratch.path();
    // Three of the files are links.
    model(root);
    let files = |args: &[&str]| {
        let text = ok(root, args);
        let words: Vec<&str> = text.split([' ', ',', '\n']).collect();
        let at = words.iter().position(|word| *word == "files").expect("it counts them");
        words[at.saturating_sub(1)].to_owned()
    };
    let packed = files(&["pack", "everything", "-o", "x.carton"]);
    assert_eq!(files(&["unpack", "x.carton", "-o", "x"]), packed);
    assert_eq!(files(&["verify", "x.carton"]), packed);
    assert_eq!(files(&["verify", "x"]), packed);
    let listed = crate::cli::json(root, &["inspect", "--json", "x.carton"]);
    assert_eq!(listed["files"].as_array().expect("a list").len().to_string(), packed);
    let verified = crate::cli::json(root, &["verify", "--json", "x.carton"]);
    let bytes = listed["files"].as_array().expect("a list").iter().map(|file| file["nbytes"].as_u64());
    assert_eq!(verified["bytes"].as_u64(), bytes.sum::<Option<u64>>());
}

#[test]
fn unpacking_and_packing_keeps_the_manifest_hash() {
    let scratch = scratch();
    let root = scratch.path();
    model(root);
    ok(root, &["pack", "everything", "-o", "first.carton", "-q"]);
    let first = manifest(&root.join("first.carton"));
    for method in ["auto", "stored", "deflate", "zstd"] {
        let (carton, folder) = (format!("{method}.carton"), format!("{method}.d"));
        ok(root, &["pack", "everything", "-o", &carton, "--compression", method, "-q"]);
        ok(root, &["verify", &carton, "-q"]);
        ok(root, &["unpack", &carton, "-o", &folder, "-q"]);
        ok(root, &["verify", &folder, "-q"]);
        ok(root, &["pack", &folder, "-o", "again.carton", "-q"]);
        for carton in [&carton, "again.carton"] {
            assert_eq!(manifest(&root.join(carton)), first, "{method}");
        }
    }
    let (status, text) = run(root, &["unpack", "zstd.carton", "-o", "zstd.d"]);
    assert_eq!(status, Some(1));
    assert!(text.contains("these files exist: zstd.d/MANIFEST"), "{text}");
    ok(root, &["unpack", "zstd.carton", "-o", "zstd.d", "--force", "-q"]);
}

#[test]
fn what_is_in_a_carton() {
    let scratch = scratch();
    let root = scratch.path();
    model(root);
    ok(root, &["pack", "everything", "-o", "x.carton", "--compression", "stored", "-q"]);
    // Its model is not a checkpoint, but the rest is listed.
    insta::assert_snapshot!(ok(root, &["inspect", "x.carton"]));
}

#[test]
fn a_flipped_bit_is_found_and_its_entry_named() {
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
            // The last bits of a deflate stream have no meaning.
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
    assert_eq!(ok(root, &["verify", "m.carton"]), "m.carton: 4 files, 411 B, all hashes match\n");
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
    // Big-endian, so that the bytes have to be swapped.
    write(root.join("x.npy"), npy(">f4", "(1, 2)", &1.5_f32.to_be_bytes().repeat(2)));
    let text: Vec<u8> = "miau".chars().flat_map(|c| u32::from(c).to_le_bytes()).collect();
    write(root.join("y.npy"), npy("<U4", "(1,)", &text));
    ok(root, &["pack", "m", "-o", "m.carton", "--tensor", "x=x.npy", "--tensor", "y=y.npy", "-q"]);
    ok(root, &["unpack", "m.carton", "-o", "d", "-q"]);
    let read = |path: &str| std::fs::read(root.join("d/tensor_data").join(path)).expect("it was unpacked");
    assert_eq!(read("tensor_0.bin"), 1.5_f32.to_le_bytes().repeat(2));
    assert_eq!(read("tensor_1.toml"), b"data = [\"miau\"]\n");
    let (status, text) = run(root, &["pack", "m", "--tensor", "x=carton.toml"]);
    assert_eq!(status, Some(1), "{text}");
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
    ok(root, &["unpack", "x.carton", "-o", "d", "-q"]);
    let text = std::fs::read_to_string(root.join("d/carton.toml")).expect("it was unpacked");
    insta::assert_snapshot!(text);
    write(root.join("c.toml"), "homepage = 3\n[runner]\nrequired_framework_version = 'x'\n");
    assert_eq!(convert(&[]).status.code(), Some(1));
}

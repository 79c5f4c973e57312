//! Folders and sets of shards at addresses: the results are those of the same folder on a disk.

#![expect(clippy::arithmetic_side_effects, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fs;
use std::io::Result;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;
use tempfile::TempDir;

use crate::download_server::{Request, server};
use crate::program::{folder, transcript};

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// Returns the files below a folder, with `/` between the parts of their paths.
fn files_below(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in next.read_dir().expect("a folder") {
            let path = entry.expect("it can be listed").path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(folder).expect("below").to_str().expect("UTF-8").to_owned();
                found.insert(name, fs::read(path).expect("a file"));
            }
        }
    }
    found
}

/// Answers as the Hub does, and below `/web` as a web server, with the files below the folder whose path is `request.file`.
fn hub(request: Request<'_>) -> Result<()> {
    let root = PathBuf::from(String::from_utf8(request.file.to_vec()).expect("UTF-8"));
    let path = request.path().to_owned();
    if let Some(rest) = path.strip_prefix("/api/models/o/") {
        let Some((name, "main?blobs=true")) = rest.split_once("/revision/") else {
            return request.send("404 Not Found", "X-Error-Message: Revision Not Found\r\n", 0, b"");
        };
        let files = files_below(&root.join(name));
        let siblings: Vec<_> =
            files.iter().map(|(name, bytes)| json!({"rfilename": name, "size": bytes.len()})).collect();
        let listing = json!({"id": format!("o/{name}"), "sha": COMMIT, "siblings": siblings}).to_string();
        return request.whole("Content-Type: application/json\r\n", listing.as_bytes());
    }
    let resolved = path.strip_prefix("/o/").and_then(|rest| rest.split_once("/resolve/"));
    let file = match (resolved, path.strip_prefix("/web/")) {
        (Some((name, rest)), _) => {
            let (revision, file) = rest.split_once('/').expect("a path");
            assert!(revision == COMMIT || revision == "main", "{path}");
            root.join(name).join(file)
        }
        (_, Some(rest)) => root.join(rest),
        _ => return request.send("404 Not Found", "", 0, b""),
    };
    let Ok(file) = fs::read(file) else { return request.send("404 Not Found", "", 0, b"") };
    request.range(&file)
}

/// Returns a safetensors file with one tensor of bytes.
fn one_tensor(name: &str, bytes: &[u8]) -> Vec<u8> {
    test_support::safetensors([(name, "U8", [bytes.len()], bytes)])
}

/// A server, and the folder of what it has.
struct Hub {
    root: TempDir,
    url: String,
    requests: Arc<AtomicUsize>,
}

impl Hub {
    fn start() -> Self {
        let root = tempfile::tempdir().expect("a folder");
        let tiny = root.path().join("tiny");
        fs::create_dir_all(tiny.join("more")).expect("a folder");
        let weight_map =
            json!({"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"});
        let index = json!({"metadata": {"total_size": 700}, "weight_map": weight_map}).to_string();
        let long = vec![7; 300_000];
        for (name, bytes) in [
            ("model-00001-of-00002.safetensors", one_tensor("a", &long)),
            ("model-00002-of-00002.safetensors", one_tensor("b", &[1, 2, 3])),
            ("model.safetensors.index.json", index.into_bytes()),
            ("config.json", br#"{"model_type": "x", "auto_map": {"AutoModel": "modeling_x.X"}}"#.to_vec()),
            ("modeling_x.py", b"class X: pass\n".to_vec()),
            ("tokenizer.json", br#"{"version": "1.0"}"#.to_vec()),
            ("README.md", b"# x\n".repeat(100_000)),
            ("more/a.pkl", b"\x80\x02cos\nsystem\nX\x02\x00\x00\x00ls\x85R.".to_vec()),
        ] {
            fs::write(tiny.join(name), bytes).expect("a file");
        }
        let parts = root.path().join("parts");
        fs::create_dir(&parts).expect("a folder");
        for name in ["consolidated.00.pth", "params.json", "tokenizer.model"] {
            let from = folder().join("checkpoints/llama_tiny").join(name);
            fs::copy(from, parts.join(name)).expect("a file");
        }
        let path = root.path().to_str().expect("UTF-8").as_bytes().to_vec();
        let (url, requests) = server(path, hub);
        Self { root, url, requests }
    }

    /// Returns what the program prints, without the places.
    fn run(&self, arguments: &[&str]) -> String {
        let text = self.transcript(arguments).replace("hf://o/tiny", "tiny").replace("hf://o/parts", "parts");
        let text = text.replace(&format!("{}/web/", self.url), "");
        // The requests are what alone is more.
        match (text.find(",\"remote\":{"), text.rfind("}}")) {
            (Some(start), Some(end)) => format!("{}{}", &text[..start], &text[end + 1..]),
            _ => text,
        }
    }

    fn transcript(&self, arguments: &[&str]) -> String {
        let output = Command::new(env!("CARGO_BIN_EXE_torch2carton"))
            .args(arguments)
            .arg("--allow-http")
            .env("HF_ENDPOINT", &self.url)
            .env("HF_TOKEN", "hf_secret")
            .current_dir(self.root.path())
            .output();
        transcript(&output.expect("the program was built for this test"))
    }
}

#[test]
fn a_remote_folder_is_read_as_a_local_one() {
    let hub = Hub::start();
    let index = format!("{}/web/tiny/model.safetensors.index.json", hub.url);
    for (address, local) in [
        ("hf://o/tiny", "tiny"),
        ("hf://o/tiny/model.safetensors.index.json", "tiny/model.safetensors.index.json"),
        ("hf://o/tiny/more", "tiny/more"),
        ("hf://o/tiny/config.json", "tiny/config.json"),
        ("hf://o/parts", "parts"),
        (index.as_str(), "tiny/model.safetensors.index.json"),
    ] {
        for arguments in [&["inspect", "--sha256"][..], &["inspect", "--json"], &["scan"], &["digest"]] {
            let run = |input: &str| hub.run(&[arguments, &[input]].concat());
            let (remote, local) = (run(address), run(local));
            // A note says that only the header of a long safetensors file at an address was read.
            let lines =
                remote.lines().filter(|line| !line.contains("the bytes of the tensors were not searched"));
            let remote = lines.flat_map(|line| [line, "\n"]).collect::<String>();
            assert_eq!(remote, local, "{arguments:?} of {address}");
        }
    }
    let different = hub.run(&["diff", "hf://o/tiny", "tiny"]);
    assert!(!different.contains("exit status"), "{different}");
}

#[test]
fn a_remote_folder_is_converted_to_the_same_files() {
    let hub = Hub::start();
    let index = format!("{}/web/tiny/model.safetensors.index.json", hub.url);
    for (address, local) in [
        ("hf://o/tiny", "tiny"),
        ("hf://o/tiny/model-00002-of-00002.safetensors", "tiny/model-00002-of-00002.safetensors"),
        ("hf://o/parts", "parts"),
        (index.as_str(), "tiny/model.safetensors.index.json"),
    ] {
        for output in ["x.carton", "x.safetensors", "folder"] {
            let to: &[&str] = if output == "folder" { &["--to", "safetensors"] } else { &[] };
            let run = |input: &str, folder: &str| {
                let output = format!("{folder}/{output}");
                let arguments = ["convert", "--single", "--quiet", input, "-o", &output];
                let printed = hub.run(&[&arguments, to].concat()).replace(folder, "OUT");
                (printed, files_below(&hub.root.path().join(folder)))
            };
            let (remote, expected) = (run(address, "remote"), run(local, "local"));
            assert_eq!(remote.0, expected.0, "{output} of {address}");
            assert!(!remote.0.contains("error"), "{}", remote.0);
            let names: Vec<_> = remote.1.keys().collect();
            assert!(remote.1 == expected.1, "{output} of {address}: {names:?}");
            for folder in ["remote", "local"] {
                fs::remove_dir_all(hub.root.path().join(folder)).expect("it was written");
            }
        }
    }
}

/// Copies a folder of checked-in files to the server.
fn add_folder(hub: &Hub, from: &Path, name: &str) {
    for (path, bytes) in files_below(from) {
        let to = hub.root.path().join(name).join(path);
        fs::create_dir_all(to.parent().expect("a folder")).expect("a folder");
        fs::write(to, bytes).expect("a file");
    }
}

#[test]
fn the_folder_of_a_trainer_is_joined_at_an_address() {
    let hub = Hub::start();
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/import/open/tests/data");
    for trainer in ["dcp", "hf", "megatron", "rank-files"] {
        add_folder(&hub, &data.join(trainer), &format!("{trainer}/step-10"));
        for arguments in [&["inspect", "--sha256"][..], &["digest"]] {
            let run = |input: &str| hub.run(&[arguments, &[input]].concat()).replace("hf://o/", "");
            let (remote, local) = (run(&format!("hf://o/{trainer}")), run(trainer));
            assert!(!local.contains("error"), "{local}");
            assert_eq!(remote, local, "{arguments:?} of {trainer}");
        }
        let convert = |input: &str, output: &str| {
            let printed = hub.run(&["convert", "--quiet", input, "-o", output]);
            assert!(!printed.contains("error"), "{printed}");
            fs::read(hub.root.path().join(output)).expect("it was written")
        };
        let remote = convert(&format!("hf://o/{trainer}"), "remote.safetensors");
        assert!(remote == convert(trainer, "local.safetensors"), "{trainer}");
    }
}

#[test]
fn each_checkpoint_of_a_folder_at_an_address_is_converted() {
    let hub = Hub::start();
    for name in ["a/model.safetensors", "b/model.safetensors", "c/d/x.safetensors"] {
        let path = hub.root.path().join("many").join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, one_tensor(name, &[1, 2])).expect("a file");
    }
    let run = |input: &str, output: &str| {
        let arguments = ["convert", "--each", "--resume", "--to", "pth", input, "-o", output];
        (hub.run(&arguments), files_below(&hub.root.path().join(output)))
    };
    let (printed, remote) = run("hf://o/many", "remote");
    assert!(printed.contains("3 converted"), "{printed}");
    let (_, local) = run("many", "local");
    let names = |files: &BTreeMap<String, Vec<u8>>| files.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&remote), names(&local));
    for (name, bytes) in remote.iter().filter(|(name, _)| !name.ends_with(".outputs")) {
        assert!(local.get(name) == Some(bytes), "{name}");
    }
    assert!(run("hf://o/many", "remote").0.contains("3 skipped"));
}

#[test]
fn a_listing_and_one_request_for_each_short_file_read_a_folder() {
    let hub = Hub::start();
    let text = hub.transcript(&["inspect", "--json", "hf://o/tiny"]);
    // The listing, the index, config.json, and two shards; the first one is read at its start alone.
    assert_eq!(hub.requests.load(Ordering::Relaxed), 5);
    let report: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(report["remote"]["requests"], 5);
}

#[test]
fn refused_folders_say_what_helps() {
    let hub = Hub::start();
    fs::create_dir(hub.root.path().join("ranks")).expect("a folder");
    fs::write(hub.root.path().join("ranks/__0_0.distcp"), "x").expect("a file");
    let texts: Vec<String> = [
        &["inspect", "hf://o/tiny@gone"][..],
        &["inspect", "hf://o/tiny/gone.pth"],
        &["inspect", "hf://o/ranks"],
        &["convert", "hf://o/tiny/model-00002-of-00002.safetensors", "-o", "x.carton"],
        &["inspect", "o/tiny"],
        &["inspect", "--offline", "hf://o/tiny"],
    ]
    .iter()
    .map(|arguments| hub.transcript(arguments))
    .collect();
    insta::assert_snapshot!(texts.concat(), @r"
    error: hf://o/tiny@gone does not exist (Revision Not Found); check the address
    exit status 1
    error: hf://o/tiny/gone.pth does not exist; check the address
    exit status 1
    error: hf://o/ranks is not complete: it has __0_0.distcp, but no .metadata, which a save writes last; wait until the save ends, or pass an earlier step
    exit status 1
    error: model-00002-of-00002.safetensors is shard 2 of 2: run `torch2carton convert hf://o/tiny`, or --single for this file alone
    exit status 1
    error: there is no file o/tiny; if it is a model of Hugging Face, pass hf://o/tiny
    exit status 1
    error: hf://o/tiny is remote, and requests are switched off; leave out --offline, and unset HF_HUB_OFFLINE
    exit status 1
    ");
}

//! The program as a process: the memory and time that it takes, and what is left after `kill -9`.

#![cfg(target_os = "linux")]

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::carton_tools::{names, ok, scratch};
use crate::outputs::{in_shell, program, sparse};

/// Limits of a shell: 128 MiB of memory that is not mapped from a file, and 20 seconds of processor time.
const LIMITS: &str = "ulimit -d 131072; ulimit -t 20";

/// Runs the program within [`LIMITS`], and returns its exit status and what it prints on stderr.
fn limited(root: &Path, args: &[&str]) -> (Option<i32>, String) {
    let output = in_shell(root, LIMITS, args).output().expect("it starts");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn hostile_files_take_little_memory_and_time() {
    let scratch = scratch();
    let hostile = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/hostile");
    let files = hostile.read_dir().expect("it is checked in").map(|entry| entry.expect("a file").path());
    let mut files: Vec<PathBuf> =
        files.filter(|file| file.extension().is_some_and(|it| it != "md")).collect();
    files.sort();
    assert!(files.len() > 50, "{}", files.len());
    for file in files {
        let name = file.to_str().expect("UTF-8");
        for args in [
            vec![name, "-q", "-o", "out.carton"],
            vec!["inspect", "--json", "--sha256", name],
            vec!["scan", "--json", name],
            vec!["trace", name],
        ] {
            let (status, text) = limited(scratch.path(), &args);
            assert!(status.is_some_and(|status| status < 4), "{args:?}: {status:?}: {text}");
            let failed = args.len() == 4 && status != Some(0);
            assert!(!failed || names(scratch.path()).is_empty(), "{args:?}: {:?}", names(scratch.path()));
        }
        let _ = std::fs::remove_file(scratch.path().join("out.carton"));
    }
}

#[test]
fn nothing_in_a_pickle_is_executed() {
    let scratch = scratch();
    let root = scratch.path();
    std::fs::write(root.join("attack.pkl"), "cos\nsystem\n(S'touch witness'\ntR.")
        .expect("a temporary folder");
    for args in
        [&["trace", "attack.pkl"][..], &["inspect", "attack.pkl"], &["scan", "attack.pkl"], &["attack.pkl"]]
    {
        program(root, args).output().expect("it starts");
    }
    assert_eq!(names(root), ["attack.pkl"]);
}

#[test]
fn memory_does_not_depend_on_the_size_of_a_checkpoint() {
    let scratch = scratch();
    let root = scratch.path();
    sparse(&root.join("a.safetensors"), 1 << 30);
    for args in [&["a.safetensors", "-q", "-o", "a.carton"][..], &["inspect", "--sha256", "a.safetensors"]] {
        assert_eq!(limited(root, args), (Some(0), String::new()), "{args:?}");
    }
}

/// Starts a conversion that replaces `a.carton`, and kills it once its temporary file has `len` bytes.
fn kill_at(root: &Path, len: u64) {
    let mut running = program(root, &["a.safetensors", "-q", "--force"]);
    let mut running = running.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
    let start = Instant::now();
    let is_long = |entry: std::io::Result<std::fs::DirEntry>| {
        let entry = entry.expect("a temporary folder");
        let is_partial = entry.file_name().to_string_lossy().ends_with(".partial");
        is_partial && entry.metadata().is_ok_and(|file| file.len() >= len)
    };
    while running.try_wait().expect("it was started").is_none()
        && !root.read_dir().expect("a temporary folder").any(is_long)
    {
        assert!(start.elapsed() < Duration::from_secs(60), "no output grows");
        std::thread::sleep(Duration::from_millis(1));
    }
    running.kill().expect("it was started");
    running.wait().expect("it was started");
}

#[test]
fn a_kill_leaves_the_old_output_or_the_whole_new_one() {
    let scratch = scratch();
    let root = scratch.path();
    sparse(&root.join("a.safetensors"), 48 << 20);
    ok(root, &["a.safetensors", "-q"]);
    let carton = root.join("a.carton");
    let whole = std::fs::read(&carton).expect("it was written");
    for tenth in 0..=10 {
        std::fs::write(&carton, b"an older carton").expect("a temporary folder");
        kill_at(root, whole.len() as u64 * tenth / 10);
        let found = std::fs::read(&carton).expect("one of them is there");
        assert!(found == b"an older carton" || found == whole, "{tenth}: {} bytes", found.len());
        let left = names(root).into_iter().filter(|name| !name.starts_with("a."));
        let left: Vec<String> = left.collect();
        assert!(left.len() <= 1 && left.iter().all(|name| name.starts_with(".torch2carton-")), "{left:?}");
    }
    ok(root, &["a.safetensors", "-q", "--force"]);
    assert_eq!(names(root), ["a.carton", "a.safetensors"]);
}

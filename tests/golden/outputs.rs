//! Outputs that cannot be written: a full disk, a limit for the size of files, a signal. An error and its exit status, and
//! nothing is left.

#![cfg(unix)]

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, UNIX_EPOCH};

use crate::carton_tools::{model, names, ok, run, scratch, write};
use crate::cli::one_tensor;

/// A safetensors file with one tensor of `len` zeros, which takes no room.
pub(crate) fn sparse(path: &Path, len: u64) {
    let header = format!(r#"{{"w":{{"dtype":"U8","shape":[{len}],"data_offsets":[0,{len}]}}}}"#);
    let mut file = File::create(path).expect("a temporary folder");
    let start = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes()].concat();
    file.write_all(&start).expect("a temporary folder");
    file.set_len((start.len() as u64).saturating_add(len)).expect("a temporary folder");
}

pub(crate) fn program(root: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_torch2carton"));
    command.args(args).current_dir(root).stdin(Stdio::null());
    command
}

/// Runs the program in a shell after `before`.
pub(crate) fn in_shell(root: &Path, before: &str, args: &[&str]) -> Command {
    let mut command = Command::new("sh");
    let script = format!("{before}; exec \"$@\"");
    command.args(["-c", &script, "sh", env!("CARGO_BIN_EXE_torch2carton")]).args(args);
    command.current_dir(root).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Every command that prints something, and its exit status where that fails.
const PRINTING: &[(&[&str], i32)] = &[
    (&["--help"], 1),
    (&["--version"], 1),
    (&["help"], 1),
    (&["convert", "--help"], 1),
    (&["completions", "bash"], 1),
    (&["completions", "zsh"], 1),
    (&["completions", "fish"], 1),
    (&["man"], 1),
    (&["inspect", "a.pth"], 1),
    (&["inspect", "--json", "a.pth"], 1),
    (&["inspect", "--all", "--sha256", "a.pth"], 1),
    (&["inspect", "a.carton"], 1),
    (&["inspect", "--json", "a.carton"], 1),
    (&["scan", "a.pth"], 2),
    (&["scan", "--json", "a.pth"], 2),
    (&["trace", "a.pth"], 1),
    (&["trace", "--lines", "a.pth"], 1),
    (&["trace", "--json", "a.pth"], 1),
    (&["trace", "--dis", "a.pth"], 1),
    (&["trace", "--summary", "a.pth"], 1),
    (&["verify", "--json", "a.carton"], 1),
    (&["convert", "--dry-run", "--json", "a.pth"], 1),
    (&["convert", "--dry-run", "--json", "--each", "a.pth"], 1),
];

/// A folder with a checkpoint, its carton, and a folder to pack.
fn inputs(root: &Path) {
    one_tensor(root);
    ok(root, &["a.pth", "-q"]);
    model(root);
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_standard_output_is_an_error() {
    let scratch = scratch();
    let root = scratch.path();
    inputs(root);
    for (args, status) in PRINTING {
        let full = File::options().write(true).open("/dev/full").expect("every Linux has it");
        let output = program(root, args).stdout(full).output().expect("it was built");
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(*status), "{args:?}: {text}");
        assert!(text.contains("No space left on device"), "{args:?}: {text}");
        assert!(text.starts_with("error: cannot write "), "{args:?}: {text}");
    }
}

/// What a command did is not undone because nobody can read about it.
#[cfg(target_os = "linux")]
#[test]
fn a_full_standard_error_changes_nothing() {
    let scratch = scratch();
    let root = scratch.path();
    inputs(root);
    let base = "https://example.org/blobs";
    let shrink =
        ["shrink", "c.carton", "--base", base, "--blobs", "blobs", "--min-size", "1", "-o", "s.carton"];
    let commands: [(&[&str], &str); 6] = [
        (&["a.pth", "-o", "c.carton"], "c.carton"),
        (&["--each", "a.pth", "-o", "cartons"], "cartons"),
        (&["unpack", "c.carton", "-o", "new"], "new"),
        (&["pack", "new", "-o", "p.carton"], "p.carton"),
        (&shrink, "s.carton"),
        (&["verify", "c.carton"], "c.carton"),
    ];
    for (args, output) in commands {
        let full = File::options().write(true).open("/dev/full").expect("every Linux has it");
        let status = program(root, args).stderr(full).status().expect("it was built");
        assert_eq!(status.code(), Some(0), "{args:?}");
        assert!(root.join(output).exists(), "{args:?}");
    }
    // The exit status says what stderr cannot.
    let full = File::options().write(true).open("/dev/full").expect("every Linux has it");
    let status = program(root, &["missing.pth"]).stderr(full).status().expect("it was built");
    assert_eq!(status.code(), Some(1));
}

#[test]
fn a_closed_pipe_ends_every_command_quietly() {
    let scratch = scratch();
    let root = scratch.path();
    inputs(root);
    for (args, _) in PRINTING {
        // The reader is gone before the program starts.
        let mut reader = Command::new("true").stdin(Stdio::piped()).spawn().expect("every Unix has it");
        let pipe = reader.stdin.take().expect("it was asked for");
        assert!(reader.wait().expect("it was started").success());
        let output = program(root, args).stdout(pipe).stderr(Stdio::piped()).output().expect("it was built");
        assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""), "{args:?}");
    }
}

#[test]
fn a_limit_for_the_size_of_files_is_a_full_disk() {
    let scratch = scratch();
    let root = scratch.path();
    sparse(&root.join("a.safetensors"), 4 << 20);
    ok(root, &["a.safetensors", "-q"]);
    let carton = std::fs::read(root.join("a.carton")).expect("it was written");
    write(root.join("packed/carton.toml"), crate::carton_tools::CARTON_TOML);
    let folder = model(root);
    write(folder.join("misc/large.bin"), vec![7; 4 << 20]);
    let before = names(root);
    for args in [
        // What is there stays.
        &["a.safetensors", "-o", "a.carton"][..],
        &["a.safetensors", "-o", "b.carton"],
        &["unpack", "a.carton", "-o", "new"],
        &["pack", "everything", "-o", "p.carton", "--compression", "stored"],
    ] {
        // In units of 512 bytes: 1 MiB.
        let output = in_shell(root, "ulimit -f 2048", args).output().expect("every Unix has it");
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {text}");
        assert!(
            text.starts_with("error: cannot write ") && text.contains("File too large"),
            "{args:?}: {text}"
        );
        assert_eq!(names(root), before, "{args:?}");
        assert!(std::fs::read(root.join("a.carton")).expect("it is there") == carton, "{args:?}");
    }
}

/// Starts a conversion of a gigabyte and waits until it writes its output.
fn started(root: &Path, before: &str) -> Child {
    sparse(&root.join("a.safetensors"), 1 << 30);
    loop {
        let mut running = in_shell(root, before, &["a.safetensors", "-q"]).spawn().expect("it was built");
        loop {
            if is_writing(root) {
                return running;
            }
            if let Some(status) = running.try_wait().expect("it was started") {
                // It wrote everything while this test did not run.
                assert!(status.success(), "{status}");
                std::fs::remove_file(root.join("a.carton")).expect("it was written");
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Whether an unfinished output has bytes. From then on, no other run takes it for abandoned.
fn is_writing(root: &Path) -> bool {
    let has_bytes = |name: &String| root.join(name).metadata().is_ok_and(|metadata| metadata.len() > 0);
    names(root).iter().any(|name| name.ends_with(".partial") && has_bytes(name))
}

fn send(signal: &str, to: &Child) {
    let kill = Command::new("kill").args(["-s", signal, &to.id().to_string()]).status();
    assert!(kill.expect("every Unix has it").success());
}

/// The exit status of a conversion that gets these signals while it writes.
fn status_after(root: &Path, before: &str, signals: &[&str]) -> Option<i32> {
    // If it has written everything before the signals come, its exit status says nothing about them.
    for _ in 0..100 {
        let mut running = started(root, before);
        for signal in signals {
            send(signal, &running);
        }
        let status = running.wait().expect("it was started").code();
        if status != Some(0) {
            return status;
        }
        std::fs::remove_file(root.join("a.carton")).expect("it was written");
    }
    panic!("no signal ends it");
}

/// Whether this process ignores a signal, as a shell lets its background processes do. Then the program ignores it, too.
pub(crate) fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask >> signal.saturating_sub(1) & 1 == 1
}

/// 128 plus the number of the signal, as shells report it.
#[test]
fn a_signal_during_a_conversion_leaves_nothing_and_sets_the_exit_status() {
    let signals = [("HUP", 129), ("INT", 130), ("QUIT", 131), ("TERM", 143)];
    for (signal, status) in signals.into_iter().filter(|(_, status)| !is_ignored(status - 128)) {
        let scratch = scratch();
        assert_eq!(status_after(scratch.path(), "true", &[signal]), Some(status), "{signal}");
        assert_eq!(names(scratch.path()), ["a.safetensors"]);
    }
}

/// A signal with a lower number is handled before one with a higher number.
#[cfg(target_os = "linux")]
#[test]
fn a_signal_that_is_ignored_stays_ignored() {
    let scratch = scratch();
    assert_eq!(status_after(scratch.path(), "trap '' HUP", &["HUP", "HUP", "TERM"]), Some(143));
}

/// A conversion that is stopped, with SIGSTOP, while it writes.
#[cfg(target_os = "linux")]
#[expect(clippy::zombie_processes, reason = "`waitpid` waits for one that is not returned")]
fn stopped(root: &Path) -> Child {
    use rustix::process::{Pid, WaitOptions, waitpid};
    loop {
        let mut running = started(root, "true");
        send("STOP", &running);
        let waited = waitpid(Pid::from_raw(running.id().cast_signed()), WaitOptions::UNTRACED);
        let (_, status) = waited.expect("it was started").expect("it waits");
        if status.stopped() {
            if is_writing(root) {
                return running;
            }
            running.kill().expect("it was started");
            running.wait().expect("it was started");
        }
        // It had written everything.
        std::fs::remove_file(root.join("a.carton")).expect("it was written");
    }
}

/// `kill -9` cannot be handled. The name of what is left says whose it is, and the next run removes it.
#[cfg(target_os = "linux")]
#[test]
fn what_a_killed_run_leaves_is_removed_by_the_next_one() {
    let scratch = scratch();
    let root = scratch.path();
    let mut running = stopped(root);
    let other = names(root);
    // Not while it is written.
    one_tensor(root);
    ok(root, &["a.pth", "-q", "-o", "other.carton"]);
    assert!(other.iter().all(|name| names(root).contains(name)), "{:?}", names(root));
    send("KILL", &running);
    running.wait().expect("it was started");
    let left = names(root);
    assert!(
        left.iter().any(|name| name.starts_with(".torch2carton-") && name.ends_with(".partial")),
        "{left:?}"
    );
    assert!(!left.contains(&"a.carton".to_owned()), "{left:?}");
    ok(root, &["a.pth", "-q", "-o", "other.carton"]);
    assert_eq!(names(root), ["a.pth", "a.safetensors", "other.carton"]);
}

/// The permissions of everything in a folder, by path.
fn modes(folder: &Path, found: &mut Vec<(PathBuf, u32)>) {
    use std::os::unix::fs::PermissionsExt;
    for entry in folder.read_dir().expect("a folder").flatten() {
        let path = entry.path();
        let metadata = path.symlink_metadata().expect("it is there");
        found.push((path.clone(), metadata.permissions().mode() & 0o7777));
        if metadata.is_dir() {
            modes(&path, found);
        }
    }
}

#[test]
fn outputs_have_the_permissions_that_the_umask_leaves() {
    let scratch = scratch();
    let root = scratch.path();
    inputs(root);
    let llama = crate::program::folder().join("checkpoints/llama_tiny").display().to_string();
    let out = root.join("out");
    for (umask, file, folder) in [("027", 0o640, 0o750), ("002", 0o664, 0o775)] {
        std::fs::create_dir(&out).expect("a temporary folder");
        let blobs = ["--base", "https://example.org", "--blobs", "out/blobs", "--min-size", "1"];
        let shrink = [&["shrink", "out/x.carton", "-o", "out/s.carton"][..], &blobs].concat();
        for args in [
            &["a.pth", "-o", "out/x.carton"][..],
            &["a.pth", "-o", "out/x.safetensors"],
            &["a.pth", "-o", "out/x.pth"],
            &["--each", "a.pth", "-o", "out/each"],
            &[&llama, "--names", "hf", "-o", "out/hf"],
            &[&llama, "--to", "triton", "-o", "out/triton"],
            &["pack", "everything", "-o", "out/p.carton"],
            &["unpack", "out/p.carton", "-o", "out/unpacked"],
            &shrink,
        ] {
            let output = in_shell(root, &format!("umask {umask}"), args).output().expect("every Unix has it");
            assert!(output.status.success(), "{args:?}: {}", stderr(&output));
        }
        let mut found = Vec::new();
        modes(&out, &mut found);
        assert!(found.len() > 20, "{found:?}");
        for (path, mode) in found {
            if !path.is_symlink() {
                let expected = if path.is_dir() { folder } else { file };
                assert_eq!(mode, expected, "{}: {mode:o}", path.display());
            }
        }
        std::fs::remove_dir_all(&out).expect("it is ours");
    }
}

/// The archive with one more entry, and with its comment.
fn with_appended_entry(archive: &[u8]) -> Vec<u8> {
    let mut writer = zip::ZipWriter::new_append(std::io::Cursor::new(archive.to_vec())).expect("an archive");
    writer.start_file("notes.txt", zip::write::SimpleFileOptions::default()).expect("a new name");
    writer.write_all(b"theirs").expect("memory");
    let appended = writer.finish().expect("memory").into_inner();
    assert!(appended.ends_with(b"torch2carton"), "the comment stays");
    appended
}

#[test]
fn an_output_that_is_replaced_keeps_its_permissions() {
    use std::os::unix::fs::PermissionsExt;
    let scratch = scratch();
    let root = scratch.path();
    inputs(root);
    std::fs::create_dir(root.join("out")).expect("a temporary folder");
    let blobs = ["--base", "https://example.org", "--blobs", "out/blobs", "--min-size", "1"];
    for (args, output) in [
        (&["a.pth", "-o", "out/x.carton"][..], "out/x.carton"),
        (&["a.pth", "-o", "out/x.safetensors"], "out/x.safetensors"),
        (&["a.pth", "-o", "out/x.pth"], "out/x.pth"),
        (&["--each", "a.pth", "-o", "out/each"], "out/each/a.carton"),
        (&["a.pth", "--to", "safetensors", "-o", "out/folder"], "out/folder/model.safetensors"),
        (&["pack", "everything", "-o", "out/p.carton"], "out/p.carton"),
        (&["unpack", "out/p.carton", "-o", "out/unpacked", "--force"], "out/unpacked/carton.toml"),
        (&[&["shrink", "out/x.carton", "-o", "out/s.carton"][..], &blobs].concat(), "out/s.carton"),
    ] {
        let run = || {
            let output = in_shell(root, "umask 022", args).output().expect("every Unix has it");
            assert!(output.status.success(), "{args:?}: {}", stderr(&output));
        };
        run();
        let path = root.join(output);
        for mode in [0o600, 0o640, 0o666, 0o444] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("it is ours");
            run();
            let found = path.metadata().expect("it was written").permissions().mode() & 0o7777;
            assert_eq!(found, mode, "{args:?}: {found:o}");
        }
    }
}

/// What the rule on existing outputs allows for each command that writes a file. `args` writes `output`.
fn follows_the_rule(root: &Path, args: &[&str], output: &str) {
    let path = root.join(output);
    let with = |option: &[&str]| run(root, &[args, option].concat());
    let refused = |option: &[&str], why: &str, what: &str| {
        let before = path.symlink_metadata().expect("it is there").modified().expect("it has a time");
        let (status, text) = with(option);
        assert_eq!(status, Some(1), "{args:?}, {what}: {text}");
        assert!(text.contains(&format!("{output}{why}")), "{args:?}, {what}: {text}");
        let after = path.symlink_metadata().expect("it is there").modified().expect("it has a time");
        assert_eq!(before, after, "{args:?}, {what}");
    };
    let foreign = ": it was not written by torch2carton, or was changed or copied since; --force replaces it";
    ok(root, args);
    ok(root, args);
    let ours = std::fs::read(&path).expect("it was written");
    refused(&["--no-clobber"], " exists; choose another path with -o", "ours");
    let (_, cut) = ours.split_last().expect("it has bytes");
    let mut changed = ours.clone();
    let middle = ours.len().div_euclid(2);
    *changed.get_mut(middle).expect("it has bytes") ^= 1;
    // The last two end with the comment of our archives.
    let (changed, appended) = (changed.as_slice(), with_appended_entry(&ours));
    for (what, bytes) in [
        ("a text", &b"notes"[..]),
        ("nothing", b""),
        ("cut", cut),
        ("copied", &ours),
        ("a byte changed", changed),
        ("an entry appended", &appended),
    ] {
        let before = path.metadata().and_then(|metadata| metadata.modified()).expect("it is there");
        std::fs::write(&path, bytes).expect("a temporary folder");
        while path.metadata().and_then(|metadata| metadata.modified()).expect("it is there") == before {
            // Clocks of filesystems are slower than tests.
            std::fs::write(&path, bytes).expect("a temporary folder");
        }
        refused(&[], foreign, what);
        assert_eq!(std::fs::read(&path).expect("it stays"), bytes);
        ok(root, &[args, &["--force"]].concat());
        assert_eq!(std::fs::read(&path).expect("it was replaced"), ours, "{args:?}");
    }
    std::fs::rename(&path, root.join("elsewhere")).expect("a temporary folder");
    std::os::unix::fs::symlink("elsewhere", &path).expect("a temporary folder");
    refused(&[], foreign, "a link to a file of ours");
    ok(root, &[args, &["--force"]].concat());
    assert!(!path.is_symlink());
    let both = with(&["--force", "--no-clobber"]);
    assert_eq!(both.0, Some(2), "{both:?}");
}

#[test]
fn only_files_of_ours_are_replaced() {
    let scratch = scratch();
    let root = scratch.path();
    inputs(root);
    ok(root, &["a.pth", "-q"]);
    follows_the_rule(root, &["a.pth", "-q", "-o", "x.carton"], "x.carton");
    follows_the_rule(root, &["--each", "-o", "many", "-q", "a.pth"], "many/a.carton");
    follows_the_rule(root, &["pack", "everything", "-q", "-o", "p.carton"], "p.carton");
    let shrink = ["shrink", "a.carton", "--base", "https://a.b", "--blobs", "blobs", "-q", "-o", "s.carton"];
    follows_the_rule(root, &shrink, "s.carton");
    ok(
        root,
        &[
            "shrink",
            "a.carton",
            "--base",
            "https://a.b",
            "--blobs",
            "c",
            "--min-size",
            "99999999",
            "-q",
            "-o",
            "w.carton",
        ],
    );
    follows_the_rule(root, &["resolve", "w.carton", "-q", "-o", "r.carton"], "r.carton");
}

#[cfg(target_os = "linux")]
#[test]
fn a_safetensors_file_is_ours_until_another_program_writes_it() {
    let scratch = scratch();
    let root = scratch.path();
    inputs(root);
    let path = root.join("x.safetensors");
    let convert = ["a.pth", "-q", "-o", "x.safetensors"];
    ok(root, &convert);
    if rustix::fs::getxattr(&path, "user.torch2carton", &mut [0; 99]).is_ok() {
        ok(root, &convert);
    }
    // The format leaves no place for a mark, and the attribute is about the bytes that were there before.
    let mut file = File::options().write(true).open(&path).expect("it was written");
    file.write_all(&std::fs::read(&path).expect("it was written")).expect("it is ours");
    // Clocks of filesystems are slower than tests.
    file.set_modified(UNIX_EPOCH).expect("it is ours");
    let (status, text) = run(root, &convert);
    assert_eq!(status, Some(1), "{text}");
    assert!(text.contains("cannot replace x.safetensors: it was not written by torch2carton, or"), "{text}");
    ok(root, &[&convert[..], &["--force"]].concat());
}

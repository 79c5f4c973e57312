//! Many checkpoints in one command: `--each` and `--resume`.

#![expect(clippy::arithmetic_side_effects, reason = "a test fails by panicking")]

use serde_json::Value as Json;
use std::path::Path;
use std::time::{Duration, SystemTime};

use crate::carton_tools::{names, ok, run, scratch};
use crate::cli::output;
use crate::made::{dict, tensor, write_pth};
use crate::program::folder;

/// `a.pth` and `b.pth`, which can be converted, and `broken.pth`, which is cut short.
fn checkpoints(root: &Path) {
    write_pth(&root.join("a.pth"), &dict(&[("w", tensor(1))]));
    write_pth(&root.join("b.pth"), &dict(&[("w", tensor(2))]));
    let cut = std::fs::read(folder().join("hostile/truncated.pth")).expect("it is checked in");
    std::fs::write(root.join("broken.pth"), cut).expect("a temporary folder");
}

/// Sets the time at which a file was last changed to `seconds` before now.
fn age(path: &Path, seconds: u64) {
    let time = SystemTime::now() - Duration::from_secs(seconds);
    let file = std::fs::File::options().write(true).open(path).expect("it is there");
    file.set_modified(time).expect("it can be set");
}

fn modified(path: &Path) -> SystemTime {
    path.metadata().and_then(|metadata| metadata.modified()).expect("it is there")
}

#[test]
fn a_failure_does_not_stop_the_others() {
    let scratch = scratch();
    let root = scratch.path();
    checkpoints(root);
    let (status, text) = run(root, &["--each", "a.pth", "broken.pth", "b.pth", "-o", "out"]);
    assert_eq!(status, Some(1), "{text}");
    assert_eq!(names(&root.join("out")), ["a.carton", "b.carton"]);
    assert!(text.contains("error: broken.pth: "), "{text}");
    assert!(text.contains("\n2 converted, 1 failed\n"), "{text}");
    assert!(text.contains("out/a.carton\n") && text.contains("out/b.carton\n"), "{text}");
    ok(root, &["verify", "out/b.carton", "--against", "b.pth", "-q"]);
    // Without an output, each is next to its checkpoint.
    let (status, text) = run(root, &["-q", "--each", "broken.pth", "a.pth", "missing.pth"]);
    assert_eq!(status, Some(1), "{text}");
    assert_eq!(text.lines().filter(|line| line.starts_with("error: ")).count(), 2, "{text}");
    assert_eq!(names(root), ["a.carton", "a.pth", "b.pth", "broken.pth", "out"]);
    let text = ok(root, &["--each", "a.pth", "b.pth"]);
    assert!(text.ends_with("\n2 converted, 0 failed\n"), "{text}");
}

#[test]
fn results_for_programs_are_on_standard_output() {
    let scratch = scratch();
    let root = scratch.path();
    checkpoints(root);
    let (status, stdout, stderr) = output(root, &["--each", "--json", "-q", "a.pth", "broken.pth", "b.pth"]);
    assert_eq!(status, Some(1));
    let outputs: Vec<Json> = stdout
        .lines()
        .map(|line| serde_json::from_str::<Json>(line).expect("JSON")["output"].clone())
        .collect();
    assert_eq!(outputs, [Json::from("a.carton"), Json::Null, Json::from("b.carton")]);
    let failed: Json = serde_json::from_str(stdout.lines().nth(1).expect("three lines")).expect("JSON");
    assert_eq!(failed["file"], "broken.pth");
    assert!(failed["error"].as_str().is_some_and(|text| text.contains("broken.pth")), "{failed}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
}

#[test]
fn whole_cartons_are_skipped() {
    let scratch = scratch();
    let root = scratch.path();
    checkpoints(root);
    let each =
        |more: &[&str]| run(root, &[&["--each", "--resume", "-o", "out", "a.pth", "b.pth"], more].concat());
    assert!(each(&[]).1.ends_with("\n2 converted, 0 skipped, 0 failed\n"));
    let (first, second) = (root.join("out/a.carton"), root.join("out/b.carton"));
    let before = (modified(&first), modified(&second));
    let (status, text) = each(&[]);
    assert_eq!(status, Some(0), "{text}");
    assert!(text.contains("note: a.pth is skipped: out/a.carton is whole\n"), "{text}");
    assert!(text.ends_with("0 converted, 2 skipped, 0 failed\n"), "{text}");
    assert_eq!(before, (modified(&first), modified(&second)));
    // Without --resume they are converted again.
    let text = ok(root, &["--each", "-o", "out", "a.pth", "b.pth"]);
    assert!(text.ends_with("\n2 converted, 0 failed\n"), "{text}");
    // A failure remains one.
    let (status, text) = each(&["broken.pth"]);
    assert_eq!(status, Some(1), "{text}");
    assert!(text.ends_with("\n0 converted, 2 skipped, 1 failed\nexit status 1\n"), "{text}");
}

#[test]
fn missing_older_and_torn_cartons_are_made_again() {
    let scratch = scratch();
    let root = scratch.path();
    checkpoints(root);
    let each = |options: &[&str]| {
        ok(root, &[&["--each", "--resume", "-o", "out", "a.pth", "b.pth"], options].concat())
    };
    let carton = root.join("out/a.carton");
    let redone_with = |options: &[&str], what: &str| {
        assert!(each(options).ends_with("\n1 converted, 1 skipped, 0 failed\n"), "{what}");
        ok(root, &["verify", "out/a.carton", "--against", "a.pth", "-q"]);
    };
    let redone = |what: &str| redone_with(&[], what);
    each(&[]);
    std::fs::remove_file(&carton).expect("it was written");
    redone("missing");
    age(&carton, 3600);
    age(&root.join("a.pth"), 1800);
    redone("older than its checkpoint");
    let whole = std::fs::read(&carton).expect("it was written");
    for len in [0, 1, whole.len() / 2, whole.len() - 1] {
        std::fs::write(&carton, &whole[..len]).expect("it can be written");
        // Its mark is gone with its end.
        let (status, text) = run(root, &["--each", "--resume", "-o", "out", "a.pth", "b.pth"]);
        assert_eq!(status, Some(1), "{text}");
        assert!(
            text.contains("cannot replace out/a.carton: it was not written by torch2carton, or was changed or copied since; --force"),
            "{text}"
        );
        redone_with(&["--force"], &format!("cut to {len} bytes"));
    }
    std::fs::write(&carton, "not a carton").expect("it can be written");
    redone_with(&["--force"], "not a carton");
    // A carton that leaves files out is not whole.
    ok(
        root,
        &[
            "shrink",
            "out/a.carton",
            "-o",
            "s.carton",
            "--base",
            "https://a.b",
            "--blobs",
            "blobs",
            "--min-size",
            "1",
            "-q",
        ],
    );
    std::fs::rename(root.join("s.carton"), &carton).expect("a temporary folder");
    redone("shrunk");
}

/// A shard that was written again makes the carton of its folder old.
#[test]
fn a_folder_is_as_new_as_its_newest_file() {
    let scratch = scratch();
    let root = scratch.path();
    let shard = |number: u64| root.join(format!("set/model-0000{number}-of-00002.pth"));
    for number in 1..=2 {
        write_pth(&shard(number), &dict(&[(format!("w{number}").as_str(), tensor(number))]));
    }
    let each = || ok(root, &["--each", "--resume", "-o", "out", "set"]);
    assert!(each().ends_with("\n1 converted, 0 skipped, 0 failed\n"));
    assert!(each().ends_with("0 converted, 1 skipped, 0 failed\n"));
    age(&root.join("out/set.carton"), 1800);
    for path in [shard(1), shard(2)] {
        age(&path, 3600);
    }
    // The folder itself did not change: the file was written in place.
    let folder = std::fs::File::open(root.join("set")).expect("it is there");
    folder.set_modified(SystemTime::now() - Duration::from_secs(3600)).expect("it can be set");
    assert!(each().ends_with("0 converted, 1 skipped, 0 failed\n"), "nothing changed");
    age(&shard(2), 0);
    folder.set_modified(SystemTime::now() - Duration::from_secs(3600)).expect("it can be set");
    assert!(each().ends_with("\n1 converted, 0 skipped, 0 failed\n"), "a shard is newer than the carton");
}

#[test]
fn two_checkpoints_cannot_have_one_output() {
    let scratch = scratch();
    let root = scratch.path();
    checkpoints(root);
    write_pth(&root.join("sub/a.pth"), &dict(&[("w", tensor(3))]));
    let args = ["--each", "a.pth", "b.pth", "sub/a.pth", "-o", "out"];
    let (status, text) = run(root, &args);
    assert_eq!(status, Some(2), "{text}");
    let error = "error: a.pth and sub/a.pth would both become out/a.carton";
    assert!(text.lines().any(|line| line.starts_with(error)), "{text}");
    // Next to themselves they do not collide.
    ok(root, &["--each", "a.pth", "b.pth", "sub/a.pth", "-q"]);
}

#[test]
fn two_checkpoints_with_one_output_are_refused_before_any_work() {
    let scratch = scratch();
    let root = scratch.path();
    checkpoints(root);
    write_pth(&root.join("sub/a.pth"), &dict(&[("w", tensor(3))]));
    let (status, text) = run(root, &["--each", "a.pth", "b.pth", "sub/a.pth", "-o", "out"]);
    assert_eq!(status, Some(2), "{text}");
    assert!(!root.join("out/a.carton").exists(), "{text}");
}

#[test]
fn the_folder_for_cartons_is_created() {
    let scratch = scratch();
    let root = scratch.path();
    checkpoints(root);
    ok(root, &["--each", "a.pth", "-o", "new", "-q"]);
    ok(root, &["--each", "b.pth", "-o", "new/", "-q"]);
    assert_eq!(names(&root.join("new")), ["a.carton", "b.carton"]);
    // A file cannot be the folder.
    let (status, text) = run(root, &["--each", "a.pth", "-o", "b.pth"]);
    assert!(matches!(status, Some(1 | 2)), "{text}");
    assert!(text.contains("b.pth"), "{text}");
}

#[test]
fn nested_folders_for_cartons_are_created() {
    let scratch = scratch();
    let root = scratch.path();
    checkpoints(root);
    ok(root, &["--each", "a.pth", "-o", "x/y/z", "-q"]);
    assert_eq!(names(&root.join("x/y/z")), ["a.carton"]);
}

#[test]
fn a_dry_run_creates_no_folder() {
    let scratch = scratch();
    let root = scratch.path();
    checkpoints(root);
    let text = ok(root, &["--each", "--dry-run", "a.pth", "b.pth", "-o", "out"]);
    assert!(text.contains("out/a.carton\n") && text.contains("out/b.carton\n"), "{text}");
    assert!(!root.join("out").exists());
}

#[test]
fn several_files_without_each_are_one_checkpoint() {
    let scratch = scratch();
    let root = scratch.path();
    checkpoints(root);
    let (status, text) = run(root, &["a.pth", "b.pth"]);
    assert_eq!(status, Some(2), "{text}");
    assert!(text.contains("`torch2carton --each a.pth b.pth`"), "{text}");
    assert_eq!(names(root), ["a.pth", "b.pth", "broken.pth"]);
}

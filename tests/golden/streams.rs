//! Standard input and standard output instead of files, and `run` without arguments.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::carton_tools::{ok, scratch};
use crate::made::{dict, tensor, write_pth};

/// Runs the program with these bytes on standard input.
fn piped(root: &Path, args: &[&str], input: &[u8]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_torch2carton"))
        .args(args)
        .current_dir(root)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    // A program that refuses its arguments does not read.
    let _ = child.stdin.take().expect("it is piped").write_all(input);
    child.wait_with_output().expect("the program ends")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("UTF-8")
}

#[test]
fn a_checkpoint_can_come_from_a_pipe() {
    let scratch = scratch();
    let root = scratch.path();
    write_pth(&root.join("a.pth"), &dict(&[("w", tensor(3))]));
    let bytes = std::fs::read(root.join("a.pth")).expect("it was written");
    for command in ["inspect", "scan", "trace"] {
        let given = piped(root, &[command, "-"], &bytes);
        assert!(given.status.success(), "{command}: {}", text(&given.stderr));
        let named = ok(root, &[command, "a.pth"]);
        assert_eq!(text(&given.stdout).replace("/dev/stdin", "a.pth"), named, "{command}");
    }
    let empty = piped(root, &["inspect", "-"], b"");
    assert!(!empty.status.success() && text(&empty.stderr).contains("empty"), "{}", text(&empty.stderr));
}

#[test]
fn a_tensor_can_go_to_a_pipe() {
    let scratch = scratch();
    let root = scratch.path();
    write_pth(&root.join("a.pth"), &dict(&[("w", tensor(3))]));
    ok(root, &["a.pth", "-q"]);
    ok(root, &["run", "a.carton", "--get", "w", "-o", "w.npy"]);
    let given = piped(root, &["run", "a.carton", "--get", "w", "-o", "-"], b"");
    assert_eq!(given.stdout, std::fs::read(root.join("w.npy")).expect("it was written"));
    assert_eq!(text(&given.stderr), "");
}

#[test]
fn without_arguments_a_carton_says_what_it_can_do() {
    let scratch = scratch();
    let root = scratch.path();
    tiny_llama::write(root).expect("a temporary folder");
    ok(root, &["consolidated.00.pth", "-q", "--self-test", "-o", "model.carton"]);
    write_pth(&root.join("a.pth"), &dict(&[("it's", tensor(3))]));
    ok(root, &["a.pth", "-q"]);
    insta::assert_snapshot!([ok(root, &["run", "model.carton"]), ok(root, &["run", "a.carton"])].concat());
    // `inspect` ends with the same commands, for one carton.
    for carton in ["model.carton", "a.carton"] {
        let text = ok(root, &["inspect", carton]);
        let overview = ok(root, &["run", carton]);
        let (_, commands) = overview.split_once("\n\n").expect("an empty line");
        let verify = format!(
            "torch2carton verify {carton}\n    checks every hash and rule; --against compares its tensors with a checkpoint\n"
        );
        assert!(text.ends_with(&format!("\n\n{commands}{verify}")), "{text}");
        assert!(!ok(root, &["inspect", "-q", carton]).contains("torch2carton"));
    }
    assert!(!ok(root, &["inspect", "model.carton", "a.carton"]).contains("torch2carton run"));
}

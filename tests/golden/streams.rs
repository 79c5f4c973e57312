//! Standard input and standard output instead of files, and `run` without arguments.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::carton_tools::{ok, scratch};
use crate::made::{dict, tensor, write_pth};
use crate::program::folder;

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
        assert!(!text(&given.stdout).contains("/dev/stdin"), "{}", text(&given.stdout));
        assert_eq!(text(&given.stdout).replace("-: clean", "a.pth: clean"), named, "{command}");
        // In JSON, `file` is what was typed.
        let given = piped(root, &[command, "--json", "-"], &bytes);
        assert!(text(&given.stdout).starts_with(r#"{"schema_version":1,"file":"-","#), "{command}");
    }
    let unknown = piped(root, &["inspect", "-", "none"], &bytes);
    assert_eq!(
        text(&unknown.stderr),
        "error: standard input: it has no tensor or value named `none`; `torch2carton inspect --all -` lists the names\n"
    );
    // Other commands need a file, and say so.
    for command in ["convert", "run", "verify", "unpack", "serve"] {
        let given = piped(root, &[command, "-"], &bytes);
        assert_eq!(given.status.code(), Some(2), "{command}");
        let expected = format!("error: `{command}` needs a file; `-` is standard input for inspect, scan, ");
        assert!(text(&given.stderr).starts_with(&expected), "{}", text(&given.stderr));
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
    test_support::tiny_llama::write(root).expect("a temporary folder");
    ok(root, &["consolidated.00.pth", "-q", "--self-test", "-o", "model.carton"]);
    write_pth(&root.join("a.pth"), &dict(&[("it's", tensor(3))]));
    ok(root, &["a.pth", "-q"]);
    // The code of a TorchScript module runs elsewhere.
    std::fs::copy(folder().join("scripts/words.pt"), root.join("words.pt")).expect("it can be copied");
    ok(root, &["words.pt", "-q", "--input", "x=float32[batch,4]"]);
    let overviews = ["model.carton", "a.carton", "words.carton"].map(|carton| ok(root, &["run", carton]));
    insta::assert_snapshot!(overviews.concat());
    // `inspect` ends with the same commands, for one carton.
    for carton in ["model.carton", "a.carton", "words.carton"] {
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

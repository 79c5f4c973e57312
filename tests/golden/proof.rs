//! `--statement` and `verify --statement`: exit statuses and texts. Who reads statements, and what is found, is tested in `convert` and in
//! `tests/conformance`.

use std::path::Path;

use crate::batches::checkpoints;
use crate::carton_tools::{ok, run, scratch, write};
use crate::cli::json;
use crate::self_tests::llama;

/// The exit status, and what is printed.
fn verified(root: &Path, output: &str) -> (Option<i32>, String) {
    run(root, &["verify", "--statement", "s.json", "--input", "llama", output])
}

#[test]
fn each_kind_of_output_is_made_again() {
    let scratch = scratch();
    let root = scratch.path();
    llama(root);
    for (output, flags) in [
        ("x.carton", &["--self-test", "--dtype", "float32"][..]),
        ("x.safetensors", &["--dtype", "float16"]),
        ("x.pth", &[]),
        ("hf", &["--names", "hf"]),
        ("models", &["--to", "triton"]),
        ("named", &["--to", "triton", "--name", "y"]),
    ] {
        let args = ["llama", "-o", output, "--statement", "s.json", "-q", "--force"];
        ok(root, &[&args[..], flags].concat());
        let (status, text) = verified(root, output);
        assert_eq!(status, Some(0), "{output}: {text}");
    }
}

#[test]
fn what_is_found_is_told() {
    let scratch = scratch();
    let root = scratch.path();
    llama(root);
    let report = json(root, &["llama", "-o", "x.safetensors", "--statement", "s.json", "--json"]);
    assert_eq!(report["statement"], "s.json");
    let mut bytes = std::fs::read(root.join("x.safetensors")).expect("it was written");
    *bytes.last_mut().expect("it has bytes") ^= 1;
    let last = bytes.len().saturating_sub(1);
    write(root.join("x.safetensors"), bytes);
    let (status, text) = verified(root, "x.safetensors");
    assert!(
        status == Some(1) && text.contains(&format!("x.safetensors: differs at byte {last}\n")),
        "{text}"
    );
    std::fs::remove_file(root.join("llama/params.json")).expect("it was written");
    let (status, text) = verified(root, "x.safetensors");
    assert!(status == Some(2) && text.contains("`params.json`; name the folder"), "{text}");
    write(root.join("s.json"), "{}");
    let (status, text) = verified(root, "x.safetensors");
    assert!(status == Some(2) && text.contains("it is not the statement of a conversion: /_type"), "{text}");
}

/// As processes: `batch` with options of the lines, and `--each`. Each statement has the path of its output.
#[test]
fn each_output_of_a_batch_is_made_again() {
    let scratch = scratch();
    let root = scratch.path();
    checkpoints(root);
    let lines = [
        r#"{"input": "a.pth", "output": "x/a.safetensors", "options": {"dtype": "float16"}}"#,
        r#"{"input": "b.pth", "options": {"include": "w*"}}"#,
        r#"{"input": "broken.pth"}"#,
    ];
    write(root.join("m.jsonl"), lines.join("\n"));
    let batch = ["batch", "m.jsonl", "-q", "-o", "out", "--to", "pth", "--", "--statement", "said"];
    let each = ["--each", "a.pth", "b.pth", "broken.pth", "-q", "-o", "each", "--statement", "each-said"];
    for (args, outputs) in [
        (&batch[..], [("x", "said/x", "a.safetensors"), ("out", "said", "b.pth")]),
        (&each, [("each", "each-said", "a.carton"), ("each", "each-said", "b.carton")]),
    ] {
        assert_eq!(run(root, args).0, Some(1), "one is broken");
        for (folder, statements, output) in outputs {
            let statement = format!("{statements}/{output}.intoto.json");
            let verify = ["verify", "--statement", &statement, "--input", ".", &format!("{folder}/{output}")];
            ok(root, &verify);
        }
        assert!(!root.join("said/broken.pth.intoto.json").exists());
    }
}

/// Unpacked ones are read where their `carton.toml` is; a packed one has any name.
#[test]
fn cartons_are_inputs() {
    let scratch = scratch();
    let root = scratch.path();
    llama(root);
    ok(root, &["llama", "-o", "x.carton"]);
    ok(root, &["unpack", "x.carton", "-o", "x"]);
    std::fs::copy(root.join("x.carton"), root.join("packed.zip")).expect("it was written");
    for input in ["./x", "packed.zip"] {
        ok(root, &[input, "-o", "y.safetensors", "--statement", "s.json", "--force"]);
        std::fs::rename(root.join(input), root.join("moved")).expect("both are here");
        let verify = ["verify", "--statement", "s.json", "--input", "moved", "y.safetensors"];
        ok(root, &verify);
        let file = if input == "./x" { "moved/carton.toml" } else { "moved" };
        let whole = std::fs::read(root.join(file)).expect("it is there");
        write(root.join(file), [&whole[..], b"\n"].concat());
        let (status, text) = run(root, &verify);
        assert!(matches!(status, Some(1 | 2)), "{input}: {text}");
        write(root.join(file), whole);
        if input == "./x" {
            write(root.join("moved/misc/params.json"), "{}");
            let (status, text) = run(root, &verify);
            assert_eq!(status, Some(1), "{input}: {text}");
            std::fs::remove_dir_all(root.join("moved")).expect("it was unpacked");
        }
    }
}

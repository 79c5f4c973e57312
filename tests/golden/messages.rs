//! Messages about what people type and pass by mistake.

use crate::carton_tools::{ok, run, scratch, write};
use crate::cli::output;
use crate::made::{dict, tensor, write_pth};
use crate::program::folder;

#[test]
fn files_that_are_no_checkpoints() {
    let scratch = scratch();
    let root = scratch.path();
    for (name, bytes) in [
        ("image.pth", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".as_slice()),
        ("photo.bin", b"\xff\xd8\xff\xe0\0\x10JFIF"),
        ("paper.pt", b"%PDF-1.7\n%\xe2\xe3"),
        ("library.so", b"\x7fELF\x02\x01\x01\0"),
        ("answer.pth", b"\n  {\"error\": \"Repository not found\"}"),
        ("page.ckpt", b"<!DOCTYPE html>\n<html><head><title>404 Not Found</title></head></html>"),
        ("words.bin", "Zugriff verweigert: bitte anmelden\nund noch etwas".as_bytes()),
        ("model.gguf", b"GGUF\x03\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"),
        ("zero_pp_rank_0_mp_rank_00_optim_states.pt", b"\x80\x02}."),
    ] {
        std::fs::write(root.join(name), bytes).expect("it can be written");
    }
    let mut texts = String::new();
    for file in [
        "image.pth",
        "photo.bin",
        "paper.pt",
        "library.so",
        "answer.pth",
        "page.ckpt",
        "words.bin",
        "model.gguf",
        "zero_pp_rank_0_mp_rank_00_optim_states.pt",
        "meta-llama/Llama-3.1-8B",
        "missing.pth",
    ] {
        texts.push_str(&run(root, &[file]).1);
    }
    insta::assert_snapshot!(texts);
}

#[test]
fn options_of_other_programs() {
    let scratch = scratch();
    let root = scratch.path();
    write_pth(&root.join("a.pth"), &dict(&[("w", tensor(3))]));
    let mut texts = String::new();
    for option in
        ["-v", "-f", "--overwrite", "--quantize", "--fp16", "--format", "--output-dir", "--device", "--dtyp"]
    {
        texts.push_str(&run(root, &["a.pth", option]).1);
    }
    // The hint names an option that the command has.
    for args in [
        ["scan", "a.pth", "--verbose"],
        ["trace", "a.pth", "-v"],
        ["verify", "a.pth", "-f"],
        ["inspect", "a.pth", "--overwrite"],
        ["scan", "-r", "a.pth"],
        ["unpack", "a.pth", "--outdir"],
        ["run", "a.pth", "--max-new-tokens"],
    ] {
        texts.push_str(&run(root, &args).1);
    }
    for command in ["info", "list"] {
        texts.push_str(&run(root, &[command, "a.pth"]).1);
    }
    insta::assert_snapshot!(texts);
}

#[test]
fn values_of_options_say_what_is_expected() {
    let scratch = scratch();
    let root = scratch.path();
    test_support::tiny_llama::write(root).expect("the checkpoint is written");
    ok(root, &["consolidated.00.pth", "-q", "-o", "x.carton"]);
    write_pth(&root.join("a.pth"), &dict(&[("w", tensor(3))]));
    std::fs::copy(folder().join("scripts/words.pt"), root.join("words.pt")).expect("it can be copied");
    let input = ["--input", "x=float32[batch,4]"];
    let mut texts = String::new();
    for args in [
        &["--each", "--jobs", "0", "a.pth"][..],
        &["run", "x.carton", "--tokens", "1,b"],
        &["run", "x.carton", "--tokens", "1", "--temperature", "1", "--top-k", "0"],
        &["run", "x.carton", "--tokens", "1,999"],
        &[&["words.pt", "--dtype", "bfloat16"], &input[..]].concat(),
        &[&["words.pt", "--arch", "weights"], &input[..]].concat(),
        &[&["a.pth"], &input[..]].concat(),
        &["a.pth", "--dtype", "int8"],
        &["a.pth", "--to", "onnx"],
    ] {
        texts.push_str(&run(root, args).1);
    }
    insta::assert_snapshot!(texts);
}

#[test]
fn notes_say_what_to_look_at() {
    let scratch = scratch();
    let root = scratch.path();
    write(root.join("m/config.json"), r#"{"model_type": "qwen4"}"#);
    let model = dict(&[("norm.weight", tensor(4)), ("bias", tensor(2))]);
    write_pth(&root.join("m/pytorch_model.bin"), &model);
    let mut texts = run(root, &["m", "-o", "m.carton"]).1;
    test_support::tiny_llama::write(&root.join("llama")).expect("the checkpoint is written");
    texts.push_str(&run(root, &["llama", "--dtype", "float8_e4m3fn", "-o", "x.safetensors"]).1);
    let text = texts.lines().filter(|line| line.starts_with("note:")).collect::<Vec<_>>().join("\n");
    insta::assert_snapshot!(text);
}

#[test]
fn a_failed_conversion_has_a_code() {
    let scratch = scratch();
    let root = scratch.path();
    write_pth(&root.join("a.pth"), &dict(&[("w", tensor(3))]));
    write(root.join("page.pth"), "<html>");
    let bytes = std::fs::read(root.join("a.pth")).expect("it was written");
    std::fs::write(root.join("cut.pth"), &bytes[..bytes.len() / 2]).expect("it can be written");
    let code = |args: &[&str]| {
        let (_, stdout, _) = output(root, &[&["convert", "--json"], args].concat());
        let object: serde_json::Value = serde_json::from_str(&stdout).expect("one object");
        assert!(object["error"].as_str().is_some_and(|text| text.contains("pth")), "{stdout}");
        (
            object["file"].as_str().unwrap_or_default().to_owned(),
            object["code"].as_str().unwrap_or_default().to_owned(),
        )
    };
    let case = |file: &str, code: &str| (file.to_owned(), code.to_owned());
    assert_eq!(code(&["page.pth"]), case("page.pth", "input"));
    assert_eq!(code(&["cut.pth"]), case("cut.pth", "damaged"));
    assert_eq!(code(&["missing.pth"]), case("missing.pth", "io"));
    assert_eq!(code(&["--each", "page.pth", "-o", "out"]), case("page.pth", "input"));
}

#[test]
fn near_misses_say_what_is_meant() {
    let scratch = scratch();
    let root = scratch.path();
    write_pth(&root.join("a.pth"), &dict(&[("layers.0.w", tensor(2)), ("layers.1.w", tensor(2))]));
    write(root.join("text.pth"), "a text");
    let mut texts = String::new();
    for arguments in [
        &["inspect", "a.pht"][..],
        &["a.pt"],
        &["inspect", "other.pth"],
        &["a.pth", "--dtype", "fp8"],
        &["a.pth", "--dtype", "nf4"],
        &["inspect", "--depth", "1", "a.pth"],
        &["inspect", "--json", "text.pth"],
        &["inspect", "--json", "a.pht"],
        &["digest", "--json", "a.pht"],
        &["digest", "-c", "SUMS"],
        &["scan", "--policy", "policy.toml", "a.pth"],
        &["serve", "a.pth", "--api-key-file", "keys"],
    ] {
        texts.extend(["--- ", &arguments.join(" "), "\n", &run(root, arguments).1]);
    }
    insta::assert_snapshot!(texts);
}

#[test]
fn mistakes_in_arguments_say_what_to_type() {
    let scratch = scratch();
    let root = scratch.path();
    write_pth(&root.join("a.pth"), &dict(&[("w", tensor(2))]));
    let mut texts = String::new();
    for arguments in [
        &["run", "a.pth", "Hi", "--temperature", "-1"][..],
        &["run", "a.pth", "Hi", "-n", "-5"],
        &["run", "a.pth", "Once", "upon", "a", "time"],
        &["run", "a.pth", "--get", "w"],
        &["run", "a.pth", "--dequantize"],
        &["chat", "a.pth", "--tokens", "1"],
        &["serve", "a.pth", "--queue", "-1"],
        &["a.pth", "--common"],
        &["a.pth", "--threads", "4"],
        &["a.pth", "--dtpye", "float16"],
        &["a.pth", "--input", "image=foo[2]"],
        &["a.pth", "-o", "a.gguf", "--pre-tokenizer", "llama_bpe"],
        &["inspect", "a.pth", "--top", "3"],
        &["batch", "jobs.jsonl", "--dtype", "float16"],
        &["completions"],
        &["completions", "tcsh"],
        &["inspect", "ftp://host/a.pth"],
        &["inspect", "hf:owner/name"],
        &["a.pth", "--merge", "a.pth", "-o", "b.pth"],
    ] {
        texts.extend(["--- ", &arguments.join(" "), "\n", &run(root, arguments).1]);
    }
    insta::assert_snapshot!(texts);
}

#[test]
fn a_file_says_what_it_is_not() {
    let scratch = scratch();
    let root = scratch.path();
    write_pth(&root.join("a.safetensors"), &dict(&[("w", tensor(2))]));
    write_pth(&root.join("step.pth"), &dict(&[]));
    let mut texts = String::new();
    for arguments in [
        &["scan", "a.safetensors"][..],
        &["inspect", "a.safetensors"],
        &["a.safetensors", "-o", "out/", "--to", "safetensors"],
        &["inspect", "step.pth"],
        &["step.pth"],
    ] {
        let text = run(root, arguments).1;
        let lines = text.lines().filter(|line| !line.starts_with("  size"));
        texts.extend(["--- ", &arguments.join(" "), "\n", &lines.collect::<Vec<_>>().join("\n"), "\n"]);
    }
    insta::assert_snapshot!(texts);
}

#[cfg(target_os = "linux")]
#[test]
fn a_pipe_that_is_named_says_what_to_use() {
    let scratch = scratch();
    let root = scratch.path();
    let made = std::process::Command::new("mkfifo").arg(root.join("pipe")).status();
    assert!(made.expect("every Linux has it").success());
    let advice = "; pipe it into inspect, scan, trace, report, diff and digest, where `-` is standard input; for the others, \
                  write it to a file first\n";
    for arguments in [["inspect", "pipe"], ["convert", "pipe"], ["digest", "pipe"]] {
        let (status, text) = run(root, &arguments);
        assert!(
            status == Some(1) && text.contains(&format!("pipe is a named pipe, not a file{advice}")),
            "{text}"
        );
    }
    // `/dev/stdin` is one that has a name of its own.
    let program = std::process::Command::new(env!("CARGO_BIN_EXE_torch2carton"))
        .args(["convert", "/dev/stdin"])
        .stdin(std::process::Stdio::piped())
        .output()
        .expect("the program was built for this test");
    let text = String::from_utf8_lossy(&program.stderr).into_owned();
    assert!(text.contains(&format!("/dev/stdin is a named pipe, not a file{advice}")), "{text}");
}

#[test]
fn a_checkpoint_in_an_archive_is_named_and_read() {
    let scratch = scratch();
    let root = scratch.path();
    write_pth(&root.join("policy.pth"), &dict(&[("w", tensor(2))]));
    let policy = std::fs::read(root.join("policy.pth")).expect("it was written");
    let files = [("data", &b"{}"[..]), ("policy.pth", &policy), ("policy.optimizer.pth", &policy)];
    write(root.join("model.zip"), test_support::stored_zip(files));
    let mut texts = String::new();
    for arguments in [
        &["inspect", "model.zip"][..],
        &["scan", "model.zip"],
        &["inspect", "-q", "model.zip::policy.pth"],
        &["scan", "model.zip::policy.pth"],
        &["digest", "model.zip::policy.optimizer.pth"],
        &["inspect", "model.zip::other.pth"],
        &["diff", "policy.pth", "model.zip::policy.pth"],
        &["inspect", "model.zip::polcy.pth"],
        &["convert", "-q", "model.zip::policy.pth", "-o", "x.safetensors"],
        &["convert", "-q", "--each", "model.zip", "--to", "safetensors", "-o", "out"],
        &["convert", "-q", "--each", "model.zip"],
    ] {
        texts.extend(["--- ", &arguments.join(" "), "\n", &run(root, arguments).1]);
    }
    insta::assert_snapshot!(texts);
    for output in [
        "x.safetensors",
        "out/model/policy.safetensors",
        "model/policy.carton",
        "model/policy.optimizer.carton",
    ] {
        assert!(root.join(output).is_file(), "{output}");
    }
}

#[test]
fn outputs_that_other_programs_write_are_refused_with_a_way() {
    let scratch = scratch();
    let root = scratch.path();
    write_pth(&root.join("a.pth"), &dict(&[("w", tensor(2))]));
    let mut texts = String::new();
    for arguments in [
        &["a.pth", "-o", "x.npz"][..],
        &["a.pth", "-o", "x.h5"],
        &["a.pth", "-o", "x.pkl"],
        &["a.pth", "-o", "x.pt2"],
        &["a.pth", "--to", "npz"],
        &["a.pth", "x.safetensors"],
        &["inspect", "a.pth/"],
        &["diff", "a.pth"],
        &["chat", "a.pth", "hi"],
    ] {
        texts.push_str(&run(root, arguments).1);
    }
    insta::assert_snapshot!(texts);
}

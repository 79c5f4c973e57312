//! Notes and refusals about TorchScript modules that Carton's runner cannot run as they are, and models for Triton made of
//! TorchScript modules. `scripts.py` writes the files.

use crate::carton_tools::{ok, run, scratch};
use crate::program::folder;

#[test]
fn scripts_that_carton_cannot_run_are_noted_or_refused() {
    let scratch = scratch();
    let root = scratch.path();
    let mut files: Vec<_> = folder().join("scripts").read_dir().expect("it is there").flatten().collect();
    files.sort_by_key(std::fs::DirEntry::file_name);
    let mut texts = String::new();
    for file in files {
        let name = file.file_name().into_string().expect("plain names");
        std::fs::copy(file.path(), root.join(&name)).expect("it can be copied");
        for flags in [&[][..], &["--input", "x=bfloat16[batch,4]"]] {
            let (status, text) = run(root, &[&["--force", name.as_str()], flags].concat());
            texts.extend([name.as_str(), " ", &flags.join(" "), &format!(": status {status:?}\n")]);
            let is_message = |line: &&str| line.starts_with("note") || line.starts_with("error: ");
            texts.extend(text.lines().filter(is_message).flat_map(|line| [line, "\n"]));
        }
    }
    insta::assert_snapshot!(texts);
}

/// The dtypes and shapes that Triton needs are typed; without them, the error says what to type.
#[test]
fn a_script_becomes_a_model_for_triton() {
    let scratch = scratch();
    let root = scratch.path();
    let (input, output) = (["--input", "x=float32[batch,4]"], ["--output-type", "output=float32[batch,4]"]);
    let mut texts = String::new();
    for (file, flags) in [
        ("float16.pt", vec![]),
        ("float16.pt", vec![input]),
        ("float16.pt", vec![input, ["--output-type", "y=float32[1]"]]),
        ("float16.pt", vec![input, ["--output-type", "output=bits8[1]"]]),
        ("float16.pt", vec![input, output, ["--output-names", "y"]]),
        ("float16.pt", vec![input, ["--output-names", "y__1"], ["--output-type", "y__1=float32[batch,4]"]]),
        ("float16.pt", vec![input, output, ["--dtype", "float32"]]),
        ("words.pt", vec![]),
        ("optimized.pt", vec![]),
        ("error_output.pt", vec![]),
    ] {
        std::fs::copy(folder().join("scripts").join(file), root.join(file)).expect("it can be copied");
        let flags = flags.concat();
        let (status, text) = run(root, &[&[file, "--to", "triton", "-o", "models"], &flags[..]].concat());
        assert!(matches!(status, Some(1 | 2)), "{text}");
        texts.extend(["$ ", file, " ", &flags.join(" "), "\n", &text]);
    }
    assert!(!root.join("models").exists());
    ok(root, &[&["float16.pt", "--to", "triton", "-o", "models", "-q"], &input[..], &output].concat());
    let config = std::fs::read_to_string(root.join("models/float16/config.pbtxt")).expect("it was written");
    texts.extend(config.split_inclusive('\n').take_while(|line| !line.starts_with('#')));
    ok(root, &[&["float16.pt", "-o", "x.carton", "-q"], &input[..], &output].concat());
    let (_, listed) = run(root, &["inspect", "x.carton"]);
    texts.extend(listed.lines().filter(|line| line.contains("batch")).flat_map(|line| [line, "\n"]));
    let (status, refused) = run(root, &["x.carton", "--to", "triton", "-o", "models"]);
    assert_eq!(status, Some(1), "{refused}");
    insta::assert_snapshot!(texts + &refused);
}

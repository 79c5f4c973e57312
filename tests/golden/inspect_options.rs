//! Options of `inspect`, and `report`.

use std::fs;

use crate::program::{torch2carton, transcript};

const LLAMA: &str = "checkpoints/llama_tiny/consolidated.00.pth";

fn shown(args: &[&str]) -> String {
    let output = torch2carton(args);
    format!("$ torch2carton {}\n{}\n", args.join(" "), transcript(&output))
}

#[test]
fn modules_statistics_and_names() {
    let commands: [&[&str]; 11] = [
        &["inspect", "-q", "--tree", LLAMA],
        &["inspect", "-q", "--tree", "--depth", "1", LLAMA],
        &["inspect", "-q", "--include", "*norm*", "--exclude", "layers.1.*", "--sort", "size", LLAMA],
        &["inspect", "-q", "--stats", "--include", "*norm*", "--sort", "name", LLAMA],
        &["inspect", "-q", "--include", "absent", LLAMA],
        &["inspect", LLAMA, "norm.weight"],
        &["inspect", LLAMA, "norm"],
        &["inspect", LLAMA, "xyzzy"],
        &["inspect", LLAMA, "norm.weight", "checkpoints/plain.pth"],
        &["inspect", LLAMA, "-o", "x.npy"],
        &["inspect", "--tree", "--depth", "0", LLAMA],
    ];
    insta::assert_snapshot!(commands.map(shown).concat());
}

#[test]
fn values_are_decoded() {
    let commands: [&[&str]; 4] = [
        &["inspect", "--values", "objects/python_values.pkl"],
        &["inspect", "--values", "objects/values.pth"],
        &["inspect", "objects/values.pth", "mod.names", "conf", "dt"],
        &["inspect", "objects/values.pth", "dt", "-o", "-"],
    ];
    insta::assert_snapshot!(commands.map(shown).concat());
}

#[test]
fn values_are_shown_as_python_shows_them() {
    let output = torch2carton(["inspect", "--values", "objects/python_values.pkl"]);
    let text = transcript(&output);
    assert_eq!(text.lines().count(), 75, "{text}");
    for row in text.lines() {
        let (name, value) = (row.split("  ").next(), row.split("  ").last());
        // The names are what Python printed, some of them after a dtype.
        let expected = name.and_then(|name| name.split('|').next_back()).expect("a row has a name");
        let value = value.expect("a row has a value").replace(r"\\", r"\");
        assert_eq!(value.trim_matches('\''), expected.trim_matches('\''), "{row}");
    }
}

#[test]
fn special_numbers_fail_if_asked() {
    let folder = tempfile::tempdir().expect("the temporary folder is writable");
    let path = folder.path().join("nan.safetensors");
    let numbers = [f32::NAN.to_le_bytes(), f32::INFINITY.to_le_bytes()].concat();
    let file = test_support::safetensors([("a", "F32", [2], numbers)]);
    fs::write(&path, file).expect("the temporary folder is writable");
    let path = path.to_str().expect("UTF-8");
    assert_eq!(torch2carton(["inspect", "--stats", path]).status.code(), Some(0));
    let failed = torch2carton(["inspect", "--fail-on", "nan,inf", path]);
    assert_eq!(failed.status.code(), Some(1));
    let text = String::from_utf8_lossy(&failed.stderr).into_owned();
    assert!(text.ends_with("tensor `a` has 1 NaN and 1 infinite numbers\n"), "{text}");
}

#[test]
fn a_report_is_one_page_that_loads_nothing() {
    let folder = tempfile::tempdir().expect("the temporary folder is writable");
    let target = folder.path().join("<b>&amp;.html");
    let target = target.to_str().expect("UTF-8");
    let output = torch2carton(["report", "--stats", "--trace", LLAMA, "-o", target]);
    assert_eq!(output.status.code(), Some(0), "{}", transcript(&output));
    let page = fs::read_to_string(target).expect("it was written");
    assert!(page.starts_with("<!doctype html>") && page.contains("<title>consolidated.00.pth – "));
    assert!(!page.contains(" src=") && !page.contains("@import") && !page.contains("innerHTML ="));
    let refused = torch2carton(["report", "--trace", "checkpoints/plain.safetensors", "-o", "-"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(transcript(&refused).contains("it holds tensors and no pickle"), "{}", transcript(&refused));
}

#[test]
fn a_report_escapes_the_name_of_its_file() {
    let folder = tempfile::tempdir().expect("the temporary folder is writable");
    let path = folder.path().join("<img src=x>.pkl");
    fs::write(&path, b"K\x07.").expect("the temporary folder is writable");
    let output = torch2carton(["report", "--trace=0..5", path.to_str().expect("UTF-8"), "-o", "-"]);
    let page = transcript(&output);
    assert!(page.contains("&#60;img src=x&#62;.pkl") && !page.contains("<img"), "{}", page.len());
}

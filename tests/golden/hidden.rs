//! No command prints a character of a file that a person would not see, or that controls the terminal.
//!
//! Facts: the Unicode Character Database: C1 controls, line separators, bidirectional controls, and default-ignorable
//! characters.

use std::path::Path;

use crate::carton_tools::{run, scratch};
use crate::made::{Value, dict, write_pth, write_safetensors};

const HIDDEN: &str = "\u{7f}\u{85}\u{9b}\u{ad}\u{34f}\u{61c}\u{180e}\u{200b}\u{200e}\u{2028}\u{2029}\u{202e}\u{2060}\u{2066}\
                      \u{3164}\u{fe0f}\u{feff}\u{e0041}\u{e01ef}";

fn assert_visible(root: &Path, args: &[&str]) -> String {
    let (_, text) = run(root, args);
    let found: Vec<char> = text.chars().filter(|c| HIDDEN.contains(*c)).collect();
    assert!(found.is_empty(), "{args:?} prints {found:?}: {text}");
    text
}

#[test]
fn nothing_hidden_is_printed() {
    let folder = scratch();
    let root = folder.path();
    // A file system takes no NUL and no slash; the rest of these are letters to it.
    let name = format!("a{HIDDEN}b");
    let (pth, safe) = (format!("{name}.pth"), format!("{name}.safetensors"));
    let value = dict(&[(&name, Value::Int(1))]);
    write_pth(&root.join(&pth), &dict(&[(&name, Value::Tensor(vec![2])), ("other", value)]));
    write_safetensors(&root.join(&safe), &[(&name, &name)], &[(&name, &[2])]);
    let carton = format!("{name}.carton");
    for args in [
        &["inspect", &pth][..],
        &["inspect", "--json", "--sha256", "--all", &pth],
        &["inspect", "--all", &safe],
        &["inspect", "--json", "--all", &safe],
        &["trace", &pth],
        &["trace", "--full", &pth],
        &["trace", "--lines", &pth],
        &["trace", "--dis", &pth],
        &["trace", "--json", &pth],
        &["trace", "--summary", &pth],
        &["scan", &pth],
        &["scan", "--json", "--all", &pth],
        &["scan", &name],
        &["convert", "--json", &pth],
        &["convert", "--name", &name, "--license", &name, &safe, "-o", &carton],
        &["inspect", &carton],
        &["inspect", "--json", &carton],
        &["verify", &carton, "--against", &pth],
        &["verify", "--json", &carton, "--against", &pth],
        &["verify", "--json", &carton],
        &["unpack", &carton],
        &["pack", &name],
        &["convert", "--key", &name, "--include", &name, &safe],
        &["convert", &name],
        &["convert", "--nonsense", &name],
        &[name.as_str()],
    ] {
        assert_visible(root, args);
    }
}

#[test]
fn json_reads_back_as_it_was() {
    let folder = scratch();
    let name = format!("a{HIDDEN}b");
    write_safetensors(&folder.path().join("a.safetensors"), &[], &[(&name, &[2])]);
    let text = assert_visible(folder.path(), &["inspect", "--json", "a.safetensors"]);
    assert!(
        text.contains("\\u0085\\u009b\\u00ad\\u034f\\u061c") && text.contains("\\udb40\\udc41"),
        "{text}"
    );
    let report: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(report["tensors"][0]["name"], name);
}

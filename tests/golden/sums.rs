//! `--add` and `--average`: sums of checkpoints in the summary and the report, and checkpoints that differ. Their numbers are
//! compared with NumPy's in `tests/conformance`.

use std::path::Path;

use crate::carton_tools::{ok, run, scratch, write};
use crate::cli::json;
use crate::merge::{floats, number_before};

/// Two checkpoints with the same tensors, whose last numbers are 0.25 and 1.125, and one that differs.
fn checkpoints(root: &Path) {
    floats(&root.join("base.safetensors"), &[("a", &[2, 3]), ("b", &[3])]);
    let mut tuned = std::fs::read(root.join("base.safetensors")).expect("it was written");
    tuned.truncate(tuned.len().saturating_sub(4));
    tuned.extend(1.125_f32.to_le_bytes());
    write(root.join("tuned.safetensors"), tuned);
    floats(&root.join("other.safetensors"), &[("a", &[6]), ("b", &[3]), ("c", &[1])]);
}

/// The error of a run that writes no `out.safetensors`.
fn refused(root: &Path, args: &[&str]) -> String {
    let (status, text) = run(root, args);
    assert_eq!(status, Some(1), "{text}");
    assert!(!root.join("out.safetensors").exists());
    text.lines().filter(|line| line.starts_with("error")).collect::<Vec<_>>().join("\n")
}

/// The summary without the time.
fn summary(root: &Path, args: &[&str]) -> String {
    let text = ok(root, args);
    let lines: Vec<&str> = text.lines().map(|line| line.split(" in 0.").next().unwrap_or_default()).collect();
    lines.join("\n")
}

#[test]
fn what_was_summed_is_in_the_summary_and_the_report() {
    let scratch = scratch();
    let root = scratch.path();
    checkpoints(root);
    let added = ["base.safetensors", "--add", "tuned.safetensors=-0.5", "-o", "out.safetensors"];
    insta::assert_snapshot!(summary(root, &added), @"
    out.safetensors
      tensors   2, 9 parameters
      size      188 B
      added     tuned.safetensors, -0.5 times its difference from the input: 2 tensors
    ");
    let last = |file: &str| number_before(&root.join(file), 0).to_bits();
    assert_eq!(last("out.safetensors"), (0.25_f32 - 0.5 * (1.125 - 0.25)).to_bits());
    let averaged = ["base.safetensors", "--average", "tuned.safetensors", "-o", "mean.safetensors"];
    insta::assert_snapshot!(summary(root, &averaged), @"
    mean.safetensors
      tensors   2, 9 parameters
      size      188 B
      mean of   the input and tuned.safetensors: 2 tensors
    ");
    assert_eq!(last("mean.safetensors"), 0.6875_f32.to_bits());
    let common = ["base.safetensors", "--add", "other.safetensors", "--common", "-o", "common.safetensors"];
    insta::assert_snapshot!(summary(root, &common), @"
    common.safetensors
      tensors   2, 9 parameters
      size      188 B
      added     other.safetensors, 1 times its difference from the input: 1 tensor
      left out  c, a
    ");
    let report = json(root, &[&averaged[..], &["--dry-run", "--json"]].concat());
    insta::assert_snapshot!(report["sum"].to_string(), @r#"{"only_common":false,"files":[{"file":"tuned.safetensors","weight":null,"tensors":2,"left_out":[]}],"kept":[]}"#);
}

#[test]
fn checkpoints_that_differ_are_refused() {
    let scratch = scratch();
    let root = scratch.path();
    checkpoints(root);
    floats(&root.join("shape.safetensors"), &[("a", &[3, 2]), ("b", &[3])]);
    floats(&root.join("less.safetensors"), &[("a", &[2, 3])]);
    let mut texts: Vec<String> = ["other", "shape", "less", "missing"]
        .iter()
        .map(|file| {
            let file = format!("{file}.safetensors");
            refused(root, &["base.safetensors", "--average", &file, "-o", "out.safetensors"])
        })
        .collect();
    let args = ["base.safetensors", "--average", "none.safetensors", "--common", "-o", "out.safetensors"];
    floats(&root.join("none.safetensors"), &[("c", &[2, 3])]);
    texts.push(refused(root, &args));
    let (status, text) =
        run(root, &["base.safetensors", "--add", "a=1", "--average", "b", "-o", "out.safetensors"]);
    assert_eq!(status, Some(2), "{text}");
    let (status, _) = run(root, &["base.safetensors", "--common", "-o", "out.safetensors"]);
    assert_eq!(status, Some(2));
    texts.extend(text.lines().next().map(str::to_owned));
    insta::assert_snapshot!(texts.join("\n"), @"
    error: other.safetensors: it has `c`, which the base does not have; --common sums what the checkpoints have in common
    error: shape.safetensors: `a` has shape [3, 2], and [2, 3] in the base; --common sums what the checkpoints have in common
    error: less.safetensors: it has no `b`, which the base has; --common sums what the checkpoints have in common
    error: there is no file missing.safetensors; `ls .` shows what is there
    error: none.safetensors: it has no tensor in common with the base
    error: --add cannot be used with --average; leave out one or the other; `torch2carton convert --help` lists the options
    ");
}

#[test]
fn an_output_never_replaces_a_file_that_is_summed_or_merged() {
    let scratch = scratch();
    let root = scratch.path();
    checkpoints(root);
    for file in ["base", "tuned"] {
        let file = format!("{file}.safetensors");
        let args = ["base.safetensors", "--add", "tuned.safetensors", "--force", "-o", &file];
        insta::allow_duplicates! {
            insta::assert_snapshot!(refused(root, &args).replace(&file, "FILE"), @"error: the output FILE is the input FILE; choose another path with -o");
        }
    }
}

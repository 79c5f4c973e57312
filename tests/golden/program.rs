//! Runs the program as a user would, in the folder of the golden inputs.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// `tests/golden`, in which the program runs, so that paths in its output are relative.
pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

/// Runs `torch2carton` with `args`.
pub(crate) fn torch2carton<S: AsRef<std::ffi::OsStr>>(args: impl IntoIterator<Item = S>) -> Output {
    Command::new(env!("CARGO_BIN_EXE_torch2carton"))
        .args(args)
        .current_dir(folder())
        .output()
        .expect("the program was built for this test")
}

/// What it printed on stdout and stderr, with its exit status, as text.
pub(crate) fn transcript(output: &Output) -> String {
    let mut text = String::from_utf8(output.stdout.clone()).expect("UTF-8 on stdout");
    text += &String::from_utf8(output.stderr.clone()).expect("UTF-8 on stderr");
    match output.status.code() {
        Some(0) => text,
        code => format!("{text}exit status {}\n", code.map_or("signal".to_owned(), |code| code.to_string())),
    }
}

/// The files below `tests/golden/SUB` that end in `.EXTENSION`, as sorted relative paths.
pub(crate) fn inputs(sub: &str, extension: &str) -> Vec<String> {
    let root = folder();
    let mut folders = vec![root.join(sub)];
    let mut found = Vec::new();
    while let Some(next) = folders.pop() {
        for entry in next.read_dir().expect("the inputs are checked in") {
            let path = entry.expect("it can be listed").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|found| found == extension) {
                let relative = path.strip_prefix(&root).expect("below the root");
                found.push(relative.to_str().expect("UTF-8 names").to_owned());
            }
        }
    }
    assert!(!found.is_empty(), "no inputs in {sub}");
    found.sort();
    found
}

/// The name of an input's snapshot.
pub(crate) fn snapshot_name(kind: &str, input: &str) -> String {
    let stem = input.rsplit_once('.').map_or(input, |(stem, _)| stem);
    format!("{kind}-{}", stem.replace('/', "-"))
}

//! Runs every `console` block of README.md and docs/*.md, and compares the output with the block.
//!
//! A line that starts with `$ ` runs in `sh`, in a scratch folder with `demo/tiny-llama` and a link to `tests`, and with
//! `torch2carton` on the PATH. The lines after it are its output, including standard error. `⋮` matches any number of lines,
//! and times and rates may differ. `TRANSCRIPTS=overwrite cargo test --test golden transcripts::` writes the output into the
//! documents. It keeps a block with `⋮` that still matches, and writes any other block in full.

#![cfg(unix)]
#![expect(clippy::arithmetic_side_effects, reason = "an overflow is a failed test")]
#![expect(clippy::indexing_slicing, reason = "the indices are below the length that was just taken")]

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const ANY: &str = "⋮";

/// Units of figures that differ between runs.
const MEASURED: [&str; 6] = ["s", "ms", "kB/s", "MB/s", "GB/s", "min"];

/// A command of a block: its line in the document, and the lines shown after it.
struct Shown {
    at: usize,
    command: String,
    output: Vec<String>,
}

fn commands(document: &str) -> Vec<Shown> {
    let (mut found, mut inside) = (Vec::<Shown>::new(), false);
    for (at, line) in document.lines().enumerate() {
        if line.starts_with("```") {
            inside = line == "```console";
        } else if let Some(command) = line.strip_prefix("$ ").filter(|_| inside) {
            found.push(Shown { at, command: command.to_owned(), output: Vec::new() });
        } else if inside {
            let last = found.last_mut().expect("a block begins with a command");
            last.output.push(line.to_owned());
        }
    }
    found
}

/// The line with `N` in place of each number before a unit of time or speed.
fn without_times(line: &str) -> String {
    let mut words: Vec<&str> = line.split(' ').collect();
    for at in 1..words.len() {
        if MEASURED.contains(&words[at].trim_end_matches([',', '.', ';']))
            && words[at - 1].parse::<f64>().is_ok()
        {
            words[at - 1] = "N";
        }
    }
    words.join(" ")
}

fn matches(shown: &[String], printed: &[String]) -> bool {
    match shown.split_first() {
        None => printed.is_empty(),
        Some((first, rest)) if first.trim() == ANY => {
            (0..=printed.len()).any(|skipped| matches(rest, &printed[skipped..]))
        }
        Some((first, rest)) => printed.split_first().is_some_and(|(line, others)| {
            without_times(first.trim_end()) == without_times(line.trim_end()) && matches(rest, others)
        }),
    }
}

/// A folder in which the documents' commands work.
fn scratch() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let tree = Path::new(env!("CARGO_MANIFEST_DIR"));
    test_support::tiny_llama::write(&folder.path().join("demo/tiny-llama"))
        .expect("the checkpoint is written");
    std::os::unix::fs::symlink(tree.join("tests"), folder.path().join("tests")).expect("a link");
    folder
}

fn run(command: &str, folder: &Path) -> Vec<String> {
    let program = Path::new(env!("CARGO_BIN_EXE_torch2carton"));
    let mut path = program.parent().expect("it is in a folder").as_os_str().to_owned();
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    let output = Command::new("sh")
        .args(["-c", &format!("exec 2>&1\n{command}")])
        .current_dir(folder)
        .env_clear()
        .env("PATH", path)
        .env("LANG", "C.UTF-8")
        .stdin(Stdio::null())
        .output()
        .expect("there is a shell");
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

fn documents() -> Vec<PathBuf> {
    let tree = Path::new(env!("CARGO_MANIFEST_DIR"));
    let docs = tree.join("docs").read_dir().expect("it is checked in");
    let mut found: Vec<PathBuf> = docs.map(|entry| entry.expect("it can be listed").path()).collect();
    found.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    found.push(tree.join("README.md"));
    found.sort();
    found
}

#[test]
fn documents_show_the_real_output() {
    let overwrite = std::env::var_os("TRANSCRIPTS").is_some_and(|how| how == "overwrite");
    let (mut count, mut differences) = (0, String::new());
    for path in documents() {
        let text = fs::read_to_string(&path).expect("it is text");
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let folder = scratch(); // one for each document, since its commands may depend on each other
        let mut found: Vec<(Shown, Vec<String>)> = Vec::new();
        for shown in commands(&text) {
            let printed = run(&shown.command, folder.path());
            found.push((shown, printed));
        }
        count += found.len();
        found.retain(|(shown, printed)| !matches(&shown.output, printed));
        for (shown, printed) in found.iter().rev() {
            lines.splice(shown.at + 1..=shown.at + shown.output.len(), printed.iter().cloned());
        }
        if overwrite && !found.is_empty() {
            fs::write(&path, lines.join("\n") + "\n").expect("the document can be written");
            continue;
        }
        for (shown, printed) in &found {
            let (name, at) = (path.display(), shown.at + 1);
            let wanted = shown.output.join("\n");
            let got = printed.iter().take(60).map(String::as_str).collect::<Vec<_>>().join("\n");
            let _ = write!(
                differences,
                "{name}:{at}: $ {}\n--- shown\n{wanted}\n--- printed\n{got}\n\n",
                shown.command
            );
        }
    }
    assert!(count >= 6, "only {count} commands were found; the documents had more blocks");
    assert!(
        differences.is_empty(),
        "{differences}TRANSCRIPTS=overwrite writes the output into the documents"
    );
}

/// The `--help` text of the program and of each subcommand, in this order.
fn help() -> Vec<(String, String)> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let main = run("torch2carton --help", folder.path());
    let mut names = vec![String::new()];
    let listed = main.iter().skip_while(|line| *line != "Commands:").skip(1);
    names.extend(listed.take_while(|line| !line.is_empty()).filter_map(|line| {
        let word = line.strip_prefix("  ")?.split(' ').next()?;
        Some(word.to_owned()).filter(|word| !word.is_empty())
    }));
    assert!(names.len() > 5, "the commands that --help lists: {names:?}");
    let text = |name: &String| run(&format!("torch2carton {name} --help"), folder.path()).join("\n");
    names.iter().map(|name| (name.clone(), text(name))).collect()
}

/// Commands in text, tables and `sh` blocks do not run, but their flags must exist.
#[test]
fn documents_name_flags_that_exist() {
    let help = help();
    let has = |text: &str, flag: &str| {
        text.split(|c: char| c.is_whitespace() || ",=[]<>".contains(c)).any(|word| word == flag)
    };
    let mut unknown = Vec::new();
    for path in documents() {
        let text = fs::read_to_string(&path).expect("it is text");
        for span in text.split('`').filter(|span| span.starts_with("torch2carton ") && !span.contains('\n')) {
            let words: Vec<&str> = span.split_whitespace().skip(1).collect();
            let sub = words.first().and_then(|word| help.iter().find(|(name, _)| name == word));
            // Without a subcommand it is a conversion.
            let mut wanted = vec!["", "convert"];
            if let Some((name, _)) = sub {
                wanted = vec![name];
            }
            let known = |flag: &str| {
                help.iter().any(|(name, text)| wanted.contains(&name.as_str()) && has(text, flag))
            };
            for flag in
                words.iter().take_while(|word| !word.ends_with('|')).filter(|word| word.starts_with('-'))
            {
                if !known(flag) {
                    unknown.push(format!("{}: `{span}`: {flag}", path.display()));
                }
            }
        }
    }
    assert!(unknown.is_empty(), "{}", unknown.join("\n"));
}

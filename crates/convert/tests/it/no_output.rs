//! Only the command line prints, exits, handles signals, names options and manages the memory of the process: nothing in
//! the libraries does.
//!
//! This reads the source of every crate in `crates/`, without comments and tests. Linters see calls, but not what a
//! text says to a person, nor which package is in a manifest.

#![expect(clippy::arithmetic_side_effects, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};

const CALLS: [&str; 18] = [
    "println!",
    "eprintln!",
    "print!",
    "eprint!",
    "dbg!",
    "stdout()",
    "stderr()",
    "process::exit",
    "process::abort",
    "env::args",
    "mem::forget",
    "Box::leak",
    ".leak()",
    "ManuallyDrop",
    "ctrlc",
    "signal_hook",
    "anstream",
    // It works on the memory of the whole process.
    "release_freed",
];

/// What no library depends on, unless `clap` derives arguments from its options with the feature `cli`.
const PACKAGES: [&str; 8] =
    ["clap", "clap_complete", "clap_mangen", "anstream", "anstyle", "indicatif", "ctrlc", "signal-hook"];

/// Findings that are right: the file, what it contains, and why it may.
const ALLOWED: [(&str, &str, &str); 5] = [
    (
        "bytes/byte-source/src/freed_memory.rs",
        "release_freed",
        "it is defined there, next to other unsafe code",
    ),
    ("bytes/byte-source/src/lib.rs", "release_freed", "the program calls it"),
    ("testing/test-support/src/process.rs", "println!", "tests show their figures"),
    ("testing/test-support/src/process.rs", "--exact", "an option of test programs"),
    ("testing/test-support/src/process.rs", "--nocapture", "an option of test programs"),
];

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(1).expect("it is in crates/").to_owned()
}

/// Returns the files of all crates for which `is_wanted` holds, without their tests.
fn files(is_wanted: impl Fn(&Path) -> bool) -> Vec<PathBuf> {
    let (mut folders, mut found) = (vec![crates()], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in folder.read_dir().expect("a folder") {
            let path = entry.expect("it can be listed").path();
            if ["tests", "benches", "examples"].iter().any(|name| path.ends_with(name)) {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else if is_wanted(&path) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// Returns the Rust files of all crates that are not tests.
fn sources() -> Vec<PathBuf> {
    let found = files(|path| path.extension().is_some_and(|it| it == "rs") && !path.ends_with("tests.rs"));
    assert!(found.len() > 100, "only {} files were found", found.len());
    found
}

/// A text literal, and the line on which it begins.
struct Literal {
    line: usize,
    text: String,
}

/// A file without its comments and its tests: the code with empty literals, and the literals.
fn split(source: &str) -> (String, Vec<Literal>) {
    let (mut code, mut literals) = (String::new(), Vec::new());
    let mut rest = source;
    let mut line = 1;
    while let Some(first) = rest.chars().next() {
        let before = rest;
        if rest.starts_with("//") {
            rest = rest.find('\n').map_or("", |end| &rest[end..]);
        } else if rest.starts_with("/*") {
            rest = after_block_comment(rest);
        } else if let Some((text, after)) = literal(rest, &code) {
            literals.push(Literal { line, text: text.to_owned() });
            code.push_str("\"\"");
            rest = after;
        } else if let Some(after) = character(rest) {
            code.push_str("''");
            rest = after;
        } else {
            code.push(first);
            rest = &rest[first.len_utf8()..];
            if code.ends_with("#[cfg(test)]") && rest.trim_start().starts_with("mod ") {
                break; // the tests are the last part of a file
            }
            line += usize::from(first == '\n');
            continue;
        }
        let newlines = before[..before.len() - rest.len()].matches('\n').count();
        line += newlines;
        code.push_str(&"\n".repeat(newlines));
    }
    (code, literals)
}

fn after_block_comment(text: &str) -> &str {
    let (mut depth, mut at) = (0, 0);
    while at < text.len() {
        let step = match text.get(at..at + 2) {
            Some("/*") => {
                depth += 1;
                2
            }
            Some("*/") => {
                depth -= 1;
                2
            }
            _ => 1,
        };
        at += step;
        if depth == 0 {
            break;
        }
    }
    while !text.is_char_boundary(at) {
        at += 1;
    }
    &text[at..]
}

/// The content of the text literal at the start of `text`, and what follows it.
fn literal<'t>(text: &'t str, code: &str) -> Option<(&'t str, &'t str)> {
    let in_word = code.ends_with(|c: char| c.is_alphanumeric() || c == '_');
    let raw = text.strip_prefix("br").or_else(|| text.strip_prefix('r')).filter(|_| !in_word);
    if let Some(raw) = raw {
        let hashes = raw.len() - raw.trim_start_matches('#').len();
        if let Some(inner) = raw[hashes..].strip_prefix('"') {
            let end = format!("\"{}", "#".repeat(hashes));
            return inner.split_once(&end);
        }
    }
    let inner = text.strip_prefix('"')?;
    let mut is_escaped = false;
    for (at, c) in inner.char_indices() {
        match c {
            '"' if !is_escaped => return Some((&inner[..at], &inner[at + 1..])),
            '\\' => is_escaped = !is_escaped,
            _ => is_escaped = false,
        }
    }
    None
}

/// What follows the character literal at the start of `text`; `None` for a lifetime too.
fn character(text: &str) -> Option<&str> {
    let inner = text.strip_prefix('\'')?;
    let mut chars = inner.chars();
    if chars.next()? == '\\' {
        let after = inner.char_indices().skip(2).find(|(_, c)| *c == '\'')?.0;
        return Some(&inner[after + 1..]);
    }
    chars.as_str().strip_prefix('\'')
}

/// An option such as `--key`, or a command such as `torch2carton scan`.
fn names_the_command_line(text: &str) -> bool {
    let starts_word = |rest: &str| rest.starts_with(|c: char| c.is_ascii_lowercase());
    let mut options = text.match_indices("--").filter(|(at, _)| !text[..*at].ends_with('-'));
    let mut commands = text.match_indices("torch2carton ");
    options.any(|(at, found)| starts_word(&text[at + found.len()..]))
        || commands.any(|(at, found)| starts_word(&text[at + found.len()..]))
}

/// Whether `call` is in the line as a word of its own.
fn calls(line: &str, call: &str) -> bool {
    let in_word = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(call).any(|(at, _)| {
        let (before, after) = (&line[..at], &line[at + call.len()..]);
        let starts = !call.starts_with(in_word) || !before.ends_with(in_word);
        starts && !(call.ends_with(in_word) && after.starts_with(in_word))
    })
}

/// Everything that is not allowed in the file, as `LINE: what`.
fn findings(source: &str) -> Vec<(usize, String)> {
    let (code, literals) = split(source);
    let mut found: Vec<(usize, String)> = literals
        .into_iter()
        .filter(|literal| names_the_command_line(&literal.text))
        .map(|literal| (literal.line, literal.text))
        .collect();
    for (index, line) in code.lines().enumerate() {
        let bad = CALLS.iter().filter(|call| calls(line, call));
        found.extend(bad.map(|call| (index + 1, (*call).to_owned())));
    }
    found.sort();
    found
}

#[test]
fn libraries_do_not_print_exit_or_name_options() {
    let (root, mut found, mut used) = (crates(), Vec::new(), vec![false; ALLOWED.len()]);
    for path in sources() {
        let name = path.strip_prefix(&root).expect("below crates/").to_string_lossy().replace('\\', "/");
        for (line, what) in findings(&fs::read_to_string(&path).expect("it is text")) {
            match ALLOWED.iter().position(|(file, text, _)| *file == name && what.contains(text)) {
                Some(index) => used[index] = true,
                None => found.push(format!("crates/{name}:{line}: {what}")),
            }
        }
    }
    assert!(found.is_empty(), "the command line does this, not a library:\n{}", found.join("\n"));
    let unused: Vec<_> = ALLOWED.iter().zip(used).filter(|(_, used)| !used).map(|(entry, _)| entry).collect();
    assert!(unused.is_empty(), "nothing needs these exceptions: {unused:?}");
}

#[test]
fn libraries_do_not_depend_on_what_the_command_line_needs() {
    let manifests = files(|path| path.ends_with("Cargo.toml"));
    assert!(manifests.len() > 20, "only {} crates were found", manifests.len());
    for path in manifests {
        let manifest: toml::Table = fs::read_to_string(&path).expect("it is text").parse().expect("TOML");
        let dependencies = manifest.get("dependencies").and_then(|it| it.as_table());
        for (name, dependency) in dependencies.into_iter().flatten() {
            let is_optional = dependency.get("optional").and_then(toml::Value::as_bool) == Some(true);
            let derives_arguments = name == "clap" && is_optional && manifest["features"]["cli"].is_array();
            let is_allowed = derives_arguments || !PACKAGES.contains(&name.as_str());
            assert!(is_allowed, "{} depends on {name}", path.display());
        }
    }
}

#[test]
fn what_is_forbidden_is_found() {
    let found = |source: &str| {
        let found = findings(source);
        found.into_iter().map(|(line, what)| format!("{line} {what}")).collect::<Vec<_>>()
    };
    assert_eq!(found("let a = \"see --key\";"), ["1 see --key"]);
    assert_eq!(found("#[error(\n    \"try `torch2carton scan`\"\n)]"), ["2 try `torch2carton scan`"]);
    assert_eq!(
        found("let a = r#\"a \"quoted\" --key\"#; println!(\"{a}\")"),
        ["1 a \"quoted\" --key", "1 println!"]
    );
    assert_eq!(found("let a = b\"--x\";\nstd::process::exit(1)"), ["1 --x", "2 process::exit"]);
    assert_eq!(found("let q = '\"'; let a = \"--x\"; let e = '\\''; eprint!(\"\")"), ["1 --x", "1 eprint!"]);
    assert_eq!(found("fn f<'a>(a: &'a str) {}\n/* \"--x\"\n/* */ */ Box::leak(b)"), ["3 Box::leak"]);
    assert_eq!(found("a\\\n\"one\ntwo --x\"\nv.leak()"), ["2 one\ntwo --x", "4 .leak()"]);
    for fine in [
        "// println!(\"--key\")",
        "/// Use `--key`.\nfn a() {}",
        "let a = \"a -- b, ---x, \\\"--\\\", 1--2, .torch2carton-x\";",
        "let reclaps = sprint!(1); let a = \"println!\";",
        "fn a() {}\n#[cfg(test)]\nmod tests {\n    println!(\"--key\");\n}",
    ] {
        assert_eq!(found(fine), [""; 0], "{fine}");
    }
}

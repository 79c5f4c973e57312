//! What the command line says about mistakes in what was typed, in its help, and with `--quiet`; how it names its
//! outputs, and how a signal ends it.

use std::path::Path;

use serde_json::Value as Json;

use crate::carton_tools::{ok, run, scratch, write};
use crate::made::{Value, dict, tensor, write_pth};

const SUBCOMMANDS: [&str; 19] = [
    "convert",
    "batch",
    "inspect",
    "trace",
    "report",
    "scan",
    "check",
    "diff",
    "digest",
    "run",
    "chat",
    "verify",
    "pack",
    "unpack",
    "shrink",
    "resolve",
    "serve",
    "completions",
    "man",
];

/// The status, standard output and standard error of a run in `root`.
pub(crate) fn output(root: &Path, args: &[&str]) -> (Option<i32>, String, String) {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_torch2carton"))
        .args(args)
        .current_dir(root)
        .output()
        .expect("the program was built for this test");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// The text of a mistake in what was typed.
fn usage_error(root: &Path, args: &[&str]) -> String {
    let (status, stdout, stderr) = output(root, args);
    assert_eq!(status, Some(2), "{args:?}: {stdout}{stderr}");
    assert_eq!(stdout, "", "{args:?}");
    assert!(stderr.starts_with("error: "), "{args:?}: {stderr}");
    // clap's tip to write `-- --option`, which is never what was meant.
    assert!(!stderr.contains("-- -") && !stderr.contains("as a value"), "{args:?}: {stderr}");
    stderr
}

/// The only line that `args` print to standard output, which is a JSON object.
pub(crate) fn json(root: &Path, args: &[&str]) -> Json {
    let (status, stdout, stderr) = output(root, args);
    assert!(matches!(status, Some(0 | 1)), "{args:?}: {stderr}");
    assert_eq!(stdout.lines().count(), 1, "{args:?}: {stdout}");
    serde_json::from_str(&stdout).expect("JSON")
}

/// A checkpoint `a.pth` with one tensor of one byte.
pub(crate) fn one_tensor(root: &Path) {
    write_pth(&root.join("a.pth"), &dict(&[("w", tensor(1))]));
}

#[test]
fn unknown_words_are_not_taken_for_files() {
    let scratch = scratch();
    let root = scratch.path();
    let text = usage_error(root, &["compare", "a", "b"]);
    assert!(text.contains("no command `compare`"), "{text}");
    assert!(text.contains(&format!("commands are {}", SUBCOMMANDS.join(", "))), "{text}");
    assert!(text.contains("`torch2carton diff A B` compares tensors"), "{text}");
    let text = usage_error(root, &["inspct", "x"]);
    assert!(text.contains("did you mean `torch2carton inspect`"), "{text}");
    let text = usage_error(root, &["-q", "Inspect", "x"]);
    assert!(text.contains("did you mean `torch2carton inspect`"), "{text}");
    let text = usage_error(root, &["zzz"]);
    assert!(text.contains("no command `zzz`") && !text.contains("did you mean"), "{text}");
    // A file of that name is converted, and a word with a dot or a slash can only be a file.
    write_pth(&root.join("compare"), &dict(&[("w", tensor(1))]));
    ok(root, &["compare", "-q"]);
    for missing in ["compare.pth", "./inspct"] {
        let (status, text) = run(root, &[missing]);
        assert_eq!(status, Some(1), "{text}");
        assert!(text.contains(missing) && !text.contains("command"), "{text}");
    }
}

#[test]
fn unknown_words_after_help_are_unknown_commands() {
    let scratch = scratch();
    let text = usage_error(scratch.path(), &["help", "compare"]);
    assert!(text.contains("no command `compare`"), "{text}");
}

#[test]
fn unknown_options_name_the_command() {
    let scratch = scratch();
    let root = scratch.path();
    one_tensor(root);
    for (args, option, command, meant) in [
        (&["--foo"][..], "--foo", "convert", None),
        (&["a.pth", "--foo"], "--foo", "convert", None),
        (&["-q", "--fooo=1", "a.pth"], "--fooo", "convert", None),
        (&["a.pth", "--jsn"], "--jsn", "convert", Some("--json")),
        (&["convert", "--clobber", "a.pth"], "--clobber", "convert", Some("--no-clobber")),
        (&["inspect", "--ful", "a.pth"], "--ful", "inspect", None),
        (&["inspect", "-x", "a.pth"], "-x", "inspect", None),
        (&["trace", "--ful", "a.pth"], "--ful", "trace", Some("--full")),
        (&["verify", "a.carton", "--agains", "a.pth"], "--agains", "verify", Some("--against")),
        (&["unpack", "a.carton", "-D", "x"], "-D", "unpack", None),
    ] {
        let text = usage_error(root, args);
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(text.contains(&format!("no option `{option}` for `torch2carton {command}`")), "{text}");
        assert!(text.contains(&format!("`torch2carton {command} --help` lists them")), "{text}");
        let hint = meant.map(|meant| format!("did you mean `{meant}`?"));
        assert_eq!(text.contains("did you mean"), hint.is_some(), "{text}");
        assert!(text.contains(&hint.unwrap_or_default()), "{text}");
    }
    assert!(!root.join("a.carton").exists());
}

#[test]
fn options_need_their_values() {
    let scratch = scratch();
    let root = scratch.path();
    one_tensor(root);
    for (args, option) in [
        (&["a.pth", "-o"][..], "--output"),
        (&["a.pth", "--arch"], "--arch"),
        (&["convert", "a.pth", "--name"], "--name"),
        (&["a.pth", "--n-heads", "x"], "--n-heads"),
        (&["a.pth", "--n-heads", "0"], "--n-heads"),
        (&["a.pth", "--norm-eps=-1"], "--norm-eps"),
        (&["a.pth", "--arch", "zebra"], "--arch"),
        (&["a.pth", "--color", "sometimes"], "--color"),
        (&["trace", "--limit", "a.pth"], "--limit"),
        (&["verify", "a.carton", "--against"], "--against"),
    ] {
        let text = usage_error(root, args);
        assert!(text.contains(option), "{args:?}: {text}");
    }
    let text = usage_error(root, &["a.pth", "--arch", "zebra"]);
    assert!(text.contains("auto, llama, mistral, qwen2, ") && text.contains(" or weights"), "{text}");
    assert!(!root.join("a.carton").exists());
}

#[test]
fn a_missing_value_names_the_command() {
    let scratch = scratch();
    for (args, command) in
        [(&["a.pth", "-o"][..], "convert"), (&["verify", "a.carton", "--against"], "verify")]
    {
        let text = usage_error(scratch.path(), args);
        assert!(text.contains(&format!("torch2carton {command}")), "{text}");
    }
}

#[test]
fn conflicting_options_are_refused() {
    let scratch = scratch();
    let root = scratch.path();
    one_tensor(root);
    for (args, command, options) in [
        (
            &["a.pth", "--allow-dangerous", "--deny-unknown"][..],
            "convert",
            ["--allow-dangerous", "--deny-unknown"],
        ),
        (&["a.pth", "--each", "--name", "x"], "convert", ["--each", "--name"]),
        (&["a.pth", "--resume"], "convert", ["--resume", "--each"]),
        (&["a.pth", "--each", "--resume", "--no-clobber"], "convert", ["--resume", "--no-clobber"]),
        (&["trace", "--lines", "--json", "a.pth"], "trace", ["--lines", "--json"]),
        (&["trace", "--summary", "--limit", "3", "a.pth"], "trace", ["--summary", "--limit"]),
        (&["verify", "a.carton", "--single"], "verify", ["--single", "--against"]),
    ] {
        let text = usage_error(root, args);
        assert!(text.contains(&format!("torch2carton {command}")), "{args:?}: {text}");
        for option in options {
            assert!(text.contains(option), "{args:?}: {text}");
        }
    }
    let text = usage_error(root, &["verify", "a.carton", "--key", "x"]);
    assert!(text.contains("--against"), "{text}");
    let text = usage_error(root, &["a.pth", "-o", "-"]);
    assert!(text.contains("standard output"), "{text}");
    assert!(!root.join("a.carton").exists());
}

#[test]
fn a_folder_gives_its_name_to_the_carton() {
    let scratch = scratch();
    let root = scratch.path();
    let copy = |folder: &str| {
        for name in ["consolidated.00.pth", "params.json"] {
            let bytes = std::fs::read(super::program::folder().join("checkpoints/llama_tiny").join(name));
            write(root.join(folder).join(name), bytes.expect("it is checked in"));
        }
    };
    for folder in ["Llama-tiny", "Llama 3.1"] {
        copy(folder);
        let printed = ok(root, &[folder]);
        assert!(printed.lines().any(|line| line == format!("{folder}.carton")), "{printed}");
        let text = ok(root, &["inspect", &format!("{folder}.carton")]);
        assert!(text.contains(&format!("name         {folder}\n")), "{text}");
    }
    std::fs::remove_file(root.join("Llama-tiny.carton")).expect("it was written");
    ok(root, &["Llama-tiny/", "-q"]);
    assert!(root.join("Llama-tiny.carton").exists());
    // `.` has no name that could be replaced, so its carton is in it.
    ok(&root.join("Llama-tiny"), &[".", "-q"]);
    assert!(root.join("Llama-tiny/Llama-tiny.carton").exists());
    // A file is not a folder.
    ok(root, &["Llama-tiny/consolidated.00.pth", "-q"]);
    assert!(root.join("Llama-tiny/consolidated.00.carton").exists());
}

#[test]
fn unpacking_makes_a_folder_with_the_name_of_the_carton() {
    let scratch = scratch();
    let root = scratch.path();
    write_pth(&root.join("sub/a.pth"), &dict(&[("w", tensor(1))]));
    ok(root, &["sub/a.pth", "-q"]);
    let text = ok(root, &["unpack", "sub/a.carton"]);
    assert!(text.starts_with("sub/a: 4 files, "), "{text}");
    assert!(root.join("sub/a/model/model.pt").exists());
    assert!(root.join("sub/a.carton").exists());
    let (status, text) = run(root, &["unpack", "sub/a.carton"]);
    assert_eq!(status, Some(1));
    assert!(text.contains("sub/a ") && text.contains("-o"), "{text}");
    // A name without an ending is the carton's own.
    std::fs::rename(root.join("sub/a.carton"), root.join("bare")).expect("a temporary folder");
    let text = ok(root, &["unpack", "bare"]);
    assert!(text.starts_with("bare.unpacked: 4 files, "), "{text}");
}

#[test]
fn quiet_prints_less() {
    let scratch = scratch();
    let root = scratch.path();
    write_pth(&root.join("a.pth"), &dict(&[("w", tensor(1)), ("epoch", Value::Int(1))]));
    let all = ok(root, &["inspect", "a.pth"]);
    let quiet = ok(root, &["inspect", "-q", "a.pth"]);
    assert_eq!(quiet, "name  dtype  shape  size\nw     uint8  [1]     1 B\n");
    assert!(all.starts_with(&quiet) && all.contains("\ncontainer "), "{all}");
    assert_eq!(ok(root, &["-q", "a.pth"]), "");
    let all = ok(root, &["inspect", "a.carton"]);
    let quiet = ok(root, &["inspect", "--quiet", "a.carton"]);
    assert!(quiet.starts_with("file ") && all.contains(&quiet) && all.starts_with("name "), "{all}");
    assert!(!quiet.contains("torch2carton verify") && all.contains("torch2carton verify"), "{all}");
    assert_eq!(ok(root, &["verify", "-q", "a.carton"]), "");
    assert_eq!(ok(root, &["scan", "-q", "a.pth"]), "");
}

#[test]
fn bash_completes_files_and_the_options_of_convert_first() {
    let scratch = scratch();
    let root = scratch.path();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        assert!(ok(root, &["completions", shell]).contains("require-model"), "{shell}");
    }
    write(root.join("model.pth"), "");
    let script = ok(root, &["completions", "bash"]);
    write(root.join("script"), script);
    // What bash offers for the last word.
    let offered = |words: &str| {
        let line = format!(
            "source ./script; COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
             _torch2carton torch2carton \"${{COMP_WORDS[-1]}}\" \"${{COMP_WORDS[-2]}}\"; \
             printf '%s\\n' \"${{COMPREPLY[@]}}\""
        );
        let output = std::process::Command::new("bash").args(["-c", &line]).current_dir(root).output();
        let output = output.expect("bash is there");
        assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).expect("UTF-8");
        text.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    if std::process::Command::new("bash").arg("--version").output().is_err() {
        return;
    }
    let first = offered("torch2carton ''");
    assert_eq!(first.first().map(String::as_str), Some("model.pth"), "{first:?}");
    assert!(first.iter().any(|word| word == "inspect"), "{first:?}");
    assert_eq!(offered("torch2carton mod"), ["model.pth"]);
    let options = offered("torch2carton model.pth --re");
    assert!(options.iter().any(|word| word == "--require-model"), "{options:?}");
    assert!(offered("torch2carton insp").iter().any(|word| word == "inspect"));
    assert_eq!(offered("torch2carton inspect --sh"), ["--sha256"]);
}

#[test]
fn the_manual_has_a_page_for_every_command() {
    let scratch = scratch();
    let root = scratch.path();
    ok(root, &["man", "--dir", "man1"]);
    let read = |name: &str| std::fs::read_to_string(root.join("man1").join(name)).expect("a page");
    assert_eq!(ok(root, &["man"]), read("torch2carton.1"));
    for name in SUBCOMMANDS {
        let page = read(&format!("torch2carton-{name}.1"));
        // roff's own definition of an apostrophe may come first.
        let first = page.lines().find(|line| !line.starts_with(".ie") && !line.starts_with(".el"));
        assert!(
            first.is_some_and(|line| line.starts_with(&format!(".TH torch2carton-{name} 1"))),
            "{first:?}"
        );
        assert_eq!(ok(root, &["man", name]), page);
    }
    let (status, _, stderr) = output(root, &["man", "compare"]);
    assert!(
        status == Some(2) && stderr.starts_with("error: no command `compare`; commands are "),
        "{stderr}"
    );
    let page = read("torch2carton-convert.1");
    // Every option of `convert --help` is there.
    let help = ok(scratch.path(), &["convert", "--help"]);
    for option in help.split_whitespace().filter(|word| word.starts_with("--") && word.len() > 2) {
        let option = option.trim_end_matches([',', '.', ')', '`', ';', ':']).replace('-', "\\-");
        assert!(page.contains(&option), "{option}");
    }
}

#[test]
fn help_goes_to_standard_output() {
    let scratch = scratch();
    let root = scratch.path();
    for name in SUBCOMMANDS {
        let (status, stdout, stderr) = output(root, &[name, "--help"]);
        assert_eq!((status, stderr.as_str()), (Some(0), ""), "{name}");
        assert!(stdout.contains("Usage: torch2carton"), "{stdout}");
    }
    let (status, stdout, stderr) = output(root, &[]);
    assert_eq!((status, stdout.as_str()), (Some(2), ""));
    assert!(stderr.contains("Examples:"), "{stderr}");
}

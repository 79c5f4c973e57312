//! Scans find every call that is hidden in `malicious/`, and nothing in `checkpoints/`.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::program::{folder, torch2carton, transcript};

/// The files of a folder below `tests/golden`, sorted, without its README.
fn files(sub: &str) -> Vec<String> {
    let entries = folder().join(sub).read_dir().expect("the inputs are checked in");
    let names = entries.map(|entry| entry.expect("it can be listed").path());
    let mut names: Vec<String> = names
        .filter(|path| path.is_file() && path.extension().is_none_or(|found| found != "md"))
        .map(|path| format!("{sub}/{}", path.file_name().unwrap_or_default().to_string_lossy()))
        .collect();
    names.sort();
    names
}

#[test]
fn every_call_is_found() {
    let mut texts = String::new();
    for file in files("malicious") {
        let output = torch2carton(["scan", &file]);
        assert_eq!(output.status.code(), Some(1), "{file}");
        let json = torch2carton(["scan", "--json", &file]);
        assert!(String::from_utf8_lossy(&json.stdout).contains("\"dangerous\""), "{file}");
        texts.push_str(&transcript(&output).replace("exit status 1\n", ""));
    }
    insta::assert_snapshot!(texts);
}

#[test]
fn checkpoints_are_clean() {
    let output = torch2carton(["scan", "checkpoints"]);
    assert_eq!(output.status.code(), Some(0));
    insta::assert_snapshot!(transcript(&output));
}

#[test]
fn damage_is_a_finding_or_not_scanned() {
    let output = torch2carton(["scan", "hostile"]);
    assert_eq!(output.status.code(), Some(1));
    insta::assert_snapshot!(transcript(&output));
}

#[test]
fn exit_statuses_report_the_result() {
    let status = |args: &[&str]| torch2carton([&["scan"], args].concat()).status.code();
    assert_eq!(status(&["checkpoints/plain.pth"]), Some(0));
    assert_eq!(status(&["pickles/python2_0.pkl"]), Some(3));
    assert_eq!(status(&["pickles/python2_0.pkl", "checkpoints/plain.pth"]), Some(3));
    assert_eq!(status(&["--deny-unknown", "pickles/python2_0.pkl"]), Some(1));
    assert_eq!(status(&["hostile/os_system.pth"]), Some(1));
    // A file that ends early without a finding is never clean.
    assert_eq!(status(&["hostile/no_stop.pkl"]), Some(2));
    assert_eq!(status(&["hostile/truncated.pth"]), Some(2));
    assert_eq!(status(&["hostile/gguf.pth"]), Some(2));
    // The first of 1, 2 and 3 decides; --deny-unknown turns 3 into 1.
    assert_eq!(status(&["pickles/python2_0.pkl", "hostile/no_stop.pkl"]), Some(2));
    assert_eq!(status(&["--deny-unknown", "pickles/python2_0.pkl", "hostile/no_stop.pkl"]), Some(1));
    // If there are both, the finding decides.
    assert_eq!(status(&["hostile/no_stop.pkl", "hostile/os_system.pth"]), Some(1));
    assert_eq!(status(&["nothing_here.pth"]), Some(2));
    // The other files are still scanned.
    assert_eq!(status(&["nothing_here.pth", "hostile/os_system.pth"]), Some(1));
    assert_eq!(status(&["nothing_here.pth", "checkpoints/plain.pth"]), Some(2));
    assert_eq!(status(&["s3://bucket/model.pth"]), Some(2));
    // The storages' checksums are compared on demand.
    assert_eq!(status(&["hostile/bad_crc_storage.pth"]), Some(0));
    assert_eq!(status(&["--checksums", "hostile/bad_crc_storage.pth"]), Some(1));
}

#[test]
fn what_is_missing_is_not_scanned() {
    let scratch = tempfile::tempdir().expect("a temporary folder");
    let folder = scratch.path().join("empty");
    fs::create_dir(&folder).expect("it can be made");
    let folder = folder.to_string_lossy();
    let told =
        |args: &[&str]| transcript(&torch2carton([&["scan"], args].concat())).replace(&*folder, "EMPTY");
    let mut texts = told(&["hostile/os_system.pth", "nothing_here.pth"]);
    texts += &told(&["nothing_here.pth"]);
    texts += &told(&["--json", "nothing_here.pth"]);
    // A job that is given the wrong folder must not pass.
    texts += &told(&[&folder]);
    texts += &told(&["--json", &folder]);
    texts += &told(&["-q", "checkpoints/plain.pth", &folder]);
    fs::write(scratch.path().join("empty/notes.txt"), "no checkpoint").expect("it can be written");
    texts += &told(&[&folder]);
    texts += &told(&["checkpoints/plain.pth", &folder]);
    insta::assert_snapshot!(texts);
}

#[cfg(unix)]
#[test]
fn links_to_folders_are_reported() {
    let scratch = tempfile::tempdir().expect("a temporary folder");
    let root = scratch.path();
    let plain = folder().join("checkpoints/plain.pth");
    for folder in ["in/sub", "out"] {
        fs::create_dir_all(root.join(folder)).expect("it can be made");
        fs::copy(&plain, root.join(folder).join("a.pth")).expect("it is checked in");
    }
    let link = |target: &str, name: &str| {
        std::os::unix::fs::symlink(target, root.join(name)).expect("it can be made");
    };
    link("../out", "in/elsewhere");
    // Its files are scanned anyway.
    link("sub", "in/inside");
    let scan = |args: &[&str]| {
        let output = torch2carton([&["scan"], args].concat());
        transcript(&output).replace(&*root.to_string_lossy(), "ROOT")
    };
    let folder = root.join("in").to_string_lossy().into_owned();
    let mut texts = scan(&[&folder]) + &scan(&["-q", &folder]);
    texts += scan(&["--json", &folder]).lines().next().unwrap_or_default();
    fs::remove_dir_all(root.join("in/sub")).expect("it is there");
    insta::assert_snapshot!(texts + "\n" + &scan(&[&folder]));
}

#[cfg(unix)]
#[test]
fn pipes_sockets_and_devices_in_a_folder_are_reported() {
    let scratch = tempfile::tempdir().expect("a temporary folder");
    let root = scratch.path();
    fs::create_dir_all(root.join("in/sub")).expect("it can be made");
    fs::copy(folder().join("checkpoints/plain.pth"), root.join("in/a.pth")).expect("it is checked in");
    // No process has the other end of a pipe, so that a program that opened one would wait forever.
    for name in ["in/model.pth", "in/sub/pipe"] {
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mkfifoat(rustix::fs::CWD, root.join(name), mode).expect("a pipe");
    }
    let _socket = std::os::unix::net::UnixListener::bind(root.join("in/socket")).expect("a socket");
    for (target, name) in [("sub/pipe", "in/link"), ("/dev/null", "in/device"), ("nothing", "in/notes")] {
        std::os::unix::fs::symlink(target, root.join(name)).expect("it can be made");
    }
    let scan = |path: &Path| {
        let output = torch2carton(["scan", &path.to_string_lossy()]);
        assert_eq!(output.status.code(), Some(2));
        transcript(&output).replace(&*root.to_string_lossy(), "ROOT")
    };
    let text = scan(&root.join("in"));
    for (name, what) in [
        ("device", "a device"),
        ("link", "a named pipe"),
        ("model.pth", "a named pipe"),
        ("socket", "a socket"),
        ("sub/pipe", "a named pipe"),
    ] {
        let line = format!("ROOT/in/{name}: incomplete: ROOT/in/{name} is {what}, not a file");
        assert!(text.lines().any(|found| found == line), "{line}: {text}");
    }
    assert_eq!(text.matches(": incomplete: ").count(), 5, "{text}");
    let text = scan(&root.join("in/model.pth"));
    assert!(
        text.starts_with("ROOT/in/model.pth: incomplete: ROOT/in/model.pth is a named pipe, not a file\n"),
        "{text}"
    );
}

#[test]
fn what_is_unknown_is_told() {
    let scratch = tempfile::tempdir().expect("a temporary folder");
    let file = scratch.path().join("unknown.pkl");
    // A call without arguments, a call of its result, and four calls of another function.
    let mut pickle = b"\x80\x02(cfarm\ncow\n)RX\x05\0\0\0hello\x85R".to_vec();
    (0..4).for_each(|n| pickle.extend([b"cfarm\nrun\nK".as_slice(), &[n], b"\x85R"].concat()));
    // Nine calls without arguments do not hide the others.
    (0..9).for_each(|_| pickle.extend(b"cfarm\nhen\n)R"));
    pickle.extend(b"cfarm\nhen\nK\x09\x85Rt.");
    fs::write(&file, pickle).expect("it can be written");
    let file = file.to_string_lossy();
    let told = |args: &[&str]| transcript(&torch2carton([&["scan"], args].concat())).replace(&*file, "FILE");
    let text = told(&[&file]) + &told(&["--all", &file]) + &told(&["--deny-unknown", &file]);
    insta::assert_snapshot!(text + &told(&["pickles/instances_2.pkl", "pickles/python2_0.pkl"]));
}

#[test]
fn a_file_cut_anywhere_is_never_clean() {
    let scratch = tempfile::tempdir().expect("a temporary folder");
    let whole = fs::read(folder().join("malicious/root.pth")).expect("it is checked in");
    let target = scratch.path().join("cut.pth");
    // From the first byte of the payload's name on, it is reported. Before that, the file is not scanned.
    for len in (1..whole.len()).step_by(7) {
        fs::write(&target, &whole[..len]).expect("it can be written");
        let code = torch2carton(["scan".as_ref(), target.as_os_str()]).status.code();
        assert!(matches!(code, Some(1 | 2)), "{len} bytes: {code:?}");
    }
}

/// A pickle that calls `os.system` and names classes of an unknown package, each `count` times.
fn many_findings(count: usize) -> Vec<u8> {
    let calls = (0..count).map(|n| format!("cposix\nsystem\n(X\x04\0\0\0{n:04}tR").into_bytes());
    let names = (0..count).map(|n| format!("cfarm\nPig{n}\n").into_bytes());
    let items = calls.chain(names).collect::<Vec<_>>().concat();
    [b"\x80\x02(".as_slice(), &items, b"l."].concat()
}

#[test]
fn three_lines_of_a_kind_are_enough() {
    let scratch = tempfile::tempdir().expect("a temporary folder");
    let file = scratch.path().join("many.pkl");
    fs::write(&file, many_findings(40)).expect("it can be written");
    let file = file.to_string_lossy();
    let scan = |args: &[&str]| {
        let output = torch2carton([&["scan", &*file], args].concat());
        String::from_utf8(output.stdout).expect("UTF-8").replace(&*file, "FILE")
    };
    let text = scan(&[]);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "FILE: UNSAFE  calls os.system('0000')");
    assert_eq!(lines[1], "  pickle, 1 pickle, 0 known, 40 unknown and 1 dangerous global");
    assert_eq!(lines[2], "  dangerous  os.system('0000') at 0x1c of pickle (REDUCE)");
    assert_eq!(lines[5], "             … 37 more, which --all shows");
    assert_eq!(lines[6], "  unknown    farm.Pig0 at 0x413 of pickle");
    assert_eq!(lines[9], "             … 37 more, which --all shows");
    assert_eq!(lines.len(), 10, "{text}");
    let all = scan(&["--all"]);
    assert_eq!(all.lines().filter(|line| line.starts_with("  unknown")).count(), 40, "{all}");
    assert!(!all.contains("--all shows"), "{all}");
    let red = "\u{1b}[1m\u{1b}[31m";
    assert!(!text.contains('\u{1b}'), "no colours in a pipe: {text}");
    let coloured = scan(&["--color", "always"]);
    assert!(coloured.contains(&format!("{red}UNSAFE")), "{coloured:?}");
    assert!(coloured.contains(&format!("{red}dangerous")), "{coloured:?}");
    assert!(!coloured.contains(&format!("{red}unknown")), "{coloured:?}");
}

#[test]
fn a_call_that_runs_a_program_comes_before_a_lookup() {
    let scratch = tempfile::tempdir().expect("a temporary folder");
    let file = scratch.path().join("a.pkl");
    let lookup = b"cbuiltins\ngetattr\n(cfarm\ncow\nX\x01\0\0\0mtR".as_slice();
    let call = b"csubprocess\nPopen\n(X\x02\0\0\0lstR".as_slice();
    fs::write(&file, [b"\x80\x02(".as_slice(), lookup, call, b"l."].concat()).expect("it can be written");
    let output = torch2carton(["scan", &file.to_string_lossy()]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains(": UNSAFE  calls subprocess.Popen('ls')\n"), "{text}");
}

#[test]
fn python_code_that_a_configuration_names_is_reported() {
    let scratch = tempfile::tempdir().expect("a temporary folder");
    let root = scratch.path().join("model");
    fs::create_dir(&root).expect("it can be made");
    fs::copy(folder().join("checkpoints/plain.pth"), root.join("pytorch_model.bin"))
        .expect("it is checked in");
    let config =
        r#"{"auto_map": {"AutoConfig": "configuration_x.XConfig", "AutoModelForCausalLM": "modeling_x.X"}}"#;
    fs::write(root.join("config.json"), config).expect("it can be written");
    let scan = |args: &[&str]| {
        let output = torch2carton([&["scan", &*root.to_string_lossy()], args].concat());
        (output.status.code(), transcript(&output).replace(&*root.to_string_lossy(), "MODEL"))
    };
    let (status, text) = scan(&[]);
    assert_eq!(status, Some(0));
    assert!(!text.contains("config.json"), "without the code, nothing can be imported: {text}");
    fs::write(root.join("modeling_x.py"), "import os").expect("it can be written");
    fs::write(root.join("configuration_x.py"), "").expect("it can be written");
    let mut texts = scan(&[]).1 + &scan(&["--json"]).1 + &scan(&["--deny-unknown", "-q"]).1;
    assert_eq!(scan(&["--deny-unknown"]).0, Some(1));
    // The configuration itself can be scanned, too.
    let output = torch2carton(["scan", &root.join("config.json").to_string_lossy()]);
    texts += &transcript(&output).replace(&*root.to_string_lossy(), "MODEL");
    insta::assert_snapshot!(texts);
}

#[test]
fn texts_that_other_programs_run_are_reported() {
    let scratch = tempfile::tempdir().expect("a temporary folder");
    let root = scratch.path();
    for (name, text) in [
        ("a/config.json", r#"{"model_type": "x", "model_file": "custom.py"}"#),
        ("a/custom.py", "import os"),
        ("b/model.opt", r#"{"model": "subprocess:Popen"}"#),
        ("b/train.log", "1\tINFO\t{'sample_rate': __import__('os').mkdir('ran')}\n"),
        ("c/config.toml", "optimizer_type = \"os.system\"\n"),
        ("c/inference.yml", "ops:\n- \"exec('import os')\": {}\n"),
        ("c/notes.txt", "Nothing (at all) is called here, not even exec('x').\n"),
    ] {
        let file = root.join(name);
        fs::create_dir_all(file.parent().expect("a folder")).expect("it can be made");
        fs::write(file, text).expect("it can be written");
    }
    let output = torch2carton(["scan", "--all", &*root.to_string_lossy()]);
    insta::assert_snapshot!(transcript(&output).replace(&*root.to_string_lossy(), "FOLDER"));
}

#[test]
fn a_document_for_code_hosts() {
    let files = [
        "malicious/wrong_crc.pth",
        "pickles/python2_0.pkl",
        "checkpoints/plain.pth",
        "nothing.pth",
        "hostile/gguf.pth",
    ];
    let output = torch2carton([&["scan", "--sarif"], files.as_slice()].concat());
    assert_eq!(output.status.code(), Some(1));
    let document: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    insta::assert_snapshot!(serde_json::to_string_pretty(&document).expect("it was JSON"));
    let output = torch2carton(["scan", "--sarif", "checkpoints/plain.pth"]);
    assert_eq!(output.status.code(), Some(0));
    let document: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(document["runs"][0]["results"], Value::Array(Vec::new()), "a clean file has no result");
    assert_eq!(torch2carton(["scan", "--sarif", "--json", "checkpoints/plain.pth"]).status.code(), Some(2));
}

#[test]
fn the_object_for_programs() {
    let files = ["malicious/getattr.pkl", "malicious/wrong_crc.pth", "malicious/nested_twice.pkl"];
    let output = torch2carton([&["scan", "--json"], files.as_slice()].concat());
    let lines = String::from_utf8(output.stdout).expect("UTF-8");
    let objects: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    insta::assert_snapshot!(serde_json::to_string_pretty(&objects).expect("it was JSON"));
}

#[test]
fn unreviewed_calls_stop_a_strict_conversion() {
    let scratch = tempfile::tempdir().expect("a temporary folder");
    let file = scratch.path().join("called.pkl");
    fs::write(&file, b"\x80\x02ctorch.nn.functional\nrelu\nK\x01\x85R.").expect("it can be written");
    let file = file.to_string_lossy();
    let output = torch2carton(["--deny-unknown", &file]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        String::from_utf8_lossy(&output.stderr).replace(&*file, "FILE"),
        "error: FILE: its pickle names `torch.nn.functional.relu` at offset 0x2, which is called: nobody has judged what \
         that runs; `torch2carton scan FILE` lists all that it names, and without --deny-unknown it is converted\n"
    );
    let scan = |args: &[&str]| torch2carton([&["scan", &*file], args].concat()).status.code();
    assert_eq!((scan(&[]), scan(&["--deny-unknown"])), (Some(1), Some(1)));
}

#[test]
fn dangerous_globals_stop_a_conversion() {
    let scratch = tempfile::tempdir().expect("a temporary folder");
    let target = scratch.path().join("out.carton").to_string_lossy().into_owned();
    let convert = |args: &[&str]| {
        let output = torch2carton([&["-o", target.as_str()], args].concat());
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), text)
    };
    let file = "hostile/os_system_beside.pth";
    let (code, text) = convert(&[file]);
    assert_eq!(code, Some(1));
    assert_eq!(
        text,
        "error: hostile/os_system_beside.pth: its pickle names `os.system` at offset 0x8d, which can run code \
         where Python loads it; `torch2carton scan hostile/os_system_beside.pth` shows what calls it, \
         --allow-dangerous converts without executing it\n"
    );
    let (code, text) = convert(&["--allow-dangerous", file]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("note: 1 dangerous global was recorded, not executed: os.system; "), "{text}");
    // inspect never refuses.
    assert_eq!(torch2carton(["inspect", file]).status.code(), Some(0));
}

#[test]
fn pickles_alone_have_a_verdict_of_their_own() {
    let folder = tempfile::tempdir().expect("the temporary folder is writable");
    let path = folder.path().join("model.pth");
    // A storage of 1 MB that begins with a pickle.
    let mut storage = vec![0; 1_000_000];
    storage.splice(0..0, *b"\x80\x02cos\nsystem\nX\x02\0\0\0id\x85R.");
    let pickle = b"\x80\x02}X\x01\0\0\0aK\x01s.".to_vec();
    let entries: [(&str, Vec<u8>); 3] =
        [("model/data.pkl", pickle), ("model/version", b"3\n".to_vec()), ("model/data/0", storage)];
    std::fs::write(&path, test_support::stored_zip(entries)).expect("it is written");
    let scan = |flags: &[&str]| {
        let path = path.to_str().expect("UTF-8");
        transcript(&torch2carton([&["scan"][..], flags, &[path]].concat())).replace(path, "model.pth")
    };
    insta::assert_snapshot!(scan(&["--pickles-only"]), @"
    model.pth: clean (zip, 1 pickle, 0 known globals)
      note       1 storage of 1000023 bytes, and what is between the records, were not searched for pickles, which PyTorch would not load
    ");
    assert!(scan(&[]).starts_with("model.pth: UNSAFE  calls os.system('id')"), "{}", scan(&[]));
    assert!(scan(&["--pickles-only", "--checksums"]).contains("cannot be used with"));
}

/// A pickle that names a class of an unknown package, and one that calls something that nobody has judged.
const UNKNOWN: &[u8] = b"\x80\x02cfarm.pigs\nPig\n)R.";
const UNREVIEWED: &[u8] = b"\x80\x02cfarm.pigs\nPig\nctorch.nn.functional\nrelu\nK\x01\x85R\x86.";

#[test]
fn a_policy_makes_named_unknowns_known_and_nothing_else() {
    let scratch = tempfile::tempdir().expect("a temporary folder");
    let root = scratch.path().to_string_lossy().into_owned();
    let write =
        |name: &str, bytes: &[u8]| fs::write(scratch.path().join(name), bytes).expect("it can be written");
    fs::create_dir(scratch.path().join("in")).expect("it can be made");
    write("in/unknown.pkl", UNKNOWN);
    write("unreviewed.pkl", UNREVIEWED);
    write("dangerous.pkl", b"\x80\x02cfarm.pigs\nPig\ncos\nsystem\n\x86.");
    write("irregular.pkl", &[UNKNOWN, b"\x80\x02N"].concat());
    let policy = "[[allow]]\npattern = \"farm.*\"\nreason = \"our own animals\"\ndate = 2026-11-29\n";
    write("policy.toml", policy.as_bytes());
    write("in/policy.toml", policy.as_bytes());
    write("wide.toml", policy.replace("farm.*", "*").as_bytes());
    write("silent.toml", policy.replace("our own animals", " ").as_bytes());
    write("undated.toml", policy.replace("date = 2026-11-29\n", "").as_bytes());
    let scan = |args: &[&str]| {
        let args = args.iter().map(|arg| arg.replace("ROOT", &root));
        let output = torch2carton(["scan".to_owned()].into_iter().chain(args));
        (output.status.code(), transcript(&output).replace(&root, "ROOT"))
    };
    let file = "ROOT/in/unknown.pkl";
    assert_eq!(scan(&[file]).0, Some(3));
    assert_eq!(scan(&["--allow", "cow.*", "--allow", "farm.pigs.*", file]).0, Some(0));
    assert_eq!(scan(&["--policy", "ROOT/policy.toml", "--deny-unknown", file]).0, Some(0));
    for other in ["unreviewed", "dangerous", "irregular"] {
        assert_eq!(
            scan(&["--policy", "ROOT/policy.toml", &format!("ROOT/{other}.pkl")]).0,
            Some(1),
            "{other}"
        );
    }
    let mut texts = scan(&["--policy", "ROOT/policy.toml", file]).1;
    texts += &scan(&["--policy", "ROOT/policy.toml", "--json", file]).1;
    for wrong in ["in/policy", "wide", "silent", "undated", "absent"] {
        let (code, text) = scan(&["--policy", &format!("ROOT/{wrong}.toml"), "ROOT/in"]);
        assert_eq!(code, Some(2), "{text}");
        texts += &text;
    }
    // A policy that nobody names is a file like any other.
    assert_eq!(scan(&["ROOT/in"]).0, Some(3));
    insta::assert_snapshot!(texts);
}

#[test]
fn findings_come_last_and_skipped_files_on_demand() {
    let scratch = tempfile::tempdir().expect("a temporary folder");
    let root = scratch.path().to_string_lossy().into_owned();
    let write =
        |name: &str, bytes: &[u8]| fs::write(scratch.path().join(name), bytes).expect("it can be written");
    write("a.pkl", UNREVIEWED);
    write("b.pkl", b"\x80\x02N.");
    write("c.txt", b"notes");
    write("d.safetensors", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n");
    write("e.bin", b"<!DOCTYPE html><title>404</title>");
    let scan =
        |args: &[&str]| transcript(&torch2carton([&["scan", &*root], args].concat())).replace(&root, "ROOT");
    let json = scan(&["--json"]);
    let of_text = |line: &&str| line.contains("c.txt");
    let skipped = json.lines().find(of_text).expect("it is listed").to_owned();
    insta::assert_snapshot!([scan(&[]), scan(&["-q"]), scan(&["--all"]), skipped].concat());
}

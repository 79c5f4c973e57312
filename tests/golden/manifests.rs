//! Manifests: `batch`, its results, and `--resume`.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value as Json, json};

use crate::carton_tools::{names, ok, run, scratch};
use crate::cli::output;
use crate::made::{dict, tensor, write_pth, write_safetensors};
use crate::outputs::program;
use crate::program::folder;

/// `a.pth` and `b.pth`, which can be converted, and `broken.pth`, which is cut short.
fn checkpoints(root: &Path) {
    write_pth(&root.join("a.pth"), &dict(&[("w", tensor(1))]));
    write_pth(&root.join("b.pth"), &dict(&[("w", tensor(2)), ("x.y", tensor(3))]));
    let cut = std::fs::read(folder().join("hostile/truncated.pth")).expect("it is checked in");
    std::fs::write(root.join("broken.pth"), cut).expect("a temporary folder");
}

fn manifest(root: &Path, lines: &[Json]) {
    let lines: Vec<String> = lines.iter().map(Json::to_string).collect();
    std::fs::write(root.join("m.jsonl"), lines.join("\n")).expect("a temporary folder");
}

fn lines(text: &str) -> Vec<Json> {
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn results(root: &Path) -> Vec<Json> {
    lines(&std::fs::read_to_string(root.join("r.jsonl")).expect("there are results"))
}

/// The members of results that are the same in each run, sorted by input.
fn stable(mut results: Vec<Json>) -> Vec<Json> {
    results.sort_by_key(|line| line["input"].as_str().map(str::to_owned));
    for line in &mut results {
        let line = line.as_object_mut().expect("an object");
        assert!(line.remove("seconds").is_some_and(|seconds| seconds.as_f64() > Some(0.0)));
        assert!(
            line.remove("made_from").is_some_and(|hash| hash.as_str().is_none_or(|hash| hash.len() == 64))
        );
        line.remove("files");
    }
    results
}

const CONVERT: &[&str] = &["batch", "m.jsonl", "-o", "out", "--to", "safetensors", "--results", "r.jsonl"];

fn resume(root: &Path, more: &[&str]) -> (Option<i32>, String) {
    run(root, &[CONVERT, &["--resume"], more].concat())
}

#[test]
fn each_input_has_a_result() {
    let scratch = scratch();
    let root = scratch.path();
    checkpoints(root);
    let own = json!({"input": "b.pth", "output": "own/b.pth", "options": {"include": ["x.*"], "to": "pth"}});
    manifest(
        root,
        &[json!({"input": "a.pth"}), json!({"input": "broken.pth"}), own, json!({"input": "missing.pth"})],
    );
    let (status, text) = run(root, CONVERT);
    assert_eq!(status, Some(1), "{text}");
    assert!(text.ends_with("\n2 ok, 2 failed\nexit status 1\n"), "{text}");
    assert_eq!(text.lines().filter(|line| line.starts_with("error: ")).count(), 2, "{text}");
    assert_eq!(names(&root.join("out")), ["a.safetensors"]);
    let digest = |args: &[&str]| ok(root, &[&["digest"], args].concat())[..64].to_owned();
    let len = |path: &str| root.join(path).metadata().expect("it is there").len();
    let found = stable(results(root));
    let [a, b, broken, missing] = found.as_slice() else { panic!("{found:?}") };
    let whole = json!({
        "schema_version": 1, "input": "a.pth", "status": "ok", "error": null, "code": null, "digest": digest(&["a.pth"]),
        "output": "out/a.safetensors", "bytes": len("a.pth"), "tensors": 1, "repeated_bytes": 0,
    });
    assert_eq!(a, &whole);
    assert_eq!(b["digest"], digest(&["b.pth", "--include", "x.*"]));
    assert_eq!(digest(&["own/b.pth"]), digest(&["b.pth", "--include", "x.*"]));
    assert_eq!((&b["output"], &b["tensors"]), (&json!("own/b.pth"), &json!(1)));
    assert_eq!((&broken["code"], &missing["code"]), (&json!("damaged"), &json!("io")));
    assert_eq!((&broken["bytes"], &missing["bytes"]), (&json!(len("broken.pth")), &json!(0)));
    assert!(broken["error"].as_str().is_some_and(|text| text.starts_with("broken.pth: ")), "{broken}");
}

#[test]
fn results_of_all_tasks_go_to_standard_output() {
    let scratch = scratch();
    let root = scratch.path();
    checkpoints(root);
    std::fs::write(root.join("evil.pkl"), b"cos\nsystem\n(Vls\ntR.").expect("a temporary folder");
    manifest(root, &["a.pth", "b.pth", "evil.pkl"].map(|input| json!({ "input": input })));
    let (status, stdout, stderr) = output(root, &["batch", "m.jsonl", "--task", "scan", "--jobs", "1"]);
    assert_eq!((status, stderr.as_str()), (Some(0), "3 ok, 0 failed\n"));
    let verdicts: Vec<Json> = lines(&stdout).into_iter().map(|line| line["verdict"].clone()).collect();
    assert_eq!(verdicts, ["clean", "clean", "unsafe"]);
    // What is not a checkpoint has that verdict, and fails, so that a wrong path is noticed.
    std::fs::write(root.join("a.txt"), b"a text").expect("a temporary folder");
    std::fs::write(root.join("other.jsonl"), r#"{"input": "a.txt"}"#).expect("a temporary folder");
    let (status, stdout, _) = output(root, &["batch", "other.jsonl", "--task", "scan", "-q"]);
    let found = lines(&stdout);
    assert_eq!(
        (status, &found[0]["verdict"], &found[0]["code"]),
        (Some(1), &json!("not_a_checkpoint"), &json!("input"))
    );
    // A file without tensors can be listed, and has no digest of its own.
    for (task, expected, of_none) in [("inspect", 0, json!(0)), ("digest", 1, Json::Null)] {
        let (status, stdout, _) = output(root, &["batch", "m.jsonl", "--task", task, "--jobs", "1", "-q"]);
        assert_eq!(status, Some(expected), "{task}");
        let found = lines(&stdout);
        let tensors: Vec<&Json> = found.iter().map(|line| &line["tensors"]).collect();
        assert_eq!(tensors, [&json!(1), &json!(2), &of_none]);
        assert!(ok(root, &["digest", "b.pth"]).starts_with(found[1]["digest"].as_str().expect("a digest")));
    }
    let (_, stdout, _) = output(root, &["batch", "m.jsonl", "--task", "inspect", "--no-digest", "-q"]);
    assert!(lines(&stdout).iter().all(|line| line["digest"].is_null()));
}

#[test]
fn a_wrong_line_stops_a_batch_before_it_starts() {
    let scratch = scratch();
    let root = scratch.path();
    checkpoints(root);
    let wrong = |second: Json, expected: &str| {
        manifest(root, &[json!({"input": "a.pth"}), second]);
        let (status, text) = run(root, &["batch", "m.jsonl"]);
        assert_eq!(status, Some(2), "{text}");
        assert_eq!(text, format!("error: m.jsonl, line 2: {expected}\nexit status 2\n"));
    };
    wrong(
        json!({"input": "./a.pth"}),
        "the input ./a.pth is already in line 1; name it once, and use several manifests for several outputs",
    );
    wrong(
        json!({"input": "a.pt"}),
        "the output a.carton is already that of line 1; give one of them another `output`",
    );
    wrong(
        json!({"input": "b.pth", "output": "./a.carton"}),
        "the output ./a.carton is already that of line 1; give one of them another `output`",
    );
    wrong(
        json!({"input": "b.pth", "ouput": "x"}),
        "expected an object with `input`, found an error at column 24: unknown field `ouput`, expected one of `input`, `output`, `options`",
    );
    wrong(json!({"input": "b.pth", "options": {"jobs": 1}}), "there is no option `jobs`");
    wrong(json!({"input": "b.pth", "options": {"dtyp": "x"}}), "there is no option `dtyp`");
    assert_eq!(names(root), ["a.pth", "b.pth", "broken.pth", "m.jsonl"]);
    manifest(root, &[json!({"input": "a.pth", "output": "x"})]);
    let (status, text) = run(root, &["batch", "m.jsonl", "--task", "scan"]);
    assert_eq!(status, Some(2));
    assert!(text.contains("line 1: `output` is for conversions, and this task writes no file"), "{text}");
}

#[test]
fn a_batch_reads_standard_input_as_it_comes() {
    let scratch = scratch();
    let root = scratch.path();
    checkpoints(root);
    let mut child = Command::new(env!("CARGO_BIN_EXE_torch2carton"))
        .args(["batch", "-", "--task", "digest", "-q"])
        .current_dir(root)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program was built for this test");
    let mut queue = child.stdin.take().expect("a pipe");
    let mut answers = std::io::BufReader::new(child.stdout.take().expect("a pipe"));
    for input in ["a.pth", "b.pth"] {
        writeln!(queue, "{}", json!({ "input": input })).expect("it reads");
        let mut line = String::new();
        std::io::BufRead::read_line(&mut answers, &mut line).expect("it answers");
        assert_eq!(lines(&line)[0]["input"], input);
    }
    writeln!(queue, "{}", json!({ "input": "a.pth" })).expect("it reads");
    drop(queue);
    let ended = child.wait_with_output().expect("it ends");
    assert_eq!(ended.status.code(), Some(2));
    assert!(
        String::from_utf8_lossy(&ended.stderr)
            .contains("standard input, line 3: the input a.pth is already in line 1")
    );
}

#[test]
fn a_batch_goes_on_where_it_ended() {
    let scratch = scratch();
    let root = scratch.path();
    checkpoints(root);
    let all = ["a.pth", "b.pth", "broken.pth", "missing.pth"].map(|input| json!({ "input": input }));
    manifest(root, &all[..3]);
    assert_eq!(resume(root, &[]).0, Some(1));
    let before = results(root);
    let (status, text) = run(root, CONVERT);
    assert_eq!(status, Some(2));
    assert!(
        text.contains("r.jsonl has the results of an earlier batch; --resume goes on from them"),
        "{text}"
    );
    let kept = |text: &str, count: usize, what: &str| {
        assert!(text.contains(&format!(", {count} of them from before\n")), "{what}: {text}");
        let inputs = stable(results(root)).into_iter().map(|line| line["input"].clone()).collect::<Vec<_>>();
        assert_eq!(inputs.len(), 3, "{what}: {inputs:?}");
    };
    kept(&resume(root, &[]).1, 3, "nothing changed");
    assert_eq!(results(root), before);
    kept(&resume(root, &["--checksum"]).1, 3, "nothing changed, and all is read");
    std::fs::remove_file(root.join("out/a.safetensors")).expect("it was made");
    kept(&resume(root, &[]).1, 2, "an output is gone");
    write_pth(&root.join("b.pth"), &dict(&[("w", tensor(4)), ("x.y", tensor(3))]));
    kept(&resume(root, &[]).1, 2, "an input has other content");
    assert_ne!(stable(results(root))[1]["digest"], stable(before)[1]["digest"]);
    std::fs::copy(root.join("a.pth"), root.join("broken.pth")).expect("they are there");
    let (status, text) = resume(root, &[]);
    assert_eq!(status, Some(0), "{text}");
    kept(&text, 2, "a failed input has other content");
    // A truncated line, and the line of an input that has since left the manifest.
    manifest(root, &all[..2]);
    let mut file =
        std::fs::File::options().append(true).open(root.join("r.jsonl")).expect("there are results");
    file.write_all(b"{\"input\":\"b.p").expect("it can be written");
    let (status, text) = resume(root, &[]);
    assert_eq!(status, Some(0), "{text}");
    assert_eq!(stable(results(root)).len(), 2);
    // Other options, or another task, are other results.
    let (_, text) = resume(root, &["--", "--dtype", "float16"]);
    assert!(text.contains(", 0 of them from before\n"), "{text}");
    let (_, text) = run(root, &["batch", "m.jsonl", "--task", "digest", "--results", "r.jsonl", "--resume"]);
    assert!(text.contains(", 0 of them from before\n"), "{text}");
    assert_eq!(results(root).len(), 2);
    // A failure of the system is tried again.
    manifest(root, &all);
    for _ in 0..2 {
        let (status, text) = resume(root, &[]);
        assert_eq!(status, Some(1));
        assert!(text.contains("error: there is no file missing.pth"), "{text}");
    }
    std::fs::write(root.join("r.jsonl"), "not JSON\n").expect("it can be written");
    let (status, text) = resume(root, &[]);
    assert_eq!(status, Some(2));
    assert!(text.contains("r.jsonl, line 1: it is not a result of a batch"), "{text}");
    assert_eq!(std::fs::read_to_string(root.join("r.jsonl")).expect("it is there"), "not JSON\n");
}

/// The files of a folder, with their lengths.
fn sizes(folder: &Path) -> Vec<(String, u64)> {
    let len = |name: String| (name.clone(), folder.join(name).metadata().expect("it is there").len());
    names(folder).into_iter().map(len).collect()
}

#[test]
fn equal_files_of_cartons_are_stored_once() {
    let scratch = scratch();
    let root = scratch.path();
    write_pth(&root.join("a.pth"), &dict(&[("w", tensor(8192))]));
    write_pth(&root.join("b.pth"), &dict(&[("w", tensor(8192)), ("x", tensor(10_000))]));
    std::fs::copy(root.join("a.pth"), root.join("c.pth")).expect("a temporary folder");
    manifest(root, &["a.pth", "b.pth", "c.pth"].map(|input| json!({ "input": input })));
    let base = ["--blobs", "blobs", "--base", "https://example.org/x/"];
    let command = [&["batch", "m.jsonl", "-o", "out", "--results", "r.jsonl", "-q"][..], &base].concat();
    let resumed = [&command[..], &["--resume"]].concat();
    ok(root, &command);
    // The module of `a` and `c` is one blob, and that of `b` is another.
    let blobs = sizes(&root.join("blobs"));
    assert!(
        blobs.len() >= 2 && blobs.iter().all(|(name, len)| name.len() == 64 && *len >= 4096),
        "{blobs:?}"
    );
    ok(root, &["batch", "m.jsonl", "-o", "whole", "-q"]);
    for name in ["a", "b", "c"] {
        let (small, whole) = (format!("out/{name}.carton"), format!("whole/{name}.carton"));
        assert!(
            root.join(&small).metadata().expect("it is there").len()
                < root.join(&whole).metadata().expect("it is there").len()
        );
        let shrunk = format!("shrunk/{name}.carton");
        std::fs::create_dir_all(root.join("shrunk")).expect("a temporary folder");
        ok(root, &["shrink", &whole, "--base", "https://example.org/x", "--blobs", "other", "-o", &shrunk]);
        let read = |path: &str| std::fs::read(root.join(path)).expect("it is there");
        assert_eq!(read(&small), read(&shrunk), "it is what `shrink` makes");
    }
    assert_eq!(sizes(&root.join("other")), blobs);

    let times = || sizes_and_times(&root.join("out"));
    let before = times();
    ok(root, &resumed);
    assert_eq!(times(), before, "nothing is missing");
    let (gone, _) = blobs.first().expect("a blob");
    std::fs::remove_file(root.join("blobs").join(gone)).expect("it is there");
    ok(root, &resumed);
    assert_ne!(times(), before);
    assert_eq!(sizes(&root.join("blobs")), blobs);
    std::fs::write(root.join("blobs").join(gone), "damaged").expect("it is there");
    let before = times();
    ok(root, &resumed);
    assert_eq!(times(), before, "only --checksum reads a blob");
    let (status, text) = run(root, &[&resumed[..], &["--checksum"]].concat());
    assert_eq!(status, Some(1), "{text}");
    assert!(text.contains("is damaged") || text.contains("bytes"), "{text}");

    let refused = |words: &[&str]| {
        let (status, text) = run(root, words);
        assert_eq!(status, Some(2), "{text}");
        text
    };
    let text = refused(&[&["batch", "m.jsonl", "--to", "pth"][..], &base].concat());
    assert!(text.contains("--blobs is for cartons, and this output is none"), "{text}");
    let text = refused(&["batch", "m.jsonl", "--blobs", "blobs", "--base", "ftp://example.org"]);
    assert!(text.contains("--base"), "{text}");
}

/// The files of a folder, with their lengths and the times of their last change.
fn sizes_and_times(folder: &Path) -> Vec<(String, u64, std::time::SystemTime)> {
    let time = |name: &str| folder.join(name).metadata().and_then(|metadata| metadata.modified());
    sizes(folder).into_iter().map(|(name, len)| (name.clone(), len, time(&name).expect("a time"))).collect()
}

#[test]
fn repeated_tensors_are_counted() {
    let scratch = scratch();
    let root = scratch.path();
    write_pth(&root.join("a.pth"), &dict(&[("w", tensor(8192)), ("small", tensor(4095))]));
    write_pth(&root.join("b.pth"), &dict(&[("other", tensor(8192)), ("small", tensor(4095))]));
    manifest(root, &["a.pth", "b.pth"].map(|input| json!({ "input": input })));
    let digest = ["batch", "m.jsonl", "--task", "digest", "--jobs", "1"];
    let (status, stdout, stderr) = output(root, &digest);
    assert_eq!((status, stderr.as_str()), (Some(0), "2 ok, 0 failed; 8.2 kB of tensors are repeated\n"));
    let repeated: Vec<Json> = lines(&stdout).into_iter().map(|line| line["repeated_bytes"].clone()).collect();
    assert_eq!(repeated, [0, 8192]);
    let (_, stdout, _) = output(root, &["batch", "m.jsonl", "--task", "scan", "--no-digest"]);
    assert!(lines(&stdout).iter().all(|line| line.get("repeated_bytes").is_none()));
}

#[test]
fn the_parts_of_a_manifest_are_the_whole() {
    let scratch = scratch();
    let root = scratch.path();
    let inputs: Vec<String> = (0..10).map(|number| format!("{number}.pth")).collect();
    for input in &inputs {
        write_pth(&root.join(input), &dict(&[("w", tensor(1))]));
    }
    manifest(root, &inputs.iter().map(|input| json!({ "input": input })).collect::<Vec<_>>());
    let mut found: Vec<Json> = Vec::new();
    for shard in ["0/3", "1/3", "2/3"] {
        let (status, stdout, _) =
            output(root, &["batch", "m.jsonl", "--task", "digest", "--shard", shard, "-q"]);
        assert_eq!(status, Some(0));
        assert!((3..=4).contains(&stdout.lines().count()));
        found.extend(lines(&stdout));
    }
    found.sort_by_key(|line| line["input"].to_string());
    assert!(found.iter().map(|line| line["input"].as_str().expect("a path")).eq(&inputs));
    assert_eq!(run(root, &["batch", "m.jsonl", "--shard", "3/3"]).0, Some(2));
}

#[test]
fn the_folder_of_the_results_is_created() {
    let scratch = scratch();
    let root = scratch.path();
    checkpoints(root);
    manifest(root, &[json!({"input": "a.pth"})]);
    ok(root, &["batch", "m.jsonl", "-q", "--task", "scan", "--results", "new/deep/r.jsonl"]);
    assert!(root.join("new/deep/r.jsonl").is_file());
}

/// Whatever moment `kill -9` comes at, the next run goes on: each input has one result, and each output is what `--each` writes.
#[test]
fn a_killed_batch_goes_on() {
    let scratch = scratch();
    let root = scratch.path();
    let inputs: Vec<String> = (100..160).map(|number| format!("{number}.safetensors")).collect();
    for (number, input) in (1..).zip(&inputs) {
        write_safetensors(&root.join(input), &[], &[("w", &[number * 5000])]);
    }
    std::fs::write(root.join(&inputs[7]), b"cposix\nsystem\n(Vtouch hit\ntR.").expect("a temporary folder");
    manifest(root, &inputs.iter().map(|input| json!({ "input": input })).collect::<Vec<_>>());
    let each: Vec<&str> = inputs.iter().map(String::as_str).collect();
    run(root, &[&["--each", "--to", "safetensors", "-o", "each", "-q"], &each[..]].concat());
    let read = |folder: &str, name: &String| std::fs::read(root.join(folder).join(name));
    let is_whole =
        |name: &String| read("out", name).is_ok_and(|found| found == read("each", name).expect("an output"));
    for millis in [5, 10, 20, 40, 80] {
        let command = [CONVERT, &["--resume", "-q", "--jobs", "1"]].concat();
        let mut running = program(root, &command).spawn().expect("it was built");
        std::thread::sleep(Duration::from_millis(millis));
        running.kill().expect("it was started");
        running.wait().expect("it was started");
        let outputs = if root.join("out").exists() { names(&root.join("out")) } else { Vec::default() };
        assert!(outputs.iter().filter(|name| !name.starts_with('.')).all(is_whole), "{outputs:?}");
    }
    assert_eq!(resume(root, &["-q"]).0, Some(1));
    let found = stable(results(root));
    assert!(found.iter().map(|line| line["input"].as_str().expect("a path")).eq(&inputs));
    assert!(found.iter().enumerate().all(|(number, line)| (line["status"] == "failed") == (number == 7)));
    assert_eq!(names(&root.join("out")), [&inputs[..7], &inputs[8..]].concat(), "and no temporary file");
    assert!(names(&root.join("out")).iter().all(is_whole) && !root.join("hit").exists());
}

#[cfg(target_os = "linux")]
#[test]
fn what_a_killed_process_left_is_removed_by_the_next_run() {
    let scratch = scratch();
    let root = scratch.path();
    checkpoints(root);
    manifest(root, &[json!({"input": "a.pth"}), json!({"input": "b.pth", "output": "other/b.safetensors"})]);
    let all = ["a.safetensors", "b.safetensors"];
    let left = || ["out", "other"].map(|folder| names(&root.join(folder)));
    assert_eq!(resume(root, &[]).0, Some(0));
    for folder in ["out", "other"] {
        std::fs::write(root.join(folder).join(".torch2carton-left.partial"), b"x")
            .expect("a temporary folder");
    }
    // All results are kept.
    assert_eq!(resume(root, &[]).0, Some(0));
    assert_eq!(left(), all.map(|name| vec![name.to_owned()]));
}

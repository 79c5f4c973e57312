//! Many checkpoints in one command: `--each`.

use serde_json::Value as Json;
use std::path::Path;

use crate::carton_tools::{names, ok, refused, run, scratch, write};
use crate::cli::output;
use crate::made::{dict, tensor, write_pth};
use crate::program::folder;

/// `a.pth` and `b.pth`, which can be converted, and `broken.pth`, which is cut short.
pub(crate) fn checkpoints(root: &Path) {
    write_pth(&root.join("a.pth"), &dict(&[("w", tensor(1))]));
    write_pth(&root.join("b.pth"), &dict(&[("w", tensor(2))]));
    let cut = std::fs::read(folder().join("hostile/truncated.pth")).expect("it is checked in");
    std::fs::write(root.join("broken.pth"), cut).expect("a temporary folder");
}

#[test]
fn a_failure_does_not_stop_the_others() {
    let scratch = scratch();
    let root = scratch.path();
    checkpoints(root);
    let (status, text) = run(root, &["--each", "a.pth", "broken.pth", "b.pth", "-o", "out"]);
    assert_eq!(status, Some(1), "{text}");
    assert_eq!(names(&root.join("out")), [".torch2carton.outputs", "a.carton", "b.carton"]);
    assert!(text.contains("error: broken.pth: "), "{text}");
    assert!(text.contains("\n2 converted, 1 failed\n"), "{text}");
    assert!(text.contains("out/a.carton\n") && text.contains("out/b.carton\n"), "{text}");
    ok(root, &["verify", "out/b.carton", "--against", "b.pth", "-q"]);
    // Without an output, each is next to its checkpoint.
    let (status, text) = run(root, &["-q", "--each", "broken.pth", "a.pth", "missing.pth"]);
    assert_eq!(status, Some(1), "{text}");
    assert_eq!(text.lines().filter(|line| line.starts_with("error: ")).count(), 2, "{text}");
    assert_eq!(names(root), [".torch2carton.outputs", "a.carton", "a.pth", "b.pth", "broken.pth", "out"]);
    let text = ok(root, &["--each", "a.pth", "b.pth"]);
    assert!(text.ends_with("\n2 converted, 0 failed\n"), "{text}");
}

#[test]
fn a_pipeline_stays_one() {
    let scratch = scratch();
    let root = scratch.path();
    let index = r#"{"_class_name": "P", "unet": ["diffusers", "U"], "text": ["transformers", "T"]}"#;
    write(root.join("p/model_index.json"), index);
    write(root.join("p/unet/config.json"), r#"{"_class_name": "U", "_diffusers_version": "0.42"}"#);
    write(root.join("p/text/config.json"), r#"{"model_type": "clip_text_model", "vocab_size": 9}"#);
    write(root.join("p/scheduler/scheduler_config.json"), "{}");
    write(root.join("p/scheduler/scheduler.py"), "");
    write(root.join("p/.cache/x.json"), "");
    for name in ["unet/diffusion_pytorch_model", "unet/diffusion_pytorch_model.fp16", "text/pytorch_model"] {
        write_pth(&root.join(format!("p/{name}.bin")), &dict(&[("w", tensor(1))]));
    }
    let text = refused(root, &["p", "-o", "out", "--to", "safetensors"]);
    assert!(text.contains("run `torch2carton --each p --to safetensors -o p-safetensors`"), "{text}");
    let text = ok(root, &["--each", "p", "--to", "safetensors", "-o", "out"]);
    assert!(text.contains("note: left out of the pipeline: scheduler/scheduler.py\n"), "{text}");
    assert!(text.contains("  files     scheduler/scheduler_config.json, model_index.json\n"), "{text}");
    assert_eq!(
        names(&root.join("out")),
        [".torch2carton.outputs", "model_index.json", "scheduler", "text", "unet"]
    );
    assert_eq!(names(&root.join("out/text")), ["config.json", "model.safetensors"]);
    let unet = [
        ".torch2carton.outputs",
        "config.json",
        "diffusion_pytorch_model.fp16.safetensors",
        "diffusion_pytorch_model.safetensors",
    ];
    assert_eq!(names(&root.join("out/unet")), unet);
    // A pipeline that lacks a model is none.
    write(root.join("p/vae/diffusion_pytorch_model.bin"), "");
    let (status, text) = run(root, &["--each", "p", "--to", "safetensors", "-o", "again"]);
    assert_eq!(status, Some(1), "{text}");
    assert!(!root.join("again/model_index.json").exists(), "{text}");
    // Elsewhere, it is one of several, and other formats have files.
    ok(root, &["--each", "-q", "p/unet", "p/text", "--to", "pth", "-o", "files"]);
}

#[test]
fn results_for_programs_are_on_standard_output() {
    let scratch = scratch();
    let root = scratch.path();
    checkpoints(root);
    let (status, stdout, stderr) = output(root, &["--each", "--json", "-q", "a.pth", "broken.pth", "b.pth"]);
    assert_eq!(status, Some(1));
    let outputs: Vec<Json> = stdout
        .lines()
        .map(|line| serde_json::from_str::<Json>(line).expect("JSON")["output"].clone())
        .collect();
    assert_eq!(outputs, [Json::from("a.carton"), Json::Null, Json::from("b.carton")]);
    let failed: Json = serde_json::from_str(stdout.lines().nth(1).expect("three lines")).expect("JSON");
    assert_eq!(failed["file"], "broken.pth");
    assert!(failed["error"].as_str().is_some_and(|text| text.contains("broken.pth")), "{failed}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
}

#[test]
fn what_is_given_twice_is_converted_once() {
    let scratch = scratch();
    let root = scratch.path();
    checkpoints(root);
    let (status, stdout, stderr) =
        output(root, &["--each", "-q", "a.pth", "./a.pth", "b.pth", "-o", "out", "--results", "-"]);
    assert_eq!(status, Some(1));
    assert_eq!(stderr, "error: ./a.pth is given twice; it is converted once\n");
    let lines: Vec<Json> =
        stdout.lines().map(|line| serde_json::from_str(line).expect("an object")).collect();
    let status: Vec<_> = lines.iter().map(|line| line["status"].as_str().unwrap_or_default()).collect();
    assert_eq!(status, ["ok", "failed", "ok"]);
    // Two files in one folder whose names differ in the extension alone keep it.
    std::fs::copy(root.join("a.pth"), root.join("a.pt")).expect("it can be copied");
    let (status, text) = run(root, &["--each", "-q", "a.pth", "a.pt", "b.pth", "./a.pt", "-o", "again"]);
    assert_eq!(
        (status, text.lines().next()),
        (Some(1), Some("error: ./a.pt is given twice; it is converted once"))
    );
    assert_eq!(
        names(&root.join("again")),
        [".torch2carton.outputs", "a.pt.carton", "a.pth.carton", "b.carton"]
    );
    ok(root, &["--each", "-q", "a.pth", "a.pt"]);
    assert!(root.join("a.pth.carton").is_file() && root.join("a.pt.carton").is_file());
    let (status, text) = run(root, &["--each", "--files-from", "list"]);
    assert_eq!(status, Some(1));
    assert!(text.starts_with("error: cannot read list: No such file"), "{text}");
}

#[test]
fn checkpoints_with_one_name_keep_their_folders() {
    let scratch = scratch();
    let root = scratch.path();
    for (path, len) in [("x/1/model.pth", 1), ("x/2/model.pth", 2), ("y/3/model.pth", 3), ("y/other.pth", 4)]
    {
        write_pth(&root.join(path), &dict(&[("w", tensor(len))]));
    }
    let inputs = ["x/1/model.pth", "x/2/model.pth", "y/3/model.pth", "y/other.pth"];
    ok(root, &[&["--each", "-q", "-o", "out"], &inputs[..]].concat());
    for output in ["x/1/model.carton", "x/2/model.carton", "y/3/model.carton", "other.carton"] {
        assert!(root.join("out").join(output).is_file(), "{output}");
    }
    // Models in a repository have the names of their folders. A conflict stops only the second checkpoint.
    for path in ["x/llama", "y/llama", "y/other"] {
        for name in ["consolidated.00.pth", "params.json"] {
            let from = folder().join("checkpoints/llama_tiny").join(name);
            write(root.join(path).join(name), std::fs::read(from).expect("it is checked in"));
        }
    }
    let args = ["--each", "--to", "triton", "-o", "models", "x/llama", "y/llama", "y/other"];
    let (status, text) = run(root, &args);
    assert_eq!(status, Some(1), "{text}");
    assert!(
        text.contains(
            "error: x/llama and y/llama would both become models/llama; convert one of them alone, with"
        ),
        "{text}"
    );
    assert!(text.contains("2 converted, 1 failed"), "{text}");
}

#[test]
fn folders_and_lists_of_files_are_inputs() {
    let scratch = scratch();
    let root = scratch.path();
    for path in ["runs/a/last.pth", "runs/b/c/best.pth", "runs/b/c/last.pth", "alone.pth"] {
        write_pth(&root.join(path), &dict(&[("w", tensor(2))]));
    }
    std::fs::write(root.join("runs/notes.txt"), "hello").expect("a temporary folder");
    std::fs::write(root.join("list"), "alone.pth\nruns\n").expect("a temporary folder");
    std::fs::write(root.join("list0"), b"alone.pth\0runs/a/last.pth\0").expect("a temporary folder");
    ok(root, &["--each", "-q", "-o", "out", "--files-from", "list", "--jobs", "3"]);
    assert!(root.join("out/alone.carton").is_file() && root.join("out/runs/b/c/best.carton").is_file());
    let text = ok(root, &["--each", "-o", "two", "--files-from", "list0", "--results", "new/results.jsonl"]);
    assert!(text.contains("2 converted, 0 failed"), "{text}");
    let results = std::fs::read_to_string(root.join("new/results.jsonl")).expect("it was written");
    let files: Vec<_> = results
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).expect("an object")["file"].clone())
        .collect();
    assert_eq!(files, ["alone.pth", "runs/a/last.pth"]);
    // The name of an output does not depend on what else is in the folder.
    ok(root, &["--each", "-q", "-o", "four", "runs/a"]);
    write_pth(&root.join("runs/a/other.pth"), &dict(&[("w", tensor(2))]));
    ok(root, &["--each", "-q", "-o", "five", "runs/a"]);
    assert!(root.join("four/last.carton").is_file() && root.join("five/last.carton").is_file());
    std::fs::remove_file(root.join("runs/a/other.pth")).expect("it was written");
    // A folder that was found with one file is not a model that lacks a configuration.
    let text = ok(root, &["--each", "--to", "safetensors", "-o", "three", "runs"]);
    assert!(text.contains("3 converted, 0 failed") && !text.contains("note"), "{text}");
    let (status, text) = run(root, &["--each", "-o", "none", "--files-from", "/dev/null"]);
    assert_eq!((status, text.contains("the list has no files")), (Some(2), true), "{text}");
}

#[test]
fn each_file_of_a_folder_is_a_checkpoint_unless_names_say_otherwise() {
    let scratch = scratch();
    let root = scratch.path();
    let weights = dict(&[("w", tensor(2))]);
    for name in ["a.pth", "b.pt", "c.ckpt", "d.bin", "sub/e.pth", "hf/pytorch_model.bin", "hf/f.pth"] {
        write_pth(&root.join("downloads").join(name), &weights);
    }
    write(root.join("downloads/hf/config.json"), "{}");
    write(root.join("downloads/g.safetensors"), "not one");
    write_pth(&root.join("downloads/sub/h.weights"), &weights);
    let (status, text) = run(root, &["--each", "downloads", "-o", "out", "--to", "safetensors"]);
    assert_eq!(status, Some(1), "{text}");
    assert!(
        text.contains("7 converted, 1 failed") && text.contains("error: downloads/g.safetensors: "),
        "{text}"
    );
    assert!(text.contains("note: downloads/hf: f.pth is not used"), "{text}");
    let left_out = "note: left out because of its name: downloads/sub/h.weights; `torch2carton downloads/sub/h.weights` converts one\n";
    assert!(text.contains(left_out), "{text}");
    for output in ["a", "b", "c", "d", "hf/f", "sub/e"] {
        assert!(root.join(format!("out/{output}.safetensors")).is_file(), "{output}: {text}");
    }
    assert!(root.join("out/hf-safetensors/model.safetensors").is_file(), "{text}");
    let (status, text) = run(root, &["downloads", "-o", "one.safetensors"]);
    assert_eq!(status, Some(1), "{text}");
    assert!(text.starts_with("error: downloads contains 5 checkpoints; run one of "), "{text}");
}

#[test]
fn each_checkpoint_below_a_model_is_converted_and_no_output_is() {
    let scratch = scratch();
    let root = scratch.path();
    let weights = dict(&[("w", tensor(2))]);
    for name in ["run/model.bin", "run/checkpoint-5/model.bin", "run/checkpoint-10/model.bin"] {
        write_pth(&root.join(name), &weights);
        write(root.join(name).with_file_name("config.json"), "{}");
    }
    let text = ok(root, &["--each", "run", "-o", "out", "--to", "safetensors"]);
    assert!(text.ends_with("\n3 converted, 0 failed\n"), "{text}");
    // Outputs next to the inputs, or below them, are no inputs of the next run.
    for output in [&["-o", "run/out"][..], &[]] {
        for _ in 0..2 {
            let command = [&["--each", "run", "--to", "safetensors"], output].concat();
            let text = ok(root, &command);
            assert!(text.ends_with("\n3 converted, 0 failed\n"), "{text}");
        }
    }
    // A distributed checkpoint is not what a folder with others stands for.
    write(root.join("mixed/ranks/__0_0.distcp"), "x");
    write_pth(&root.join("mixed/other/a.pth"), &weights);
    let (status, text) = run(root, &["--each", "mixed", "-o", "mixed-out"]);
    assert_eq!(status, Some(1), "{text}");
    assert!(
        text.contains("mixed/ranks is not complete") && text.contains("\n1 converted, 1 failed\n"),
        "{text}"
    );
    write(root.join("mixed/ranks/.metadata"), "x");
    let text = refused(root, &["mixed", "-o", "x.carton"]);
    assert!(text.contains("`torch2carton mixed/other`, `torch2carton mixed/ranks`"), "{text}");
}

#[test]
fn results_keep_the_order_of_the_inputs() {
    let scratch = scratch();
    let root = scratch.path();
    let names: Vec<String> = (0..40).map(|number| format!("n{number}.pth")).collect();
    for name in &names {
        write_pth(&root.join(name), &dict(&[("w", tensor(2))]));
    }
    std::fs::write(root.join("n7.pth"), b"not a checkpoint").expect("it can be written");
    let inputs: Vec<&str> = names.iter().map(String::as_str).collect();
    let (status, text) =
        run(root, &[&["convert", "--each", "--json", "-o", "out", "--jobs", "8"], &inputs[..]].concat());
    assert_eq!(status, Some(1), "{text}");
    let objects = text.lines().filter(|line| line.starts_with('{'));
    let files: Vec<String> = objects
        .map(|line| {
            serde_json::from_str::<serde_json::Value>(line).expect("an object")["file"]
                .as_str()
                .unwrap_or_default()
                .to_owned()
        })
        .collect();
    assert_eq!(files, names);
}

#[test]
fn the_folder_for_cartons_is_created() {
    let scratch = scratch();
    let root = scratch.path();
    checkpoints(root);
    ok(root, &["--each", "a.pth", "-o", "new", "-q"]);
    ok(root, &["--each", "b.pth", "-o", "new/", "-q"]);
    assert_eq!(names(&root.join("new")), [".torch2carton.outputs", "a.carton", "b.carton"]);
    // A file cannot be the folder.
    let (status, text) = run(root, &["--each", "a.pth", "-o", "b.pth"]);
    assert!(matches!(status, Some(1 | 2)), "{text}");
    assert!(text.contains("b.pth"), "{text}");
}

#[test]
fn nested_folders_for_cartons_are_created() {
    let scratch = scratch();
    let root = scratch.path();
    checkpoints(root);
    ok(root, &["--each", "a.pth", "-o", "x/y/z", "-q"]);
    assert_eq!(names(&root.join("x/y/z")), [".torch2carton.outputs", "a.carton"]);
}

#[test]
fn a_dry_run_creates_no_folder() {
    let scratch = scratch();
    let root = scratch.path();
    checkpoints(root);
    let text = ok(root, &["--each", "--dry-run", "a.pth", "b.pth", "-o", "out"]);
    assert!(text.contains("out/a.carton\n") && text.contains("out/b.carton\n"), "{text}");
    assert!(!root.join("out").exists());
}

#[test]
fn several_files_without_each_are_one_checkpoint() {
    let scratch = scratch();
    let root = scratch.path();
    checkpoints(root);
    let (status, text) = run(root, &["a.pth", "b.pth"]);
    assert_eq!(status, Some(2), "{text}");
    assert!(text.contains("`torch2carton --each a.pth b.pth`"), "{text}");
    assert_eq!(names(root), ["a.pth", "b.pth", "broken.pth"]);
}

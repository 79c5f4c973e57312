//! Errors for folders that hold no checkpoint, or more than one.

use std::path::Path;

use crate::carton_tools::{ok, run, scratch, write};
use crate::made::{dict, tensor, write_pth, write_safetensors, write_unpacked};

/// Folders by name, with their files and the content of `latest`, if there is one.
const FOLDERS: &[(&str, &[&str])] = &[
    ("empty", &[]),
    ("tensorflow", &["saved_model.pb", "variables/variables.index"]),
    ("tensorflow_checkpoint", &["model.ckpt-7.data-00000-of-00001", "model.ckpt-7.index"]),
    ("onnx", &["model.onnx", "config.json"]),
    ("gguf", &["llama.Q4_K_M.gguf"]),
    ("flax", &["flax_model.msgpack", "config.json"]),
    ("keras", &["tf_model.h5"]),
    ("core_ml", &["net.mlpackage/Manifest.json"]),
    ("documents", &["config.json", "generation_config.json", "tokenizer.json", "vocab.json"]),
    ("documents_of_a_clone", &["config.json", ".gitattributes"]),
    ("pipeline", &["model_index.json", "unet/x.safetensors", "vae/x.safetensors", "scheduler/x.json"]),
    ("original", &["README.md", "original/consolidated.00.pth"]),
    ("cache", &["refs/main", "snapshots/4567/model.safetensors"]),
    (
        "runs",
        &["checkpoint-1/a.pt", "checkpoint-2/a.pt", "checkpoint-3/a.pt", "checkpoint-4/a.pt", "x y/a.pt"],
    ),
    ("training", &["optimizer.pt", "scheduler.pt", "rng_state_0.pth", "rng_state_1.pth"]),
    ("one_rank", &["mp_rank_00_model_states.pt"]),
    ("notes", &["notes.txt"]),
    ("several", &["a.safetensors", "b.safetensors"]),
    ("distributed", &[".metadata", "__0_0.distcp"]),
    ("distributed_unfinished", &["__0_0.distcp"]),
    ("ranks", &["model_world_size_2_rank_1.pt"]),
    ("deepspeed", &["latest", "zero_to_fp32.py", "global_step10/zero_pp_rank_0_mp_rank_00_optim_states.pt"]),
    ("deepspeed/global_step10", &[]),
    ("deepspeed_without_script", &["latest", "global_step10/zero_pp_rank_0_mp_rank_00_optim_states.pt"]),
    ("deepspeed_without_script/global_step10", &[]),
    ("deepspeed_older", &["latest", "global_step5/zero_pp_rank_0_mp_rank_00_optim_states.pt"]),
    ("deepspeed_older/global_step5", &[]),
    ("deepspeed_with_model", &["latest", "zero_to_fp32.py", "model.safetensors"]),
    ("pointer", &["pytorch_model.bin"]),
];

fn make(root: &Path, folder: &str, files: &[&str]) {
    std::fs::create_dir_all(root.join(folder)).expect("a temporary folder");
    for name in files {
        let text = match *name {
            "latest" => "global_step10",
            "pytorch_model.bin" => "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n",
            _ => "",
        };
        write(root.join(folder).join(name), text);
    }
}

#[test]
fn folders_without_one_checkpoint_are_refused() {
    let scratch = scratch();
    let root = scratch.path();
    let mut texts = String::new();
    for (folder, files) in FOLDERS {
        make(root, folder, files);
        let (status, text) = run(root, &[*folder, "-q", "-o", "out.carton"]);
        assert_eq!(status, Some(1), "{folder}: {text}");
        texts.extend([folder, "\n  ", &text]);
    }
    let (status, text) = run(&root.join("deepspeed/global_step10"), &[".", "-q"]);
    assert_eq!(status, Some(1), "{text}");
    texts.extend([". in deepspeed/global_step10\n  ", &text]);
    insta::assert_snapshot!(texts);
}

#[test]
fn an_archive_that_was_unpacked_is_read() {
    let scratch = scratch();
    let root = scratch.path();
    let weights = dict(&[("w", tensor(4)), ("b", tensor(2))]);
    write_pth(&root.join("x.pth"), &weights);
    write_unpacked(&root.join("outer/archive"), &weights);
    let digest = |input: &str| {
        let text = ok(root, &["digest", input]);
        text.split_whitespace().next().map(str::to_owned)
    };
    assert_eq!(digest("outer/archive"), digest("x.pth"));
    assert_eq!(digest("outer/archive/data.pkl"), digest("x.pth"));
    ok(root, &["outer/archive", "-o", "x.safetensors", "-q"]);
    assert_eq!(digest("x.safetensors"), digest("x.pth"));
    let text = ok(root, &["inspect", "outer/archive"]);
    assert!(text.contains("container   unpacked, "), "{text}");
    std::fs::remove_file(root.join("outer/archive/data/1")).expect("it was written");
    let (_, text) = run(root, &["inspect", "outer/archive"]);
    assert!(text.contains("the pickle refers to storage `1`, which is not in the file"), "{text}");
}

#[test]
fn an_index_that_disagrees_with_its_files_says_which_tensor_to_leave_out() {
    let scratch = scratch();
    let root = scratch.path();
    write_safetensors(&root.join("m/model-00001-of-00001.safetensors"), &[], &[("a", &[2]), ("b", &[1])]);
    let index =
        r#"{"weight_map":{"a":"model-00001-of-00001.safetensors","c":"model-00001-of-00001.safetensors"}}"#;
    write(root.join("m/model.safetensors.index.json"), index);
    let text = ok(root, &["inspect", "m"]);
    assert!(
        text.contains("lists `c` in model-00001-of-00001.safetensors; the file does not have it"),
        "{text}"
    );
    let convert = |more: &[&str]| run(root, &[&["m", "-o", "x.safetensors", "--force"], more].concat());
    let (status, text) = convert(&[]);
    assert_eq!(status, Some(1), "{text}");
    assert!(text.contains("holds a tensor `b`, which model.safetensors.index.json does not list"), "{text}");
    assert!(
        text.contains("; leave it out with --exclude b, or pass the files instead of the folder"),
        "{text}"
    );
    let (status, text) = convert(&["--exclude", "b"]);
    assert!(status == Some(1) && text.contains("; leave it out with --exclude c, or pass"), "{text}");
    let (status, text) = convert(&["--exclude", "[bc]"]);
    assert!(status == Some(0) && text.contains("tensors   1, 2 parameters"), "{text}");
    let (status, text) = run(root, &["digest", "m"]);
    assert!(status == Some(1) && text.contains("does not list"), "{text}");
}

#[test]
fn a_tensordict_is_named() {
    let scratch = scratch();
    let root = scratch.path();
    write(root.join("td/meta.json"), "{}");
    write(root.join("td/layer/weight.memmap"), "1234");
    for (input, file) in [("td", "layer/weight.memmap"), ("td/layer", "weight.memmap")] {
        let (status, text) = run(root, &["inspect", input]);
        assert_eq!(status, Some(1), "{text}");
        assert!(text.contains(&format!("contains a memory-mapped TensorDict ({file})")), "{text}");
        assert!(text.contains("TensorDict.load_memmap(\".\")"), "{text}");
    }
}

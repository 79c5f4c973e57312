//! Errors for folders that hold no checkpoint, or more than one.

use std::path::Path;

use crate::carton_tools::{run, scratch, write};

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

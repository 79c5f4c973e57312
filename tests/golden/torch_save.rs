//! Checkpoints that become checkpoints as `torch.save` writes them. tests/conformance has PyTorch read such files.

use std::path::Path;

use serde_json::{Value as Json, json};

use crate::carton_tools::{ok, run, scratch};
use crate::cli::json as report;
use crate::made::{dict, tensor, write_pth};
use crate::program::folder;

fn checkpoint(name: &str) -> String {
    folder().join("checkpoints").join(name).display().to_string()
}

/// The lines of a text without the one that has a duration.
fn stable(text: &str) -> String {
    text.lines().filter(|line| !line.trim_start().starts_with("size ")).collect::<Vec<_>>().join("\n")
}

/// The facts that a conversion keeps, by tensor; storages by the first tensor over each.
fn facts(listed: &Json) -> Vec<(Json, Vec<Json>, Json)> {
    let rows = listed["tensors"].as_array().expect("a list");
    let fact = |row: &Json| {
        let first = rows.iter().find(|other| other["storage"] == row["storage"]).expect("itself at least");
        let kept = ["dtype", "shape", "stride", "storage_offset", "nbytes", "sha256"];
        (row["name"].clone(), kept.map(|key| row[key].clone()).to_vec(), first["name"].clone())
    };
    rows.iter().map(fact).collect()
}

/// What `inspect` lists for the checkpoint that `input` becomes, and what it lists for `input`.
fn both(root: &Path, input: &str) -> [Json; 2] {
    ok(root, &[input, "-q", "--force", "-o", "x.pth"]);
    ["x.pth", input].map(|file| report(root, &["inspect", "--json", "--sha256", file]))
}

#[test]
fn every_tensor_keeps_its_values_strides_and_storage() {
    const INPUTS: [&str; 11] = [
        "big_endian.pth",
        "crc_zero.pth",
        "deflated.pth",
        "dtypes.pth",
        "legacy_protocol_0.pth",
        "legacy_views.pth",
        "names.pth",
        "plain.safetensors",
        "tar_view.pth",
        "tied.pth",
        "views.pth",
    ];
    let scratch = scratch();
    for name in INPUTS {
        let [made, original] = both(scratch.path(), &checkpoint(name));
        assert_eq!(made["format"], "zip");
        assert_eq!(facts(&made), facts(&original), "{name}");
    }
}

#[test]
fn a_checkpoint_is_clean_and_reproducible() {
    let scratch = scratch();
    let root = scratch.path();
    let input = checkpoint("tied.pth");
    let text = ok(root, &[&input, "-o", "x.pt"]);
    insta::assert_snapshot!(stable(&text));
    let made = report(root, &[&input, "-o", "y.ckpt", "--json"]);
    assert_eq!((&made["to"], &made["storages"]), (&json!("pth"), &json!(1)));
    assert!(made.get("module").is_none(), "{made}");
    let bytes = std::fs::read(root.join("x.pt")).expect("it was written");
    assert_eq!(made["nbytes"], json!(bytes.len()));
    // A checkpoint of ours is read, and becomes the same one again.
    ok(root, &["x.pt", "-q", "-o", "z.bin"]);
    for name in ["y.ckpt", "z.bin"] {
        assert_eq!(std::fs::read(root.join(name)).expect("it was written"), bytes, "{name}");
    }
    insta::assert_snapshot!("scan_of_a_checkpoint", ok(root, &["scan", "--all", "x.pt"]));
    insta::assert_snapshot!("trace_of_a_checkpoint", ok(root, &["trace", "--dis", "x.pt"]));
    let planned = report(root, &[&input, "-o", "w.pth", "--json", "--dry-run"]);
    assert_eq!((&planned["nbytes"], &planned["written"]), (&made["nbytes"], &json!(false)));
    assert!(!root.join("w.pth").exists());
}

#[test]
fn what_a_checkpoint_does_not_hold_is_refused() {
    let scratch = scratch();
    let root = scratch.path();
    write_pth(&root.join("in.pth"), &dict(&[("w", tensor(1))]));
    let mut texts = String::new();
    for args in [
        &["in.pth", "-o", "x.pth", "--license", "MIT"][..],
        &["in.pth", "-o", "x.pth", "--ties", "duplicate"],
        &["in.pth", "-o", "x.pth", "--max-shard-size", "5GB"],
        &["in.pth", "--to", "pth"],
    ] {
        texts = format!("{texts}$ {}\n{}", args[1..].join(" "), run(root, args).1);
    }
    insta::assert_snapshot!(texts);
}

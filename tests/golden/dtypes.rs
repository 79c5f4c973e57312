//! Each dtype in each output: the name that the format has for it, or the error. A new dtype changes this table.

use std::fmt::Write;
use std::path::Path;

use byte_source::Blob;
use tensor::{Dtype, Tensors};

use crate::carton_tools::{ok, run, scratch, write};

/// Returns the checkpoint that `torch.save` writes of a tensor `w` of this dtype, or `None` for a dtype that needs more than
/// a tensor's elements.
fn checkpoint(dtype: Dtype) -> Option<Vec<u8>> {
    let tensors: Tensors = vec![("w".to_owned(), test_support::zeros(dtype, &[2, 2]))].into();
    let archive = torch2carton::crates::convert::torch_save::TorchSaveArchive::new(&tensors).ok()?;
    let mut bytes: Vec<u8> = Vec::new();
    archive.write_to(&mut bytes).expect("memory takes it");
    Some(bytes)
}

/// Returns the text that follows `key` in a file, up to the next quote.
fn quoted_after(path: &Path, key: &str) -> String {
    let bytes = std::fs::read(path).expect("it was written");
    let text = String::from_utf8_lossy(&bytes);
    let rest = text.split_once(key).map_or("", |(_, rest)| rest);
    rest.split(['"', '\'']).nth(1).unwrap_or_default().to_owned()
}

#[test]
fn each_dtype_has_a_name_or_an_error_in_each_output() {
    let scratch = scratch();
    let root = scratch.path();
    let mut table = String::new();
    for dtype in Dtype::all() {
        writeln!(table, "{}", dtype.name()).expect("a String grows");
        let Some(bytes) = checkpoint(dtype) else {
            writeln!(table, "  no plain tensor").expect("a String grows");
            continue;
        };
        write(root.join("w.pth"), bytes);
        let _ = std::fs::remove_file(root.join("w.carton"));
        for (output, args, path, key) in [
            ("safetensors", &["w.pth", "-o", "w.safetensors"][..], "w.safetensors", "\"dtype\""),
            ("carton", &["w.pth", "-o", "w.carton"], "w/carton.toml", "dtype ="),
            ("newest", &["w.pth", "-o", "w.carton", "--torch", "newest"], "w/carton.toml", "dtype ="),
            ("pth", &["w.pth", "-o", "copy.pth"], "copy.json", "\"dtype\":"),
            ("npy", &["run", "w.carton", "--get", "w", "-o", "w.npy"], "w.npy", "'descr'"),
        ] {
            if output == "npy" && !root.join("w.carton").exists() {
                continue;
            }
            let (status, text) = run(root, args);
            let name = if status == Some(0) {
                if output == "pth" {
                    write(root.join("copy.json"), ok(root, &["inspect", "copy.pth", "--json"]));
                }
                if path.starts_with("w/") {
                    let _ = std::fs::remove_dir_all(root.join("w"));
                    ok(root, &["unpack", "w.carton"]);
                }
                quoted_after(&root.join(path), key)
            } else {
                assert!(text.contains("`w`"), "the error names the tensor: {text}");
                text.lines().find(|line| line.starts_with("error")).unwrap_or(&text).to_owned()
            };
            writeln!(table, "  {output:<12}{name}").expect("a String grows");
        }
    }
    insta::assert_snapshot!(table);
}

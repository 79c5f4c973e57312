//! Files of a few hundred bytes that ask for terabytes of work are read, compared or refused at once.

use std::path::Path;

use byte_source::{Sha256, Sink, Window, hex};
use serde_json::Value as Json;

use crate::carton_tools::scratch;
use crate::made::{Value, dict, write_pth};
use crate::program::{torch2carton, transcript};

/// Four bytes that are repeated 2^40 times.
fn expanded() -> Value {
    Value::View(4, vec![1 << 40, 4], vec![0, 1])
}

/// Every run of 2^20 bytes of 2^21.
fn windows() -> Value {
    Value::View(1 << 21, vec![1 << 20, 1 << 20], vec![1, 1])
}

fn inspected(path: &Path) -> Json {
    let output = torch2carton(["inspect".as_ref(), "--json".as_ref(), "--sha256".as_ref(), path.as_os_str()]);
    assert!(output.status.success(), "{}", transcript(&output));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn convert(path: &Path, carton: &Path) {
    let output = torch2carton([
        path.as_os_str(),
        "-q".as_ref(),
        "-o".as_ref(),
        carton.as_os_str(),
        "--arch=weights".as_ref(),
    ]);
    assert!(output.status.success(), "{}", transcript(&output));
}

#[test]
fn an_expanded_view_is_not_hashed_and_is_compared() {
    let folder = scratch();
    let (path, carton) = (folder.path().join("a.pth"), folder.path().join("a.carton"));
    write_pth(&path, &dict(&[("w", expanded()), ("v", Value::Tensor(vec![3]))]));
    let report = inspected(&path);
    assert_eq!(report["tensors"][0]["sha256"], Json::Null);
    let note = "not hashed: an expanded view of 4.4 TB over a storage of 4 B";
    assert_eq!(report["tensors"][0]["note"], note);
    assert!(report["tensors"][1]["sha256"].is_string());
    convert(&path, &carton);
    assert!(carton.metadata().expect("it was written").len() < 100_000);
    let verify = |path: &Path| {
        let output =
            torch2carton(["verify".as_ref(), carton.as_os_str(), "--against".as_ref(), path.as_os_str()]);
        (output.status.code(), transcript(&output))
    };
    let (status, text) = verify(&path);
    assert!(status == Some(0) && text.contains("2 tensors equal bit for bit"), "{text}");
    // The same shape over other bytes.
    let other = folder.path().join("b.pth");
    let shifted = dict(&[("u", Value::Tensor(vec![1])), ("w", expanded()), ("v", Value::Tensor(vec![3]))]);
    write_pth(&other, &shifted);
    let (status, text) = verify(&other);
    assert_eq!(status, Some(1), "{text}");
    assert!(text.contains("tensor `w` differs from the checkpoint in its elements"), "{text}");
}

#[test]
fn what_cannot_be_compared_is_a_finding() {
    let folder = scratch();
    let (path, carton) = (folder.path().join("a.pth"), folder.path().join("a.carton"));
    write_pth(&path, &dict(&[("w", windows())]));
    convert(&path, &carton);
    let output =
        torch2carton(["verify".as_ref(), carton.as_os_str(), "--against".as_ref(), path.as_os_str()]);
    let text = transcript(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    let finding = "tensor `w` is not compared: an expanded view of 1.1 TB over a storage of 2.1 MB";
    assert!(text.contains(finding), "{text}");
}

#[test]
fn the_bytes_of_all_views_are_counted_together() {
    // Each one could be hashed alone: 150 views of 4 MB.
    let folder = scratch();
    let path = folder.path().join("a.pth");
    let names: Vec<String> = (0..150).map(|number| format!("t{number}")).collect();
    let tensors: Vec<(&str, Value)> = names
        .iter()
        .map(|name| (name.as_str(), Value::View(1 << 10, vec![1 << 12, 1 << 10], vec![0, 1])))
        .collect();
    write_pth(&path, &dict(&tensors));
    let report = inspected(&path);
    let rows = report["tensors"].as_array().expect("rows");
    let hashed = rows.iter().filter(|row| row["sha256"].is_string()).count();
    // 256 MiB in views of 4 MiB, and 16 times the file.
    assert!((64..=66).contains(&hashed), "{hashed}");
}

#[test]
fn a_mask_that_is_expanded_to_a_batch_is_hashed() {
    let folder = scratch();
    let path = folder.path().join("a.pth");
    write_pth(
        &path,
        &dict(&[("mask", Value::View(1 << 16, vec![64, 1, 256, 256], vec![0, 1 << 16, 256, 1]))]),
    );
    let mut hash = Sha256::default();
    hash.write(Window::owned(vec![1; 64 << 16])).expect("a hash takes any bytes");
    assert_eq!(inspected(&path)["tensors"][0]["sha256"], hex(&hash.digest()));
}

/// Overlapping views of one storage of a megabyte, in each format that writes every element of a view.
#[test]
fn an_output_that_is_many_times_as_large_needs_an_option() {
    let folder = scratch();
    let path = folder.path().join("a.pth");
    write_pth(&path, &dict(&[("w", Value::View(1 << 20, vec![200, 1 << 19], vec![1, 1]))]));
    let convert = |output: &str, options: &[&str]| {
        let output = folder.path().join("out").join(output);
        let args = [path.as_os_str(), "--dry-run".as_ref(), "-o".as_ref(), output.as_os_str()];
        let args: Vec<_> = args.into_iter().chain(options.iter().map(std::convert::AsRef::as_ref)).collect();
        let output = torch2carton(args);
        (output.status.code(), transcript(&output))
    };
    std::fs::create_dir(folder.path().join("out")).expect("a folder");
    let options: &[(&str, &[&str])] = &[
        ("a.safetensors", &[]),
        ("shards", &["--to", "safetensors", "--max-shard-size", "10MB"]),
        ("a.pth", &[]),
        ("a.carton", &[]),
    ];
    for (output, options) in options {
        let (status, text) = convert(output, options);
        if status == Some(0) {
            // The views are kept as they are.
            assert!(*output != "a.safetensors" && *output != "shards", "{output}: {text}");
            continue;
        }
        assert_eq!(status, Some(1), "{output}: {text}");
        let expected = "more than 64 times the 1.0 MB of the input: its tensors are views that repeat bytes; --max-expansion ";
        assert!(text.contains(expected), "{output}: {text}");
        let factor = text.split_once("--max-expansion ").and_then(|(_, rest)| rest.split(' ').next());
        let allowed = [*options, &["--max-expansion", factor.expect("a number")]].concat();
        let (status, text) = convert(output, &allowed);
        assert_eq!(status, Some(0), "{output}: {text}");
    }
    let (_, text) = convert("a.safetensors", &[]);
    assert!(text.contains("the output would have 104.9 MB, more than 64 times"), "{text}");
}

#[test]
fn an_expanded_view_below_64_mib_needs_no_option() {
    let folder = scratch();
    let path = folder.path().join("a.pth");
    write_pth(&path, &dict(&[("mask", Value::View(1 << 10, vec![60 << 10, 1 << 10], vec![0, 1]))]));
    let output = folder.path().join("a.safetensors");
    let converted = torch2carton([path.as_os_str(), "--dry-run".as_ref(), "-o".as_ref(), output.as_os_str()]);
    assert!(converted.status.success(), "{}", transcript(&converted));
}

#[test]
fn an_array_that_is_many_times_as_large_needs_an_option() {
    let folder = scratch();
    let (path, carton) = (folder.path().join("a.pth"), folder.path().join("a.carton"));
    write_pth(&path, &dict(&[("w", expanded()), ("m", Value::View(4, vec![1 << 20, 4], vec![0, 1]))]));
    convert(&path, &carton);
    let get = |name: &str| {
        let npy = folder.path().join("a.npy");
        let output = torch2carton([
            "run".as_ref(),
            carton.as_os_str(),
            "--get".as_ref(),
            name.as_ref(),
            "-o".as_ref(),
            npy.as_os_str(),
        ]);
        (output.status.code(), transcript(&output))
    };
    assert_eq!(get("m").0, Some(0), "four megabytes");
    let (status, text) = get("w");
    assert_eq!(status, Some(1));
    insta::assert_snapshot!("array-too-large", text);
}

//! `verify --against`: which cartons have the values of which checkpoints.

use crate::carton_tools::{model, ok, run, scratch, write};
use crate::program::folder;

#[test]
fn a_model_is_compared_with_its_checkpoint() {
    let scratch = scratch();
    let root = scratch.path();
    let mut texts = String::new();
    let file = |tensors: &[(&str, &str, &[usize], &[u8])]| {
        let tensors = tensors.iter().map(|(name, dtype, shape, bytes)| (name, *dtype, shape, bytes));
        test_support::safetensors(tensors)
    };
    let (a, b) = ("m/model-00001-of-00002.safetensors", "m/model-00002-of-00002.safetensors");
    write(root.join(a), file(&[("x.a", "I8", &[2], b"12"), ("y.a", "I16", &[1], b"34")]));
    write(root.join(b), file(&[("x.b", "I8", &[2], b"56")]));
    ok(root, &["m", "-o", "all.carton", "-q"]);
    ok(root, &["m", "-o", "x.carton", "--key", "x", "--exclude", "b", "-q"]);
    ok(root, &[a, "-o", "one.carton", "--single", "-q"]);
    let mut compare = |what: &str, args: &[&str]| {
        let (status, text) = run(root, &[&["verify"], args].concat());
        texts.extend(["--- ", what, "\n", &text]);
        status
    };
    assert_eq!(compare("a folder", &["all.carton", "--against", "m"]), Some(0));
    assert_eq!(compare("its files", &["all.carton", "--against", b, "--against", a]), Some(0));
    assert_eq!(compare("one of them", &["all.carton", "--against", a]), Some(1));
    assert_eq!(compare("one of them alone", &["one.carton", "--against", a, "--single"]), Some(0));
    assert_eq!(
        compare("what was chosen", &["x.carton", "--against", "m", "--key", "x", "--exclude", "b"]),
        Some(0)
    );
    assert_eq!(compare("something else", &["x.carton", "--against", "m", "--key", "x"]), Some(1));
    assert_eq!(compare("everything, but part was chosen", &["one.carton", "--against", "m"]), Some(1));
    assert_eq!(compare("chosen of nothing", &["x.carton", "--key", "x"]), Some(2));
    assert_eq!(compare("itself", &["x.carton", "--against", "x.carton"]), Some(0));
    write(root.join(b), file(&[("x.b", "I8", &[2], b"57")]));
    assert_eq!(compare("another byte", &["all.carton", "--against", "m"]), Some(1));
    write(root.join(b), file(&[("x.b", "U8", &[2], b"56")]));
    assert_eq!(compare("another dtype", &["all.carton", "--against", "m"]), Some(1));
    write(root.join(b), file(&[("x.b", "I8", &[1, 2], b"56"), ("x.c", "I8", &[1], b"7")]));
    assert_eq!(compare("another shape, one more", &["all.carton", "--against", "m"]), Some(1));
    model(root);
    ok(root, &["pack", "everything", "-q"]);
    assert_eq!(compare("another runner's model", &["everything.carton", "--against", "m"]), Some(1));
    insta::assert_snapshot!(texts);
}

#[test]
fn the_code_of_a_model_is_compared_too() {
    let scratch = scratch();
    let root = scratch.path();
    let plain = std::fs::read(folder().join("checkpoints/plain.pth")).expect("checked in");
    write(root.join("a.pth"), plain);
    let mut texts = String::new();
    // Both are as long as what they replace.
    for (what, from, to) in [
        ("the same code", "", ""),
        ("it returns something else", "torch.contiguous(r)", "torch.contiguous(t)"),
        ("it runs when it is loaded", "__parameters", "__setstate__"),
    ] {
        ok(root, &["a.pth", "--license", "MIT", "-q"]);
        ok(root, &["unpack", "a.carton", "--force", "-q"]);
        let model = root.join("a/model/model.pt");
        let mut bytes = std::fs::read(&model).expect("it was unpacked");
        if let Some(at) = bytes.windows(from.len().max(1)).position(|found| found == from.as_bytes()) {
            bytes[at..at + from.len()].copy_from_slice(to.as_bytes());
        }
        write(model, bytes);
        ok(root, &["pack", "a", "-q"]);
        texts.extend(["--- ", what, "\n", &run(root, &["verify", "a.carton", "--against", "a.pth"]).1]);
        let (_, report) = run(root, &["verify", "--json", "a.carton", "--against", "a.pth"]);
        let code = report.find("\"code\":").and_then(|at| report[at..].split(',').next());
        texts.extend([code.expect("it is reported"), "\n"]);
    }
    insta::assert_snapshot!(texts);
}

#[test]
fn every_conversion_is_bit_equal_to_its_checkpoint() {
    let scratch = scratch();
    let root = scratch.path();
    let mut compared = 0;
    let inputs = crate::program::inputs("checkpoints", "pth").into_iter();
    for input in inputs.chain(crate::program::inputs("checkpoints", "safetensors")) {
        let path = folder().join(&input);
        let path = path.to_str().expect("UTF-8");
        let (status, _) = run(root, &[path, "-o", "x.carton", "-q"]);
        if status == Some(0) {
            let text = ok(root, &["verify", "x.carton", "--against", path]);
            // Code that differs from what a conversion writes would be a note.
            assert!(text.contains("equal bit for bit") && !text.contains("stored values"), "{input}: {text}");
            compared += 1;
        }
    }
    assert!(compared > 15, "{compared}");
}

//! `diff`, `digest`, `convert --digest`, and `verify --against` for outputs that are not cartons.

use crate::carton_tools::{ok, run, scratch, write};
use crate::casts::floats;
use crate::cli::json;
use crate::made::{dict, tensor, write_pth};

#[test]
fn diff_says_what_changed_and_how_much() {
    let scratch = scratch();
    let root = scratch.path();
    floats(&root.join("a.safetensors"), &[("x", &[1.0, 2.0, 3.0]), ("old", &[4.0, 5.0]), ("same", &[6.0])]);
    floats(&root.join("b.safetensors"), &[("x", &[1.0, 2.5, 3.0]), ("new", &[4.0, 5.0]), ("same", &[6.0])]);
    let (status, text) = run(root, &["diff", "a.safetensors", "b.safetensors"]);
    assert_eq!(status, Some(1));
    insta::assert_snapshot!("diff_of_two_files", text);
    let object = json(root, &["diff", "--json", "a.safetensors", "b.safetensors"]);
    assert_eq!((object["same"].as_bool(), object["counts"]["same"].as_u64()), (Some(false), Some(1)));
    assert_eq!(run(root, &["diff", "-q", "a.safetensors", "a.safetensors"]), (Some(0), String::new()));
    let (status, text) = run(root, &["diff", "a.safetensors", "c.safetensors"]);
    assert_eq!(status, Some(2));
    assert!(text.contains("c.safetensors"), "{text}");
    let close = ["diff", "--tolerance", "0.5", "--include", "x", "a.safetensors", "b.safetensors"];
    assert_eq!(run(root, &close).0, Some(0));
}

#[test]
fn a_page_shows_the_differences() {
    let scratch = scratch();
    let root = scratch.path();
    floats(&root.join("a.safetensors"), &[("x", &[1.0, 2.0])]);
    floats(&root.join("b.safetensors"), &[("x", &[1.0, 2.5])]);
    let (status, text) = run(root, &["diff", "-q", "--html", "page.html", "a.safetensors", "b.safetensors"]);
    assert_eq!(status, Some(1));
    assert!(text.contains("changed"), "{text}");
    let page = std::fs::read(root.join("page.html")).expect("the page was written");
    assert_eq!(run(root, &["report", "-q", "a.safetensors", "b.safetensors"]), (Some(0), String::new()));
    let same = std::fs::read(root.join("b.diff.html")).expect("the page was written");
    assert!(page == same && page.starts_with(b"<!doctype html>"), "the pages differ");
    let (status, text) = run(root, &["diff", "--html", "-", "a.safetensors", "a.safetensors"]);
    assert_eq!(status, Some(0));
    assert!(text.contains("<!doctype html>") && text.contains("</html>"), "{text}");
    // A file of someone else is not replaced, and inputs are not read before that is known.
    write(root.join("page.html"), "mine");
    let (status, text) = run(root, &["diff", "--html", "page.html", "a.safetensors", "b.safetensors"]);
    assert_eq!(status, Some(2));
    assert!(text.contains("page.html"), "{text}");
    assert_eq!(run(root, &["diff", "--json", "--html", "-", "a.safetensors", "b.safetensors"]).0, Some(2));
    assert_eq!(run(root, &["report", "--stats", "a.safetensors", "b.safetensors"]).0, Some(2));
}

#[test]
fn what_a_conversion_leaves_out_is_compared() {
    let scratch = scratch();
    let root = scratch.path();
    let training = |mean: u64, moment: u64| {
        let weights = dict(&[("w", tensor(2))]);
        let state = dict(&[("exp_avg", tensor(moment))]);
        let optimizer = dict(&[("state", dict(&[("w", state)])), ("param_groups", dict(&[]))]);
        dict(&[("state_dict", weights), ("mean", tensor(mean)), ("optimizer", optimizer)])
    };
    for (name, mean, moment) in [("a", 3, 4), ("b", 5, 4), ("c", 3, 6)] {
        write_pth(&root.join(format!("{name}.pth")), &training(mean, moment));
    }
    let (status, text) = run(root, &["diff", "a.pth", "b.pth"]);
    assert_eq!(status, Some(1), "{text}");
    assert!(text.contains("mean"), "{text}");
    ok(root, &["diff", "a.pth", "b.pth", "--key", "state_dict"]);
    ok(root, &["diff", "a.pth", "c.pth"]);
}

#[test]
fn a_digest_is_that_of_every_format() {
    let scratch = scratch();
    let root = scratch.path();
    floats(&root.join("a.safetensors"), &[("x", &[1.0, 2.0, 3.0]), ("y", &[4.0])]);
    let digest = |file: &str| ok(root, &["digest", file])[..64].to_owned();
    let expected = digest("a.safetensors");
    for output in ["a.pth", "a.carton"] {
        let made = json(root, &["--json", "--digest", "a.safetensors", "-o", output]);
        assert_eq!((made["digest"].as_str(), digest(output)), (Some(expected.as_str()), expected.clone()));
    }
    let config = json(root, &["inspect", "--json", "a.carton"]);
    assert_eq!(config["config"]["torch2carton"]["digest"].as_str(), Some(expected.as_str()));
    assert_eq!(run(root, &["verify", "-q", "a.carton"]).0, Some(0));
    assert!(ok(root, &["a.safetensors", "--digest", "-o", "b.pth"]).contains(&expected));
    write(root.join("list"), format!("{expected}  a.pth\n{expected}  a.carton\n"));
    assert_eq!(ok(root, &["digest", "-c", "list"]), "a.pth: OK\na.carton: OK\n");
    write(root.join("list"), format!("{}  a.pth\n", "0".repeat(64)));
    let (status, text) = run(root, &["digest", "-c", "list"]);
    assert_eq!(status, Some(1));
    assert!(text.starts_with("a.pth: FAILED\n"), "{text}");
}

#[test]
fn any_output_is_compared_with_its_checkpoint() {
    let scratch = scratch();
    let root = scratch.path();
    floats(&root.join("a.safetensors"), &[("x", &[1.0, 2.0, 3.0]), ("y", &[4.0])]);
    ok(root, &["a.safetensors", "-q", "-o", "b.pth", "--dtype", "bfloat16", "--rename", "x=z"]);
    let made = ["--dtype", "bfloat16", "--rename", "x=z"];
    let verify =
        |more: &[&str]| run(root, &[&["verify", "b.pth", "--against", "a.safetensors"], more].concat());
    let (status, text) = verify(&made);
    assert_eq!(status, Some(0), "{text}");
    assert!(text.contains("2 tensors equal bit for bit"), "{text}");
    let (status, text) = verify(&made[..2]);
    assert_eq!(status, Some(1));
    assert!(
        text.contains("tensor `x` is missing") && text.contains("`z` is not in the checkpoint"),
        "{text}"
    );
    assert_eq!(verify(&[]).0, Some(1));
    ok(root, &["a.safetensors", "-q", "-o", "c.carton", "--dtype", "bfloat16"]);
    let carton = ["verify", "c.carton", "--against", "a.safetensors", "--dtype", "bfloat16"];
    assert_eq!(run(root, &carton).0, Some(0));
    assert_eq!(run(root, &carton[..4]).0, Some(1));
}

#[test]
fn a_note_on_both_inputs_names_each() {
    let scratch = scratch();
    let root = scratch.path();
    for (name, len) in [("a.pth", 1), ("b.pth", 2)] {
        write_pth(&root.join(name), &dict(&[("state_dict", dict(&[("w", tensor(len))]))]));
    }
    let (_, text) = run(root, &["diff", "a.pth", "b.pth"]);
    let notes: Vec<&str> = text.lines().filter(|line| line.starts_with("note: ")).collect();
    assert_eq!(
        notes,
        ["note: a.pth: using key `state_dict` (1 tensor)", "note: b.pth: using key `state_dict` (1 tensor)"]
    );
}

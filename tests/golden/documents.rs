//! The paths that the maps of the repository name exist.

use std::fs;
use std::path::{Path, PathBuf};

/// Returns the repository's root folder.
fn tree() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the maps: ARCHITECTURE.md, CONTRIBUTING.md, docs/decisions.md, and the READMEs below crates/ and tests/.
fn maps() -> Vec<PathBuf> {
    let mut maps: Vec<_> = ["ARCHITECTURE.md", "CONTRIBUTING.md", "docs/decisions.md"]
        .iter()
        .map(|name| tree().join(name))
        .collect();
    let mut folders = vec![tree().join("crates"), tree().join("tests")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder of the repository").flatten() {
            let path = entry.path();
            if path.is_dir() && !path.ends_with("src") {
                folders.push(path);
            } else if path.ends_with("README.md") {
                maps.push(path);
            }
        }
    }
    maps
}

/// Returns the code spans of a Markdown text, without its code blocks.
fn code_spans(text: &str) -> Vec<&str> {
    let prose = text.split("```").step_by(2);
    prose.flat_map(|part| part.split('`').skip(1).step_by(2)).collect()
}

/// Returns true if a code span is a path of the repository: it names a folder or a source file, and has no placeholder.
fn is_path(span: &str) -> bool {
    let extensions = ["rs", "md", "py", "toml"];
    let is_file = Path::new(span).extension().is_some_and(|it| extensions.iter().any(|known| it == *known));
    let is_plain = span.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c));
    let begins_in_tree = ["crates/", "src/", "tests/", "docs/", "benches/", "fuzz/", ".ci/", "examples/"];
    let is_placeholder = span.split(['/', '.']).any(|part| part.len() > 3 && part == "NAME");
    is_plain
        && !is_placeholder
        && (begins_in_tree.iter().any(|start| span.starts_with(start)) || is_file && span.contains('/'))
}

#[test]
fn paths_in_the_maps_exist() {
    let (mut count, mut missing) = (0, Vec::new());
    for map in maps() {
        let text = fs::read_to_string(&map).expect("a map");
        let folder = map.parent().expect("a file has a folder");
        for span in code_spans(&text).into_iter().filter(|span| is_path(span)) {
            count += 1;
            let found = [folder.join(span), folder.join("src").join(span), tree().join(span)]
                .iter()
                .any(|path| path.exists());
            if !found {
                missing.push(format!("{}: {span}", map.display()));
            }
        }
    }
    assert!(missing.is_empty(), "these paths do not exist:\n{}", missing.join("\n"));
    assert!(count > 50, "only {count} paths were found");
}

#[test]
fn each_crate_has_a_line() {
    let list = fs::read_to_string(tree().join("crates/README.md")).expect("the list of crates");
    let workspace: toml::Table =
        fs::read_to_string(tree().join("Cargo.toml")).expect("the workspace").parse().expect("TOML");
    let dependencies = workspace["workspace"]["dependencies"].as_table().expect("a table");
    let paths = dependencies.values().filter_map(|it| it.get("path")?.as_str()?.strip_prefix("crates/"));
    let missing: Vec<_> = paths.filter(|path| !list.contains(&format!("| `{path}` |"))).collect();
    assert!(missing.is_empty(), "crates/README.md has no line for {missing:?}");
}

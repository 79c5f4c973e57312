//! The floors of the house: a crate depends only on crates of its own floor or of one below it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use toml::Table;

/// Folders of each floor, from the bottom.
const FLOORS: [&[&str]; 6] = [
    &["crates/bytes", "crates/pickle-vm"],
    &["crates/formats", "crates/carton-writer"],
    &["crates/torch-import"],
    &["crates/import", "crates/model"],
    &["crates/convert", "crates/tools", "crates/run"],
    &["."],
];
/// Longest chain of crates that depend on each other. It may only become shorter.
const CHAIN_MAX: usize = 7;

/// Folder of each crate, and the crates that it depends on.
type Crates = BTreeMap<String, (PathBuf, Vec<String>)>;

fn floor(folder: &Path) -> Option<usize> {
    FLOORS.iter().position(|places| places.iter().any(|place| folder.starts_with(place)))
}

fn crates() -> Crates {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |folder: &Path| -> Table {
        let text = fs::read_to_string(root.join(folder).join("Cargo.toml")).expect("a manifest");
        text.parse().expect("TOML")
    };
    let workspace = read(Path::new("."));
    let shared = workspace.get("workspace").and_then(|table| table.get("dependencies")?.as_table());
    let folders = shared.expect("a table").values().filter_map(|dependency| dependency.get("path")?.as_str());
    let folders = folders.map(PathBuf::from).chain([PathBuf::from(".")]);
    let mut crates: Crates = folders
        .map(|folder| {
            let manifest = read(&folder);
            let dependencies = manifest.get("dependencies").and_then(|table| table.as_table());
            let dependencies = dependencies.into_iter().flat_map(|table| table.keys().cloned()).collect();
            let name = manifest.get("package").and_then(|package| package.get("name")?.as_str());
            (name.expect("a name").to_owned(), (folder, dependencies))
        })
        .collect();
    let names: Vec<String> = crates.keys().cloned().collect();
    for (_, dependencies) in crates.values_mut() {
        dependencies.retain(|name| names.contains(name));
    }
    crates
}

fn chain(crates: &Crates, name: &str) -> usize {
    let dependencies = crates.get(name).into_iter().flat_map(|(_, dependencies)| dependencies);
    dependencies.map(|name| chain(crates, name)).max().unwrap_or_default().saturating_add(1)
}

#[test]
fn no_crate_depends_on_a_floor_above_it() {
    let crates = crates();
    let mut up = Vec::new();
    for (name, (folder, dependencies)) in &crates {
        if folder.starts_with("crates/testing") {
            continue;
        }
        let own = floor(folder).unwrap_or_else(|| panic!("{name}: {} has no floor", folder.display()));
        for dependency in dependencies {
            if floor(&crates[dependency].0).is_none_or(|theirs| theirs > own) {
                up.push(format!("{name} -> {dependency}"));
            }
        }
    }
    assert!(up.is_empty(), "arrows that go up: {up:#?}");
}

#[test]
fn chains_of_crates_are_short() {
    let crates = crates();
    let longest = crates.keys().map(|name| chain(&crates, name)).max();
    assert!(longest <= Some(CHAIN_MAX), "the longest chain has {longest:?} crates");
}

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

/// Returns the anchors of a Markdown document's headings, as code hosts make them.
fn anchors(text: &str) -> Vec<String> {
    let prose = text.split("\n```").step_by(2).flat_map(str::lines);
    let headings = prose.filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    let slug = |heading: &str| {
        let kept = heading.to_lowercase();
        let kept = kept.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(slug).collect()
}

/// Returns the relative links of a Markdown text: a path, and an anchor if there is one.
fn links(text: &str) -> Vec<(&str, Option<&str>)> {
    let prose = text.split("\n```").step_by(2);
    let targets = prose.flat_map(|part| part.split("](").skip(1)).filter_map(|rest| rest.split(')').next());
    let relative = targets.filter(|target| !target.contains("://") && !target.contains(char::is_whitespace));
    relative
        .map(|target| target.split_once('#').map_or((target, None), |(path, at)| (path, Some(at))))
        .collect()
}

#[test]
fn links_lead_somewhere() {
    let mut documents =
        vec![tree().join("README.md"), tree().join("ARCHITECTURE.md"), tree().join("CONTRIBUTING.md")];
    documents.extend(documents_of_the_site());
    let mut broken = Vec::new();
    for document in &documents {
        let text = fs::read_to_string(document).expect("a document");
        for (path, anchor) in links(&text) {
            let target =
                if path.is_empty() { document.clone() } else { document.with_file_name("").join(path) };
            let found = match anchor {
                None => target.exists(),
                Some(anchor) => {
                    fs::read_to_string(&target).is_ok_and(|text| anchors(&text).iter().any(|it| it == anchor))
                }
            };
            if !found {
                broken.push(format!("{}: {path}#{}", document.display(), anchor.unwrap_or_default()));
            }
        }
    }
    assert!(broken.is_empty(), "these links lead nowhere:\n{}", broken.join("\n"));
}

/// Returns the documents in docs/.
fn documents_of_the_site() -> Vec<PathBuf> {
    let entries =
        fs::read_dir(tree().join("docs")).expect("the documents").flatten().map(|entry| entry.path());
    entries.filter(|path| path.extension().is_some_and(|extension| extension == "md")).collect()
}

#[test]
fn the_site_has_each_document() {
    let summary = fs::read_to_string(tree().join("docs/SUMMARY.md")).expect("the table of contents");
    let listed: Vec<_> = links(&summary).into_iter().map(|(path, _)| path.to_owned()).collect();
    for document in documents_of_the_site() {
        let name = document.file_name().and_then(|name| name.to_str()).expect("a name").to_owned();
        assert!(name == "SUMMARY.md" || listed.contains(&name), "docs/SUMMARY.md does not list {name}");
    }
}

#[test]
fn the_readme_is_short() {
    let readme = fs::read_to_string(tree().join("README.md")).expect("the README");
    assert!(readme.lines().count() <= 150, "README.md has {} lines", readme.lines().count());
}

/// Returns the cells of a row of a Markdown table.
fn cells(row: &str) -> Vec<&str> {
    row.trim_matches('|').split('|').map(str::trim).collect()
}

/// Returns the number of model types in each table of docs/models.md that has a column of them.
fn model_types() -> Vec<usize> {
    let text = fs::read_to_string(tree().join("docs/models.md")).expect("a document");
    let tables = text.split("\n\n").filter(|table| table.starts_with("| `model_type` |"));
    tables
        .map(|table| {
            table
                .lines()
                .skip(2)
                .map(|row| cells(row).first().map_or(0, |types| types.matches('`').count() / 2))
                .sum()
        })
        .collect()
}

#[test]
fn the_readme_has_the_figures_of_the_documents() {
    let readme = fs::read_to_string(tree().join("README.md")).expect("the README");
    let table = fs::read_to_string(tree().join("docs/compatibility.md")).expect("a document");
    let row = table.lines().find(|line| line.starts_with("| **All** |")).expect("a row of sums");
    let [_, files, own, candle, _, torch] = cells(row)[..] else { panic!("{row}") };
    let number = |cell: &str| cell.split(' ').next().unwrap_or_default().to_owned();
    let corpus = fs::read_to_string(tree().join("docs/corpus.md")).expect("a document");
    let corpus =
        corpus.lines().find_map(|line| line.strip_suffix(": `torch.load`, `torch.jit.load`, `pickle.load`"));
    let real = number(corpus.expect("the number of files"));
    let workspace: toml::Table =
        fs::read_to_string(tree().join("Cargo.toml")).expect("the workspace").parse().expect("TOML");
    let package = &workspace["workspace"]["package"];
    let [decoders, multimodal] = model_types()[..] else { panic!("docs/models.md has other tables") };
    let readme = readme.split_whitespace().collect::<Vec<_>>().join(" ");
    for claim in [
        format!(
            "Of {files} kinds of file, from PyTorch 0.1 to the newest, it reads {} correctly, candle {}, and `torch.load` with its \
             default settings {} ",
            number(own),
            number(candle),
            number(torch)
        ),
        format!(
            "Rust](https://www.rust-lang.org/tools/install) {} or newer",
            package["rust-version"].as_str().expect("a text")
        ),
        format!("[{real} real files](docs/corpus.md)"),
        format!(
            "[{decoders} architectures](docs/models.md), and the text models of {multimodal} with pictures"
        ),
    ] {
        assert!(readme.contains(&claim), "README.md does not say: {claim}");
    }
}

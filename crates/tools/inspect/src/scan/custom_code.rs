//! Finds the Python code that a model's configuration tells a program to import.
//!
//! Facts: `auto_map` and `custom_pipelines` of `transformers`' configurations. With `trust_remote_code=True`, it imports
//! `MODULE.py` next to the configuration for the value `MODULE.CLASS`, and a file of another repository for
//! `REPOSITORY--MODULE.CLASS`.

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use byte_source::{Location, Source};
use serde::Serialize;
use serde_json::Value as Json;

/// Largest configuration, in bytes, that is read.
const CONFIG_MAX: u64 = 1 << 20;
const CLASSES_MAX: usize = 1024;

/// Class in Python code that a configuration names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CustomClass {
    /// Purpose of the class, such as `AutoModelForCausalLM`.
    pub key: String,
    /// Name of the class with its module, such as `modeling_x.XForCausalLM`.
    pub class: String,
    /// File with the code, relative to the folder of the configuration; `None` if a repository has it.
    pub file: Option<String>,
    /// Repository on a hub that has the code; `None` if a file next to the configuration has it.
    pub repository: Option<String>,
}

impl CustomClass {
    /// Returns the place of the code: a file or a repository.
    pub fn place(&self) -> String {
        match (&self.file, &self.repository) {
            (Some(file), _) => file.clone(),
            (None, Some(repository)) => format!("the repository {repository}"),
            (None, None) => "an unknown place".to_owned(),
        }
    }
}

/// Returns the classes in Python code that a configuration names, if the code is there or in another repository. Other files
/// have none. `opened` is the file, if it is open.
pub(crate) fn custom_classes(file: &Location, opened: Option<&Arc<dyn Source>>) -> Vec<CustomClass> {
    let path = file.path();
    let read = || {
        let source = opened.cloned().map_or_else(|| file.open().ok(), Some)?;
        source.read_range(0..source.len().min(CONFIG_MAX)).ok()
    };
    let folder = path.parent().unwrap_or_else(|| Path::new(""));
    let has_file = |inside: &Path| file.at(folder.join(inside)).is_file();
    let is_config = path.file_name().is_some_and(|name| name.to_string_lossy().ends_with("config.json"));
    let document = if is_config { read() } else { None };
    let document: Option<Json> = document.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    let Some(document) = document else { return Vec::new() };
    let mut classes = Vec::new();
    for (key, value) in document.get("auto_map").and_then(Json::as_object).into_iter().flatten() {
        // A tokenizer has a slow and a fast class, one of which may be null.
        let values = value.as_array().map_or_else(|| std::slice::from_ref(value), Vec::as_slice);
        classes.extend(values.iter().filter_map(|value| custom_class(&has_file, key, value.as_str()?)));
    }
    for (key, value) in document.get("custom_pipelines").and_then(Json::as_object).into_iter().flatten() {
        classes
            .extend(value.get("impl").and_then(Json::as_str).and_then(|it| custom_class(&has_file, key, it)));
    }
    classes.truncate(CLASSES_MAX);
    classes
}

fn custom_class(has_file: &dyn Fn(&Path) -> bool, key: &str, reference: &str) -> Option<CustomClass> {
    let (repository, class) = match reference.split_once("--") {
        Some((repository, class)) => (Some(repository.to_owned()), class),
        None => (None, reference),
    };
    let file = match repository {
        Some(_) => None,
        None => Some(python_file(has_file, class)?),
    };
    Some(CustomClass { key: key.to_owned(), class: class.to_owned(), file, repository })
}

/// Returns the file of a class next to a configuration; `None` if there is none, or if the name leads elsewhere.
fn python_file(has_file: &dyn Fn(&Path) -> bool, class: &str) -> Option<String> {
    let (module, _) = class.rsplit_once('.')?;
    let file = PathBuf::from(format!("{}.py", module.replace('.', "/")));
    let is_inside = file.components().all(|part| matches!(part, Component::Normal(_)));
    (is_inside && has_file(&file)).then(|| file.display().to_string())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn code_that_is_there_or_in_a_repository_is_found() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        for name in ["modeling_x.py", "tokenization_x.py"] {
            fs::write(folder.path().join(name), "").expect("a file");
        }
        let found = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::write(&path, text).expect("a file");
            let classes = custom_classes(&Location::from(&path), None);
            classes.iter().map(|it| format!("{} {} {}", it.key, it.class, it.place())).collect::<Vec<_>>()
        };
        assert_eq!(
            found(
                "config.json",
                r#"{"auto_map": {"AutoModel": "modeling_x.X", "AutoConfig": "configuration_x.C", "B": "o/r--m.Y", "C": 1}}"#
            ),
            ["AutoModel modeling_x.X modeling_x.py", "B m.Y the repository o/r"],
            "a file that is not there is not code"
        );
        assert_eq!(
            found(
                "tokenizer_config.json",
                r#"{"auto_map": {"AutoTokenizer": ["tokenization_x.T", null, "../modeling_x.T"]}}"#
            ),
            ["AutoTokenizer tokenization_x.T tokenization_x.py"]
        );
        let pipelines = r#"{"custom_pipelines": {"pair": {"impl": "modeling_x.P", "pt": ["AutoModel"]}}}"#;
        assert_eq!(found("config.json", pipelines), ["pair modeling_x.P modeling_x.py"]);
        for text in
            [r#"{"auto_map": "modeling_x.X"}"#, "{}", "[", r#"{"auto_map": {"a": {}, "b": ["x"], "c": ""}}"#]
        {
            assert!(found("config.json", text).is_empty(), "{text}");
        }
        assert!(found("other.json", r#"{"auto_map": {"AutoModel": "modeling_x.X"}}"#).is_empty());
    }
}

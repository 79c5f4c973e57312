//! Finds the Python code that a model's configuration tells a program to import.
//!
//! Facts: `auto_map` and `custom_pipelines` of `transformers`' configurations. With `trust_remote_code=True`, it imports
//! `MODULE.py` next to the configuration for the value `MODULE.CLASS`, and a file of another repository for
//! `REPOSITORY--MODULE.CLASS`. `sentence_transformers` does so for the `type` of `modules.json`, `diffusers` for `_class_name` and
//! the components of `model_index.json`. `transformers` also imports `custom_generate/generate.py`, which nothing names.
//!
//! Other programs import a file by its name, too: `torch.hub.load`, `DiffusionPipeline.from_pretrained` with the folder as
//! `custom_pipeline`, `foreign_class` of `SpeechBrain`, Triton's Python backend, which needs no `config.pbtxt`, Hugging Face's
//! inference endpoints, the containers of `SageMaker`, `kernels`, and `Tool.from_hub` and `from_folder` of smolagents.

use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use byte_source::{Error, Folder, Location, Observer, Source};
use serde::Serialize;
use torch_import::{DocumentKind, KIND_PEEK, Scan};

/// Python code that replaces `generate` of a model.
const GENERATE: &str = "custom_generate/generate.py";
/// Extensions of modules that Python imports without their source.
const CODE: [&str; 3] = ["pyc", "pyd", "so"];
/// Modules of a dotted name whose files are looked for.
const PARTS_MAX: usize = 8;

/// Files of Python code that a program finds by their names, the program, and the file or folder that is next to them then.
const BY_NAME: [(&str, &str, &str); 7] = [
    ("hubconf.py", "torch.hub", "."),
    ("pipeline.py", "diffusers", "model_index.json"),
    ("custom.py", "speechbrain", "hyperparams.yaml"),
    ("handler.py", "endpoint", "config.json"),
    ("model.py", "djl-serving", "serving.properties"),
    ("__init__.py", "kernels", "metadata.json"),
    ("tool.py", "smolagents", "."),
];

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

/// Modules of Python in each folder, by their names: their files, or the folders of packages.
pub(crate) type Neighbours = HashMap<PathBuf, HashMap<String, String>>;

/// Scans a document, and returns the classes in Python code that it names, if the code is there or in another repository. Returns
/// also the code itself that a program finds by its name, and `None` for other files. `opened` is the file, if it is open.
pub(crate) fn scan_document(
    file: &Location,
    opened: Option<&Arc<dyn Source>>,
    neighbours: &mut Neighbours,
    observer: &dyn Observer,
) -> Option<Result<(Scan, Vec<CustomClass>), Error>> {
    let name = file.path().file_name()?.to_string_lossy();
    let Some(kind) = DocumentKind::with_content(&name, || first_bytes(file, opened).into()) else {
        return code_by_name(file).map(|code| Ok((Scan::default(), vec![code])));
    };
    let folder = file.parent();
    let near = neighbours.entry(folder.path().to_owned()).or_insert_with(|| names_in(&folder));
    let has_generate = file.path().ends_with("config.json") && near.contains_key("custom_generate");
    let source = opened.cloned().map_or_else(|| file.open(), Ok);
    Some(source.and_then(|source| {
        let (scan, references) = Scan::document(&source, kind, &|name| near.contains_key(name), observer)?;
        let has_file = |inside: &Path| folder.join(inside).is_file();
        let classes = references.iter().filter_map(|it| custom_class(&has_file, near, &it.key, &it.text));
        let generate = (has_generate && has_file(Path::new(GENERATE))).then(|| CustomClass {
            key: "custom_generate".to_owned(),
            class: "generate".to_owned(),
            file: Some(GENERATE.to_owned()),
            repository: None,
        });
        Ok((scan, classes.chain(generate).collect()))
    }))
}

/// Scans a text that has the name of no document; `None` for other files. `opened` is the file, if it is open.
pub(crate) fn scan_text(
    file: &Location,
    opened: Option<&Arc<dyn Source>>,
    observer: &dyn Observer,
) -> Option<Result<Scan, Error>> {
    let name = file.path().file_name()?.to_string_lossy();
    let kind = DocumentKind::of_text(&name, &first_bytes(file, opened))?;
    let source = opened.cloned().map_or_else(|| file.open(), Ok);
    Some(source.and_then(|source| Ok(Scan::document(&source, kind, &|_| false, observer)?.0)))
}

/// Returns a file of Python code that a program finds by its name.
fn code_by_name(file: &Location) -> Option<CustomClass> {
    let name = file.path().file_name()?.to_str()?;
    let module = name.strip_suffix(".py")?;
    let folder = file.parent();
    let folder_name = folder.path().file_name().unwrap_or_default().to_string_lossy();
    let is_version = folder_name.bytes().all(|byte| byte.is_ascii_digit()) && !folder_name.is_empty();
    let is_near = |near: &str| near == "." || folder.join(Path::new(near)).is_file();
    let by_name = BY_NAME.iter().find(|(known, _, near)| *known == name && is_near(near));
    let key = match by_name {
        Some((_, program, _)) => program,
        // `default_model_filename` of `config.pbtxt` may name any file of a version.
        None if is_version
            && (name == "model.py" || folder.parent().join(Path::new("config.pbtxt")).is_file()) =>
        {
            "triton"
        }
        // `evaluate.load` and `datasets.load_dataset` with the folder.
        None if folder_name == module => "evaluate",
        None if name == "__init__.py" && is_kernel(&folder) => "kernels",
        None if folder_name == "tools" && folder.parent().join(Path::new("agent.json")).is_file() => {
            "smolagents"
        }
        None if folder_name == "code" && name == "inference.py" => "sagemaker",
        None if is_near("configuration.json") => "modelscope",
        // EasyOCR imports the module of a network that a document describes, NeMo Guardrails `config.py`.
        None if ["yaml", "yml"].iter().any(|end| is_near(&format!("{module}.{end}"))) => module,
        None => return None,
    };
    let (class, file) = (module.to_owned(), Some(name.to_owned()));
    Some(CustomClass { key: (*key).to_owned(), class, file, repository: None })
}

/// Returns true for the folder of a kernel's module: `build/torch…`, or a folder in it or in one with the kernel's `metadata.json`.
fn is_kernel(folder: &Location) -> bool {
    let is_variant = |folder: &Location| {
        let name = folder.path().file_name().unwrap_or_default().to_string_lossy();
        folder.parent().path().ends_with("build") && ["torch", "tvm"].iter().any(|it| name.starts_with(it))
    };
    let outer = folder.parent();
    is_variant(folder) || is_variant(&outer) || outer.join(Path::new("metadata.json")).is_file()
}

/// Returns the first bytes of a file; none if it cannot be read.
pub(super) fn first_bytes(file: &Location, opened: Option<&Arc<dyn Source>>) -> Vec<u8> {
    let source = opened.cloned().map_or_else(|| file.open(), Ok);
    let start =
        source.and_then(|source| Ok(source.read_range(0..source.len().min(KIND_PEEK as u64))?.to_vec()));
    start.unwrap_or_default()
}

/// Returns no name if the folder has no listing.
fn names_in(folder: &Location) -> HashMap<String, String> {
    let Ok(Folder { listing, .. }) = folder.list() else { return HashMap::new() };
    let module = |name: &String| {
        let (_, extension) = name.rsplit_once('.')?;
        // `NAME.cpython-311-x86_64-linux-gnu.so`
        let module = name.split('.').next().filter(|_| CODE.contains(&extension))?;
        Some((module.to_owned(), name.clone()))
    };
    let mut modules: HashMap<String, String> = listing.files.iter().filter_map(module).collect();
    let sources =
        listing.files.iter().filter_map(|name| Some((name.strip_suffix(".py")?.to_owned(), name.clone())));
    modules.extend(sources);
    modules.extend(listing.folders.into_iter().map(|name| (name.clone(), name)));
    modules
}

fn custom_class(
    has_file: &dyn Fn(&Path) -> bool,
    near: &HashMap<String, String>,
    key: &str,
    reference: &str,
) -> Option<CustomClass> {
    let (repository, class) = match reference.split_once("--") {
        Some((repository, class)) => (Some(repository.to_owned()), class),
        None => (None, reference),
    };
    let file = match repository {
        Some(_) => None,
        None => Some(python_file(has_file, class).or_else(|| compiled_file(near, class))?),
    };
    Some(CustomClass { key: key.to_owned(), class: class.to_owned(), file, repository })
}

/// Returns the file of a class next to a configuration; `None` if there is none, or if the name leads elsewhere. A class may be in
/// another one.
fn python_file(has_file: &dyn Fn(&Path) -> bool, class: &str) -> Option<String> {
    let modules = class.match_indices('.').map(|(at, _)| class.get(..at).unwrap_or_default()).rev();
    let files = modules.take(PARTS_MAX).flat_map(|module| {
        let path = module.replace('.', "/");
        [format!("{path}.py"), format!("{path}/__init__.py")]
    });
    let mut files = files.map(PathBuf::from);
    let is_inside = |file: &Path| file.components().all(|part| matches!(part, Component::Normal(_)));
    files.find(|file| is_inside(file) && has_file(file)).map(|file| file.display().to_string())
}

/// Returns the file of a compiled module next to a configuration.
fn compiled_file(near: &HashMap<String, String>, class: &str) -> Option<String> {
    let is_code = |name: &str| name.rsplit_once('.').is_some_and(|(_, end)| CODE.contains(&end));
    let (module, _) = class.split_once('.').filter(|_| !is_code(class))?;
    near.get(module).filter(|file| is_code(file)).cloned()
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
        fs::create_dir(folder.path().join("code")).expect("a folder");
        fs::write(folder.path().join("code/part.py"), "").expect("a file");
        let found = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::write(&path, text).expect("a file");
            let scanned = scan_document(&Location::from(&path), None, &mut Neighbours::new(), &());
            let (_, classes) = scanned.expect("a document").expect("it is read");
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
        fs::create_dir(folder.path().join("custom_generate")).expect("a folder");
        fs::write(folder.path().join(GENERATE), "").expect("a file");
        assert_eq!(found("config.json", "{}"), ["custom_generate generate custom_generate/generate.py"]);
        fs::remove_file(folder.path().join(GENERATE)).expect("it is there");
        let by_name = |name: &str, near: &str| {
            let near = folder.path().join(near);
            fs::create_dir_all(near.parent().expect("a folder")).expect("a folder");
            fs::write(near, "").expect("a file");
            let file = Location::from(&folder.path().join(name));
            scan_document(&file, None, &mut Neighbours::new(), &()).map(|found| {
                let (_, classes) = found.expect("it is read");
                classes.iter().map(|it| format!("{} {}", it.key, it.place())).collect::<Vec<_>>().concat()
            })
        };
        for (name, near, expected) in [
            ("hubconf.py", "a", Some("torch.hub hubconf.py")),
            ("train.py", "a", None),
            ("pipeline.py", "a", None),
            ("pipeline.py", "model_index.json", Some("diffusers pipeline.py")),
            ("m/1/model.py", "m/1/model.py", Some("triton model.py")),
            ("m/1/other.py", "m/1/other.py", None),
            ("m/1/other.py", "m/config.pbtxt", Some("triton other.py")),
            ("m/v/model.py", "m/v/model.py", None),
            ("code/inference.py", "code/inference.py", Some("sagemaker inference.py")),
            ("model.py", "serving.properties", Some("djl-serving model.py")),
            ("metric/metric.py", "metric/README.md", Some("evaluate metric.py")),
            ("metric/app.py", "metric/README.md", None),
        ] {
            assert_eq!(by_name(name, near).as_deref(), expected, "{name} next to {near}");
        }
        for text in ["{}", "[", r#"{"auto_map": {"a": {}, "b": ["x"], "c": ""}}"#] {
            assert!(found("config.json", text).is_empty(), "{text}");
        }
        for text in [
            r#"{"a": NaN, "b": "\ud800", "c": 1e999, "auto_map": {"key": "modeling_x.X"}}"#,
            r#"{"auto_map": 1, "auto_map": {"key": "modeling_x.X"}, "auto_map": {}}"#,
            "\u{feff}{\"key\": \"modeling_x.X\"}",
            r#"[{"idx": 0, "key": "modeling_x.X.Inner"}]"#,
            r#"{"key": ["modeling_x", "X"]}"#,
            r#"{"code": ["part", "X"], "key": 1}"#,
            &[&" ".repeat(1 << 20), &"[".repeat(2000), r#"{"key": "modeling_x.X"}"#, &"]".repeat(2000)]
                .concat(),
        ] {
            assert_eq!(found("any.json", text).len(), 1, "{text}");
        }
        for name in ["compiled.pyc", "native.cpython-311-x86_64-linux-gnu.so", "x.json.so"] {
            fs::write(folder.path().join(name), "").expect("a file");
        }
        for (text, expected) in [
            ("service: modeling_x:svc", "service modeling_x.svc modeling_x.py"),
            ("predict: 'modeling_x.py:P'", "predict modeling_x.py.P modeling_x.py"),
            ("type: compiled.C", "type compiled.C compiled.pyc"),
            ("type: native.C", "type native.C native.cpython-311-x86_64-linux-gnu.so"),
        ] {
            assert_eq!(found("a.yaml", text), [expected], "{text}");
        }
        assert!(found("a.yaml", "a: compiled.pyc\nb: x.json.so").is_empty(), "names of files");
        // The content says that it is a document.
        assert_eq!(found("metadata", "{\"key\": \"modeling_x.X\"}").len(), 1);
        assert_eq!(found("a.yaml", "x: &a modeling_x.X\nkey: *a\n"), ["x modeling_x.X modeling_x.py"]);
        for text in [r#"["modeling_x.py", "modeling_y.X", "modeling_x"]"#, r#"[["code", "X"], "code.X"]"#] {
            assert!(found("any.json", text).is_empty(), "{text}");
        }
    }
}

//! Judges texts that matter whatever their key is: names of callables, code, commands, pickles, and references to Python code next to the
//! document.

use std::borrow::Cow;

use super::{FOUND_MAX, Judge};
use crate::scan::budget::truncate_name;
use crate::scan::documents::CodeReference;
use crate::scan::documents::callable::{
    Callable, imports_package, is_dangerous_name, is_harmless_operation, is_identifier,
};
use crate::scan::documents::expression::{has, is_layer_text};
use crate::scan::documents::python_text::{calls_something, is_python_text, is_source, runs_code};
use crate::scan::documents::value_texts::{is_evaluated, is_pipe, names_native_code, shown};
use crate::scan::documents::{base64, interpolation, template};

/// Keys of an exported program under which functions of torch are the origin of a node.
const ORIGINS: &str = "from_node nn_module_stack source_fn_stack stack_trace torch_fn";
/// Last words of keys under which programs import a class and make an object of it.
const IMPORTED: &str = "@class class cls implementation provider uses";
/// Parts of the keys of lists whose files programs run.
const CODE_LISTS: [&str; 6] = ["base", "code", "import", "module", "plugin", "script"];
/// Places in a text where the base64 of a pickle may begin.
const STARTS_MAX: usize = 2;

impl Judge<'_> {
    /// Judges a text that programs evaluate or call under any key, or under keys of lists.
    pub(super) fn value_of_any_key(&mut self, key: &str, text: &str, at: u64) {
        // Tokens are any texts, and `math.add` is TensorFlow's.
        let is_operation = key == "function" && is_harmless_operation(text);
        if !matches!(key, "merges" | "vocab") && !is_operation {
            self.callable(key, text, at);
            self.code(key, text);
        }
        if (key == "activation" || self.levels.last().is_some_and(|level| level.has_layers))
            && !is_layer_text(text)
        {
            self.add_finding("expression", || {
                format!("the text `{}`, which YOLO evaluates, calls something else than a layer", shown(text))
            });
        }
        if is_evaluated(key) && calls_something(text) {
            self.add_finding("expression", || {
                format!("the text `{}`, which fairseq evaluates as `{key}`, calls something", shown(text))
            });
        }
        if text.contains("{{") || text.contains("{%") {
            self.template(text);
        }
        if text == "EXECUTION_ENV_PATH" {
            self.add_missed(|| "the environment with which Triton runs Python code".to_owned());
        }
        if names_native_code(text) {
            self.add_missed(|| format!("the native code `{}`, which a program may load", shown(text)));
        }
        if interpolation::evaluates(text) {
            self.add_target(key, &Callable::unknown(text), at);
        }
        self.pickles(text, at);
    }

    /// Judges the name of a callable, or a command.
    fn callable(&mut self, key: &str, text: &str, at: u64) {
        // `os:system` as Gymnasium and `DeepPavlov` write it, and `path:os.system` of NNI.
        let dotted =
            if text.contains(':') { Cow::Owned(text.replace(':', ".")) } else { Cow::Borrowed(text) };
        let is_node = || key == "target" && self.levels.iter().any(|level| level.outer == "nodes");
        let is_origin = text.starts_with("torch.") && (has(ORIGINS, key) || is_node());
        let is_imported = || has(IMPORTED, key.rsplit('_').next().unwrap_or_default());
        if is_dangerous_name(&dotted) && !is_origin || is_imported() && imports_package(&dotted) {
            self.add_target(key, &Callable::new(&dotted), at);
        } else if is_python_text(text) || is_pipe(text) {
            self.add_target(key, &Callable::unknown(text), at);
        }
    }

    /// Judges a text that is code of Python.
    pub(in crate::scan::documents) fn code(&mut self, key: &str, text: &str) {
        if runs_code(text) {
            self.add_finding("expression", || {
                format!("the text `{}`, which runs code if a program evaluates it", shown(text))
            });
        } else if is_source(text) {
            self.add_missed(|| format!("the Python code under `{}`, which a program may run", shown(key)));
        }
    }

    /// Judges the text of a template.
    pub(in crate::scan::documents) fn template(&mut self, text: &str) {
        if let Some(name) = template::find_hidden_attribute(text) {
            self.add_finding("template", || {
                format!("a template uses `{}`, with which templates leave their sandbox", shown(&name))
            });
        }
    }

    /// Collects pickles that are encoded in base64, with or without a prefix such as NNI's `bytes:`, or in hexadecimal, as by Ray Tune.
    fn pickles(&mut self, text: &str, at: u64) {
        let is_start = |start: &usize| {
            let before = text.get(..*start).unwrap_or_default();
            let next = text.as_bytes().get(start.saturating_add(2));
            !before.ends_with(|last: char| last.is_ascii_alphanumeric() || "+/".contains(last))
                && next.is_some_and(|next| (b'I'..=b'X').contains(next))
        };
        let starts = text.match_indices("gA").map(|(start, _)| start).filter(is_start).take(STARTS_MAX);
        for start in starts.collect::<Vec<_>>() {
            self.add_pickle(text.get(start..).unwrap_or_default(), at, false);
        }
        if let Some(bytes) = hexadecimal_pickle(text) {
            self.found.pickles.push((at, bytes, false));
        }
    }

    pub(super) fn add_pickle(&mut self, text: &str, at: u64, is_loaded: bool) {
        let bytes = base64::decode_as_python(text);
        if is_loaded || matches!(bytes.as_slice(), [0x80, 2..=5, ..]) {
            self.found.pickles.push((at, bytes, is_loaded));
        }
    }

    /// Collects what may refer to Python code next to the document.
    pub(super) fn reference(&mut self, key: &str, outer: &str, text: &str) {
        let level = self.levels.last();
        let names_code = level.is_some_and(|level| level.names_code);
        let first = level.filter(|level| !level.is_map).and_then(|level| level.first.as_deref());
        let is_near = |name: &str| is_identifier(name) && (self.is_near)(name);
        // `NAME:ATTRIBUTE`, as BentoML and Ray write it.
        let is_dotted = text.strip_suffix(".py").is_none()
            && text.split_once(['.', ':']).is_some_and(|(module, _)| is_near(module));
        // `model_file: NAME.py`, which mlx-lm runs, or a list of such files, as MMEngine's `_base_`; other lists name files that are there.
        let file = text.strip_prefix("./").unwrap_or(text);
        let is_run =
            level.is_some_and(|level| level.is_map || CODE_LISTS.iter().any(|part| key.contains(part)));
        let is_file = is_run
            && file.strip_suffix(".py").is_some_and(|module| {
                module.split('/').all(is_identifier) && module.split('/').next().is_some_and(is_near)
            });
        let reference = match first {
            _ if is_file => file.replace('/', "."),
            _ if names_code || is_dotted => text.replace(':', "."),
            // `["MODULE", "CLASS"]`, next to the document or in the folder of the component.
            Some(first) if is_identifier(text) && is_near(first) => [first, ".", text].concat(),
            Some(first) if is_identifier(text) && is_identifier(first) && is_near(outer) => {
                [outer, ".", first, ".", text].concat()
            }
            _ => return,
        };
        if self.found.references.len() >= FOUND_MAX {
            return self.add_missed(|| "more references to Python code".to_owned());
        }
        if self.found.referred.insert(reference.clone()) {
            // The name of a pipeline says more than `impl`.
            let key = if key == "impl" { outer } else { key };
            self.found.references.push(CodeReference { key: key.to_owned(), text: reference });
        }
    }

    /// Remembers what may be the library and the class of a component: a list of two names in a map.
    pub(super) fn component(&mut self, text: &str) {
        let [.., map, list] = self.levels.as_mut_slice() else { return };
        if let Some(library) = list.first.as_deref()
            && map.is_map
            && !list.is_map
            && map.components.len() < FOUND_MAX
            && is_identifier(text)
            && library.split('.').all(is_identifier)
        {
            map.components.push((truncate_name(library.to_owned()), truncate_name(text.to_owned())));
        }
    }
}

/// Returns the bytes of a pickle in hexadecimal digits.
fn hexadecimal_pickle(text: &str) -> Option<Vec<u8>> {
    let is_pickle = matches!(text.as_bytes(), [b'8', b'0', b'0', b'2'..=b'5', ..]);
    let digits: Option<Vec<u32>> =
        is_pickle.then(|| text.trim_end().chars().map(|it| it.to_digit(16)).collect()).flatten();
    let byte = |pair: &[u32]| match pair {
        [high, low] => u8::try_from(high << 4 | low).ok(),
        _ => None,
    };
    digits?.chunks(2).map(byte).collect()
}

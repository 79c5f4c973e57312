//! Checks `carton.toml` against the rest of its carton: references, dtypes, shapes and links.
//!
//! Facts: the Carton v1 specification.

use std::collections::HashMap;

use crate::config::{ANY_SYMBOL, Config, DataType, Dimension, Port, References, Shape};
use crate::problem::{DocumentProblem, DocumentProblems, ProblemKind};
use crate::spec::{MISC_REFERENCE, TENSOR_REFERENCE};
use crate::tensor_data::{TensorIndex, TensorSpec};

impl Config {
    /// Checks the document against its carton: `tensors` is the index of `tensor_data/`, and `has` returns true if a path
    /// such as `misc/cat.png` exists.
    pub fn check(&self, tensors: &TensorIndex, has: &dyn Fn(&str) -> bool) -> DocumentProblems {
        let tensors = tensors.tensors.iter().map(|tensor| (tensor.name(), tensor)).collect();
        let (inputs, outputs) = (ports_by_name(&self.inputs), ports_by_name(&self.outputs));
        let mut checker = ConfigChecker { config: self, tensors, inputs, outputs, has, problems: Vec::new() };
        for (index, test) in self.self_tests.iter().enumerate() {
            let path = format!("self_test[{index}]");
            checker.check_ports_declared(&path, &test.inputs);
            let mut symbols = Symbols::default();
            let sides = [("inputs", Some(&test.inputs)), ("expected_out", test.expected_out.as_ref())];
            for (side, references) in sides {
                let Some(references) = references else { continue };
                checker.check_references(
                    &format!("{path}.{side}"),
                    references,
                    side == "inputs",
                    false,
                    &mut symbols,
                );
            }
        }
        for (index, example) in self.examples.iter().enumerate() {
            let path = format!("example[{index}]");
            checker.check_ports_declared(&path, &example.inputs);
            let mut symbols = Symbols::default();
            checker.check_references(&format!("{path}.inputs"), &example.inputs, true, true, &mut symbols);
            checker.check_references(
                &format!("{path}.sample_out"),
                &example.sample_out,
                false,
                true,
                &mut symbols,
            );
        }
        checker.check_misc_links();
        DocumentProblems(checker.problems)
    }
}

fn ports_by_name(ports: &[Port]) -> HashMap<&str, &Port> {
    ports.iter().map(|port| (port.name.as_str(), port)).collect()
}

/// Values of the symbols so far, within one self test or example.
#[derive(Default)]
struct Symbols {
    sizes: HashMap<String, u64>,
    shapes: HashMap<String, Vec<u64>>,
}

struct ConfigChecker<'c> {
    config: &'c Config,
    tensors: HashMap<&'c str, &'c TensorSpec>,
    inputs: HashMap<&'c str, &'c Port>,
    outputs: HashMap<&'c str, &'c Port>,
    has: &'c dyn Fn(&str) -> bool,
    problems: Vec<DocumentProblem>,
}

impl ConfigChecker<'_> {
    fn push_problem(&mut self, key: &str, kind: ProblemKind) {
        self.problems.push(self.config.problem(key.to_owned(), kind));
    }

    /// Records a problem if the model declares no outputs, or declares no inputs although the test has some.
    fn check_ports_declared(&mut self, path: &str, inputs: &References) {
        let takes = !inputs.0.is_empty();
        if self.config.outputs.is_empty() || (takes && self.config.inputs.is_empty()) {
            self.push_problem(path, ProblemKind::PortsNotDeclared);
        }
    }

    fn check_references(
        &mut self,
        path: &str,
        references: &References,
        inputs: bool,
        misc: bool,
        symbols: &mut Symbols,
    ) {
        for (name, target) in &references.0 {
            let key = format!("{path}.{name}");
            let ports = if inputs { &self.inputs } else { &self.outputs };
            let port = ports.get(name.as_str()).copied();
            if port.is_none() && !ports.is_empty() {
                let what = if inputs { "input" } else { "output" };
                self.push_problem(&key, ProblemKind::Undeclared { name: name.clone(), what });
            }
            if let Some(tensor) = target.strip_prefix(TENSOR_REFERENCE) {
                match (self.tensors.get(tensor).copied(), port) {
                    (None, _) => self.push_problem(&key, ProblemKind::Reference { target: target.clone() }),
                    (Some(tensor), Some(port)) => self.check_tensor_fits(&key, tensor, port, symbols),
                    _ => {}
                }
            } else if let Some(file) =
                target.strip_prefix('@').filter(|_| misc && target.starts_with(MISC_REFERENCE))
            {
                if !(self.has)(file) {
                    self.push_problem(&key, ProblemKind::Reference { target: target.clone() });
                }
            } else {
                let expected = if misc { "@tensor_data/… or @misc/…" } else { "@tensor_data/…" };
                self.push_problem(
                    &key,
                    ProblemKind::Value { found: target.clone(), expected: expected.to_owned() },
                );
            }
        }
    }

    /// Checks that the dtype and shape of a tensor fit an input or output.
    fn check_tensor_fits(&mut self, key: &str, tensor: &TensorSpec, port: &Port, symbols: &mut Symbols) {
        let (name, dtype, shape) = match tensor {
            TensorSpec::Array { name, dtype, shape, .. } => (name, dtype, shape),
            TensorSpec::Nested { inner, .. } => {
                // The inner tensors of a ragged tensor have shapes of their own.
                for part in inner {
                    if let Some(TensorSpec::Array { name, dtype, .. }) = self.tensors.get(part.as_str()) {
                        self.check_tensor_dtype(key, name, *dtype, port);
                    }
                }
                return;
            }
        };
        self.check_tensor_dtype(key, name, *dtype, port);
        let differs = |symbol: &str, first: String, found: String| {
            (first != found).then(|| ProblemKind::SymbolValues { symbol: symbol.to_owned(), first, found })
        };
        let dimensions = match &port.shape {
            Shape::Symbol(symbol) if symbol == ANY_SYMBOL => return,
            Shape::Symbol(symbol) => {
                let first = symbols.shapes.entry(symbol.clone()).or_insert_with(|| shape.clone());
                if let Some(kind) = differs(symbol, format!("{first:?}"), format!("{shape:?}")) {
                    self.push_problem(key, kind);
                }
                return;
            }
            Shape::Dimensions(dimensions) => dimensions,
        };
        let sizes = dimensions.iter().zip(shape);
        let fixed = |(dimension, size): (&Dimension, &u64)| match dimension {
            Dimension::Size(expected) => expected == size,
            Dimension::Symbol(_) => true,
        };
        if dimensions.len() != shape.len() || !sizes.clone().all(fixed) {
            let (found, expected) = (format!("{shape:?}"), port.shape.to_string());
            self.push_problem(key, ProblemKind::Shape { tensor: name.clone(), found, expected });
            return;
        }
        for (dimension, size) in sizes {
            let Dimension::Symbol(symbol) = dimension else { continue };
            if symbol == ANY_SYMBOL {
                continue;
            }
            let first = *symbols.sizes.entry(symbol.clone()).or_insert(*size);
            if let Some(kind) = differs(symbol, first.to_string(), size.to_string()) {
                self.push_problem(key, kind);
            }
        }
    }

    fn check_tensor_dtype(&mut self, key: &str, tensor: &str, dtype: DataType, port: &Port) {
        if dtype != port.dtype {
            let (found, expected) = (dtype.name(), port.dtype.name());
            self.push_problem(key, ProblemKind::Dtype { tensor: tensor.to_owned(), found, expected });
        }
    }

    /// Checks the files that the model description links to.
    fn check_misc_links(&mut self) {
        let Some(description) = &self.config.model_description else { return };
        for link in misc_links(description) {
            // Punctuation after a link may end a sentence.
            let bare = link.trim_end_matches(['.', ',', ';', ':', '!', '?']);
            // A bare `@misc/` refers to the folder.
            if !bare.is_empty()
                && !(self.has)(&format!("misc/{link}"))
                && !(self.has)(&format!("misc/{bare}"))
            {
                let kind = ProblemKind::Reference { target: format!("{MISC_REFERENCE}{bare}") };
                self.push_problem("model_description", kind);
            }
        }
    }
}

/// Returns the text after each `@misc/` of a Markdown text, up to the end of the link.
fn misc_links(text: &str) -> impl Iterator<Item = &str> {
    text.split(MISC_REFERENCE).skip(1).map(|rest| {
        let ends =
            |c: char| c.is_whitespace() || matches!(c, ')' | ']' | '>' | '<' | '"' | '\'' | '`' | '|' | '*');
        rest.split(ends).next().unwrap_or_default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_end_where_markdown_ends_them() {
        let links: Vec<_> =
            misc_links("![a](@misc/a.png) <@misc/b/c.png> `@misc/d` see @misc/e.txt.\n@misc/f").collect();
        assert_eq!(links, ["a.png", "b/c.png", "d", "e.txt.", "f"]);
    }
}

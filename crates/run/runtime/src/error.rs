//! Problems of opening and running a carton.

use std::path::PathBuf;

use byte_source::{Place, details, format_bytes, format_things};
use tensor::Dtype;

/// Problem of opening or running a carton.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The carton needs another runner.
    #[error(
        "its model needs Carton's runner `{}`; only models of the runner `torchscript` can run here",
        runner.escape_debug()
    )]
    Runner {
        /// Name of the runner in carton.toml.
        runner: String,
    },
    /// The code of the model is not what a conversion by this program writes.
    #[error(
        "the model is a TorchScript module with its own code{}, which cannot run here",
        differing_code(record)
    )]
    ForeignCode {
        /// First record that differs.
        record: String,
    },
    /// carton.toml has a port that the model does not have.
    #[error(
        "carton.toml has the {side} `{}`, which the model does not have; it has {}",
        name.escape_debug(), known.join(", ")
    )]
    UnknownPort {
        side: PortSide,
        /// Internal name of the port, or its name if it has no internal one.
        name: String,
        /// Names of the model's ports.
        known: Vec<&'static str>,
    },
    /// A runner option has an invalid value.
    #[error("`runner.opts.{name}` is {found}, expected a number of at least 1")]
    RunnerOption {
        /// Name of the option.
        name: &'static str,
        /// Value of the option, as in carton.toml.
        found: String,
    },
    #[error("{} found", format_things(*problems, "problem"))]
    Damaged {
        /// Number of problems found.
        problems: usize,
    },
    /// A requested output does not exist.
    #[error("there is no output `{}`; {}", name.escape_debug(), listed("the outputs are", known))]
    NoOutput {
        name: String,
        /// Names of the outputs, at most the first few and a count of the rest.
        known: Vec<String>,
    },
    /// The dtype of an output is not in Carton and has no conversion.
    #[error("{0} cannot be an output of a carton")]
    OutputDtype(Dtype),
    /// Tokens were given to a carton of weights.
    #[error("{} has weights and no code; it does not take tokens", path.display())]
    NotAModel { path: PathBuf },
    /// A tensor expands a small storage to too many elements.
    #[error("an expanded view of {} over a storage of {}", format_bytes(*nbytes), format_bytes(*storage))]
    ExpandedView {
        /// Size of the tensor's elements, in bytes.
        nbytes: u64,
        /// Size of the storage, in bytes.
        storage: u64,
    },
}

details! {
    Problem => Problem::place {
        Unsupported: Runner, ForeignCode, OutputDtype, ExpandedView;
        Damaged: UnknownPort, RunnerOption, Damaged;
        Input: NoOutput, NotAModel;
    }
}

impl Problem {
    fn place(&self) -> Place {
        match self {
            Self::NotAModel { path } => Place::file(path),
            _ => Place::default(),
        }
    }
}

/// Side of a model that a port belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortSide {
    Input,
    Output,
}

impl std::fmt::Display for PortSide {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Input => "input",
            Self::Output => "output",
        })
    }
}

/// Reason for which an input cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InputError {
    /// The model does not have this input.
    #[error("there is no input `{}`; {}", name.escape_debug(), listed("the inputs are", known))]
    Unknown {
        name: String,
        /// Names of the declared inputs.
        known: Vec<String>,
    },
    /// A required input is missing.
    #[error("the input `{}` is missing", name.escape_debug())]
    Missing { name: String },
    /// An input is given twice.
    #[error("the input `{}` is given twice", name.escape_debug())]
    DuplicateInput { name: String },
    /// The dtype of an input is not the declared one.
    #[error("the input `{}` is {found}, expected {expected}", name.escape_debug())]
    Dtype {
        name: String,
        found: String,
        /// Dtype that carton.toml declares.
        expected: &'static str,
    },
    /// The shape of an input is not the declared one.
    #[error("the input `{}` has the shape {found:?}, expected {}", name.escape_debug(), expected.escape_debug())]
    Shape {
        name: String,
        /// Shape of the input, in elements.
        found: Vec<u64>,
        /// Shape that carton.toml declares.
        expected: String,
    },
    /// A symbol would need two different values.
    #[error(
        "`{}` is {first} in the input `{}` and {second} in the input `{}`, expected the same",
        symbol.escape_debug(), first_input.escape_debug(), second_input.escape_debug()
    )]
    Symbol {
        symbol: String,
        /// Input in which the symbol occurs first.
        first_input: String,
        /// Value of the symbol in the first input: a size or a shape.
        first: String,
        /// Input in which the value differs.
        second_input: String,
        /// Value of the symbol in the second input.
        second: String,
    },
    /// Only some of the inputs from an earlier call are given.
    #[error("one of {ports} is missing: they come together")]
    IncompletePast {
        /// Names of these inputs, for a sentence.
        ports: &'static str,
    },
    /// The model takes numbers, and the input holds something else.
    #[error("the input `{}` is {found}, which the model does not take", name.escape_debug())]
    NotNumbers {
        name: String,
        /// Description of the input's elements.
        found: &'static str,
    },
}

/// Returns the name of a record in parentheses, if it is source text. The object of a converted module always differs.
fn differing_code(record: &str) -> String {
    if record.starts_with("code/") { format!(" (`{}`)", record.escape_debug()) } else { String::new() }
}

fn listed(are: &str, names: &[String]) -> String {
    if names.is_empty() {
        return "there are none".to_owned();
    }
    let names: Vec<String> = names.iter().map(|name| name.escape_debug().to_string()).collect();
    format!("{are} {}", names.join(", "))
}

details! {
    InputError {
        Input: Unknown, Missing, DuplicateInput, Dtype, Shape, Symbol, IncompletePast, NotNumbers;
    }
}

//! Describes the model repository of NVIDIA Triton: the location of its files, and `config.pbtxt` as types.
//!
//! A repository is a folder with one folder for each model, which holds the model's configuration and one folder for each
//! version. [`ModelConfig`] is the configuration of a TorchScript model, and its text is the file that Triton reads.
//!
//! Facts: `model_config.proto` in `triton-inference-server/common`, which defines the configuration; `src/pt` in
//! `triton-inference-server/pytorch_backend`, which runs TorchScript: an input has the name of an argument of `forward`, an
//! output may have any name, and `forward` returns tensors, not a dict; the text format specification of Protocol Buffers.

#![expect(clippy::arithmetic_side_effects, reason = "it writes text, and computes with no sizes")]

use std::fmt;

/// Path of the configuration in the folder of a model.
pub(crate) const CONFIG_PATH: &str = "config.pbtxt";
/// Path of the TorchScript archive in the folder of a model: version 1, which Triton serves unless there is a higher
/// version.
pub(crate) const MODEL_PATH: &str = "1/model.pt";

/// Returns true if `name` is a valid model name. Triton uses it as the name of a folder and in the paths of URLs.
pub(crate) fn is_model_name(name: &str) -> bool {
    !name.is_empty()
        && name != "."
        && name != ".."
        && !name.contains(|c: char| matches!(c, '/' | '\\') || c.is_control())
}

/// Configuration of a TorchScript model with Triton's batching off (`max_batch_size: 0`): the first dimension is an ordinary
/// one, and Triton does not merge requests. The configuration has no model name, so the model's folder can be renamed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ModelConfig {
    /// Arguments of `forward`, by name.
    pub(crate) inputs: Vec<ModelPort>,
    /// Return values of `forward`: one tensor, or the items of a tuple in this order.
    pub(crate) outputs: Vec<ModelPort>,
}

impl ModelConfig {
    /// Returns the name of an output that Triton would look for at the index that its name ends with, if that index is not the
    /// output's own. Triton does so if all names end with two underscores and a number.
    pub(crate) fn misnumbered_output(&self) -> Option<&str> {
        let numbers: Option<Vec<usize>> =
            self.outputs.iter().map(|port| trailing_index(&port.name)).collect();
        let wrong = numbers?.into_iter().enumerate().find(|(place, number)| place != number);
        wrong.and_then(|(place, _)| self.outputs.get(place)).map(|port| port.name.as_str())
    }
}

/// Returns the number after the first two underscores of a name, as Triton reads it.
fn trailing_index(name: &str) -> Option<usize> {
    let (_, digits) = name.split_once("__")?;
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| if digits.is_empty() { 0 } else { digits.parse().unwrap_or(usize::MAX) })
}

/// Input or output tensor of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ModelPort {
    /// Name of the tensor in requests.
    pub(crate) name: String,
    pub(crate) data_type: DataType,
    pub(crate) dims: Vec<Dim>,
}

/// Size of one dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dim {
    /// Any number of elements, written as -1.
    Any,
    Size(u64),
}

/// Element types that Triton's PyTorch backend supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DataType {
    Bool,
    UInt8,
    Int8,
    Int16,
    Int32,
    Int64,
    Fp16,
    Fp32,
    Fp64,
}

impl DataType {
    /// Returns the type's name in `config.pbtxt`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Bool => "TYPE_BOOL",
            Self::UInt8 => "TYPE_UINT8",
            Self::Int8 => "TYPE_INT8",
            Self::Int16 => "TYPE_INT16",
            Self::Int32 => "TYPE_INT32",
            Self::Int64 => "TYPE_INT64",
            Self::Fp16 => "TYPE_FP16",
            Self::Fp32 => "TYPE_FP32",
            Self::Fp64 => "TYPE_FP64",
        }
    }
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("-1"),
            Self::Size(size) => size.fmt(f),
        }
    }
}

impl fmt::Display for ModelConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("platform: \"pytorch_libtorch\"\nmax_batch_size: 0\n")?;
        write_ports(f, "input", &self.inputs)?;
        write_ports(f, "output", &self.outputs)?;
        f.write_str(CONFIG_TAIL)
    }
}

/// Rest of the configuration, which selects the device. Triton replaces `KIND_AUTO` by `KIND_GPU` if it finds a GPU, and by
/// `KIND_CPU` otherwise.
const CONFIG_TAIL: &str = r#"# KIND_AUTO: `count` instances on each GPU, or on the CPU if Triton finds no GPU.
# KIND_CPU and KIND_GPU choose one; `gpus: [ 0 ]` chooses among several GPUs.
instance_group [
  {
    kind: KIND_AUTO
    count: 1
  }
]
parameters {
  key: "INFERENCE_MODE"
  value { string_value: "true" }
}
"#;

fn write_ports(f: &mut fmt::Formatter<'_>, kind: &str, ports: &[ModelPort]) -> fmt::Result {
    writeln!(f, "{kind} [")?;
    for (number, ModelPort { name, data_type, dims }) in ports.iter().enumerate() {
        let dims = dims.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        writeln!(f, "  {{\n    name: {}\n    data_type: {}", quoted(name), data_type.name())?;
        let comma = if number + 1 < ports.len() { "," } else { "" };
        writeln!(f, "    dims: [ {dims} ]\n  }}{comma}")?;
    }
    f.write_str("]\n")
}

/// Quotes a string literal. Protocol Buffers use the same escapes as Rust's byte strings.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.as_bytes().escape_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_separated_and_strings_escaped() {
        let port = |name: &str, dims| ModelPort { name: name.to_owned(), data_type: DataType::Bool, dims };
        let config = ModelConfig {
            inputs: vec![port("a\"\\\n\u{e9}'", vec![]), port("b", vec![Dim::Size(3), Dim::Any])],
            outputs: vec![port("c", vec![Dim::Any])],
        };
        let text = config.to_string();
        let (ports, rest) = text.split_once('#').expect("it has a comment");
        assert_eq!(
            ports,
            r#"platform: "pytorch_libtorch"
max_batch_size: 0
input [
  {
    name: "a\"\\\n\xc3\xa9\'"
    data_type: TYPE_BOOL
    dims: [  ]
  },
  {
    name: "b"
    data_type: TYPE_BOOL
    dims: [ 3, -1 ]
  }
]
output [
  {
    name: "c"
    data_type: TYPE_BOOL
    dims: [ -1 ]
  }
]
"#
        );
        assert!(rest.contains("\n    kind: KIND_AUTO\n    count: 1\n"), "{rest}");
    }

    #[test]
    fn numbers_in_all_names_of_outputs_are_their_indices() {
        let config = |names: &[&str]| ModelConfig {
            inputs: Vec::new(),
            outputs: names
                .iter()
                .map(|name| ModelPort {
                    name: (*name).to_owned(),
                    data_type: DataType::Bool,
                    dims: vec![Dim::Any],
                })
                .collect(),
        };
        for (names, wrong) in [
            (&["OUTPUT__0", "OUTPUT__1"][..], None),
            (&["OUTPUT__1", "OUTPUT__0"], Some("OUTPUT__1")),
            (&["x", "OUTPUT__5"], None),
            (&["a__", "b__1", "c__99999999999999999999"], Some("c__99999999999999999999")),
            (&["a__1x"], None),
            (&[], None),
        ] {
            assert_eq!(config(names).misnumbered_output(), wrong, "{names:?}");
        }
    }

    #[test]
    fn a_model_is_called_as_a_folder_can_be() {
        for name in ["llama", "llama-3.1-8b", "a b", "\u{e9}", ".a", "..."] {
            assert!(is_model_name(name), "{name}");
        }
        for name in ["", ".", "..", "a/b", "a\\b", "/", "a\nb", "a\0"] {
            assert!(!is_model_name(name), "{name:?}");
        }
    }
}

//! The signature of an exported program: its arguments and results, as inspections list them.

use std::sync::Arc;

use byte_source::Source;
use foldhash::HashMap;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use super::meta::{self, TensorMeta};
use crate::Result;

/// A model of an archive, and the document with its program.
#[derive(Clone, Debug)]
pub struct ExportedModel {
    pub name: String,
    pub(super) program: Option<Arc<dyn Source>>,
}

/// Arguments and results of an exported program.
#[derive(Clone, Debug, Serialize)]
pub struct GraphSignature {
    /// Name of the model in its archive.
    pub model: String,
    /// Version of PyTorch that wrote it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub torch_version: Option<String>,
    /// Version of the document's schema, such as `8.20`.
    pub schema_version: String,
    /// Parameters, buffers and constants, and then the inputs of the user.
    pub inputs: Vec<GraphArgument>,
    pub outputs: Vec<GraphArgument>,
}

/// Argument or result of a program.
#[derive(Clone, Debug, Serialize)]
pub struct GraphArgument {
    /// Kind, as PyTorch calls it: `parameter`, `buffer`, `user_input`, `user_output`, `buffer_mutation`, ….
    pub kind: String,
    /// Name in the graph, or a constant.
    pub name: String,
    /// Name of the tensor or of the input that it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dtype: Option<&'static str>,
    /// Sizes, of which some may be symbols.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shape: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct Program {
    graph_module: GraphModule,
    schema_version: SchemaVersion,
    torch_version: Option<String>,
}

#[derive(Deserialize)]
struct SchemaVersion {
    major: u64,
    minor: u64,
}

#[derive(Deserialize)]
struct GraphModule {
    graph: Graph,
    signature: Signature,
}

#[derive(Deserialize)]
struct Graph {
    #[serde(default)]
    tensor_values: HashMap<String, TensorMeta>,
}

#[derive(Deserialize)]
struct Signature {
    input_specs: Vec<Map<String, Json>>,
    output_specs: Vec<Map<String, Json>>,
}

impl ExportedModel {
    /// Reads the signature of the model's program; `None` if the archive has compiled code instead.
    ///
    /// # Errors
    /// When the document cannot be read, or is damaged.
    pub fn signature(&self) -> Result<Option<GraphSignature>> {
        let Some(program) = &self.program else { return Ok(None) };
        let text = program.share(0..program.len())?;
        let record = program.path().display().to_string();
        let Program { graph_module: GraphModule { graph, signature }, schema_version, torch_version } =
            meta::parse(&record, &text)?;
        let arguments = |specs: Vec<Map<String, Json>>| {
            let specs = specs.into_iter().flat_map(Map::into_iter);
            specs.map(|(kind, spec)| argument(kind, &spec, &graph.tensor_values)).collect()
        };
        Ok(Some(GraphSignature {
            model: self.name.clone(),
            torch_version,
            schema_version: format!("{}.{}", schema_version.major, schema_version.minor),
            inputs: arguments(signature.input_specs),
            outputs: arguments(signature.output_specs),
        }))
    }
}

fn argument(kind: String, spec: &Json, tensors: &HashMap<String, TensorMeta>) -> GraphArgument {
    let name = spec.get("arg").map_or_else(String::new, argument_name);
    let targets =
        ["parameter_name", "buffer_name", "tensor_constant_name", "custom_obj_name", "user_input_name"];
    let target = targets.iter().find_map(|key| spec.get(key)?.as_str()).map(str::to_owned);
    let meta = tensors.get(&name);
    GraphArgument {
        target,
        dtype: meta.and_then(|meta| meta::dtype_of(meta.dtype)).map(tensor::Dtype::name),
        shape: meta.map(|meta| meta.sizes.iter().map(ToString::to_string).collect()),
        kind,
        name,
    }
}

/// Returns the name of an argument such as `{"as_tensor": {"name": "x"}}`, or the text of a constant.
fn argument_name(argument: &Json) -> String {
    let named =
        |value: &Json| ["name", "as_name"].iter().find_map(|key| Some(value.get(key)?.as_str()?.to_owned()));
    let inner = || argument.as_object()?.values().next();
    named(argument).or_else(|| named(inner()?)).unwrap_or_else(|| inner().unwrap_or(argument).to_string())
}

//! Values of a checkpoint that are not tensors, as JSON: for listings and `misc/checkpoint.json`.

pub(crate) mod array_text;
pub(crate) mod decoded;
mod float_text;
mod gguf;
pub(crate) mod npy;

use std::borrow::Cow;
use std::sync::Arc;

use byte_source::hex;
use pickle_vm::{Heap, Object, ObjectId};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Value as Json, json};
use tensor::{CompoundTensor, Tensors};
use torch_import::{Checkpoint, CheckpointValue, EncodedBytes, ValueExtent};

use decoded::{decode_call, decode_global};

/// Path in a carton of the values and the compound tensors.
pub const VALUES_PATH: &str = "misc/checkpoint.json";
/// Maximum depth of nested calls that are rendered.
const MAX_DEPTH: usize = 8;
/// Maximum number of objects rendered per value: tuples of shared tuples can have billions.
const MAX_OBJECTS: usize = 10_000;
/// Maximum length of texts and byte strings that are rendered.
const MAX_BYTES: usize = 64 << 10;

/// Row of a listing for a value that is not a tensor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ValueRow {
    /// Path of the value in the checkpoint.
    pub path: String,
    /// Name of the type in Python.
    #[serde(rename = "type")]
    pub type_name: Cow<'static, str>,
    pub value: Json,
}

/// Values of a checkpoint. Rows are created on demand: a value may have a million names, and each row repeats the value.
#[derive(Clone, Debug)]
pub struct ValueRows {
    checkpoint: Arc<Checkpoint>,
    listed: Vec<(String, CheckpointValue)>,
    /// Rows that a carton has as JSON.
    document: Vec<ValueRow>,
}

impl ValueRows {
    /// Takes the listed values of a checkpoint, each with its path.
    pub fn new(checkpoint: Checkpoint, listed: Vec<(String, CheckpointValue)>) -> Self {
        Self { checkpoint: Arc::new(checkpoint), listed, document: Vec::new() }
    }

    /// Takes rows that are rendered already, such as those in a carton.
    pub fn from_document(document: Vec<ValueRow>) -> Self {
        Self { document, ..Self::new(Checkpoint::default(), Vec::new()) }
    }

    /// Takes all values of a checkpoint, except the metadata entry that every safetensors file from PyTorch has.
    pub fn notable(checkpoint: Checkpoint) -> Self {
        let listed = checkpoint.notable_values().map(|(path, value)| (path.to_owned(), value.clone()));
        let listed = listed.collect();
        Self::new(checkpoint, listed)
    }

    /// Returns the rows in the order of the file.
    pub fn rows(&self) -> impl Iterator<Item = ValueRow> {
        let mut shown = ValueRenderer::new(&self.checkpoint);
        let read = self.listed.iter().map(move |(path, value)| shown.row(path.clone(), value));
        read.chain(self.document.iter().cloned())
    }
}

impl Serialize for ValueRows {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.rows())
    }
}

/// Renders values of a checkpoint as JSON.
pub(crate) fn render<'c, T>(
    checkpoint: &'c Checkpoint,
    values: impl Iterator<Item = (T, &'c CheckpointValue)>,
) -> impl Iterator<Item = (T, Json)> {
    let mut shown = ValueRenderer::new(checkpoint);
    values.map(move |(what, value)| (what, shown.row(String::new(), value).value))
}

/// Renders values as JSON. A value without a JSON form becomes an object with one key that starts with `$`: `$float` for
/// `nan`, `inf` or `-inf`, `$complex` for its two parts, `$int` for decimal digits beyond 64 bits, `$bytes` for hexadecimal digits, `$global` and `$call`
/// for names in the pickle, `$items` for dicts inside calls, `$more` for values that are too large.
struct ValueRenderer<'h, 'p> {
    checkpoint: &'h Checkpoint,
    /// Objects of the current value's pickle, if the checkpoint has one.
    heap: Option<&'h Heap<'p>>,
    /// Number of objects that may still be rendered for the current value.
    value_objects_left: usize,
    /// Numbers of objects inside values, and of bytes of text, that may still be rendered for all values together. A pickle
    /// of a megabyte can have half a million names for one value.
    total_objects_left: usize,
    total_bytes_left: usize,
}

impl<'h> ValueRenderer<'h, 'h> {
    fn new(checkpoint: &'h Checkpoint) -> Self {
        let len = usize::try_from(checkpoint.pickle_len()).unwrap_or(usize::MAX);
        Self {
            checkpoint,
            heap: checkpoint.heap(),
            value_objects_left: 0,
            total_objects_left: (len / 2).saturating_add(1 << 20),
            total_bytes_left: len.saturating_mul(4).saturating_add(16 << 20),
        }
    }

    fn row(&mut self, path: String, value: &CheckpointValue) -> ValueRow {
        let (type_name, value) = match value {
            CheckpointValue::Object { object, pickle, extent } => {
                self.heap = self.checkpoint.heap_of(*pickle);
                (self.type_name(*object), self.object(*object, *extent))
            }
            CheckpointValue::Text(text) => {
                let shown = self.spend_bytes(text.len()).map(|()| Json::from(&**text));
                (Cow::Borrowed("str"), shown.unwrap_or_else(|| json!({ "$more": "str" })))
            }
            CheckpointValue::Gguf(value) => {
                self.value_objects_left = MAX_OBJECTS;
                let type_name = gguf::type_name(value.value_type());
                (Cow::Borrowed(type_name), self.gguf_value(value))
            }
            _ => (Cow::Borrowed("object"), json!({ "$more": "object" })),
        };
        ValueRow { path, type_name, value }
    }

    fn object(&mut self, id: ObjectId, extent: ValueExtent) -> Json {
        match extent {
            ValueExtent::Cycle => json!({ "$cycle": true }),
            ValueExtent::Cut => self.more_placeholder(id),
            _ => {
                self.value_objects_left = MAX_OBJECTS;
                self.json(id, 0)
            }
        }
    }

    fn type_name(&mut self, id: ObjectId) -> Cow<'static, str> {
        let Some(heap) = self.heap else { return "object".into() };
        if let Some(encoded) = EncodedBytes::find(heap, id) {
            return encoded.type_name().into();
        }
        let decoded = match heap.get(id) {
            Object::Global(_) => heap.global(id).and_then(|(module, name)| decode_global(module, name)),
            Object::Instance(instance) => decode_call(heap, id, instance),
            _ => None,
        };
        if let Some(type_name) = decoded.and_then(|decoded| decoded.type_name) {
            return type_name.into();
        }
        let class = heap.instance(id).and_then(|instance| self.global(instance.callable));
        class.map_or(heap.get(id).type_name().into(), Cow::Owned)
    }

    fn more_placeholder(&self, id: ObjectId) -> Json {
        json!({ "$more": self.heap.map_or("object", |heap| heap.get(id).type_name()) })
    }

    /// Deducts the elements of an array from the remaining objects; `None` if there are too many.
    fn spend_objects(&mut self, count: usize) -> Option<()> {
        self.value_objects_left = self.value_objects_left.checked_sub(count)?;
        self.total_objects_left = self.total_objects_left.checked_sub(count)?;
        Some(())
    }

    /// Deducts the length of a text from the remaining bytes; `None` if the text is too long.
    fn spend_bytes(&mut self, bytes: usize) -> Option<()> {
        if bytes > MAX_BYTES {
            return None;
        }
        self.total_bytes_left = self.total_bytes_left.checked_sub(bytes)?;
        Some(())
    }

    /// Returns the name of a global; `None` if it is too long.
    fn global(&mut self, id: ObjectId) -> Option<String> {
        let (module, name) = self.heap?.global(id)?;
        self.spend_bytes(module.len().saturating_add(name.len()))?;
        Some(format!("{module}.{name}"))
    }

    fn json(&mut self, id: ObjectId, depth: usize) -> Json {
        self.try_json(id, depth).unwrap_or_else(|| self.more_placeholder(id))
    }

    /// Renders an object; `None` if it is too large.
    fn try_json(&mut self, id: ObjectId, depth: usize) -> Option<Json> {
        let heap = self.heap?;
        self.value_objects_left = self.value_objects_left.checked_sub(1)?;
        if depth >= MAX_DEPTH {
            return None;
        }
        Some(match heap.get(id) {
            Object::None => Json::Null,
            Object::Bool(value) => json!(value),
            Object::Int(value) => json!(value),
            Object::Long(value) => {
                // The cost of decimal conversion is quadratic in the length.
                let len = value.bytes().len();
                self.spend_bytes(len.saturating_mul(len) / 64)?;
                json!({ "$int": value.to_decimal()? })
            }
            Object::Float(value) => decoded::float(*value),
            Object::Text(text) => {
                self.spend_bytes(text.bytes().len())?;
                json!(text.to_str())
            }
            Object::String(bytes) => {
                self.spend_bytes(bytes.len())?;
                match heap.text(id) {
                    Some(text) => json!(text),
                    None => json!({ "$bytes": hex(bytes) }),
                }
            }
            Object::Bytes(bytes) | Object::ByteArray(bytes) => {
                self.spend_bytes(bytes.len())?;
                json!({ "$bytes": hex(bytes) })
            }
            Object::Tuple(_) | Object::List(_) | Object::Set(_) | Object::FrozenSet(_) => {
                self.json_array(heap.items(id).unwrap_or_default(), depth)?
            }
            Object::Dict(_) => {
                let pairs = heap.entries(id).unwrap_or_default();
                if pairs.is_empty() {
                    return Some(json!({}));
                }
                if pairs.len() > self.value_objects_left {
                    return None;
                }
                let pairs: Option<Json> =
                    pairs.iter().map(|(key, value)| self.json_array(&[*key, *value], depth)).collect();
                json!({ "$items": pairs? })
            }
            Object::Global(_) => {
                let decoded = heap.global(id).and_then(|(module, name)| decode_global(module, name));
                match decoded {
                    Some(decoded) => decoded.value,
                    None => json!({ "$global": self.global(id)? }),
                }
            }
            Object::Instance(instance) => {
                if let Some(encoded) = EncodedBytes::find(heap, id) {
                    self.spend_bytes(encoded.encoded_len())?;
                    if let Some(bytes) = encoded.decode() {
                        return Some(json!({ "$bytes": hex(&bytes) }));
                    }
                }
                if let Some(decoded) = decode_call(heap, id, instance) {
                    // A text or a size is as long as its arguments.
                    self.spend_bytes(decoded.value.as_str().map_or(64, str::len))?;
                    return Some(decoded.value);
                }
                let call = self.global(instance.callable);
                let call = call.map_or(heap.get(id).type_name().into(), Cow::Owned);
                let args = heap.items(instance.args).unwrap_or_default();
                let args =
                    self.json_array(args, depth).unwrap_or_else(|| self.more_placeholder(instance.args));
                let state =
                    self.json_array(instance.state(), depth).unwrap_or_else(|| json!({ "$more": "list" }));
                json!({ "$call": call, "args": args, "state": state })
            }
            _ => return None,
        })
    }

    /// Renders several objects as an array; `None` if they exceed the limits.
    fn json_array(&mut self, ids: &[ObjectId], depth: usize) -> Option<Json> {
        if ids.len() > self.value_objects_left {
            return None;
        }
        self.total_objects_left = self.total_objects_left.checked_sub(ids.len())?;
        Some(ids.iter().map(|id| self.json(*id, depth.saturating_add(1))).collect())
    }
}

/// Approximate maximum length of the values in `misc/checkpoint.json`, in bytes.
const FILE_MAX: usize = 16 << 20;

/// Returns the text of `misc/checkpoint.json`: the values, and the structure of quantized, sparse and nested tensors. The values
/// are `rows` if the checkpoint was in a carton, whose document has them in this form already.
/// Returns `None` if there are neither values nor such tensors.
pub fn values_document(
    checkpoint: &Checkpoint,
    rows: Option<&[ValueRow]>,
    tensors: &Tensors,
) -> Option<String> {
    let mut shown = ValueRenderer::new(checkpoint);
    let read =
        checkpoint.notable_values().map(|(path, value)| json!(shown.row(path.to_owned(), value)).to_string());
    let kept = rows.into_iter().flatten().map(|row| json!(row).to_string());
    let mut all: Box<dyn Iterator<Item = String>> =
        if rows.is_some() { Box::new(kept) } else { Box::new(read) };
    let first = all.next();
    if first.is_none() && tensors.compounds().is_empty() {
        return None;
    }
    let mut lines = Vec::new();
    let (mut len, mut left_out) = (0_usize, 0_usize);
    for line in first.into_iter().chain(all) {
        if len.saturating_add(line.len()) > FILE_MAX {
            left_out = left_out.saturating_add(1);
        } else {
            len = len.saturating_add(line.len());
            lines.push(line);
        }
    }
    let compounds: Vec<String> =
        tensors.compounds().iter().map(|it| compound(it, tensors).to_string()).collect();
    Some(format!(
        "{{\"schema_version\": 1, \"values_left_out\": {left_out}, \"values\": [\n{}\n], \"compounds\": [\n{}\n]}}\n",
        lines.join(",\n"),
        compounds.join(",\n")
    ))
}

/// Returns the class, shard and other attributes of a tensor subclass whose attributes are its parts.
pub fn subclass(kind: &torch_import::CompoundKind) -> Option<Json> {
    let torch_import::CompoundKind::Subclass { class, shard, attributes } = kind else { return None };
    let attributes = attributes.iter().map(|(name, shown)| (name.clone(), Json::from(shown.as_str())));
    let attributes: serde_json::Map<String, Json> = attributes.collect();
    let mut subclass = json!({ "class": class, "attributes": attributes });
    if let (Some(shard), Some(subclass)) = (shard, subclass.as_object_mut()) {
        subclass.insert("shard".to_owned(), Json::from(shard.as_str()));
    }
    Some(subclass)
}

fn compound(compound: &CompoundTensor, tensors: &Tensors) -> Json {
    use torch_import::CompoundKind;
    let parts: Vec<&str> = tensors.parts(compound).iter().map(|(name, _)| name.as_str()).collect();
    let mut out = json!({ "name": compound.name, "dtype": compound.dtype.name(), "shape": compound.shape, "parts": parts });
    let kind = match &compound.kind {
        CompoundKind::Quantized { scheme, axis } => json!({ "quantized": scheme, "axis": axis }),
        CompoundKind::Sparse { layout } | CompoundKind::Blocks { scheme: layout } => {
            json!({ "layout": layout })
        }
        CompoundKind::Nested => json!({ "layout": "nested" }),
        CompoundKind::Jagged => json!({ "layout": "jagged" }),
        kind => subclass(kind).map_or_else(|| json!({}), |subclass| json!({ "subclass": subclass })),
    };
    if let (Some(out), Json::Object(kind)) = (out.as_object_mut(), kind) {
        out.extend(kind);
    }
    out
}

//! The values of a checkpoint that are not tensors, as JSON: for listings and misc/checkpoint.json.

use std::borrow::Cow;

use mapped::hex;
use pickle_vm::{Heap, Object, ObjectId};
use serde::Serialize;
use serde_json::{Value as Json, json};
use torch_import::{Checkpoint, Extent, Value};

/// How deeply calls inside the arguments of calls are shown.
const MAX_DEPTH: usize = 8;
/// The most objects that are shown of a value: tuples of shared tuples have billions.
const MAX_OBJECTS: usize = 10_000;
/// Longer texts and byte strings are not shown.
const MAX_BYTES: usize = 64 << 10;

/// A value that is not a tensor.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ValueRow {
    /// Its name.
    pub path: String,
    /// Its type in Python.
    #[serde(rename = "type")]
    pub type_name: Cow<'static, str>,
    /// The value itself.
    pub value: Json,
}

/// The row of a value.
pub(crate) fn row(checkpoint: &Checkpoint, path: String, value: Value) -> ValueRow {
    let heap = checkpoint.heap();
    let shown = match value.extent {
        Extent::Cycle => json!({ "$cycle": true }),
        Extent::Cut => json!({ "$more": heap.get(value.object).type_name() }),
        _ => Shown { heap, left: MAX_OBJECTS }.json(value.object, 0),
    };
    ValueRow { path, type_name: type_name(heap, value.object), value: shown }
}

fn type_name(heap: &Heap<'_>, id: ObjectId) -> Cow<'static, str> {
    match heap.instance(id).and_then(|instance| heap.global(instance.callable)) {
        Some((module, name)) => format!("{module}.{name}").into(),
        None => heap.get(id).type_name().into(),
    }
}

/// What JSON cannot say is an object with one key that starts with `$`: `$float` of `nan`, `inf` or
/// `-inf`, `$int` in decimals where 64 bits are too few, `$bytes` in hexadecimals, `$global` and `$call` of
/// what the pickle names, `$items` of dicts inside calls, `$more` of what is too large to show.
struct Shown<'h, 'p> {
    heap: &'h Heap<'p>,
    left: usize,
}

impl Shown<'_, '_> {
    fn json(&mut self, id: ObjectId, depth: usize) -> Json {
        let heap = self.heap;
        let more = json!({ "$more": heap.get(id).type_name() });
        let Some(left) = self.left.checked_sub(1) else { return more };
        self.left = left;
        let len = heap.bytes(id).map(<[u8]>::len).or_else(|| heap.text(id).map(|text| text.len()));
        if depth >= MAX_DEPTH || len.is_some_and(|len| len > MAX_BYTES) {
            return more;
        }
        match heap.get(id) {
            Object::None => Json::Null,
            Object::Bool(value) => json!(value),
            Object::Int(value) => json!(value),
            Object::Long(value) => match value.to_decimal() {
                Some(decimal) => json!({ "$int": decimal }),
                None => more,
            },
            Object::Float(value) => match serde_json::Number::from_f64(*value) {
                Some(number) => Json::Number(number),
                None => json!({ "$float": value.to_string().to_lowercase() }),
            },
            Object::Text(text) => json!(text.to_str()),
            Object::String(bytes) => match heap.text(id) {
                Some(text) => json!(text),
                None => json!({ "$bytes": hex(bytes) }),
            },
            Object::Bytes(bytes) | Object::ByteArray(bytes) => json!({ "$bytes": hex(bytes) }),
            Object::Tuple(_) | Object::List(_) | Object::Set(_) | Object::FrozenSet(_) => {
                self.all(heap.items(id).unwrap_or_default(), depth)
            }
            Object::Dict(_) => {
                let pairs = heap.entries(id).unwrap_or_default().iter();
                let pairs: Json = pairs.map(|(key, value)| self.all(&[*key, *value], depth)).collect();
                json!({ "$items": pairs })
            }
            Object::Global(_) => match heap.global(id) {
                Some((module, name)) => json!({ "$global": format!("{module}.{name}") }),
                None => more,
            },
            Object::Instance(instance) => {
                let args = self.all(heap.items(instance.args).unwrap_or_default(), depth);
                let state = self.all(instance.state(), depth);
                json!({ "$call": type_name(heap, id), "args": args, "state": state })
            }
            _ => more,
        }
    }

    fn all(&mut self, ids: &[ObjectId], depth: usize) -> Json {
        ids.iter().map(|id| self.json(*id, depth.saturating_add(1))).collect()
    }
}

/// The most bytes of values in misc/checkpoint.json, about.
const FILE_MAX: usize = 16 << 20;

/// `misc/checkpoint.json`: the values, and how the parts of quantized, sparse and nested tensors belong
/// together. `None` when there is neither.
pub(crate) fn document(
    checkpoint: &Checkpoint,
    compounds: &[(String, torch_import::Compound)],
) -> Option<String> {
    if checkpoint.notable_values().next().is_none() && compounds.is_empty() {
        return None;
    }
    let mut lines = Vec::new();
    let (mut len, mut left_out) = (0_usize, 0_usize);
    for (path, value) in checkpoint.notable_values() {
        let line = json!(row(checkpoint, path.to_owned(), value)).to_string();
        if len.saturating_add(line.len()) > FILE_MAX {
            left_out = left_out.saturating_add(1);
        } else {
            len = len.saturating_add(line.len());
            lines.push(line);
        }
    }
    let compounds: Vec<String> = compounds.iter().map(|(name, it)| compound(name, it).to_string()).collect();
    Some(format!(
        "{{\"schema_version\": 1, \"values_left_out\": {left_out}, \"values\": [\n{}\n], \"compounds\": [\n{}\n]}}\n",
        lines.join(",\n"),
        compounds.join(",\n")
    ))
}

/// The class of a tensor whose parts are its attributes, what it is a shard of, and its other attributes.
pub(crate) fn subclass(kind: &torch_import::CompoundKind) -> Option<Json> {
    let torch_import::CompoundKind::Subclass { class, shard, attributes } = kind else { return None };
    let attributes = attributes.iter().map(|(name, shown)| (name.clone(), Json::from(shown.as_str())));
    let attributes: serde_json::Map<String, Json> = attributes.collect();
    let mut subclass = json!({ "class": class, "attributes": attributes });
    if let (Some(shard), Some(subclass)) = (shard, subclass.as_object_mut()) {
        subclass.insert("shard".to_owned(), Json::from(shard.as_str()));
    }
    Some(subclass)
}

fn compound(name: &str, compound: &torch_import::Compound) -> Json {
    use torch_import::CompoundKind;
    let parts: Vec<String> = compound.parts.iter().map(|(part, _)| format!("{name}.{part}")).collect();
    let mut out =
        json!({ "name": name, "dtype": compound.dtype.name(), "shape": compound.shape, "parts": parts });
    let kind = match &compound.kind {
        CompoundKind::Quantized { scheme, axis } => json!({ "quantized": scheme, "axis": axis }),
        CompoundKind::Sparse { layout } => json!({ "layout": layout }),
        CompoundKind::Nested => json!({ "layout": "nested" }),
        CompoundKind::Jagged => json!({ "layout": "jagged" }),
        kind => subclass(kind).map_or_else(|| json!({}), |subclass| json!({ "subclass": subclass })),
    };
    if let (Some(out), Json::Object(kind)) = (out.as_object_mut(), kind) {
        out.extend(kind);
    }
    out
}

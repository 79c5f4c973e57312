//! Reads ONNX models for what a runtime takes from elsewhere: operators of libraries, compiled code, and files of numbers.
//!
//! Facts: `onnx/onnx.proto3` of ONNX 1.23 and the specification of protocol buffers; `PythonOp` of ONNX Runtime's training and `PyOp` of
//! its extensions, which call Python, and `EPContext`, which holds code for an accelerator or names a file of it.

use std::collections::{BTreeSet, HashSet};

use super::documents::value_texts::leads_out;

/// Domains of the operators that a runtime brings itself.
const DOMAINS: [&str; 8] = [
    "",
    "ai.onnx",
    "ai.onnx.ml",
    "ai.onnx.training",
    "ai.onnx.preview.training",
    "com.microsoft",
    "com.microsoft.nchwc",
    "com.ms.internal.nhwc",
];
/// Operators that run code which is in the model or named by it.
const RUNNING: [&str; 5] = ["EPContext", "PyCustomOp", "PyOp", "PythonOp", "PythonOpGrad"];
/// Messages inside others, and operators that are kept.
const LEVELS_MAX: usize = 1 << 10;
const KEPT_MAX: usize = 1 << 10;

/// What a model takes from elsewhere.
#[derive(Default)]
pub(super) struct OnnxFindings<'m> {
    /// Domains and names of the operators that are neither a runtime's own nor functions of the model.
    pub(super) operators: BTreeSet<(&'m str, &'m str)>,
    /// Operators that run code of the model.
    pub(super) running: BTreeSet<&'m str>,
    /// Files of numbers that are neither in the folder of the model nor below it.
    pub(super) elsewhere: BTreeSet<&'m str>,
    /// Reason for which the model was not read to its end.
    pub(super) error: Option<&'static str>,
}

/// Kind of a message, by which its fields have a meaning.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Message {
    Model,
    Training,
    Graph,
    Function,
    Node,
    Attribute,
    SparseTensor,
    Tensor,
    External,
}

impl Message {
    /// Returns true for a field that ONNX has in a message.
    fn has(self, field: u64) -> bool {
        match self {
            Self::Model => matches!(field, 1..=8 | 14 | 20 | 25 | 26),
            Self::Training => matches!(field, 1..=4),
            Self::Graph => matches!(field, 1 | 2 | 5 | 10..=16),
            Self::Function => matches!(field, 1..=14),
            Self::Node => matches!(field, 1..=10),
            Self::Attribute => matches!(field, 1..=14 | 20..=23),
            Self::SparseTensor => matches!(field, 1..=3),
            Self::Tensor => matches!(field, 1..=14 | 16),
            Self::External => matches!(field, 1 | 2),
        }
    }

    /// Returns the kind of the messages in a field; `None` if they do not matter.
    fn field(self, field: u64) -> Option<Self> {
        Some(match (self, field) {
            (Self::Model, 7) | (Self::Training, 1 | 2) | (Self::Attribute, 6 | 11) => Self::Graph,
            (Self::Model, 20) => Self::Training,
            (Self::Model, 25) => Self::Function,
            (Self::Graph, 1) | (Self::Function, 7) => Self::Node,
            (Self::Node, 5) | (Self::Function, 11) => Self::Attribute,
            (Self::Graph, 5) | (Self::Attribute, 5 | 10) | (Self::SparseTensor, 1 | 2) => Self::Tensor,
            (Self::Graph, 15) | (Self::Attribute, 22 | 23) => Self::SparseTensor,
            (Self::Tensor, 13) => Self::External,
            _ => return None,
        })
    }
}

/// Open message: where it ends, and its texts, which are the key and the value of an entry, or the domain, the name and the overload.
struct Level<'m> {
    message: Message,
    end: usize,
    texts: [&'m str; 3],
}

/// Returns true for the first field of a model: its version.
fn may_be_onnx(start: &[u8]) -> bool {
    matches!(start, [0x08, 1..=0x20, ..])
}

/// Returns true for the bytes of a model: fields that follow one another to the end, among them a version and a graph.
pub(super) fn is_onnx(bytes: &[u8]) -> bool {
    let mut reader = Reader { bytes, at: 0 };
    let (mut has_version, mut has_graph) = (false, false);
    if !may_be_onnx(bytes) {
        return false;
    }
    while reader.at < bytes.len() {
        match reader.field(bytes.len()) {
            Some((1, None)) => has_version = true,
            Some((7, Some(_))) => has_graph = true,
            Some((1..=25, _)) => {}
            _ => return false,
        }
    }
    has_version && has_graph
}

/// Reads a model.
pub(super) fn read(bytes: &[u8]) -> OnnxFindings<'_> {
    let mut found = OnnxFindings::default();
    let (mut nodes, mut functions) = (HashSet::new(), HashSet::new());
    let mut reader = Reader { bytes, at: 0 };
    let level = |message, end| Level { message, end, texts: [""; 3] };
    let mut levels = vec![level(Message::Model, bytes.len())];
    while let Some(top) = levels.last_mut() {
        if reader.at >= top.end {
            let Level { message, texts: [first, second, overload], .. } = *top;
            match message {
                Message::Node if RUNNING.contains(&second) => drop(found.running.insert(second)),
                Message::Node if !DOMAINS.contains(&first) => drop(nodes.insert((first, second, overload))),
                Message::Function => drop(functions.insert((first, second, overload))),
                Message::External if first == "location" && leads_out(second) => {
                    found.elsewhere.insert(second);
                }
                _ => {}
            }
            levels.pop();
            continue;
        }
        let Some((field, content)) = reader.field(top.end) else {
            found.error = Some("its protocol buffers are damaged");
            break;
        };
        if !top.message.has(field) {
            found.error = Some("it has fields that ONNX does not have");
        }
        let Some(content) = content else { continue };
        let inside = bytes.get(content.0..content.1).unwrap_or_default();
        let [first, second, overload] = &mut top.texts;
        let kept = match (top.message, field) {
            (Message::Node, 7) | (Message::Function, 10) | (Message::External, 1) => Some(first),
            (Message::Node, 4) | (Message::Function, 1) | (Message::External, 2) => Some(second),
            (Message::Node, 8) | (Message::Function, 13) => Some(overload),
            _ => None,
        };
        if let Some(kept) = kept {
            match std::str::from_utf8(inside) {
                Ok(text) => *kept = text,
                Err(_) => found.error = Some("a name or a path in it is not a text"),
            }
        } else if let Some(inner) = top.message.field(field) {
            if levels.len() >= LEVELS_MAX || nodes.len().max(functions.len()) >= KEPT_MAX {
                found.error = Some("it has too many levels or operators");
                break;
            }
            reader.at = content.0;
            levels.push(level(inner, content.1));
        }
    }
    let others = nodes.into_iter().filter(|node| !functions.contains(node));
    found.operators = others.map(|(domain, name, _)| (domain, name)).collect();
    found
}

/// Reader of the fields of protocol buffers.
struct Reader<'m> {
    bytes: &'m [u8],
    at: usize,
}

impl Reader<'_> {
    /// Reads a field that ends before `end`: its number, and the bytes of a text or a message.
    fn field(&mut self, end: usize) -> Option<(u64, Option<(usize, usize)>)> {
        // Some readers cut longer tags.
        let tag = self.number(end).filter(|tag| u32::try_from(*tag).is_ok())?;
        let len = match tag & 7 {
            0 => {
                self.number(end)?;
                0
            }
            1 => 8,
            2 => usize::try_from(self.number(end)?).ok()?,
            5 => 4,
            _ => return None,
        };
        let start = self.at;
        self.at = start.checked_add(len).filter(|at| *at <= end)?;
        Some((tag >> 3, (tag & 7 == 2).then_some((start, self.at))))
    }

    fn number(&mut self, end: usize) -> Option<u64> {
        let mut number = 0_u64;
        for shift in (0..70).step_by(7) {
            let byte = *self.bytes.get(self.at).filter(|_| self.at < end)?;
            self.at = self.at.saturating_add(1);
            number |= u64::from(byte & 0x7f).checked_shl(shift)?;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(number: u8, content: &[u8]) -> Vec<u8> {
        let len = u8::try_from(content.len()).expect("a short message");
        [&[number << 3 | 2, len | 0x80, len >> 7], content].concat()
    }

    fn model(parts: &[Vec<u8>]) -> Vec<u8> {
        [vec![0x08, 0x0a], field(7, &parts.concat())].concat()
    }

    #[test]
    fn operators_code_and_files_from_elsewhere_are_found() {
        let node = |domain: &[u8], name: &[u8]| [field(4, name), field(7, domain)].concat();
        let location = |path: &[u8]| field(5, &field(13, &[field(1, b"location"), field(2, path)].concat()));
        let inner = [field(6, &field(1, &node(b"inner", b"Op"))), Vec::new()].concat();
        let bytes = model(&[
            field(1, &node(b"", b"Add")),
            field(1, &node(b"com.microsoft", b"PythonOp")),
            field(1, &node(b"mine", b"Op")),
            field(1, &[node(b"", b"If"), field(5, &inner)].concat()),
            location(b"weights.bin"),
            location(b"../weights.bin"),
        ]);
        assert!(is_onnx(&bytes));
        let found = read(&bytes);
        assert_eq!(found.operators, BTreeSet::from([("inner", "Op"), ("mine", "Op")]));
        assert_eq!(found.running, BTreeSet::from(["PythonOp"]));
        assert_eq!(found.elsewhere, BTreeSet::from(["../weights.bin"]));
        assert_eq!(found.error, None);
        let cut = bytes.get(..bytes.len() - 1).expect("it has bytes");
        assert!(!is_onnx(cut) && read(cut).error.is_some());
        assert!(!is_onnx(b"") && !is_onnx(b"\x08\x0a"));
    }
    #[test]
    fn what_onnx_does_not_have_is_an_error() {
        let error = |parts: &[Vec<u8>]| read(&model(parts)).error;
        assert_eq!(error(&[field(1, &field(4, b"Add"))]), None);
        assert_eq!(error(&[field(3, b"other")]), Some("it has fields that ONNX does not have"));
        // A tag of five bytes, of which some readers keep 32 bits: those of a node.
        let long = vec![0x8a, 0x80, 0x80, 0x80, 0x10, 0];
        assert_eq!(error(&[long]), Some("its protocol buffers are damaged"));
        let path = [field(1, b"location"), field(2, b"../\xff")].concat();
        assert_eq!(error(&[field(5, &field(13, &path))]), Some("a name or a path in it is not a text"));
    }
}

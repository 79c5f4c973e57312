//! Digest of tensors: one SHA-256 for names, dtypes, shapes and elements, whatever file the tensors are in.
//!
//! Facts: `docs/digest.md` defines the digest, and `tests/conformance/digest.py` is a second implementation.

use std::fmt::Write;

use byte_source::{Action, Observer, OwnedBlob, ProgressReporter, hex};
use foldhash::{HashSet, HashSetExt};
use tensor::{CompoundKind, Tensor, Tensors, UnreadTensor, hash_elements};

use crate::{Problem, Result};

/// Digest of some tensors.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TensorsDigest {
    /// SHA-256 of the lines, in hexadecimal.
    pub sha256: String,
    /// Line of each tensor and of each compound tensor, sorted, without its end.
    pub lines: Vec<String>,
    /// Each tensor by the hash of its elements. Of tensors that share their elements, only the first one is here.
    pub contents: Vec<TensorContent>,
}

/// Elements of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorContent {
    pub sha256: [u8; 32],
    pub nbytes: u64,
}

/// Computes the digest of tensors on all cores. `name` is the name of the file in progress reports, and `allowed_nbytes` the
/// largest number of bytes that are hashed, because views can repeat the bytes of their storages.
///
/// # Errors
/// When a tensor cannot be read, the views have more bytes than `allowed_nbytes`, or `observer` stops the work.
pub fn digest_tensors(
    tensors: &Tensors,
    name: &str,
    allowed_nbytes: u64,
    observer: &dyn Observer,
) -> Result<TensorsDigest> {
    let list: Vec<&Tensor> = tensors.iter().map(|(_, tensor)| tensor).collect();
    let mut views = HashSet::with_capacity(list.len());
    let distinct: Vec<bool> = list.iter().map(|tensor| views.insert(tensor.view_id())).collect();
    let sizes = || list.iter().zip(&distinct).map(|(tensor, is_first)| is_first.then(|| tensor.nbytes()));
    let nbytes = sizes().flatten().fold(0_u64, u64::saturating_add);
    drop(views);
    if nbytes > allowed_nbytes {
        return Err(Problem::DigestExpansion { nbytes, allowed: allowed_nbytes }.into());
    }
    let work = ProgressReporter::new(observer, name, Action::Hash, None);
    let hashes = hash_elements(&list, work).map_err(|UnreadTensor { position, reason }| {
        let name = tensors.get_index(position).map_or_else(String::new, |(name, _)| name.to_owned());
        reason.in_tensor(&name)
    })?;
    let contents = sizes().zip(&hashes);
    let contents = contents
        .filter_map(|(nbytes, sha256)| Some(TensorContent { sha256: *sha256, nbytes: nbytes? }))
        .collect();
    let plain = tensors
        .iter()
        .zip(&hashes)
        .map(|((name, tensor), hash)| digest_line(name, tensor.dtype().name(), tensor.shape(), &hex(hash)));
    let compounds = tensors.compounds().iter().filter_map(|compound| {
        let kind = compound_text(&compound.kind)?;
        Some(digest_line(&compound.name, compound.dtype.name(), &compound.shape, &kind))
    });
    let mut lines: Vec<String> = plain.chain(compounds).collect();
    lines.sort_unstable();
    let mut text = Vec::new();
    for line in &lines {
        text.extend_from_slice(line.as_bytes());
        text.push(b'\n');
    }
    let sha256 = byte_source::sha256(&OwnedBlob(text), &())?;
    Ok(TensorsDigest { sha256: hex(&sha256), lines, contents })
}

/// Returns the line of a tensor: a JSON array without spaces, in ASCII.
fn digest_line(name: &str, dtype: &str, shape: &[u64], content: &str) -> String {
    let mut line = String::with_capacity(name.len().saturating_add(120));
    line.push('[');
    push_json_string(&mut line, name);
    line.push(',');
    push_json_string(&mut line, dtype);
    line.push_str(",[");
    for (dim, size) in shape.iter().enumerate() {
        let comma = if dim == 0 { "" } else { "," };
        write!(line, "{comma}{size}").expect("memory takes any text");
    }
    line.push_str("],");
    push_json_string(&mut line, content);
    line.push(']');
    line
}

/// Appends a JSON string in which every character outside of printable ASCII is escaped, as `json.dumps` of Python does.
fn push_json_string(line: &mut String, text: &str) {
    line.push('"');
    for unit in text.encode_utf16() {
        match u8::try_from(unit).ok() {
            Some(b'"') => line.push_str("\\\""),
            Some(b'\\') => line.push_str("\\\\"),
            Some(0x08) => line.push_str("\\b"),
            Some(0x0c) => line.push_str("\\f"),
            Some(b'\n') => line.push_str("\\n"),
            Some(b'\r') => line.push_str("\\r"),
            Some(b'\t') => line.push_str("\\t"),
            Some(byte @ b' '..=b'~') => line.push(char::from(byte)),
            _ => write!(line, "\\u{unit:04x}").expect("memory takes any text"),
        }
    }
    line.push('"');
}

/// Returns the content in the line of a compound tensor; `None` for a compound without a line of its own, whose parts are
/// plain tensors wherever they are stored.
fn compound_text(kind: &CompoundKind) -> Option<String> {
    match kind {
        CompoundKind::Quantized { scheme, axis: None } => Some(scheme.clone()),
        CompoundKind::Quantized { scheme, axis: Some(axis) } => Some(format!("{scheme} axis {axis}")),
        CompoundKind::Sparse { layout } | CompoundKind::Blocks { scheme: layout } => Some(layout.clone()),
        CompoundKind::Nested => Some("nested".to_owned()),
        CompoundKind::Jagged => Some("jagged".to_owned()),
        CompoundKind::Subclass { .. } | CompoundKind::Meta { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use tensor::{Dtype, Storage};

    use super::*;

    fn tensors() -> Tensors {
        let storage = Storage::owned(vec![1, 2, 3, 4, 5, 6]);
        let tensor = |shape: &[u64], stride: &[u64]| {
            Tensor::new(Dtype::UInt8, shape.to_vec(), stride.to_vec(), 0, storage.clone()).expect("inside")
        };
        let mut all = Tensors::from([
            ("b\"\\\n\u{7f}é😀".to_owned(), tensor(&[2, 3], &[1, 2])),
            ("scalar".to_owned(), tensor(&[], &[])),
            ("empty".to_owned(), tensor(&[0, 3], &[3, 1])),
        ]);
        let quantized = CompoundKind::Quantized { scheme: "per_channel_affine".to_owned(), axis: Some(1) };
        let parts = [("q.int_repr".to_owned(), tensor(&[2], &[0]))];
        all.push_compound("q".to_owned(), (quantized, Dtype::QUInt8, vec![2]), parts);
        let subclass = CompoundKind::Subclass { class: "C".to_owned(), shard: None, attributes: Vec::new() };
        all.push_compound("s".to_owned(), (subclass, Dtype::UInt8, vec![9]), []);
        all
    }

    /// The expected lines and their hash are those of `tests/conformance/digest.py` for these tensors.
    #[test]
    fn lines_are_sorted_json() {
        let digest = digest_tensors(&tensors(), "x", 1 << 20, &()).expect("in memory");
        let hash = |bytes: &[u8]| hex(&byte_source::sha256(&OwnedBlob(bytes.to_vec()), &()).expect("memory"));
        assert_eq!(
            digest.lines,
            [
                format!(
                    r#"["b\"\\\n\u007f\u00e9\ud83d\ude00","uint8",[2,3],"{}"]"#,
                    hash(&[1, 3, 5, 2, 4, 6])
                ),
                format!(r#"["empty","uint8",[0,3],"{}"]"#, hash(&[])),
                r#"["q","quint8",[2],"per_channel_affine axis 1"]"#.to_owned(),
                format!(r#"["q.int_repr","uint8",[2],"{}"]"#, hash(&[1, 1])),
                format!(r#"["scalar","uint8",[],"{}"]"#, hash(&[1])),
            ]
        );
        assert_eq!(digest.sha256, hash(format!("{}\n", digest.lines.join("\n")).as_bytes()));
    }

    #[test]
    fn an_expanded_view_has_a_limit() {
        let storage = Storage::owned(vec![7]);
        let huge = Tensor::new(Dtype::UInt8, vec![1 << 40], vec![0], 0, storage).expect("one byte");
        let error = digest_tensors(&Tensors::from([("x".to_owned(), huge)]), "x", 1 << 20, &());
        let error = error.expect_err("a terabyte");
        assert!(
            matches!(error.detail(), Some(Problem::DigestExpansion { nbytes, .. }) if *nbytes == 1 << 40)
        );
    }

    /// What `json.dumps` of Python writes.
    #[test]
    fn control_characters_are_escaped_as_in_python() {
        let mut line = String::new();
        push_json_string(&mut line, "\u{8}\u{c}\n\r\t\u{1}\u{7f}/~");
        assert_eq!(line, r#""\b\f\n\r\t\u0001\u007f/~""#);
    }
}

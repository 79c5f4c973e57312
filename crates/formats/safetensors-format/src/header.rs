//! Reader of the header, which is checked against the length of the file.
//!
//! Facts: the format section of the safetensors README and `safetensors/src/tensor.rs` 0.8. Tensors are contiguous and
//! little-endian, and cover the bytes after the header without holes or overlaps.

use std::borrow::Cow;
use std::ops::Range;

use smallvec::SmallVec;
use tensor::Dtype;

use crate::dtype::DtypeRow;
use crate::entries::{HeaderEntries, HeaderMetadata};
use crate::info::HeaderEntry;
use crate::{EntryError, Error, MAX_HEADER, Result};

const LENGTH_FIELD_BYTES: usize = 8;

/// Parsed header of a safetensors file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Texts of `__metadata__` with their keys, in the file's order.
    pub metadata: Vec<(String, String)>,
    /// Tensors with their names, in the file's order.
    pub tensors: Vec<(String, TensorLocation)>,
    /// Keys of the metadata whose values are not texts, and what they are. `metadata` has their JSON.
    pub not_texts: Vec<(String, &'static str)>,
    /// Tensors that `tensors` lacks, because PyTorch and the format do not share their dtypes.
    pub unread: Vec<(String, EntryError)>,
}

/// Dtype, shape and place of a tensor in the file. Its elements are in C order and little-endian.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorLocation {
    pub dtype: Dtype,
    /// Number of elements of `dtype` along each dimension.
    pub shape: SmallVec<[u64; 4]>,
    /// Range of the tensor's bytes in the file.
    pub range: Range<u64>,
}

impl Header {
    /// Reads the header of the file whose bytes are `file`.
    ///
    /// # Errors
    /// When the header is longer than [`MAX_HEADER`] or is not the JSON that the format describes; when a tensor's dtype,
    /// shape and bytes disagree; when the tensors overlap, leave holes, or do not end where the file ends.
    pub fn read(file: &[u8]) -> Result<Self> {
        Self::parse(file, file.len() as u64)
    }

    /// Length in bytes of the header's length field at the start of a file.
    pub const LENGTH_FIELD_LEN: u64 = LENGTH_FIELD_BYTES as u64;

    /// Returns the end offset of the header in a file that starts with `start`.
    ///
    /// # Errors
    /// When the header is longer than [`MAX_HEADER`].
    pub fn end(start: &[u8]) -> Result<u64> {
        let len = header_len(start).unwrap_or_default();
        if len > MAX_HEADER {
            Err(Error::TooLong { len })
        } else {
            Ok(Self::LENGTH_FIELD_LEN.saturating_add(len))
        }
    }

    /// Reads the header of a file of `file_len` bytes. `start` has at least the bytes up to [`end`](Self::end).
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn parse(start: &[u8], file_len: u64) -> Result<Self> {
        Self::parse_leniently(start, file_len)?.without_unread()
    }

    /// Reads the header like [`parse`](Self::parse), and hands each tensor's name and shape to `each` instead of keeping them.
    ///
    /// # Errors
    /// As [`read`](Self::read). Some tensors may have been handed over before.
    pub fn parse_shapes(start: &[u8], file_len: u64, mut each: impl FnMut(&str, &[u64])) -> Result<()> {
        let rest = Self::parse_tensors(start, file_len, |name, view| each(&name, &view.shape))?;
        rest.without_unread().map(drop)
    }

    /// Reads the header like [`parse`](Self::parse), also with metadata that are not texts, and with tensors of other dtypes, which
    /// it lists.
    ///
    /// # Errors
    /// As [`read`](Self::read), for all else.
    pub fn parse_leniently(start: &[u8], file_len: u64) -> Result<Self> {
        let mut tensors = Vec::new();
        let rest =
            Self::parse_tensors(start, file_len, |name, view| tensors.push((name.into_owned(), view)))?;
        Ok(Self { tensors, ..rest })
    }

    /// Reads the header, hands its tensors to `each`, and returns the rest.
    fn parse_tensors<'t>(
        start: &'t [u8],
        file_len: u64,
        mut each: impl FnMut(Cow<'t, str>, TensorLocation),
    ) -> Result<Self> {
        let end = Self::end(start)?;
        let text = usize::try_from(end).ok().and_then(|end| start.get(LENGTH_FIELD_BYTES..end));
        let Some(text) = text else {
            let len = end.saturating_sub(Self::LENGTH_FIELD_LEN);
            return Err(Error::TruncatedHeader { len, missing: end.saturating_sub(file_len) });
        };
        let text = std::str::from_utf8(text).map_err(|error| Error::NotText { at: error.valid_up_to() })?;
        let HeaderEntries { metadata, tensors } = HeaderEntries::parse(text).map_err(Error::Json)?;
        let HeaderMetadata { entries: metadata, not_texts } = metadata;
        check_layout(&tensors, file_len.saturating_sub(end))?;
        let mut header = Self { metadata, not_texts, ..Self::default() };
        for (name, info) in tensors {
            match checked_location(info, end) {
                Ok(view) => each(name, view),
                Err(reason @ EntryError::Dtype { .. }) => header.unread.push((name.into_owned(), reason)),
                Err(reason) => return Err(Error::Entry { name: name.into_owned(), reason }),
            }
        }
        Ok(header)
    }

    /// Returns the header, if all of it was read.
    fn without_unread(self) -> Result<Self> {
        if let Some((name, reason)) = self.unread.into_iter().next() {
            return Err(Error::Entry { name, reason });
        }
        match self.not_texts.into_iter().next() {
            Some((key, found)) => Err(Error::NotMetadataText { key, found }),
            None => Ok(Self { metadata: self.metadata, tensors: self.tensors, ..Self::default() }),
        }
    }
}

/// Returns true if a file starts with a plausible header length and the brace of a header. The header itself is not checked.
pub fn is_safetensors(file: &[u8]) -> bool {
    // Text of another format, read as a length, exceeds the length of any file.
    let is_len = header_len(file).is_some_and(|len| len < 1 << 40);
    // The format requires the header to start with a brace; the official reader skips the white space that JSON allows
    // before it.
    let is_space = |byte: &&u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
    let mut header =
        file.iter().skip(LENGTH_FIELD_BYTES).take(usize::try_from(MAX_HEADER).unwrap_or(usize::MAX));
    is_len && header.find(|byte| !is_space(byte)) == Some(&b'{')
}

fn header_len(file: &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(*file.first_chunk()?))
}

/// Checks for holes, overlaps, and bytes past the end of the file. `available` is the number of bytes after the header.
fn check_layout(tensors: &[(Cow<'_, str>, HeaderEntry)], available: u64) -> Result<()> {
    let mut in_order: Vec<&(Cow<'_, str>, HeaderEntry)> = tensors.iter().collect();
    in_order.sort_by_key(|(_, info)| info.data_offsets);
    let mut end = 0;
    let mut before: Option<&str> = None;
    for (name, HeaderEntry { data_offsets: (first, last), .. }) in &in_order {
        let wrong = |reason| Err(Error::Entry { name: name.to_string(), reason });
        if last < first {
            return wrong(EntryError::EndBeforeStart { start: *first, end: *last });
        }
        if *first != end {
            return wrong(EntryError::Gap { start: *first, end, before: before.map(str::to_owned) });
        }
        (end, before) = (*last, Some(&**name));
    }
    if end > available {
        let first = in_order.iter().find(|(_, info)| info.data_offsets.1 > available);
        return Err(Error::TruncatedTensors {
            described: end,
            missing: end.saturating_sub(available),
            first: first.map_or_else(String::new, |(name, _)| name.to_string()),
        });
    }
    match available.saturating_sub(end) {
        0 => Ok(()),
        bytes => Err(Error::Trailing { bytes }),
    }
}

/// Checks a tensor's dtype and shape against the length of its data. `start` is the end offset of the header.
fn checked_location(info: HeaderEntry, start: u64) -> Result<TensorLocation, EntryError> {
    let HeaderEntry { dtype, shape, data_offsets: (first, last) } = info;
    let DtypeRow { name, torch, pack_factor: packed, .. } =
        dtype.map_err(|dtype| EntryError::Dtype { dtype })?;
    if shape.iter().any(|size| i64::try_from(*size).is_err()) {
        return Err(EntryError::Dimension { shape: shape.into_vec() });
    }
    let mut elements = shape;
    if *packed > 1 {
        match elements.last_mut() {
            Some(last) if last.is_multiple_of(*packed) => {
                *last = last.checked_div(*packed).unwrap_or_default();
            }
            _ => return Err(EntryError::HalfByte { shape: elements.into_vec(), dtype: (*name).to_owned() }),
        }
    }
    // As in the official reader, the elements are counted first, and a size of 0 ends the multiplication.
    let numel = elements.iter().try_fold(1_u64, |product, size| product.checked_mul(*size));
    let needed = numel.and_then(|numel| numel.checked_mul(torch.size()));
    let found = last.saturating_sub(first);
    if needed != Some(found) {
        // The error has the shape in the file.
        elements.iter_mut().rev().take(1).for_each(|last| *last = last.saturating_mul(*packed));
        return Err(EntryError::Size {
            shape: elements.into_vec(),
            dtype: (*name).to_owned(),
            needed,
            found,
        });
    }
    // `check_layout` proved that both offsets are inside the file.
    let range = start.saturating_add(first)..start.saturating_add(last);
    Ok(TensorLocation { dtype: *torch, shape: elements, range })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(json: &str, data: usize) -> Vec<u8> {
        let mut file = (json.len() as u64).to_le_bytes().to_vec();
        file.extend(json.as_bytes());
        file.extend(vec![0; data]);
        file
    }

    fn error(json: &str, data: usize) -> String {
        Header::read(&file(json, data)).expect_err("the header is wrong").to_string()
    }

    #[test]
    fn entries_are_checked_against_each_other_and_the_file() {
        let entry = |name: &str, dtype: &str, shape: &str, offsets: &str| {
            format!(r#""{name}":{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}}}"#)
        };
        let one =
            |dtype: &str, shape: &str, offsets: &str| format!("{{{}}}", entry("w", dtype, shape, offsets));
        let entry_is_damaged = "tensor `w`: its entry in the header is damaged: ";
        for (json, data, expected) in [
            (one("F32", "[1]", "[4,0]"), 4, "it ends at byte 0, before its start at byte 4"),
            (
                one("F32", "[1]", "[4,8]"),
                8,
                "it starts at byte 4 and leaves a hole after the header, which ends at byte 0",
            ),
            (one("F4", "[2,3]", "[0,3]"), 3, "shape [2, 3] of F4 does not end in whole bytes"),
            (one("F32", "[2]", "[0,4]"), 4, "shape [2] of F32 needs 8 bytes, it has 4"),
            (
                one("F32", "[9223372036854775807]", "[0,4]"),
                4,
                "shape [9223372036854775807] of F32 needs more than 2^64 bytes, it has 4",
            ),
        ] {
            assert_eq!(error(&json, data), format!("{entry_is_damaged}{expected}"));
        }
        for (dtype, expected) in [
            ("F7", "its dtype `F7` is not one of PyTorch's"),
            ("F6_E2M3", "its dtype `F6_E2M3` means floats of 6 bits, which PyTorch does not have"),
            ("C128", "its dtype `C128` means complex numbers of 128 bits, which safetensors does not have"),
        ] {
            assert_eq!(error(&one(dtype, "[1]", "[0,4]"), 4), format!("tensor `w`: {expected}"));
        }
        let (a, b) = (entry("a", "U8", "[4]", "[0,4]"), entry("w", "U8", "[4]", "[3,7]"));
        assert_eq!(
            error(&format!("{{{b},{a}}}"), 7),
            format!("{entry_is_damaged}it starts at byte 3 and overlaps tensor `a`, which ends at byte 4")
        );
        assert_eq!(error(&format!("{{{a}}}"), 5), "the file is damaged: 1 bytes follow the last tensor");
        let cut = Header::read(&file(&format!("{{{a}}}"), 3)).expect_err("a byte is missing");
        assert!(cut.is_truncated(), "{cut}");
    }

    #[test]
    fn what_others_refuse_is_read_on_request() {
        let json = r#"{"__metadata__":{"epoch":3,"a":"b","c":{"d":[1]},"n":null},"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"f":{"dtype":"F6_E2M3","shape":[4],"data_offsets":[1,4]}}"#;
        let bytes = file(json, 4);
        let header = Header::parse_leniently(&bytes, bytes.len() as u64).expect("a header");
        let text = |key: &str, text: &str| (key.to_owned(), text.to_owned());
        let metadata = [text("epoch", "3"), text("a", "b"), text("c", r#"{"d":[1]}"#), text("n", "null")];
        assert_eq!(header.metadata, metadata);
        let not_texts = [("epoch", "a number"), ("c", "an object"), ("n", "null")];
        assert_eq!(header.not_texts, not_texts.map(|(key, found)| (key.to_owned(), found)));
        assert_eq!((header.tensors.len(), header.unread.len()), (1, 1));
        let json = r#"{"__metadata__":{"epoch":3}}"#;
        assert_eq!(error(json, 0), "`epoch` in `__metadata__` is a number, and not a text");
    }

    #[test]
    fn a_size_of_zero_makes_any_other_size_harmless() {
        // The product of 2^61 and 8 bytes does not fit 64 bits, but the tensor has no elements.
        let json = r#"{"w":{"dtype":"C64","shape":[2305843009213693952,0],"data_offsets":[0,0]}}"#;
        Header::read(&file(json, 0)).expect("the official reader accepts it too");
    }

    #[test]
    fn a_key_appears_once() {
        let entry = r#"{"dtype":"U8","shape":[1],"data_offsets":[0,1]}"#;
        let twice = |first: &str, second: &str| error(&format!("{{{first},{second}}}"), 1);
        let tensor = format!(r#""w":{entry}"#);
        assert_eq!(
            twice(&tensor, &tensor),
            "the header is damaged: tensor `w` appears twice at line 1 column 56"
        );
        let escaped = format!(r#""\u0077":{entry}"#);
        assert!(twice(&tensor, &escaped).contains("tensor `w` appears twice"));
        let metadata = r#""__metadata__":{"a":"b"}"#;
        let text = twice(metadata, metadata);
        assert!(text.starts_with("the header is damaged: `__metadata__` appears twice"), "{text}");
        let text = twice(&tensor, r#""__metadata__":{"a":"b","a":"b"}"#);
        assert!(text.contains("`a` appears twice in `__metadata__`"), "{text}");
        let text = twice(r#""w":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}"#, metadata);
        assert!(text.contains("duplicate field `dtype`"), "{text}");
    }

    #[test]
    fn an_error_in_an_entry_names_its_tensor() {
        for (entry, expected) in [
            (
                "null",
                "invalid type: null, expected an object with dtype, shape and data_offsets at line 1 column 9",
            ),
            (r#"{"dtype":"U8","shape":[0]}"#, "missing field `data_offsets` at line 1 column 31"),
            (
                r#"{"dtype":"U8","shape":[-1]}"#,
                "invalid value: integer `-1`, expected u64 at line 1 column 30",
            ),
        ] {
            let expected = format!("the header is damaged: tensor `w`: {expected}");
            assert_eq!(error(&format!(r#"{{"w":{entry}}}"#), 0), expected);
        }
    }

    #[test]
    fn what_the_official_reader_skips_is_still_json() {
        let with =
            |value: &str| format!(r#"{{"w":{{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":{value}}}}}"#);
        for value in ["1", "-0.5e3", r#"["a",{"b":null,"b":true}]"#, "123456789012345678901234567890"] {
            Header::read(&file(&with(value), 1)).expect("the official reader accepts it too");
        }
        for (value, expected) in [
            ("1e999", "number out of range"),
            (r#""\ud800""#, "unexpected end of hex escape"),
            (&format!("{}{}", "[".repeat(200), "]".repeat(200)), "recursion limit exceeded"),
        ] {
            let text = error(&with(value), 1);
            assert!(text.contains(expected), "{text}");
        }
        let mut bytes = file(&with("\"?\""), 1);
        let at = bytes.iter().position(|byte| *byte == b'?').expect("it is there");
        bytes[at] = 0xff;
        let text = Header::read(&bytes).expect_err("not a text").to_string();
        assert_eq!(text, "the header is damaged: it is not UTF-8 from byte 57 on");
    }

    #[test]
    fn an_entry_can_be_written_as_serde_allows() {
        for json in [
            r#"{"w":["U8",[1],[0,1]]}"#,
            r#"{"w":{"dtype":{"U8":null},"shape":[1],"data_offsets":[0,1]}}"#,
            " \t\r\n{\"w\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}",
        ] {
            let bytes = file(json, 1);
            assert!(is_safetensors(&bytes));
            let header = Header::read(&bytes).expect("the official reader accepts it too");
            assert_eq!(*header.tensors[0].1.shape, [1]);
        }
    }

    #[test]
    fn a_dimension_fits_pytorchs_integers() {
        let json = r#"{"w":{"dtype":"U8","shape":[0,9223372036854775808],"data_offsets":[0,0]}}"#;
        let text = error(json, 0);
        assert!(
            text.ends_with("shape [0, 9223372036854775808] has a dimension of 2^63 elements or more"),
            "{text}"
        );
    }

    #[test]
    fn four_bit_floats_count_pairs() {
        let json = r#"{"w":{"dtype":"F4","shape":[2,4],"data_offsets":[0,4]}}"#;
        let header = Header::read(&file(json, 4)).expect("four bytes hold eight values");
        let shapes: Vec<_> = header.tensors.iter().map(|(_, view)| (view.dtype, &*view.shape)).collect();
        assert_eq!(shapes, [(Dtype::Float4E2M1FnX2, [2, 2].as_slice())]);
    }

    #[test]
    fn a_long_header_is_rejected_before_it_is_read() {
        let mut file = (MAX_HEADER + 1).to_le_bytes().to_vec();
        file.push(b'{');
        assert!(is_safetensors(&file));
        let error = Header::read(&file).expect_err("too long");
        assert!(matches!(error, Error::TooLong { len: 100_000_001 }), "{error}");
    }
}

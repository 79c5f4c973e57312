//! Finds what NumPy unpickles in a `.npy` file, which may hold several arrays.
//!
//! Facts: `numpy/lib/format.py` of NumPy 2.4.

use pickle_vm::Reader;

use super::PicklePlace;
use super::nested::NestedBytes;
use super::scan_format::NPY_MAGIC;
use super::scanner::Scanner;

/// Elements that follow the header of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NumpyElements {
    /// Number of bytes of the elements.
    Bytes(u64),
    /// A pickle of the array.
    Pickle,
    /// The header is not one that NumPy writes. True if it may be that of an array of objects.
    Unknown(bool),
}

/// Size of an element.
#[derive(Clone, Copy)]
enum ElementSize {
    Bytes(u64),
    Object,
}

/// Returns what follows the header of the array at the start of `bytes`, and the bytes after the header; `None` if there is no whole
/// header.
pub(super) fn read_header(bytes: &[u8]) -> Option<(NumpyElements, &[u8])> {
    let (version, rest) = bytes.strip_prefix(NPY_MAGIC)?.split_first()?;
    let rest = rest.get(1..)?;
    let (len, rest) = if *version == 1 {
        let (len, rest) = rest.split_first_chunk()?;
        (usize::from(u16::from_le_bytes(*len)), rest)
    } else {
        let (len, rest) = rest.split_first_chunk()?;
        (usize::try_from(u32::from_le_bytes(*len)).ok()?, rest)
    };
    let (header, data) = rest.split_at_checked(len)?;
    let elements = std::str::from_utf8(header).ok().and_then(elements);
    // `|O` is the dtype of objects, also as one of several fields. NumPy has other names for the dtype, too.
    let may_have_objects = || header.windows(2).any(|pair| pair == b"O'" || pair == b"O\"");
    Some((elements.unwrap_or_else(|| NumpyElements::Unknown(may_have_objects())), data))
}

/// Reads a header in the form in which NumPy writes it: `{'descr': '<f8', 'fortran_order': False, 'shape': (3,), }`.
fn elements(header: &str) -> Option<NumpyElements> {
    let (dtype, rest) = header.trim_end().strip_prefix("{'descr': ")?.split_once(", 'fortran_order': ")?;
    let rest = rest.strip_prefix("False").or_else(|| rest.strip_prefix("True"))?;
    let shape = rest.strip_prefix(", 'shape': (")?.strip_suffix('}')?;
    let count = product(shape.strip_suffix(", ").unwrap_or(shape).strip_suffix(')')?)?;
    let size = match dtype.strip_prefix('[') {
        Some(fields) => fields_size(fields)?,
        None => type_size(dtype.strip_prefix('\'')?.strip_suffix('\'')?)?,
    };
    match size {
        ElementSize::Object => Some(NumpyElements::Pickle),
        ElementSize::Bytes(size) => Some(NumpyElements::Bytes(count.checked_mul(size)?)),
    }
}

/// Returns the product of the lengths in a tuple, without its parentheses. NumPy computes it with 63 bits.
fn product(shape: &str) -> Option<u64> {
    let shape = shape.strip_suffix(',').unwrap_or(shape);
    if shape.is_empty() {
        return Some(1);
    }
    let product = shape.split(", ").try_fold(1_u64, |product, len| {
        let len = len.strip_suffix('L').unwrap_or(len);
        let is_number = !len.is_empty() && len.bytes().all(|byte| byte.is_ascii_digit());
        product.checked_mul(len.parse().ok().filter(|_| is_number)?)
    });
    product.filter(|product| i64::try_from(*product).is_ok())
}

/// Returns the size of a record with these fields, `('a', '<f4'), ('b', '<i8', (2,))]`. It is an object if one of them is.
fn fields_size(fields: &str) -> Option<ElementSize> {
    let (mut rest, mut size) = (fields, ElementSize::Bytes(0));
    loop {
        let (name, after) = rest.strip_prefix("('")?.split_once('\'')?;
        let (dtype, after) = after.strip_prefix(", '")?.split_once('\'')?;
        let (count, after) = match after.strip_prefix(", (") {
            Some(shape) => {
                let (shape, after) = shape.split_once(')')?;
                (product(shape)?, after)
            }
            None => (1, after),
        };
        if name.contains('\\') {
            return None;
        }
        size = match (size, type_size(dtype)?) {
            (ElementSize::Bytes(sum), ElementSize::Bytes(size)) => {
                ElementSize::Bytes(sum.checked_add(size.checked_mul(count)?)?)
            }
            _ => ElementSize::Object,
        };
        match after.strip_prefix(")")? {
            "]" => return Some(size),
            after => rest = after.strip_prefix(", ")?,
        }
    }
}

/// Returns the size of an element of a type such as `<f8`.
fn type_size(code: &str) -> Option<ElementSize> {
    let code = code.strip_prefix(['<', '>', '|', '=']).unwrap_or(code);
    let (kind, size) = code.split_at_checked(1)?;
    let size = match (kind, size.split_once('[')) {
        ("O", None) => return matches!(size, "" | "4" | "8").then_some(ElementSize::Object),
        ("M" | "m", Some((size, unit))) if unit.ends_with(']') => size,
        (_, None) => size,
        _ => return None,
    };
    let is_number = !size.is_empty() && size.bytes().all(|byte| byte.is_ascii_digit());
    let size: u64 = size.parse().ok().filter(|_| is_number)?;
    match kind {
        "b" | "i" | "u" | "f" | "c" | "S" | "V" | "M" | "m" => Some(ElementSize::Bytes(size)),
        "U" => Some(ElementSize::Bytes(size.checked_mul(4)?)),
        _ => None,
    }
}

impl Scanner<'_, '_> {
    /// Scans the arrays of NumPy in `bytes`, which `numpy.load` reads one after another, and returns the byte strings in them that may
    /// be loaded.
    pub(super) fn scan_arrays<'b>(&mut self, record: &PicklePlace, bytes: &'b [u8]) -> Vec<NestedBytes<'b>> {
        let (mut nested, mut rest) = (Vec::new(), bytes);
        while rest.starts_with(NPY_MAGIC) && !self.should_stop() {
            let Some((elements, data)) = read_header(rest) else {
                self.add_missed(|| format!("{record}: the header of an array is cut short"));
                return nested;
            };
            let (len, is_pickle) = match elements {
                NumpyElements::Bytes(len) => (Some(len), false),
                NumpyElements::Pickle => {
                    let mut reader = Reader::new(data);
                    let is_whole = reader.by_ref().all(|instruction| instruction.is_ok());
                    (is_whole.then(|| reader.offset()), true)
                }
                NumpyElements::Unknown(may_have_objects) => {
                    self.add_missed(|| {
                        format!("{record}: the header of an array is not one that NumPy writes")
                    });
                    (None, may_have_objects)
                }
            };
            let end = len.map_or(data.len(), |len| usize::try_from(len).unwrap_or(usize::MAX));
            let Some((array, after)) = data.split_at_checked(end) else {
                self.add_missed(|| format!("{record}: an array is cut short"));
                nested.extend(self.scan_pickles(record, data, is_pickle));
                return nested;
            };
            nested.extend(self.scan_pickles(record, array, is_pickle));
            rest = after;
        }
        if !rest.is_empty() {
            let left = rest.len();
            self.add_finding("trailing", || format!("{left} bytes follow the arrays of {record}"));
            nested.extend(self.scan_pickles(record, rest, false));
        }
        nested
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_of_elements_follows_from_the_header() {
        let header = |dtype: &str, shape: &str| {
            elements(&format!("{{'descr': {dtype}, 'fortran_order': False, 'shape': {shape}, }}   \n"))
        };
        let bytes = |len| Some(NumpyElements::Bytes(len));
        for (dtype, shape, expected) in [
            ("'<f8'", "(3, 4)", bytes(96)),
            ("'|b1'", "()", bytes(1)),
            ("'<U5'", "(2,)", bytes(40)),
            ("'<M8[ns]'", "(2L,)", bytes(16)),
            ("[('a', '<f4'), ('', '|V4'), ('b', '<i8', (2,))]", "(3,)", bytes(72)),
            ("'|O'", "(2,)", Some(NumpyElements::Pickle)),
            ("[('a', '<f4'), ('b', '|O')]", "(2,)", Some(NumpyElements::Pickle)),
            ("'<f8'", "(9223372036854775807, 2)", None),
            ("'<f8'", "(-1,)", None),
            ("'object'", "(1,)", None),
            ("'<f8', 'descr': '|O'", "(1,)", None),
            ("[('a', [('b', '<f4')])]", "(1,)", None),
        ] {
            assert_eq!(header(dtype, shape), expected, "{dtype} {shape}");
        }
    }
}

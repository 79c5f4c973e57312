//! Scans files of columns, Parquet and Arrow, for types whose values or parameters a program unpickles.
//!
//! Facts: `PyExtensionType` of pyarrow before 14.0.1, which unpickles the type `arrow.py_extension_type` of any file that it reads;
//! `ARROW:schema` of Parquet, which is a schema of Arrow in base64; the footers of both formats. Other programs register types of
//! their own, such as Ray's, whose values are pickles.

use super::documents::base64::decode_as_python as decode_base64;
use super::scan_format::{ARROW, FEATHER, PARQUET, STREAM, length};
use super::scanner::Scanner;
use super::{PicklePlace, PlaceStep};

/// Key and value of a column whose type is unpickled.
const EXTENSION: &[u8] = b"ARROW:extension:name";
const PICKLED: &[u8] = b"arrow.py_extension_type";
/// Characters of the shortest text in base64 that can have the key.
const BASE64_MIN: usize = 24;

impl Scanner<'_, '_> {
    /// Looks at the schemas of a file of columns.
    pub(super) fn scan_columns(&mut self, bytes: &[u8]) {
        self.has_content = true;
        let record = PicklePlace(vec![PlaceStep::Part("schema")]);
        let Some(schemas) = schemas(bytes) else {
            return self
                .add_missed(|| "its columns, whose schema cannot be found or is encrypted".to_owned());
        };
        for schema in schemas {
            if !self.budget.spend((schema.len() as u64).saturating_mul(2)) {
                return self
                    .add_missed(|| format!("{record}: the limit on the work for one file was reached"));
            }
            let decoded = schema.split(|byte| !is_base64(*byte)).filter(|run| run.len() >= BASE64_MIN);
            let decoded: Vec<Vec<u8>> =
                decoded.map(|run| decode_base64(&String::from_utf8_lossy(run))).collect();
            let has = |text: &[u8]| {
                [schema].into_iter().chain(decoded.iter().map(Vec::as_slice)).any(|it| contains(it, text))
            };
            if has(PICKLED) {
                self.add_finding("columns", || {
                    format!("{record}: a column has a type of Python, which pyarrow before 14.0.1 unpickles")
                });
            } else if has(EXTENSION) {
                self.add_missed(|| {
                    format!("{record}: columns of a type for which a program has its own code")
                });
            }
        }
    }
}

/// Returns the bytes in which a file has its schemas: the footer, and the first message of Arrow.
fn schemas(bytes: &[u8]) -> Option<Vec<&[u8]>> {
    let before_end = |magic: &[u8]| {
        let end = bytes.len().checked_sub(magic.len().checked_add(4)?)?;
        let start = end.checked_sub(length(bytes.get(end..end.checked_add(4)?))?)?;
        bytes.get(start..end).filter(|_| bytes.ends_with(magic))
    };
    let first = |at: usize| {
        let rest = bytes.get(at..)?;
        let rest = rest.strip_prefix(STREAM).unwrap_or(rest);
        rest.get(4..length(rest.get(..4))?.checked_add(4)?)
    };
    if bytes.starts_with(PARQUET) {
        return Some(vec![before_end(PARQUET)?]);
    }
    if bytes.starts_with(ARROW) {
        return Some(vec![before_end(ARROW)?, first(8)?]);
    }
    if bytes.starts_with(FEATHER) {
        return Some(vec![before_end(FEATHER)?]);
    }
    Some(vec![first(0).filter(|_| bytes.starts_with(STREAM))?])
}

const fn is_base64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=')
}

fn contains(bytes: &[u8], text: &[u8]) -> bool {
    bytes.windows(text.len()).any(|window| window == text)
}

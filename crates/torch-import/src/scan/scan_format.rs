//! Recognises the way in which Python may read a file.

use byte_source::Observer;
use safetensors_format::{Header, is_safetensors};

use super::budget::ScanBudget;
use super::compressed::CompressionFormat;
use super::documents::pickled::EXTRA_STATE;
use super::{compressed, msgpack_reader, onnx_reader, pickle, zip_detection};
use crate::Result;
use crate::container::formats::{PICKLE, legacy, tar, zip};
use crate::container::{sniff, tar_members};

/// Magic bytes of a `.npy` file.
pub(super) const NPY_MAGIC: &[u8] = b"\x93NUMPY";

/// Magic bytes of Parquet, and of Arrow's files and streams.
pub(super) const PARQUET: &[u8] = b"PAR1";
pub(super) const ARROW: &[u8] = b"ARROW1";
pub(super) const FEATHER: &[u8] = b"FEA1";
pub(super) const STREAM: &[u8] = b"\xff\xff\xff\xff";

/// The way in which a file is read.
pub(super) enum ScanFormat {
    /// Pickles from the first byte on: of a legacy checkpoint, a bare pickle, or no recognised format.
    Pickles,
    Tar,
    Archive,
    /// Container without pickles, by the name of its format.
    Header(&'static str),
    Numpy,
    Packed(&'static CompressionFormat),
    /// Mobile model of PyTorch in flatbuffers.
    Flatbuffer,
    Hdf5,
    Msgpack,
    Onnx,
    /// Parquet or Arrow.
    Columns,
}

impl ScanFormat {
    /// Recognises a file by all of its bytes.
    ///
    /// # Errors
    /// When the format has no pickles, or the observer stops the look at a long pickle.
    pub(super) fn new(bytes: &[u8], observer: &dyn Observer) -> Result<Self> {
        if let Some(format) = Self::of_signature(bytes) {
            return Ok(format);
        }
        if zip_detection::is_archive(bytes) {
            return Ok(Self::Archive);
        }
        if bytes.starts_with(NPY_MAGIC) {
            return Ok(Self::Numpy);
        }
        if let Some(packed) = compressed::detect_compression(bytes) {
            return Ok(Self::Packed(packed));
        }
        let mut budget = ScanBudget::with_observer(bytes.len() as u64, observer);
        let found = pickle::scan_pickle(bytes, &mut budget);
        observer.check()?;
        let after = || usize::try_from(found.bytes_read).ok().and_then(|read| bytes.get(read..));
        if found.may_execute && !(found.ends_in_unusable_name(bytes) && sniff::is_text(bytes))
            || found.error.is_none() && after().is_some_and(pickle::may_execute_later)
        {
            return Ok(Self::Pickles);
        }
        // Whatever Python reads in a file comes first: a registered format hides nothing.
        if let Some(format) = sniff::header_format(bytes) {
            return Ok(Self::Header(format.name()));
        }
        if tar_members::is_header(bytes) {
            return Ok(Self::Tar);
        }
        if is_flatbuffer(bytes) {
            return Ok(Self::Flatbuffer);
        }
        if sniff::is_hdf5(bytes) {
            return Ok(Self::Hdf5);
        }
        if msgpack_reader::is_msgpack(bytes) {
            return Ok(Self::Msgpack);
        }
        if onnx_reader::is_onnx(bytes) {
            return Ok(Self::Onnx);
        }
        if has_columns(bytes) {
            return Ok(Self::Columns);
        }
        sniff::reject_unreadable_formats(bytes)?;
        Err(sniff::unknown_format_error(bytes))
    }

    /// Recognises the formats of PyTorch and of safetensors.
    pub(super) fn of_signature(bytes: &[u8]) -> Option<Self> {
        if zip::recognises(bytes) {
            Some(Self::Archive)
        } else if legacy::recognises(bytes) {
            Some(Self::Pickles)
        } else if tar::recognises(bytes) {
            Some(Self::Tar)
        } else if is_safetensors(bytes) {
            Some(Self::Header("safetensors"))
        } else {
            let is_pickle = sniff::reject_unreadable_formats(bytes).is_ok() && PICKLE.recognises(bytes);
            is_pickle.then_some(Self::Pickles)
        }
    }

    /// Returns the name of the format, unless a container format recognises the file.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Pickles => "pickle",
            Self::Tar => "tar",
            Self::Archive => "zip",
            Self::Header(name) => name,
            Self::Numpy => "npy",
            Self::Packed(packed) => packed.name,
            Self::Flatbuffer => "flatbuffer",
            Self::Hdf5 => "hdf5",
            Self::Msgpack => "msgpack",
            Self::Onnx => "onnx",
            Self::Columns => "columns",
        }
    }
}

/// Describes a file of a format that holds others, if nothing in it is read.
pub(super) fn name_without_content(format: &str) -> Option<&'static str> {
    match format {
        "zip" | "tar" => Some("an archive in which nothing is a model or a pickle"),
        "gzip" | "zlib" | "zstd" => Some("a compressed file that is neither a model nor a pickle"),
        _ => None,
    }
}

/// Returns true for a mobile model in flatbuffers, whose `__setstate__` methods PyTorch runs.
pub(super) fn is_flatbuffer(bytes: &[u8]) -> bool {
    bytes.get(4..8) == Some(b"PTMF")
}

/// Returns true for a safetensors file whose header may name a tensor that holds a pickle. A name may have escapes.
pub(super) fn names_extra_state(bytes: &[u8]) -> bool {
    let end = Header::end(bytes).ok().filter(|_| is_safetensors(bytes));
    let header = end.and_then(|end| bytes.get(..usize::try_from(end).ok()?)).unwrap_or_default();
    header.contains(&b'\\')
        || header.windows(EXTRA_STATE.len()).any(|window| window == EXTRA_STATE.as_bytes())
}

/// Returns true for Parquet, and for files and streams of Arrow.
pub(super) fn has_columns(bytes: &[u8]) -> bool {
    let is_stream = || {
        let message = bytes.get(8..40).unwrap_or_default();
        // The first fields of a schema's message are offsets of its table.
        bytes.starts_with(STREAM)
            && message.get(1..4) == Some(b"\0\0\0")
            && length(bytes.get(4..8)).is_some_and(|len| len < bytes.len())
    };
    [PARQUET, ARROW, FEATHER, b"PARE"].iter().any(|magic| bytes.starts_with(magic)) || is_stream()
}

/// Reads a length of Arrow.
pub(super) fn length(bytes: Option<&[u8]>) -> Option<usize> {
    usize::try_from(u32::from_le_bytes(bytes?.try_into().ok()?)).ok()
}

//! Recognises the way in which Python may read a file.

use super::budget::ScanBudget;
use super::compressed::CompressionFormat;
use super::numpy::NPY_MAGIC;
use super::{compressed, pickle, zip_detection};
use crate::container::sniff;
use crate::{ContainerFormat, Result};

/// The way in which a file is read.
pub(super) enum ScanFormat {
    Container(ContainerFormat),
    Archive,
    Numpy,
    Packed(&'static CompressionFormat),
    /// No recognised format, but Python may read the file as a pickle.
    PossiblePickle,
}

impl ScanFormat {
    pub(super) fn new(bytes: &[u8]) -> Result<Self> {
        if let Some(format) = sniff::detect_format(bytes) {
            return Ok(Self::Container(format));
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
        let found = pickle::scan_pickle(bytes, &mut ScanBudget::new(bytes.len() as u64));
        if found.may_execute && !(found.ends_in_unusable_name(bytes) && sniff::is_text(bytes)) {
            return Ok(Self::PossiblePickle);
        }
        sniff::reject_unreadable_formats(bytes)?;
        Err(sniff::unknown_format_error(bytes))
    }

    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Container(format) => format.name(),
            Self::Archive => ContainerFormat::Zip.name(),
            Self::Numpy => "npy",
            Self::Packed(packed) => packed.name,
            Self::PossiblePickle => ContainerFormat::Pickle.name(),
        }
    }
}

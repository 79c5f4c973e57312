//! Recognises the way in which Python may read a file.

use byte_source::Observer;

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
    /// Recognises a file by all of its bytes.
    ///
    /// # Errors
    /// When the format has no pickles, or the observer stops the look at a long pickle.
    pub(super) fn new(bytes: &[u8], observer: &dyn Observer) -> Result<Self> {
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
        let mut budget = ScanBudget::with_observer(bytes.len() as u64, observer);
        let found = pickle::scan_pickle(bytes, &mut budget);
        observer.check()?;
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

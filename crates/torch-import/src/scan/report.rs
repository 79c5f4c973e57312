//! The types of a scan's report.

use std::fmt;
use std::ops::Range;

use crate::{Global, Risk};

/// Maximum number of calls listed per global.
pub(super) const CALLS_MAX: usize = 8;

/// The report on one file.
#[derive(Clone, Debug, Default)]
pub struct Scan {
    /// Format of the file, such as `zip`.
    pub format: &'static str,
    /// Number of pickles read.
    pub count: usize,
    /// Pickles that name globals or could not be read to their end.
    pub pickles: Vec<ScannedPickle>,
    /// Irregularities of the file.
    pub findings: Vec<Finding>,
    /// Parts that were not scanned, each a clause with the reason.
    pub missed: Vec<String>,
    /// Harmless remarks, each a sentence.
    pub notes: Vec<String>,
    /// Bytes of other files that a loader unpickles, if the file is the metadata of `torch.distributed.checkpoint`.
    pub named_ranges: Vec<NamedRange>,
    /// Counts of the entries beyond the limits of the lists.
    pub omitted: OmittedCounts,
}

/// Place of a part in another file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedRange {
    /// Name of the file, relative to the folder of the scanned one.
    pub file: String,
    /// Bytes of the part; `None` if their numbers are not plain.
    pub range: Option<Range<u64>>,
    /// True if the bytes are compressed, or changed in another way.
    pub is_transformed: bool,
}

/// The numbers of entries omitted from the lists of a [`Scan`]. At least one entry of each kind is listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OmittedCounts {
    pub globals: usize,
    /// Pickles that could not be read to their end.
    pub pickles: usize,
    pub findings: usize,
    /// Parts that were not scanned.
    pub missed: usize,
}

impl OmittedCounts {
    /// Returns the number of all omitted entries.
    pub fn total(&self) -> usize {
        [self.globals, self.pickles, self.findings, self.missed].into_iter().fold(0, usize::saturating_add)
    }
}

/// One pickle of a file, or one record of TorchScript code.
#[derive(Clone, Debug)]
pub struct ScannedPickle {
    pub place: PicklePlace,
    /// Offset of the pickle from the start of its place, in bytes.
    pub offset: u64,
    /// Globals that the pickle names.
    pub uses: Vec<GlobalUse>,
    /// Error that ended the pickle early.
    pub error: Option<pickle_vm::Error>,
}

/// The location of a pickle, as the path to it from the file. The `Display` form is for people.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PicklePlace(pub Vec<PlaceStep>);

/// A step of a [`PicklePlace`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PlaceStep {
    /// Part of the file with a name given by this crate, such as `pickle`.
    Part(&'static str),
    /// Record of an archive, by its name in the archive.
    Record(String),
    /// Byte string in a pickle, by its offset from the start of the enclosing place.
    Bytes(u64),
    /// One archive of a sequence, by its offset from the start of the enclosing place.
    Archive(u64),
}

impl fmt::Display for PicklePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, step) in self.0.iter().enumerate() {
            f.write_str(if index > 0 { ", " } else { "" })?;
            match step {
                PlaceStep::Part(name) => f.write_str(name)?,
                PlaceStep::Record(name) => write!(f, "`{}`", name.escape_debug())?,
                PlaceStep::Bytes(offset) => write!(f, "bytes at 0x{offset:x}")?,
                PlaceStep::Archive(offset) => write!(f, "archive at 0x{offset:x}")?,
            }
        }
        Ok(())
    }
}

/// A global and its uses in one pickle.
#[derive(Clone, Debug)]
pub struct GlobalUse {
    /// Global, with the offset in the pickle at which it is first named.
    pub global: Global,
    pub risk: Risk,
    /// First instructions that call the global or pass it on; empty for known globals.
    pub calls: Vec<GlobalCall>,
    /// Number of further instructions, not listed in `calls`.
    pub unlisted_calls: usize,
    /// True if the global is named after the error that ends the pickle, which Python would not reach.
    pub after_error: bool,
}

/// An instruction that calls a global, or passes it to another object.
#[derive(Clone, Debug)]
pub struct GlobalCall {
    /// Name of the opcode, such as `REDUCE`.
    pub opcode: &'static str,
    /// Offset of the instruction in the pickle, in bytes.
    pub offset: u64,
    /// Call in Python's notation, truncated.
    pub text: String,
    /// True if the instruction calls the global, or the result of calling it, with arguments.
    pub has_arguments: bool,
}

/// An irregularity of a scanned file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Kind of irregularity, one word for programs.
    pub kind: &'static str,
    /// Description as a clause.
    pub text: String,
}

impl Scan {
    /// Iterates over the globals of all pickles.
    pub fn uses(&self) -> impl Iterator<Item = (&ScannedPickle, &GlobalUse)> {
        self.pickles.iter().flat_map(|pickle| pickle.uses.iter().map(move |found| (pickle, found)))
    }

    /// Makes all known globals unknown: Python modules next to the file may have their names, as in a folder of `torch.package`.
    pub fn distrust_globals(&mut self) {
        for used in self.pickles.iter_mut().flat_map(|pickle| &mut pickle.uses) {
            used.global.distrust();
            used.risk = used.global.risk().max(used.risk);
        }
    }

    /// Returns true if every pickle was read to its end.
    pub fn is_fully_read(&self) -> bool {
        self.missed.is_empty()
            && self.omitted.missed == 0
            && self.pickles.iter().all(|pickle| pickle.error.is_none())
    }
}

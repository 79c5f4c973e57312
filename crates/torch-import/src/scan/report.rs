//! What a scan reports.

use std::fmt;

use crate::{Global, Risk};

/// The findings in a file.
#[derive(Clone, Debug, Default)]
pub struct Scan {
    /// What the file is, such as `zip`.
    pub format: &'static str,
    /// How many pickles were read.
    pub count: usize,
    /// The pickles that name globals or could not be read to their end.
    pub pickles: Vec<ScannedPickle>,
    /// What is irregular about the file.
    pub findings: Vec<Finding>,
    /// What was not scanned, and why; each a clause.
    pub missed: Vec<String>,
    /// Harmless remarks; each a sentence.
    pub notes: Vec<String>,
    /// What was found and is not listed, because the lists would become too long.
    pub omitted: Omitted,
}

/// How many entries of the lists of a [`Scan`] are left out. At least one of each kind is listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Omitted {
    /// Globals.
    pub globals: usize,
    /// Pickles that could not be read to their end.
    pub pickles: usize,
    /// Irregularities.
    pub findings: usize,
    /// Parts that were not scanned.
    pub missed: usize,
}

impl Omitted {
    /// Everything that is left out.
    pub fn total(&self) -> usize {
        [self.globals, self.pickles, self.findings, self.missed].into_iter().fold(0, usize::saturating_add)
    }
}

/// One pickle of a file, or one record of TorchScript code.
#[derive(Clone, Debug)]
pub struct ScannedPickle {
    /// Where it is.
    pub place: Place,
    /// Where it starts, in bytes from the start of its place.
    pub offset: u64,
    /// The globals that it names.
    pub uses: Vec<Use>,
    /// Why it could not be read to its end.
    pub error: Option<pickle_vm::Error>,
}

/// Where a pickle is: the path to it from the file. Its `Display` form is for people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place(pub Vec<Step>);

/// A step of a [`Place`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A part of the file that this crate has named, such as `pickle`.
    Part(&'static str),
    /// A record of an archive, by its name there.
    Record(String),
    /// A byte string in a pickle, by its offset from the start of the enclosing place.
    Bytes(u64),
    /// One of several archives that follow one another, by its offset from the start of the enclosing place.
    Archive(u64),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, step) in self.0.iter().enumerate() {
            f.write_str(if index > 0 { ", " } else { "" })?;
            match step {
                Step::Part(name) => f.write_str(name)?,
                Step::Record(name) => write!(f, "`{}`", name.escape_debug())?,
                Step::Bytes(offset) => write!(f, "bytes at 0x{offset:x}")?,
                Step::Archive(offset) => write!(f, "archive at 0x{offset:x}")?,
            }
        }
        Ok(())
    }
}

/// A global, and how it is used.
#[derive(Clone, Debug)]
pub struct Use {
    /// The global, with the offset in the pickle that names it first.
    pub global: Global,
    /// Its risk.
    pub risk: Risk,
    /// The first few instructions that call it or pass it on; empty for known globals.
    pub calls: Vec<Call>,
    /// How many more there are.
    pub more: usize,
    /// Whether it comes after the error that ends the pickle, which Python would not reach.
    pub after_error: bool,
}

/// An instruction that calls a global, or passes it to something else.
#[derive(Clone, Debug)]
pub struct Call {
    /// The name of the opcode, such as `REDUCE`.
    pub opcode: &'static str,
    /// Its offset in the pickle.
    pub offset: u64,
    /// The call in Python's notation, truncated.
    pub text: String,
    /// Whether the global, or what it returned, is itself called here, with arguments.
    pub has_arguments: bool,
}

/// An irregularity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The kind, one word for programs.
    pub kind: &'static str,
    /// A description, as a clause.
    pub text: String,
}

impl Scan {
    /// All globals of all pickles.
    pub fn uses(&self) -> impl Iterator<Item = (&ScannedPickle, &Use)> {
        self.pickles.iter().flat_map(|pickle| pickle.uses.iter().map(move |found| (pickle, found)))
    }

    /// Whether every pickle was read to its end.
    pub fn is_whole(&self) -> bool {
        self.missed.is_empty()
            && self.omitted.missed == 0
            && self.pickles.iter().all(|pickle| pickle.error.is_none())
    }
}

//! Findings of a document.

use std::collections::{HashMap, HashSet};

use super::callable::Callable;
use crate::scan::budget::truncate_name;
use crate::scan::{Finding, GlobalCall, GlobalUse};
use crate::{Global, Risk};

/// Reference to Python code next to a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeReference {
    /// Key of the reference, such as `AutoModel`.
    pub key: String,
    /// Text of the reference: `MODULE.CLASS`, or `REPOSITORY--MODULE.CLASS`.
    pub text: String,
}

/// Findings of a document, and the parts of it that are scanned on their own.
#[derive(Default)]
pub(in crate::scan) struct Found {
    pub(in crate::scan) uses: Vec<GlobalUse>,
    pub(super) places: HashMap<(String, String), usize>,
    pub(in crate::scan) findings: Vec<Finding>,
    pub(in crate::scan) missed: Vec<String>,
    /// Bytes that may be a pickle, with their offset, and true if a program unpickles them.
    pub(super) pickles: Vec<(u64, Vec<u8>, bool)>,
    /// Texts that are JSON.
    pub(super) texts: Vec<String>,
    pub(super) references: Vec<CodeReference>,
    pub(super) referred: HashSet<String>,
}

/// Returns the use of Python code in the same archive.
pub(super) fn use_of_code(reference: &CodeReference) -> GlobalUse {
    let target = Callable::unknown(&reference.text);
    let global =
        Global::with_risk(&truncate_name(target.module), &truncate_name(target.name), 0, Risk::Unknown);
    let text = truncate_name(format!("{}: {}", reference.key, reference.text));
    let calls = vec![GlobalCall { opcode: "document", offset: 0, text, has_arguments: true }];
    GlobalUse { global, risk: Risk::Unknown, calls, unlisted_calls: 0, after_error: false }
}

//! Globals that a pickle may name, and the refusal of checkpoints whose pickles name others.

use std::path::Path;

use torch_import::{Checkpoint, Risk};

use crate::{Error, Problem, Result};

/// Globals that a pickle may name. None of them is executed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AllowedGlobals {
    /// Only globals that this crate knows.
    Known,
    /// All globals except those that can run code.
    #[default]
    NotDangerous,
    All,
}

/// Rejects a checkpoint that names globals which are not allowed. Nothing is executed here, but the user should know about
/// such a file.
pub(crate) fn check_globals(allowed: AllowedGlobals, file: &Path, checkpoint: &Checkpoint) -> Result<()> {
    let first = |risk: Risk| checkpoint.globals().iter().find(|global| global.risk() == risk);
    let refuse = |problem: Problem| Err(Error::from(problem).in_file(file));
    let dangerous = first(Risk::Dangerous).filter(|_| allowed != AllowedGlobals::All);
    if let Some(global) = dangerous {
        return refuse(Problem::DangerousGlobal { global: global.name_with_alias(), offset: global.offset });
    }
    if allowed != AllowedGlobals::Known {
        return Ok(());
    }
    if let Some(global) = first(Risk::Unreviewed) {
        let unjudged_use =
            Some(global.findings().iter().next().map_or("is named", torch_import::GlobalUseKind::text));
        let (global, offset) = (global.name_with_alias(), global.offset);
        return refuse(Problem::UnknownGlobal { global, offset, unjudged_use });
    }
    if let Some(global) = first(Risk::Unknown) {
        let (global, offset) = (global.to_string(), global.offset);
        return refuse(Problem::UnknownGlobal { global, offset, unjudged_use: None });
    }
    Ok(())
}

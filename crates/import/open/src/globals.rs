//! Globals that a pickle may name, and the refusal of checkpoints whose pickles name others.

use std::path::Path;

use torch_import::{Checkpoint, Risk};

use crate::{Error, Result};

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
    let dangerous = first(Risk::Dangerous).filter(|_| allowed != AllowedGlobals::All);
    if let Some(global) = dangerous {
        let error = Error::DangerousGlobal { global: global.name_with_alias(), offset: global.offset };
        return Err(Error::at(file)(error));
    }
    if allowed != AllowedGlobals::Known {
        return Ok(());
    }
    if let Some(global) = first(Risk::Unreviewed) {
        let use_text = global.findings().iter().next().map_or("is named", torch_import::GlobalUseKind::text);
        let error =
            Error::UnreviewedGlobal { global: global.name_with_alias(), offset: global.offset, use_text };
        return Err(Error::at(file)(error));
    }
    if let Some(global) = first(Risk::Unknown) {
        let error = Error::UnknownGlobal { global: global.to_string(), offset: global.offset };
        return Err(Error::at(file)(error));
    }
    Ok(())
}

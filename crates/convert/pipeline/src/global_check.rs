//! Refuses checkpoints whose pickles name globals that the options do not allow.

use std::path::Path;

use torch_import::{Checkpoint, Risk};

use crate::{AllowedGlobals, Error, Result};

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

//! Names that Windows does not give to files. It takes some of them for a device, ends others early, or puts the bytes into a stream
//! of another file.
//!
//! Fact: "Naming Files, Paths, and Namespaces" of Microsoft's documentation.

use std::path::{Component, Path};

use crate::{Problem, Result};

/// Checks the parts of an output's path on Windows.
///
/// # Errors
/// [`Problem::WindowsName`] for a part that Windows does not allow as a file name.
pub fn check_system_name(path: &Path) -> Result<()> {
    if cfg!(not(windows)) {
        return Ok(());
    }
    let names = path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_string_lossy()),
        _ => None,
    });
    match names.into_iter().find(|name| !is_windows_name(name)) {
        Some(name) => Err(Problem::WindowsName { path: path.to_owned(), name: name.into_owned() }.into()),
        None => Ok(()),
    }
}

/// Names of devices in each folder, with any extension. The three with a number have nine numbers.
const DEVICES: &[&str] = &["CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$"];
const NUMBERED_DEVICES: &[&str] = &["COM", "LPT"];

/// Returns true if a file or folder of Windows can have the name.
fn is_windows_name(name: &str) -> bool {
    let stem = name.split('.').next().unwrap_or_default().trim_end_matches(' ');
    let is = |device: &&str| stem.eq_ignore_ascii_case(device);
    let mut chars = stem.chars();
    let is_number = chars.next_back().is_some_and(|last| matches!(last, '1'..='9' | '¹' | '²' | '³'));
    let is_numbered =
        is_number && NUMBERED_DEVICES.iter().any(|device| chars.as_str().eq_ignore_ascii_case(device));
    !name.is_empty()
        && !name.ends_with(['.', ' '])
        && !name.contains(|c: char| c < ' ' || "<>:\"/\\|?*".contains(c))
        && !is_numbered
        && !DEVICES.iter().any(is)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_streams_and_ends_are_no_names() {
        for name in [
            "CON",
            "con",
            "Nul.txt",
            "aux.tar.gz",
            "COM1",
            "lpt9.x",
            "COM¹",
            "CON .x",
            "CONIN$",
            "a:b",
            "a?",
            "a*",
            "a<b",
            "a|b",
            "a.",
            "a ",
            "a\tb",
            "a\\b",
            "a\"b",
            "",
        ] {
            assert!(!is_windows_name(name), "{name:?}");
        }
        for name in [
            "a",
            "console",
            "COM",
            "COM0",
            "COM10",
            "model.safetensors",
            ".torch2carton-x",
            "é",
            "a b",
            "com1x",
            "nul_",
        ] {
            assert!(is_windows_name(name), "{name:?}");
        }
    }
}

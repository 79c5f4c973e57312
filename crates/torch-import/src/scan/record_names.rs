//! Names of the records of archives: which of them PyTorch looks up, unpickles, runs or reads as numbers.

use zip_format::Entry;

use super::{PicklePlace, PlaceStep};
use crate::container::formats::zip_archive;
use crate::script_modules::{has_extension, is_code, is_python};

/// Records that PyTorch itself unpickles, by the suffixes of their names.
const PICKLES: [&str; 7] = [
    "data.pkl",
    "constants.pkl",
    "attributes.pkl",
    "traced_inputs.pkl",
    ".debug_pkl",
    "bytecode.pkl",
    "mobile_debug_handles.pkl",
];
/// Records that PyTorch looks up, ignoring capitals.
const FILES: [&str; 12] = [
    "data.pkl",
    "constants.pkl",
    "attributes.pkl",
    "bytecode.pkl",
    "mobile_debug_handles.pkl",
    "version",
    "byteorder",
    ".format_version",
    ".storage_alignment",
    ".data/version",
    ".data/extern_modules",
    ".data/python_version",
];
/// Folders of such records.
const FOLDERS: [&str; 6] = [".data/ts_code/", ".data/", "code/", "data/", "constants/", "extra/"];

/// What a record has instead of a format.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Numbers {
    None,
    /// Elements of a storage, which PyTorch does not unpickle.
    Storage,
    /// Elements of a tensor of an exported program, which PyTorch gives to `torch.load` if a document says so.
    Exported,
}

impl Numbers {
    /// Returns what a record of an archive has: one of a checkpoint, or of an exported program.
    pub(super) fn of(name: &str, is_checkpoint: bool, is_exported: bool) -> Self {
        if is_exported && is_exported_storage(name) {
            Self::Exported
        } else if is_checkpoint && is_storage(name) {
            Self::Storage
        } else {
            Self::None
        }
    }
}

/// Returns true if an entry is what macOS adds to an archive for a file: its attributes, which no pickle begins like.
pub(super) fn is_apple_double<B: AsRef<[u8]>>(name: &str, start: impl FnOnce() -> B) -> bool {
    let file = name.rsplit('/').next().unwrap_or(name);
    file.starts_with("._") && start().as_ref().starts_with(b"\0\x05\x16\x07")
}

/// Returns true if an entry is a pickle by its name.
pub(super) fn is_pickle(name: &str) -> bool {
    name.contains("/data/constants/opaque_obj_")
        || PICKLES.iter().any(|end| is_named(name, end))
        || ["pkl", "pickle"].iter().any(|extension| has_extension(name, extension))
}

/// Returns the root folder of an archive, with its slash, if the archive is a checkpoint.
pub(super) fn archive_root(entries: &[Entry]) -> Option<&str> {
    let root = entries.iter().find(|entry| is_named(&entry.name, "data.pkl"))?;
    root.name.get(..root.name.len().checked_sub("data.pkl".len())?)
}

/// Returns true if an entry has this name in any folder. miniz, which PyTorch uses, ignores case.
pub(super) fn is_named(entry: &str, name: &str) -> bool {
    let at = entry.len().checked_sub(name.len());
    at.and_then(|at| entry.split_at_checked(at)).is_some_and(|(root, end)| {
        end.eq_ignore_ascii_case(name) && (root.is_empty() || root.ends_with('/') || name.starts_with('.'))
    })
}

/// Returns true for a shared library, such as those in the `.pt2` archives of `AOTInductor`, and for bytecode of Python.
pub(super) fn is_native_library(name: &str) -> bool {
    ["so", "dylib", "dll", "pyc", "pyd"].iter().any(|extension| has_extension(name, extension))
}

/// Returns true for a record with the extension of HDF5, before which it may have anything.
pub(super) fn is_hdf5_record(record: &PicklePlace) -> bool {
    matches!(record.0.last(), Some(PlaceStep::Record(name)) if is_hdf5(name))
}

pub(super) fn is_hdf5(name: &str) -> bool {
    ["h5", "hdf5"].iter().any(|extension| has_extension(name, extension))
}

/// Returns true if an archive brings Python modules, as those of `torch.package` do: the globals of its pickles may be its own.
pub(super) fn is_package(entries: &[Entry]) -> bool {
    let is_script = entries.iter().any(|entry| is_named(&entry.name, "constants.pkl"));
    entries.iter().any(|entry| {
        is_named(&entry.name, ".data/extern_modules")
            || is_python(&entry.name)
                && !(is_script && is_code(&entry.name) && entry.name.contains("/__torch__"))
    })
}

/// Finds a record of a checkpoint whose name PyTorch writes with other capitals. Returns its name and, in part, the usual one.
pub(super) fn find_other_case(entries: &[Entry]) -> Option<(&str, &'static str)> {
    let root = entries.first()?.name.split_inclusive('/').next()?;
    let starts = zip_archive::starts_with_ignoring_case;
    let named = || {
        let names = entries.iter().map(|entry| entry.name.as_str());
        names.filter(|name| starts(name, root)).filter_map(|whole| Some((whole, whole.get(root.len()..)?)))
    };
    let is_checkpoint = |name: &str| name.eq_ignore_ascii_case("data.pkl") || starts(name, ".data/");
    if !named().any(|(_, name)| is_checkpoint(name)) {
        return None;
    }
    let mut others = named().filter(|(whole, name)| !name.starts_with("data/") || !whole.starts_with(root));
    others.find_map(|(whole, name)| {
        let file = FILES.iter().find(|file| name.eq_ignore_ascii_case(file));
        let usual = file.or_else(|| FOLDERS.iter().find(|folder| starts(name, folder)))?;
        (!name.starts_with(usual) || !whole.starts_with(root)).then_some((whole, *usual))
    })
}

/// Returns true for a record of a compiled model: `AOTInductor` runs its code, and makes commands of its flags.
pub(super) fn is_compiled(name: &str) -> bool {
    const FOLDER: &[u8] = b"data/aotinductor/";
    let is_start = |at: usize| at.checked_sub(1).is_none_or(|at| name.as_bytes().get(at) == Some(&b'/'));
    let mut parts = name.as_bytes().windows(FOLDER.len()).enumerate();
    parts.any(|(at, part)| part.eq_ignore_ascii_case(FOLDER) && is_start(at))
}

/// Returns true if an entry of a checkpoint holds the elements of tensors: `ROOT/data/0`, `ROOT/constants/0`.
fn is_storage(name: &str) -> bool {
    let mut parts = name.rsplit('/');
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    parts.next().is_some_and(is_number) && matches!(parts.next(), Some("data" | "constants" | "tensors"))
}

/// Returns true if an entry of an exported program is a storage, unless it is pickled: `ROOT/data/weights/weight_0`.
fn is_exported_storage(name: &str) -> bool {
    let number = |(folder, file): (&str, &str)| {
        let kinds = [("data/weights", "weight_"), ("data/constants", "tensor_")];
        kinds
            .iter()
            .find_map(|(end, start)| file.strip_prefix(start).filter(|_| folder.ends_with(end)))
            .map(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
    };
    name.rsplit_once('/').and_then(number).unwrap_or(false)
}

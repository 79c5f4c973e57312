//! Advice about errors of commands on cartons.

use std::io::ErrorKind;
use std::path::Path;

use byte_source::FileError;
use carton_tools::{CartonNote, Error, TensorError};

use super::located_advice::is_address_error;
use super::remote_advice::remote_text;
use super::shell::shell_quoted_path;
use super::{advice, checkpoint_advice, located_advice};

/// Returns the text of an error, with advice if there is any. The problems of a document are printed before it, one per
/// line.
pub(crate) fn carton_error_text(error: &Error) -> String {
    if let Error::Located(error) = error
        && let Some(FileError::Read { path, reason }) = error.detail()
        && reason.kind() == ErrorKind::NotFound
    {
        return checkpoint_advice::missing_file_text(path);
    }
    let advice = match error {
        Error::Convert(error) => return advice::convert_text(error, None),
        Error::Located(error) => return located_advice::located_text(error),
        Error::Reader { path, reason } => return reader_text(path, reason),
        Error::IsCheckpoint { path, .. } => format!("; `torch2carton {}` makes one", shell_quoted_path(path)),
        Error::NotACarton { path } if path.is_dir() => {
            "; the folder has no carton.toml, as `torch2carton unpack CARTON` writes one".to_owned()
        }
        Error::IsFolder { path } => {
            format!("; `torch2carton pack {}` makes a carton of it", shell_quoted_path(path))
        }
        Error::NotAFolder { .. } => "; pack takes a folder with a carton.toml in it".to_owned(),
        Error::OutputInFolder { .. } => "; choose another path with -o".to_owned(),
        Error::FolderNotEmpty { .. } => "; choose another folder with -o".to_owned(),
        Error::FilesExist { .. } => "; --force replaces them".to_owned(),
        Error::Tensor { name, reason } => return tensor_option_text(name, reason),
        Error::Npy { reason: carton_tools::NpyError::NotNpy, .. } => {
            "; --tensor takes arrays that numpy.save wrote".to_owned()
        }
        Error::BaseUrl { .. } => "; check --base".to_owned(),
        Error::Expansion { stored, nbytes, .. } => {
            format!("; --max-expansion {} writes it", nbytes.div_ceil((*stored).max(1)))
        }
        Error::NoCheckpoint => "; name it with --against".to_owned(),
        Error::BlobLength { .. } | Error::BlobDamaged { .. } => "; remove it and try again".to_owned(),
        Error::Fetch { path, entry, failures } => {
            let failures: Vec<String> = failures.iter().map(download_text).collect();
            return format!(
                "{}: cannot fetch `{}`: {}",
                path.display(),
                entry.escape_debug(),
                failures.join("; ")
            );
        }
        _ => String::new(),
    };
    format!("{error}{advice}")
}

/// Returns the text of an error of reading the carton at `path`, with advice if there is any.
pub(crate) fn reader_text(path: &Path, error: &carton_format::Error) -> String {
    use carton_format::Error;
    let advice = match error {
        Error::Map(FileError::Read { path, reason }) if reason.kind() == ErrorKind::NotFound => {
            return checkpoint_advice::missing_file_text(path);
        }
        Error::Located(error) => return located_advice::located_text(error),
        Error::NotFetched { .. } if !advice::HAS_RESOLVE => String::new(),
        Error::NotFetched { .. } if path.is_dir() => {
            "; before the carton is unpacked, `torch2carton resolve CARTON -o OUTPUT` fetches it".to_owned()
        }
        Error::NotFetched { .. } => {
            format!("; `torch2carton resolve {} -o OUTPUT` fetches it", shell_quoted_path(path))
        }
        _ => String::new(),
    };
    format!("{}{advice}", error.text_at(path))
}

/// Returns the text of an error of a download, which uses no proxy.
fn download_text(error: &remote_source::Error) -> String {
    match error {
        remote_source::Error::Connection { .. } => error.to_string(),
        error => remote_text(error),
    }
}

/// Returns true if an argument is wrong, rather than a file.
pub(crate) fn is_carton_usage_error(error: &Error) -> bool {
    match error {
        Error::BaseUrl { .. } | Error::NoCheckpoint => true,
        Error::Tensor { reason, .. } => matches!(reason, TensorError::NoName | TensorError::DuplicateName),
        Error::Located(error) => is_address_error(error),
        _ => false,
    }
}

/// Returns the text of a note, with the option that helps.
pub(crate) fn carton_note_text(note: &CartonNote, file: &str) -> String {
    match note {
        CartonNote::Checkpoint(note) => advice::open_note_text(note, file),
        CartonNote::FilesElsewhere { files } if advice::HAS_RESOLVE => {
            let (file, them) = (super::shell::shell_quoted(file), if *files == 1 { "it" } else { "them" });
            format!("{note}: `torch2carton resolve {file} -o OUTPUT` fetches {them}")
        }
        note => note.to_string(),
    }
}

fn tensor_option_text(name: &str, reason: &TensorError) -> String {
    format!("--tensor {name}: {reason}")
}

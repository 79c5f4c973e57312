//! Advice about errors of commands on cartons.

use carton_tools::{Error, Note, TensorError};

use super::advice;
use super::shell::quoted;

/// Returns the text of an error, with advice if there is any. The problems of a document are printed before it, one per
/// line.
pub(crate) fn text(error: &Error) -> String {
    let advice = match error {
        Error::Pipeline(error) => return advice::pipeline_text(error, None),
        Error::Store(error) => return advice::store_text(error),
        Error::Reader { reason: carton_reader::Error::Elsewhere { .. }, .. } if !advice::RESOLVES => {
            String::new()
        }
        Error::Reader { reason: carton_reader::Error::Elsewhere { .. }, path } if path.is_dir() => {
            "; before the carton is unpacked, `torch2carton resolve CARTON -o OUTPUT` fetches it".to_owned()
        }
        Error::Reader { reason: carton_reader::Error::Elsewhere { .. }, path } => {
            format!("; `torch2carton resolve {} -o OUTPUT` fetches it", quoted(path))
        }
        Error::IsCheckpoint { path, .. } => format!("; `torch2carton {}` makes one", quoted(path)),
        Error::IsFolder { path } => format!("; `torch2carton pack {}` makes a carton of it", quoted(path)),
        Error::NotAFolder { .. } => "; pack takes a folder with a carton.toml in it".to_owned(),
        Error::OutputInFolder { .. } => "; choose another path with -o".to_owned(),
        Error::FolderNotEmpty { .. } => "; choose another folder with -C".to_owned(),
        Error::FilesExist { .. } => "; --force replaces them".to_owned(),
        Error::Tensor { name, reason } => return tensor(name, reason),
        Error::Npy { reason: carton_tools::NpyError::NotNpy, .. } => {
            "; --tensor takes arrays that numpy.save wrote".to_owned()
        }
        Error::BaseUrl { .. } => "; check --base".to_owned(),
        Error::NoCheckpoint => "; name it with --against".to_owned(),
        Error::BlobLength { .. } | Error::BlobDamaged { .. } => "; remove it and try again".to_owned(),
        Error::Fetch { path, entry, failures } => {
            let failures: Vec<String> = failures.iter().map(advice::store_text).collect();
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

/// Returns true if an argument is wrong, rather than a file.
pub(crate) fn is_usage(error: &Error) -> bool {
    match error {
        Error::BaseUrl { .. } | Error::NoCheckpoint => true,
        Error::Tensor { reason, .. } => matches!(reason, TensorError::NoName | TensorError::Twice),
        Error::Pipeline(error) => matches!(
            **error,
            pipeline::Error::Option(_) | pipeline::Error::Sources(checkpoint_files::Error::NotASet { .. })
        ),
        Error::Store(error) => matches!(error, output::Error::Remote { .. }),
        _ => false,
    }
}

/// Returns the text of a note, with the option that helps.
pub(crate) fn note(note: &Note, file: &str) -> String {
    match note {
        Note::Checkpoint(note) => advice::note(note, file),
        Note::FilesElsewhere { files } if advice::RESOLVES => {
            let (file, them) = (super::shell::quoted_text(file), if *files == 1 { "it" } else { "them" });
            format!("{note}: `torch2carton resolve {file} -o OUTPUT` fetches {them}")
        }
        note => note.to_string(),
    }
}

fn tensor(name: &str, reason: &TensorError) -> String {
    format!("--tensor {name}: {reason}")
}

//! Advice about errors of `serve`.

use std::path::Path;

use super::located_advice::located_text;
use super::remote_advice::{remote_cause, remote_text};
use super::shell::shell_quoted_path;

/// Returns the text of a server error, with advice if there is any.
pub(crate) fn serve_text(error: &serve::Error) -> String {
    let advice = match error {
        serve::Error::Load(cause) => match cause.downcast_ref() {
            Some(error) => return located_text(error),
            None => "",
        },
        serve::Error::Bind { source, .. } if source.kind() == std::io::ErrorKind::AddrInUse => {
            "; --port 0 chooses one that is free"
        }
        serve::Error::HostName { .. } => "; --allow-host takes such a name",
        serve::Error::SameName { .. } => "; rename a file, or make it a version in a --repository",
        serve::Error::NoName => "; give one with --name",
        serve::Error::List { source, .. } => match remote_cause(source) {
            Some(cause) => return remote_text(cause),
            None => "",
        },
        serve::Error::EmptyRepository { folder } => return empty_repository_text(error, &folder.path),
        _ => "",
    };
    format!("{error}{advice}")
}

fn empty_repository_text(error: &serve::Error, folder: &Path) -> String {
    let below = || folder.read_dir().into_iter().flatten().flatten().map(|entry| entry.path());
    let quoted = shell_quoted_path(folder);
    if below().any(|path| path.extension().is_some_and(|it| it == "carton")) {
        return format!(
            "{error}; `torch2carton serve {quoted}` serves cartons that are directly in the folder"
        );
    }
    let make = format!("`torch2carton MODEL -o {quoted}/NAME/1.carton` makes one");
    if below().any(|path| path.join("config.pbtxt").is_file()) {
        return format!(
            "{error}; its models are for Triton, and `tritonserver --model-repository {quoted}` serves them; {make}"
        );
    }
    format!("{error}; {make}")
}

//! Texts of located errors, with the option or command that helps.

use std::io;
use std::path::Path;

use byte_source::{Detail, Error, ErrorKind, FileError, NotRepresentable, format_bytes};
use output::{Problem, RemoteAddress, UrlScheme};

use super::advice;
use super::advice_table::advice_on;
use super::carton_advice::{carton_advice, carton_own_text, reader_advice};
use super::checkpoint_advice::{files_advice, missing_file_text};
use super::flags::exclude_advice;
use super::invocation::{PROGRAM, typed_command};
use super::remote_advice::{remote_advice, remote_cause, remote_text};
use super::run_advice::run_advice;
use super::shell::{shell_quoted, shell_quoted_path};

/// Returns the text of an error of any crate, with advice if there is any.
pub(crate) fn located_text(error: &Error) -> String {
    if let Some(text) = own_text(error) {
        return text;
    }
    let text = format!("{error}{}", advice(error));
    // What is wrong in a folder may be any of its files.
    let is_file = !error.location().path.is_some_and(|path| path.is_dir());
    let is_advised = text.contains(" again") || text.contains("; ") || text.contains(" have to be ");
    if is_advised || !is_file || error.kind() != ErrorKind::Damaged {
        return text;
    }
    text + "; download or copy it again"
}

/// Returns the text of an error that the library words in another way, such as sizes without units.
fn own_text(error: &Error) -> Option<String> {
    if let Some(Problem::NoSpace { needed, free, folder }) = error.detail() {
        let (needed, free) = (format_bytes(*needed), format_bytes(*free));
        return Some(format!("not enough space in {}: {needed} needed, {free} free", folder.display()));
    }
    if let Some(FileError::Write { path, reason }) = error.detail() {
        return Some(write_text(path, reason));
    }
    if let Some(FileError::Read { path, reason }) = error.detail()
        && reason.kind() == io::ErrorKind::NotFound
    {
        return Some(missing_file_text(path));
    }
    if let Some(text) = carton_own_text(error).or_else(|| advice::convert_own_text(error)) {
        return Some(text);
    }
    let text = if let Some(open::Problem::SeveralKeys { keys }) = error.detail() {
        advice::several_keys_text(keys)
    } else if let Some(carton_format::Problem::Document(problems)) = error.detail() {
        // Each problem is printed on a line of its own.
        problems.count_text()
    } else {
        advice::open_option_text(error.detail()?)
    };
    Some(format!("{}{text}", error.location()))
}

/// Returns advice on an error; empty if there is none.
fn advice(error: &Error) -> String {
    let place = error.location();
    let file = place.path.as_deref();
    let of_crate = (error.detail().map(|problem| advice::open_advice(problem, &place)))
        .or_else(|| error.detail().map(files_advice))
        .or_else(|| error.detail().map(|problem| advice::inspect_advice(problem, file)))
        .or_else(|| error.detail().map(|problem| advice::convert_advice(problem, file)))
        .or_else(|| error.detail().map(carton_advice))
        .or_else(|| error.detail().map(|problem| reader_advice(problem, file)))
        .or_else(|| error.detail().map(|problem| run_advice(problem, file)))
        .or_else(|| error.detail().map(advice::translation_advice))
        .or_else(|| error.detail().map(module_advice))
        .or_else(|| error.detail().map(|problem| remote_advice(problem).to_owned()));
    if let Some(advice) = of_crate {
        advice
    } else if let Some(FileError::NotAFile { what: "a named pipe", .. }) = error.detail() {
        "; pipe it into inspect, scan, trace, report, diff and digest, where `-` is standard input; for the others, write it to a \
         file first"
            .to_owned()
    } else if let Some(NotRepresentable { tensor, .. }) = error.detail() {
        exclude_advice(tensor)
    } else if let (Some(torch_import::Problem::Archive { members }), Some(file)) = (error.detail(), file) {
        let member = members.first().map_or("NAME", String::as_str);
        let member = shell_quoted(&format!("{}::{member}", file.display()));
        match typed_command() {
            command if command.ends_with(" run") || command.ends_with(" serve") => {
                format!("; `torch2carton inspect {member}` reads one")
            }
            command if command == PROGRAM => format!(
                "; `{command} {member}` reads one, and `{command} --each {} -o DIR` converts each",
                shell_quoted_path(file)
            ),
            command => format!("; `{command} {member}` reads one"),
        }
    } else if let Some(torch_import::Problem::EqualShards { file, .. }) = error.detail() {
        format!("; download or copy {file} again")
    } else if let Some(
        torch_import::Problem::IndexDisagrees { tensor, .. } | torch_import::Problem::Unlisted { tensor, .. },
    ) = error.detail()
    {
        format!("{}, or pass the files instead of the folder, without the index", exclude_advice(tensor))
    } else if let Some(torch_import::Problem::OtherDtype { tensor, .. }) = error.detail() {
        exclude_advice(tensor)
    } else if let Some(Problem::ReadInputs { reason, .. }) = error.detail() {
        remote_cause(reason).map_or("", remote_advice).to_owned()
    } else if let Some(Problem::Remote { path, .. }) = error.detail() {
        let address = RemoteAddress::from_path(&output::shown_path(path));
        address.map_or_else(String::new, |address| format!("; first run `{}`", fetch_command(&address)))
    } else {
        advice_on(error.code()).to_owned()
    }
}

/// Returns true if an address was given where a local path is expected.
pub(crate) fn is_address_error(error: &Error) -> bool {
    matches!(error.code(), "output::Remote" | "output::RemoteOutput")
}

/// Returns advice on an error about a TorchScript module; empty if there is none.
fn module_advice(error: &torchscript::Problem) -> String {
    use torchscript::Problem;
    /// Number of options that are written out.
    const SHOWN: usize = 2;
    const ADD: &str = "; add, with the right ones,";
    const OUTPUT_EXAMPLE: &str = "float32[batch,1000]";
    let add = |flag: &str, names: &[String], example: &str| {
        // The items of a list or a dict have names that the code does not say.
        let name = |name: &'_ String| if name.contains(' ') { "NAME".to_owned() } else { name.clone() };
        let typed = names
            .iter()
            .take(SHOWN)
            .map(|typed| format!(" {flag} {}", shell_quoted(&format!("{}={example}", name(typed)))));
        let others = names.get(SHOWN..).filter(|others| !others.is_empty());
        let others = others.map(|others| format!(", and the same for {}", others.join(", ")));
        format!("{ADD}{}{}", typed.collect::<String>(), others.unwrap_or_default())
    };
    match error {
        Problem::UntypedInputs { names, outputs } => {
            let first = add("--input", names, "float32[batch,3,224,224]");
            let second = outputs.first().map(|_| add("--output-type", outputs, OUTPUT_EXAMPLE));
            first + &second.unwrap_or_default().replace(ADD, " and")
        }
        Problem::UntypedOutputs { names } => add("--output-type", names, OUTPUT_EXAMPLE),
        error => advice_on(error.code()).to_owned(),
    }
}

/// Returns the text of an output that cannot be written, with the cause at its address if it is at one.
fn write_text(path: &Path, reason: &io::Error) -> String {
    match remote_cause(reason) {
        Some(cause) => format!("cannot write: {}", remote_text(cause)),
        None if reason.kind() == io::ErrorKind::StorageFull => {
            format!("cannot write {}: there is not enough space ({reason})", path.display())
        }
        None => format!("cannot write {}: {reason}", path.display()),
    }
}

/// Returns the shell command that downloads a remote file.
fn fetch_command(address: &RemoteAddress) -> String {
    let url = shell_quoted(&address.to_string());
    match address.scheme {
        UrlScheme::S3 => format!("aws s3 cp {url} ."),
        UrlScheme::Gs => format!("gcloud storage cp {url} ."),
        UrlScheme::Az => {
            let (container, name) = address.rest.split_once('/').unwrap_or((&address.rest, ""));
            let (container, name) = (shell_quoted(container), shell_quoted(name));
            format!("az storage blob download -c {container} -n {name} -f {name}")
        }
        UrlScheme::Hf => match address.rest.splitn(3, '/').collect::<Vec<_>>().as_slice() {
            [owner, model, file] if !file.is_empty() => {
                format!("hf download {} {}", shell_quoted(&format!("{owner}/{model}")), shell_quoted(file))
            }
            _ => format!("hf download {}", shell_quoted(&address.rest)),
        },
        _ => format!("curl -fLO {url}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn a_full_disk_is_called_so() {
        let full = FileError::Write { path: "x.carton".into(), reason: io::Error::from_raw_os_error(28) };
        let text = located_text(&full.into());
        let reason = "No space left on device (os error 28)";
        assert_eq!(text, format!("cannot write x.carton: there is not enough space ({reason})"));
        let little = Problem::NoSpace { needed: 3_000_000, free: 1000, folder: "out".into() };
        assert_eq!(located_text(&little.into()), "not enough space in out: 3.0 MB needed, 1.0 kB free");
    }

    #[test]
    fn an_address_comes_with_its_command() {
        let command = |path: &str| RemoteAddress::from_path(Path::new(path)).as_ref().map(fetch_command);
        let command = |path| command(path).expect("an address");
        assert_eq!(command("https://a.b/c.pth"), "curl -fLO https://a.b/c.pth");
        assert_eq!(command("https://a.b/c.pth?x&y"), "curl -fLO 'https://a.b/c.pth?x&y'");
        assert_eq!(command("s3://bucket/a/c.pth"), "aws s3 cp s3://bucket/a/c.pth .");
        assert_eq!(command("hf://owner/model/x/c.pth"), "hf download owner/model x/c.pth");
        assert_eq!(command("hf://owner/model"), "hf download owner/model");
    }
}

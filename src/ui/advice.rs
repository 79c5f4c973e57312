//! What to do about an error of the store: which option or command helps.
//!
//! Libraries say what is wrong. Only the command line knows what can be typed.

use std::error::Error as StdError;

use store::{Error, Remote, Scheme};

use super::shell::quoted;
use crate::cli::Usage;
use crate::terminal::bytes;

/// The text of one cause of an error, with advice where there is some.
pub(crate) fn cause(cause: &(dyn StdError + 'static)) -> String {
    cause.downcast_ref().map_or_else(|| cause.to_string(), text)
}

/// What the store reports, with advice where there is some.
pub(crate) fn text(error: &Error) -> String {
    let advice = match error {
        // A person reads sizes in units.
        Error::NoSpace { needed, free, folder } => {
            return format!("needs {} in {}, {} free", bytes(*needed), folder.display(), bytes(*free));
        }
        Error::Remote { address, .. } => format!("; first: `{}`", fetch_command(address)),
        Error::IsFolder { .. } => "; name a file in it".to_owned(),
        Error::NotAFile { .. } => ", and a carton is a file".to_owned(),
        Error::SameFile { .. } => "; choose another path with -o".to_owned(),
        Error::Exists { .. } => {
            "; leave out --no-clobber to replace it, or choose another path with -o".to_owned()
        }
        Error::CreateIn { .. } => "; choose another place with -o".to_owned(),
        Error::Insecure { .. } => "; --allow-http fetches it anyway".to_owned(),
        Error::PrivateAddress { .. } => "; --allow-http does where LINKS itself names one".to_owned(),
        Error::TooLarge { .. } => "; --max-size allows them".to_owned(),
        _ => String::new(),
    };
    format!("{error}{advice}")
}

/// Whether what was typed is wrong, rather than a file.
pub(crate) fn is_usage(error: &anyhow::Error) -> bool {
    error.is::<Usage>() || matches!(error.downcast_ref(), Some(Error::Remote { .. }))
}

/// The command that brings a file here.
fn fetch_command(address: &Remote) -> String {
    let url = quoted(&address.to_string());
    match address.scheme {
        Scheme::S3 => format!("aws s3 cp {url} ."),
        Scheme::Gs => format!("gcloud storage cp {url} ."),
        Scheme::Hf => match address.rest.splitn(3, '/').collect::<Vec<_>>().as_slice() {
            [owner, model, file] if !file.is_empty() => {
                format!("hf download {} {}", quoted(&format!("{owner}/{model}")), quoted(file))
            }
            _ => format!("hf download {}", quoted(&address.rest)),
        },
        _ => format!("curl -fLO {url}"),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn an_address_comes_with_its_command() {
        let command = |path: &str| Remote::from_path(Path::new(path)).as_ref().map(fetch_command);
        let command = |path| command(path).expect("an address");
        assert_eq!(command("https://a.b/c.pth"), "curl -fLO https://a.b/c.pth");
        assert_eq!(command("https://a.b/c.pth?x&y"), "curl -fLO 'https://a.b/c.pth?x&y'");
        assert_eq!(command("s3://bucket/a/c.pth"), "aws s3 cp s3://bucket/a/c.pth .");
        assert_eq!(command("hf://owner/model/x/c.pth"), "hf download owner/model x/c.pth");
        assert_eq!(command("hf://owner/model"), "hf download owner/model");
    }

    #[test]
    fn advice_follows_the_error_through_its_context() {
        let error = store::refuse_remote(Path::new("gs:/b/c")).expect_err("an address");
        let error = anyhow::Error::new(error).context("while reading");
        assert!(is_usage(&error));
        let texts: Vec<String> = error.chain().map(cause).collect();
        assert_eq!(
            texts,
            ["while reading", "gs:/b/c is not a local path; first: `gcloud storage cp gs://b/c .`"]
        );
    }
}

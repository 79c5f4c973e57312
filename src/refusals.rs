//! Paths that are no paths: addresses of files that lie elsewhere, and how to get them first.

use std::path::Path;

use anyhow::{Result, bail};

use crate::cli::Usage;
use crate::ui::shell::quoted_text as quoted;

/// Refuses an address.
pub(crate) fn address(path: &Path) -> Result<()> {
    let shown = path.to_string_lossy();
    match fetch(&shown) {
        Some(command) => bail!(Usage(format!("{shown} is not a local path; first: `{command}`"))),
        None => Ok(()),
    }
}

/// The command that brings an address's file here. Slashes that a shell or a program joined are told too.
fn fetch(address: &str) -> Option<String> {
    let (scheme, rest) = address.split_once(":/")?;
    let rest = rest.trim_start_matches('/');
    Some(match scheme {
        "http" | "https" => format!("curl -fLO {}", quoted(&format!("{scheme}://{rest}"))),
        "s3" => format!("aws s3 cp {} .", quoted(&format!("s3://{rest}"))),
        "gs" => format!("gcloud storage cp {} .", quoted(&format!("gs://{rest}"))),
        "hf" => match rest.splitn(3, '/').collect::<Vec<_>>().as_slice() {
            [owner, model, file] if !file.is_empty() => {
                format!("hf download {} {}", quoted(&format!("{owner}/{model}")), quoted(file))
            }
            _ => format!("hf download {}", quoted(rest)),
        },
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_with_their_command() {
        let fetch = |address| fetch(address).unwrap_or_default();
        assert_eq!(fetch("https://a.b/c.pth"), "curl -fLO https://a.b/c.pth");
        assert_eq!(fetch("https://a.b/c.pth?x&y"), "curl -fLO 'https://a.b/c.pth?x&y'");
        assert_eq!(fetch("s3://bucket/a/c.pth"), "aws s3 cp s3://bucket/a/c.pth .");
        assert_eq!(fetch("hf://owner/model/x/c.pth"), "hf download owner/model x/c.pth");
        assert_eq!(fetch("hf://owner/model"), "hf download owner/model");
        assert_eq!(fetch("C:/models/c.pth"), "");
        assert_eq!(fetch("models/c.pth"), "");
    }
}

//! URLs of the Hub: its files, and its listings of repositories.

use url::Url;

use crate::target::RangeTarget;
use crate::{Error, HubAddress, RemoteOptions, RepositoryKind, Result};

pub(crate) fn file_target(hub: &HubAddress, revision: &str, options: &RemoteOptions) -> Result<RangeTarget> {
    let mut parts = if hub.kind == RepositoryKind::Model { Vec::new() } else { vec![hub.kind.plural()] };
    parts.extend(hub.repository.split('/'));
    parts.extend(["resolve", revision]);
    parts.extend(hub.path.split('/'));
    target(&parts, hub.to_string(), options)
}

pub(crate) fn listing_target(hub: &HubAddress, options: &RemoteOptions) -> Result<RangeTarget> {
    let mut parts = vec!["api", hub.kind.plural()];
    parts.extend(hub.repository.split('/'));
    parts.extend(["revision", hub.revision()]);
    let mut target = target(&parts, hub.to_string(), options)?;
    // With the lengths of the files.
    target.url.set_query(Some("blobs=true"));
    Ok(target)
}

/// Returns the URL of `parts` at the Hub. A slash in a part, such as a revision, is encoded.
fn target(parts: &[&str], address: String, options: &RemoteOptions) -> Result<RangeTarget> {
    let wrong = || Error::Address { address: options.hub_endpoint.clone(), expected: "https://HOST" };
    let mut url = Url::parse(&options.hub_endpoint).map_err(|_| wrong())?;
    url.path_segments_mut().map_err(|()| wrong())?.pop_if_empty().extend(parts);
    Ok(RangeTarget { url, token: options.hub_token.clone(), is_resolved: true, address })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Address;

    #[test]
    fn the_url_of_a_hub_file_encodes_its_revision() {
        let url = |text: &str| match Address::parse(text).expect("an address") {
            Address::Hub(hub) => {
                let options = RemoteOptions::default();
                let file = file_target(&hub, hub.revision(), &options).expect("a URL");
                let listing = listing_target(&hub, &options).expect("a URL");
                (file.url.to_string(), listing.url.to_string())
            }
            other => (other.to_string(), String::new()),
        };
        assert_eq!(url("hf://a/b/c d.bin").0, "https://huggingface.co/a/b/resolve/main/c%20d.bin");
        let (file, listing) = url("hf://datasets/a/b@refs/pr/1/x/c.bin");
        assert_eq!(file, "https://huggingface.co/datasets/a/b/resolve/refs%2Fpr%2F1/x/c.bin");
        assert_eq!(listing, "https://huggingface.co/api/datasets/a/b/revision/refs%2Fpr%2F1?blobs=true");
    }
}

//! What an address means: a file, a folder, or a set of shards.

use std::collections::HashSet;
#[cfg(feature = "http")]
use std::sync::Arc;

use byte_source::Location;
#[cfg(feature = "http")]
use byte_source::Source;

#[cfg(feature = "http")]
use crate::BucketAddress;
#[cfg(feature = "buckets")]
use crate::fetcher::FilePlace;
#[cfg(feature = "buckets")]
use crate::file::EDGE;
use crate::{Address, Error, RemoteOptions, Result};
#[cfg(feature = "http")]
use crate::{HubAddress, RemoteFile, RemoteFolder};

#[cfg(feature = "http")]
const INDEX_SUFFIX: &str = ".index.json";

/// What is looked for next to a file.
#[derive(Clone, Copy, Debug, Default)]
pub struct Neighbours<'n> {
    /// True if the documents next to a single file on the Hub are needed, too.
    pub of_files: bool,
    /// Names of documents to ask for next to an index on a web server, which cannot be asked for a listing.
    pub documents: &'n [&'n str],
}

/// Refuses the address, because this build sends no requests.
///
/// # Errors
/// [`Error::Disabled`].
#[cfg(not(feature = "http"))]
pub fn open_input(address: &Address, _: Neighbours<'_>, _: &RemoteOptions) -> Result<Location> {
    Err(Error::Disabled { address: address.to_string() })
}

/// Opens the file, folder or set of shards at `address`.
///
/// # Errors
/// When the server refuses it, or does not have it, or requests are switched off.
#[cfg(feature = "http")]
pub fn open_input(
    address: &Address,
    neighbours: Neighbours<'_>,
    options: &RemoteOptions,
) -> Result<Location> {
    let file_name = address.file_name().to_owned();
    let file = || Ok(into_location(RemoteFile::open(address, options)?));
    match address {
        Address::Http(url) if file_name.ends_with(INDEX_SUFFIX) => {
            Ok(RemoteFolder::from_index(url, neighbours.documents, options)?.into_file(&file_name))
        }
        Address::Http(_) => file(),
        // A name without an extension is rather that of a folder.
        Address::Hub(hub)
            if neighbours.of_files || !file_name.contains('.') || file_name.ends_with(INDEX_SUFFIX) =>
        {
            open_on_hub(hub, options)
        }
        Address::Bucket(address) => open_in_bucket(address, neighbours, options),
        Address::Hub(hub) => match file() {
            Err(error @ Error::NotFound { .. }) => open_on_hub(hub, options).map_err(|_| error),
            opened => opened,
        },
    }
}

/// Opens the files at several addresses in one folder, such as the shards of a set, with those next to them whose names `keeps`
/// accepts. A web server is not asked for others.
///
/// # Errors
/// When the files are not in one folder, one of them is given twice or does not exist, or the server refuses it.
pub fn open_files(
    addresses: &[Address],
    keeps: &dyn Fn(&str) -> bool,
    options: &RemoteOptions,
) -> Result<Vec<Location>> {
    let Some(first) = addresses.first() else {
        return Err(Error::Address { address: String::new(), expected: "one or more" });
    };
    let mut names = HashSet::new();
    for address in addresses {
        if address.folder() != first.folder() {
            return Err(Error::Apart { first: first.to_string(), second: address.to_string() });
        }
        if !names.insert(address.file_name()) {
            return Err(Error::Repeated { address: address.to_string() });
        }
    }
    open_listed(first, addresses, keeps, options)
}

/// Refuses the addresses, because this build sends no requests.
#[cfg(not(feature = "http"))]
fn open_listed(
    first: &Address,
    _: &[Address],
    _: &dyn Fn(&str) -> bool,
    _: &RemoteOptions,
) -> Result<Vec<Location>> {
    Err(Error::Disabled { address: first.to_string() })
}

#[cfg(feature = "http")]
fn open_listed(
    first: &Address,
    addresses: &[Address],
    keeps: &dyn Fn(&str) -> bool,
    options: &RemoteOptions,
) -> Result<Vec<Location>> {
    let urls = addresses.iter().filter_map(|address| match address {
        Address::Http(url) => Some(url),
        _ => None,
    });
    let folder = match first.folder() {
        Address::Http(_) => RemoteFolder::from_urls(urls, options)?,
        Address::Hub(hub) => RemoteFolder::from_hub(&hub, options)?,
        Address::Bucket(bucket) => list_bucket(&bucket, options)?,
    };
    if let Some(missing) = addresses.iter().find(|address| !folder.contains(address.file_name())) {
        return Err(Error::NotFound { address: missing.to_string(), message: String::new() });
    }
    let is_given = |name: &str| addresses.iter().any(|address| address.file_name() == name);
    let folder = folder.retain(&|name| is_given(name) || keeps(name)).into_location();
    Ok(addresses.iter().map(|address| folder.join(address.file_name())).collect())
}

/// Refuses the address, because this build does not read buckets.
#[cfg(all(feature = "http", not(feature = "buckets")))]
fn list_bucket(address: &BucketAddress, _: &RemoteOptions) -> Result<RemoteFolder> {
    Err(Error::Disabled { address: address.to_string() })
}

#[cfg(feature = "buckets")]
fn list_bucket(address: &BucketAddress, options: &RemoteOptions) -> Result<RemoteFolder> {
    RemoteFolder::from_bucket(address, &options.bucket(address)?, true)
}

/// Refuses the address, because this build does not read buckets.
#[cfg(all(feature = "http", not(feature = "buckets")))]
fn open_in_bucket(address: &BucketAddress, _: Neighbours<'_>, _: &RemoteOptions) -> Result<Location> {
    Err(Error::Disabled { address: address.to_string() })
}

/// Opens an object, or lists the objects below a prefix.
#[cfg(feature = "buckets")]
fn open_in_bucket(
    address: &BucketAddress,
    neighbours: Neighbours<'_>,
    options: &RemoteOptions,
) -> Result<Location> {
    let bucket = options.bucket(address)?;
    let client = Arc::clone(&bucket.client);
    let (parent, name) = address.key.rsplit_once('/').unwrap_or(("", &address.key));
    let is_set = name.ends_with(INDEX_SUFFIX);
    let is_folder = !name.contains('.');
    let mut missing = None;
    if !is_folder && !is_set && !neighbours.of_files {
        let place = FilePlace::Object { bucket: bucket.clone(), key: address.key.clone() };
        match RemoteFile::open_place(&client, place, None, EDGE) {
            Err(error @ Error::NotFound { .. }) => missing = Some(error),
            opened => return Ok(into_location(opened?)),
        }
    }
    if !is_folder && (is_set || neighbours.of_files) {
        let parent = BucketAddress { key: parent.to_owned(), ..address.clone() };
        let folder = RemoteFolder::from_bucket(&parent, &bucket, true)?;
        if folder.contains(name) {
            return Ok(folder.into_file(name));
        }
    }
    let folder = match RemoteFolder::from_bucket(address, &bucket, false) {
        // Whoever may read an object need not be allowed to list others.
        Err(error) if !matches!(error, Error::Cancelled(_)) => return Err(missing.unwrap_or(error)),
        folder => folder?,
    };
    if !folder.is_empty() {
        return Ok(folder.into_location());
    }
    if is_folder && !name.is_empty() {
        // An object may have a name without an extension.
        let place = FilePlace::Object { bucket, key: address.key.clone() };
        return Ok(into_location(RemoteFile::open_place(&client, place, None, EDGE)?));
    }
    Err(Error::NotFound { address: address.to_string(), message: "the bucket has no such object".to_owned() })
}

/// Returns the location of a file, without what is next to it.
#[cfg(feature = "http")]
fn into_location(file: RemoteFile) -> Location {
    Location::from(Arc::new(file) as Arc<dyn Source>)
}

/// Lists a repository, and returns the folder of an address in it, or the file and its folder.
#[cfg(feature = "http")]
fn open_on_hub(hub: &HubAddress, options: &RemoteOptions) -> Result<Location> {
    let (parent, name) = hub.path.rsplit_once('/').unwrap_or(("", &hub.path));
    let parent = HubAddress { path: parent.to_owned(), ..hub.clone() };
    let folder = RemoteFolder::from_hub(&parent, options)?;
    if name.is_empty() {
        return Ok(folder.into_location());
    }
    if folder.contains(name) {
        return Ok(folder.into_file(name));
    }
    let folder = folder.below(name, hub);
    if folder.is_empty() {
        let message = "the repository has no such file or folder".to_owned();
        return Err(Error::NotFound { address: hub.to_string(), message });
    }
    Ok(folder.into_location())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_a_set_are_different_and_in_one_folder() {
        let open = |second: &str| {
            let addresses =
                ["https://a.b/c/x.pth", second].map(|text| Address::parse(text).expect("an address"));
            open_files(&addresses, &|_| false, &RemoteOptions::default()).map(drop)
        };
        for (second, expected) in [
            ("https://a.b/d/y.pth", "https://a.b/c/x.pth and https://a.b/d/y.pth are not in one folder"),
            ("https://a.b/c/x.pth", "https://a.b/c/x.pth is given more than once"),
        ] {
            assert_eq!(open(second).map_err(|error| error.to_string()), Err(expected.to_owned()));
        }
    }
}

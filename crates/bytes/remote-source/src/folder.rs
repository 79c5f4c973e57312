//! A remote folder: files whose addresses and lengths are known.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use byte_source::{FileStat, Listing, Location, Source, Stat, Store};
use url::Url;

#[cfg(feature = "buckets")]
use crate::BucketAddress;
use crate::address::shown_url;
use crate::answer::Version;
#[cfg(feature = "buckets")]
use crate::bucket::Bucket;
use crate::cache::{get_document, put_document};
use crate::client::Client;
use crate::fetcher::FilePlace;
use crate::file::EDGE;
use crate::listing::{HubListing, index_files, is_plain_path};
use crate::slot::Slot;
use crate::target::RangeTarget;
use crate::{Error, HubAddress, RemoteFile, RemoteOptions, Result, hub};

/// Bytes that are read at the start and at the end of each file when several are opened: the parts of a model describe
/// fewer tensors than a whole one.
const SHARD_EDGE: u64 = 64 << 10;
/// Largest number of files that are opened at the same time.
const PARALLEL_MAX: usize = 16;
/// Largest number of bytes of a listing or an index.
const LISTING_MAX: u64 = 64 << 20;

/// Where a file is, and its version if it was listed.
type FolderFile = (FilePlace, Option<Version>);

/// Folder on the Hub or in a bucket, or the files that an index on a web server names, as a [`Store`]. Its files were listed once,
/// and are those of that moment.
#[derive(Debug)]
pub struct RemoteFolder {
    path: PathBuf,
    name: String,
    client: Arc<Client>,
    names: Vec<String>,
    files: HashMap<String, FolderFile>,
    /// Files that were opened to find out whether they exist.
    opened: Mutex<HashMap<String, Arc<RemoteFile>>>,
}

impl RemoteFolder {
    /// Lists a repository on the Hub, or a folder in it, at the commit of its revision.
    ///
    /// # Errors
    /// When the Hub refuses the listing, or requests are switched off.
    pub(crate) fn from_hub(address: &HubAddress, options: &RemoteOptions) -> Result<Self> {
        let client = options.client()?;
        let target = hub::listing_target(address, options)?;
        let cache = options.cache.as_deref();
        let kept = cache.filter(|_| options.offline).and_then(|cache| get_document(cache, &target.address));
        let document = match kept {
            Some(document) => document,
            None => client.document(&target, LISTING_MAX)?,
        };
        if let Some(cache) = cache.filter(|_| !options.offline) {
            put_document(cache, &target.address, &document);
        }
        let answer = |reason| Error::Answer { address: address.to_string(), reason };
        let listing = HubListing::from_json(&document).map_err(answer)?;
        let commit = listing.commit.clone();
        let mut files = HashMap::new();
        for (name, len) in listing.below(&address.path).files {
            let inside =
                if address.path.is_empty() { name.clone() } else { format!("{}/{name}", address.path) };
            let file = HubAddress { path: inside, ..address.clone() };
            let listed = |len| Version { len, commit: Some(commit.clone()), ..Version::default() };
            let version = len.map(listed);
            files.insert(name, (FilePlace::Url(hub::file_target(&file, &commit, options)?), version));
        }
        let last = address.path.rsplit('/').next().filter(|name| !name.is_empty());
        let name = last.or_else(|| address.repository.rsplit('/').next()).unwrap_or_default().to_owned();
        Ok(Self::new(address.to_string(), name, client, files, HashMap::new()))
    }

    /// Lists the objects below a prefix of a bucket, or with `is_flat` those in its folder alone.
    ///
    /// # Errors
    /// When the service refuses the listing, or requests are switched off.
    #[cfg(feature = "buckets")]
    pub(crate) fn from_bucket(address: &BucketAddress, bucket: &Bucket, is_flat: bool) -> Result<Self> {
        let place = |name: &str| {
            let key =
                if address.key.is_empty() { name.to_owned() } else { format!("{}/{name}", address.key) };
            FilePlace::Object { bucket: bucket.clone(), key }
        };
        let objects = bucket.list(&address.key, is_flat)?.into_iter();
        let objects = objects.filter(|(name, _)| is_plain_path(name));
        let files = objects.map(|(name, version)| (name.clone(), (place(&name), Some(version)))).collect();
        let last = address.key.rsplit('/').next().filter(|name| !name.is_empty());
        let name = last.unwrap_or(&address.bucket).to_owned();
        Ok(Self::new(address.to_string(), name, Arc::clone(&bucket.client), files, HashMap::new()))
    }

    /// Reads an index on a web server. Its folder has the index, the shards that it names, and those of `documents` that
    /// are next to it.
    ///
    /// # Errors
    /// When the index cannot be read, or the server answers otherwise than with a document or that there is none.
    pub(crate) fn from_index(url: &Url, documents: &[&str], options: &RemoteOptions) -> Result<Self> {
        let client = options.client()?;
        let next_to = |name: &str| {
            let mut url = url.clone();
            if let Ok(mut parts) = url.path_segments_mut() {
                parts.pop().push(name);
            }
            RangeTarget { address: shown_url(&url), url, token: None, is_resolved: false }
        };
        let index_name = url.path().rsplit('/').next().unwrap_or_default().to_owned();
        let target = next_to(&index_name);
        let index = RemoteFile::open_place(&client, FilePlace::Url(target.clone()), None, EDGE)?;
        let answer = |reason| Error::Answer { address: target.address.clone(), reason };
        if index.len() > LISTING_MAX {
            return Err(answer(format!("it has more than {LISTING_MAX} bytes")));
        }
        let text = index.read_range(0..index.len()).map_err(|reason| answer(reason.to_string()))?;
        let mut files: HashMap<String, FolderFile> = index_files(&text)
            .map_err(answer)?
            .into_iter()
            .map(|name| (name.clone(), (FilePlace::Url(next_to(&name)), None)))
            .collect();
        let mut opened = HashMap::from([(index_name.clone(), Arc::new(index))]);
        files.insert(index_name, (FilePlace::Url(target), None));
        let open = |name: &&str| {
            let (client, target) = (Arc::clone(&client), next_to(name));
            Slot::start(move || {
                match RemoteFile::open_place(&client, FilePlace::Url(target), None, SHARD_EDGE) {
                    Ok(file) => Ok(Some(Arc::new(file))),
                    // A bucket that does not let everybody list it answers 403 for files that are not there.
                    Err(
                        Error::NotFound { .. }
                        | Error::Gone { .. }
                        | Error::Denied { status: 403, .. }
                        | Error::Offline { .. },
                    ) => Ok(None),
                    Err(error) => Err(error),
                }
            })
        };
        for documents in documents.chunks(PARALLEL_MAX) {
            let slots: Vec<_> = documents.iter().map(open).collect();
            for (name, slot) in documents.iter().zip(slots) {
                if let Some(file) = slot.wait(options)? {
                    opened.insert((*name).to_owned(), file);
                    files.insert((*name).to_owned(), (FilePlace::Url(next_to(name)), None));
                }
            }
        }
        let mut folder = url.clone();
        if let Ok(mut parts) = folder.path_segments_mut() {
            parts.pop();
        }
        let name =
            folder.path().rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or("model").to_owned();
        Ok(Self::new(shown_url(&folder), name, client, files, opened))
    }

    /// Returns the folder of files on a web server, which are not opened. Each keeps its query.
    pub(crate) fn from_urls<'u>(
        urls: impl Iterator<Item = &'u Url>,
        options: &RemoteOptions,
    ) -> Result<Self> {
        let (mut path, mut files) = (String::new(), HashMap::new());
        for url in urls {
            let address = shown_url(url);
            let (folder, name) = address.rsplit_once('/').unwrap_or(("", &address));
            folder.clone_into(&mut path);
            let target =
                RangeTarget { url: url.clone(), token: None, is_resolved: false, address: address.clone() };
            files.insert(name.to_owned(), (FilePlace::Url(target), None));
        }
        let name = path.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or("model").to_owned();
        Ok(Self::new(path, name, options.client()?, files, HashMap::new()))
    }

    /// Returns the folder with those of its files whose names `keeps` accepts.
    pub(crate) fn retain(mut self, keeps: &dyn Fn(&str) -> bool) -> Self {
        self.files.retain(|name, _| keeps(name));
        self.names.retain(|name| keeps(name));
        self
    }

    pub(crate) fn below(self, name: &str, address: &HubAddress) -> Self {
        let below =
            |(path, file): (String, _)| Some((path.strip_prefix(name)?.strip_prefix('/')?.to_owned(), file));
        let files = self.files.into_iter().filter_map(below).collect();
        Self::new(address.to_string(), name.to_owned(), self.client, files, HashMap::new())
    }

    fn new(
        path: String,
        name: String,
        client: Arc<Client>,
        files: HashMap<String, FolderFile>,
        opened: HashMap<String, Arc<RemoteFile>>,
    ) -> Self {
        let name = if is_plain_path(&name) { name } else { "model".to_owned() };
        let mut names: Vec<String> = files.keys().cloned().collect();
        names.sort();
        Self { path: path.into(), name, client, names, files, opened: Mutex::new(opened) }
    }

    fn open_one(&self, name: &str, edge: u64) -> Result<Arc<Slot<Arc<RemoteFile>>>> {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        let opened = opened.remove(name);
        let (client, file) = (Arc::clone(&self.client), self.files.get(name).cloned());
        let Some((place, listed)) = file else {
            let address = self.path.join(name).display().to_string();
            return Err(Error::NotFound { address, message: String::new() });
        };
        Ok(Slot::start(move || match opened {
            Some(file) => Ok(file),
            None => Ok(Arc::new(RemoteFile::open_place(&client, place, listed, edge)?)),
        }))
    }
}

impl RemoteFolder {
    /// Returns true if there are no files.
    pub(crate) fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Returns true if there is a file of this path relative to the folder.
    pub(crate) fn contains(&self, name: &str) -> bool {
        self.files.contains_key(name)
    }

    /// Returns the location of the folder.
    pub(crate) fn into_location(self) -> Location {
        let path = self.path.clone();
        Location::new(Arc::new(self), path)
    }

    /// Returns the location of a file in the folder.
    pub(crate) fn into_file(self, name: &str) -> Location {
        self.into_location().join(name)
    }

    /// Returns a path relative to the folder; `None` if it is not in the folder.
    fn inside<'p>(&self, path: &'p Path) -> Option<&'p str> {
        path.strip_prefix(&self.path).ok()?.to_str()
    }

    /// Returns the paths of the files below a folder, relative to it, sorted.
    fn below_path<'f>(&'f self, folder: &Path) -> impl Iterator<Item = &'f str> {
        let inside = self
            .inside(folder)
            .map(|inside| if inside.is_empty() { String::new() } else { format!("{inside}/") });
        self.names.iter().filter_map(move |name| name.strip_prefix(inside.as_deref()?))
    }
}

impl Store for RemoteFolder {
    fn list(&self, folder: &Path) -> io::Result<Listing> {
        Ok(Listing::from_paths(self.below_path(folder)))
    }

    fn stat(&self, path: &Path) -> io::Result<Option<Stat>> {
        let Some(inside) = self.inside(path) else { return Ok(None) };
        if let Some((_, version)) = self.files.get(inside) {
            let etag = version.as_ref().and_then(|it| it.etag.as_ref().or(it.commit.as_ref()).cloned());
            let len = version.as_ref().map(|version| version.len);
            return Ok(Some(Stat::File(FileStat { len, etag, ..FileStat::default() })));
        }
        let is_folder = inside.is_empty() || self.below_path(path).next().is_some();
        Ok(is_folder.then_some(Stat::Folder))
    }

    fn open(&self, files: &[PathBuf]) -> Result<Vec<Arc<dyn Source>>, byte_source::Error> {
        let edge = if files.len() > 1 { SHARD_EDGE } else { EDGE };
        let mut sources: Vec<Arc<dyn Source>> = Vec::with_capacity(files.len());
        for files in files.chunks(PARALLEL_MAX) {
            let names = files.iter().map(|path| self.inside(path).unwrap_or_default());
            let slots: Vec<_> = names.map(|name| self.open_one(name, edge)).collect::<Result<_>>()?;
            for slot in slots {
                sources.push(slot.wait(&self.client.options)?);
            }
        }
        Ok(sources)
    }

    fn folder_name(&self, folder: &Path) -> String {
        let name = folder.file_name().filter(|_| folder != self.path);
        name.map_or_else(|| self.name.clone(), |name| name.to_string_lossy().into_owned())
    }
}

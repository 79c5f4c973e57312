//! A bucket: reads ranges of its objects, and lists them.

use std::collections::BTreeMap;
use std::error::Error as StdError;
use std::fmt;
use std::future::Future;
use std::sync::{Arc, OnceLock};

use byte_source::FileStat;
use futures_util::TryStreamExt;
use object_store::path::Path as ObjectPath;
use object_store::{Attribute, GetOptions, GetRange, ObjectMeta, ObjectStore};

use crate::answer::{RequestedBytes, Version};
use crate::client::Client;
use crate::connector::{Condition, NO_ETAG};
use crate::credentials::StoreBuilder;
use crate::retry::{pause, pause_before};
use crate::slot::Slot;
use crate::target::Part;
use crate::{BucketAddress, BucketService, Error, Result};

/// Name in the metadata of an object that this program wrote. Its value is another one for each upload.
pub(crate) const MARK: &str = "torch2carton";

/// Largest number of objects of a folder; more are rather a whole data set.
const OBJECTS_MAX: usize = 100_000;

#[derive(Clone)]
pub(crate) struct Bucket {
    store: Arc<dyn ObjectStore>,
    builder: Arc<StoreBuilder>,
    pub(crate) client: Arc<Client>,
    /// The bucket alone, for messages.
    address: BucketAddress,
}

impl fmt::Debug for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)
    }
}

/// Objects below a prefix: the length and version of each, by its name relative to the prefix.
pub(crate) type Objects = BTreeMap<String, Version>;

impl Bucket {
    /// Opens the bucket of an address with the credentials of the environment.
    ///
    /// # Errors
    /// When the environment has credentials that are incomplete, or requests are switched off.
    pub(crate) fn open(address: &BucketAddress, client: &Arc<Client>) -> Result<Self> {
        let bucket = BucketAddress { key: String::new(), ..address.clone() };
        if client.options.offline {
            return Err(Error::Offline { address: address.to_string() });
        }
        let (of, shared) = (bucket.clone(), Arc::clone(client));
        let found = Slot::start(move || {
            let builder = StoreBuilder::from_env(&of, &shared);
            builder.map(Arc::new).map_err(|error| convert(&error, &of.to_string()))
        });
        let builder = found.wait(&client.options)?;
        let store = builder.build(client, Arc::default());
        let store = store.map_err(|error| convert(&error, &bucket.to_string()))?;
        Ok(Self { store, builder, client: Arc::clone(client), address: bucket })
    }

    /// Returns a store for one upload, which is completed under the condition once there is one.
    ///
    /// # Errors
    /// When a setting of the environment is not valid.
    pub(crate) fn upload_store(&self, condition: &Arc<OnceLock<Condition>>) -> Result<Arc<dyn ObjectStore>> {
        let store = self.builder.build(&self.client, Arc::clone(condition));
        store.map_err(|error| convert(&error, &self.address.to_string()))
    }

    /// Requests a range of an object. When a connection breaks within a body, the next one goes on from there.
    ///
    /// # Errors
    /// When the service refuses it, sends something else, or has another version of the object.
    pub(crate) fn fetch(&self, key: &str, asked: &RequestedBytes, version: Option<&Version>) -> Result<Part> {
        let address = BucketAddress { key: key.to_owned(), ..self.address.clone() }.to_string();
        let mut part = self.fetch_once(key, asked, version, &address)?;
        let end = asked.within(part.version.len).end;
        let missing = |part: &Part| part.range.start.saturating_add(part.bytes.len() as u64)..end;
        if missing(&part).is_empty() {
            return Ok(part);
        }
        let mut received = self.client.buffers.take(end.saturating_sub(part.range.start));
        received.extend(&part.bytes);
        while part.range.start.saturating_add(received.len()) < end {
            pause(pause_before(1), &|| self.client.options.is_stopped())?;
            let rest = RequestedBytes::Range(part.range.start.saturating_add(received.len())..end);
            let next = self.fetch_once(key, &rest, Some(&part.version), &address)?;
            received.extend(&next.bytes);
        }
        part.range.end = end;
        part.bytes = received.into();
        Ok(part)
    }

    /// Requests a range of an object. Of a body that broke off, the part has the first bytes, at least one.
    fn fetch_once(
        &self,
        key: &str,
        asked: &RequestedBytes,
        version: Option<&Version>,
        address: &str,
    ) -> Result<Part> {
        let range = match asked {
            RequestedBytes::Range(range) => GetRange::Bounded(range.clone()),
            RequestedBytes::Last(count) => GetRange::Suffix(*count),
        };
        let options = GetOptions { range: Some(range), ..GetOptions::default() };
        let path = self.path_of(key)?;
        let (range, meta, bytes) = block_on(address, async {
            let found = self.store.get_opts(&path, options).await?;
            Ok((found.range.clone(), found.meta.clone(), found.bytes().await?))
        })?;
        let now = version_of(&meta);
        if let Some(version) = version {
            version.check(&now, address)?;
        }
        let expected = asked.within(now.len);
        let received = range.start.checked_add(bytes.len() as u64);
        let is_part =
            bytes.is_empty() == expected.is_empty() && received.is_some_and(|end| end <= expected.end);
        if range != expected || !is_part {
            let reason = format!("it has the bytes from {} on, {} in all", range.start, bytes.len());
            return Err(Error::Answer { address: address.to_owned(), reason });
        }
        Ok(Part { range, bytes, version: now })
    }

    /// Returns what an object is, and the mark of the upload that made it; `None` if there is no such object.
    ///
    /// # Errors
    /// When the service refuses access.
    pub(crate) fn find(&self, key: &str) -> Result<Option<(FileStat, Option<String>)>> {
        let (address, path) = (self.address_of(key), self.path_of(key)?);
        let options = GetOptions { head: true, ..GetOptions::default() };
        let found = match block_on(&address, self.store.get_opts(&path, options)) {
            Err(Error::NotFound { .. }) => return Ok(None),
            found => found?,
        };
        let mark = found.attributes.get(&Attribute::Metadata(MARK.into())).map(|mark| (**mark).to_owned());
        let ObjectMeta { size, e_tag, version, .. } = found.meta;
        let etag = e_tag.filter(|etag| etag != NO_ETAG);
        Ok(Some((FileStat { len: Some(size), is_own: mark.is_some(), etag, version }, mark)))
    }

    /// Lists the objects below a prefix, or with `is_flat` those in its folder alone.
    ///
    /// # Errors
    /// When the service refuses the listing, or there are too many objects.
    pub(crate) fn list(&self, prefix: &str, is_flat: bool) -> Result<Objects> {
        let address = BucketAddress { key: prefix.to_owned(), ..self.address.clone() }.to_string();
        let path = self.path_of(prefix)?;
        let bucket = self.clone();
        let shown = address.clone();
        let listed = Slot::start(move || {
            block_on(&shown, async {
                if is_flat {
                    return Ok(bucket.store.list_with_delimiter(Some(&path)).await?.objects);
                }
                let objects = bucket.store.list(Some(&path));
                objects
                    .try_fold(Vec::new(), |mut all, object| async move {
                        if all.len() <= OBJECTS_MAX {
                            all.push(object);
                        }
                        Ok(all)
                    })
                    .await
            })
        });
        let objects = listed.wait(&self.client.options)?;
        if objects.len() > OBJECTS_MAX {
            let reason = format!("there are more than {OBJECTS_MAX} objects below it");
            return Err(Error::Answer { address, reason });
        }
        let relative = |object: &ObjectMeta| {
            let key = object.location.as_ref();
            let name = if prefix.is_empty() { key } else { key.strip_prefix(prefix)?.strip_prefix('/')? };
            Some((name.to_owned(), version_of(object)))
        };
        Ok(objects.iter().filter_map(relative).collect())
    }

    /// Returns true if the service sends the last bytes of an object of unknown length.
    pub(crate) fn has_suffix_ranges(&self) -> bool {
        self.address.service != BucketService::Azure
    }

    /// Returns true if the service refuses conditions of multipart uploads, and accepts those of copies.
    pub(crate) fn needs_copy(&self) -> bool {
        self.address.service == BucketService::Google
    }

    /// Returns the path of an object for the store.
    ///
    /// # Errors
    /// When a part of it is one that no object can have, such as `..`.
    pub(crate) fn path_of(&self, key: &str) -> Result<ObjectPath> {
        ObjectPath::parse(key).map_err(|error| convert(&error.into(), &self.address_of(key)))
    }

    pub(crate) fn address_of(&self, key: &str) -> String {
        BucketAddress { key: key.to_owned(), ..self.address.clone() }.to_string()
    }
}

fn version_of(meta: &ObjectMeta) -> Version {
    // A listing and an answer show the time with different precision, so it is not compared.
    let etag = meta.e_tag.as_ref().filter(|etag| *etag != NO_ETAG);
    let etag = etag.map(|etag| etag.trim_matches('"').to_owned());
    Version { len: meta.size, etag, modified: None, commit: None }
}

/// Runs an operation of a store on this thread.
pub(crate) fn block_on<T>(address: &str, work: impl Future<Output = object_store::Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    let runtime = runtime.map_err(|reason| Error::Connection {
        address: address.to_owned(),
        reason: format!("no runtime can be started: {reason}"),
    })?;
    runtime.block_on(work).map_err(|error| convert(&error, address))
}

/// Converts the error of a store. Our own errors within it get the address of the object.
fn convert(error: &object_store::Error, address: &str) -> Error {
    let mut cause: Option<&(dyn StdError + 'static)> = Some(error);
    while let Some(next) = cause {
        if let Some(own) = next.downcast_ref::<Error>() {
            return own.clone().of_object(address);
        }
        cause = next.source();
    }
    let address = address.to_owned();
    match error {
        object_store::Error::AlreadyExists { .. }
        | object_store::Error::Precondition { .. }
        | object_store::Error::NotModified { .. } => Error::Conflict { address },
        object_store::Error::NotFound { .. } => Error::NotFound { address, message: String::new() },
        object_store::Error::PermissionDenied { .. } => {
            Error::Denied { address, status: 403, message: String::new(), has_token: false }
        }
        object_store::Error::Unauthenticated { .. } => {
            Error::Denied { address, status: 401, message: String::new(), has_token: false }
        }
        error => Error::Connection { address, reason: shorten(&error.to_string()) },
    }
}

/// Shortens a message to one line without queries, which may hold signatures.
fn shorten(text: &str) -> String {
    let words = text.split_whitespace().map(|word| word.split('?').next().unwrap_or_default());
    let text: String = words.collect::<Vec<_>>().join(" ");
    text.chars().filter(|c| !c.is_control()).take(300).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_no_signatures() {
        let shown = shorten("Error performing GET https://a.b/c?sig=secret in 1 ms\n<Code>x</Code>");
        assert_eq!(shown, "Error performing GET https://a.b/c in 1 ms <Code>x</Code>");
    }
}

//! An object that is sent to a bucket: in one request, or in parts by a multipart upload that is completed last. Google's multipart
//! uploads go to a temporary object next to the target, which is copied to the target under a condition.
//!
//! Facts: the limits of multipart uploads of Amazon S3 (10,000 parts, each of 5 MiB or more but the last one), of Google's XML
//! interface, which has the same and refuses conditions, and of Azure (50,000 blocks). Google copies an object within a bucket
//! without its bytes, and with its metadata.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use byte_source::{FileStat, Replaced, Upload};
use bytes::Bytes;
use object_store::path::Path as ObjectPath;
use object_store::{
    Attribute, Attributes, MultipartUpload, ObjectStore, ObjectStoreExt, PutMode, PutMultipartOptions,
    PutOptions, PutPayload, UpdateVersion,
};

use crate::bucket::{Bucket, MARK, block_on};
use crate::connector::Condition;
use crate::range_buffers::RangeBuffer;
use crate::slot::Slot;
use crate::temporary::{folder_of, is_abandoned, temporary_key};
use crate::{Error, Result};

const PARTS_MAX: u64 = 10_000;
/// Smallest length of a part in bytes.
const PART_MIN: u64 = 8 << 20;
/// Largest length in bytes of an object that is kept in memory and sent in one request.
const WHOLE_MAX: u64 = 1 << 20;
/// Granularity of the length of a part in bytes.
const PART_STEP: u64 = 1 << 20;
/// Memory for parts, in bytes.
const BUFFERS: u64 = 48 << 20;
/// Largest number of parts in memory: one is filled, and the others are sent. Parts of more than [`LONG_PART`] have as many.
const PARALLEL: u64 = 4;
/// Length in bytes of the parts of an object of 160 GB.
const LONG_PART: u64 = 16 << 20;

/// Returns the length of the parts of an object of `len` bytes, and the number of parts to keep in memory.
fn part_plan(len: u64) -> (usize, usize) {
    let part = len.div_ceil(PARTS_MAX).next_multiple_of(PART_STEP).max(PART_MIN);
    let fitting = BUFFERS.checked_div(part).unwrap_or_default();
    let parallel = if part > LONG_PART { PARALLEL } else { fitting.min(PARALLEL) };
    (usize::try_from(part).unwrap_or(usize::MAX), usize::try_from(parallel).unwrap_or(1))
}

/// Object that is being sent.
#[derive(Debug)]
pub(crate) struct BucketUpload {
    shared: Arc<Shared>,
    /// Bytes of the next part.
    part: RangeBuffer,
    part_len: usize,
    /// Bytes of the object that are still to come.
    left: u64,
    /// Parts that are being sent, oldest first.
    sent: VecDeque<Arc<Slot<()>>>,
    parallel: usize,
    /// Memory for the parts that was taken from what ranges that are read ahead may have.
    taken: u64,
}

/// What an upload shares with the handle that aborts it.
struct Shared {
    bucket: Bucket,
    store: Arc<dyn ObjectStore>,
    /// What must be at the target when the upload is completed.
    condition: Arc<OnceLock<Condition>>,
    path: ObjectPath,
    address: String,
    key: String,
    /// Temporary object to which the parts are sent, and its address; `None` if they go to the target.
    temporary: Option<(ObjectPath, String)>,
    /// Value of the mark, by which the object is known as the one of this upload.
    id: String,
    state: Mutex<State>,
    /// True once the upload is to be aborted, also while a request of it is under way.
    is_aborted: AtomicBool,
    /// True while the temporary object may be there.
    has_temporary: AtomicBool,
}

enum State {
    /// Nothing was sent.
    New,
    Started(Box<dyn MultipartUpload>),
    /// Completed or aborted.
    Ended,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.address)
    }
}

impl BucketUpload {
    /// Prepares an object of `len` bytes. Nothing is sent before a part is full.
    pub(crate) fn new(bucket: Bucket, key: String, len: u64) -> Result<Self> {
        let (address, path) = (bucket.address_of(&key), bucket.path_of(&key)?);
        let (part_len, parallel) = part_plan(len);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let id = format!("{now:x}-{:x}", std::process::id());
        let part = bucket.client.buffers.take(0);
        let temporary = bucket.needs_copy().then(|| temporary_key(&key, &id));
        let temporary = temporary.map(|key| Ok::<_, Error>((bucket.path_of(&key)?, bucket.address_of(&key))));
        let condition = Arc::default();
        let shared = Shared {
            store: bucket.upload_store(&condition)?,
            condition,
            bucket,
            path,
            address,
            key,
            temporary: temporary.transpose()?,
            id,
            state: Mutex::new(State::New),
            is_aborted: AtomicBool::new(false),
            has_temporary: AtomicBool::new(false),
        };
        let mut upload = Self {
            shared: Arc::new(shared),
            part,
            part_len,
            left: len,
            sent: VecDeque::new(),
            parallel: parallel.saturating_sub(1),
            taken: 0,
        };
        upload.take_memory();
        Ok(upload)
    }

    /// Sends the next part in the background.
    fn send_part(&mut self) -> Result<()> {
        while self.sent.len() >= self.parallel {
            self.wait_for_oldest()?;
        }
        let part = self.take_part();
        let slot = self.shared.put_part(part.into())?;
        self.sent.push_back(slot);
        Ok(())
    }

    /// Returns the bytes of the next part.
    fn take_part(&mut self) -> RangeBuffer {
        let empty = self.shared.bucket.client.buffers.take(0);
        std::mem::replace(&mut self.part, empty)
    }

    /// Takes the memory for all parts, if there are several.
    fn take_memory(&mut self) {
        if self.taken == 0 && self.left > self.part_len as u64 {
            let parts = self.parallel.saturating_add(1) as u64;
            self.taken = parts.saturating_mul(self.part_len as u64);
            self.shared.bucket.client.options.upload_memory.fetch_add(self.taken, Ordering::Relaxed);
        }
    }

    fn give_memory_back(&mut self) {
        let taken = std::mem::take(&mut self.taken);
        self.shared.bucket.client.options.upload_memory.fetch_sub(taken, Ordering::Relaxed);
    }

    fn wait_for_oldest(&mut self) -> Result<()> {
        let Some(oldest) = self.sent.front() else { return Ok(()) };
        oldest.wait(&self.shared.bucket.client.options)?;
        self.sent.pop_front();
        Ok(())
    }

    fn wait_for_all(&mut self) -> Result<()> {
        while !self.sent.is_empty() {
            self.wait_for_oldest()?;
        }
        Ok(())
    }

    fn complete_upload(&mut self, replaced: &Replaced) -> Result<()> {
        let completed = if self.shared.is_started() {
            if self.part.len() > 0 {
                self.send_part()?;
            }
            self.wait_for_all()?;
            self.shared.complete(replaced)
        } else {
            let part = self.take_part();
            self.shared.put_whole(part.into(), replaced)
        };
        match completed {
            // The answer to the first try may be lost: then the object that is in the way is this one.
            Err(Error::Conflict { .. }) if self.shared.is_there() => Ok(()),
            completed => completed,
        }
    }
}

impl Write for BucketUpload {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.part.len() >= self.part_len as u64 {
            self.send_part()?;
        }
        if self.part.len() == 0 {
            let part_len = self.part_len as u64;
            let len = if self.left == 0 { part_len } else { self.left.min(part_len) };
            self.part = self.shared.bucket.client.buffers.take(len);
        }
        let taken = self.part.extend(bytes);
        self.left = self.left.saturating_sub(taken as u64);
        if self.left == 0 && (self.part.len() > WHOLE_MAX || self.shared.is_started()) {
            // Other files of the output may follow, whose parts need the memory.
            self.send_part()?;
            self.wait_for_all()?;
            self.give_memory_back();
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Upload for BucketUpload {
    fn complete(mut self: Box<Self>, replaced: &Replaced) -> io::Result<()> {
        Ok(self.complete_upload(replaced)?)
    }

    fn abort_handle(&self) -> Arc<dyn Fn() + Send + Sync> {
        let shared = Arc::clone(&self.shared);
        Arc::new(move || shared.abort())
    }
}

/// Aborts the upload at the service, unless it was completed.
impl Drop for BucketUpload {
    fn drop(&mut self) {
        // A part that arrives after the abort would stay at the service.
        for part in &self.sent {
            let _ = part.wait(&self.shared.bucket.client.options);
        }
        self.shared.abort();
        self.give_memory_back();
    }
}

impl Shared {
    fn attributes(&self) -> Attributes {
        [(Attribute::Metadata(MARK.into()), self.id.clone())].into_iter().collect()
    }

    fn is_started(&self) -> bool {
        matches!(*self.state.lock().unwrap_or_else(PoisonError::into_inner), State::Started(_))
    }

    /// Sends a part in the background. The first one starts the upload.
    fn put_part(&self, bytes: Bytes) -> Result<Arc<Slot<()>>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*state, State::New) {
            let options = PutMultipartOptions { attributes: self.attributes(), ..Default::default() };
            let path = self.temporary.as_ref().map_or(&self.path, |(path, _)| path);
            let upload = block_on(&self.address, self.store.put_multipart_opts(path, options))?;
            *state = State::Started(upload);
        }
        let State::Started(upload) = &mut *state else {
            return Err(byte_source::Cancelled.into());
        };
        let sending = upload.put_part(PutPayload::from(bytes));
        let address = self.address.clone();
        Ok(Slot::start(move || block_on(&address, sending)))
    }

    fn complete(&self, replaced: &Replaced) -> Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let State::Started(upload) = &mut *state else { return Err(byte_source::Cancelled.into()) };
        let condition = match replaced {
            Replaced::Anything => None,
            Replaced::Nothing => Some(Condition::Absent),
            Replaced::Version(FileStat { etag, version, .. }) => {
                Some(Condition::Version { etag: etag.clone(), generation: version.clone() })
            }
        };
        if let Some(condition) = condition {
            self.condition.get_or_init(|| condition);
        }
        let completed = block_on(&self.address, upload.complete()).map(drop);
        if completed.is_ok() {
            *state = State::Ended;
        }
        match &self.temporary {
            Some((temporary, shown)) => self.move_to_target(temporary, shown, completed),
            None => completed,
        }
    }

    /// Copies the temporary object to the target if it was completed, and deletes it.
    fn move_to_target(&self, temporary: &ObjectPath, shown: &str, completed: Result<()>) -> Result<()> {
        self.has_temporary.store(true, Ordering::SeqCst);
        let copied = completed.and_then(|()| {
            if self.is_aborted.load(Ordering::SeqCst) {
                return Err(byte_source::Cancelled.into());
            }
            block_on(&self.address, self.store.copy(temporary, &self.path))
        });
        let deleted = self.delete_temporary();
        self.has_temporary.store(false, Ordering::SeqCst);
        self.delete_abandoned();
        let leftover = |reason| Error::Leftover { temporary: shown.to_owned(), reason: Box::new(reason) };
        copied.and(deleted.map_err(leftover))
    }

    fn delete_temporary(&self) -> Result<()> {
        let Some((path, shown)) = &self.temporary else { return Ok(()) };
        match block_on(shown, self.store.delete(path)) {
            Err(Error::NotFound { .. }) => Ok(()),
            deleted => deleted,
        }
    }

    /// Deletes the temporary objects in the folder of the target that other runs left, except any that cannot be deleted. A folder is not
    /// searched twice in a row.
    fn delete_abandoned(&self) {
        static SEARCHED: Mutex<Option<String>> = Mutex::new(None);
        let folder = folder_of(&self.key).trim_end_matches('/');
        let shown = self.bucket.address_of(folder);
        let is_searched = SEARCHED.lock().unwrap_or_else(PoisonError::into_inner).replace(shown.clone());
        let Some(path) = self.bucket.path_of(folder).ok().filter(|_| is_searched.as_ref() != Some(&shown))
        else {
            return;
        };
        let Ok(listed) = block_on(&shown, self.store.list_with_delimiter(Some(&path))) else { return };
        let now = SystemTime::now();
        for object in listed.objects {
            let name = object.location.filename().unwrap_or_default();
            if is_abandoned(name, object.last_modified.into(), now) {
                let _ = block_on(&shown, self.store.delete(&object.location));
            }
        }
    }

    /// Sends a whole object.
    fn put_whole(&self, bytes: Bytes, replaced: &Replaced) -> Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*state, State::Ended) {
            return Err(byte_source::Cancelled.into());
        }
        let mode = match replaced {
            Replaced::Anything => PutMode::Overwrite,
            Replaced::Nothing => PutMode::Create,
            Replaced::Version(file) => {
                PutMode::Update(UpdateVersion { e_tag: file.etag.clone(), version: file.version.clone() })
            }
        };
        let options = PutOptions { mode, attributes: self.attributes(), ..Default::default() };
        let put = self.store.put_opts(&self.path, PutPayload::from(bytes), options);
        block_on(&self.address, put)?;
        *state = State::Ended;
        Ok(())
    }

    /// Returns true if the object at the target is the one of this upload.
    fn is_there(&self) -> bool {
        let is_there = matches!(self.bucket.find(&self.key), Ok(Some((_, Some(id)))) if id == self.id);
        if is_there {
            *self.state.lock().unwrap_or_else(PoisonError::into_inner) = State::Ended;
        }
        is_there
    }

    fn abort(&self) {
        self.is_aborted.store(true, Ordering::SeqCst);
        if self.has_temporary.load(Ordering::SeqCst) {
            // The thread that copies it holds the state, perhaps for longer than this program has.
            let _ = self.delete_temporary();
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let State::Started(mut upload) = std::mem::replace(&mut *state, State::Ended) {
            // The service removes parts that nobody completes, sooner or later.
            let _ = block_on(&self.address, upload.abort());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_fit_the_limits() {
        for (len, part, parallel) in [
            (0, 8 << 20, 4),
            (80_000_000_000, 8 << 20, 4),
            (160_000_000_000, 16 << 20, 3),
            (1_000_000_000_000, 96 << 20, 4),
        ] {
            assert_eq!(part_plan(len), (part, parallel), "{len}");
            assert!(len <= PARTS_MAX * part as u64, "{len}");
        }
    }
}

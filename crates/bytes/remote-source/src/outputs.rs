//! Outputs in buckets.

use std::io;
use std::path::Path;
use std::sync::Arc;

use byte_source::{OutputStore, ReadError, Source, StoredFile, Upload};

use crate::bucket::Bucket;
use crate::fetcher::Place;
use crate::file::EDGE;
use crate::upload::BucketUpload;
use crate::{Address, Error, RemoteFile, RemoteOptions, Result};

/// Outputs at `s3://`, `gs://` and `az://` addresses. A bucket is opened when it is first used.
#[derive(Debug)]
pub struct BucketOutputs {
    options: RemoteOptions,
}

impl BucketOutputs {
    /// Creates a store whose requests have these options.
    pub fn new(options: RemoteOptions) -> Self {
        Self { options }
    }

    /// Returns the bucket of an output, and the output's name in it.
    fn bucket(&self, target: &Path) -> Result<(Bucket, String)> {
        match Address::parse(&target.to_string_lossy())? {
            Address::Bucket(address) => Ok((self.options.bucket(&address)?, address.key)),
            other => Err(Error::Output { address: other.to_string() }),
        }
    }

    fn object(&self, target: &Path) -> Result<(Bucket, String)> {
        let (bucket, key) = self.bucket(target)?;
        if key.is_empty() {
            let address = target.display().to_string();
            return Err(Error::Address { address, expected: "a name after the bucket" });
        }
        Ok((bucket, key))
    }
}

impl OutputStore for BucketOutputs {
    fn find(&self, target: &Path) -> io::Result<Option<StoredFile>> {
        let (bucket, key) = self.object(target)?;
        Ok(bucket.find(&key)?.map(|(file, _)| file))
    }

    fn files_in(&self, folder: &Path) -> io::Result<Vec<String>> {
        let (bucket, key) = self.bucket(folder)?;
        Ok(bucket.list(&key, true)?.into_keys().collect())
    }

    fn open(&self, target: &Path) -> Result<Arc<dyn Source>, ReadError> {
        let (bucket, key) = self.object(target)?;
        let client = Arc::clone(&bucket.client);
        let file = RemoteFile::open_place(&client, Place::Object { bucket, key }, None, EDGE)?;
        Ok(Arc::new(file))
    }

    fn create(&self, target: &Path, len: u64) -> io::Result<Box<dyn Upload>> {
        let (bucket, key) = self.object(target)?;
        Ok(Box::new(BucketUpload::new(bucket, key, len)?))
    }
}

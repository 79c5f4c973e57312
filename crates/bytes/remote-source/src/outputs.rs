//! Outputs in buckets.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use byte_source::{Listing, Source, Stat, Store, Upload};

use crate::bucket::Bucket;
use crate::fetcher::FilePlace;
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

/// A folder is listed without the folders in it.
impl Store for BucketOutputs {
    fn list(&self, folder: &Path) -> io::Result<Listing> {
        let (bucket, key) = self.bucket(folder)?;
        Ok(Listing { files: bucket.list(&key, true)?.into_keys().collect(), ..Listing::default() })
    }

    fn stat(&self, path: &Path) -> io::Result<Option<Stat>> {
        let (bucket, key) = self.object(path)?;
        Ok(bucket.find(&key)?.map(|(file, _)| Stat::File(file)))
    }

    fn open(&self, files: &[PathBuf]) -> Result<Vec<Arc<dyn Source>>, byte_source::Error> {
        let open = |path: &PathBuf| {
            let (bucket, key) = self.object(path)?;
            let client = Arc::clone(&bucket.client);
            let file = RemoteFile::open_place(&client, FilePlace::Object { bucket, key }, None, EDGE)?;
            Ok(Arc::new(file) as Arc<dyn Source>)
        };
        files.iter().map(open).collect()
    }

    fn create(&self, path: &Path, len: u64) -> io::Result<Box<dyn Upload>> {
        let (bucket, key) = self.object(path)?;
        Ok(Box::new(BucketUpload::new(bucket, key, len)?))
    }
}

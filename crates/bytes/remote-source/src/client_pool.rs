//! Clients and opened buckets that the inputs and outputs of a call share: their connections and credentials are used again.

use std::sync::{Arc, Mutex, PoisonError};

use crate::client::Client;
#[cfg(feature = "buckets")]
use crate::{BucketAddress, bucket::Bucket};
use crate::{RemoteOptions, Result};

/// Clients that clones of the same options share. A client does not have the pool that it is in.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClientPool(Arc<Mutex<PooledClients>>);

#[derive(Debug, Default)]
struct PooledClients {
    clients: Vec<Arc<Client>>,
    #[cfg(feature = "buckets")]
    buckets: Vec<(BucketAddress, Bucket)>,
}

impl RemoteOptions {
    /// Returns a client with these options, which may have been created before.
    ///
    /// # Errors
    /// [`crate::Error::Certificates`].
    pub(crate) fn client(&self) -> Result<Arc<Client>> {
        let mut pool = self.clients.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = pool.clients.iter().find(|client| client.options.is_same(self)) {
            return Ok(Arc::clone(client));
        }
        let client = Arc::new(Client::new(&Self { clients: ClientPool::default(), ..self.clone() })?);
        pool.clients.push(Arc::clone(&client));
        Ok(client)
    }

    /// Returns the bucket of an address with the credentials of the environment, which may have been opened before.
    ///
    /// # Errors
    /// Those of [`Bucket::open`], and [`crate::Error::Certificates`].
    #[cfg(feature = "buckets")]
    pub(crate) fn bucket(&self, address: &BucketAddress) -> Result<Bucket> {
        let client = self.client()?;
        let of = BucketAddress { key: String::new(), ..address.clone() };
        let mut pool = self.clients.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_opened =
            |known: &&(BucketAddress, Bucket)| known.0 == of && Arc::ptr_eq(&known.1.client, &client);
        if let Some((_, bucket)) = pool.buckets.iter().find(is_opened) {
            return Ok(bucket.clone());
        }
        let bucket = Bucket::open(address, &client)?;
        pool.buckets.push((of, bucket.clone()));
        Ok(bucket)
    }

    /// Returns true if requests with `other` are the same.
    fn is_same(&self, other: &Self) -> bool {
        self.allow_http == other.allow_http
            && self.timeout == other.timeout
            && self.offline == other.offline
            && self.hub_endpoint == other.hub_endpoint
            && self.hub_token == other.hub_token
            && self.certificates == other.certificates
            && self.cache == other.cache
            && Arc::ptr_eq(&self.stop, &other.stop)
    }
}

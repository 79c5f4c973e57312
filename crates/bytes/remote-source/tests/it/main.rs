//! Remote files on loopback servers.

mod failures;
mod files;
mod server;
mod stores;

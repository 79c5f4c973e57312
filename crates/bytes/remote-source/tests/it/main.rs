//! Remote files on loopback servers.

mod files;
mod server;
mod stores;

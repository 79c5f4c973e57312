//! Arguments for inputs at addresses.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use byte_source::Source;
use clap::Args;
use output::{RemoteAddress, UrlScheme};
use remote_source::{Address, RemoteOptions};

#[derive(Args, Clone, Debug)]
pub(crate) struct RemoteArgs {
    /// Read http addresses too, and addresses of private networks
    #[arg(long)]
    pub(crate) allow_http: bool,
    /// Give up a connection that is silent for this long
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = clap::value_parser!(u64).range(1..=86400))]
    pub(crate) timeout: u64,
    /// Send no requests
    #[arg(long)]
    pub(crate) offline: bool,
}

impl RemoteArgs {
    /// Opens the file if it is at an address that can be read; returns `None` for a local path.
    pub(crate) fn open(&self, file: &Path) -> Result<Option<Arc<dyn Source>>> {
        match RemoteAddress::from_path(file) {
            None => return Ok(None),
            Some(RemoteAddress { scheme: UrlScheme::Http | UrlScheme::Https | UrlScheme::Hf, .. }) => {}
            Some(_) => output::refuse_remote(file)?,
        }
        let mut options = RemoteOptions::from_env();
        options.allow_http = self.allow_http;
        options.timeout = Duration::from_secs(self.timeout);
        options.offline |= self.offline;
        let address = Address::parse(&file.to_string_lossy())?;
        Ok(Some(remote_source::open(&address, &options)?))
    }
}

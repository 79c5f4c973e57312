//! Arguments for inputs at addresses.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use byte_source::{Location, Stores};
use clap::Args;
use convert::ConvertOptions;
use output::{Destination, RemoteAddress};
use remote_source::{Address, Error, Neighbours, RemoteOptions, Traffic};
use serde::{Deserialize, Serialize};

use crate::cli::ui::invocation::UsageError;
use crate::cli::ui::shell::shell_quoted;
use crate::cli::ui::stdin;

/// Documents that say what the tensors of an index mean.
const READ_DOCUMENTS: &[&str] = &[
    "adapter_config.json",
    "config.json",
    "hf_quant_config.json",
    "params.json",
    "quant_config.json",
    "quantize_config.json",
    "quanto_qmap.json",
];

#[derive(Args, Clone, Debug, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct RemoteArgs {
    /// Read http addresses and private networks, too
    #[arg(long)]
    pub(crate) allow_http: bool,
    /// Give up a connection that is silent for SECONDS
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = clap::value_parser!(u64).range(1..=86400))]
    pub(crate) timeout: u64,
    /// Cache remote bytes in DIR
    #[arg(long, value_name = "DIR")]
    #[serde(with = "open::path_json::option")]
    pub(crate) cache: Option<PathBuf>,
    /// Send no requests; read what --cache has
    #[arg(long)]
    pub(crate) offline: bool,
    /// Counts of the requests for all inputs, and what of them was reported.
    #[arg(skip)]
    #[serde(skip)]
    counts: Counts,
}

impl Default for RemoteArgs {
    fn default() -> Self {
        Self { allow_http: false, timeout: 30, cache: None, offline: false, counts: Counts::default() }
    }
}

#[derive(Clone, Debug, Default)]
struct Counts {
    options: RemoteOptions,
    reported: Arc<Mutex<Traffic>>,
}

/// Returns where a path of this machine leads, which may name a file in a zip archive, as `ARCHIVE::NAME`.
fn local(input: &Path) -> Result<Location> {
    let text = input.to_string_lossy();
    if let Some(mistake) = mistaken_address(&text).filter(|_| !input.exists()) {
        return Err(UsageError(mistake).into());
    }
    let Some((archive, name)) = text.split_once("::").filter(|(archive, _)| Path::new(archive).is_file())
    else {
        return Ok(input.into());
    };
    if input.exists() {
        return Ok(input.into());
    }
    let source = byte_source::map_file_lazily(Path::new(archive))?;
    if !source.read_range(0..source.len().min(2)).is_ok_and(|start| start == b"PK"[..]) {
        let text = format!("{archive} is no zip archive; unpack it, and pass `{}`", name.escape_debug());
        return Err(UsageError(text).into());
    }
    let member =
        torch_import::archive_member(&source, name).map_err(|error| error.in_file(Path::new(archive)))?;
    let Some(member) = member else {
        let similar =
            torch_import::Container::from_source(source).err().and_then(|error| similar_member(&error, name));
        let (name, archive) = (name.escape_debug(), shell_quoted(archive));
        let advice = match similar {
            Some(similar) => format!("did you mean {}?", shell_quoted(&similar)),
            None => format!("`torch2carton inspect {archive}` lists its checkpoints"),
        };
        return Err(UsageError(format!("{archive} has no file `{name}`; {advice}")).into());
    };
    Ok(member.into())
}

/// Returns what is wrong with an address that is not read, such as `ftp://HOST/FILE`; `None` for a path.
fn mistaken_address(text: &str) -> Option<String> {
    if let Some(rest) = text.strip_prefix("hf:") {
        return Some(format!("{text} is neither a file nor an address; did you mean hf://{rest}?"));
    }
    let (scheme, rest) = text.split_once("://")?;
    let is_scheme = scheme.len() > 1 && scheme.chars().all(|c| c.is_ascii_alphanumeric() || c == '+');
    match scheme {
        "file" => Some(format!("file:// is not read; pass the path, {rest}")),
        _ if is_scheme => Some(format!(
            "{scheme}:// is not read; download the file first, or give an https:// or hf:// address"
        )),
        _ => None,
    }
}

/// Returns the checkpoint in an archive whose name differs by a typing mistake, or only in its folder.
fn similar_member(error: &byte_source::Error, name: &str) -> Option<String> {
    let Some(torch_import::Problem::Archive { members }) = error.detail() else { return None };
    let file = |name: &str| name.rsplit('/').next().unwrap_or_default().to_owned();
    let distances = members.iter().map(|member| (strsim::osa_distance(&file(member), &file(name)), member));
    let (_, nearest) = distances.filter(|(distance, _)| *distance <= 2).min()?;
    Some(nearest.clone())
}

impl RemoteArgs {
    /// Creates the arguments of a command that has the same options itself.
    #[cfg(any(feature = "download", feature = "serve"))]
    pub(crate) fn new(allow_http: bool, timeout: u64, cache: Option<PathBuf>) -> Self {
        Self { allow_http, timeout, cache, ..Self::default() }
    }

    /// Returns where the input is; one at an address is opened.
    pub(crate) fn locate(&self, input: &Path) -> Result<Location> {
        // The code that a configuration names may be next to it.
        let of_files = input.to_string_lossy().ends_with("config.json");
        match self.open(input, Neighbours { of_files, documents: READ_DOCUMENTS })? {
            Some(found) => Ok(found),
            None => local(input),
        }
    }

    /// Returns where the input is like [`locate`](Self::locate); `-` is standard input.
    pub(crate) fn locate_or_stdin(&self, input: &Path) -> Result<Location> {
        if RemoteAddress::from_path(input).is_some() {
            self.locate(input)
        } else {
            local(&stdin::input_path(input)?)
        }
    }

    /// Returns where the input is like [`locate`](Self::locate), with the documents that a conversion copies.
    pub(crate) fn locate_with_documents(&self, input: &Path) -> Result<Location> {
        let copied = open::files::COMMON_COMPANIONS.iter().chain(READ_DOCUMENTS).copied();
        let documents: BTreeSet<&str> = copied.collect();
        let documents: Vec<&str> = documents.into_iter().collect();
        match self.open(input, Neighbours { of_files: true, documents: &documents })? {
            Some(found) => Ok(found),
            None => local(input),
        }
    }

    /// Sets where outputs go, and opens the adapters and the checkpoints to sum that are at addresses. The stores locate the inputs of
    /// a batch when their turn comes.
    pub(crate) fn locate_others(&self, options: &mut ConvertOptions) -> Result<()> {
        options.destination = self.destination();
        options.stores = self.stores();
        let paths: Vec<PathBuf> = options.other_paths().map(Path::to_owned).collect();
        for path in paths {
            let location = self.locate_with_documents(&path)?;
            options.stores.insert(path, location);
        }
        Ok(())
    }

    /// Returns where several inputs are: the files of one set, of which those at addresses are in one folder, with the documents
    /// next to them.
    pub(crate) fn locate_all(&self, inputs: &[PathBuf]) -> Result<Vec<Location>> {
        if let [input] = inputs {
            return Ok(vec![self.locate_with_documents(input)?]);
        }
        if inputs.is_empty() || inputs.iter().any(|input| RemoteAddress::from_path(input).is_none()) {
            return Ok(inputs.iter().map(Location::from).collect());
        }
        let addresses = inputs.iter().map(|input| Address::parse(&input.to_string_lossy()));
        let addresses = addresses.collect::<Result<Vec<_>, _>>()?;
        let keeps = |name: &str| open::files::is_companion_name(name) || READ_DOCUMENTS.contains(&name);
        Ok(remote_source::open_files(&addresses, &keeps, &self.options())?)
    }

    /// Returns the stores of a batch, whose inputs are located when their turn comes.
    pub(crate) fn stores(&self) -> Stores {
        let remote = self.clone();
        Stores::with_addresses(move |input| {
            Ok(Some(remote.locate_with_documents(input).map_err(into_io_error)?))
        })
    }

    /// Returns the requests and bytes since the last call; `None` if there were none.
    pub(crate) fn take_traffic(&self) -> Option<Traffic> {
        let now = self.counts.options.traffic();
        let mut reported = self.counts.reported.lock().unwrap_or_else(PoisonError::into_inner);
        let requests = now.requests.saturating_sub(reported.requests);
        let bytes = now.bytes.saturating_sub(reported.bytes);
        *reported = now;
        (requests > 0).then_some(Traffic { requests, bytes })
    }

    fn open(&self, input: &Path, neighbours: Neighbours<'_>) -> Result<Option<Location>> {
        if RemoteAddress::from_path(input).is_none() {
            return Ok(None);
        }
        let address = Address::parse(&input.to_string_lossy())?;
        Ok(Some(remote_source::open_input(&address, neighbours, &self.options())?))
    }

    fn options(&self) -> RemoteOptions {
        let mut options = RemoteOptions::from_env();
        options.allow_http = self.allow_http;
        options.timeout = Duration::from_secs(self.timeout);
        options.offline |= self.offline;
        options.cache.clone_from(&self.cache);
        options.share_with(&self.counts.options);
        options
    }

    /// Returns where outputs go, also those at addresses.
    #[cfg(feature = "buckets")]
    pub(crate) fn destination(&self) -> Destination {
        Destination::with_store(Arc::new(remote_source::BucketOutputs::new(self.options())))
    }

    /// Returns where outputs go: this build writes no others than local ones.
    #[cfg(not(feature = "buckets"))]
    #[expect(clippy::unused_self, reason = "with the feature `buckets`, requests need the options")]
    pub(crate) fn destination(&self) -> Destination {
        Destination::default()
    }
}

/// Returns an error of opening an address as one of reading, which keeps its advice.
pub(crate) fn into_io_error(error: anyhow::Error) -> io::Error {
    error.downcast::<Error>().map_or_else(io::Error::other, io::Error::from)
}

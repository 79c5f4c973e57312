//! Arguments of the subcommand `serve`.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use open::parse_size;
use runtime::RunnableOptions;

use super::remote::RemoteArgs;

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  torch2carton serve llama.carton                  http://127.0.0.1:8000, model `llama`
  torch2carton serve llama.carton --name chat --port 9000
  torch2carton serve a.carton b.carton --log-format json 2> log
  torch2carton serve cartons/                      every carton in a folder, by its name
  torch2carton serve llama/                        a model's folder, read in place
  torch2carton serve --repository models           models/NAME/VERSION.carton
  torch2carton serve s3://bucket/llama.carton      from a copy in a temporary file

The protocols are KServe v2 over HTTP with Triton's binary tensor data extension, so
that tritonclient.http works unchanged, and OpenAI's, below /v1, for texts. A browser
gets a page to talk to the models. A line on standard output has the address:
with --port 0, the system chooses a port. GET / lists the routes and the models.
Log lines go to standard error.

There is no gRPC and no TLS, and without --api-key whoever reaches the port can use
the models: put a proxy in front of it before you choose another --host. A request
names the server by an IP address, localhost or a name of --allow-host: a web page
whose name resolves to this machine is refused.

Ctrl-C or SIGTERM ends the server once the requests that it has are answered; a
second one ends it at once. A script that starts it with & has to send SIGTERM
(`kill PID`): its shell makes the server ignore SIGINT.
Exit status: 0 ended and everything was answered, 1 a carton cannot be served or
the port is not free, 2 bad usage, 128 + N ended by signal N before that.")]
pub(crate) struct Serve {
    /// Cartons, packed or not, folders that hold cartons, and folders or checkpoints of models, read in place; packed cartons at addresses are copied into temporary files first
    #[arg(value_name = "CARTON", required_unless_present = "repository", value_hint = ValueHint::AnyPath)]
    pub(crate) cartons: Vec<PathBuf>,
    /// The model's name, for one carton [default: the file's stem]
    #[arg(long, conflicts_with = "repository")]
    pub(crate) name: Option<String>,
    /// Serve DIR/NAME/VERSION.carton, each NAME with all its VERSIONs, which are numbers; clients can load and unload them. DIR may be an address
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, conflicts_with = "cartons")]
    pub(crate) repository: Option<PathBuf>,
    /// The address to listen on
    #[arg(long, default_value = "127.0.0.1")]
    pub(crate) host: String,
    /// The port to listen on; 0 for any that is free
    #[arg(long, default_value = "8000")]
    pub(crate) port: u16,
    /// A name that requests may have in `Host`, besides localhost and IP addresses; repeatable
    #[arg(long, value_name = "NAME")]
    pub(crate) allow_host: Vec<String>,
    /// Answer only requests that have this key, `Authorization: Bearer KEY`; repeatable
    ///
    /// Users of the machine see the key in the list of processes, but not in `TORCH2CARTON_API_KEY` or a file
    #[arg(long, value_name = "KEY")]
    pub(crate) api_key: Vec<String>,
    /// Read such keys from FILE, one a line
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) api_key_file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) open: RunnableOptions,
    /// How log lines look
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub(crate) log_format: LogFormat,
    /// The largest body of a request, also after it is decompressed
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = parse_size, help_heading = "Limits")]
    pub(crate) max_body: u64,
    /// The most memory that all requests and responses take together
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = parse_size, help_heading = "Limits")]
    pub(crate) max_memory: u64,
    /// The most tokens that a request may give, those of all sequences together
    #[arg(long, value_name = "N", default_value = "32768", value_parser = clap::value_parser!(u64).range(1..), help_heading = "Limits")]
    pub(crate) max_tokens: u64,
    /// The most tokens of a sequence, with its past [default: what config.json or params.json in the carton says, else 8192]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), help_heading = "Limits")]
    pub(crate) max_positions: Option<u64>,
    /// How long a model may compute for one request
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = clap::value_parser!(u64).range(1..=86400), help_heading = "Limits")]
    pub(crate) compute_timeout: u64,
    /// How many requests may wait for each model; others are refused
    #[arg(long, value_name = "N", default_value = "1024", help_heading = "Limits")]
    pub(crate) queue: u16,
    /// How many connections may be open
    #[arg(long, value_name = "N", default_value = "4096", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Limits")]
    pub(crate) max_connections: u32,
    /// How long a client may take for the headers of a request, for its body, and to read a response; the last two get
    /// one second more for every 32 KiB. Also how long the server of an address may be silent
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = clap::value_parser!(u64).range(1..=86400), help_heading = "Limits")]
    pub(crate) timeout: u64,
    /// How long a connection may be idle between two requests
    #[arg(long, value_name = "SECONDS", default_value = "300", value_parser = clap::value_parser!(u64).range(1..=86400), help_heading = "Limits")]
    pub(crate) idle_timeout: u64,
    /// How long to wait for the requests that are left when the server ends
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = clap::value_parser!(u64).range(0..=86400), help_heading = "Limits")]
    pub(crate) drain_timeout: u64,
    /// Read http addresses and private networks, too
    #[arg(long, help_heading = "Addresses")]
    pub(crate) allow_http: bool,
    /// Cache remote bytes in DIR
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, help_heading = "Addresses")]
    pub(crate) cache: Option<PathBuf>,
    /// Send no requests; read what --cache has
    #[arg(long, help_heading = "Addresses")]
    pub(crate) offline: bool,
}

impl Serve {
    /// Returns the options for cartons at addresses.
    pub(crate) fn remote(&self) -> RemoteArgs {
        let mut remote = RemoteArgs::new(self.allow_http, self.timeout, self.cache.clone());
        remote.offline = self.offline;
        remote
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LogFormat {
    /// For a person
    Text,
    /// One JSON object on each line
    Json,
}

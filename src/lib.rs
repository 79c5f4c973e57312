//! Converts PyTorch checkpoints into cartons that run, without Python and without executing anything from the file.
//!
//! Each verb is a function that returns a builder. Its methods set options, and `run` does the work and returns a report.
//! An [`Observer`] follows the progress and can cancel the work; `&()` does neither. Nothing here prints, exits or installs a
//! signal handler, except the module `cli`, which is the program itself.
//!
//! [`convert`] makes a carton, safetensors, a `.pth` file or a model for Triton:
//!
//! ```
//! use torch2carton::{Dtype, convert};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("model.safetensors");
//! # let header = br#"{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#;
//! # std::fs::write(&path, [&(header.len() as u64).to_le_bytes()[..], header, &[0, 0, 0, 64]].concat())?;
//! # let output = folder.path().join("small.safetensors");
//! let report = convert(&path).run(&())?;
//! println!("{}: {} tensors, {} bytes", report.output, report.tensors, report.nbytes);
//!
//! let small = convert(&path).dtype(Dtype::BFloat16).output(&output);
//! for note in &small.run(&())?.notes {
//!     println!("note: {note}");
//! }
//! # assert_eq!((report.tensors, output.is_file()), (1, true));
//! # Ok(())
//! # }
//! ```
//!
//! [`inspect`] lists the tensors of a checkpoint, and [`Checkpoint`] reads them:
//!
//! ```
//! use torch2carton::{Checkpoint, inspect};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("model.safetensors");
//! # let header = br#"{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#;
//! # std::fs::write(&path, [&(header.len() as u64).to_le_bytes()[..], header, &[0, 0, 0, 64]].concat())?;
//! for row in inspect(&path).sha256().run(&())?.tensors {
//!     println!("{} {} {:?}", row.name, row.dtype, row.shape());
//! }
//!
//! let checkpoint = Checkpoint::open(&path)?;
//! let weight = checkpoint.tensors().get("w").ok_or("no such tensor")?;
//! println!("{} {:?}, {} bytes", weight.dtype(), weight.shape(), weight.nbytes());
//! # assert_eq!(weight.mapped_bytes(), Some(&[0, 0, 0, 64][..]));
//! # Ok(())
//! # }
//! ```
//!
//! [`scan`] reports what a file would execute if Python's unpickler loaded it:
//!
//! ```
//! use torch2carton::{Verdict, scan};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # std::fs::write(folder.path().join("evil.pkl"), b"cos\nsystem\n(S'echo hi'\ntR.")?;
//! # let downloads = folder.path();
//! let report = scan(downloads).run(&())?;
//! for file in report.files.iter().filter(|file| file.verdict != Verdict::Clean) {
//!     println!("{}: {:?}", file.file.display(), file.verdict);
//! }
//! # assert_eq!(report.verdict(), Verdict::Unsafe);
//! # Ok(())
//! # }
//! ```
//!
//! [`diff`] lists what differs between two checkpoints or cartons, and [`digest`] computes one hash for their tensors:
//!
//! ```
//! use torch2carton::{convert, diff, digest};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("model.safetensors");
//! # let header = br#"{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#;
//! # std::fs::write(&path, [&(header.len() as u64).to_le_bytes()[..], header, &[0, 0, 0, 64]].concat())?;
//! # let other = folder.path().join("model.pth");
//! # convert(&path).output(&other).run(&())?;
//! let report = diff(&path, &other).run(&())?;
//! for row in &report.tensors {
//!     println!("{} {:?}", row.name(), row.changes);
//! }
//! assert_eq!(digest(&path).run(&())?.digest, digest(&other).run(&())?.digest);
//! # assert!(report.same);
//! # Ok(())
//! # }
//! ```
//!
//! [`check`] compares the tensors of a folder with those that its configuration asks for:
//!
//! ```
//! use torch2carton::check;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let model = folder.path();
//! # std::fs::write(model.join("config.json"), r#"{"model_type": "llama", "num_hidden_layers": 1}"#)?;
//! let report = check(model).run(&())?;
//! for tensor in &report.missing {
//!     println!("{} {:?}", tensor.name, tensor.shape);
//! }
//! # assert_eq!(report.missing.len(), 12);
//! # Ok(())
//! # }
//! ```
//!
//! [`trace`] writes the instructions of a pickle and what they do:
//!
//! ```
//! use torch2carton::{TraceView, trace};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("data.pkl");
//! # std::fs::write(&path, b"K\x07.")?;
//! # let mut out = Vec::new();
//! trace(&path).view(TraceView::Lines).limit(20).run(&mut out)?;
//! # assert!(String::from_utf8(out)?.contains("BININT1"));
//! # Ok(())
//! # }
//! ```
//!
//! [`verify`] checks a carton, and [`Carton`] reads one:
//!
//! ```
//! use torch2carton::{Carton, verify};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let checkpoint = folder.path().join("model.safetensors");
//! # let header = br#"{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#;
//! # std::fs::write(&checkpoint, [&(header.len() as u64).to_le_bytes()[..], header, &[0, 0, 0, 64]].concat())?;
//! # torch2carton::convert(&checkpoint).run(&())?;
//! # let path = folder.path().join("model.carton");
//! for finding in verify(&path).against(&checkpoint).run(&())?.findings {
//!     println!("{}", finding.what);
//! }
//!
//! let carton = Carton::open(&path)?;
//! println!("{:?} for {}", carton.config().model_name, carton.config().runner.runner_name);
//! for (name, tensor) in carton.tensors(&())?.iter() {
//!     println!("{name} {} {:?}", tensor.dtype(), tensor.shape());
//! }
//! # assert!(carton.verify(&())?.ok);
//! # Ok(())
//! # }
//! ```
//!
//! [`run`] runs a carton on the CPU. A model takes tokens and returns logits; this carton holds weights and returns them:
//!
//! ```
//! use torch2carton::run;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let checkpoint = folder.path().join("model.safetensors");
//! # let header = br#"{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#;
//! # std::fs::write(&checkpoint, [&(header.len() as u64).to_le_bytes()[..], header, &[0, 0, 0, 64]].concat())?;
//! # torch2carton::convert(&checkpoint).run(&())?;
//! # let path = folder.path().join("model.carton");
//! let outputs = run(&path).output("w").run(&())?;
//! for name in outputs.names() {
//!     println!("{name}");
//! }
//! # assert_eq!(outputs.names().collect::<Vec<_>>(), ["w"]);
//! # Ok(())
//! # }
//! ```
//!
//! With a tokenizer next to it or in it, a model takes and returns texts, and answers conversations ([`TextModel`]):
//!
//! ```no_run
//! # #[cfg(feature = "tokenizer")]
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::ops::ControlFlow;
//! use torch2carton::{AnswerOptions, Conversation, run};
//!
//! let model = run("llama.carton").open_text(&())?;
//! println!("{:?}", model.encode("Once upon a time")?);
//! let conversation: Conversation = serde_json::from_str(r#"[{"role": "user", "content": "Hello!"}]"#)?;
//! let mut show = |text: &str| {
//!     print!("{text}");
//!     Ok(ControlFlow::Continue(()))
//! };
//! let answer = model.chat(&conversation, &AnswerOptions::default(), &mut show, &())?;
//! println!("{} tokens", answer.tokens.len());
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "tokenizer"))]
//! # fn main() {}
//! ```
//!
//! Every call returns an [`Error`], whose [`kind`](Error::kind) says what it means for the caller:
//!
//! ```
//! use torch2carton::{ErrorKind, convert};
//!
//! let error = convert("absent.pth").run(&()).unwrap_err();
//! assert_eq!(error.kind(), ErrorKind::Io);
//! println!("{error}");
//! ```
//!
//! # Features
//!
//! All of them are on by default. A library user may leave them out with `default-features = false`.
//!
//! - `cli`: the module `cli`, which is the program
//! - `serve`: the crate `serve`, an HTTP server for cartons
//! - `schemas`: answers of that server that follow a JSON schema
//! - `tokenizer`: `Tokenizer` in [`text`], which reads the tokenizers of models
//! - `download`: `resolve`, which fetches the files that a carton leaves out over HTTPS
//! - `remote`: inputs at `https://` and `hf://`, which [`remote::open_input`] opens
//! - `buckets`: inputs at `s3://`, `gs://` and `az://`, too, and outputs there: a [`Destination`] with a `remote::BucketOutputs`

mod carton;
mod check;
mod checkpoint;
#[cfg(feature = "cli")]
pub mod cli;
mod convert;
mod diff;
mod digest;
mod inspect;
mod pack;
mod report;
mod run;
mod scan;
mod shrink;
#[cfg(feature = "tokenizer")]
mod text_model;
mod trace;
mod verify;

pub use byte_source::{Error, Result};
pub use carton::Carton;
pub use check::{Check, check};
pub use checkpoint::Checkpoint;
pub use convert::{Convert, convert};
pub use diff::{Diff, diff};
pub use digest::{Digest, digest};
pub use inspect::{Inspect, inspect};
pub use pack::{Pack, Unpack, pack, unpack};
pub use report::{Report, report};
pub use run::{Run, run};
pub use scan::{Scan, ScanReport, scan};
#[cfg(feature = "download")]
pub use shrink::{Resolve, resolve};
pub use shrink::{Shrink, shrink};
#[cfg(feature = "tokenizer")]
pub use text_model::{Answer, AnswerOptions, OnText, TextModel};
pub use trace::{Trace, trace};
pub use verify::{Verify, verify};

// Types of the options and reports.
pub use ::convert::{
    ArchitectureChoice, BatchItem, BatchOptions, BatchReport, CartonFields, CartonOptions, CartonReport,
    ConvertOptions, ConvertReport, DeclaredInput, DeclaredOutput, Dim, GgufOptions, GgufReport, ModelOptions,
    Note, OnInvalidInput as OnError, Output, OutputFormat, OutputJob, OutputPlan, OutputReport, Overrides,
    PipelineReport, PortReport, RequiredTorch, Resume, SafetensorsOptions, SafetensorsReport, ScriptOptions,
    StatementFinding, StatementOptions, StatementReport, StoredSelfTest, Target, TieHandling, TorchOptions,
    TorchReport, TritonOptions, TritonReport, architectures, outputs, register_output, verify_statement,
};
pub use ::inspect::{
    Change, CheckOptions, CheckReport, ComparedInput, CustomClass, DiffCounts, DiffOptions, DiffReport,
    DigestReport, ElementChange, FileScan, FirstChange, InputOptions, InspectOptions, InspectReport,
    Rearrangement, RotaryLayout, RowStatistics, RowView, ScanDepth, ScanOptions, ScanOutcome, ScanSummary,
    ScannedFile, SideSelections, TensorChange, TensorHash, TensorRow, TensorSummary, TraceListing,
    TraceOptions, TraceView, ValueDifference, Verdict,
};
pub use byte_source::{
    Action, Blob, BufferSource, Checks, ErrorKind, Folder, Listing, LocalStore, Location, MemoryStore,
    Notice, Observer, Place, ProgressUpdate, Region, Sink, Source, Stat, Store, Stores, Window,
};
pub use carton_format::{Config, Port as ConfigPort, Runner};
pub use carton_tools::{
    ArrayFile, CartonFinding, CodeStatus, ContentsReport, PackCompression, PackOptions, PackReport,
    ShrinkOptions, ShrinkReport, UnpackOptions, UnpackReport, VerifyOptions, VerifyReport,
};
#[cfg(feature = "download")]
pub use carton_tools::{ResolveOptions, ResolveReport};
pub use open::files::ShardPolicy;
pub use open::{
    AllowedGlobals, Cast, CastFrom, CastOptions, CastReport, CheckpointSum, ModelPart, Rename, Selection,
    TargetLayout, Totals, WeightedPath,
};
pub use output::{Destination, IfExists};
pub use runtime::{
    Runnable, RunnableKind, RunnablePort, SelfTestOptions, SelfTestReport, Session, Tolerance,
};
pub use tensor::{CompoundKind, CompoundTensor, Dtype, Gathered, Storage, Tensor, TensorEntry, Tensors};
pub use torch_import::{CONTAINERS, ContainerContents, ContainerFormat, containers, register_container};

#[cfg(feature = "tokenizer")]
pub use chat_template::{Conversation, Message};
/// Tokenizers, sampling of the next token, and text generation.
pub use generate as text;
/// Files at addresses.
pub use remote_source as remote;
/// Inference server over HTTP.
#[cfg(feature = "serve")]
pub use serve;

/// Re-exports the crates that this one is built on, for types that it does not export by name: details of errors and notes,
/// and JSON and TOML values in reports. Their APIs change more often than this one.
pub mod crates {
    #[cfg(feature = "cli")]
    pub use batch;
    pub use {
        ::convert, ::inspect, byte_source, carton_format, carton_tools, decoder, generate, open, output,
        pickle_vm, runtime, serde_json, tensor, toml, torch_import, torchscript,
    };
}

/// The Rust of the documents, which the tests compile.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
#[doc = include_str!("../docs/library.md")]
struct Documents;

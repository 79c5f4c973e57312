//! Serves models over HTTP: KServe v2 with Triton's binary tensor data extension.
//!
//! [`Server::new`] listens and loads models, [`Server::run`] serves until a [`ServerHandle`] ends it. A model is an implementation
//! of [`InferModel`]. A [`ServerObserver`] receives events.
//!
//! One thread moves the bytes of all connections. Each model has its own thread and a bounded queue. [`ServeLimits`] and
//! [`Timeouts`] bound every resource that a client can use up.
//!
//! Facts: the Open Inference Protocol, Triton's extensions of it, and responses of Triton 2.51; RFC 9110 and 9112.

mod answer;
mod api_keys;
mod body;
mod budget;
mod carton;
mod connection;
mod counts;
mod encoding;
mod error;
mod folder;
mod histogram;
mod host;
mod infer;
mod metrics;
mod model;
mod observer;
mod openai;
mod options;
mod overview;
mod pace;
mod page;
mod panics;
mod process_metrics;
mod queue;
mod registry;
mod reject;
mod reply;
mod route;
mod running_job;
mod served_model;
mod server;
mod service;
mod state;
mod text;

pub use api_keys::ApiKeys;
pub use carton::carton_model;
pub use error::{Error, LoadError, Result};
pub use folder::{ModelVersion, RepositoryFolder};
pub use model::{CancelToken, InferModel, InferTask, ModelError};
pub use observer::{RequestRecord, ServerEvent, ServerObserver};
pub use options::{DEFAULT_MAX_POSITIONS, RequestLimits, ServeLimits, ServeOptions, Timeouts};
pub use registry::{LoadModel, ModelSource};
pub use server::{ServeReport, Server, ServerHandle};
pub use text::TextModel;

//! Runs cartons on the CPU.
//!
//! [`Runnable::open`] opens a carton that a conversion wrote, packed or unpacked. A model takes tokens and returns logits,
//! and a module of weights returns tensors by name. [`Runnable::infer`] checks the inputs against carton.toml and returns
//! the outputs that Carton's own runner would return. [`Session`] generates one token after the other, and [`self_test`]
//! runs the self tests that are stored in a carton.
//!
//! ```no_run
//! use runtime::{RunnableOptions, Runnable};
//! use tensor::{Dtype, Storage, Tensor};
//!
//! let llama = Runnable::open("llama.carton".as_ref(), &RunnableOptions::default(), &())?;
//! let tokens = Storage::owned([1_i64, 450, 4996].into_iter().flat_map(i64::to_le_bytes).collect());
//! let tokens = Tensor::new(Dtype::Int64, vec![1, 3], vec![3, 1], 0, tokens)?;
//! for (name, tensor) in llama.infer(&[("tokens".to_owned(), tokens)], None)? {
//!     println!("{name}: {} {:?}", tensor.dtype(), tensor.shape());
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A carton runs here only if its code is, byte for byte, the code that this version writes for its tensors. The
//! code itself is not executed: the crate `forward` implements the recognised computation.

mod compare;
mod error;
mod model;
mod numbers;
mod ports;
mod runnable;
mod self_test;
mod session;
mod weights;

pub use byte_source::{Error, Result};
pub use compare::Tolerance;
pub use error::{InputError, PortSide, Problem};
pub use ports::RunnablePort;
pub use runnable::{Runnable, RunnableKind, RunnableOptions, RunningCall};
pub use self_test::{
    SelfTestOptions, SelfTestOutcome, SelfTestOutputRow, SelfTestReport, SelfTestRow, self_test,
};
pub use session::Session;

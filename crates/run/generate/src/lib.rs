//! Text generation: tokenization, the choice of the next token, and streaming decoding of tokens to text.
//!
//! [`generate`] requests logits from a model, one token after another, and [`Sampler`] chooses tokens. With the feature
//! `tokenizer`, [`Tokenizer`] reads the tokenizer files of models, and [`TokenStream`] decodes tokens to text without ever
//! splitting a character. [`StopTokens`] lists the tokens that end a text, [`StopSearch`] finds texts that do, and
//! [`LogitChanges`] has penalties and biases. The crate does not know cartons, prints nothing, and
//! opens no file.
//!
//! ```
//! use std::ops::ControlFlow;
//!
//! use generate::{TokenChoice, StopReason, GenerateOptions, generate};
//!
//! // A model that counts up.
//! let mut model = |tokens: &[u32]| {
//!     let next = tokens.last().map_or(0, |last| last + 1);
//!     Ok::<_, generate::Error>((0..9).map(|id| if id == next { 1.0 } else { 0.0 }).collect())
//! };
//! let options = GenerateOptions { max_tokens: 100, choice: TokenChoice::Greedy, stops: vec![6] };
//! let mut seen = Vec::new();
//! let done = generate(&[2], &options, &mut model, &mut |token| {
//!     seen.push(token);
//!     Ok(ControlFlow::Continue(()))
//! })?;
//! assert_eq!((seen, done.stop_reason), (vec![3, 4, 5], StopReason::StopToken(6)));
//! # Ok::<(), generate::Error>(())
//! ```

mod adjust;
mod error;
#[expect(clippy::arithmetic_side_effects, reason = "it counts tokens")]
mod generation;
#[expect(
    clippy::arithmetic_side_effects,
    reason = "it computes with floating-point numbers and counts tokens"
)]
mod sample;
mod stop_texts;
mod stops;
#[cfg(feature = "tokenizer")]
mod tokenizer;

pub use adjust::LogitChanges;
pub use error::{Error, Result};
pub use generation::{GenerateOptions, GeneratedTokens, NextLogits, StopReason, generate};
pub use sample::{Sampler, TokenCandidate, TokenChoice, log_normalizer, top_candidates};
pub use stop_texts::{SearchedText, StopSearch};
pub use stops::StopTokens;

/// Function that returns a file next to the model by its name, or `None` if there is no such file.
pub type ReadModelFile<'r, E> = dyn FnMut(&str) -> Result<Option<Vec<u8>>, E> + 'r;

#[cfg(feature = "tokenizer")]
pub use tokenizer::{TOKENIZER_FILE_MAX, TokenStream, Tokenizer, is_catching_panics};

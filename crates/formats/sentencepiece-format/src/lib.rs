//! `SentencePiece` models (`tokenizer.model`, `spiece.model`): a reader, and the two algorithms that such models choose between.
//!
//! A [`PieceModel`] is what the file says. A [`PieceTokenizer`] encodes and decodes with it, as the library `sentencepiece` does:
//! control pieces in a text are text, and user-defined ones are not.
//!
//! Facts: `sentencepiece_model.proto`, `normalizer.cc`, `bpe_model.cc`, `unigram_model.cc` and `sentencepiece_processor.cc` of
//! `SentencePiece` 0.2.1. `tests/conformance/test_sentencepiece.py` compares both.

mod bpe;
mod charsmap;
mod error;
mod index;
mod model;
mod normalizer;
mod tokenizer;
mod unigram;
mod vocabulary;
mod wire;

pub use error::{Error, Result};
pub use model::{Algorithm, Normalization, Piece, PieceKind, PieceModel};
pub use tokenizer::PieceTokenizer;

//! Texts of a decoder: a model with its tokenizer, and an engine that computes many texts at once.

mod answer_shape;
mod engine;
mod event;
mod grammar;
#[cfg(feature = "schemas")]
mod lark;
#[cfg(feature = "schemas")]
mod lark_texts;
#[cfg(feature = "schemas")]
mod lark_values;
mod output;
mod prompt;
mod request;
mod sequence;

use std::sync::{Arc, OnceLock};

use chat_template::ChatTemplate;
use forward::ForwardModel;
use generate::{StopTokens, TOKENIZER_FILE_MAX, Tokenizer};
use runtime::{Runnable, RunnableKind};

use crate::options::{DEFAULT_MAX_POSITIONS, RequestLimits};

pub(crate) use answer_shape::{AnswerHead, AnswerShape};
pub(crate) use engine::{Place, TextEngine};
pub(crate) use event::{Finish, TextEvent, TokenScore};
pub(crate) use grammar::{AnswerGrammar, GrammarFactory};
pub(crate) use request::{ChoiceOptions, PromptRequest};

/// Largest document with chat templates, in bytes.
const TEMPLATES_MAX: u64 = 64 << 20;

/// Tokens whose keys and values have memory together.
const BLOCK: usize = 64;

/// Largest document with stop tokens, in bytes.
const DOCUMENT_MAX: u64 = 1 << 20;

/// Decoder with its tokenizer, which generates texts.
#[derive(Debug)]
pub struct TextModel {
    pub(crate) forward: Arc<ForwardModel>,
    pub(crate) tokenizer: Tokenizer,
    /// Template of conversations; `None` if the model has none, an error if it cannot be used.
    pub(crate) template: Result<Option<ChatTemplate>, String>,
    /// Tokens that end a text.
    pub(crate) stops: Vec<u32>,
    /// Makes grammars for answers, from the first request for one on.
    grammars: OnceLock<Result<GrammarFactory, String>>,
    /// Most tokens of a prompt with its answer.
    pub(crate) positions: usize,
    /// Most bytes of the keys and values of one request.
    pub(crate) memory: usize,
}

impl TextModel {
    /// Reads the tokenizer of a decoder in a carton; `None` if the carton is of weights, or has no tokenizer that can be read.
    pub fn from_runnable(runnable: &Runnable, limits: &RequestLimits) -> Option<Self> {
        let RunnableKind::Decoder(forward) = runnable.kind() else { return None };
        let mut read = |name: &str| runnable.misc(name, TOKENIZER_FILE_MAX);
        let tokenizer = Tokenizer::from_files::<byte_source::Error>(&mut read).ok()?;
        let mut read = |name: &str| runnable.misc(name, DOCUMENT_MAX);
        let StopTokens(stops) =
            StopTokens::from_documents::<byte_source::Error>(&mut read).unwrap_or_default();
        let stops = if stops.is_empty() { tokenizer.stops().to_vec() } else { stops };
        let positions =
            limits.positions.or_else(|| runnable.max_positions()).unwrap_or(DEFAULT_MAX_POSITIONS);
        let positions = usize::try_from(positions).unwrap_or(usize::MAX);
        let mut read = |name: &str| runnable.misc(name, TEMPLATES_MAX);
        let template =
            ChatTemplate::from_documents::<byte_source::Error>(&mut read).map_err(|error| error.to_string());
        Some(Self {
            forward: forward.clone(),
            tokenizer,
            template,
            stops,
            grammars: OnceLock::new(),
            positions,
            memory: limits.memory,
        })
    }

    /// Returns the most tokens of a prompt with its answer: the model's positions, if the keys and values of as many fit in memory.
    pub(crate) fn context(&self) -> usize {
        self.context_in(self.memory)
    }

    /// Returns the context of an answer whose length the request does not say: half of the memory, so that others find room.
    pub(crate) fn shared_context(&self) -> usize {
        self.context_in(self.memory / 2)
    }

    fn context_in(&self, memory: usize) -> usize {
        let fits = memory.checked_div(self.cache_bytes(BLOCK)).unwrap_or(usize::MAX).saturating_mul(BLOCK);
        self.positions.min(fits)
    }

    /// Returns the tokens that a text of this many gets memory for: those of its last block, and of one more.
    pub(crate) fn granted_at(tokens: usize) -> usize {
        tokens.div_ceil(BLOCK).saturating_add(1).saturating_mul(BLOCK)
    }

    /// Returns what makes grammars for answers.
    ///
    /// # Errors
    /// Returns an error if the tokens of the model cannot be used.
    pub(crate) fn grammars(&self) -> Result<&GrammarFactory, &str> {
        self.grammars.get_or_init(|| GrammarFactory::new(self)).as_ref().map_err(String::as_str)
    }

    /// Returns the special token that is all of a text.
    pub(crate) fn special_token(&self, text: &str) -> Option<u32> {
        let tokens = self.tokenizer.encode_rendered(text).ok()?;
        let [token] = *tokens.as_slice() else { return None };
        self.tokenizer.is_special(token).then_some(token)
    }

    /// Returns the bytes of the keys and values of a sequence of this many tokens.
    pub(crate) fn cache_bytes(&self, tokens: usize) -> usize {
        self.forward.cache_nbytes(tokens)
    }
}

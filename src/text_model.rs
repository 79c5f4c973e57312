//! A model that takes and returns texts.

use std::ops::ControlFlow;
use std::time::Duration;

use byte_source::Observer;
use chat_template::{ChatTemplate, Conversation};
use generate::{
    GenerateOptions, StopReason, StopSearch, StopTokens, TOKENIZER_FILE_MAX, TokenChoice, Tokenizer,
};
use runtime::Runnable;

use crate::{Result, Run};

/// Tokens of an answer, if neither the options nor the model say how many.
const DEFAULT_TOKENS: usize = 128;
/// Largest document with stop tokens, in bytes.
const DOCUMENT_MAX: u64 = 1 << 20;
/// Largest document with chat templates, in bytes.
const TEMPLATES_MAX: u64 = 64 << 20;

/// Function that receives each part of an answer, and can end it.
pub type OnText<'f> = dyn FnMut(&str) -> Result<ControlFlow<()>> + 'f;

/// Options for the generation of an answer.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct AnswerOptions {
    /// Most tokens of the answer; `None` stands for 128 after a text, and for the rest of the model's positions in a conversation.
    pub max_tokens: Option<usize>,
    /// Choice of each token.
    pub choice: TokenChoice,
    /// Texts that end the answer, which does not have them.
    pub stops: Vec<String>,
}

impl Default for AnswerOptions {
    fn default() -> Self {
        Self { max_tokens: None, choice: TokenChoice::Greedy, stops: Vec::new() }
    }
}

impl AnswerOptions {
    /// Sets the most tokens of the answer.
    #[must_use]
    pub fn max_tokens(self, tokens: usize) -> Self {
        Self { max_tokens: Some(tokens), ..self }
    }

    /// Sets the choice of each token.
    #[must_use]
    pub fn choice(self, choice: TokenChoice) -> Self {
        Self { choice, ..self }
    }

    /// Adds a text that ends the answer.
    #[must_use]
    pub fn stop(mut self, text: impl Into<String>) -> Self {
        self.stops.push(text.into());
        self
    }
}

/// What a model answered.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Answer {
    pub text: String,
    /// Tokens of the text and of what stands before it.
    pub prompt_tokens: Vec<u32>,
    /// Tokens of the answer, without the one that ended it.
    pub tokens: Vec<u32>,
    /// Why the answer ends: by [`StopReason::Caller`] also after a stop text.
    pub stop_reason: StopReason,
    /// Time until the first token.
    pub prompt_time: Duration,
    /// Time after the prompt.
    pub time: Duration,
}

/// An open model with its tokenizer and, if it has one, its chat template.
#[derive(Debug)]
pub struct TextModel {
    runnable: Runnable,
    tokenizer: Tokenizer,
    template: Option<ChatTemplate>,
    stops: Vec<u32>,
}

impl Run {
    /// Opens the model for texts.
    ///
    /// # Errors
    /// Those of [`open`](Self::open) and of [`TextModel::new`].
    pub fn open_text(&self, observer: &dyn Observer) -> Result<TextModel> {
        TextModel::new(self.open(observer)?)
    }
}

impl TextModel {
    /// Reads the tokenizer, the chat template and the stop tokens of a model that is open.
    ///
    /// # Errors
    /// When there is no tokenizer, or a document is damaged.
    pub fn new(runnable: Runnable) -> Result<Self> {
        let tokenizer =
            Tokenizer::from_files::<byte_source::Error>(&mut |name| runnable.misc(name, TOKENIZER_FILE_MAX))?;
        let template = ChatTemplate::from_documents::<byte_source::Error>(&mut |name| {
            runnable.misc(name, TEMPLATES_MAX)
        })?;
        let StopTokens(stops) =
            StopTokens::from_documents::<byte_source::Error>(&mut |name| runnable.misc(name, DOCUMENT_MAX))?;
        let stops = if stops.is_empty() { tokenizer.stops().to_vec() } else { stops };
        Ok(Self { runnable, tokenizer, template, stops })
    }

    /// Returns the model.
    pub fn runnable(&self) -> &Runnable {
        &self.runnable
    }

    /// Returns the tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// Encodes a text, with the tokens that the tokenizer adds.
    ///
    /// # Errors
    /// When the tokenizer fails.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        Ok(self.tokenizer.encode(text)?)
    }

    /// Decodes tokens, without special ones.
    ///
    /// # Errors
    /// When the tokenizer fails.
    pub fn decode(&self, tokens: &[u32]) -> Result<String> {
        Ok(self.tokenizer.decode(tokens)?)
    }

    /// Writes a conversation as the text that the model continues.
    ///
    /// # Errors
    /// When the model has no chat template, or the template refuses the conversation.
    pub fn render(&self, conversation: &Conversation) -> Result<String> {
        let template = self.template.as_ref().ok_or(chat_template::Error::NoTemplate)?;
        Ok(template.render(conversation)?)
    }

    /// Continues a text. `each` receives the parts of the answer as they are made; `observer` can stop the work within a token.
    ///
    /// # Errors
    /// When the tokenizer or the model fails, the options are out of range, or `observer` stops the work.
    pub fn generate(
        &self,
        text: &str,
        options: &AnswerOptions,
        each: &mut OnText<'_>,
        observer: &dyn Observer,
    ) -> Result<Answer> {
        let limit = options.max_tokens.unwrap_or(DEFAULT_TOKENS);
        self.answer(self.encode(text)?, limit, options, each, observer)
    }

    /// Answers a conversation, as [`generate`](Self::generate) continues a text.
    ///
    /// # Errors
    /// Those of [`generate`](Self::generate) and of [`render`](Self::render).
    pub fn chat(
        &self,
        conversation: &Conversation,
        options: &AnswerOptions,
        each: &mut OnText<'_>,
        observer: &dyn Observer,
    ) -> Result<Answer> {
        let prompt = self.tokenizer.encode_rendered(&self.render(conversation)?)?;
        let positions = self.runnable.max_positions().and_then(|count| usize::try_from(count).ok());
        let rest = positions.map_or(DEFAULT_TOKENS, |count| count.saturating_sub(prompt.len()));
        self.answer(prompt, options.max_tokens.unwrap_or(rest), options, each, observer)
    }

    fn answer(
        &self,
        prompt: Vec<u32>,
        max_tokens: usize,
        options: &AnswerOptions,
        each: &mut OnText<'_>,
        observer: &dyn Observer,
    ) -> Result<Answer> {
        let mut session = self.runnable.session()?;
        let mut stream = self.tokenizer.stream(&prompt)?;
        let mut search = StopSearch::new(options.stops.clone());
        let (mut text, mut is_stopped) = (String::new(), false);
        let mut show = |part: &str| {
            text.push_str(part);
            if part.is_empty() { Ok(ControlFlow::Continue(())) } else { each(part) }
        };
        let generate_options =
            GenerateOptions { max_tokens, choice: options.choice, stops: self.stops.clone() };
        let mut model = |tokens: &[u32]| session.feed(tokens, observer);
        let done = generate::generate(&prompt, &generate_options, &mut model, &mut |token| {
            let found = search.push(&stream.push(token)?);
            is_stopped = found.is_stopped;
            let flow = show(&found.text)?;
            Ok(if is_stopped { ControlFlow::Break(()) } else { flow })
        })?;
        if !is_stopped {
            let found = search.push(&stream.finish_whole()?);
            // The answer is over, whatever the caller says.
            let _ = show(&found.text)?;
            if !found.is_stopped {
                let _ = show(&search.finish().text)?;
            }
        }
        Ok(Answer {
            text,
            prompt_tokens: prompt,
            tokens: done.tokens,
            stop_reason: done.stop_reason,
            prompt_time: done.prompt_time,
            time: done.time,
        })
    }
}

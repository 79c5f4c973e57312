//! Turns the tokens of an answer into text, without the stop that ends it, and keeps the scores of tokens with their text.

use std::collections::VecDeque;

use generate::{SearchedText, StopSearch, TokenStream, Tokenizer};

use super::{PromptRequest, TokenScore};

/// Text of an answer that grows by a token at a time.
#[derive(Debug)]
pub(super) struct TextOutput<'t> {
    /// `None` after the last token.
    stream: Option<TokenStream<'t>>,
    search: StopSearch,
    /// Number of characters before the answer in the text.
    before: usize,
    /// Bytes and characters that the stream returned, and bytes that were shown.
    decoded: usize,
    decoded_chars: usize,
    shown: usize,
    waiting: VecDeque<WaitingScore>,
}

/// Score of a token whose text was not shown yet, and where its text starts and ends.
#[derive(Debug)]
struct WaitingScore {
    start: usize,
    end: usize,
    score: TokenScore,
}

/// Text that was decided on, with the scores of its tokens.
#[derive(Debug)]
pub(super) struct ShownText {
    pub(super) text: String,
    pub(super) scores: Vec<TokenScore>,
    /// True if a stop text ended the answer.
    pub(super) is_stopped: bool,
}

impl<'t> TextOutput<'t> {
    /// Creates the text of an answer to a request, with `before` characters before it.
    ///
    /// # Errors
    /// Returns an error if the tokenizer fails.
    pub(super) fn new(
        tokenizer: &'t Tokenizer,
        request: &PromptRequest,
        before: usize,
    ) -> generate::Result<Self> {
        let stream = Some(tokenizer.stream(&request.tokens)?.showing(request.shown.clone())?);
        let search = StopSearch::new(request.stops.clone());
        let waiting = VecDeque::new();
        Ok(Self { stream, search, before, decoded: 0, decoded_chars: 0, shown: 0, waiting })
    }

    /// Adds a token.
    ///
    /// # Errors
    /// Returns an error if the tokenizer fails.
    pub(super) fn push(&mut self, token: u32, score: Option<TokenScore>) -> generate::Result<ShownText> {
        let (start, start_chars) = (self.decoded, self.decoded_chars);
        let piece = self.stream.as_mut().map_or(Ok(String::new()), |stream| stream.push(token))?;
        self.count_decoded(&piece);
        if let Some(score) = score {
            let score = TokenScore { offset: self.before.saturating_add(start_chars), ..score };
            self.waiting.push_back(WaitingScore { start, end: self.decoded, score });
        }
        let SearchedText { text, is_stopped } = self.search.push(&piece);
        Ok(self.show(text, is_stopped))
    }

    /// Returns the rest after the last token. A character that is not complete is dropped.
    ///
    /// # Errors
    /// Returns an error if the tokenizer fails.
    pub(super) fn finish(mut self) -> generate::Result<ShownText> {
        let rest = self.stream.take().map_or(Ok(String::new()), TokenStream::finish_whole)?;
        self.count_decoded(&rest);
        let SearchedText { mut text, mut is_stopped } = self.search.push(&rest);
        if !is_stopped {
            let last = std::mem::replace(&mut self.search, StopSearch::new(Vec::new())).finish();
            text.push_str(&last.text);
            is_stopped = last.is_stopped;
        }
        let mut shown = self.show(text, is_stopped);
        if !is_stopped {
            shown.scores.extend(self.waiting.drain(..).map(|waiting| waiting.score));
        }
        Ok(shown)
    }

    fn count_decoded(&mut self, piece: &str) {
        self.decoded = self.decoded.saturating_add(piece.len());
        self.decoded_chars = self.decoded_chars.saturating_add(piece.chars().count());
    }

    /// Takes the scores of tokens whose text is shown: all of it, or the start of it if a stop ended the rest.
    fn show(&mut self, text: String, is_stopped: bool) -> ShownText {
        self.shown = self.shown.saturating_add(text.len());
        let shown = self.shown;
        let is_shown = |waiting: &WaitingScore| {
            if is_stopped { waiting.start < shown } else { waiting.end <= shown }
        };
        let count = self.waiting.iter().take_while(|waiting| is_shown(waiting)).count();
        let scores = self.waiting.drain(..count).map(|waiting| waiting.score).collect();
        ShownText { text, scores, is_stopped }
    }
}

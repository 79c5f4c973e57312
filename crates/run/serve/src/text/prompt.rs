//! A prompt that is computed, a piece at a time.

use byte_source::Observer;
use forward::{ForwardPass, KvCache, LogitPositions};
use tokio::sync::mpsc;

use super::request::PromptRequest;
use super::sequence::{Scorer, Sequence, has_room, send};
use super::{TextEvent, TextModel, TokenScore};

/// Tokens of a prompt that are computed before other texts get their turn.
const TOKENS_AT_ONCE: usize = 128;

/// The same for a prompt whose tokens are scored, of which each has logits.
const SCORED_AT_ONCE: usize = 32;

/// Prompt, and how much of it is computed.
#[derive(Debug)]
pub(super) struct PromptTask {
    request: PromptRequest,
    /// Pass that is computed so far; `None` before the first piece.
    started: Option<(ForwardPass, KvCache)>,
    /// Tokens that have a score, and characters before the next one.
    scored: usize,
    offset: usize,
}

/// Result of a piece of a prompt.
pub(super) enum Progress<'t> {
    Unfinished,
    /// The prompt is computed, and these are the texts that follow.
    Texts(Vec<Sequence<'t>>),
    /// Its client is gone, or was told of an error.
    Ended,
}

/// Stops the work if nobody waits for it.
struct WhileAwaited<'s>(&'s mpsc::Sender<TextEvent>);

impl Observer for WhileAwaited<'_> {
    fn is_cancelled(&self) -> bool {
        self.0.is_closed()
    }
}

impl PromptTask {
    pub(super) fn new(request: PromptRequest) -> Self {
        Self { request, started: None, scored: 0, offset: 0 }
    }

    pub(super) fn is_abandoned(&self) -> bool {
        self.request.events.is_closed()
    }

    pub(super) fn has_room(&self) -> bool {
        has_room(&self.request.events)
    }

    pub(super) fn fail(&self, error: String) {
        send(&self.request.events, TextEvent::Failed(error));
    }

    /// Computes the next piece.
    pub(super) fn advance<'t>(&mut self, text: &'t TextModel) -> Progress<'t> {
        match self.try_advance(text) {
            Ok(progress) => progress,
            Err(error) if error.is_cancelled() => Progress::Ended,
            Err(error) => {
                self.fail(error.to_string());
                Progress::Ended
            }
        }
    }

    fn try_advance<'t>(&mut self, text: &'t TextModel) -> byte_source::Result<Progress<'t>> {
        let scores = self.request.scores_prompt();
        let (mut pass, mut cache) = if let Some(started) = self.started.take() {
            started
        } else {
            self.send_echo(text);
            if self.request.max_tokens == 0 && !scores {
                return Ok(Progress::Texts(self.texts(text, text.forward.cache(1)?, &mut [])?));
            }
            let tokens: Vec<i64> = self.request.tokens.iter().copied().map(i64::from).collect();
            let (rows, at_once) = if scores {
                (LogitPositions::Pieces, SCORED_AT_ONCE)
            } else {
                (LogitPositions::Last, TOKENS_AT_ONCE)
            };
            (text.forward.start(&tokens, 1, rows, at_once)?, text.forward.cache(1)?)
        };
        let is_unfinished =
            text.forward.advance(&mut pass, &mut cache, &WhileAwaited(&self.request.events))?;
        if scores {
            self.send_scores(text, pass.piece_logits())?;
        }
        if is_unfinished {
            self.started = Some((pass, cache));
            return Ok(Progress::Unfinished);
        }
        let mut last = if scores {
            let logits = pass.piece_logits();
            logits.get(logits.len().saturating_sub(text.forward.vocab())..).unwrap_or_default().to_vec()
        } else {
            pass.into_logits()
        };
        Ok(Progress::Texts(self.texts(text, cache, &mut last)?))
    }

    /// Returns the texts that follow the prompt and go on after their first token.
    fn texts<'t>(
        &mut self,
        text: &'t TextModel,
        cache: KvCache,
        logits: &mut [f32],
    ) -> byte_source::Result<Vec<Sequence<'t>>> {
        let mut choices = std::mem::take(&mut self.request.choices);
        let mut texts = Vec::with_capacity(choices.len());
        let (mut cache, last) = (Some(cache), choices.pop());
        for options in choices {
            let Some(copy) = cache.clone() else { break };
            let sequence = Sequence::new(text, &self.request, options, copy)?;
            texts.extend(sequence.choose(text, &mut logits.to_vec()));
        }
        if let (Some(options), Some(cache)) = (last, cache.take()) {
            let sequence = Sequence::new(text, &self.request, options, cache)?;
            texts.extend(sequence.choose(text, logits));
        }
        Ok(texts)
    }

    /// Sends the text of the prompt, with the first of its scores.
    fn send_echo(&mut self, text: &TextModel) {
        let Some(echo) = self.request.echo.clone() else { return };
        let first = self.request.tokens.first().copied().filter(|_| self.request.scores.is_some());
        let scores = first.map(|token| {
            self.scored = 1;
            let bytes = text.tokenizer.token_bytes(token);
            TokenScore { bytes, logprob: None, top: Vec::new(), offset: 0 }
        });
        self.send_to_all(&echo, &scores.into_iter().collect::<Vec<_>>());
    }

    /// Sends the scores of the tokens that follow those whose logits these are.
    fn send_scores(&mut self, text: &TextModel, logits: &[f32]) -> generate::Result<()> {
        let top = self.request.scores.unwrap_or_default();
        let mut scores = Vec::new();
        for row in logits.chunks_exact(text.forward.vocab().max(1)) {
            let Some(&token) = self.request.tokens.get(self.scored) else { break };
            let offset = self.offset_of(text)?;
            scores.push(Scorer::new(&text.tokenizer, row, top)?.score(&text.tokenizer, token, offset));
            self.scored = self.scored.saturating_add(1);
        }
        self.send_to_all("", &scores);
        Ok(())
    }

    /// Returns the number of characters before the next token to score.
    fn offset_of(&mut self, text: &TextModel) -> generate::Result<usize> {
        let (before, after) = self.request.tokens.split_at_checked(self.scored).unwrap_or_default();
        let (context, last) = before.split_at_checked(before.len().saturating_sub(1)).unwrap_or_default();
        debug_assert!(!after.is_empty(), "there is a token to score");
        let mut stream = text.tokenizer.stream(context)?;
        for token in last {
            self.offset = self.offset.saturating_add(stream.push(*token)?.chars().count());
        }
        Ok(self.offset)
    }

    fn send_to_all(&self, shown: &str, scores: &[TokenScore]) {
        if shown.is_empty() && scores.is_empty() {
            return;
        }
        for choice in &self.request.choices {
            let (text, scores) = (shown.to_owned(), scores.to_vec());
            send(&self.request.events, TextEvent::Text { choice: choice.number, text, scores });
        }
    }
}

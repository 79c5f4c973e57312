//! Generation of one text: chooses its tokens, and sends them to its client.

use forward::KvCache;
use generate::{LogitChanges, Sampler, Tokenizer, log_normalizer, top_candidates};

use super::output::{ShownText, TextOutput};
use super::request::{ChoiceOptions, PromptRequest};
use super::{AnswerGrammar, Finish, TextEvent, TextModel, TokenScore};

/// Text that grows by a token at a time.
#[derive(Debug)]
pub(super) struct Sequence<'t> {
    options: ChoiceOptions,
    pub(super) cache: KvCache,
    /// Last token, which the cache does not have yet.
    pub(super) last: u32,
    /// Tokens of the cache that there is memory for, and that there can be.
    granted: usize,
    most: usize,
    count: usize,
    max_tokens: usize,
    sampler: Sampler,
    changes: LogitChanges,
    grammar: Option<AnswerGrammar>,
    scores: Option<usize>,
    output: Option<TextOutput<'t>>,
    events: tokio::sync::mpsc::Sender<TextEvent>,
}

impl<'t> Sequence<'t> {
    /// Creates a choice of a prompt whose tokens are in `cache`.
    ///
    /// # Errors
    /// Returns an error if the options of sampling are out of range, or the tokenizer fails.
    pub(super) fn new(
        text: &'t TextModel,
        request: &PromptRequest,
        options: ChoiceOptions,
        cache: KvCache,
    ) -> generate::Result<Self> {
        let before = request.echo.as_ref().map_or(0, |echo| echo.chars().count());
        let output = TextOutput::new(&text.tokenizer, request, before)?;
        Ok(Self {
            cache,
            last: 0,
            granted: 0,
            most: request.tokens.len().saturating_add(request.max_tokens),
            count: 0,
            max_tokens: request.max_tokens,
            sampler: Sampler::new(options.choice)?,
            changes: request.changes.clone(),
            grammar: request.grammar.clone(),
            scores: request.scores,
            output: Some(output),
            events: request.events.clone(),
            options,
        })
    }

    /// Returns true if nobody waits for the text any more.
    pub(super) fn is_abandoned(&self) -> bool {
        self.events.is_closed()
    }

    /// Returns true if the client has read enough for the next token.
    pub(super) fn has_room(&self) -> bool {
        has_room(&self.events)
    }

    /// Returns true if there is memory for the next token. Otherwise, the text waits for others to end.
    pub(super) fn has_memory(&mut self, text: &TextModel) -> bool {
        let tokens = self.cache.len().saturating_add(1);
        tokens <= self.granted || {
            let granted = TextModel::granted_at(tokens).min(self.most);
            let is_granted = self.options.memory.grow(text.cache_bytes(granted));
            if is_granted {
                self.granted = granted;
            }
            is_granted
        }
    }

    pub(super) fn fail(&self, error: String) {
        send(&self.events, TextEvent::Failed(error));
    }

    /// Chooses the next token by its logits, and tells the client. Returns the text if it goes on.
    pub(super) fn choose(mut self, text: &TextModel, logits: &mut [f32]) -> Option<Self> {
        let last = match self.try_choose(text, logits) {
            Ok(None) => return Some(self),
            Ok(Some(end)) => end,
            Err(error) => TextEvent::Failed(error),
        };
        // Its memory and its place are free before its client, who may have another request, knows that it has ended.
        let events = self.events.clone();
        drop(self);
        send(&events, last);
        None
    }

    /// Chooses the next token; returns the last event if the text ends with it.
    fn try_choose(&mut self, text: &TextModel, logits: &mut [f32]) -> Result<Option<TextEvent>, String> {
        if self.max_tokens == 0 {
            return self.finish(Finish::Length);
        }
        // Scores are those of the model, not of what the request makes of them.
        let raw = self.scores.map(|_| logits.to_vec());
        self.changes.apply(logits);
        if let Some(grammar) = &mut self.grammar
            && !grammar.mask(logits)?
        {
            return self.finish(Finish::Stop);
        }
        let token = self.sampler.next(logits).map_err(|error| error.to_string())?;
        if text.stops.contains(&token) {
            return self.finish(Finish::Stop);
        }
        let is_complete = self.grammar.as_mut().map_or(Ok(false), |grammar| grammar.push(token))?;
        self.count = self.count.saturating_add(1);
        self.changes.count(token);
        self.last = token;
        let score = match (self.scores, &raw) {
            (Some(top), Some(raw)) => {
                let scorer = Scorer::new(&text.tokenizer, raw, top).map_err(|error| error.to_string())?;
                Some(scorer.score(&text.tokenizer, token, 0))
            }
            _ => None,
        };
        let Some(output) = &mut self.output else { return Ok(Some(self.end(Finish::Stop))) };
        let shown = output.push(token, score).map_err(|error| error.to_string())?;
        let ShownText { text, scores, is_stopped } = shown;
        self.send_text(text, scores);
        if is_stopped {
            return Ok(Some(self.end(Finish::Stop)));
        }
        if is_complete {
            return self.finish(Finish::Stop);
        }
        if self.count >= self.max_tokens { self.finish(Finish::Length) } else { Ok(None) }
    }

    /// Ends the text, for another reason if what was held back has a stop.
    fn finish(&mut self, mut finish: Finish) -> Result<Option<TextEvent>, String> {
        if let Some(output) = self.output.take() {
            let shown = output.finish().map_err(|error| error.to_string())?;
            let ShownText { text, scores, is_stopped } = shown;
            self.send_text(text, scores);
            if is_stopped {
                finish = Finish::Stop;
            }
        }
        Ok(Some(self.end(finish)))
    }

    fn send_text(&self, text: String, scores: Vec<TokenScore>) {
        if !(text.is_empty() && scores.is_empty()) {
            send(&self.events, TextEvent::Text { choice: self.options.number, text, scores });
        }
    }

    fn end(&self, finish: Finish) -> TextEvent {
        TextEvent::End { choice: self.options.number, finish, tokens: self.count }
    }
}

/// Sends an event for which there is room; if the client is gone, nobody needs it.
pub(super) fn send(events: &tokio::sync::mpsc::Sender<TextEvent>, event: TextEvent) {
    let _ = events.try_send(event);
}

/// Returns true if there is room for two events of each choice of a request.
pub(super) fn has_room(events: &tokio::sync::mpsc::Sender<TextEvent>) -> bool {
    events.capacity().saturating_mul(2) >= events.max_capacity()
}

fn logit_of(logits: &[f32], token: u32) -> Option<f32> {
    usize::try_from(token).ok().and_then(|token| logits.get(token)).copied()
}

/// Scores of the tokens that may be in one place of a text.
pub(super) struct Scorer<'l> {
    logits: &'l [f32],
    normalizer: f64,
    top: Vec<(Vec<u8>, f64)>,
}

impl<'l> Scorer<'l> {
    /// Computes the scores of the `top` most probable tokens.
    ///
    /// # Errors
    /// Returns an error if a logit is NaN.
    pub(super) fn new(tokenizer: &Tokenizer, logits: &'l [f32], top: usize) -> generate::Result<Self> {
        let normalizer = log_normalizer(logits)?;
        let candidates = if top == 0 { Vec::new() } else { top_candidates(logits, top)? };
        let scored =
            candidates.iter().map(|it| (tokenizer.token_bytes(it.id), f64::from(it.logit) - normalizer));
        Ok(Self { logits, normalizer, top: scored.collect() })
    }

    /// Returns the score of a token with this offset in the text.
    pub(super) fn score(self, tokenizer: &Tokenizer, token: u32, offset: usize) -> TokenScore {
        let logprob = logit_of(self.logits, token).map(|logit| f64::from(logit) - self.normalizer);
        TokenScore { bytes: tokenizer.token_bytes(token), logprob, top: self.top, offset }
    }
}

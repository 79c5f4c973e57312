//! Computes the texts of one model, many at once: between two tokens, texts join and leave.
//!
//! A turn computes a piece of one prompt, in turns with the other prompts, then one token of each text. The texts share one reading of the
//! weights, and a token is the same, bit for bit, whatever other texts there are. A text whose client is gone is dropped in the next turn,
//! and one whose client does not read waits without holding up others.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{io, thread};

use forward::KvCache;

use super::TextModel;
use super::prompt::{Progress, PromptTask};
use super::request::PromptRequest;
use super::sequence::Sequence;
use crate::panics;

/// Most texts that get a token in one turn; more take turns.
const TEXTS_AT_ONCE: usize = 32;

/// Time after which clients that did not read are looked at again.
const PAUSE: Duration = Duration::from_millis(5);

/// Thread that computes texts, and its queue. Dropped, it finishes what it has.
#[derive(Debug)]
pub(crate) struct TextEngine {
    pub(crate) model: Arc<TextModel>,
    queue: Arc<PromptQueue>,
    places: Arc<AtomicUsize>,
    limit: usize,
}

/// Place of a choice among those that the engine has. It is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Place(Arc<AtomicUsize>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl TextEngine {
    /// Starts the thread, for at most `limit` choices at a time.
    ///
    /// # Errors
    /// Returns an error if the system does not start the thread.
    pub(crate) fn start(model: Arc<TextModel>, limit: usize) -> io::Result<Self> {
        let queue = Arc::new(PromptQueue::default());
        let (text, prompts) = (model.clone(), queue.clone());
        thread::Builder::new().name("texts".to_owned()).spawn(move || run(&text, &prompts))?;
        Ok(Self { model, queue, places: Arc::default(), limit })
    }

    /// Returns the number of choices that are computed or wait.
    pub(crate) fn running(&self) -> usize {
        self.places.load(Ordering::Relaxed)
    }

    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// Takes places for `count` choices; `None` if there are not as many now.
    pub(crate) fn places(&self, count: usize) -> Option<Vec<Place>> {
        let fits = |taken: usize| taken.checked_add(count).filter(|taken| *taken <= self.limit);
        self.places.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).ok()?;
        Some((0..count).map(|_| Place(self.places.clone())).collect())
    }

    /// Adds a prompt, whose events end when its text is complete.
    pub(crate) fn submit(&self, request: PromptRequest) {
        self.queue.lock().prompts.push_back(request);
        self.queue.changed.notify_one();
    }
}

impl Drop for TextEngine {
    fn drop(&mut self) {
        self.queue.lock().is_closed = true;
        self.queue.changed.notify_one();
    }
}

#[derive(Debug, Default)]
struct PromptQueue {
    state: Mutex<QueueState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct QueueState {
    prompts: VecDeque<PromptRequest>,
    is_closed: bool,
}

impl PromptQueue {
    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes all prompts. If `time` is given, waits for one until it is over; if it is `None`, until the queue is closed, which is
    /// `None`.
    fn take(&self, time: Option<Duration>) -> Option<VecDeque<PromptRequest>> {
        let mut state = self.lock();
        while state.prompts.is_empty() {
            state = match time {
                Some(Duration::ZERO) => break,
                Some(time) => {
                    let waited = self.changed.wait_timeout(state, time);
                    state = waited.unwrap_or_else(PoisonError::into_inner).0;
                    break;
                }
                None if state.is_closed => return None,
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
        Some(std::mem::take(&mut state.prompts))
    }
}

/// Computes texts until the queue is closed and nothing is left.
fn run(text: &TextModel, queue: &PromptQueue) {
    let mut prompts: VecDeque<PromptTask> = VecDeque::new();
    let mut sequences: VecDeque<Sequence<'_>> = VecDeque::new();
    let mut is_paused = false;
    loop {
        let time = match (prompts.is_empty() && sequences.is_empty(), is_paused) {
            (true, _) => None,
            (false, true) => Some(PAUSE),
            (false, false) => Some(Duration::ZERO),
        };
        let Some(arrived) = queue.take(time) else { return };
        prompts.extend(arrived.into_iter().map(PromptTask::new));
        prompts.retain(|prompt| !prompt.is_abandoned());
        sequences.retain(|sequence| !sequence.is_abandoned());
        let advanced = advance_prompt(text, &mut prompts, &mut sequences);
        let stepped = step(text, &mut sequences);
        is_paused = !(advanced || stepped);
    }
}

/// Computes a piece of the first prompt whose client reads. Returns false if there is none.
fn advance_prompt<'t>(
    text: &'t TextModel,
    prompts: &mut VecDeque<PromptTask>,
    sequences: &mut VecDeque<Sequence<'t>>,
) -> bool {
    let Some(first) = prompts.iter().position(PromptTask::has_room) else { return false };
    let Some(mut prompt) = prompts.remove(first) else { return false };
    let advanced = catch_unwind(AssertUnwindSafe(|| prompt.advance(text)));
    match advanced {
        Ok(Progress::Unfinished) => prompts.push_back(prompt),
        Ok(Progress::Texts(texts)) => sequences.extend(texts),
        Ok(Progress::Ended) => {}
        Err(payload) => prompt.fail(format!("the model panicked: {}", panics::message(&*payload))),
    }
    true
}

/// Computes one token of each of the first texts that have memory and whose clients read, and moves these behind the others. Returns false if there is none.
fn step(text: &TextModel, sequences: &mut VecDeque<Sequence<'_>>) -> bool {
    let (mut chosen, mut others) = (Vec::new(), VecDeque::new());
    for mut sequence in sequences.drain(..) {
        if chosen.len() < TEXTS_AT_ONCE && sequence.has_room() && sequence.has_memory(text) {
            chosen.push(sequence);
        } else {
            others.push_back(sequence);
        }
    }
    *sequences = others;
    if chosen.is_empty() {
        return false;
    }
    let tokens: Vec<i64> = chosen.iter().map(|sequence| i64::from(sequence.last)).collect();
    let mut caches: Vec<&mut KvCache> = chosen.iter_mut().map(|sequence| &mut sequence.cache).collect();
    let computed = catch_unwind(AssertUnwindSafe(|| text.forward.step(&tokens, &mut caches, &())));
    let failure = match computed {
        Ok(Ok(mut logits)) => {
            let rows = logits.chunks_exact_mut(text.forward.vocab().max(1));
            let texts = chosen.into_iter().zip(rows);
            sequences.extend(texts.filter_map(|(sequence, logits)| sequence.choose(text, logits)));
            return true;
        }
        Ok(Err(error)) => error.to_string(),
        Err(payload) => format!("the model panicked: {}", panics::message(&*payload)),
    };
    for sequence in &chosen {
        sequence.fail(failure.clone());
    }
    true
}

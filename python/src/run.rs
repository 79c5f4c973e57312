//! Runs the model of a carton: logits of a prompt, and tokens that continue it.

use std::num::NonZeroU32;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use torch2carton::crates::generate::{
    self, GenerateOptions, StopReason, StopTokens, TOKENIZER_FILE_MAX, TokenChoice, Tokenizer,
};
use torch2carton::{Observer, Result, Runnable};

use crate::{errors, work};

/// What is to be run.
struct Request {
    text: Option<String>,
    tokens: Vec<u32>,
    options: GenerateOptions,
    threads: Option<usize>,
    is_verified: bool,
}

/// What the model returned.
struct Outcome {
    prompt: Vec<u32>,
    tokens: Vec<u32>,
    text: Option<String>,
    ended: &'static str,
    /// Logits of the token after the prompt, little-endian float32.
    logits: Vec<u8>,
    /// Id, text, probability and logit of the most probable tokens after the prompt.
    candidates: Vec<(u32, Option<String>, f64, f32)>,
}

type Row =
    (Vec<u32>, Vec<u32>, Option<String>, &'static str, Py<PyBytes>, Vec<(u32, Option<String>, f64, f32)>);

/// Runs a carton. Returns the tokens of the prompt, the new tokens, their text, why they end, the logits of the token after
/// the prompt, and the most probable tokens there.
#[pyfunction]
#[pyo3(signature = (path, *, text, tokens, max_tokens, temperature, top_k, top_p, seed, top, threads, verify, progress))]
#[expect(clippy::too_many_arguments, reason = "each is a keyword")]
pub(crate) fn run(
    py: Python<'_>,
    path: PathBuf,
    text: Option<String>,
    tokens: Vec<u32>,
    max_tokens: usize,
    temperature: Option<f64>,
    top_k: Option<NonZeroU32>,
    top_p: f64,
    seed: u64,
    top: usize,
    threads: Option<usize>,
    verify: bool,
    progress: Option<&Bound<'_, PyAny>>,
) -> PyResult<Row> {
    let choice = match temperature {
        None => TokenChoice::Greedy,
        Some(temperature) => TokenChoice::Random { temperature, top_k, top_p, seed },
    };
    let options = GenerateOptions { max_tokens, choice, stops: Vec::new() };
    let request = Request { text, tokens, options, threads, is_verified: verify };
    let outcome = work::run(py, progress, |observer| run_model(&path, request, top, observer))?;
    let outcome = outcome.map_err(|error| errors::exception(py, &error, Some(&path)))?;
    let Outcome { prompt, tokens, text, ended, logits, candidates } = outcome;
    Ok((prompt, tokens, text, ended, PyBytes::new(py, &logits).unbind(), candidates))
}

fn run_model(path: &Path, request: Request, top: usize, observer: &dyn Observer) -> Result<Outcome> {
    let mut run = torch2carton::run(path);
    if let Some(threads) = request.threads {
        run = run.threads(threads);
    }
    if request.is_verified {
        run = run.verify();
    }
    let runnable = run.open(observer)?;
    let mut session = runnable.session()?;
    let words = tokenizer(&runnable);
    let (words, prompt) = match request.text {
        Some(text) => {
            let words = words?;
            let prompt = words.encode(&text)?;
            (Some(words), prompt)
        }
        None => (words.ok(), request.tokens),
    };
    let mut first: Option<Vec<f32>> = None;
    let mut model = |tokens: &[u32]| -> Result<Vec<f32>> {
        let logits = session.feed(tokens, observer)?;
        first.get_or_insert_with(|| logits.clone());
        Ok(logits)
    };
    let mut options = request.options;
    options.stops = stops(&runnable, words.as_ref())?;
    let (tokens, ended) = if options.max_tokens == 0 {
        model(&prompt)?;
        (Vec::new(), "max_tokens")
    } else {
        let done = generate::generate(&prompt, &options, &mut model, &mut |_| {
            Ok(if observer.is_cancelled() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        let ended = match done.stop_reason {
            StopReason::StopToken(_) => "stop_token",
            StopReason::MaxTokens => "max_tokens",
            StopReason::Caller => "interrupted",
        };
        (done.tokens, ended)
    };
    let text = words.as_ref().map(|words| words.decode(&tokens)).transpose()?;
    let logits = first.unwrap_or_default();
    let mut candidates = Vec::new();
    for found in generate::top_candidates(&logits, top)? {
        let text = words.as_ref().map(|words| words.decode_one(found.id)).transpose()?;
        candidates.push((found.id, text, found.probability, found.logit));
    }
    let logits = logits.iter().flat_map(|logit| logit.to_le_bytes()).collect();
    Ok(Outcome { prompt, tokens, text, ended, logits, candidates })
}

/// Returns the tokenizer in the carton.
fn tokenizer(runnable: &Runnable) -> Result<Tokenizer> {
    let mut read = |name: &str| runnable.misc(name, TOKENIZER_FILE_MAX);
    Tokenizer::from_files(&mut read)
}

/// Returns the tokens that end a text: of the carton's documents, else of the tokenizer's format.
fn stops(runnable: &Runnable, words: Option<&Tokenizer>) -> Result<Vec<u32>> {
    /// Largest document with stop tokens, in bytes.
    const DOCUMENT_MAX: u64 = 1 << 20;
    let mut read = |name: &str| runnable.misc(name, DOCUMENT_MAX);
    let StopTokens(stops) = StopTokens::from_documents(&mut read)?;
    Ok(if stops.is_empty() { words.map(|words| words.stops().to_vec()).unwrap_or_default() } else { stops })
}

//! `torch2carton run` of a model: lists the most probable next tokens, or continues a text.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::io::{self, IsTerminal, Write};
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;
use generate::{GeneratedTokens, StopReason, StopTokens, TokenCandidate, TokenChoice};
use runtime::{Runnable, Session};
use serde::Serialize;

use super::detokenizer::Detokenizer;
use crate::cli::args::Run;
use crate::cli::ui::invocation::UsageError;
use crate::cli::ui::signals::{INTERRUPTED, Interruption};
use crate::cli::ui::stdin;
use crate::cli::ui::table::{self, Align};
use crate::cli::ui::terminal::{self, write_text};

/// Schema version of the JSON reports.
const SCHEMA_VERSION: u32 = 1;
const DEFAULT_CANDIDATES: u32 = 5;
/// Default maximum number of generated tokens.
const DEFAULT_MAX_TOKENS: u32 = 128;
/// Maximum size in bytes of a document with stop tokens.
const DOCUMENT_MAX: u64 = 1 << 20;
/// Maximum size in bytes of a document with a chat template, which may list thousands of added tokens.
const TEMPLATES_MAX: u64 = 16 << 20;

pub(super) fn run(
    args: &Run,
    quiet: bool,
    runnable: &Runnable,
    interruption: &Interruption,
) -> Result<ExitCode> {
    let mut session = runnable.session()?;
    let (words, prompt) = match &args.text {
        Some(text) => {
            let words = Detokenizer::required(runnable)?;
            let prompt = match text.as_str() {
                "-" => words.encode(&stdin::input_text()?)?,
                text => words.encode(text)?,
            };
            (Some(words), prompt)
        }
        None => (Detokenizer::optional(runnable), args.tokens.clone().unwrap_or_default()),
    };
    if prompt.is_empty() {
        let text = "there is no token to continue; give a text, or ids with --tokens";
        return Err(UsageError(text.to_owned()).into());
    }
    let has_template = args.text.is_some() && has_chat_template(runnable);
    if has_template && !(quiet || args.json) {
        terminal::note(
            "the model has a chat template, which is not applied: the text is continued as it is; `torch2carton chat` applies it",
        );
    }
    let context = ModelContext { tokens: runnable.max_positions(), is_reported: !(quiet || args.json) };
    context.note_long_prompt(prompt.len());
    let generates = args.max_tokens.is_some() || args.sampling.temperature.is_some();
    let lists = args.top.is_some() || (args.text.is_none() && !generates);
    if lists {
        let count = args.top.unwrap_or(DEFAULT_CANDIDATES);
        let session = (&mut session, interruption);
        return run_candidates(args, quiet, count, (&prompt, &context), words.as_ref(), session);
    }
    let session = (&mut session, interruption);
    run_continuation(args, quiet, runnable, (&prompt, &context), words.as_ref(), session)
}

/// Number of tokens that a model was made for, and the notes on longer texts.
struct ModelContext {
    /// Most tokens of a text; `None` if the carton does not say.
    tokens: Option<u64>,
    is_reported: bool,
}

impl ModelContext {
    /// Notes that the given text is longer than the context, before the model reads it.
    fn note_long_prompt(&self, tokens: usize) {
        if let Some(context) = self.passed_by(tokens) {
            terminal::note(format_args!(
                "the text has {tokens} tokens, and the model was made for at most {context}: what follows may be meaningless"
            ));
        }
    }

    /// Notes that a continuation passed the context, unless the given text already did.
    fn note_long_continuation(&self, prompt: usize, generated: usize) {
        let total = prompt.saturating_add(generated);
        if let (None, Some(context)) = (self.passed_by(prompt), self.passed_by(total)) {
            terminal::note(format_args!(
                "the text and its continuation have {total} tokens, and the model was made for at most {context}: the end may be \
                 meaningless; -n limits the continuation"
            ));
        }
    }

    /// Returns the context if it is shorter than `tokens` and this is to be noted.
    fn passed_by(&self, tokens: usize) -> Option<u64> {
        self.tokens
            .filter(|context| self.is_reported && u64::try_from(tokens).is_ok_and(|tokens| tokens > *context))
    }
}

/// Report of the next-token candidates for `--json`.
#[derive(Serialize)]
struct CandidatesReport<'r> {
    schema_version: u32,
    file: String,
    prompt_tokens: &'r [u32],
    candidates: Vec<CandidateRow>,
    context: Option<u64>,
    prompt_seconds: f64,
}

#[derive(Serialize)]
struct CandidateRow {
    id: u32,
    text: Option<String>,
    probability: f64,
    logit: f32,
}

fn run_candidates(
    args: &Run,
    quiet: bool,
    count: u32,
    (prompt, context): (&[u32], &ModelContext),
    words: Option<&Detokenizer>,
    (session, interruption): (&mut Session, &Interruption),
) -> Result<ExitCode> {
    let start = Instant::now();
    let logits = session.feed(prompt, interruption)?;
    let time = start.elapsed();
    let top = generate::top_candidates(&logits, usize::try_from(count).unwrap_or(usize::MAX))?;
    let row = |TokenCandidate { id, logit, probability }| -> Result<CandidateRow> {
        let text = words.map(|words| words.text_of(id)).transpose()?;
        Ok(CandidateRow { id, text, probability, logit })
    };
    let rows = top.into_iter().map(row).collect::<Result<Vec<_>>>()?;
    if args.json {
        let report = CandidatesReport {
            schema_version: SCHEMA_VERSION,
            file: args.file.display().to_string(),
            prompt_tokens: prompt,
            candidates: rows,
            context: context.tokens,
            prompt_seconds: time.as_secs_f64(),
        };
        super::write_json_line(&mut io::stdout().lock(), &report)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut out = io::BufWriter::new(anstream::stdout().lock());
    let numbers = |row: &CandidateRow| {
        [row.id.to_string(), format!("{:.6}", row.probability), format!("{:.4}", row.logit)]
    };
    if words.is_some() {
        let align = [Align::Right, Align::Right, Align::Right, Align::Left];
        let rows = rows.iter().map(|row| {
            let [id, probability, logit] = numbers(row);
            [id, probability, logit, quoted_token(row.text.as_deref().unwrap_or_default())]
        });
        table::print_table(&mut out, align, ["id", "probability", "logit", "text"], rows)?;
    } else {
        let align = [Align::Right, Align::Right, Align::Right];
        table::print_table(&mut out, align, ["id", "probability", "logit"], rows.iter().map(numbers))?;
    }
    out.flush()?;
    if !quiet {
        terminal::summary(prompt_text(prompt.len(), time));
    }
    Ok(ExitCode::SUCCESS)
}

/// Quotes the text of a token, so that its spaces are visible.
fn quoted_token(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// Report of a generated text for `--json`.
#[derive(Serialize)]
struct ContinuationReport<'r> {
    schema_version: u32,
    file: String,
    prompt_tokens: &'r [u32],
    tokens: &'r [u32],
    text: Option<String>,
    ended: &'static str,
    stop_token: Option<u32>,
    seed: Option<u64>,
    context: Option<u64>,
    prompt_seconds: f64,
    seconds: f64,
    steps: usize,
}

fn run_continuation(
    args: &Run,
    quiet: bool,
    runnable: &Runnable,
    (prompt, context): (&[u32], &ModelContext),
    words: Option<&Detokenizer>,
    (session, interruption): (&mut Session, &Interruption),
) -> Result<ExitCode> {
    let choice = args.sampling.token_choice(new_seed);
    let max_tokens = args.max_tokens.unwrap_or(DEFAULT_MAX_TOKENS);
    let options = generate::GenerateOptions {
        max_tokens: usize::try_from(max_tokens).unwrap_or(usize::MAX),
        choice,
        stops: stop_tokens(runnable, words)?,
    };
    let mut out = TokenOutput::new(args.json, words, prompt)?;
    let mut model = |tokens: &[u32]| -> Result<Vec<f32>> { Ok(session.feed(tokens, interruption)?) };
    let mut tokens = Vec::new();
    let start = Instant::now();
    let done = generate::generate(prompt, &options, &mut model, &mut |token| {
        tokens.push(token);
        out.push(token)?;
        Ok(if interruption.is_set() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    });
    let done = match done {
        // Ctrl-C stopped the model between two layers.
        Err(_) if interruption.is_set() => {
            let (prompt_time, time, steps) = (Duration::ZERO, start.elapsed(), tokens.len());
            GeneratedTokens { tokens, stop_reason: StopReason::Caller, prompt_time, time, steps }
        }
        done => done?,
    };
    let text = out.finish()?;
    context.note_long_continuation(prompt.len(), done.tokens.len());
    if let (StopReason::StopToken(stop), [], false) =
        (done.stop_reason, done.tokens.as_slice(), quiet || args.json)
    {
        let shown = words.map(|words| words.text_of(stop)).transpose()?.filter(|text| !text.is_empty());
        let shown = shown.map_or_else(String::new, |text| format!(", {}", quoted_token(&text)));
        terminal::note(format_args!(
            "the first token is {stop}{shown}, which ends a text, so there is no continuation"
        ));
    }
    let seed = match choice {
        TokenChoice::Random { seed, .. } => Some(seed),
        TokenChoice::Greedy => None,
    };
    if args.json {
        let report = ContinuationReport {
            schema_version: SCHEMA_VERSION,
            file: args.file.display().to_string(),
            prompt_tokens: prompt,
            tokens: &done.tokens,
            text,
            ended: match done.stop_reason {
                StopReason::StopToken(_) => "stop_token",
                StopReason::MaxTokens => "max_tokens",
                StopReason::Caller => "interrupted",
            },
            stop_token: match done.stop_reason {
                StopReason::StopToken(token) => Some(token),
                _ => None,
            },
            seed,
            context: context.tokens,
            prompt_seconds: done.prompt_time.as_secs_f64(),
            seconds: done.time.as_secs_f64(),
            steps: done.steps,
        };
        super::write_json_line(&mut io::stdout().lock(), &report)?;
    } else if !quiet && max_tokens > 0 {
        let seed = match seed.filter(|_| args.sampling.seed.is_none()) {
            Some(seed) => format!("; --seed {seed} repeats it"),
            None => String::new(),
        };
        let times = if interruption.is_set() {
            format!("stopped after {}", byte_source::format_things(done.tokens.len(), "token"))
        } else {
            format!("{}; {}", prompt_text(prompt.len(), done.prompt_time), steps_text(&done))
        };
        terminal::summary(format_args!("{times}{seed}"));
    }
    Ok(if interruption.is_set() { ExitCode::from(INTERRUPTED) } else { ExitCode::SUCCESS })
}

/// Returns a seed that is short enough to type.
pub(super) fn new_seed() -> u64 {
    RandomState::new().build_hasher().finish() >> 32
}

/// Returns true if a document says how the turns of a chat are written. One that is too long or damaged is as good as none.
pub(super) fn has_chat_template(runnable: &Runnable) -> bool {
    let document = |name| runnable.misc(name, TEMPLATES_MAX).ok().flatten();
    let has_key = |document: Vec<u8>| {
        let value: serde_json::Value = serde_json::from_slice(&document).unwrap_or_default();
        value.get("chat_template").is_some_and(|template| !template.is_null())
    };
    document("chat_template.jinja").is_some()
        || document("chat_template.json").is_some()
        || document("tokenizer_config.json").is_some_and(has_key)
}

/// Returns the stop tokens: from the carton's documents, else from the tokenizer's format.
pub(super) fn stop_tokens(runnable: &Runnable, words: Option<&Detokenizer>) -> Result<Vec<u32>> {
    let mut read = |name: &str| runnable.misc(name, DOCUMENT_MAX);
    let StopTokens(stops) = StopTokens::from_documents::<byte_source::Error>(&mut read)?;
    Ok(if stops.is_empty() { words.map(Detokenizer::stops).unwrap_or_default() } else { stops })
}

/// Writer of generated tokens: prints text, or token ids without a tokenizer, or collects the text for `--json`.
struct TokenOutput<'w> {
    stream: Option<super::detokenizer::TokenStream<'w>>,
    /// Text for `--json`, printed at the end.
    collected: Option<String>,
    is_terminal: bool,
    is_first: bool,
}

impl<'w> TokenOutput<'w> {
    fn new(json: bool, words: Option<&'w Detokenizer>, prompt: &[u32]) -> Result<Self> {
        let stream = words.map(|words| words.stream(prompt)).transpose()?;
        let is_terminal = io::stdout().is_terminal();
        Ok(Self { stream, collected: json.then(String::new), is_terminal, is_first: true })
    }

    fn push(&mut self, token: u32) -> Result<()> {
        let text = match &mut self.stream {
            Some(stream) => stream.push(token)?,
            None if self.collected.is_some() => String::new(),
            None => format!("{}{token}", if self.is_first { "" } else { "," }),
        };
        self.is_first = false;
        self.write(&text)
    }

    fn write(&mut self, text: &str) -> Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        match &mut self.collected {
            Some(collected) => collected.push_str(text),
            None => write_text(text, self.is_terminal)?,
        }
        Ok(())
    }

    /// Writes the remaining text and a line feed. Returns the collected text, if there is a tokenizer.
    fn finish(mut self) -> Result<Option<String>> {
        let has_text = self.stream.is_some();
        if let Some(stream) = self.stream.take() {
            let rest = stream.finish()?;
            self.write(&rest)?;
        }
        if self.collected.is_none() {
            write_text("\n", self.is_terminal)?;
        }
        Ok(self.collected.filter(|_| has_text))
    }
}

fn prompt_text(tokens: usize, time: Duration) -> String {
    format!("prompt: {} in {}", byte_source::format_things(tokens, "token"), rate_text(tokens, time))
}

fn steps_text(done: &GeneratedTokens) -> String {
    let tokens = byte_source::format_things(done.tokens.len(), "token");
    // The prompt's time includes the first token.
    if done.steps == 0 { tokens } else { format!("{tokens} in {}", rate_text(done.steps, done.time)) }
}

/// Formats a duration and a rate as `1.25 s (51.2 tokens/s)`.
fn rate_text(tokens: usize, time: Duration) -> String {
    #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
    let rate = tokens as f64 / time.as_secs_f64().max(1e-9);
    format!("{:.2} s ({rate:.1} tokens/s)", time.as_secs_f64())
}

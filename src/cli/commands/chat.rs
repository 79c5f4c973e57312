//! `torch2carton chat`: a conversation with a model.

use std::io::{self, BufRead, IsTerminal, Read, Write};
use std::ops::ControlFlow;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, anyhow};
use byte_source::Observer;
use carton_format::Carton;
use chat_template::{AnswerPiece, ChatTemplate, Conversation, Message};
use generate::{GenerateOptions, TokenChoice};
use runtime::{Runnable, Session};
use serde_json::Value;

use super::chat_input::{ChatLine, HELP, on_one_line};
use super::detokenizer::Detokenizer;
use super::run_text::{new_seed, stop_tokens};
use crate::cli::args::Chat;
use crate::cli::ui::progress::Progress;
use crate::cli::ui::signals::{self, Interruption};
use crate::cli::ui::stdin;
use crate::cli::ui::table::truncate_cell;
use crate::cli::ui::terminal::{self, write_text};
use crate::run::{checkpoint_documents, is_checkpoint};

/// Maximum size in bytes of a document that is read for the chat template.
const DOCUMENT_MAX: u64 = 64 << 20;
/// Tokens of a conversation whose model does not say for how many it was made.
const DEFAULT_CONTEXT: u64 = 4096;
const NO_MESSAGE: &str = "there is no message yet";
/// Maximum size in bytes of a message.
const MESSAGE_MAX: u64 = 16 << 20;

pub(crate) fn chat(args: &Chat, quiet: bool) -> Result<ExitCode> {
    stdin::reject(&args.file, "chat")?;
    if args.print_prompt {
        return print_prompt(args);
    }
    let input = args.remote.locate(&args.file)?;
    let progress = Progress::new(quiet);
    let runnable = super::run::open_runnable(&input, &args.open, &progress)?;
    progress.clear();
    let mut read = |name: &str| runnable.misc(name, DOCUMENT_MAX).map_err(anyhow::Error::from);
    let template = ChatTemplate::from_documents(&mut read)?.ok_or_else(no_template)?;
    let is_waiting = Arc::new(AtomicBool::new(false));
    let waits = Arc::clone(&is_waiting);
    let interruption = signals::catch_ctrl_c(move || {
        // The terminal has forgotten what was typed of the line.
        if waits.load(Ordering::Relaxed) {
            terminal::summary("\nCtrl-D leaves");
            prompt().ok();
        }
    })?;
    let words = Detokenizer::required(&runnable)?;
    let mut talk = Talk {
        session: runnable.session()?,
        stops: stop_tokens(&runnable, Some(&words))?,
        runnable: &runnable,
        template,
        words,
        interruption,
        is_waiting,
        fed: Vec::new(),
        messages: Vec::new(),
        system: args.system.clone(),
        choice: args.sampling.token_choice(new_seed),
        max_tokens: args.max_tokens,
        output: Output::new(),
    };
    talk.run(quiet)
}

fn no_template() -> anyhow::Error {
    anyhow!("the model has no chat template; `torch2carton run` continues a text")
}

/// Prints the text of a conversation, for which the documents of the model are enough.
fn print_prompt(args: &Chat) -> Result<ExitCode> {
    let documents_of =
        |folder: &Path| ChatTemplate::from_documents(&mut |name| read_document(&folder.join(name)));
    let template = if args.file.is_dir() && !args.file.join("carton.toml").exists() {
        documents_of(&args.file)?
    } else {
        match carton_tools::open(&args.remote.locate(&args.file)?) {
            Err(error) if is_checkpoint(&error) => {
                let of_folder = documents_of(args.file.parent().unwrap_or(Path::new("")))?;
                of_folder.map_or_else(|| template_in(&args.file), |template| Ok(Some(template)))?
            }
            carton => template_of(&carton?)?,
        }
    };
    let template = template.ok_or_else(no_template)?;
    let text = stdin::whole_text()?;
    let mut conversation: Conversation =
        serde_json::from_str(&text).context("standard input is no conversation in JSON")?;
    if let Some(system) = &args.system {
        conversation.messages.insert(0, message("system", system));
    }
    let mut out = io::stdout().lock();
    out.write_all(template.render(&conversation)?.as_bytes())?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Reads the chat template in a carton, whose weights may be elsewhere.
fn template_of(carton: &Carton) -> Result<Option<ChatTemplate>> {
    ChatTemplate::from_documents(&mut |name| {
        let path = format!("misc/{name}");
        let Some(_) = carton.entry(&path).ok().filter(|entry| entry.len <= DOCUMENT_MAX) else {
            return Ok(None);
        };
        let mut bytes = Vec::new();
        carton.read(&path)?.read_to_end(&mut bytes)?;
        Ok(Some(bytes))
    })
}

/// Returns true if the carton at `path` has a chat template.
pub(super) fn has_template(path: &Path) -> bool {
    let template = carton_tools::open(&path.into()).map(|carton| template_of(&carton));
    template.is_ok_and(|template| template.is_ok_and(|template| template.is_some()))
}

/// Reads the chat template in a GGUF file.
fn template_in(path: &Path) -> Result<Option<ChatTemplate>> {
    let documents = checkpoint_documents(path, &())?;
    ChatTemplate::from_documents(&mut |name| {
        Ok(documents.iter().find(|(known, _)| known == name).map(|(_, contents)| contents.clone()))
    })
}

/// Reads a document of a model's folder; `None` if there is no such file.
fn read_document(path: &Path) -> Result<Option<Vec<u8>>> {
    let file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
    };
    let mut bytes = Vec::new();
    file.take(DOCUMENT_MAX)
        .read_to_end(&mut bytes)
        .with_context(|| format!("cannot read {}", path.display()))?;
    Ok(Some(bytes))
}

fn message(role: &str, content: &str) -> Message {
    let text = |text: &str| Value::String(text.to_owned());
    [("role".to_owned(), text(role)), ("content".to_owned(), text(content))].into_iter().collect()
}

/// A conversation with a model.
struct Talk<'r> {
    runnable: &'r Runnable,
    template: ChatTemplate,
    words: Detokenizer,
    stops: Vec<u32>,
    interruption: Interruption,
    /// True while a person types.
    is_waiting: Arc<AtomicBool>,
    session: Session,
    /// Tokens that the session has read.
    fed: Vec<u32>,
    messages: Vec<Message>,
    system: Option<String>,
    choice: TokenChoice,
    max_tokens: Option<u32>,
    output: Output,
}

impl Talk<'_> {
    fn run(&mut self, quiet: bool) -> Result<ExitCode> {
        let is_person = io::stdin().is_terminal();
        if is_person && !quiet {
            terminal::summary("/help lists the commands; Ctrl-D leaves");
        }
        loop {
            self.is_waiting.store(is_person, Ordering::Relaxed);
            if is_person {
                prompt()?;
            }
            let line = read_line()?;
            self.is_waiting.store(false, Ordering::Relaxed);
            let Some(line) = line else {
                if is_person {
                    terminal::summary("");
                }
                return Ok(ExitCode::SUCCESS);
            };
            self.interruption.reset();
            match ChatLine::parse(&line) {
                ChatLine::Blank => {}
                ChatLine::Exit => return Ok(ExitCode::SUCCESS),
                ChatLine::Help => terminal::summary(HELP),
                ChatLine::Clear => self.messages.clear(),
                ChatLine::System(text) => self.system = (!text.is_empty()).then(|| text.to_owned()),
                ChatLine::Undo => match self.take_last() {
                    Some(text) => {
                        terminal::note(format_args!("forgotten, with its answer: {}", truncate_cell(&text)));
                    }
                    None => terminal::note(NO_MESSAGE),
                },
                ChatLine::Retry => match self.take_last() {
                    Some(text) => self.send(&text, is_person)?,
                    None => terminal::note(NO_MESSAGE),
                },
                ChatLine::Unknown(command) => {
                    terminal::note(format_args!("there is no command {command}; /help lists them"));
                }
                ChatLine::Message(text) => self.send(text, is_person)?,
            }
        }
    }

    /// Returns the position of the user's last message.
    fn last_position(&self) -> Option<usize> {
        let is_user = |message: &Message| message.get("role").and_then(Value::as_str) == Some("user");
        self.messages.iter().rposition(is_user)
    }

    /// Removes the user's last message and its answer, and returns the message.
    fn take_last(&mut self) -> Option<String> {
        let last = self.last_position()?;
        let message = self.messages.drain(last..).next()?;
        message.get("content").and_then(Value::as_str).map(str::to_owned)
    }

    /// Sends a message and writes the answer. A person can go on after an error; the message is forgotten.
    fn send(&mut self, text: &str, is_person: bool) -> Result<()> {
        let before = self.messages.len();
        self.messages.push(message("user", text));
        match self.answer() {
            Ok(answer) => self.messages.push(message("assistant", &answer)),
            Err(error) if is_person && !terminal::is_broken_pipe(&error) => {
                self.messages.truncate(before);
                terminal::note(format_args!("{error:#}"));
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Writes the answer to the messages, and returns it.
    fn answer(&mut self) -> Result<String> {
        let system = self.system.iter().map(|text| message("system", text));
        let conversation = Conversation::new(system.chain(self.messages.iter().cloned()).collect());
        let rendered = self.template.render(&conversation)?;
        let prompt = self.words.encode_rendered(&rendered)?;
        let context = self.runnable.max_positions().unwrap_or(DEFAULT_CONTEXT);
        let room = context.saturating_sub(prompt.len() as u64);
        if room == 0 || prompt.is_empty() {
            return Err(anyhow!(
                "the conversation has {} tokens, and the model was made for {context}; /clear forgets the messages",
                prompt.len()
            ));
        }
        let max_tokens = self.max_tokens.map_or(room, |limit| room.min(limit.into()));
        let options = GenerateOptions {
            max_tokens: usize::try_from(max_tokens).unwrap_or(usize::MAX),
            choice: self.choice,
            stops: self.stops.clone(),
        };
        // What the model has read already is not read again.
        let is_read = prompt.len() > self.fed.len() && prompt.starts_with(&self.fed);
        if !is_read {
            self.session = self.runnable.session()?;
            self.fed.clear();
        }
        let rest = prompt.get(self.fed.len()..).unwrap_or_default();
        let mut stream = self.words.stream_with(&prompt, &self.template.answer_marks(false))?;
        let mut parser = self.template.answer_parser(&rendered, None);
        let Self { session, fed, interruption, output, .. } = self;
        let mut model = |tokens: &[u32]| -> Result<Vec<f32>> {
            let logits = session.feed(tokens, &*interruption)?;
            fed.extend(tokens);
            Ok(logits)
        };
        let mut answer = String::new();
        let done = generate::generate(rest, &options, &mut model, &mut |token| {
            output.write(&mut answer, parser.push(&stream.push(token)?))?;
            Ok(if interruption.is_cancelled() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        });
        // Ctrl-C stops the model between two layers.
        match done {
            Err(error) if !interruption.is_set() => {
                output.end()?;
                return Err(error);
            }
            _ => {}
        }
        output.write(&mut answer, parser.push(&stream.finish()?))?;
        output.write(&mut answer, parser.finish())?;
        output.end()?;
        Ok(answer)
    }
}

fn prompt() -> io::Result<()> {
    let mut out = io::stderr().lock();
    write!(out, ">>> ").and_then(|()| out.flush())
}

/// Reads a line from standard input; `None` at its end.
fn read_line() -> Result<Option<String>> {
    let mut line = Vec::new();
    let mut input = io::stdin().lock().take(MESSAGE_MAX);
    let count = input.read_until(b'\n', &mut line).context("cannot read standard input")?;
    Ok((count > 0).then(|| String::from_utf8_lossy(&line).into_owned()))
}

/// Where answers go: a terminal, where they have lines, or a pipe, where each is one line.
struct Output {
    is_terminal: bool,
    has_lines: bool,
    /// True after a part of the model's reasoning, which only people see.
    is_reasoning: bool,
}

impl Output {
    fn new() -> Self {
        let is_terminal = io::stdout().is_terminal();
        Self { is_terminal, has_lines: is_terminal && io::stdin().is_terminal(), is_reasoning: false }
    }

    /// Writes parts of an answer, and adds those that are for the user to `answer`.
    fn write(&mut self, answer: &mut String, pieces: Vec<AnswerPiece>) -> io::Result<()> {
        for piece in pieces {
            let is_reasoning = matches!(piece, AnswerPiece::Reasoning(_));
            let text = match piece {
                AnswerPiece::Reasoning(text) | AnswerPiece::Text(text) => text,
                AnswerPiece::Call(call) => call.arguments,
            };
            if !is_reasoning {
                answer.push_str(&text);
            }
            if text.is_empty() || is_reasoning && !self.has_lines {
                continue;
            }
            if is_reasoning != self.is_reasoning {
                self.is_reasoning = is_reasoning;
                write_text(if is_reasoning { "(" } else { ")\n" }, self.is_terminal)?;
            }
            if self.has_lines {
                write_text(&text, self.is_terminal)?;
            } else {
                write_text(&on_one_line(&text), self.is_terminal)?;
            }
        }
        Ok(())
    }

    fn end(&mut self) -> io::Result<()> {
        let end = if std::mem::take(&mut self.is_reasoning) { ")\n" } else { "\n" };
        write_text(end, self.is_terminal)
    }
}

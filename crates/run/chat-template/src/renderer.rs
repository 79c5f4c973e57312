//! A compiled template, with bounds on what it does.

use std::error::Error as _;
use std::fmt::Write;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{Environment, ErrorKind, Value};

use crate::{Error, Result, python, source};

/// Steps that a template may take for a conversation. The templates of released models take about a thousand for a message.
pub const STEPS_MAX: u64 = 1_000_000;
/// Steps that compilation and rendering may be inside each other.
const RECURSION_MAX: usize = 200;
/// Stack of the thread that compiles and renders, in bytes, of which only what is used takes memory.
const STACK_SIZE: usize = 64 << 20;
/// Name of the template in its environment.
const NAME: &str = "template";

/// Words that a template raised.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct RaisedError(String);

/// Compiled template with the bounds of its work.
#[derive(Debug)]
pub(crate) struct Renderer {
    file: String,
    environment: Environment<'static>,
}

impl Renderer {
    /// Compiles the template of the document `file`.
    pub(crate) fn new(file: &str, text: &str) -> Result<Self> {
        let text = source::prepare(file, text)?;
        let mut environment = environment();
        let compiled = on_large_stack(|| environment.add_template_owned(NAME, text).map(|()| environment))?;
        let environment = compiled.map_err(|error| Error::Syntax {
            file: file.to_owned(),
            line: error.line().unwrap_or(1),
            reason: reason(&error),
        })?;
        Ok(Self { file: file.to_owned(), environment })
    }

    /// Renders the template with variables.
    pub(crate) fn render(&self, variables: &serde_json::Map<String, serde_json::Value>) -> Result<String> {
        let rendered = on_large_stack(|| {
            let context = Value::from(Serde(variables));
            self.environment.get_template(NAME)?.render(context)
        })?;
        rendered.map_err(|error| self.failure(&error))
    }

    fn failure(&self, error: &minijinja::Error) -> Error {
        let (file, line) = (self.file.clone(), error.line().unwrap_or(1));
        let mut cause = error.source();
        while let Some(error) = cause {
            if let Some(RaisedError(message)) = error.downcast_ref() {
                return Error::Raised { file, line, message: message.clone() };
            }
            cause = error.source();
        }
        match error.kind() {
            ErrorKind::OutOfFuel => Error::Work { file, line, limit: STEPS_MAX },
            _ => Error::Failed { file, line, reason: reason(error) },
        }
    }
}

/// Returns what the engine says, without the place.
fn reason(error: &minijinja::Error) -> String {
    match error.detail() {
        Some(detail) => detail.to_owned(),
        None => error.kind().to_string(),
    }
}

/// Runs a function on a thread whose stack the deepest template does not fill.
fn on_large_stack<T: Send>(run: impl FnOnce() -> T + Send) -> Result<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK_SIZE);
        let thread = thread.spawn_scoped(scope, run);
        let thread = thread.map_err(|error| Error::NoThread { reason: error.to_string() })?;
        thread.join().map_err(|_| Error::NoThread { reason: "the renderer ended".to_owned() })
    })
}

/// Returns an environment with the settings and functions of `transformers`.
fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    // Only marks that are equal to each other make this fail.
    if let Ok(syntax) = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build() {
        environment.set_syntax(syntax);
    }
    environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    environment.set_recursion_limit(RECURSION_MAX);
    environment.set_fuel(Some(STEPS_MAX));
    environment.set_unknown_method_callback(python::call_method);
    environment.set_formatter(|out, state, value| {
        if value.is_undefined() {
            return Ok(());
        }
        let text = python::str_of(state, value)?;
        out.write_str(&text).map_err(minijinja::Error::from)
    });
    environment.remove_global("debug");
    environment.add_function("raise_exception", |message: Value| -> Result<Value, minijinja::Error> {
        let message = message.as_str().unwrap_or_default().to_owned();
        Err(minijinja::Error::new(ErrorKind::InvalidOperation, "raised").with_source(RaisedError(message)))
    });
    environment.add_function("strftime_now", |format: String| -> Result<String, minijinja::Error> {
        let mut text = String::new();
        let wrong = |_| minijinja::Error::new(ErrorKind::InvalidOperation, "the format of a time is unknown");
        write!(text, "{}", chrono::Local::now().format(&format)).map_err(wrong)?;
        Ok(text)
    });
    python::add_filters(&mut environment);
    environment
}

//! A model that takes and returns texts.

use std::num::NonZeroU32;
use std::ops::ControlFlow;
use std::path::PathBuf;

use pyo3::prelude::*;
use torch2carton::crates::generate::{StopReason, TokenChoice};
use torch2carton::crates::serde_json;
use torch2carton::{Answer, AnswerOptions, Conversation, Result};

use crate::{errors, work};

/// An open model with its tokenizer.
#[pyclass(frozen, module = "torch2carton._native")]
pub(crate) struct TextModel {
    inner: torch2carton::TextModel,
    path: PathBuf,
}

/// Text, tokens of the prompt, tokens of the answer, why it ends.
type Row = (String, Vec<u32>, Vec<u32>, &'static str);

#[pymethods]
impl TextModel {
    #[new]
    #[pyo3(signature = (path, *, threads, verify, progress))]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        threads: Option<usize>,
        verify: bool,
        progress: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let mut run = torch2carton::run(&path);
        if let Some(threads) = threads {
            run = run.threads(threads);
        }
        if verify {
            run = run.verify();
        }
        let opened = work::run(py, progress, |observer| run.open_text(observer))?;
        let inner = opened.map_err(|error| errors::exception(py, &error, Some(&path)))?;
        Ok(Self { inner, path })
    }

    fn encode(&self, py: Python<'_>, text: &str) -> PyResult<Vec<u32>> {
        self.raised(py, py.detach(|| self.inner.encode(text)))
    }

    #[expect(clippy::needless_pass_by_value, reason = "Python passes it")]
    fn decode(&self, py: Python<'_>, tokens: Vec<u32>) -> PyResult<String> {
        self.raised(py, py.detach(|| self.inner.decode(&tokens)))
    }

    /// Writes a conversation, which is JSON, as the text that the model continues.
    fn render(&self, py: Python<'_>, conversation: &str) -> PyResult<String> {
        let conversation = parsed(conversation)?;
        self.raised(py, py.detach(|| self.inner.render(&conversation)))
    }

    /// Continues a text, or answers a conversation, which is JSON.
    #[pyo3(signature = (*, text, conversation, max_tokens, temperature, top_k, top_p, seed, stop, on_text))]
    #[expect(clippy::too_many_arguments, reason = "each is a keyword")]
    fn answer(
        &self,
        py: Python<'_>,
        text: Option<&str>,
        conversation: Option<&str>,
        max_tokens: Option<usize>,
        temperature: Option<f64>,
        top_k: Option<NonZeroU32>,
        top_p: f64,
        seed: u64,
        stop: Vec<String>,
        on_text: Option<Py<PyAny>>,
    ) -> PyResult<Row> {
        let mut options = AnswerOptions::default();
        options.max_tokens = max_tokens;
        options.stops = stop;
        if let Some(temperature) = temperature {
            options.choice = TokenChoice::Random { temperature, top_k, top_p, seed };
        }
        let conversation: Option<Conversation> = conversation.map(parsed).transpose()?;
        let mut raised: Option<PyErr> = None;
        let answer = work::run(py, None, |observer| {
            let mut each = |part: &str| {
                let Some(callable) = &on_text else { return Ok(ControlFlow::Continue(())) };
                match Python::attach(|py| callable.call1(py, (part,)).map(drop)) {
                    Ok(()) => Ok(ControlFlow::Continue(())),
                    Err(error) => {
                        raised = Some(error);
                        Ok(ControlFlow::Break(()))
                    }
                }
            };
            match &conversation {
                Some(conversation) => self.inner.chat(conversation, &options, &mut each, observer),
                None => self.inner.generate(text.unwrap_or_default(), &options, &mut each, observer),
            }
        })?;
        if let Some(error) = raised {
            return Err(error);
        }
        let Answer { text, prompt_tokens, tokens, stop_reason, .. } = self.raised(py, answer)?;
        let ended = match stop_reason {
            StopReason::StopToken(_) => "stop_token",
            StopReason::MaxTokens => "max_tokens",
            StopReason::Caller => "stop",
        };
        Ok((text, prompt_tokens, tokens, ended))
    }
}

impl TextModel {
    fn raised<T>(&self, py: Python<'_>, result: Result<T>) -> PyResult<T> {
        result.map_err(|error| errors::exception(py, &error, Some(&self.path)))
    }
}

fn parsed(conversation: &str) -> PyResult<Conversation> {
    serde_json::from_str(conversation)
        .map_err(|error| pyo3::exceptions::PyValueError::new_err(error.to_string()))
}

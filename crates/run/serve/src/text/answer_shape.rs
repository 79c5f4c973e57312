//! Answers that have to follow a grammar.

use chat_template::{ThoughtMarks, ThoughtPlace, Tool, ToolSyntax};
use serde_json::Value;

/// Parts of an answer that has to follow a grammar.
#[cfg_attr(not(feature = "schemas"), expect(dead_code, reason = "only grammars read it"))]
#[derive(Debug)]
pub(crate) struct AnswerShape<'s> {
    pub(crate) head: AnswerHead<'s>,
    /// Tools of which the answer has calls; none without a syntax.
    pub(crate) tools: &'s [&'s Tool],
    pub(crate) syntax: Option<&'s ToolSyntax>,
    /// True if the answer has one call.
    pub(crate) is_single: bool,
    /// Schema of JSON that the answer may be instead of calls.
    pub(crate) schema: Option<Value>,
}

/// What comes before an answer.
#[cfg_attr(not(feature = "schemas"), expect(dead_code, reason = "only grammars read it"))]
#[derive(Clone, Copy, Debug)]
pub(crate) enum AnswerHead<'s> {
    Nothing,
    Thought(&'s ThoughtMarks, ThoughtPlace),
    /// Headers of channels, and maybe an analysis.
    Channels,
}

//! Parts of answers, which the parsers return.

/// Part of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnswerPiece {
    Text(String),
    /// What the model writes for itself.
    Reasoning(String),
    Call(crate::ToolCall),
}

/// Adds text to the last part, if that is text, too.
pub(crate) fn add_text(pieces: &mut Vec<AnswerPiece>, text: &str) {
    match pieces.last_mut() {
        _ if text.is_empty() => {}
        Some(AnswerPiece::Text(before)) => before.push_str(text),
        _ => pieces.push(AnswerPiece::Text(text.to_owned())),
    }
}

//! Answers, in their parts: what the model writes for itself, what is for the user, and calls.

use crate::answer_piece::{AnswerPiece, add_text};
use crate::channels::ChannelParser;
use crate::thoughts::ThoughtParser;
use crate::tools::ToolParser;

/// Parser of an answer that arrives in pieces, which [`ChatTemplate::answer_parser`](crate::ChatTemplate::answer_parser) makes.
#[derive(Clone, Debug)]
pub struct AnswerParser {
    /// `None` if the model writes no thoughts before its answers.
    pub(crate) thought: Option<ThoughtParser>,
    pub(crate) parts: AnswerParts,
}

/// Parts of an answer after a thought.
#[derive(Clone, Debug)]
pub(crate) enum AnswerParts {
    Text,
    Calls(Box<ToolParser>),
    Channels(ChannelParser),
}

impl AnswerParser {
    /// Adds a piece of the answer. Returns what is complete of texts, and whole calls.
    pub fn push(&mut self, piece: &str) -> Vec<AnswerPiece> {
        match &mut self.thought {
            Some(thought) => {
                let (thought, rest) = thought.push(piece);
                self.pieces(thought, &rest)
            }
            None => self.pieces(String::new(), piece),
        }
    }

    /// Returns the rest of the answer after its last piece.
    pub fn finish(&mut self) -> Vec<AnswerPiece> {
        let (thought, rest) = self.thought.as_mut().map(ThoughtParser::finish).unwrap_or_default();
        let mut pieces = self.pieces(thought, &rest);
        pieces.extend(match &mut self.parts {
            AnswerParts::Text => Vec::new(),
            AnswerParts::Calls(parser) => parser.finish(),
            AnswerParts::Channels(parser) => parser.finish(),
        });
        pieces
    }

    fn pieces(&mut self, thought: String, rest: &str) -> Vec<AnswerPiece> {
        let thought = Some(thought).filter(|thought| !thought.is_empty());
        let mut pieces: Vec<AnswerPiece> = thought.map(AnswerPiece::Reasoning).into_iter().collect();
        match &mut self.parts {
            _ if rest.is_empty() => {}
            AnswerParts::Text => add_text(&mut pieces, rest),
            AnswerParts::Calls(parser) => pieces.extend(parser.push(rest)),
            AnswerParts::Channels(parser) => pieces.extend(parser.push(rest)),
        }
        pieces
    }
}

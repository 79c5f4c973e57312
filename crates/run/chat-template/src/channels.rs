//! Answers in channels, as gpt-oss writes them.
//!
//! Facts: OpenAI's format Harmony. An answer is a list of messages: a header, `<|message|>`, and a content. The header names the channel after
//! `<|channel|>`, and the tool that a call is for after `to=`. The prompt ends within the first header.

use serde_json::{Map, Value};

use crate::answer_piece::add_text;
use crate::{AnswerPiece, ToolCall};

const CHANNEL: &str = "<|channel|>";
const MESSAGE: &str = "<|message|>";
/// Marks that end a content, of which the last one begins a header.
const ENDS: [&str; 4] = ["<|end|>", "<|call|>", "<|return|>", START];
const START: &str = "<|start|>";
/// Most bytes of a header; what is longer is none.
const HEADER_MAX: usize = 1 << 10;

/// Marks in an answer, which are special tokens.
pub(crate) const CHANNEL_MARKS: [&str; 7] =
    [START, CHANNEL, "<|constrain|>", MESSAGE, ENDS[0], ENDS[1], ENDS[2]];

/// Parser of an answer in channels that arrives in pieces: what is for the user is text, the model's analysis is reasoning.
#[derive(Clone, Debug)]
pub(crate) struct ChannelParser {
    has_tools: bool,
    /// Text that may belong to a mark, a header or a call.
    held: String,
    state: ChannelState,
}

#[derive(Clone, Debug)]
enum ChannelState {
    Header,
    Text,
    Reasoning,
    /// Arguments of a function.
    Call(String),
}

impl ChannelParser {
    /// Creates a parser for an answer, which can have calls if the model was shown tools.
    pub(crate) fn new(has_tools: bool) -> Self {
        Self { has_tools, held: String::new(), state: ChannelState::Header }
    }

    /// Adds a piece of the answer. Returns what is complete of texts, and whole calls.
    pub(crate) fn push(&mut self, piece: &str) -> Vec<AnswerPiece> {
        self.held.push_str(piece);
        let mut pieces = Vec::new();
        while self.advance(&mut pieces) {}
        pieces
    }

    /// Returns the rest of the answer after its last piece.
    pub(crate) fn finish(&mut self) -> Vec<AnswerPiece> {
        let mut pieces = Vec::new();
        let rest = std::mem::take(&mut self.held);
        match self.state {
            // A header that breaks off has nothing to show.
            ChannelState::Header => {}
            _ => self.add(&rest, true, &mut pieces),
        }
        pieces
    }

    /// Takes a step. Returns false if it needs more text.
    fn advance(&mut self, pieces: &mut Vec<AnswerPiece>) -> bool {
        if matches!(self.state, ChannelState::Header) {
            return self.read_header();
        }
        let found = ENDS.iter().filter_map(|mark| Some((self.held.find(mark)?, *mark))).min();
        if let Some((end, mark)) = found {
            let content: String = self.held.drain(..end).collect();
            if mark != START {
                self.held.drain(..mark.len());
            }
            self.add(&content, true, pieces);
            self.state = ChannelState::Header;
            return true;
        }
        // Arguments are shown when they are whole, and of other contents all but what may begin a mark.
        if !matches!(self.state, ChannelState::Call(_)) {
            let begins = |start: &usize| {
                self.held.get(*start..).is_some_and(|end| ENDS.iter().any(|mark| mark.starts_with(end)))
            };
            let longest = ENDS.map(str::len).into_iter().max().unwrap_or_default();
            let end = (self.held.len().saturating_sub(longest)..self.held.len()).find(begins);
            let content: String = self.held.drain(..end.unwrap_or(self.held.len())).collect();
            self.add(&content, false, pieces);
        }
        false
    }

    fn read_header(&mut self) -> bool {
        if let Some((header, content)) = self.held.split_once(MESSAGE) {
            self.state = self.state_after(header);
            self.held = content.to_owned();
            return true;
        }
        let text = self.held.trim_start();
        let may_begin = |mark: &&str| text.starts_with(*mark) || mark.starts_with(text);
        let is_header =
            self.held.len() <= HEADER_MAX && [START, CHANNEL, MESSAGE, "to="].iter().any(may_begin);
        // A grammar may have kept the model from writing a header.
        if !is_header {
            self.state = ChannelState::Text;
        }
        !is_header
    }

    fn state_after(&self, header: &str) -> ChannelState {
        let after = |mark: &str| {
            let (_, rest) = header.split_once(mark)?;
            rest.split(|c: char| c.is_whitespace() || c == '<').next()
        };
        match (after("to="), after(CHANNEL)) {
            (Some(tool), _) if self.has_tools => match tool.strip_prefix("functions.") {
                Some(name) => ChannelState::Call(name.to_owned()),
                None => ChannelState::Reasoning,
            },
            (_, Some("analysis")) => ChannelState::Reasoning,
            _ => ChannelState::Text,
        }
    }

    fn add(&self, content: &str, is_whole: bool, pieces: &mut Vec<AnswerPiece>) {
        match &self.state {
            ChannelState::Call(name)
                if is_whole && serde_json::from_str::<Map<String, Value>>(content).is_ok() =>
            {
                let (name, arguments) = (name.clone(), content.trim().to_owned());
                pieces.push(AnswerPiece::Call(ToolCall { id: None, name, arguments }));
            }
            ChannelState::Reasoning if content.is_empty() => {}
            ChannelState::Reasoning => pieces.push(AnswerPiece::Reasoning(content.to_owned())),
            ChannelState::Header | ChannelState::Text | ChannelState::Call(_) => add_text(pieces, content),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: &str = "<|channel|>analysis<|message|>Look.<|end|><|start|>assistant<|channel|>commentary to=functions.f \
                          <|constrain|>json<|message|>{\"a\": 1}<|call|><|start|>assistant to=functions.g<|channel|>commentary json<|message|>{}<|end|>\
                          <|start|>assistant<|channel|>final<|message|>a < b <| c";

    fn parse(answer: &str, size: usize, has_tools: bool) -> (String, String, Vec<(String, String)>) {
        let (mut parser, mut text, mut reasoning, mut calls) =
            (ChannelParser::new(has_tools), String::new(), String::new(), Vec::new());
        let characters: Vec<char> = answer.chars().collect();
        let mut pieces: Vec<AnswerPiece> = characters
            .chunks(size)
            .flat_map(|chunk| parser.push(&chunk.iter().collect::<String>()))
            .collect();
        pieces.extend(parser.finish());
        for piece in pieces {
            match piece {
                AnswerPiece::Text(piece) => text.push_str(&piece),
                AnswerPiece::Reasoning(piece) => reasoning.push_str(&piece),
                AnswerPiece::Call(call) => calls.push((call.name, call.arguments)),
            }
        }
        (text, reasoning, calls)
    }

    #[test]
    fn an_answer_has_its_parts_whatever_its_pieces_are() {
        let call = |name: &str, arguments: &str| (name.to_owned(), arguments.to_owned());
        for size in 1..40 {
            let (text, reasoning, calls) = parse(ANSWER, size, true);
            assert_eq!((text.as_str(), reasoning.as_str()), ("a < b <| c", "Look."), "{size}");
            assert_eq!(calls, [call("f", "{\"a\": 1}"), call("g", "{}")]);
        }
    }

    #[test]
    fn what_is_no_header_or_call_stays_text() {
        for (answer, has_tools, text) in [
            ("{\"a\": 1}", false, "{\"a\": 1}"),
            ("to be", false, "to be"),
            ("<|channel|>commentary to=functions.f<|message|>{\"a\": <|call|>", true, "{\"a\": "),
            ("<|channel|>commentary to=functions.f<|message|>{}<|call|>", false, "{}"),
            ("<|channel|>commentary<|message|>I will look.<|end|><|start|>assi", true, "I will look."),
            ("<|message|>a<|return|>", true, "a"),
        ] {
            for size in 1..20 {
                assert_eq!(
                    parse(answer, size, has_tools),
                    (text.to_owned(), String::new(), Vec::new()),
                    "{answer} {size}"
                );
            }
        }
        let long = format!("<|channel|>{}", "a".repeat(HEADER_MAX));
        assert_eq!(parse(&long, 7, true).0, long);
    }
}

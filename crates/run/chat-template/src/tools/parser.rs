//! Separates the text of an answer from the calls in it, while the answer grows.

use super::body::{AfterMark, Found, after_mark};
use super::{Tool, ToolCall, ToolSyntax};
use crate::AnswerPiece;
use crate::answer_piece::add_text;

/// Mark that models of Llama write before a call, although their templates do not.
pub(super) const PYTHON_TAG: &str = "<|python_tag|>";

/// Parser of an answer that arrives in pieces. Text that is not quite a call stays text.
#[derive(Clone, Debug)]
pub(crate) struct ToolParser {
    syntax: ToolSyntax,
    tools: Vec<Tool>,
    /// Text that may belong to a call.
    held: String,
    state: ParserState,
    has_calls: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ParserState {
    /// Before the mark of the next call.
    Text,
    /// At a mark, which is held, and maybe in a call.
    Call,
    /// After a call, maybe before the mark that ends it.
    AfterCall,
    /// In text that no calls follow.
    TextOnly,
}

impl ToolParser {
    /// Creates a parser for the answers of a model to which these tools were shown.
    pub(crate) fn new(syntax: ToolSyntax, tools: Vec<Tool>) -> Self {
        Self { syntax, tools, held: String::new(), state: ParserState::Text, has_calls: false }
    }

    /// Adds a piece of the answer. Returns the text and the calls that are complete.
    pub(crate) fn push(&mut self, piece: &str) -> Vec<AnswerPiece> {
        self.held.push_str(piece);
        let mut pieces = Vec::new();
        // A call ends with one of these, and looking at it costs its length.
        if self.state == ParserState::Call && !piece.contains(['}', ']', '>']) && self.held.len() > 256 {
            return pieces;
        }
        while self.advance(&mut pieces) {}
        pieces
    }

    /// Returns the rest of the answer after its last piece.
    pub(crate) fn finish(&mut self) -> Vec<AnswerPiece> {
        let mut pieces = Vec::new();
        while self.advance(&mut pieces) {}
        let rest = std::mem::take(&mut self.held);
        let is_mark = self.state == ParserState::AfterCall && self.after_call(&rest) == AfterMark::Unfinished;
        if !(is_mark || self.has_calls && rest.trim().is_empty()) {
            add_text(&mut pieces, &rest);
        }
        pieces
    }

    /// Takes a step. Returns false if it needs more text.
    fn advance(&mut self, pieces: &mut Vec<AnswerPiece>) -> bool {
        match self.state {
            ParserState::Text if self.syntax.opening().is_empty() => self.search_start(),
            ParserState::Text => self.search_mark(pieces),
            ParserState::Call => self.read_call(pieces),
            ParserState::AfterCall => self.skip_end(),
            ParserState::TextOnly => {
                self.take_text(self.held.len(), pieces);
                false
            }
        }
    }

    /// Looks for a call that is the whole answer.
    fn search_start(&mut self) -> bool {
        let text = self.held.trim_start();
        let body = after_tag(text);
        if body.is_empty() || PYTHON_TAG.starts_with(text) {
            return false;
        }
        self.state = if body.starts_with(['{', '[']) { ParserState::Call } else { ParserState::TextOnly };
        true
    }

    /// Looks for the mark before a call, and gives back the text before it, but for white space.
    fn search_mark(&mut self, pieces: &mut Vec<AnswerPiece>) -> bool {
        let marks: Vec<&str> = self.syntax.openings().collect();
        let found = marks.iter().filter_map(|mark| self.held.find(*mark)).min();
        let begins = |start: &usize| {
            self.held.get(*start..).is_some_and(|end| marks.iter().any(|mark| mark.starts_with(end)))
        };
        let longest = marks.iter().map(|mark| mark.len()).max().unwrap_or_default();
        let mut starts = self.held.len().saturating_sub(longest)..self.held.len();
        let end = found.or_else(|| starts.find(begins)).unwrap_or(self.held.len());
        let text = self.held.get(..end).unwrap_or_default().trim_end().len();
        self.take_text(text, pieces);
        if found.is_some() {
            self.state = ParserState::Call;
        }
        found.is_some()
    }

    fn read_call(&mut self, pieces: &mut Vec<AnswerPiece>) -> bool {
        let is_marked = !self.syntax.opening().is_empty();
        let text = self.held.trim_start();
        let body = if is_marked { self.syntax.after_lead(text) } else { AfterMark::Rest(after_tag(text)) };
        let (found, start) = match body {
            AfterMark::Rest(body) => {
                let found = self.syntax.body.find(body, &self.syntax.tail, &self.tools);
                (found, self.held.len().saturating_sub(body.len()))
            }
            AfterMark::Unfinished => return false,
            AfterMark::Other => {
                let mark = self.syntax.openings().find(|mark| text.starts_with(mark)).map_or(0, str::len);
                (Found::Nothing, self.held.len().saturating_sub(text.len()).saturating_add(mark))
            }
        };
        let is_known = |call: &ToolCall| self.tools.iter().any(|tool| tool.name == call.name);
        match found {
            Found::Unfinished => return false,
            // What has no mark is an answer in JSON, unless it is a call of a tool.
            Found::Calls(calls, len) if is_marked || calls.iter().all(is_known) => {
                pieces.extend(calls.into_iter().map(AnswerPiece::Call));
                self.held.drain(..start.saturating_add(len));
                self.has_calls = true;
                self.state = ParserState::AfterCall;
            }
            Found::Calls(..) | Found::Nothing if is_marked => {
                self.take_text(start, pieces);
                self.state = ParserState::Text;
            }
            Found::Calls(..) | Found::Nothing => self.state = ParserState::TextOnly,
        }
        true
    }

    /// Skips the mark after a call.
    fn skip_end(&mut self) -> bool {
        if self.syntax.opening().is_empty() {
            // Several calls have a semicolon or a comma between them.
            let rest = self.held.trim_start().trim_start_matches([';', ',']).trim_start();
            if rest.is_empty() {
                return false;
            }
            self.state = ParserState::TextOnly;
            if rest.starts_with('{') {
                self.state = ParserState::Call;
                self.held = rest.to_owned();
            }
            return true;
        }
        match self.after_call(&self.held) {
            AfterMark::Unfinished => return false,
            AfterMark::Other => {}
            AfterMark::Rest(rest) => self.held = rest.to_owned(),
        }
        self.state = ParserState::Text;
        true
    }

    /// Returns the text after the marks that end a call, and maybe all calls.
    fn after_call<'t>(&self, text: &'t str) -> AfterMark<'t> {
        let after = after_mark(text, &self.syntax.tail);
        let AfterMark::Rest(rest) = after else { return after };
        match after_mark(rest, &self.syntax.section_tail) {
            AfterMark::Other => after,
            found => found,
        }
    }

    fn take_text(&mut self, len: usize, pieces: &mut Vec<AnswerPiece>) {
        let rest = self.held.split_off(len);
        let text = std::mem::replace(&mut self.held, rest);
        add_text(pieces, &text);
    }
}

/// Returns the text after the mark that may stand before a call without one.
fn after_tag(text: &str) -> &str {
    text.strip_prefix(PYTHON_TAG).map_or(text, str::trim_start)
}

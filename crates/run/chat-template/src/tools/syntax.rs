//! Finds how a model writes calls of tools: its chat template writes calls whose parts are known, and the marks around the parts are
//! those of the model.

use std::ops::Range;

use serde_json::Value;

use super::ToolParser;
use super::body::{AfterMark, after_mark};
use super::probe::{
    IDS, KEY, NAME, NUMBER, NUMBER_KEY, NUMBERED_IDS, Probe, Render, VALUE, probe_arguments, shared_start,
    tool,
};
use super::python_calls::list_of_one;
use crate::AnswerPiece;

/// Way in which a model writes calls of tools.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ToolSyntax {
    /// Text before all calls of an answer. Empty if there is none.
    pub section_lead: String,
    /// Text before a call, with the white space after its mark. Without a mark, an answer is either a call or a text.
    pub lead: String,
    pub body: CallBody,
    /// Text after a call, with the white space before its mark.
    pub tail: String,
    /// Text after all calls of an answer. Empty if there is none.
    pub section_tail: String,
}

/// Form of a call between its marks.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallBody {
    /// JSON object, or a list of such objects.
    Object {
        /// Key of the function's name.
        name_key: String,
        /// Key of the arguments.
        arguments_key: String,
        is_list: bool,
    },
    /// JSON object whose only key is the function's name, with the arguments, or a list of such objects.
    Keyed { is_list: bool },
    /// The function's name, a text, and the arguments as a JSON object.
    Named {
        id: Option<CallId>,
        /// Text before the arguments.
        before_arguments: String,
    },
    /// The function's name, and an element for each argument.
    Elements(ElementMarks),
    /// List of calls in Python's language.
    Python,
    /// The function's name, and an object whose keys have no quotes, and whose texts have this one.
    Mapping { quote: String },
}

/// Id of a call, next to its name.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CallId {
    /// Text between the name and the id.
    pub before: String,
    /// True if the id comes before the name.
    pub is_first: bool,
    /// Text before the name, if the id is this text, the name and the number of the call.
    pub prefix: Option<String>,
}

/// Texts around the parts of arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ElementMarks {
    pub after_name: String,
    pub before_key: String,
    pub after_key: String,
    /// Attributes that come before a value.
    pub attributes: Option<Attributes>,
    pub after_value: String,
    /// True if a value is on lines of its own.
    pub value_has_lines: bool,
}

/// Attributes that say which type a value has.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Attributes {
    /// Attributes of a text.
    pub of_text: String,
    /// Attributes of a number.
    pub of_number: String,
    /// Text between the attributes and the value.
    pub end: String,
}

impl ToolSyntax {
    /// Finds the syntax in what a template renders; `None` if its calls cannot be read.
    pub(crate) fn find(render: &Render<'_>) -> Option<Self> {
        let probe = Probe::new(render)?;
        [IDS, NUMBERED_IDS].into_iter().find_map(|ids| Self::find_with(&probe, ids))
    }

    fn find_with(probe: &Probe<'_>, ids: [&str; 2]) -> Option<Self> {
        let one = probe.written(ids.get(..1)?)?;
        let two = probe.written(&ids);
        let syntax = Self::from_texts(&one, two.as_deref())?;
        let is_read = |text: &str, count: usize| {
            let mut parser = ToolParser::new(syntax.clone(), vec![tool()]);
            let mut pieces = parser.push(text);
            pieces.extend(parser.finish());
            let is_probe = |piece: &AnswerPiece| match piece {
                AnswerPiece::Call(call) => call.name == NAME && call.has_arguments(&probe_arguments()),
                AnswerPiece::Text(_) | AnswerPiece::Reasoning(_) => false,
            };
            pieces.iter().filter(|piece| is_probe(piece)).count() == count
        };
        // Some templates take one call only; others take several, and write the first one.
        let reads_all = is_read(&one, 1) && two.is_none_or(|two| two == one || is_read(&two, 2));
        let has_id = syntax.marks().iter().any(|mark| ids.iter().any(|id| mark.contains(id)));
        (reads_all && !has_id).then_some(syntax)
    }

    /// Returns the start of the mark before a call; empty if there is none.
    pub fn opening(&self) -> &str {
        self.lead.split_whitespace().next().unwrap_or_default()
    }

    /// Returns the starts of the marks with which calls may begin.
    pub(super) fn openings(&self) -> impl Iterator<Item = &str> {
        self.section_lead.split_whitespace().take(1).chain([self.opening()])
    }

    /// Returns the text after the marks with which `text` begins.
    pub(super) fn after_lead<'t>(&self, text: &'t str) -> AfterMark<'t> {
        match after_mark(text, &self.section_lead) {
            AfterMark::Rest(rest) => after_mark(rest, &self.lead),
            AfterMark::Unfinished => AfterMark::Unfinished,
            AfterMark::Other => after_mark(text, &self.lead),
        }
    }

    /// Returns the texts around the parts of a call, of which some are special tokens.
    pub fn marks(&self) -> Vec<&str> {
        let mut marks: Vec<&str> =
            [&self.section_lead, &self.lead, &self.tail, &self.section_tail].map(String::as_str).to_vec();
        match &self.body {
            CallBody::Object { .. } | CallBody::Keyed { .. } | CallBody::Python => {}
            CallBody::Named { id, before_arguments } => {
                marks.extend(id.as_ref().map(|id| id.before.as_str()));
                marks.push(before_arguments);
            }
            CallBody::Mapping { quote } => marks.push(quote),
            CallBody::Elements(elements) => {
                let ElementMarks { after_name, before_key, after_key, after_value, .. } = elements;
                marks.extend([after_name, before_key, after_key, after_value].map(String::as_str));
                marks.extend(elements.attributes.as_ref().map(|attributes| attributes.end.as_str()));
            }
        }
        if self.opening().is_empty() {
            marks.push(super::parser::PYTHON_TAG);
        }
        marks
    }

    /// Finds the marks around the calls of the probe, from the texts of one call and of two.
    fn from_texts(one: &str, two: Option<&str>) -> Option<Self> {
        let (body, call) = find_body(one)?;
        let (before, after) = (one.get(..call.start)?, one.get(call.end..)?);
        let between = two.and_then(|two| {
            let rest = two.get(call.end..)?.strip_suffix(after)?;
            rest.get(..rest.len().checked_sub(call.len())?)
        });
        let (mut lead, mut tail) = (last_mark(before), first_mark(after));
        let (mut section_lead, mut section_tail) = ("", "");
        if let Some(between) = between.filter(|between| !between.trim().is_empty()) {
            let shared = shared_end(before, between);
            let start = shared.find(['<', '[']).unwrap_or(shared.len());
            if let Some(shared) = shared.get(start..).filter(|shared| !shared.is_empty()) {
                (lead, tail) = (shared, between.strip_suffix(shared)?.trim_end());
            }
            let outer_lead = last_mark(before.strip_suffix(lead).unwrap_or_default());
            let outer_tail = first_mark(after.strip_prefix(tail).unwrap_or_default());
            if is_mark(outer_lead) && is_mark(outer_tail) && !outer_lead.starts_with("</") {
                (section_lead, section_tail) = (outer_lead, outer_tail);
            }
        }
        let body = match body {
            CallBody::Named { id: Some(id), before_arguments } if id.prefix.is_some() => {
                let prefix = lead.rsplit(['>', ']']).next().map(str::to_owned);
                CallBody::Named { id: Some(CallId { prefix, ..id }), before_arguments }
            }
            body => body,
        };
        // A name with no mark before it could be any word.
        let is_marked = matches!(body, CallBody::Object { .. } | CallBody::Python) || is_mark(lead);
        let [section_lead, lead, tail, section_tail] =
            [section_lead, lead, tail, section_tail].map(str::to_owned);
        is_marked.then_some(Self { section_lead, lead, body, tail, section_tail })
    }
}

/// Finds the last call of the probe in a text, and its place between the marks.
fn find_body(text: &str) -> Option<(CallBody, Range<usize>)> {
    let start = text.rfind(NAME)?;
    let (before, from_name) = text.split_at_checked(start)?;
    let after_name = from_name.strip_prefix(NAME)?;
    for (start, _) in before.match_indices(['{', '[']) {
        if let Some((body, after)) = object_body(text.get(start..)?) {
            return Some((body, start..text.len().checked_sub(after.len())?));
        }
    }
    for (start, _) in before.match_indices('[') {
        if let Some((call, after)) = list_of_one(text.get(start..)?)
            && call.name == NAME
            && call.has_arguments(&probe_arguments())
        {
            return Some((CallBody::Python, start..text.len().checked_sub(after.len())?));
        }
    }
    if let Some((marks, after)) = element_marks(after_name) {
        return Some((CallBody::Elements(marks), start..text.len().checked_sub(after.len())?));
    }
    if let Some((quote, after)) = mapping_quote(after_name) {
        return Some((CallBody::Mapping { quote }, start..text.len().checked_sub(after.len())?));
    }
    let (between, _) = after_name.split_once('{')?;
    let (arguments, after) = first_value(after_name.get(between.len()..)?)?;
    let mut call = start..text.len().checked_sub(after.len())?;
    let of_probe =
        |id: &str| between.split_once(id).map(|(before, after)| (before.to_owned(), after.to_owned()));
    let before_name =
        before.rsplit_once(IDS[0]).filter(|(_, mark)| is_mark(mark) && words_of_mark(mark).count() == 1);
    let (id, before_arguments) = if let Some((before, after)) = of_probe(IDS[0]) {
        (Some(CallId { before, prefix: None, is_first: false }), after)
    } else if let Some((before, mark)) = before_name {
        call.start = before.len();
        (Some(CallId { before: mark.to_owned(), prefix: None, is_first: true }), between.to_owned())
    } else if let Some(after) = between.strip_prefix(":0") {
        let id = CallId { before: ":".to_owned(), prefix: Some(String::new()), is_first: false };
        (Some(id), after.to_owned())
    } else {
        (None, between.to_owned())
    };
    (arguments == probe_arguments()).then_some((CallBody::Named { id, before_arguments }, call))
}

/// Finds the quotes of texts in the object after a name, and returns the text after it.
fn mapping_quote(after_name: &str) -> Option<(String, &str)> {
    let rest = after_name.strip_prefix('{')?.strip_prefix(KEY)?.strip_prefix(':')?;
    let (quote, rest) = rest.split_once(VALUE).filter(|(quote, _)| is_mark(quote))?;
    let rest = rest.strip_prefix(quote)?.strip_prefix(',')?.strip_prefix(NUMBER_KEY)?.strip_prefix(':')?;
    Some((quote.to_owned(), rest.strip_prefix(NUMBER)?.strip_prefix('}')?))
}

/// Finds the marks around the arguments after a name, and returns the text after them.
fn element_marks(after_name: &str) -> Option<(ElementMarks, &str)> {
    let (before, rest) = after_name.split_once(KEY)?;
    let (after_key, rest) = rest.split_once(VALUE)?;
    let (between, rest) = rest.split_once(NUMBER_KEY)?;
    let (after_other_key, rest) = rest.split_once(NUMBER)?;
    let shared = shared_end(before, between);
    let before_key = shared.get(shared.find(['<', '['])?..)?;
    let after_value = between.strip_suffix(before_key)?.trim_end();
    let after = rest.strip_prefix(after_value)?;
    let (mut same, mut attributes) = (after_key, None);
    if after_key != after_other_key {
        // An attribute may begin or end with the letters of the other one.
        same = shared_start(after_key, after_other_key).trim_end_matches(char::is_alphanumeric);
        let end = shared_end(after_key, after_other_key).trim_start_matches(char::is_alphanumeric);
        let of = |text: &str| Some(text.strip_prefix(same)?.strip_suffix(end)?.to_owned());
        let (of_text, of_number) = (of(after_key)?, of(after_other_key)?);
        attributes =
            Some(Attributes { of_text, of_number, end: end.to_owned() }).filter(|_| !end.trim().is_empty());
        attributes.as_ref()?;
    }
    let is_missing = |mark: &str| mark.trim().is_empty();
    if is_missing(same) || is_missing(after_value) {
        return None;
    }
    let marks = ElementMarks {
        after_name: before.strip_suffix(before_key)?.to_owned(),
        before_key: before_key.to_owned(),
        after_key: same.to_owned(),
        attributes,
        after_value: after_value.to_owned(),
        value_has_lines: after_key.ends_with('\n') && after_value.starts_with('\n'),
    };
    Some((marks, after))
}

/// Returns the parts of a mark that may be special tokens, each with the white space next to it.
pub fn words_of_mark(mark: &str) -> impl Iterator<Item = &str> {
    let words = mark.split_inclusive(char::is_whitespace);
    let words = words.flat_map(|word| word.split_inclusive(['>', ']']));
    words.flat_map(|word| {
        let (text, token) = word.split_at(word.rfind(['<', '[']).unwrap_or(0));
        [text, token].into_iter().filter(|part| !part.is_empty())
    })
}

/// Returns true if a text begins as marks do.
pub(crate) fn is_mark(text: &str) -> bool {
    text.trim_start().starts_with(['<', '['])
}

/// Returns the end that two texts share.
fn shared_end<'t>(one: &'t str, other: &str) -> &'t str {
    let same = one.chars().rev().zip(other.chars().rev()).take_while(|(a, b)| a == b);
    let len: usize = same.map(|(a, _)| a.len_utf8()).sum();
    one.get(one.len().saturating_sub(len)..).unwrap_or_default()
}

/// Returns the mark or the word with which a text ends, and the white space after it.
fn last_mark(text: &str) -> &str {
    let word = text.trim_end();
    let start = match word.chars().next_back() {
        Some('>') => word.rfind('<'),
        Some(']') => word.rfind('['),
        _ => None,
    };
    let is_start = |(at, c): (usize, char)| match c {
        '<' | '[' => Some(at),
        '>' | ']' => Some(at.saturating_add(1)),
        c if c.is_whitespace() => Some(at.saturating_add(c.len_utf8())),
        _ => None,
    };
    let start = start.or_else(|| word.char_indices().rev().find_map(is_start)).unwrap_or(0);
    if word.is_empty() { "" } else { text.get(start..).unwrap_or_default() }
}

/// Returns the mark or the word with which a text begins, and the white space before it.
pub(crate) fn first_mark(text: &str) -> &str {
    let word = text.trim_start();
    let len = match word.chars().next() {
        Some('<') => word.find('>').map(|end| end.saturating_add(1)),
        Some('[') => word.find(']').map(|end| end.saturating_add(1)),
        _ => None,
    };
    let is_end = |c: char| c.is_whitespace() || matches!(c, '<' | '[');
    let len = len.or_else(|| word.find(is_end)).unwrap_or(word.len());
    let space = text.len().saturating_sub(word.len());
    if len == 0 { "" } else { text.get(..space.saturating_add(len)).unwrap_or_default() }
}

/// Returns the form of the call that a text begins with, and the text after it.
fn object_body(text: &str) -> Option<(CallBody, &str)> {
    let (value, after) = first_value(text)?;
    let is_list = value.is_array();
    let object = value.as_object().or_else(|| value.get(0)?.as_object())?;
    let key = |is_it: &dyn Fn(&Value) -> bool| {
        object.iter().find(|(_, value)| is_it(value)).map(|(key, _)| key.clone())
    };
    let is_arguments = |value: &Value| {
        let parsed = value.as_str().and_then(|text| serde_json::from_str::<Value>(text).ok());
        parsed.as_ref().unwrap_or(value) == &probe_arguments()
    };
    let arguments_key = key(&is_arguments)?;
    if arguments_key == NAME && object.len() == 1 {
        return Some((CallBody::Keyed { is_list }, after));
    }
    let name_key = key(&|value| value == NAME)?;
    Some((CallBody::Object { name_key, arguments_key, is_list }, after))
}

/// Returns the JSON value that a text begins with, and the text after it.
fn first_value(text: &str) -> Option<(Value, &str)> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    let value = values.next()?.ok()?;
    let end = values.byte_offset();
    Some((value, text.get(end..)?))
}

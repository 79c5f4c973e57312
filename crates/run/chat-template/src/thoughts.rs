//! Thoughts, which models write for themselves before an answer.
//!
//! Facts: the templates of models. They write the thought of a message between marks, or remove a thought from an answer of an earlier turn, or
//! begin an answer with a mark. The marks are those of the template; only where it writes none they are `<think>` and `</think>`.

use serde_json::{Map, Value, json};

use crate::tools::{
    CONTENT, NAME, Render, call, first_mark, is_mark, question, render, shared_start, words_of_mark,
};

/// Marks around a thought.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ThoughtMarks {
    pub start: String,
    pub end: String,
    /// True if the template takes a thought as a part of the content, of the type `thinking`.
    pub(crate) in_parts: bool,
}

/// Place of a thought in an answer to a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThoughtPlace {
    /// The prompt has begun the thought.
    Begun,
    /// The answer may begin with a thought.
    Possible,
    /// The prompt has ended the thought.
    Ended,
}

const THOUGHT: &str = "probe thought";
const START: &str = "<think>";
const END: &str = "</think>";
/// Values of the variables with which templates let a model think; most do so without.
const IS_THINKING: [Option<bool>; 3] = [None, Some(true), Some(false)];

impl ThoughtMarks {
    /// Finds the marks in what a template renders; `None` if it has no thoughts.
    pub(crate) fn find(rendered: &Render<'_>) -> Option<Self> {
        let written = IS_THINKING.iter().take(2).find_map(|is_thinking| {
            let probe = |messages, has_tools| render(rendered, messages, has_tools, variables(*is_thinking));
            written_marks(&probe)
        });
        written.or_else(|| {
            let default = Self { start: START.to_owned(), end: END.to_owned(), in_parts: false };
            let is_shown = IS_THINKING.iter().any(|is_thinking| {
                let probe = |messages| render(rendered, messages, false, variables(*is_thinking));
                removes_thought(&probe) || begins_thought(&probe)
            });
            is_shown.then_some(default)
        })
    }

    /// Returns where the thought of an answer to a prompt is.
    pub fn place_after(&self, prompt: &str) -> ThoughtPlace {
        let prompt = prompt.trim_end();
        if prompt.ends_with(&self.start) {
            return ThoughtPlace::Begun;
        }
        // The mark at the end of a thought may be all that begins the next message, too.
        let is_own = words_of_mark(&self.end).count() == 1;
        let is_ended = prompt
            .strip_suffix(&*self.end)
            .is_some_and(|before| is_own || before.trim_end().ends_with(&self.start));
        if is_ended { ThoughtPlace::Ended } else { ThoughtPlace::Possible }
    }
}

fn variables(is_thinking: Option<bool>) -> Map<String, Value> {
    let names = ["enable_thinking", "thinking"];
    let values = is_thinking.into_iter().flat_map(|value| names.map(|name| (name.to_owned(), value.into())));
    values.collect()
}

/// Finds the marks that a template writes around the thought of a message.
fn written_marks(render: &dyn Fn(Vec<Value>, bool) -> Option<String>) -> Option<ThoughtMarks> {
    let answer = |content: Value| json!({"role": "assistant", "content": content});
    let thought = |mut answer: Value| {
        if let Some(answer) = answer.as_object_mut() {
            answer.insert("reasoning_content".to_owned(), THOUGHT.into());
        }
        answer
    };
    let with_calls = |mut answer: Value| {
        if let Some(answer) = answer.as_object_mut() {
            answer.insert("tool_calls".to_owned(), json!([call("functions.probe_function:0")]));
        }
        answer
    };
    let plain = render(vec![question(), answer(CONTENT.into())], false)?;
    let (plain, _) = plain.rsplit_once(CONTENT)?;
    let around = |answer: Value, has_tools: bool, next: &str| {
        let text = render(vec![question(), answer], has_tools)?;
        let (before, after) = text.rsplit_once(THOUGHT)?;
        let (between, _) = after.split_once(next)?;
        Some((start_mark(before, plain)?.to_owned(), between.to_owned()))
    };
    let parts = json!([{"type": "thinking", "thinking": THOUGHT}, {"type": "text", "text": CONTENT}]);
    let before_text = around(thought(answer(CONTENT.into())), false, CONTENT).map(|found| (found, false));
    let before_text = before_text.or_else(|| Some((around(answer(parts), false, CONTENT)?, true)));
    let before_call = around(with_calls(thought(answer("".into()))), true, NAME);
    let ((start, between), other, in_parts) = match (before_text, before_call) {
        (Some((text, in_parts)), call) => (text, call.map(|(_, between)| between), in_parts),
        (None, call) => (call?, None, false),
    };
    // What a text and a call share ends the thought, and not what begins them.
    let shared = other.and_then(|other| {
        let shared = shared_start(&between, &other);
        // The next mark may begin alike.
        let after_mark = shared.rfind(['>', ']'])?.saturating_add(1);
        let end = shared
            .get(after_mark..)?
            .find(['<', '['])
            .map_or(shared.len(), |at| after_mark.saturating_add(at));
        shared.get(..end).map(str::to_owned)
    });
    let end = shared.unwrap_or_else(|| first_mark(&between).to_owned()).trim().to_owned();
    (is_mark(&end) && end != start).then_some(ThoughtMarks { start, end, in_parts })
}

/// Returns the mark at the end of `before`, which is not that of an answer without a thought.
fn start_mark<'t>(before: &'t str, plain: &str) -> Option<&'t str> {
    let word = before.split_whitespace().next_back()?;
    let marks = word.match_indices(['<', '[']).rev().filter_map(|(at, _)| word.get(at..));
    let mut marks = marks.filter(|mark| !plain.trim_end().ends_with(mark));
    marks.next()
}

/// Returns true if a template removes the thoughts of earlier answers.
fn removes_thought(render: &dyn Fn(Vec<Value>) -> Option<String>) -> bool {
    let answer = format!("{START}\n{THOUGHT}\n{END}\n\n{CONTENT}");
    let answer = || json!({"role": "assistant", "content": answer});
    let text = render(vec![question(), answer(), question(), answer(), question()]);
    text.is_some_and(|text| text.matches(CONTENT).count() == 2 && text.matches(THOUGHT).count() < 2)
}

/// Returns true if a template begins the thought of the next answer, or gives one a thought that is empty.
fn begins_thought(render: &dyn Fn(Vec<Value>) -> Option<String>) -> bool {
    let answer = json!({"role": "assistant", "content": CONTENT});
    let before_answer = render(vec![question(), answer]);
    let before_answer = before_answer.and_then(|text| Some(text.rsplit_once(CONTENT)?.0.to_owned()));
    let mut texts = render(vec![question()]).into_iter().chain(before_answer);
    texts.any(|text| [START, END].iter().any(|mark| text.trim_end().ends_with(mark)))
}

/// Parser of an answer that arrives in pieces, which separates the thought at its start.
#[derive(Clone, Debug)]
pub(crate) struct ThoughtParser {
    marks: ThoughtMarks,
    /// Text that may belong to a mark, or white space next to one.
    held: String,
    state: ThoughtState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ThoughtState {
    Before,
    /// In the thought, of which a part was shown or not.
    Inside {
        is_shown: bool,
    },
    /// After the thought, before the answer.
    After,
    Answer,
}

impl ThoughtParser {
    pub(crate) fn new(marks: ThoughtMarks, place: ThoughtPlace) -> Self {
        let state = match place {
            ThoughtPlace::Begun => ThoughtState::Inside { is_shown: false },
            ThoughtPlace::Possible | ThoughtPlace::Ended => ThoughtState::Before,
        };
        Self { marks, held: String::new(), state }
    }

    /// Adds a piece of the answer. Returns the parts of the thought and of the answer that are decided on.
    pub(crate) fn push(&mut self, piece: &str) -> (String, String) {
        self.held.push_str(piece);
        let (mut thought, mut answer) = (String::new(), String::new());
        while self.advance(&mut thought, &mut answer) {}
        (thought, answer)
    }

    /// Returns the rest after the last piece.
    pub(crate) fn finish(&mut self) -> (String, String) {
        let rest = std::mem::take(&mut self.held);
        match self.state {
            ThoughtState::Before | ThoughtState::Answer => (String::new(), rest),
            ThoughtState::Inside { .. } => (rest.trim_end().to_owned(), String::new()),
            ThoughtState::After => Default::default(),
        }
    }

    /// Takes a step. Returns false if it needs more text.
    fn advance(&mut self, thought: &mut String, answer: &mut String) -> bool {
        match self.state {
            ThoughtState::Before => self.read_start(),
            ThoughtState::Inside { is_shown } => self.read_thought(is_shown, thought),
            ThoughtState::After => {
                self.held = self.held.trim_start().to_owned();
                self.state = if self.held.is_empty() { self.state } else { ThoughtState::Answer };
                !self.held.is_empty()
            }
            ThoughtState::Answer => {
                answer.push_str(&std::mem::take(&mut self.held));
                false
            }
        }
    }

    fn read_start(&mut self) -> bool {
        let text = self.held.trim_start();
        let ThoughtMarks { start, end, .. } = &self.marks;
        self.state = if let Some(rest) = text.strip_prefix(&**start) {
            self.held = rest.to_owned();
            ThoughtState::Inside { is_shown: false }
        } else if let Some(rest) = text.strip_prefix(&**end) {
            // Some models end a thought that they do not have.
            self.held = rest.to_owned();
            ThoughtState::After
        } else if start.starts_with(text) || end.starts_with(text) {
            return false;
        } else {
            ThoughtState::Answer
        };
        true
    }

    fn read_thought(&mut self, is_shown: bool, thought: &mut String) -> bool {
        if !is_shown {
            self.held = self.held.trim_start().to_owned();
        }
        let end = &self.marks.end;
        if let Some((before, after)) = self.held.split_once(&**end) {
            thought.push_str(before.trim_end());
            self.held = after.to_owned();
            self.state = ThoughtState::After;
            return true;
        }
        let begins = |start: &usize| self.held.get(*start..).is_some_and(|text| end.starts_with(text));
        let held = (self.held.len().saturating_sub(end.len())..self.held.len()).find(begins);
        let shown = self.held.get(..held.unwrap_or(self.held.len())).unwrap_or_default().trim_end();
        thought.push_str(shown);
        self.state = ThoughtState::Inside { is_shown: is_shown || !shown.is_empty() };
        self.held = self.held.get(shown.len()..).unwrap_or_default().to_owned();
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AnswerPiece, ChatTemplate, Conversation, Error};

    const QUESTION: &str = "<|user|>{{ m.content }}";
    const WRITTEN: &str = "<|assistant|>{% if m.reasoning_content %}{{ '<think>\n' ~ m.reasoning_content ~ '\n</think>\n\n' }}{% endif %}{{ m.content }}";
    const REMOVED: &str = "<|assistant|>{{ m.content.split('</think>')[-1] }}";
    const KEPT: &str = "<|assistant|>{{ m.content }}";
    const CHANNEL: &str = "<|turn>model\n{% if m.reasoning and m.tool_calls %}{{ '<|channel>thought\n' ~ m.reasoning ~ '\n<channel|>' }}{% endif %}\
                           {{ m.content }}{% for c in m.tool_calls or [] %}<|tool_call>call:{{ c.function.name }}{}{% endfor %}";
    const SEGMENTS: &str = "{% if m.reasoning %}<|assistant|><|think|>{{ m.reasoning }}<|end|>{% endif %}<|assistant|>{% if m.tool_calls %}<|calls|>{{ m.tool_calls[0].function.name }}\
                            {% else %}<|content|>{{ m.content }}{% endif %}<|end|>";
    const LINES: &str = "<|assistant|><|open|>think<|sep|>{{ m.reasoning_content }}<|close|>think<|sep|><|open|>response<|sep|>{{ m.content }}\
                         {% for c in m.tool_calls or [] %}<|open|>call={{ c.function.name }}{% endfor %}";
    const IN_PARTS: &str = "<|assistant|>{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}{{ '[THINK]' ~ p.thinking ~ '[/THINK]' if p.type == 'thinking' else p.text }}\
                            {% endfor %}{% endif %}";
    const IF_ASKED: &str =
        "<|assistant|>{% if thinking %}{{ '<t>' ~ m.reasoning_content ~ '</t>' }}{% endif %}{{ m.content }}";

    fn template(answer: &str, prompt: &str) -> ChatTemplate {
        let text = format!(
            "{{% for m in messages %}}{{% if m.role == 'user' %}}{QUESTION}{{% else %}}{answer}{{% endif %}}{{% endfor %}}{{% if add_generation_prompt %}}{prompt}{{% endif %}}"
        );
        let mut read =
            |name: &str| Ok::<_, Error>((name == "chat_template.jinja").then(|| text.clone().into_bytes()));
        ChatTemplate::from_documents(&mut read).expect("it compiles").expect("a template")
    }

    fn marks(answer: &str, prompt: &str) -> Option<(String, String)> {
        let template = template(answer, prompt);
        template.thoughts().map(|marks| (marks.start.clone(), marks.end.clone()))
    }

    #[test]
    fn templates_show_the_marks_of_thoughts() {
        let found = |start: &str, end: &str| Some((start.to_owned(), end.to_owned()));
        let default = found("<think>", "</think>");
        assert_eq!(marks(WRITTEN, "<|assistant|>"), default);
        assert_eq!(marks(REMOVED, "<|assistant|>"), default);
        assert_eq!(marks(KEPT, "<|assistant|><think>\n"), default);
        assert_eq!(
            marks(KEPT, "<|assistant|>{% if enable_thinking is false %}<think></think>{% endif %}"),
            default
        );
        assert_eq!(marks(CHANNEL, "<|turn>model\n"), found("<|channel>thought", "<channel|>"));
        assert_eq!(marks(SEGMENTS, "<|assistant|>"), found("<|think|>", "<|end|><|assistant|>"));
        let end = "<|close|>think<|sep|><|open|>response<|sep|>";
        assert_eq!(marks(LINES, "<|assistant|>"), found("<|open|>think<|sep|>", end));
        assert_eq!(marks(IN_PARTS, "<|assistant|>"), found("[THINK]", "[/THINK]"));
        assert_eq!(marks(IF_ASKED, "<|assistant|>"), found("<t>", "</t>"));
        for none in
            [KEPT, "{{ m }}", "{{ m | tojson }}", "<|assistant|>{{ m.content }}{{ m.reasoning_content }}"]
        {
            assert_eq!(marks(none, "<|assistant|>"), None, "{none}");
        }
    }

    #[test]
    fn prompts_show_where_the_thought_is() {
        let marks = |start: &str, end: &str| ThoughtMarks {
            start: start.to_owned(),
            end: end.to_owned(),
            in_parts: false,
        };
        let think = marks("<think>", "</think>");
        let segments = marks("<|think|>", "<|end|><|assistant|>");
        for (marks, prompt, place) in [
            (&think, "<|assistant|>", ThoughtPlace::Possible),
            (&think, "<|assistant|><think>\n", ThoughtPlace::Begun),
            (&think, "<|assistant|><think>\n\n</think>\n\n", ThoughtPlace::Ended),
            (&think, "<|assistant|></think>", ThoughtPlace::Ended),
            (&segments, "<|user|>a<|end|><|assistant|>", ThoughtPlace::Possible),
            (&segments, "<|end|><|assistant|><|think|><|end|><|assistant|>", ThoughtPlace::Ended),
        ] {
            assert_eq!(marks.place_after(prompt), place, "{prompt}");
        }
    }

    #[test]
    fn thoughts_go_back_as_the_template_takes_them() {
        let json = serde_json::json!([
            {"role": "user", "content": "Q"}, {"role": "assistant", "content": "A", "reasoning_content": "T"}, {"role": "user", "content": "R"},
        ]);
        let conversation: Conversation = serde_json::from_value(json).expect("a conversation");
        for (answer, text) in [
            (IN_PARTS, "<|assistant|>[THINK]T[/THINK]A"),
            (WRITTEN, "<|assistant|><think>\nT\n</think>\n\nA"),
            (SEGMENTS, "<|assistant|><|think|>T<|end|><|assistant|><|content|>A<|end|>"),
            (REMOVED, "<|assistant|>A"),
        ] {
            assert_eq!(
                template(answer, "").render(&conversation).expect("a text"),
                format!("<|user|>Q{text}<|user|>R")
            );
        }
    }

    /// Parses an answer whole, cut once at each character, and in characters.
    fn parsed(template: &ChatTemplate, prompt: &str, answer: &str) -> (String, String) {
        let parse = |pieces: &[&str]| {
            let mut parser = template.answer_parser(prompt, None);
            let (mut thought, mut text) = (String::new(), String::new());
            let mut all: Vec<AnswerPiece> = pieces.iter().flat_map(|piece| parser.push(piece)).collect();
            all.extend(parser.finish());
            for piece in all {
                match piece {
                    AnswerPiece::Text(piece) => text.push_str(&piece),
                    AnswerPiece::Reasoning(piece) => thought.push_str(&piece),
                    AnswerPiece::Call(call) => panic!("{call:?}"),
                }
            }
            (thought, text)
        };
        let whole = parse(&[answer]);
        for (at, _) in answer.char_indices() {
            let (one, other) = answer.split_at(at);
            assert_eq!(parse(&[one, other]), whole, "{one}|{other}");
        }
        assert_eq!(parse(&answer.split("").collect::<Vec<_>>()), whole, "{answer}");
        whole
    }

    #[test]
    fn answers_are_separated_from_their_thoughts() {
        let think = template(WRITTEN, "<|assistant|>");
        let segments = template(SEGMENTS, "<|assistant|>");
        for (template, prompt, answer, thought, text) in [
            (
                &think,
                "",
                "<think>\nIs 1 < 2?\n\nYes.\n</think>\n\nYes. <think> ",
                "Is 1 < 2?\n\nYes.",
                "Yes. <think> ",
            ),
            (&think, "<think>\n", "\nIs it </thin?\n</think>\n\nYes.", "Is it </thin?", "Yes."),
            (&think, "<think>\n", "It is too \n", "It is too", ""),
            (&think, "<think>\n", "It is </thi", "It is </thi", ""),
            (&think, "<think></think>", " Yes </think>.\n", "", " Yes </think>.\n"),
            (&think, "", "\n<think>\n\n</think>\n\n Yes", "", "Yes"),
            (&think, "", "</think>Yes", "", "Yes"),
            (&think, "", " <thin", "", " <thin"),
            (&think, "", "<thing>", "", "<thing>"),
            (&think, "", "", "", ""),
            (&segments, "", "<|think|>So<|end|><|assistant|>Yes", "So", "Yes"),
            (&segments, "", "<|think|>So<|end|>", "So<|end|>", ""),
        ] {
            assert_eq!(parsed(template, prompt, answer), (thought.to_owned(), text.to_owned()), "{answer:?}");
        }
    }
}

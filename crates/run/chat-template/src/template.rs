//! The chat templates of a model.

use std::sync::OnceLock;

use serde_json::{Map, Value, json};

use crate::answer::AnswerParts;
use crate::channels::{CHANNEL_MARKS, ChannelParser};
use crate::conversation::{CALL_FORMS, called_names, has_calls, has_reasoning, prepared, with_parts};
use crate::documents::{DEFAULT, TOOL_USE, TemplateDocuments};
use crate::meta::ReadDocument;
use crate::renderer::Renderer;
use crate::thoughts::{ThoughtMarks, ThoughtParser};
use crate::tools::ToolParser;
use crate::{AnswerParser, Conversation, Error, Message, Result, Tool, ToolSyntax, words_of_mark};

/// The chat templates of a model, compiled.
#[derive(Debug)]
pub struct ChatTemplate {
    /// Templates by their names.
    renderers: Vec<(String, Renderer)>,
    file: String,
    /// Special tokens by their names.
    tokens: Map<String, Value>,
    takes_parts: OnceLock<bool>,
    tool_syntax: OnceLock<Option<ToolSyntax>>,
    has_channels: OnceLock<bool>,
    thoughts: OnceLock<Option<ThoughtMarks>>,
}

impl ChatTemplate {
    /// Reads the chat templates among the documents of a model: `chat_template.jinja`, `tokenizer_config.json`, or Meta's own format
    /// if there is none and `params.json` is next to a `tokenizer.model`. `None` if the model has no format for conversations.
    ///
    /// # Errors
    /// Returns the errors of `read`, and an error if a document is damaged or a template is not understood.
    pub fn from_documents<E: From<Error>>(read: &mut ReadDocument<'_, E>) -> Result<Option<Self>, E> {
        let Some(documents) = TemplateDocuments::read(read)? else { return Ok(None) };
        let TemplateDocuments { templates, tokens } = documents;
        let file = templates.first().map(|(_, file, _)| file.clone()).unwrap_or_default();
        let compile = |(name, file, text): (String, String, String)| Ok((name, Renderer::new(&file, &text)?));
        let renderers = templates.into_iter().map(compile).collect::<Result<_>>()?;
        let (takes_parts, tool_syntax) = (OnceLock::new(), OnceLock::new());
        let (has_channels, thoughts) = (OnceLock::new(), OnceLock::new());
        Ok(Some(Self { renderers, file, tokens, takes_parts, tool_syntax, has_channels, thoughts }))
    }

    /// Returns the name of the document that has the template.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// Writes a conversation as the text that the model continues. Its special tokens are in the text, the first one too, so it is
    /// encoded without adding any.
    ///
    /// # Errors
    /// Returns an error if there are no messages, or the template refuses the conversation, fails, or takes too many steps.
    pub fn render(&self, conversation: &Conversation) -> Result<String> {
        let has_reasoning = conversation.messages.iter().any(has_reasoning);
        if has_reasoning && self.thoughts().is_some_and(|marks| marks.in_parts) {
            let messages = conversation.messages.iter().map(with_parts).collect();
            return self.render_as_it_is(&Conversation { messages, ..conversation.clone() });
        }
        self.render_as_it_is(conversation)
    }

    /// Writes a conversation whose thoughts have the form that the template takes.
    fn render_as_it_is(&self, conversation: &Conversation) -> Result<String> {
        if conversation.messages.is_empty() {
            return Err(Error::NoMessages);
        }
        let renderer = self.renderer(conversation.tools.is_some())?;
        let is_list = |message: &Message| message.get("content").is_some_and(Value::is_array);
        let joins_parts = conversation.messages.iter().any(is_list) && !self.takes_parts(renderer);
        let mut variables = self.tokens.clone();
        variables.extend(conversation.variables.clone());
        variables.insert("tools".to_owned(), json!(conversation.tools));
        variables.insert("documents".to_owned(), json!(conversation.documents));
        variables.insert("add_generation_prompt".to_owned(), Value::Bool(conversation.add_generation_prompt));
        let has_calls = conversation.messages.iter().any(has_calls);
        let forms = CALL_FORMS.iter().take(if has_calls { CALL_FORMS.len() } else { 1 });
        let mut texts = forms.map(|form| {
            let messages = conversation.messages.iter().map(|message| prepared(message, joins_parts, *form));
            variables.insert("messages".to_owned(), messages.map(Value::Object).collect());
            renderer.render(&variables)
        });
        // The error is that of the first form. A template that does not write calls refuses them.
        let first = texts.next().unwrap_or(Err(Error::NoMessages));
        let names: Vec<&str> = conversation.messages.iter().flat_map(called_names).collect();
        let has_calls = |text: &String| names.iter().all(|name| text.contains(name));
        first.or_else(|error| texts.filter_map(Result::ok).find(has_calls).ok_or(error))
    }

    /// Returns how the model writes calls of tools; `None` if the template does not show it, or shows a way that is not known.
    pub fn tool_syntax(&self) -> Option<&ToolSyntax> {
        self.tool_syntax.get_or_init(|| ToolSyntax::find(&|conversation| self.render(conversation))).as_ref()
    }

    /// Returns the marks around what the model writes for itself before an answer; `None` if the template shows none.
    pub fn thoughts(&self) -> Option<&ThoughtMarks> {
        let find = || {
            let marks = || ThoughtMarks::find(&|conversation| self.render_as_it_is(conversation));
            if self.has_channels() { None } else { marks() }
        };
        self.thoughts.get_or_init(find).as_ref()
    }

    /// Returns the texts in an answer that may be special tokens, and belong to its parts.
    pub fn answer_marks(&self, has_tools: bool) -> Vec<&str> {
        if self.has_channels() {
            return CHANNEL_MARKS.to_vec();
        }
        let syntax = self.tool_syntax().filter(|_| has_tools);
        let marks = syntax.map(ToolSyntax::marks).unwrap_or_default().into_iter();
        let marks = marks.chain(self.thoughts().into_iter().flat_map(|marks| [&*marks.start, &*marks.end]));
        marks.flat_map(words_of_mark).map(str::trim).collect()
    }

    /// Creates a parser for an answer to a prompt that the template wrote, with these tools if the model was shown any.
    pub fn answer_parser(&self, prompt: &str, tools: Option<Vec<Tool>>) -> AnswerParser {
        if self.has_channels() {
            let parts = AnswerParts::Channels(ChannelParser::new(tools.is_some()));
            return AnswerParser { thought: None, parts };
        }
        let thought =
            self.thoughts().map(|marks| ThoughtParser::new(marks.clone(), marks.place_after(prompt)));
        let parts = match (self.tool_syntax(), tools) {
            (Some(syntax), Some(tools)) => {
                AnswerParts::Calls(Box::new(ToolParser::new(syntax.clone(), tools)))
            }
            _ => AnswerParts::Text,
        };
        AnswerParser { thought, parts }
    }

    /// Returns true if the model writes its answers in channels.
    pub fn has_channels(&self) -> bool {
        *self.has_channels.get_or_init(|| {
            let text = |role: &str| {
                [("role", role), ("content", "a")].map(|(key, value)| (key.to_owned(), value.into()))
            };
            let messages =
                ["user", "assistant", "user"].map(|role| text(role).into_iter().collect()).to_vec();
            self.render(&Conversation::new(messages))
                .is_ok_and(|text| text.contains("<|channel|>final<|message|>a"))
        })
    }

    fn renderer(&self, has_tools: bool) -> Result<&Renderer> {
        if let [(_, only)] = self.renderers.as_slice() {
            return Ok(only);
        }
        let find = |wanted: &str| self.renderers.iter().find(|(name, _)| name == wanted);
        let found = find(TOOL_USE).filter(|_| has_tools).or_else(|| find(DEFAULT));
        let (_, renderer) = found.ok_or_else(|| Error::NoDefault {
            file: self.file.clone(),
            names: self.renderers.iter().map(|(name, _)| name.clone()).collect(),
        })?;
        Ok(renderer)
    }

    /// Returns true if the template writes the text of a content that is a list of parts. It is tried, because templates say so in
    /// many ways.
    fn takes_parts(&self, renderer: &Renderer) -> bool {
        const TEXT: &str = "a text of a part";
        *self.takes_parts.get_or_init(|| {
            let mut variables = self.tokens.clone();
            let content = json!([{ "type": "text", "text": TEXT }]);
            variables.insert("messages".to_owned(), json!([{ "role": "user", "content": content }]));
            variables.insert("tools".to_owned(), Value::Null);
            variables.insert("documents".to_owned(), Value::Null);
            variables.insert("add_generation_prompt".to_owned(), Value::Bool(true));
            let text = renderer.render(&variables).unwrap_or_default();
            // A list that is printed as it is has quotes around the text.
            text.contains(TEXT)
                && !text.contains(&format!("'{TEXT}'"))
                && !text.contains(&format!("\"{TEXT}\""))
        })
    }
}

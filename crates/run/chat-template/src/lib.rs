//! Conversations as the texts that chat models continue.
//!
//! [`ChatTemplate::from_documents`] reads the chat templates of a model's folder or carton, and [`ChatTemplate::render`] writes a
//! [`Conversation`] with them, as `apply_chat_template` of Hugging Face's `transformers` does. The crate opens no file.
//!
//! ```
//! use chat_template::{ChatTemplate, Conversation, Error};
//!
//! let mut read = |name: &str| Ok::<_, Error>((name == "chat_template.jinja").then(|| {
//!     b"{% for message in messages %}<{{ message.role }}>{{ message.content }}\n{% endfor %}".to_vec()
//! }));
//! let template = ChatTemplate::from_documents(&mut read)?.expect("there is a template");
//! let conversation: Conversation = serde_json::from_str(r#"[{"role": "user", "content": "Hi"}]"#).expect("JSON");
//! assert_eq!(template.render(&conversation)?, "<user>Hi\n");
//! # Ok::<(), Error>(())
//! ```
//!
//! Templates are untrusted programs in Jinja's language, which `minijinja` runs. `source.rs` bounds what its parser recurses on,
//! `guards.rs` puts filters around what it does without counting the steps, and its fuel bounds the rest: time and memory are
//! those of [`STEPS_MAX`] steps of 64 bytes. Nothing in a template can read a file or see another conversation.

mod answer;
mod answer_piece;
mod channels;
mod conversation;
mod documents;
mod error;
mod guards;
mod meta;
mod python;
mod renderer;
mod source;
mod tag;
mod template;
#[cfg(test)]
mod tests;
mod thoughts;
mod tools;

pub use answer::AnswerParser;
pub use answer_piece::AnswerPiece;
pub use conversation::{Conversation, Message};
pub use error::{Error, Result};
pub use meta::ReadDocument;
pub use renderer::STEPS_MAX;
pub use template::ChatTemplate;
pub use thoughts::{ThoughtMarks, ThoughtPlace};
pub use tools::{
    Attributes, CallBody, CallId, ElementMarks, Tool, ToolCall, ToolSyntax, texts_of_schema, words_of_mark,
};

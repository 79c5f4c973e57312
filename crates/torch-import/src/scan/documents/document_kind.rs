//! Kinds of documents, by their names.

use std::borrow::Cow;

use super::plain_text;
use crate::scan::unread::is_text;

/// Bytes at the start of a GGUF file in which its metadata must end.
pub(in crate::scan) const METADATA_MAX: usize = 32 << 20;

/// Extensions of compressed files, before which a document has its own.
const COMPRESSED: [&str; 6] = ["bz2", "gz", "lz4", "xz", "z", "zst"];

/// Kind of a document, as its name says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DocumentKind {
    Json,
    Yaml,
    /// Template of Jinja, such as that of chats.
    Template,
    /// Model of ggml, whose metadata has templates.
    Gguf,
    /// Sections of lines `KEY = VALUE`, as spaCy has them.
    Sections,
    /// Protocol buffers as text: a network of Caffe, or the settings of a model in Triton.
    ProtobufText,
    Toml,
    /// Superset of JSON that pyhocon and programs for the JVM read.
    Hocon,
    /// Name of the module that `MLflow` imports in the place of `pickle`, or for a model of Keras.
    ModuleName,
    /// Text whose name does not say what it is.
    Text,
}

impl DocumentKind {
    /// Returns the kind of a file; `None` if it is not a document.
    pub fn of(name: &str) -> Option<Self> {
        match name {
            "MLmodel" | "MLproject" => return Some(Self::Yaml),
            "keras_module.txt" | "pickle_module_info.txt" => return Some(Self::ModuleName),
            _ => {}
        }
        let (stem, extension) = name.rsplit_once('.')?;
        if COMPRESSED.iter().any(|known| extension.eq_ignore_ascii_case(known)) {
            return Self::of(stem);
        }
        let is = |known: &[&str]| known.iter().any(|known| extension.eq_ignore_ascii_case(known));
        if is(&["json", "json5", "jsonc", "zarray"]) {
            Some(Self::Json)
        } else if is(&["yaml", "yml"]) {
            Some(Self::Yaml)
        } else if is(&["toml"]) {
            Some(Self::Toml)
        } else if is(&["conf", "hocon"]) {
            Some(Self::Hocon)
        } else if is(&["cfg", "ini"]) {
            Some(Self::Sections)
        } else if is(&["onnxtxt", "pbtxt", "prototxt", "textproto", "txtpb"]) {
            Some(Self::ProtobufText)
        } else {
            let template = is(&["j2", "jinja", "jinja2"]).then_some(Self::Template);
            template.or_else(|| is(&["gguf"]).then_some(Self::Gguf))
        }
    }

    /// Returns the kind of a file or of a record of an archive. `start` returns its first bytes: stable-baselines3 calls a document
    /// `data`.
    pub fn with_content<'b>(name: &str, start: impl FnOnce() -> Cow<'b, [u8]>) -> Option<Self> {
        let base = name.rsplit('/').next().unwrap_or_default();
        let of_content = || {
            let start = start();
            let decoded = crate::scan::text_encoding::decode_text(&start);
            match decoded.trim_ascii_start() {
                // What follows is not known.
                [] if !start.is_empty() => Some(Self::Json),
                [b'[', rest @ ..] if is_section(rest) => Some(Self::Sections),
                [b'{' | b'[', ..] => Some(Self::Json),
                _ => None,
            }
        };
        Self::of(base).or_else(|| {
            let is_plain = base.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
                && !base.contains('.');
            if is_plain { of_content() } else { None }
        })
    }

    /// Returns [`Text`](Self::Text) for a text that has the name of no document and may be one, or data that a program evaluates.
    pub fn of_text(name: &str, start: &[u8]) -> Option<Self> {
        (plain_text::is_read(name) && is_text(start)).then_some(Self::Text)
    }

    /// Returns true if the reader of the kind accepts all bytes.
    pub(super) const fn is_lenient(self) -> bool {
        matches!(
            self,
            Self::Template
                | Self::Hocon
                | Self::Sections
                | Self::ProtobufText
                | Self::ModuleName
                | Self::Text
        )
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Yaml => "yaml",
            Self::Template => "jinja",
            Self::Gguf => "gguf",
            Self::Sections => "ini",
            Self::ProtobufText => "pbtxt",
            Self::Toml => "toml",
            Self::Hocon => "hocon",
            Self::ModuleName | Self::Text => "text",
        }
    }
}

/// Returns true for the rest of a line such as `[core]`, with which no JSON begins.
fn is_section(rest: &[u8]) -> bool {
    let line = rest.split(|byte| *byte == b'\n').next().unwrap_or_default().trim_ascii_end();
    let name = line.strip_suffix(b"]").unwrap_or_default();
    name.first().is_some_and(u8::is_ascii_alphabetic)
        && !matches!(name, b"true" | b"false" | b"null" | b"NaN" | b"Infinity")
        && !name.contains(&b',')
        && rest.contains(&b'\n')
}

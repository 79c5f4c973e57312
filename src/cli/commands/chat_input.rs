//! Lines that a person types in `torch2carton chat`: messages and commands.

/// A line of a conversation.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ChatLine<'t> {
    /// A message to the model.
    Message(&'t str),
    /// Nothing but white space.
    Blank,
    Help,
    /// Forgets all messages so far.
    Clear,
    /// New instructions; none if the text is empty.
    System(&'t str),
    /// Forgets the last message and its answer.
    Undo,
    /// Answers the last message again.
    Retry,
    Exit,
    Unknown(&'t str),
}

pub(super) const HELP: &str = "\
/system TEXT  give the model instructions; without a text, take them away
/clear        forget the messages
/undo         forget the last message and its answer
/retry        answer the last message again
/exit         leave, as Ctrl-D does
//TEXT        send a message that begins with a slash
Ctrl-C stops an answer.";

impl<'t> ChatLine<'t> {
    /// Reads a line. A message that begins with a slash has two of them.
    pub(super) fn parse(line: &'t str) -> Self {
        let line = line.strip_suffix('\n').map_or(line, |line| line.strip_suffix('\r').unwrap_or(line));
        if line.trim().is_empty() {
            return Self::Blank;
        }
        if line.starts_with("//") {
            return Self::Message(line.get(1..).unwrap_or_default());
        }
        if !line.starts_with('/') {
            return Self::Message(line);
        }
        let (command, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        match (command, rest.trim()) {
            ("/help" | "/?", _) => Self::Help,
            ("/clear" | "/new" | "/reset", _) => Self::Clear,
            ("/system", text) => Self::System(text),
            ("/undo", _) => Self::Undo,
            ("/retry" | "/regenerate", _) => Self::Retry,
            ("/exit" | "/quit" | "/bye", _) => Self::Exit,
            _ => Self::Unknown(command),
        }
    }
}

/// Returns a part of an answer as a part of one line: a line feed is `\n`.
pub(super) fn on_one_line(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\u{b}' | '\u{c}' | '\u{1c}'..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}' => {
                out.extend(c.escape_unicode());
            }
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_messages_or_commands() {
        for (line, wanted) in [
            ("Hi there \n", ChatLine::Message("Hi there ")),
            (" \r\n", ChatLine::Blank),
            ("", ChatLine::Blank),
            ("//etc\n", ChatLine::Message("/etc")),
            ("/system  Be brief. \r\n", ChatLine::System("Be brief.")),
            ("/system", ChatLine::System("")),
            ("/exit now\n", ChatLine::Exit),
            ("/nope x", ChatLine::Unknown("/nope")),
        ] {
            assert_eq!(ChatLine::parse(line), wanted, "{line:?}");
        }
    }

    #[test]
    fn an_answer_is_one_line() {
        assert_eq!(on_one_line("a\r\nb\u{2028}\tc\u{85}"), "a\\r\\nb\\u{2028}\tc\\u{85}");
    }
}

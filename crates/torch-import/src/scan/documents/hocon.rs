//! Reads HOCON: a superset of JSON in which values may be put together from parts, other values and other files.
//!
//! Only what means the same without them is read. Facts: `config_parser` of pyhocon 0.3, and the specification of HOCON.

use super::judge::Judge;

/// Word before the name of another file.
const INCLUDE: &str = "include";

/// Why a text was not read.
pub(super) enum NotRead {
    /// No reader of HOCON accepts it.
    Refused,
    /// A reader may accept it, for this reason.
    Unread(String),
}

/// Reads a document.
///
/// # Errors
/// What was not read, or may be read otherwise.
pub(super) fn read(bytes: &[u8], judge: &mut Judge<'_>) -> Result<(), NotRead> {
    let text = std::str::from_utf8(bytes).map_err(|_| unread("it is not UTF-8"))?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut reader = Reader { text, rest: text, judge, open: Vec::new() };
    reader.skip_lines();
    if !reader.rest.starts_with(['{', '[']) {
        reader.enter(true, 0)?;
    }
    while !reader.rest.is_empty() {
        reader.read_item()?;
        reader.skip_lines();
    }
    // The braces around a document may be missing.
    match reader.open.len() {
        0 => Ok(()),
        1 if !text.trim_start().starts_with(['{', '[']) => {
            reader.leave();
            Ok(())
        }
        _ => Err(NotRead::Refused),
    }
}

fn unread(reason: &str) -> NotRead {
    NotRead::Unread(reason.to_owned())
}

struct Reader<'t, 'j, 'n> {
    text: &'t str,
    rest: &'t str,
    judge: &'j mut Judge<'n>,
    /// For each open container, whether it is a map, and the keys of the path that leads to it.
    open: Vec<(bool, usize)>,
}

impl<'t> Reader<'t, '_, '_> {
    fn at(&self) -> u64 {
        self.text.len().saturating_sub(self.rest.len()) as u64
    }

    fn skip(&mut self, len: usize) -> &'t str {
        let (skipped, rest) = self.rest.split_at_checked(len).unwrap_or((self.rest, ""));
        self.rest = rest;
        skipped
    }

    /// Skips blanks, line ends, commas and comments.
    fn skip_lines(&mut self) {
        loop {
            self.rest = self.rest.trim_start_matches(|c: char| c.is_whitespace() || c == ',');
            if !self.rest.starts_with('#') && !self.rest.starts_with("//") {
                return;
            }
            self.rest = self.rest.find('\n').and_then(|end| self.rest.get(end..)).unwrap_or_default();
        }
    }

    fn enter(&mut self, is_map: bool, keys: usize) -> Result<(), NotRead> {
        self.open.push((is_map, keys));
        if self.judge.open(is_map) { Ok(()) } else { Err(unread("it has too many levels")) }
    }

    fn leave(&mut self) {
        if let Some((_, keys)) = self.open.pop() {
            (0..=keys).for_each(|_| self.judge.close(self.at()));
        }
    }

    /// Reads a member of a map, an element of a list, or the end of one.
    fn read_item(&mut self) -> Result<(), NotRead> {
        match (self.rest.chars().next(), self.open.last()) {
            (Some('}'), Some((true, _))) | (Some(']'), Some((false, _))) => {
                self.skip(1);
                self.leave();
                self.expect_end()
            }
            (_, Some((true, _))) => self.read_member(),
            (Some('{' | '['), None) if self.at() == 0 || self.text.trim_start() == self.rest => {
                self.read_value(0)
            }
            (_, Some((false, _))) => self.read_value(0),
            _ => Err(unread("text follows its end")),
        }
    }

    /// Reads a key, which may be a path, and its value.
    fn read_member(&mut self) -> Result<(), NotRead> {
        let path = self.read_path()?;
        self.skip_lines();
        if !self.rest.starts_with('{') {
            let separators = ["+=", "=", ":"];
            let separator =
                separators.iter().find(|it| self.rest.starts_with(**it)).ok_or(NotRead::Refused)?;
            self.skip(separator.len());
            self.skip_lines();
        }
        let Some((last, outer)) = path.split_last() else { return Err(NotRead::Refused) };
        for key in outer {
            self.judge.text(key, self.at());
            if !self.judge.open(true) {
                return Err(unread("it has too many levels"));
            }
        }
        self.judge.text(last, self.at());
        self.read_value(outer.len())
    }

    fn read_path(&mut self) -> Result<Vec<String>, NotRead> {
        let (mut path, mut key) = (Vec::new(), String::new());
        loop {
            let end = self.rest.find(['"', '=', ':', '{', '}', '[', ']', ',', '#', '\n', '+', '$', '\\']);
            let word = self.skip(end.unwrap_or(self.rest.len()));
            let start = word.trim_start().get(..INCLUDE.len());
            let is_include = path.is_empty() && start.is_some_and(|it| it.eq_ignore_ascii_case(INCLUDE));
            if is_include && (self.rest.starts_with('"') || word.contains('(')) {
                return Err(unread("it includes another file"));
            }
            let mut parts = word.split('.');
            key.push_str(parts.next().unwrap_or_default());
            for part in parts {
                path.push(std::mem::replace(&mut key, part.to_owned()));
            }
            match self.rest.chars().next() {
                Some('"') => key.push_str(&self.read_quoted()?),
                Some('$' | '\\') => return Err(unread("its keys have substitutions or escapes")),
                _ => break,
            }
        }
        path.push(key);
        Ok(path.into_iter().map(|key| key.trim().to_owned()).collect())
    }

    /// Reads a value, after which its path ends, too.
    fn read_value(&mut self, keys: usize) -> Result<(), NotRead> {
        if let Some(first) = self.rest.chars().next().filter(|first| matches!(first, '{' | '[')) {
            self.skip(1);
            return self.enter(first == '{', keys);
        }
        let at = self.at();
        let mut value = String::new();
        loop {
            let end = self.rest.find(|c: char| c.is_whitespace() || "\"{}[],#$\\=`^?!@*&".contains(c));
            let word =
                self.skip(if self.rest.starts_with("//") { 0 } else { end.unwrap_or(self.rest.len()) });
            value.push_str(word);
            match self.rest.chars().next() {
                None | Some('\n' | ',' | '}' | ']' | '#' | '/') => break,
                Some('"') => value.push_str(&self.read_quoted()?),
                Some('{' | '[') => return Err(unread("a value has several parts")),
                Some('$' | '\\') => return Err(unread("its values have substitutions or escapes")),
                Some(other) => {
                    value.push(other);
                    self.skip(other.len_utf8());
                }
            }
        }
        self.judge.text(value.trim(), at);
        (0..keys).for_each(|_| self.judge.close(at));
        Ok(())
    }

    /// Reads a text in quotes.
    fn read_quoted(&mut self) -> Result<String, NotRead> {
        if self.rest.starts_with("\"\"\"") {
            self.skip(3);
            let end = self.rest.find("\"\"\"").ok_or(NotRead::Refused)?;
            let text = self.skip(end).to_owned();
            let quotes = self.rest.bytes().take_while(|byte| *byte == b'"').count();
            return Ok([&text, self.skip(quotes).get(3..).unwrap_or_default()].concat());
        }
        self.skip(1);
        let mut text = String::new();
        loop {
            let end = self.rest.find(['"', '\\', '\n']).ok_or(NotRead::Refused)?;
            text.push_str(self.skip(end));
            match self.skip(1) {
                "\"" => return Ok(text),
                "\\" => text.push_str(match self.skip(1) {
                    "n" => "\n",
                    "t" => "\t",
                    "r" => "\r",
                    same @ ("\"" | "\\") => same,
                    _ => return Err(unread("it has escapes that readers disagree on")),
                }),
                _ => return Err(NotRead::Refused),
            }
        }
    }

    /// Expects that nothing continues a container.
    fn expect_end(&mut self) -> Result<(), NotRead> {
        self.rest = self.rest.trim_start_matches([' ', '\t', '\r']);
        let is_end = self.rest.is_empty()
            || self.rest.starts_with(['\n', ',', '}', ']', '#'])
            || self.rest.starts_with("//");
        if is_end { Ok(()) } else { Err(unread("a value has several parts")) }
    }
}

//! Finds what leaves the sandbox of a chat template.
//!
//! Facts: `jinja2/lexer.py` and `jinja2/sandbox.py` of Jinja 3.1, in whose `ImmutableSandboxedEnvironment` `transformers` renders the
//! template of a model.

/// Filters with an argument that names an attribute, and the place of that argument.
const ATTRIBUTE_FILTERS: [(&str, usize); 11] = [
    ("attr", 0),
    ("groupby", 0),
    ("join", 1),
    ("map", 0),
    ("max", 1),
    ("min", 1),
    ("rejectattr", 0),
    ("selectattr", 0),
    ("sort", 2),
    ("sum", 0),
    ("unique", 1),
];

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Name(String),
    Text(String),
    Symbol(char),
}

/// Words of Jinja before which there is a value, and after which one begins.
const OPERATORS: [&str; 8] = ["and", "elif", "else", "if", "in", "is", "not", "or"];

impl Token {
    /// Returns true for the end of a value, whose item an index names.
    fn is_value(&self) -> bool {
        match self {
            Self::Name(name) => !OPERATORS.contains(&name.as_str()),
            Self::Text(_) => true,
            Self::Symbol(symbol) => matches!(symbol, ')' | ']' | '}'),
        }
    }
}

/// Returns a name in the code of a template that no ordinary template has: an attribute with two underscores, or one that is
/// computed.
pub(super) fn find_hidden_attribute(template: &str) -> Option<String> {
    let mut rest = template;
    while let Some((_, code)) = rest.split_once('{') {
        rest = code;
        if let Some(comment) = code.strip_prefix('#') {
            rest = comment.split_once("#}").map_or("", |(_, after)| after);
        } else if let Some(code) = code.strip_prefix(['{', '%']) {
            let (tokens, after) = tokens(code);
            if let Some(found) = find_in_code(&tokens) {
                return Some(found);
            }
            rest = after;
            if let [Token::Name(statement), ..] = tokens.as_slice()
                && statement == "raw"
            {
                // Up to `{%- endraw %}`.
                let is_end = |code: &str| {
                    code.trim_start_matches(['-', '+', ' ', '\t', '\r', '\n']).starts_with("endraw")
                };
                let mut ends = after.match_indices("{%").map(|(at, _)| after.get(at..).unwrap_or_default());
                rest = ends.find(|end| is_end(end.get(2..).unwrap_or_default())).unwrap_or_default();
            }
        }
    }
    None
}

fn find_in_code(tokens: &[Token]) -> Option<String> {
    if let [Token::Name(statement), ..] = tokens
        && matches!(statement.as_str(), "import" | "from" | "include" | "extends")
    {
        return Some(statement.clone());
    }
    let mut before: Option<&Token> = None;
    let mut rest = tokens;
    while let Some((token, after)) = rest.split_first() {
        match token {
            Token::Symbol('[') if before.is_some_and(Token::is_value) && is_made_of_texts(after) => {
                return Some("a name that is made of texts".to_owned());
            }
            Token::Name(name) | Token::Text(name) if name.contains("__") && has_letter_after(name) => {
                return Some(name.clone());
            }
            Token::Text(text) if !text.is_empty() && text.bytes().all(|byte| byte == b'_') => {
                return Some(text.clone());
            }
            Token::Name(name)
                if before == Some(&Token::Symbol('|'))
                    && attribute_place(name)
                        .is_some_and(|place| !has_literal_argument(name, place, after)) =>
            {
                return Some(format!("|{name}"));
            }
            _ => {}
        }
        before = Some(token);
        rest = after;
    }
    None
}

/// Returns true if the index before the next `]` is a text that an operator or a filter makes.
fn is_made_of_texts(index: &[Token]) -> bool {
    let mut depth = 1_usize;
    let end = index.iter().position(|token| {
        match token {
            Token::Symbol('[') => depth = depth.saturating_add(1),
            Token::Symbol(']') => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth == 0
    });
    let index = index.get(..end.unwrap_or(index.len())).unwrap_or_default();
    index.iter().any(|token| matches!(token, Token::Text(_)))
        && index.iter().any(|token| matches!(token, Token::Symbol('~' | '+' | '%' | '*' | '|')))
}

/// Returns true if two underscores in a name have a letter after them, as in `__class__`.
fn has_letter_after(name: &str) -> bool {
    name.split("__").skip(1).any(|part| part.starts_with(|first: char| first.is_alphabetic()))
        && (name.starts_with('_') || name.contains(".__") || name.ends_with("__"))
}

fn attribute_place(filter: &str) -> Option<usize> {
    ATTRIBUTE_FILTERS.iter().find(|(known, _)| *known == filter).map(|(_, place)| *place)
}

/// Returns true if the attribute that a filter takes is a plain text, or if it takes none.
fn has_literal_argument(filter: &str, place: usize, after: &[Token]) -> bool {
    let [Token::Symbol('('), after @ ..] = after else { return filter != "attr" };
    let is_literal = |value: &[Token]| match value {
        [] | [Token::Text(_)] => true,
        [Token::Name(name)] => name.starts_with(|first: char| first.is_ascii_digit()),
        _ => false,
    };
    let arguments = arguments(after);
    // `map('attr', …)` is another filter with its arguments.
    let inner = arguments.first().and_then(|first| match first {
        [Token::Text(inner)] if filter == "map" => attribute_place(inner),
        _ => None,
    });
    arguments.iter().enumerate().all(|(at, argument)| match argument {
        [Token::Name(name), Token::Symbol('='), value @ ..] if value.first() != Some(&Token::Symbol('=')) => {
            name != "attribute" || is_literal(value)
        }
        [Token::Symbol('*'), ..] => false,
        value => at != place && inner.is_none() || is_literal(value),
    })
}

/// Splits the arguments of a call, up to its parenthesis.
fn arguments(tokens: &[Token]) -> Vec<&[Token]> {
    let (mut found, mut start, mut depth) = (Vec::new(), 0, 0_usize);
    for (at, token) in tokens.iter().enumerate() {
        match token {
            Token::Symbol('(' | '[' | '{') => depth = depth.saturating_add(1),
            Token::Symbol(')') if depth == 0 => {
                found.push(tokens.get(start..at).unwrap_or_default());
                return found;
            }
            Token::Symbol(')' | ']' | '}') => depth = depth.saturating_sub(1),
            Token::Symbol(',') if depth == 0 => {
                found.push(tokens.get(start..at).unwrap_or_default());
                start = at.saturating_add(1);
            }
            _ => {}
        }
    }
    found.push(tokens.get(start..).unwrap_or_default());
    found
}

/// Splits the code of a block, up to its end, and returns the text after it.
fn tokens(code: &str) -> (Vec<Token>, &str) {
    let mut tokens = Vec::new();
    let mut rest = code;
    loop {
        let Some(first) = rest.chars().next() else { return (tokens, "") };
        let is_end = rest.starts_with("}}") || rest.starts_with("%}");
        let mut len = first.len_utf8();
        match first {
            _ if is_end => return (tokens, rest.get(2..).unwrap_or_default()),
            '"' | '\'' => {
                let (text, end) = literal(rest, first);
                // Texts in a row are one.
                match tokens.last_mut() {
                    Some(Token::Text(before)) => before.push_str(&text),
                    _ => tokens.push(Token::Text(text)),
                }
                len = end;
            }
            _ if first.is_alphanumeric() || first == '_' => {
                len = rest.find(|it: char| !(it.is_alphanumeric() || it == '_')).unwrap_or(rest.len());
                tokens.push(Token::Name(rest.get(..len).unwrap_or_default().to_owned()));
            }
            _ if first.is_whitespace() || tokens.is_empty() && matches!(first, '-' | '+') => {}
            _ => tokens.push(Token::Symbol(first)),
        }
        rest = rest.get(len..).unwrap_or_default();
    }
}

/// Returns the value of a text in quotes, and its length with them.
fn literal(code: &str, quote: char) -> (String, usize) {
    let mut value = String::new();
    let mut at = 1_usize;
    while let Some(rest) = code.get(at..).filter(|rest| !rest.is_empty()) {
        let mut chars = rest.chars();
        let Some(next) = chars.next() else { break };
        if next == quote {
            return (value, at.saturating_add(1));
        }
        let (decoded, len) =
            if next == '\\' { escape(chars.as_str()) } else { (Some(next), next.len_utf8()) };
        value.extend(decoded);
        at = at.saturating_add(len);
    }
    (value, code.len())
}

/// Returns the character of an escape after its backslash, and the length of the escape with it.
fn escape(rest: &str) -> (Option<char>, usize) {
    let Some(kind) = rest.chars().next() else { return (None, 1) };
    let number = |start: usize, digits: usize, radix: u32| {
        let digits: String = rest
            .get(start..)
            .unwrap_or_default()
            .chars()
            .take(digits)
            .take_while(|it| it.is_digit(radix))
            .collect();
        (
            u32::from_str_radix(&digits, radix).ok().and_then(char::from_u32),
            start.saturating_add(digits.len()).saturating_add(1),
        )
    };
    match kind {
        'x' => number(1, 2, 16),
        'u' => number(1, 4, 16),
        'U' => number(1, 8, 16),
        '0'..='7' => number(0, 3, 8),
        // `\N{LOW LINE}`, the name of a character.
        'N' => (Some('_'), rest.find('}').map_or(2, |end| end.saturating_add(2))),
        other => (Some(other), other.len_utf8().saturating_add(1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_templates_are_silent() {
        for text in [
            "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] }}{% endfor %}",
            "{%- if messages[0].role == 'system' -%}{{ messages|selectattr('role', 'equalto', 'user')|list }}{% endif %}",
            "{{ tools | map(attribute='function') | tojson(indent=4) }} __class__ is text {{ x|map('upper') }}",
            "{{ 'snake_case' ~ bos_token }}{{ namespace(is_first=true) }}{{ '<__start__>' }}",
            "{{ m['a'][x ~ y][1:] }}{% if x in ['a' ~ b, 'c'] %}{{ [{'role': 'a' + b}] + x[i % 2] }}{% endif %}",
            "{{ x|sort(true)|join(sep)|max(attribute='a') }}{{ x|join(', ', 'a')|sort(attribute='b', reverse=y) }}{{ x|selectattr('a', 'equalto', y == 1)|map('join', ',') }}",
            "{% set ns.is_tool = false %}{{- content.split('</think>')[-1].lstrip('\\n') }}{{ items|sum(start=0) }}",
        ] {
            assert_eq!(find_hidden_attribute(text), None, "{text}");
        }
    }

    #[test]
    fn attributes_of_the_interpreter_are_found() {
        for text in [
            "{{ x.__class__ }}",
            "{{ x['__globals__'] }}",
            "{% if x|attr('__init__') %}",
            "{{ x|attr('\\x5f\\x5fclass\\x5f\\x5f') }}",
            "{{ x['_' '_class_' '_'] }}",
            "{{ x|attr(y) }}",
            "{{ x | attr ('a' ~ b) }}",
            "{{ x|map(attribute=y) }}",
            "{{ x[u ~ 'class' ~ '__'] }}",
            "{{ '_' * 2 }}",
            "{{ x['%c%cclass%c%c' % (95, 95, 95, 95)] }}",
            "{{ x.y[(['a', 'b'] | join)] }}",
            "{{ x|sort(attribute=y) }}",
            "{{ x|sort(false, false, y) }}",
            "{{ x|join(',', y) }}",
            "{{ x|map('attr', y) }}",
            "{{ x|map('sum', attribute=y) }}",
            "{{ x|map(*y) }}",
            "{{ ''['A' ~ 'b'] }}",
            "{%- import 'a' as b %}",
            "{# {{ ' #}{{ x.__class__ }}",
            "{% raw -%}{{ ' {%- endraw %}{{ x.__class__ }}",
            "{{ '}}' }}{{ cycler.__init__.__globals__.os.popen('id').read() }}",
        ] {
            assert!(find_hidden_attribute(text).is_some(), "{text}");
        }
    }
}

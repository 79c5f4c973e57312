//! Rewrites the text of a template before it is compiled, and bounds what the compiler recurses on.
//!
//! Facts: Jinja reads any line end as a line feed and has `{% generation %}` only as an extension of `transformers`, whose body is
//! rendered like the rest. `~` joins what `str` makes of its operands, so each operand gets the filter `string`.
//!
//! The parser of `minijinja` 3.1 recurses without a bound on chains of operators and of `elif`, and its operators walk lists in
//! lists without counting the steps: a list that has the one before twice, forty times over, is small and takes hours to compare.
//! So the operands of comparisons, the keys of lookups and what a namespace keeps get filters, too.

use crate::tag::{TOKENS_MAX, TagToken, tokens};
use crate::{Error, Result, guards};

/// Maximum number of `elif` tags in a template.
const ELIFS_MAX: usize = 500;
/// Maximum size of a template, in bytes; the longest of released models have about 20,000.
const TEMPLATE_MAX: usize = 1 << 18;

/// Returns the text that is compiled instead of `source`, with the same lines.
///
/// # Errors
/// Returns an error if the template is too long, or has too many tokens in a tag or too many branches.
pub(crate) fn prepare(file: &str, source: &str) -> Result<String> {
    if source.len() > TEMPLATE_MAX {
        let (found, limit) = (source.len(), TEMPLATE_MAX);
        return Err(Error::LongTemplate { file: file.to_owned(), found, limit });
    }
    let source = source.replace("\r\n", "\n").replace('\r', "\n");
    let mut out = String::with_capacity(source.len());
    let (mut rest, mut elifs) = (source.as_str(), 0_usize);
    let too_many = |out: &str, what, limit| Error::ComplexTemplate {
        file: file.to_owned(),
        line: out.matches('\n').count().saturating_add(1),
        what,
        limit,
    };
    while let Some(at) = next_tag(rest) {
        let (text, tag) = rest.split_at(at);
        out.push_str(text);
        if tag.starts_with("{#") {
            let end = tag.find("#}").map_or(tag.len(), |end| end.saturating_add(2));
            rest = copy(&mut out, tag, end);
            continue;
        }
        let tokens = tokens(tag);
        let tokens = tokens.ok_or_else(|| too_many(&out, "words and signs in a tag", TOKENS_MAX))?;
        let is_block = tag.starts_with("{%");
        let word = tokens.get(1).map(|token| token.text).filter(|_| is_block);
        if word == Some("raw") {
            let end = end_of_raw(tag).unwrap_or(tag.len());
            rest = copy(&mut out, tag, end);
            continue;
        }
        elifs = elifs.saturating_add(usize::from(word == Some("elif")));
        if elifs > ELIFS_MAX {
            return Err(too_many(&out, "elif tags", ELIFS_MAX));
        }
        rest = tag.get(tokens.last().map_or(0, TagToken::end)..).unwrap_or_default();
        guards::write_tag(&mut out, &tokens, is_block);
    }
    out.push_str(rest);
    Ok(out)
}

/// Returns the position of the next tag or comment.
fn next_tag(text: &str) -> Option<usize> {
    let starts = |at: &usize| {
        text.get(*at..).is_some_and(|rest| ["{%", "{{", "{#"].iter().any(|start| rest.starts_with(start)))
    };
    text.match_indices('{').map(|(at, _)| at).find(starts)
}

/// Copies the first `end` bytes and returns the rest.
fn copy<'s>(out: &mut String, text: &'s str, end: usize) -> &'s str {
    let (copied, rest) = text.split_at_checked(end).unwrap_or((text, ""));
    out.push_str(copied);
    rest
}

/// Returns the end of the tag `endraw`.
fn end_of_raw(text: &str) -> Option<usize> {
    text.match_indices("{%").map(|(at, _)| at).find_map(|at| {
        let inner = text.get(at.saturating_add(2)..)?.trim_start_matches(['-', '+']).trim_start();
        let rest = inner.strip_prefix("endraw")?.trim_start().trim_start_matches(['-', '+']);
        Some(text.len().saturating_sub(rest.strip_prefix("%}")?.len()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prepared(source: &str) -> String {
        prepare("f", source).expect("short").replace("__", "")
    }

    #[test]
    fn operands_get_filters() {
        for (source, wanted) in [
            ("{{ a ~ b }}", "{{ (a)|string ~ (b)|string }}"),
            (
                "{{ a + b ~ c * 2 ~ -d|f(x ~ y) }}",
                "{{ a + (b)|string ~ (c * 2)|string ~ (-d|f((x)|string ~ (y)|string))|string }}",
            ),
            (
                "{%- if not a.b[0] ~ 'x }}' in c -%}",
                "{%- if not ((a.b[0])|string ~ ('x }}')|string)|guard in (c)|guard -%}",
            ),
            (
                "{{ {'a': {'b': 1 ~ 2, c: d}, e: f} }}",
                "{{ {'a': {'b': (1)|string ~ (2)|string, (c)|guard: d}, (e)|guard: f} }}",
            ),
            (
                "{% set x = (a ~ b) ~ c if d is not none ~ 1 else e %}",
                "{% set x = (((a)|string ~ (b)|string))|string ~ (c)|string if (d is not none)|string ~ (1)|string else e %}",
            ),
            ("{% for x in y if x == 'a' and 2 < z %}", "{% for x in y if (x)|guard == 'a' and 2 < z %}"),
            ("{{ a[b] == a[1:c][-1] }}", "{{ (a[(b)|guard])|guard == a[1:c][(-1)|guard] }}"),
            ("{{ a not in b or 'c' not in d }}", "{{ (a)|guard not in (b)|guard or 'c' not in (d)|guard }}"),
            ("{{ a is in b and a is not in b }}", "{{ a is in b and a is not in b }}"),
            ("{%- set ns.x = a, b -%}", "{%- set ns.x = (a, b)|store -%}"),
            ("{% raw %}{{ a ~ b }}{% endraw %}{# a ~ b #}", "{% raw %}{{ a ~ b }}{% endraw %}{# a ~ b #}"),
            ("a\r\n{%- generation %}\r{% endgeneration -%}", "a\n{%- with %}\n{% endwith -%}"),
            ("{{ '{% generation %}' }}{{ generation", "{{ '{% generation %}' }}{{ generation"),
        ] {
            assert_eq!(prepared(source), wanted);
        }
    }

    #[test]
    fn long_chains_are_refused_at_their_line() {
        let tag = format!("\n{{{{ {}1 }}}}", "1+".repeat(2000));
        assert!(matches!(prepare("f", &tag), Err(Error::ComplexTemplate { line: 2, .. })));
        let tag = format!("{{% if a %}}{}{{% endif %}}", "{% elif a %}\n".repeat(501));
        assert!(matches!(prepare("f", &tag), Err(Error::ComplexTemplate { line: 501, .. })));
        assert!(matches!(prepare("f", &" ".repeat(1 << 21)), Err(Error::LongTemplate { .. })));
    }
}

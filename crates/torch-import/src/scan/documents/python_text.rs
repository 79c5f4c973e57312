//! Recognises texts that are code of Python, whatever key they are under: what a program evaluates is not known from a document.
//!
//! Facts: the grammar of expressions and `Lib/tokenize.py` of CPython 3.13. MONAI, fairseq, YOLO, `axlearn`, RVC, `PySR` and the
//! deployed models of `PaddleDetection` and `PaddleOCR`, whose operators are keys, evaluate texts.

use super::callable::is_dangerous_chain;
use super::expression::has;

/// Functions of Python that run texts or reach other objects.
const BUILTINS: &str = "__build_class__ __import__ breakpoint compile delattr eval exec execfile getattr globals locals setattr vars";
/// Functions that need no arguments for that.
const NAMESPACES: &str = "breakpoint globals locals vars";
/// Names that lead from any object to every module.
const INSIDES: [&str; 5] = ["__import__", "__builtins__", "__globals__", "__subclasses__", "__loader__"];
/// Words between two operands, or before one.
const KEYWORDS: &str = "and as assert async await class def del elif else except finally for from global if import in is lambda nonlocal not or pass raise return try while with yield";
/// Characters before a bracket that calls nothing: after anything else, it is a call.
const OPERATORS: &str = "([{,=+-*/%<>:!&|^~@";

/// Returns true for a text that MONAI gives to `eval` or `exec`: `$` and an import, or a call of something that is not a number.
pub(super) fn is_python_text(text: &str) -> bool {
    let Some(code) = text.strip_prefix('$') else { return false };
    let is_import = |keyword: &str| {
        let rest = code.trim_start().strip_prefix(keyword);
        rest.is_some_and(|rest| !rest.starts_with(is_word))
    };
    is_import("import") || is_import("from") || calls_something(code)
}

/// Returns true for an expression of Python with a call, such as `[f(512)] * 4`; `[(512, 10, 5)] * 4` has none. Before the bracket of a
/// call may be blanks, comments and continued lines.
pub(super) fn calls_something(expression: &str) -> bool {
    let is_called = |at: usize| {
        let before = expression.get(..at).unwrap_or_default().trim_end();
        let word = before.rsplit(|c: char| !is_word(c)).next().unwrap_or_default();
        let is_number = word.starts_with(|first: char| first.is_ascii_digit());
        !before.is_empty() && !before.ends_with(|last: char| OPERATORS.contains(last)) && !is_number
    };
    expression.match_indices('(').any(|(at, _)| is_called(at))
}

/// Returns true for a text that is meant to run if something evaluates it: a call by way of the insides of Python, or code that calls
/// something dangerous. Prose that names such a function is not meant.
pub(in crate::scan) fn runs_code(text: &str) -> bool {
    text.contains('(') && (reaches_code(text) || calls(text, &is_dangerous_function))
}

/// Returns true for such a text in a pickle, which may have the sources of its classes, and lines of them.
pub(super) fn runs_code_in_pickle(text: &str) -> bool {
    let is_evaluation = |chain: &str| matches!(chain, "eval" | "exec");
    text.contains('(') && (reaches_code(text) || !text.contains('\n') && calls(text, &is_evaluation))
}

/// Returns true for a call by way of names that no program writes into its data.
fn reaches_code(text: &str) -> bool {
    INSIDES.iter().any(|name| text.contains(name)) && calls_something(text)
}

/// Returns true for lines of Python's code: the first one imports or defines something, and another one follows.
pub(super) fn is_source(text: &str) -> bool {
    let mut lines = text.lines().map(str::trim_end).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let is_code = |line: &str| {
        let starts = |keyword: &str| line.strip_prefix(keyword).is_some_and(|rest| rest.starts_with(' '));
        starts("import") && line.split(' ').count() == 2
            || starts("from") && line.contains(" import ")
            || (starts("def") || starts("class") || line.starts_with("async def ")) && line.ends_with(':')
            || line.starts_with('@') && !line.contains(' ')
    };
    lines.next().is_some_and(is_code) && lines.next().is_some()
}

/// Returns true for code that calls something and names a function that `is_meant`, such as `exec('…')`, `(exec)('…')` or `map(exec, x)`.
/// In code, two names follow one another only with a keyword or an operator between them.
fn calls(text: &str, is_meant: &dyn Fn(&str) -> bool) -> bool {
    let mut reader = Reader::new(text, is_meant);
    while let Some(goes_on) = reader.read() {
        if !goes_on {
            return reader.has_call && reader.is_found;
        }
    }
    false
}

/// Reader of the tokens of a text.
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
struct Reader<'t> {
    rest: &'t str,
    is_meant: &'t dyn Fn(&str) -> bool,
    /// Names joined by dots, if the last token is one of them.
    chain: String,
    /// True after a name, a text or a closing bracket.
    is_operand: bool,
    /// True after a dot.
    is_joined: bool,
    has_call: bool,
    is_found: bool,
}

impl<'t> Reader<'t> {
    fn new(rest: &'t str, is_meant: &'t dyn Fn(&str) -> bool) -> Self {
        let chain = String::new();
        Self { rest, is_meant, chain, is_operand: false, is_joined: false, has_call: false, is_found: false }
    }

    /// Reads a token. Returns false at the end, and `None` where the text is not code.
    fn read(&mut self) -> Option<bool> {
        let Some(first) = self.rest.chars().next() else {
            self.end(false);
            return Some(false);
        };
        let mut len = first.len_utf8();
        match first {
            // Within brackets, a line goes on in the next one.
            '\n' => self.is_operand = false,
            '#' => {
                self.rest = self.rest.find('\n').and_then(|at| self.rest.get(at..)).unwrap_or_default();
                return Some(true);
            }
            '\\' | ' ' | '\t' | '\r' => {}
            '"' | '\'' => {
                len = text_len(self.rest, first)?;
                // Texts in a row are one text.
                if self.is_operand && !self.chain.is_empty() {
                    return None;
                }
                self.end(true);
            }
            _ if is_word(first) => {
                len = self.rest.find(|c: char| !is_word(c)).unwrap_or(self.rest.len());
                self.word(len)?;
            }
            '(' => {
                let arguments = self.rest.get(1..).unwrap_or_default().trim_start();
                let is_called = self.is_operand || !self.chain.is_empty();
                self.has_call |= is_called && !arguments.is_empty() && !arguments.starts_with(')')
                    || has(NAMESPACES, &self.chain);
                // Any other `open` is a word for something that opens.
                self.is_found |= self.chain == "open" && arguments.starts_with(['"', '\'']);
                self.end(false);
            }
            '.' => (self.is_joined, self.is_operand) = (!self.chain.is_empty(), false),
            ')' | ']' | '}' => self.end(true),
            // The name of an argument.
            '=' if !self.rest.starts_with("==") => {
                self.chain.clear();
                self.end(false);
            }
            _ => self.end(false),
        }
        self.rest = self.rest.get(len..).unwrap_or_default();
        Some(true)
    }

    /// Takes the word of a length; `None` if it follows another operand.
    fn word(&mut self, len: usize) -> Option<()> {
        let (word, after) = self.rest.split_at_checked(len)?;
        if has(KEYWORDS, word) {
            self.end(false);
            return Some(());
        }
        if self.is_operand {
            return None;
        }
        // The prefix of a text, as in `rb'…'`.
        if len <= 2 && after.starts_with(['"', '\'']) {
            self.end(false);
            if word.contains(['f', 'F', 't', 'T']) {
                self.formatted(after);
            }
            return Some(());
        }
        let is_joined = self.is_joined;
        if is_joined {
            self.chain.push('.');
        } else {
            self.end(false);
        }
        self.chain.push_str(word);
        self.is_joined = false;
        // Python ends the number in `1else`.
        self.is_operand = is_joined || !word.starts_with(|first: char| first.is_ascii_digit());
        Some(())
    }

    /// Reads the expressions in a formatted text.
    fn formatted(&mut self, text: &str) {
        let end = text.chars().next().and_then(|quote| text_len(text, quote)).unwrap_or(text.len());
        for part in text.get(..end).unwrap_or_default().split(['{', '}']).skip(1) {
            let mut inner = Reader::new(part, self.is_meant);
            while inner.read() == Some(true) {}
            self.has_call |= inner.has_call;
            self.is_found |= inner.is_found;
        }
    }

    /// Ends a name.
    fn end(&mut self, is_operand: bool) {
        self.is_found |= !self.chain.is_empty() && (self.is_meant)(&self.chain);
        self.chain.clear();
        (self.is_operand, self.is_joined) = (is_operand, false);
    }
}

fn is_dangerous_function(chain: &str) -> bool {
    // Python reads letters of other alphabets, such as `𝐞`, as the plain ones.
    if chain.contains(is_variant) {
        return true;
    }
    match chain.split_once('.') {
        None => has(BUILTINS, chain),
        Some(("np", name)) => is_dangerous_chain(&["numpy.", name].concat()),
        Some(("pd", name)) => is_dangerous_chain(&["pandas.", name].concat()),
        Some(_) => is_dangerous_chain(chain),
    }
}

/// Returns true for a letter that is another one in an identifier of Python, which normalizes them.
fn is_variant(letter: char) -> bool {
    matches!(letter, 'ª' | 'º' | 'ſ' | '\u{1d2c}'..='\u{1d6a}' | '\u{2070}'..='\u{209c}' | '\u{2100}'..='\u{214f}' | '\u{ff21}'..='\u{ff5a}' | '\u{1d400}'..='\u{1d7ff}')
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Returns the length of a text in quotes; `None` if it has no end.
fn text_len(code: &str, quote: char) -> Option<usize> {
    let mut long = [0; 3];
    long.fill(u8::try_from(u32::from(quote)).ok()?);
    let end = if code.as_bytes().starts_with(&long) { &long[..] } else { &long[..1] };
    let mut at = end.len();
    loop {
        let rest = code.as_bytes().get(at..).filter(|rest| !rest.is_empty())?;
        if rest.starts_with(end) {
            return at.checked_add(end.len());
        }
        let len = match rest.first() {
            Some(b'\\') => 2,
            Some(b'\n') if end.len() == 1 => return None,
            _ => 1,
        };
        at = at.checked_add(len)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_told_from_prose_and_data() {
        for text in [
            "__import__('os').system('id')",
            "[x for x in ().__class__.__base__.__subclasses__()]",
            "exec('import os')",
            "import os; os.system('id')",
            "from os import path\nx = 1\nos . system ('id')",
            "{'sample_rate': exec(\"import os\")}",
            "(eval#\n('1'))",
            "eval\\\n('1')",
            "lambda x: getattr(x, 'y')",
            "1 if vars()['x'] else 2",
            "𝐞𝐯𝐚𝐥('1')",
            "subprocess.run(['id'], shell=True)",
            "pickle.loads(x)",
            "f(r'a', b\"b\") or os.popen('id')",
            "(exec)('x')",
            "[eval][0]('x')",
            "list(map(exec, ['x']))",
            "exec('x')if 1else 2",
            "exec('x') + 0x1f",
            "f\"a b {exec('x')} c d\"",
            "open('a', 'w').write('b')",
            "np.load('a.npy', allow_pickle=True)",
            "max(['x'], key=eval)",
        ] {
            assert!(runs_code(text), "{text}");
        }
        for text in [
            "nn.LeakyReLU(0.1)",
            "torch.optim.AdamW(lr=0.1, betas=(0.9, 0.999))",
            "Call eval(x) on each expression, or os.system('x').",
            "You can use exec('code') to run code",
            "eval()",
            "exec (",
            "model.forward(mode)",
            "it's open(door)",
            "[(512, 10, 5)] + [(512, 3, 2)] * 4",
            "动物(猫)",
            "__init__ (self)",
            "__import__",
            "open(door)",
            "f(eval=True, compile=False)",
            "eval",
            "f'a {b} eval'",
            "print('hello')",
        ] {
            assert!(!runs_code(text), "{text}");
        }
        for (text, expected) in [
            ("exec('import os')", true),
            ("__import__('os').mkdir('ran')", true),
            ("return torch._C._nn.hardswish(input)", false),
            ("class A:\n    x = eval('1')\n    y = getattr(x, 'y')", false),
        ] {
            assert_eq!(runs_code_in_pickle(text), expected, "{text}");
        }
    }

    #[test]
    fn calls_are_found_however_they_are_written() {
        for text in ["f(1)", "f (1)", "f\\\n(1)", "f#\n(1)", "f[0](1)", "f()(1)", "ℯval·(1)"] {
            assert!(calls_something(text), "{text}");
        }
        for text in ["(1, 2)", "[(512, 10, 5)] * 4", "3 * (1 + 2)", "2 (1)", "{1: (2)}", ""] {
            assert!(!calls_something(text), "{text}");
        }
        for text in ["$import os", "$import\tos", "$ from\\\nos import path", "$f(1)"] {
            assert!(is_python_text(text), "{text}");
        }
        for text in ["$important", "$@a + @b", "import os", "$5.00"] {
            assert!(!is_python_text(text), "{text}");
        }
    }

    #[test]
    fn source_text_begins_with_code() {
        for text in [
            "import os\nx = 1",
            "# a\n\nfrom a import b\nb()",
            "def f(x):\n    return x",
            "@tool\ndef f(): pass",
        ] {
            assert!(is_source(text), "{text}");
        }
        for text in [
            "import os",
            "import of goods\nis taxed",
            "class of 1999:",
            "from here\nto there",
            "a\nimport os",
        ] {
            assert!(!is_source(text), "{text}");
        }
    }
}

//! Grammar of the texts in exported programs that Python evaluates.
//!
//! Facts: `torch/_export/serde/serialize.py` of PyTorch 2.15, which writes expressions with sympy's `srepr`, and wrote them with `str`
//! before 2.7; `torch/export/_unlift.py`, which runs guards.

/// Functions that expressions of PyTorch call.
const FUNCTIONS: &str = "Abs Add And CeilDiv CeilToInt CleanDiv Eq Equality ExprCondPair Float FloatPow FloatTrueDiv FloorDiv FloorToInt Ge GreaterThan Gt Identity IntInfinity IntTrueDiv Integer IsNonOverlappingAndDenseIndicator LShift Le LessThan Lt Max Min Mod ModularIndexing Mul Ne NegativeIntInfinity Not Or Piecewise Pow PowByNatural PythonMod RShift Rational RoundDecimal RoundToInt StrictGreaterThan StrictLessThan Symbol ToFloat TruncToFloat TruncToInt Tuple Unequality Where ceiling floor log2 max min sqrt";
const CONSTANTS: &str = "E False True false int_oo nan oo pi true zoo";
/// Words and functions of guards that have no other meaning in Python.
const GUARD_WORDS: &str = "None and ceil floor inf is not or sqrt trunc";
/// Attributes that guards read.
const ATTRIBUTES: &str = "ceil floor item size sqrt storage_offset stride trunc";
/// Activations of `torch.nn`, as `str` names them.
const ACTIVATIONS: &str = "CELU ELU GELU GLU Hardsigmoid Hardswish Hardtanh Identity LeakyReLU Mish PReLU ReLU ReLU6 SELU SiLU Sigmoid Softmax Softplus Tanh";
const OPERATORS: &[u8] = b"+-*/%(),<>=!&|~^";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part<'t> {
    Name(&'t str),
    Number,
    Text(&'t str),
    Symbol(u8),
}

/// Returns true for an expression of symbols as PyTorch writes it.
pub(super) fn is_symbolic(text: &str) -> bool {
    let Some(parts) = parts(text, false) else { return false };
    let after = parts.iter().skip(1).copied().map(Some).chain([None]);
    let before = std::iter::once(None).chain(parts.iter().copied().map(Some));
    before.zip(parts.iter().zip(after)).all(|(before, (part, after))| match *part {
        Part::Name(name) if after == Some(Part::Symbol(b'(')) => is_function(name),
        Part::Name(name) => {
            is_constant(name) || is_symbol(name) || after == Some(Part::Symbol(b'=')) && is_assumption(name)
        }
        // `Symbol('s0')` and `Float('1.5')`, the only calls with a text.
        Part::Text(text) => {
            before == Some(Part::Symbol(b'('))
                && !text.is_empty()
                && text
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-' | b'+'))
        }
        Part::Number | Part::Symbol(_) => true,
    })
}

/// Returns true for a guard as PyTorch writes it, such as `L['x'].size()[0] // 2 != 1`.
pub(super) fn is_guard(text: &str) -> bool {
    let Some(parts) = parts(text, true) else { return false };
    let mut before = None;
    let mut rest = parts.as_slice();
    while let Some((part, after)) = rest.split_first() {
        let is_call = after.first() == Some(&Part::Symbol(b'('));
        let is_good = match part {
            Part::Name(name) if before == Some(Part::Symbol(b'.')) => has(ATTRIBUTES, name),
            Part::Name("L") => after.first() == Some(&Part::Symbol(b'[')),
            Part::Name("math") => {
                matches!(after, [Part::Symbol(b'.'), Part::Name("ceil" | "floor" | "trunc" | "sqrt"), ..])
            }
            Part::Name(name) => {
                if is_call {
                    is_function(name) || has(GUARD_WORDS, name)
                } else {
                    is_constant(name) || is_symbol(name) || has(GUARD_WORDS, name)
                }
            }
            Part::Text(_) => before == Some(Part::Symbol(b'[')) && after.first() == Some(&Part::Symbol(b']')),
            Part::Number | Part::Symbol(_) => true,
        };
        if !is_good {
            return false;
        }
        before = Some(*part);
        rest = after;
    }
    true
}

/// Returns true for a text in the layers of YOLO, which evaluates it: it calls nothing, or makes a layer such as `nn.LeakyReLU(0.1)`.
pub(super) fn is_layer_text(text: &str) -> bool {
    let Some((class, arguments)) = text.trim().split_once('(') else { return true };
    let is_class = match class.strip_prefix("torch.").unwrap_or(class).strip_prefix("nn.") {
        Some(class) => {
            class.starts_with(|first: char| first.is_ascii_uppercase())
                && class.bytes().all(|byte| byte.is_ascii_alphanumeric())
        }
        // What `str` makes of a layer.
        None => has(ACTIVATIONS, class),
    };
    let is_argument = |it: char| it.is_ascii_alphanumeric() || "_=,.- '\"".contains(it);
    is_class && arguments.strip_suffix(')').is_some_and(|arguments| arguments.chars().all(is_argument))
}

fn is_function(name: &str) -> bool {
    has(FUNCTIONS, name) || ["OpaqueUnaryFn_", "BitwiseFn_"].iter().any(|start| name.starts_with(start))
}

fn is_constant(name: &str) -> bool {
    has(CONSTANTS, name)
}

fn is_assumption(name: &str) -> bool {
    has(
        "commutative evaluate integer negative nonnegative nonpositive nonzero positive precision prec real",
        name,
    )
}

/// Returns true for a name such as `s0`, `u12` or `zuf3`.
fn is_symbol(name: &str) -> bool {
    let letters = name.trim_end_matches(|last: char| last.is_ascii_digit());
    (1..=3).contains(&letters.len())
        && letters.len() < name.len()
        && letters.bytes().all(|it| it.is_ascii_lowercase())
}

pub(super) fn has(words: &str, word: &str) -> bool {
    words.split(' ').any(|other| other == word)
}

/// Splits a text; `None` if it has another character. Guards have brackets and points.
fn parts(text: &str, is_guard: bool) -> Option<Vec<Part<'_>>> {
    let mut parts = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches(' ');
        let Some(first) = rest.bytes().next() else { return Some(parts) };
        let len = match first {
            b'0'..=b'9' => {
                let is_part = |it: u8| it.is_ascii_digit() || it == b'.';
                rest.bytes().position(|it| !is_part(it)).unwrap_or(rest.len())
            }
            b'a'..=b'z' | b'A'..=b'Z' | b'_' => {
                rest.bytes().position(|it| !(it.is_ascii_alphanumeric() || it == b'_')).unwrap_or(rest.len())
            }
            b'\'' | b'"' => {
                let inside = rest.get(1..)?;
                let end = inside.find(char::from(first))?;
                if inside.get(..end)?.contains(['\\', '\n']) {
                    return None;
                }
                end.checked_add(2)?
            }
            b'[' | b']' | b'.' if is_guard => 1,
            _ if OPERATORS.contains(&first) => 1,
            _ => return None,
        };
        let word = rest.get(..len)?;
        rest = rest.get(len..)?;
        parts.push(match first {
            b'0'..=b'9' if rest.starts_with(|next: char| next.is_ascii_alphabetic() && next != 'e') => {
                return None;
            }
            b'0'..=b'9' => Part::Number,
            b'a'..=b'z' | b'A'..=b'Z' | b'_' => Part::Name(word),
            b'\'' | b'"' => Part::Text(word.get(1..len.checked_sub(1)?)?),
            _ => Part::Symbol(first),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_pytorch_writes_is_read() {
        for text in [
            "s0",
            "2*s0 + 1",
            "((s0 + 1)//2) >= u0",
            "FloorDiv(Add(Symbol('s77', positive=True, integer=True), Integer(1)), Integer(2))",
            "Mul(Float('1.5', precision=53), ToFloat(Symbol('s77', positive=True, integer=True)))",
            "StrictLessThan(Symbol('u0', integer=True), Integer(100))",
            "Max(1, Mod(s0, 3))",
        ] {
            assert!(is_symbolic(text), "{text}");
        }
        for text in [
            "__import__('os').system('x')",
            "s0.__class__",
            "().__class__",
            "eval(s0)",
            "sympify('s0')",
            "Symbol('s0').func('x')",
            "Integer(1).x",
            "[s0]",
            "lambda: 1",
            "s0; s1",
            "1.__class__",
            "1..real",
            "Symbol(eval('1'))",
            "Symbol('__import__(\"os\")')",
            "f'{s0}'",
            "s0\nimport os",
            "S('x')",
            "exec",
            "é",
        ] {
            assert!(!is_symbolic(text), "{text}");
        }
    }

    #[test]
    fn layers_call_nothing_else() {
        for text in [
            "Conv",
            "nc",
            "nn.Upsample",
            "[64, 3]",
            "nn.SiLU()",
            "GELU(approximate='none')",
            " torch.nn.LeakyReLU(0.1, inplace=True)",
        ] {
            assert!(is_layer_text(text), "{text}");
        }
        for text in
            ["f()", "nn.X()()", "nn.X(f(1))", "torch.load('x')", "nn.functional.f(1)", "nn.X(1", "(f)(x)"]
        {
            assert!(!is_layer_text(text), "{text}");
        }
    }

    #[test]
    fn guards_read_sizes() {
        for text in [
            "((1 + L['x'].size()[0]) // 2) != 1",
            "L['args'][0]['k'].stride()[1] == 3 and not L[\"y\"].size()[0] < 2",
            "math.ceil(L['x'].size()[0] / 2) == 1",
            "Mod(L['x'].size()[0], 2) == 0",
        ] {
            assert!(is_guard(text), "{text}");
        }
        for text in [
            "L['x'].__class__",
            "__import__('os').system('x')",
            "math.__loader__",
            "L.x",
            "(L['x'].size)(exec('x'))",
            "L['x'].size() or print('x')",
            "True, 'x') or print(1",
            "L['x\\']",
        ] {
            assert!(!is_guard(text), "{text}");
        }
    }
}

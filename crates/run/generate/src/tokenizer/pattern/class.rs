//! Sets of characters, as the classes and literals of a pattern name them.

use regex_syntax::hir::{Class as HirClass, ClassUnicode, ClassUnicodeRange, HirKind};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Class {
    /// The characters below 128, a bit each.
    ascii: u128,
    /// Ranges of the others, in order.
    ranges: Vec<(u32, u32)>,
}

impl Class {
    /// Returns the class that a character class in the syntax of `regex` describes; none if it is something else.
    pub(super) fn parse(text: &str, ignore_case: bool) -> Option<Self> {
        let hir =
            regex_syntax::ParserBuilder::new().case_insensitive(ignore_case).build().parse(text).ok()?;
        match hir.kind() {
            HirKind::Class(HirClass::Unicode(class)) => Some(Self::of(class)),
            // A class of one character.
            HirKind::Literal(literal) => {
                let text = std::str::from_utf8(&literal.0).ok()?;
                let mut characters = text.chars();
                let first = characters.next()?;
                characters.next().is_none().then(|| Self::from_char(first, false))
            }
            HirKind::Class(HirClass::Bytes(class)) => {
                let class = class.to_unicode_class()?;
                Some(Self::of(&class))
            }
            _ => None,
        }
    }

    pub(super) fn from_char(character: char, ignore_case: bool) -> Self {
        let mut class = ClassUnicode::new([ClassUnicodeRange::new(character, character)]);
        if ignore_case {
            // Without tables of cases, only the character itself remains.
            let _ = class.try_case_fold_simple();
        }
        Self::of(&class)
    }

    /// Returns the class of all characters, or of all but the end of a line.
    pub(super) fn any(newline: bool) -> Self {
        let mut class = ClassUnicode::new([ClassUnicodeRange::new('\0', char::MAX)]);
        if !newline {
            class.difference(&ClassUnicode::new([ClassUnicodeRange::new('\n', '\n')]));
        }
        Self::of(&class)
    }

    fn of(class: &ClassUnicode) -> Self {
        let mut ascii = 0_u128;
        let mut ranges = Vec::new();
        for range in class.ranges() {
            let (start, end) = (u32::from(range.start()), u32::from(range.end()));
            for code in start..=end.min(127) {
                ascii |= 1_u128.checked_shl(code).unwrap_or(0);
            }
            if end > 127 {
                ranges.push((start.max(128), end));
            }
        }
        Self { ascii, ranges }
    }

    pub(super) fn len(&self) -> usize {
        self.ranges.len().saturating_add(1)
    }

    pub(super) fn contains(&self, character: char) -> bool {
        let code = u32::from(character);
        if code < 128 {
            return self.ascii.checked_shr(code).unwrap_or(0) & 1 == 1;
        }
        let at = self.ranges.partition_point(|(_, end)| *end < code);
        self.ranges.get(at).is_some_and(|(start, _)| *start <= code)
    }
}

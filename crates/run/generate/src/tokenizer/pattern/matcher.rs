//! The machine that counts: it finds the matches of a pattern in a text, as `fancy-regex` does, and counts its steps.

use fancy_regex::Assertion;

use super::program::{Program, Step};

/// Maximum number of open branches; `fancy-regex` gives up at the same number.
const BRANCHES_MAX: usize = 1_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Steps(pub(super) u64);

/// A pattern needs more steps than are left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Exhausted;

/// What is tried when an attempt fails.
#[derive(Clone, Copy, Debug)]
enum Open {
    /// Continues at an instruction and a place in the text.
    Branch {
        at: usize,
        place: usize,
    },
    /// Continues at an instruction with one character of a run less.
    Run {
        at: usize,
        least: usize,
        place: usize,
    },
    Slot {
        slot: usize,
        value: Slot,
    },
}

/// Rounds of a loop, or branches at a mark, and a place in the text.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    count: usize,
    place: Option<usize>,
}

/// Finds all matches of the program in `text` and calls `found` with each.
pub(super) fn find_all(
    program: &Program,
    text: &str,
    steps: &mut Steps,
    mut found: impl FnMut(usize, usize),
) -> Result<(), Exhausted> {
    let mut machine =
        Machine { program, text, open: Vec::new(), slots: vec![Slot::default(); program.slots] };
    let mut start = 0;
    let mut last = None;
    while start <= text.len() {
        let next = start.saturating_add(next_len(text, start));
        match machine.attempt(start, steps)? {
            Some(end) if end > start => {
                found(start, end);
                last = Some(end);
                start = end;
            }
            Some(end) => {
                if last != Some(end) {
                    found(start, end);
                    last = Some(end);
                }
                start = next;
            }
            None => start = next,
        }
    }
    Ok(())
}

/// Returns the length of the character at a place, or 1 at the end.
fn next_len(text: &str, at: usize) -> usize {
    character(text, at).map_or(1, char::len_utf8)
}

fn character(text: &str, at: usize) -> Option<char> {
    match text.as_bytes().get(at) {
        Some(byte) if byte.is_ascii() => Some(char::from(*byte)),
        Some(_) => text.get(at..)?.chars().next(),
        None => None,
    }
}

fn character_before(text: &str, at: usize) -> Option<char> {
    text.get(..at)?.chars().next_back()
}

struct Machine<'a> {
    program: &'a Program,
    text: &'a str,
    open: Vec<Open>,
    slots: Vec<Slot>,
}

impl Machine<'_> {
    /// Returns the end of the match that begins at `start`.
    fn attempt(&mut self, start: usize, steps: &mut Steps) -> Result<Option<usize>, Exhausted> {
        self.open.clear();
        let (mut at, mut place) = (0_usize, start);
        loop {
            steps.take(self.program.charge)?;
            let next = match self.program.steps.get(at) {
                Some(Step::Match) | None => return Ok(Some(place)),
                Some(step) => self.step(*step, at, place, steps)?,
            };
            match next {
                Some(next) => (at, place) = next,
                None => match self.back(steps)? {
                    Some(next) => (at, place) = next,
                    None => return Ok(None),
                },
            }
        }
    }

    /// Executes an instruction. Returns the next one and the place in the text; none if it does not match.
    fn step(
        &mut self,
        step: Step,
        at: usize,
        place: usize,
        steps: &mut Steps,
    ) -> Result<Option<(usize, usize)>, Exhausted> {
        let next = at.saturating_add(1);
        Ok(match step {
            Step::Character { class } => {
                let read = character(self.text, place).filter(|read| self.is_in(class, *read));
                read.map(|read| (next, place.saturating_add(read.len_utf8())))
            }
            Step::Run { class, least, most } => {
                let (mut end, mut floor, mut count) = (place, place, 0_usize);
                while count < most
                    && let Some(read) = character(self.text, end)
                    && self.is_in(class, read)
                {
                    end = end.saturating_add(read.len_utf8());
                    count = count.saturating_add(1);
                    if count == least {
                        floor = end;
                    }
                }
                steps.take((count as u64).saturating_mul(self.program.charge))?;
                if count < least {
                    return Ok(None);
                }
                if end > floor {
                    self.push(Open::Run { at: next, least: floor, place: end })?;
                }
                Some((next, end))
            }
            Step::Branch { first, second } => {
                self.push(Open::Branch { at: second, place })?;
                Some((first, place))
            }
            Step::Jump(to) => Some((to, place)),
            Step::Assert(assertion) => self.holds(assertion, place).then_some((next, place)),
            Step::Begin { slot } => {
                self.save(slot, Slot { count: 0, place: None })?;
                Some((next, place))
            }
            Step::Loop { slot, least, most, greedy, exit } => {
                let now = self.slots.get(slot).copied().unwrap_or_default();
                if now.count >= most || (most == usize::MAX && now.place == Some(place)) {
                    return Ok(Some((exit, place)));
                }
                self.save(slot, Slot { count: now.count.saturating_add(1), place: Some(place) })?;
                if now.count < least {
                    Some((next, place))
                } else if greedy {
                    self.push(Open::Branch { at: exit, place })?;
                    Some((next, place))
                } else {
                    self.push(Open::Branch { at: next, place })?;
                    Some((exit, place))
                }
            }
            Step::Mark { slot } => {
                let mark = Slot { count: self.open.len(), place: Some(place) };
                if let Some(slot) = self.slots.get_mut(slot) {
                    *slot = mark;
                }
                Some((next, place))
            }
            // A slot inside of a mark is set anew when the mark is reached again, so its old values may be forgotten.
            Step::Commit { slot, returns } => {
                let mark = self.slots.get(slot).copied().unwrap_or_default();
                self.open.truncate(mark.count);
                Some((next, if returns { mark.place.unwrap_or(place) } else { place }))
            }
            Step::Refuse { slot } => {
                let mark = self.slots.get(slot).copied().unwrap_or_default();
                self.open.truncate(mark.count);
                None
            }
            Step::Back(count) => {
                let before = self.text.get(..place).unwrap_or_default();
                if count == 0 {
                    return Ok(Some((next, place)));
                }
                steps.take((count as u64).saturating_mul(self.program.charge))?;
                before.char_indices().rev().nth(count.saturating_sub(1)).map(|(start, _)| (next, start))
            }
            Step::Match => Some((at, place)),
        })
    }

    /// Returns to the last open branch.
    fn back(&mut self, steps: &mut Steps) -> Result<Option<(usize, usize)>, Exhausted> {
        while let Some(open) = self.open.pop() {
            steps.take(self.program.charge)?;
            match open {
                Open::Branch { at, place } => return Ok(Some((at, place))),
                Open::Run { at, least, place } => {
                    let read = character_before(self.text, place).map_or(1, char::len_utf8);
                    let place = place.saturating_sub(read);
                    if place > least {
                        self.push(Open::Run { at, least, place })?;
                    }
                    return Ok(Some((at, place)));
                }
                Open::Slot { slot, value } => {
                    if let Some(slot) = self.slots.get_mut(slot) {
                        *slot = value;
                    }
                }
            }
        }
        Ok(None)
    }

    fn push(&mut self, open: Open) -> Result<(), Exhausted> {
        if self.open.len() >= BRANCHES_MAX {
            return Err(Exhausted);
        }
        self.open.push(open);
        Ok(())
    }

    /// Sets a slot, and keeps its value for those who come back.
    fn save(&mut self, slot: usize, value: Slot) -> Result<(), Exhausted> {
        let before = self.slots.get(slot).copied().unwrap_or_default();
        self.push(Open::Slot { slot, value: before })?;
        if let Some(slot) = self.slots.get_mut(slot) {
            *slot = value;
        }
        Ok(())
    }

    fn is_in(&self, class: usize, read: char) -> bool {
        self.program.classes.get(class).is_some_and(|class| class.contains(read))
    }

    fn holds(&self, assertion: Assertion, place: usize) -> bool {
        let before = || character_before(self.text, place);
        let after = || character(self.text, place);
        let word = |read: Option<char>| {
            read.is_some_and(|read| {
                regex_syntax::try_is_word_character(read).unwrap_or(read.is_alphanumeric())
            })
        };
        match assertion {
            Assertion::StartText => place == 0,
            Assertion::EndText => place >= self.text.len(),
            Assertion::StartLine { crlf } => match before() {
                None | Some('\n') => true,
                Some('\r') => crlf && after() != Some('\n'),
                Some(_) => false,
            },
            Assertion::EndLine { crlf } => match after() {
                None => true,
                Some('\n') => !crlf || before() != Some('\r'),
                Some('\r') => crlf,
                Some(_) => false,
            },
            Assertion::LeftWordBoundary => !word(before()) && word(after()),
            Assertion::RightWordBoundary => word(before()) && !word(after()),
            Assertion::LeftWordHalfBoundary => !word(before()),
            Assertion::RightWordHalfBoundary => !word(after()),
            Assertion::WordBoundary => word(before()) != word(after()),
            Assertion::NotWordBoundary => word(before()) == word(after()),
        }
    }
}

impl Steps {
    fn take(&mut self, count: u64) -> Result<(), Exhausted> {
        self.0 = self.0.checked_sub(count).ok_or(Exhausted)?;
        Ok(())
    }
}

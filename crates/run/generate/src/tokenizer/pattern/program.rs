//! Programs that count: a regular expression as instructions of a machine that goes back, one character at a time.
//!
//! Facts: the syntax tree and the order of attempts are those of `fancy-regex` 0.17, which hands parts of an expression to
//! `regex-automata`. Its automata read no byte that an attempt of this machine would not read, too.

use fancy_regex::{Assertion, Expr, LookAround};

use super::class::Class;

/// Maximum number of parts of a pattern whose repetitions are written out. Real ones have up to a hundred.
const PARTS_MAX: usize = 512;
/// Maximum number of ranges in the classes of a pattern. Real ones have ten thousand.
const RANGES_MAX: usize = 1 << 15;
/// Parts of a pattern that a step may touch at once in an automaton, for which it counts once more.
const PARTS_PER_STEP: u64 = 16;

/// An instruction. Places of other instructions are indices into the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Character {
        class: usize,
    },
    /// As many characters of a class as there are; fewer when what follows does not match.
    Run {
        class: usize,
        least: usize,
        most: usize,
    },
    /// Continues at one place, and at the other when that does not match.
    Branch {
        first: usize,
        second: usize,
    },
    Jump(usize),
    Assert(Assertion),
    /// Begins to count the rounds of a loop.
    Begin {
        slot: usize,
    },
    /// Begins a round of a loop, or leaves it. An empty round ends a loop without an end.
    Loop {
        slot: usize,
        least: usize,
        most: usize,
        greedy: bool,
        exit: usize,
    },
    /// Remembers the place in the text and the branches that are open.
    Mark {
        slot: usize,
    },
    /// Forgets the branches since the mark; what looks around also returns to its place.
    Commit {
        slot: usize,
        returns: bool,
    },
    /// Forgets the branches since the mark and does not match.
    Refuse {
        slot: usize,
    },
    /// Goes back by a number of characters.
    Back(usize),
    Match,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Program {
    pub(super) steps: Vec<Step>,
    pub(super) classes: Vec<Class>,
    pub(super) slots: usize,
    /// Work that each step counts as.
    pub(super) charge: u64,
    /// Number of parts, with repetitions written out.
    pub(super) parts: usize,
}

impl Program {
    pub(super) fn new(pattern: &str) -> Result<Self, String> {
        let tree = Expr::parse_tree(pattern).map_err(|error| error.to_string())?;
        let parts = parts(&tree.expr);
        if parts > PARTS_MAX {
            return Err(format!(
                "{parts} parts when its repetitions are written out, expected at most {PARTS_MAX}"
            ));
        }
        let mut program = Self { steps: Vec::new(), classes: Vec::new(), slots: 0, charge: 0, parts };
        program.add(&tree.expr)?;
        program.steps.push(Step::Match);
        let ranges = program.classes.iter().fold(0_usize, |sum, class| sum.saturating_add(class.len()));
        if ranges > RANGES_MAX {
            return Err(format!("{ranges} ranges of characters, expected at most {RANGES_MAX}"));
        }
        program.charge = (parts as u64 / PARTS_PER_STEP).saturating_add(1);
        Ok(program)
    }

    /// Adds the instructions of an expression. The parser of `fancy-regex` limits the depth to 64.
    fn add(&mut self, expr: &Expr) -> Result<(), String> {
        match expr {
            Expr::Empty => {}
            Expr::Any { .. } | Expr::Literal { .. } => {
                for class in characters(expr) {
                    let class = self.class(class);
                    self.steps.push(Step::Character { class });
                }
            }
            Expr::Delegate { inner, size: 0, .. } if inner == END_OF_LINES => {
                let class = self.class(Class::from_char('\n', false));
                self.steps.push(Step::Run { class, least: 0, most: usize::MAX });
                self.steps.push(Step::Assert(Assertion::EndText));
            }
            Expr::Delegate { inner, casei, .. } => {
                let class = Class::parse(inner, *casei)
                    .ok_or_else(|| format!("`{inner}` is not a class of characters"))?;
                let class = self.class(class);
                self.steps.push(Step::Character { class });
            }
            Expr::Assertion(assertion) => self.steps.push(Step::Assert(*assertion)),
            Expr::Concat(children) => children.iter().try_for_each(|child| self.add(child))?,
            Expr::Group(child) => self.add(child)?,
            Expr::Alt(children) => self.add_alternatives(children, Self::add)?,
            Expr::Repeat { child, lo, hi, greedy } => self.add_repeat(child, *lo, *hi, *greedy)?,
            Expr::AtomicGroup(child) => {
                let slot = self.mark();
                self.add(child)?;
                self.steps.push(Step::Commit { slot, returns: false });
            }
            Expr::LookAround(child, kind) => self.add_look_around(child, *kind)?,
            Expr::Backref { .. } | Expr::BackrefWithRelativeRecursionLevel { .. } => {
                return Err(unused("a back reference"));
            }
            Expr::Conditional { .. } | Expr::BackrefExistsCondition(_) => return Err(unused("a condition")),
            Expr::KeepOut => return Err(unused("`\\K`")),
            Expr::ContinueFromPreviousMatchEnd => return Err(unused("`\\G`")),
            Expr::SubroutineCall(_) | Expr::UnresolvedNamedSubroutineCall { .. } => {
                return Err(unused("a call of a group"));
            }
        }
        Ok(())
    }

    fn add_alternatives(
        &mut self,
        children: &[Expr],
        add: impl Fn(&mut Self, &Expr) -> Result<(), String>,
    ) -> Result<(), String> {
        let mut jumps = Vec::new();
        let Some((last, others)) = children.split_last() else { return Ok(()) };
        for child in others {
            let branch = self.reserve();
            add(self, child)?;
            jumps.push(self.reserve());
            let second = self.steps.len();
            self.set(branch, Step::Branch { first: branch.saturating_add(1), second });
        }
        add(self, last)?;
        let end = self.steps.len();
        for jump in jumps {
            self.set(jump, Step::Jump(end));
        }
        Ok(())
    }

    fn add_repeat(&mut self, child: &Expr, least: usize, most: usize, greedy: bool) -> Result<(), String> {
        if greedy && let Some(class) = single(child)? {
            let class = self.class(class);
            self.steps.push(Step::Run { class, least, most });
            return Ok(());
        }
        let slot = self.slot();
        self.steps.push(Step::Begin { slot });
        let start = self.reserve();
        self.add(child)?;
        self.steps.push(Step::Jump(start));
        let exit = self.steps.len();
        self.set(start, Step::Loop { slot, least, most, greedy, exit });
        Ok(())
    }

    fn add_look_around(&mut self, child: &Expr, kind: LookAround) -> Result<(), String> {
        let slot = self.mark();
        let branch =
            matches!(kind, LookAround::LookAheadNeg | LookAround::LookBehindNeg).then(|| self.reserve());
        if matches!(kind, LookAround::LookBehind | LookAround::LookBehindNeg) {
            let alternatives = match child {
                Expr::Alt(children) => children.as_slice(),
                other => std::slice::from_ref(other),
            };
            self.add_alternatives(alternatives, |program, child| {
                let back = length(child).ok_or_else(|| unused("a variable-length look-behind"))?;
                program.steps.push(Step::Back(back));
                program.add(child)
            })?;
        } else {
            self.add(child)?;
        }
        match branch {
            Some(branch) => {
                self.steps.push(Step::Refuse { slot });
                let second = self.steps.len();
                self.set(branch, Step::Branch { first: branch.saturating_add(1), second });
            }
            None => self.steps.push(Step::Commit { slot, returns: true }),
        }
        Ok(())
    }

    fn class(&mut self, class: Class) -> usize {
        if let Some(at) = self.classes.iter().position(|known| *known == class) {
            return at;
        }
        self.classes.push(class);
        self.classes.len().saturating_sub(1)
    }

    fn slot(&mut self) -> usize {
        let slot = self.slots;
        self.slots = slot.saturating_add(1);
        slot
    }

    fn mark(&mut self) -> usize {
        let slot = self.slot();
        self.steps.push(Step::Mark { slot });
        slot
    }

    /// Adds an instruction that is set later, and returns its place.
    fn reserve(&mut self) -> usize {
        self.steps.push(Step::Match);
        self.steps.len().saturating_sub(1)
    }

    fn set(&mut self, at: usize, step: Step) {
        if let Some(place) = self.steps.get_mut(at) {
            *place = step;
        }
    }
}

/// What the parser of `fancy-regex` makes of `\Z`.
const END_OF_LINES: &str = "\\n*$";

fn unused(what: &str) -> String {
    format!("{what}, which no known tokenizer uses")
}

/// Returns the classes of the characters of a literal or a dot, in order.
fn characters(expr: &Expr) -> Vec<Class> {
    match expr {
        Expr::Any { newline } => vec![Class::any(*newline)],
        Expr::Literal { val, casei } => {
            val.chars().map(|character| Class::from_char(character, *casei)).collect()
        }
        _ => Vec::new(),
    }
}

/// Returns the class of an expression that is one character.
fn single(expr: &Expr) -> Result<Option<Class>, String> {
    if let Expr::Delegate { inner, size: 1, casei } = expr {
        let class =
            Class::parse(inner, *casei).ok_or_else(|| format!("`{inner}` is not a class of characters"))?;
        return Ok(Some(class));
    }
    let mut classes = characters(expr);
    let class = classes.pop();
    Ok(if classes.is_empty() { class } else { None })
}

fn parts(expr: &Expr) -> usize {
    let sum =
        |children: &[Expr]| children.iter().fold(1, |sum: usize, child| sum.saturating_add(parts(child)));
    match expr {
        Expr::Literal { val, .. } => val.len().max(1),
        Expr::Concat(children) | Expr::Alt(children) => sum(children),
        Expr::Group(child) | Expr::LookAround(child, _) | Expr::AtomicGroup(child) => {
            parts(child).saturating_add(1)
        }
        Expr::Repeat { child, lo, hi, .. } => {
            let times = if *hi == usize::MAX { lo.saturating_add(1) } else { *hi };
            parts(child).saturating_mul(times.max(1))
        }
        _ => 1,
    }
}

/// Returns the number of characters that an expression matches, if it is always the same.
fn length(expr: &Expr) -> Option<usize> {
    match expr {
        Expr::Empty | Expr::Assertion(_) | Expr::LookAround(..) => Some(0),
        Expr::Any { .. } => Some(1),
        Expr::Literal { val, .. } => Some(val.chars().count()),
        Expr::Delegate { size, .. } => Some(*size),
        Expr::Concat(children) => {
            children.iter().try_fold(0_usize, |sum, child| Some(sum.saturating_add(length(child)?)))
        }
        Expr::Alt(children) => {
            let mut lengths = children.iter().map(length);
            let first = lengths.next()??;
            lengths.all(|other| other == Some(first)).then_some(first)
        }
        Expr::Group(child) | Expr::AtomicGroup(child) => length(child),
        Expr::Repeat { child, lo, hi, .. } if lo == hi => Some(length(child)?.saturating_mul(*lo)),
        _ => None,
    }
}

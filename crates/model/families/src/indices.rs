//! Sets of the numbers that stand in names: layers, experts.

/// Set of numbers, ascending. A contiguous set takes no memory for its members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Indices {
    Range(u32, u32),
    List(Vec<u32>),
}

impl Indices {
    /// Numbers from 0 to `count`, which excludes it.
    pub(crate) fn below(count: u64) -> Self {
        Self::Range(0, u32::try_from(count).unwrap_or(u32::MAX))
    }

    pub(crate) fn one(number: u32) -> Self {
        Self::Range(number, number.saturating_add(1))
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Range(start, end) => usize::try_from(end.saturating_sub(*start)).unwrap_or(usize::MAX),
            Self::List(list) => list.len(),
        }
    }

    /// Returns the place of a number in the set.
    pub(crate) fn position(&self, number: u32) -> Option<usize> {
        match self {
            Self::Range(start, end) => {
                (*start..*end).contains(&number).then(|| number.saturating_sub(*start) as usize)
            }
            Self::List(list) => list.binary_search(&number).ok(),
        }
    }

    /// Returns the number at a place of the set.
    pub(crate) fn get(&self, position: usize) -> Option<u32> {
        match self {
            Self::Range(start, end) => {
                let number = start.checked_add(u32::try_from(position).ok()?)?;
                (number < *end).then_some(number)
            }
            Self::List(list) => list.get(position).copied(),
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.len()).filter_map(|position| self.get(position))
    }

    /// Returns those numbers that `keep` accepts, and the others.
    pub(crate) fn partition(&self, keep: impl Fn(u32) -> bool) -> (Self, Self) {
        let (kept, others) = self.iter().partition(|number| keep(*number));
        (Self::List(kept), Self::List(others))
    }

    pub(crate) fn filter(&self, keep: impl Fn(u32) -> bool) -> Self {
        self.partition(keep).0
    }
}

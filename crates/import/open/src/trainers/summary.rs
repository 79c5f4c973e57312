//! Summary of what was joined, for listings and dry runs.

use std::fmt;

use tensor::Dtype;

/// Trainer, ranks, and numbers of tensors and parts. The text is one sentence without a full stop.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TrainerSummary {
    /// Name of the trainer or its library.
    pub trainer: &'static str,
    /// Number of ranks whose files hold a part.
    pub ranks: usize,
    /// True if the files say how many ranks there were, so that a missing one is noticed.
    pub ranks_are_known: bool,
    /// Number of tensors that consist of several parts.
    pub joined: usize,
    /// Number of parts of these tensors.
    pub parts: usize,
    /// Number of tensors that one file holds as a whole.
    pub whole: usize,
    /// Dtypes of all tensors, in the order in which they first appear.
    pub dtypes: Vec<Dtype>,
}

impl TrainerSummary {
    pub(crate) fn new(trainer: &'static str, ranks: usize) -> Self {
        Self { trainer, ranks, ranks_are_known: true, ..Self::default() }
    }

    /// Counts a tensor that consists of `parts` parts.
    pub(crate) fn count(&mut self, dtype: Dtype, parts: usize) {
        if parts > 1 {
            self.joined = self.joined.saturating_add(1);
            self.parts = self.parts.saturating_add(parts);
        } else {
            self.whole = self.whole.saturating_add(1);
        }
        if !self.dtypes.contains(&dtype) {
            self.dtypes.push(dtype);
        }
    }
}

impl fmt::Display for TrainerSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let things = |count: usize, one: &str| {
            if count == 1 { format!("{count} {one}") } else { format!("{count} {one}s") }
        };
        let dtypes: Vec<&str> = self.dtypes.iter().map(|dtype| dtype.name()).collect();
        write!(f, "{}, {}", self.trainer, things(self.ranks, "rank"))?;
        if !dtypes.is_empty() {
            write!(f, ", {}", dtypes.join(" and "))?;
        }
        let verb = if self.joined == 1 { "is" } else { "are" };
        if self.joined > 0 {
            let (joined, parts) = (things(self.joined, "tensor"), things(self.parts, "part"));
            write!(f, ": {joined} {verb} joined from {parts}, {} whole", self.whole)?;
        } else {
            write!(f, ": {} whole, none to join", things(self.whole, "tensor"))?;
        }
        if self.ranks_are_known {
            return Ok(());
        }
        write!(f, " (the files do not say how many ranks there were: a missing last one is not noticed)")
    }
}

//! Changes of logits before a token is chosen: penalties of tokens that were generated before, and biases.
//!
//! Facts: `frequency_penalty`, `presence_penalty` and `logit_bias` of OpenAI's reference of chat completions.

use std::collections::HashMap;

/// Changes of the logits of a sequence, with the counts of its generated tokens.
#[derive(Clone, Debug, Default)]
pub struct LogitChanges {
    frequency: f32,
    presence: f32,
    bias: Vec<(u32, f32)>,
    counts: HashMap<u32, f32>,
}

impl LogitChanges {
    /// Creates the changes of a sequence without generated tokens: `frequency` is subtracted from the logit of a token for each time
    /// that it was generated, `presence` once, and each bias is added to the logit of its token.
    pub fn new(frequency: f32, presence: f32, bias: Vec<(u32, f32)>) -> Self {
        Self { frequency, presence, bias, counts: HashMap::new() }
    }

    /// Returns true if no logit is ever changed.
    pub fn is_empty(&self) -> bool {
        self.bias.is_empty() && !self.has_penalties()
    }

    fn has_penalties(&self) -> bool {
        self.frequency != 0.0 || self.presence != 0.0
    }

    /// Counts a generated token.
    pub fn count(&mut self, token: u32) {
        if self.has_penalties() {
            *self.counts.entry(token).or_default() += 1.0;
        }
    }

    /// Changes the logits of the next token. A token without a logit has no effect.
    pub fn apply(&self, logits: &mut [f32]) {
        let mut add = |token: u32, change: f32| {
            if let Some(logit) = usize::try_from(token).ok().and_then(|token| logits.get_mut(token)) {
                *logit += change;
            }
        };
        for (token, count) in &self.counts {
            add(*token, -(self.frequency * count + self.presence));
        }
        self.bias.iter().for_each(|(token, bias)| add(*token, *bias));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequency_counts_each_time_and_presence_once() {
        let mut changes = LogitChanges::new(0.5, -1.0, vec![(0, 3.0), (9, 1.0)]);
        let logits_of = |changes: &LogitChanges| {
            let mut logits = [1.0_f32, 1.0, 1.0];
            changes.apply(&mut logits);
            logits.map(|logit| logit.to_string())
        };
        assert_eq!(logits_of(&changes), ["4", "1", "1"]);
        for token in [1, 1, 2] {
            changes.count(token);
        }
        assert_eq!(logits_of(&changes), ["4", "1", "1.5"]);
        assert!(!changes.is_empty());
        assert!(LogitChanges::new(0.0, 0.0, Vec::new()).is_empty());
    }
}

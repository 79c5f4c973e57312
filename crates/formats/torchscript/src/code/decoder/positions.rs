//! Rotary embeddings of a decoder, as its module holds them.
//!
//! Plain and llama3 frequencies are computed in the module if all layers share them; all others are computed here and are
//! numbers of the module. For frequencies that depend on the number of tokens, the module has a second list for long texts
//! (`LongRope`), or scales by a growing power (dynamic).

use decoder::{Decoder, Llama3, Rope, Scaling};

/// Rotary embeddings of a decoder, and their assignment to layers.
pub(super) struct Positions {
    /// Distinct rotary embeddings; `None` stands for layers without rotation.
    ropes: Vec<Option<Rope>>,
    /// Index of the rotary embedding in `ropes`, by layer.
    of_layer: Vec<i64>,
    rotated: u64,
}

impl Positions {
    pub(super) fn new(decoder: &Decoder) -> Self {
        let mut numbers: Vec<Option<usize>> = Vec::new();
        let mut of_layer = Vec::new();
        for layer in 0..decoder.n_layers() {
            let rope = decoder.rope_of(layer);
            let number = numbers.iter().position(|known| *known == rope).unwrap_or_else(|| {
                numbers.push(rope);
                numbers.len().saturating_sub(1)
            });
            of_layer.push(i64::try_from(number).unwrap_or(0));
        }
        let ropes = numbers.into_iter().map(|rope| decoder.ropes().get(rope?).cloned()).collect();
        Self { ropes, of_layer, rotated: decoder.rotated() }
    }

    /// Returns the number of distinct rotary embeddings.
    pub(super) fn rows(&self) -> usize {
        self.ropes.len()
    }

    /// Returns the index of the rotary embedding, by layer.
    pub(super) fn of_layers(&self) -> Vec<i64> {
        self.of_layer.clone()
    }

    /// Returns the base (theta) if the module computes the frequencies.
    pub(super) fn theta(&self) -> Option<f64> {
        match self.ropes.as_slice() {
            [Some(Rope { theta, scaling: None | Some(Scaling::Llama3(_)) })] => Some(*theta),
            _ => None,
        }
    }

    /// Returns the llama3 scaling of the frequencies that the module computes, if there is one.
    pub(super) fn llama3(&self) -> Option<Llama3> {
        match self.ropes.as_slice() {
            [Some(Rope { scaling: Some(Scaling::Llama3(llama3)), .. })] => Some(*llama3),
            _ => None,
        }
    }

    /// Returns true if the module has a list of frequencies.
    pub(super) fn are_listed(&self) -> bool {
        self.theta().is_none()
    }

    pub(super) fn depend_on_length(&self) -> bool {
        self.scalings().any(|scaling| matches!(scaling, Scaling::Dynamic { .. } | Scaling::LongRope(_)))
    }

    pub(super) fn has_long(&self) -> bool {
        self.scalings().any(|scaling| matches!(scaling, Scaling::LongRope(_)))
    }

    pub(super) fn has_dynamic(&self) -> bool {
        self.scalings().any(|scaling| matches!(scaling, Scaling::Dynamic { .. }))
    }

    /// Returns the number of tokens, by frequency, above which the long frequency replaces it; infinite without `LongRope`.
    pub(super) fn limits(&self) -> Vec<f64> {
        self.each(|rope| match scaling(rope) {
            Some(Scaling::LongRope(long)) => self.all(long.old),
            _ => self.all(f64::INFINITY),
        })
    }

    /// Returns the slope and the offset, by frequency, of the base's growth with the number of tokens: `slope * tokens +
    /// offset`.
    pub(super) fn growth(&self) -> (Vec<f64>, Vec<f64>) {
        let growth = self.each(|rope| match scaling(rope) {
            Some(Scaling::Dynamic { factor, old }) => self.all(factor / old),
            _ => self.all(0.0),
        });
        let start = self.each(|rope| match scaling(rope) {
            Some(Scaling::Dynamic { factor, .. }) => self.all(1.0 - factor),
            _ => self.all(1.0),
        });
        (growth, start)
    }

    /// Returns the frequencies of all rotary embeddings for a text of `tokens` tokens, without the growth of dynamic bases.
    pub(super) fn frequencies(&self, tokens: u64) -> Vec<f64> {
        self.each(|rope| match rope {
            Some(Rope { theta, scaling: Some(Scaling::Dynamic { .. }) }) => {
                Rope { theta: *theta, scaling: None }.frequencies(self.rotated, tokens)
            }
            Some(rope) => rope.frequencies(self.rotated, tokens),
            None => self.all(0.0),
        })
    }

    /// Returns the exponents, by frequency, of the base's growth; the frequency is multiplied with that power.
    #[expect(clippy::cast_precision_loss, reason = "numbers that f64 lacks are larger than any head")]
    pub(super) fn exponents(&self) -> Vec<f64> {
        let dim = self.rotated as f64;
        self.each(|rope| match rope {
            Some(Rope { scaling: Some(Scaling::Dynamic { .. }), .. }) => {
                let pairs = 0..self.rotated.checked_div(2).unwrap_or(0);
                pairs.map(|pair| -2.0 * pair as f64 / (dim - 2.0)).collect()
            }
            _ => self.all(0.0),
        })
    }

    /// Returns the factor of cosines and sines, by rotary embedding.
    pub(super) fn magnitudes(&self) -> Vec<f64> {
        self.ropes.iter().map(|rope| rope.as_ref().map_or(1.0, Rope::magnitude)).collect()
    }

    #[expect(clippy::float_cmp, reason = "a factor of exactly 1 changes nothing")]
    pub(super) fn have_magnitudes(&self) -> bool {
        self.magnitudes().iter().any(|magnitude| *magnitude != 1.0)
    }

    fn scalings(&self) -> impl Iterator<Item = &Scaling> {
        self.ropes.iter().filter_map(|rope| scaling(rope.as_ref()))
    }

    fn each(&self, numbers: impl Fn(Option<&Rope>) -> Vec<f64>) -> Vec<f64> {
        self.ropes.iter().flat_map(|rope| numbers(rope.as_ref())).collect()
    }

    /// Repeats a number for each frequency of one rotary embedding.
    fn all(&self, number: f64) -> Vec<f64> {
        (0..self.rotated.checked_div(2).unwrap_or(0)).map(|_| number).collect()
    }
}

fn scaling(rope: Option<&Rope>) -> Option<&Scaling> {
    rope?.scaling.as_ref()
}

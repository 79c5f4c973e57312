//! Rotary embeddings of a decoder, as its module holds them.
//!
//! Plain and llama3 frequencies are computed in the module if all layers share them; all others are computed here and are
//! numbers of the module. For frequencies that depend on the number of tokens, the module has a second list for long texts
//! (`LongRope`), or scales by a growing power (dynamic).

use decoder::{Decoder, Llama3, Rope, RopeScaling};

pub(super) struct RotaryPositions {
    /// Distinct rotary embeddings; `None` stands for layers without rotation.
    ropes: Vec<Option<Rope>>,
    /// Index of the rotary embedding in `ropes`, by layer.
    rope_index_of_layer: Vec<i64>,
    /// Rotary dimensions of a head, for each of `ropes`.
    rotated: Vec<u64>,
}

impl RotaryPositions {
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
        let rotated =
            numbers.iter().map(|rope| rope.map_or_else(|| decoder.rotated(), |it| decoder.rotated_by(it)));
        let rotated = rotated.collect();
        let ropes = numbers.into_iter().map(|rope| decoder.ropes().get(rope?).cloned()).collect();
        Self { ropes, rope_index_of_layer: of_layer, rotated }
    }

    pub(super) fn rope_count(&self) -> usize {
        self.ropes.len()
    }

    pub(super) fn rope_indices(&self) -> Vec<i64> {
        self.rope_index_of_layer.clone()
    }

    /// Returns the base (theta) if the module computes the frequencies.
    pub(super) fn theta(&self) -> Option<f64> {
        match self.ropes.as_slice() {
            [Some(Rope { theta, scaling: None | Some(RopeScaling::Llama3(_)) })] => Some(*theta),
            _ => None,
        }
    }

    pub(super) fn llama3(&self) -> Option<Llama3> {
        match self.ropes.as_slice() {
            [Some(Rope { scaling: Some(RopeScaling::Llama3(llama3)), .. })] => Some(*llama3),
            _ => None,
        }
    }

    pub(super) fn has_listed_frequencies(&self) -> bool {
        self.theta().is_none()
    }

    pub(super) fn has_length_dependent_rope(&self) -> bool {
        self.scalings()
            .any(|scaling| matches!(scaling, RopeScaling::Dynamic { .. } | RopeScaling::LongRope(_)))
    }

    pub(super) fn has_long_rope(&self) -> bool {
        self.scalings().any(|scaling| matches!(scaling, RopeScaling::LongRope(_)))
    }

    pub(super) fn has_dynamic(&self) -> bool {
        self.scalings().any(|scaling| matches!(scaling, RopeScaling::Dynamic { .. }))
    }

    /// Returns the number of tokens, by frequency, above which the long frequency replaces it; infinite without `LongRope`.
    pub(super) fn long_thresholds(&self) -> Vec<f64> {
        self.flat_map_ropes(|rope| match scaling(rope) {
            Some(RopeScaling::LongRope(long)) => self.per_frequency(long.old),
            _ => self.per_frequency(f64::INFINITY),
        })
    }

    /// Returns the slope and the offset, by frequency, of the base's growth with the number of tokens: `slope * tokens +
    /// offset`.
    pub(super) fn base_growth(&self) -> (Vec<f64>, Vec<f64>) {
        let growth = self.flat_map_ropes(|rope| match scaling(rope) {
            Some(RopeScaling::Dynamic { factor, old }) => self.per_frequency(factor / old),
            _ => self.per_frequency(0.0),
        });
        let start = self.flat_map_ropes(|rope| match scaling(rope) {
            Some(RopeScaling::Dynamic { factor, .. }) => self.per_frequency(1.0 - factor),
            _ => self.per_frequency(1.0),
        });
        (growth, start)
    }

    /// Returns the frequencies of all rotary embeddings for a text of `tokens` tokens, without the growth of dynamic bases.
    pub(super) fn frequencies(&self, tokens: u64) -> Vec<f64> {
        let mut all = Vec::new();
        for (rope, rotated) in self.ropes.iter().zip(&self.rotated) {
            let mut each = match rope {
                Some(Rope { theta, scaling: Some(RopeScaling::Dynamic { .. }) }) => {
                    Rope { theta: *theta, scaling: None }.frequencies(*rotated, tokens)
                }
                Some(rope) => rope.frequencies(*rotated, tokens),
                None => Vec::new(),
            };
            // All have the length of the longest: the text reads as many as a head has pairs.
            each.resize(self.per_frequency(0.0).len(), 0.0);
            all.extend(each);
        }
        all
    }

    /// Returns the exponents, by frequency, of the base's growth; the frequency is multiplied with that power.
    #[expect(clippy::cast_precision_loss, reason = "numbers that f64 lacks are larger than any head")]
    pub(super) fn exponents(&self) -> Vec<f64> {
        let rotated = self.most_rotated();
        let dim = rotated as f64;
        self.flat_map_ropes(|rope| match rope {
            Some(Rope { scaling: Some(RopeScaling::Dynamic { .. }), .. }) => {
                let pairs = 0..rotated.checked_div(2).unwrap_or(0);
                pairs.map(|pair| -2.0 * pair as f64 / (dim - 2.0)).collect()
            }
            _ => self.per_frequency(0.0),
        })
    }

    pub(super) fn magnitudes(&self) -> Vec<f64> {
        self.ropes.iter().map(|rope| rope.as_ref().map_or(1.0, Rope::magnitude)).collect()
    }

    #[expect(clippy::float_cmp, reason = "a factor of exactly 1 changes nothing")]
    pub(super) fn has_magnitudes(&self) -> bool {
        self.magnitudes().iter().any(|magnitude| *magnitude != 1.0)
    }

    fn scalings(&self) -> impl Iterator<Item = &RopeScaling> {
        self.ropes.iter().filter_map(|rope| scaling(rope.as_ref()))
    }

    fn flat_map_ropes(&self, numbers: impl Fn(Option<&Rope>) -> Vec<f64>) -> Vec<f64> {
        self.ropes.iter().flat_map(|rope| numbers(rope.as_ref())).collect()
    }

    /// Returns the rotary dimensions of the largest heads.
    pub(super) fn most_rotated(&self) -> u64 {
        self.rotated.iter().copied().max().unwrap_or_default()
    }

    /// Repeats a number for each frequency of one rotary embedding.
    fn per_frequency(&self, number: f64) -> Vec<f64> {
        (0..self.most_rotated().checked_div(2).unwrap_or(0)).map(|_| number).collect()
    }
}

fn scaling(rope: Option<&Rope>) -> Option<&RopeScaling> {
    rope?.scaling.as_ref()
}

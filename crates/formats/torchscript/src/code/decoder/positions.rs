//! The rotations of a decoder as its module holds them.
//!
//! Frequencies of all kinds but plain ones and llama3 are computed here and are numbers of the module. Those that depend on
//! the number of tokens are changed in the module: long texts have a second list, or divide by a power that grows.

use decoder::{Decoder, Llama3, Rope, Scaling};

/// The rotations of a decoder.
pub(super) struct Positions {
    /// The different ones; `None` turns nothing.
    ropes: Vec<Option<Rope>>,
    /// By layer, the number of its rotation.
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

    /// How many there are.
    pub(super) fn rows(&self) -> usize {
        self.ropes.len()
    }

    /// By layer, the number of its rotation.
    pub(super) fn of_layers(&self) -> Vec<i64> {
        self.of_layer.clone()
    }

    /// The base, if the module computes the frequencies.
    pub(super) fn theta(&self) -> Option<f64> {
        match self.ropes.as_slice() {
            [Some(Rope { theta, scaling: None | Some(Scaling::Llama3(_)) })] => Some(*theta),
            _ => None,
        }
    }

    /// How the frequencies that the module computes are stretched.
    pub(super) fn llama3(&self) -> Option<Llama3> {
        match self.ropes.as_slice() {
            [Some(Rope { scaling: Some(Scaling::Llama3(llama3)), .. })] => Some(*llama3),
            _ => None,
        }
    }

    /// Whether the module has a list of frequencies.
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

    /// For each frequency, the number of tokens above which it is another one.
    pub(super) fn limits(&self) -> Vec<f64> {
        self.each(|rope| match scaling(rope) {
            Some(Scaling::LongRope(long)) => self.all(long.old),
            _ => self.all(f64::INFINITY),
        })
    }

    /// For each frequency, how a base grows: by the first number for each token, from the second.
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

    /// The frequencies of all rotations for a text of so many tokens, without what makes a base grow.
    pub(super) fn frequencies(&self, tokens: u64) -> Vec<f64> {
        self.each(|rope| match rope {
            Some(Rope { theta, scaling: Some(Scaling::Dynamic { .. }) }) => {
                Rope { theta: *theta, scaling: None }.frequencies(self.rotated, tokens)
            }
            Some(rope) => rope.frequencies(self.rotated, tokens),
            None => self.all(0.0),
        })
    }

    /// The power of its growth that each frequency of a growing base is multiplied with.
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

    /// By rotation, what cosines and sines are multiplied with.
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

    /// One number for each frequency of a rotation.
    fn all(&self, number: f64) -> Vec<f64> {
        (0..self.rotated.checked_div(2).unwrap_or(0)).map(|_| number).collect()
    }
}

fn scaling(rope: Option<&Rope>) -> Option<&Scaling> {
    rope?.scaling.as_ref()
}

//! Activation functions of the gate in a feed-forward network.
//!
//! Facts: the formulas of [`Activation`].

#![expect(clippy::inline_always, reason = "loops are to be compiled for other instructions than the rest")]

use decoder::Activation;
use kernels::{Loops, Simd};

use crate::number::Real;
use crate::xielu::Xielu;

/// Activation of a layer, with its numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LayerActivation {
    Function(Activation),
    Xielu(Xielu),
}

/// Loop for `x = activation(x) · up`.
pub(crate) struct Gate<'v, T> {
    pub(crate) x: &'v mut [T],
    pub(crate) up: &'v [T],
    pub(crate) activation: LayerActivation,
}

impl<T: Real> Loops<T> for Gate<'_, T> {
    #[inline(always)]
    fn run<S: Simd<T, N>, const N: usize>(self, _: S) {
        let (gate, up) = (self.x, self.up);
        let (half, number) = (T::from_f64(0.5), T::from_f64);
        let activation = match self.activation {
            LayerActivation::Function(activation) => activation,
            LayerActivation::Xielu(xielu) => return map_gate(gate, up, |gate, up| xielu.value(gate) * up),
        };
        match activation {
            Activation::Silu => map_gate(gate, up, |gate, up| gate / (T::ONE + (-gate).exp()) * up),
            Activation::Gelu => {
                let root = number(std::f64::consts::FRAC_1_SQRT_2);
                map_gate(gate, up, |gate, up| half * gate * (T::ONE + (gate * root).erf()) * up);
            }
            Activation::GeluTanh => {
                let (root, cubic) = (number((2.0 / std::f64::consts::PI).sqrt()), number(0.044_715));
                map_gate(gate, up, |gate, up| {
                    let inner = root * (gate + cubic * gate * gate * gate);
                    half * gate * (T::ONE + inner.tanh()) * up
                });
            }
            Activation::Relu => map_gate(gate, up, |gate, up| relu(gate) * up),
            Activation::ReluSquared => map_gate(gate, up, |gate, up| relu(gate) * relu(gate) * up),
            // The weights of a layer have its numbers.
            Activation::Xielu => {}
            Activation::ClampedSwiglu { alpha, limit } => {
                let (alpha, limit) = (number(alpha), number(limit));
                map_gate(gate, up, |gate, up| {
                    let gate = if gate > limit { limit } else { gate };
                    let up = if up > limit { limit } else { up };
                    let up = if up < -limit { -limit } else { up };
                    gate / (T::ONE + (-(gate * alpha)).exp()) * (up + T::ONE)
                });
            }
        }
    }
}

#[inline(always)]
fn relu<T: Real>(x: T) -> T {
    if x < T::default() { T::default() } else { x }
}

#[inline(always)]
fn map_gate<T: Real>(gate: &mut [T], up: &[T], work: impl Fn(T, T) -> T) {
    for (gate, up) in gate.iter_mut().zip(up) {
        *gate = work(*gate, *up);
    }
}

//! The activation xIELU, whose numbers are weights.
//!
//! Facts: [`decoder::Activation::Xielu`].

use crate::number::Real;

/// Numbers of one layer's activation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Xielu {
    positive: f64,
    negative: f64,
    beta: f64,
    eps: f64,
}

impl Xielu {
    /// Creates the activation from the numbers of the checkpoint.
    pub(crate) fn new([positive, negative, beta, eps]: [f64; 4]) -> Self {
        let softplus = |x: f64| if x > 20.0 { x } else { libm::log1p(libm::exp(x)) };
        Self { positive: softplus(positive), negative: beta + softplus(negative), beta, eps }
    }

    pub(crate) fn value<T: Real>(self, x: T) -> T {
        let x = x.to_f64();
        let Self { positive, negative, beta, eps } = self;
        let curve = if x > 0.0 {
            positive * x * x
        } else {
            let low = if x > eps { eps } else { x };
            (low.exp_m1() - x) * negative
        };
        T::from_f64(curve + beta * x)
    }
}

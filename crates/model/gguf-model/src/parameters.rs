//! Number of parameters, and the size that names it.
//!
//! Facts: `get_total_parameter_count` in `gguf_writer.py` and `size_label` in `utility.py` of `gguf` 0.19.0.

use gguf_format::GgufOutput;

/// Numbers of parameters of a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Parameters {
    pub(crate) total: u64,
    /// Parameters that all tokens use.
    pub(crate) shared: u64,
    /// Parameters of one expert.
    pub(crate) expert: u64,
    pub(crate) experts: u64,
}

impl Parameters {
    pub(crate) fn of(tensors: &[GgufOutput]) -> Self {
        let (mut all, mut counted, mut tensors_of_experts) = (Self::default(), 0_u64, 0_u64);
        for GgufOutput { name, shape, .. } in tensors {
            let size = shape.iter().fold(1_u64, |product, size| product.saturating_mul(*size));
            all.total = all.total.saturating_add(size);
            let from_end = if name.contains(".bias") { 2 } else { 3 };
            let count = shape.len().checked_sub(from_end).and_then(|at| shape.get(at));
            match count.filter(|_| name.contains("_exps.") && shape.len() >= 3) {
                Some(count) => {
                    all.expert = all.expert.saturating_add(size.checked_div(*count).unwrap_or_default());
                    counted = counted.saturating_add(*count);
                    tensors_of_experts = tensors_of_experts.saturating_add(1);
                }
                None => all.shared = all.shared.saturating_add(size),
            }
        }
        all.experts = counted.checked_div(tensors_of_experts).unwrap_or_default();
        all
    }

    /// Returns the size as names have it, such as `8x7B`.
    pub(crate) fn label(self) -> String {
        if self.experts > 0 {
            return format!("{}x{}", self.experts, rounded(self.shared.saturating_add(self.expert)));
        }
        rounded(self.total)
    }
}

/// Rounds a number to two digits, with a unit.
#[expect(clippy::cast_precision_loss, reason = "a size is a rough number")]
fn rounded(number: u64) -> String {
    let number = number as f64;
    let (scaled, unit) = match number {
        _ if number > 1e12 => (number * 1e-12, "T"),
        _ if number > 1e9 => (number * 1e-9, "B"),
        _ if number > 1e6 => (number * 1e-6, "M"),
        _ => (number * 1e-3, "K"),
    };
    let digits = format!("{:.0}", scaled.round_ties_even());
    let decimals = 2_usize.saturating_sub(digits.trim_start_matches('0').len());
    format!("{scaled:.decimals$}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_two_digits() {
        for (number, text) in [
            (0, "0.00K"),
            (135, "0.14K"),
            (1000, "1.0K"),
            (999_999, "1000K"),
            (1_235_814_400, "1.2B"),
            (70_553_706_496, "71B"),
        ] {
            assert_eq!(rounded(number), text);
        }
    }
}

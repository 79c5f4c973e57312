//! Routers of experts: how the scores of all experts become a few experts and the factors of their results.
//!
//! Facts: the routers of `modeling_mixtral.py`, `modeling_gpt_oss.py`, `modeling_phimoe.py` (`sparsemixer`),
//! `modeling_glm4_moe.py` and `modeling_gemma4.py` in `transformers` 5.23.

use serde::{Deserialize, Serialize};

use crate::Result;
use crate::param_error::{MakeParamError, check_positive};

/// Choice of a token's experts, and the factors of their results.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum Router {
    /// Softmax over all experts, before the choice.
    BeforeChoice,
    /// Softmax over the chosen experts only.
    AfterChoice,
    /// Softmax over all experts, before the choice. The router reads the norm of the row, times a weight and divided by the root of
    /// the width, and the factors are multiplied by a weight of each expert.
    Scaled,
    /// Two experts, each with its share in a softmax over the experts whose score is near the best one's. The factors do not
    /// add up to 1.
    Sparsemixer {
        /// Half of the largest distance from the best score, relative to the larger of the two.
        jitter: f64,
    },
    /// Sigmoid of each score. The choice adds a bias, [`LayerPart::ChoiceBias`](crate::LayerPart::ChoiceBias), and the factors
    /// do not.
    Sigmoid {
        /// Number of groups of experts.
        groups: u64,
        /// Number of groups that are chosen first, by the sum of their two best experts.
        chosen_groups: u64,
        /// Factor of all results.
        factor: f64,
    },
}

impl Router {
    /// Returns true if the choice of experts has a bias.
    pub fn has_choice_bias(&self) -> bool {
        matches!(self, Self::Sigmoid { .. })
    }

    /// Checks the numbers against those of all experts, and of the experts of a token.
    ///
    /// # Errors
    /// Returns an error that names the key of the first number that is out of range.
    pub(crate) fn check(&self, wrong: MakeParamError<'_>, count: u64, per_token: u64) -> Result<()> {
        match *self {
            Self::BeforeChoice | Self::AfterChoice | Self::Scaled => Ok(()),
            Self::Sparsemixer { jitter } => {
                if per_token != 2 || count < 2 {
                    let found = format!("{per_token} of {count}");
                    return Err(wrong("num_experts_per_tok", &found, "2 experts of several".to_owned()));
                }
                if jitter.is_finite() && jitter >= 0.0 {
                    return Ok(());
                }
                Err(wrong("router_jitter_noise", &jitter, "a number of at least 0".to_owned()))
            }
            Self::Sigmoid { groups, chosen_groups, factor } => {
                check_positive(wrong, &[("routed_scaling_factor", factor)])?;
                let is_size = |size: &u64| groups == 1 || (*size >= 2 && count.is_multiple_of(groups));
                let size = count.checked_div(groups).filter(is_size);
                let Some(size) = size else {
                    let expected = format!("a number that divides {count} experts into groups of at least 2");
                    return Err(wrong("n_group", &groups, expected));
                };
                let is_enough = size.checked_mul(chosen_groups).is_some_and(|found| found >= per_token);
                if (1..=groups).contains(&chosen_groups) && is_enough {
                    return Ok(());
                }
                let expected = format!("1 to {groups} groups, with at least {per_token} experts");
                Err(wrong("topk_group", &chosen_groups, expected))
            }
        }
    }
}

//! Text of the factor of queries that grows with the position.

use super::super::flag::Flag;

pub(super) const FLAGS: &[Flag] = &[Flag::new("query scale", |it| it.decoder.block().query_scale.is_some())];

/// Lines of `infer` before its loop: the factors of all new positions.
pub(super) const FACTORS: &str = r"    [query scale] far = torch.to(torch.arange(past, torch.add(past, s), dtype=4, device=dev), 7)
    [query scale] far = torch.floor_(torch.div_(far, self.query_scale_old{_}))
    [query scale] far = torch.add_(torch.mul_(torch.log_(torch.add_(far, 1)), self.query_scale_beta{_}), 1)
    [query scale] sharpness = torch.view(torch.to(far, wide), [s, 1, 1])
";

/// Line of `infer` after the rotation of queries.
pub(super) const SCALED: &str = r"      [query scale] q = torch.mul_(q, sharpness)
";

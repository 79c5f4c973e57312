//! Text of routers: the lines of `experts` that make the factors `share` and the experts `ids` from `scores`.

use decoder::{LayerInputs, Router};

use super::super::flag::{Condition, Flag};
use super::experts::of;
use super::named_values::{NamedValues, float_attribute, size_attribute};
use crate::Result;

pub(super) const FLAGS: &[Flag] = &[
    Flag::new("softmax before", |it| {
        of(it).is_some_and(|it| matches!(it.router, Router::BeforeChoice | Router::Scaled))
    }),
    Flag::new("scaled router", IS_SCALED),
    Flag::new("softmax after", |it| of(it).is_some_and(|it| it.router == Router::AfterChoice)),
    Flag::new("sparsemixer", |it| of(it).is_some_and(|it| matches!(it.router, Router::Sparsemixer { .. }))),
    Flag::new("sigmoid", |it| of(it).is_some_and(|it| matches!(it.router, Router::Sigmoid { .. }))),
    Flag::new("groups", |it| {
        of(it).is_some_and(|it| matches!(it.router, Router::Sigmoid { groups: 2.., .. }))
    }),
    Flag::new("renormalised", |it| of(it).is_some_and(|it| it.renormalised)),
];

pub(super) const IS_SCALED: Condition = |it| of(it).is_some_and(|it| it.router == Router::Scaled);

pub(super) const LINES: &str = r#"    [softmax before] share, ids, = torch.topk(torch.softmax(scores, -1), self.per_token{_})
    [softmax after] best, ids, = torch.topk(scores, self.per_token{_})
    [softmax after] share = torch.softmax(best, -1)
    [sparsemixer] top, first, = torch.max(scores, -1, True)
    [sparsemixer] apart = torch.div_(torch.sub(top, scores), torch.maximum(torch.abs(scores), top))
    [sparsemixer] near = torch.masked_fill(scores, torch.gt(apart, self.router_distance{_}), -inf)
    [sparsemixer] one = torch.gather(torch.softmax(near, -1), -1, first)
    [sparsemixer] left = torch.scatter(scores, -1, first, -inf)
    [sparsemixer] top, second, = torch.max(left, -1, True)
    [sparsemixer] apart = torch.div_(torch.sub(top, scores), torch.maximum(torch.abs(scores), top))
    [sparsemixer] near = torch.masked_fill(left, torch.gt(apart, self.router_distance{_}), -inf)
    [sparsemixer] other = torch.gather(torch.softmax(near, -1), -1, second)
    [sparsemixer] share = torch.cat([one, other], self.cat_dim{_})
    [sparsemixer] ids = torch.cat([first, second], self.cat_dim{_})
    [sigmoid] scores = torch.sigmoid(scores)
    [sigmoid] bias = torch.to((weights["choice_bias"])[i], ops.prim.device(scores), ops.prim.dtype(scores))
    [sigmoid] choice = torch.add(scores, bias)
    [groups] parts = torch.view(choice, [torch.size(choice, 0), self.router_groups{_}, -1])
    [groups] best, at, = torch.topk(parts, 2)
    [groups] best, kept, = torch.topk(torch.sum(best, [-1]), self.router_chosen_groups{_})
    [groups] shut = torch.scatter(torch.ones_like(torch.select(parts, -1, 0)), -1, kept, 0)
    [groups] parts = torch.masked_fill(parts, torch.unsqueeze(torch.gt(shut, 0), -1), -inf)
    [groups] choice = torch.reshape(parts, torch.size(choice))
    [sigmoid] best, ids, = torch.topk(choice, self.per_token{_})
    [sigmoid] share = torch.gather(scores, -1, ids)
    [renormalised, not sigmoid] share = torch.div_(share, torch.sum(share, [-1], True))
    [renormalised, sigmoid] share = torch.div_(share, torch.add_(torch.sum(share, [-1], True), 1e-20))
    [sigmoid] share = torch.mul_(share, self.router_factor{_})
    [scaled router] scale = torch.to((weights["expert_scale"])[i], ops.prim.device(scores), ops.prim.dtype(scores))
    [scaled router] share = torch.mul_(share, torch.gather(torch.expand_as(scale, scores), -1, ids))
"#;

/// Returns the numbers that the lines read.
pub(super) fn attributes(router: Router, dim: u64) -> Result<NamedValues> {
    Ok(match router {
        Router::BeforeChoice | Router::AfterChoice => Vec::new(),
        Router::Scaled => vec![float_attribute("router_input", LayerInputs::projection_factor(dim))],
        Router::Sparsemixer { jitter } => vec![float_attribute("router_distance", 2.0 * jitter)],
        Router::Sigmoid { groups, chosen_groups, factor } => vec![
            size_attribute("router_groups", groups)?,
            size_attribute("router_chosen_groups", chosen_groups)?,
            float_attribute("router_factor", factor),
        ],
    })
}

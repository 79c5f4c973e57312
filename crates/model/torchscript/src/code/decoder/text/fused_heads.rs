//! Text of queries, keys and values that one matrix has by head of keys.

use super::super::flag::Flag;

pub(super) const FLAGS: &[Flag] = &[Flag::new("fused heads", |it| it.decoder.block().fused_heads)];

/// Lines of `infer` that take them apart.
pub(super) const SPLIT: &str = r"      [fused heads] qkv = torch.view(torch.to({linear wqkv x}, wide), [b, s, nkv, -1, hd])
      [fused heads] q = torch.reshape(torch.slice(qkv, 3, 0, -2), [b, s, -1, hd])
      [fused heads] k = torch.select(qkv, 3, -2)
";

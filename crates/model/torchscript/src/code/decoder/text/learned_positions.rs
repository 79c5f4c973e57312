//! Text of positions that are a table of weights.

use super::super::flag::{Condition, Flag};

pub(super) const FLAGS: &[Flag] = &[Flag::new("learned", IS_LEARNED)];

pub(super) const IS_LEARNED: Condition = |it| it.decoder.block().learned_positions.is_some();

/// Lines of `infer` after the embeddings. `wrong_length` has compared the number of tokens with that of the rows.
pub(super) const ADDED: &str = r#"    [learned] first = torch.add(past, self.first_position{_})
    [learned] at = torch.arange(first, torch.add(first, s), dtype=4, device=dev)
    [learned] h = torch.add_(h, torch.to(torch.embedding((weights["positions"])[0], at), wide))
"#;

/// Function `wrong_length`, which returns an error message for more tokens than there are positions.
pub(super) const FUNCTIONS: &str = r#"def wrong_length(inputs: Dict[str, Tensor],
    positions: int) -> str:
  wrong = ""
  t = torch.size(inputs["tokens"], -1)
  if torch.__contains__(inputs, "past_key"):
    t = torch.add(t, torch.size(inputs["past_key"], 2))
  if torch.gt(t, positions):
    wrong = torch.format("there are {} tokens, and the model has positions for {}", t, positions)
  return wrong
"#;

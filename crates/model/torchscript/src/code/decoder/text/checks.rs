//! Text of `forward`, which checks its inputs and reports invalid ones. Flags in brackets are as in `infer.rs`.
//!
//! Facts: an exception ends the process of Carton's runner, and its client then waits forever. In a module for Carton,
//! `forward` therefore returns the message, in a dict whose values can have any type.

use super::super::calling_convention::CallingConvention;
use super::super::flag::{Condition, Flag};
use crate::OnInvalidInput;

pub(super) const FLAGS: &[Flag] = &[
    Flag::new("dict", IS_DICT),
    Flag::new("positional", IS_POSITIONAL),
    Flag::new("returns", |it| it.signature == CallingConvention::Dict(OnInvalidInput::Return)),
    RAISES,
];

pub(super) const RAISES: Flag =
    Flag::new("raises", |it| it.signature == CallingConvention::Dict(OnInvalidInput::Raise));

pub(super) const IS_DICT: Condition = |it| matches!(it.signature, CallingConvention::Dict(_));

pub(super) const IS_POSITIONAL: Condition = |it| it.signature == CallingConvention::Positional;

/// `forward` that takes and returns a dict, and `respond`, which it calls. The type `Any` takes a dict with a text, which the
/// runner passes as a `Dict[str, Any]`; Python calls a copy of these methods that takes a `Dict[str, Any]`.
pub(super) const DICT: &str = r#"  def forward(self: Self,
    inputs: Any) -> Dict[str, Any]:
    return (self).respond(inputs, )
  def respond(self: Self,
    given: Any) -> Dict[str, Any]:
    out = annotate(Dict[str, Any], {})
    others = annotate(List[str], [])
    inputs = {ns}.tensors(given, others)
    wrong = ""
    for i in range(torch.len(others)):
      wrong = torch.format("the input {} is not a tensor", others[i])
    if torch.eq(wrong, ""):
      [not half, not mixed] wrong = {ns}.wrong(inputs, self.vocab{_}, torch.len((self.__tensors__{_})["{each}"]), self.n_kv_heads{_}, self.head_dim{_})
      [mixed] wrong = {ns}.wrong(inputs, self.vocab{_}, self.wide_layers{_}, self.wide_kv_heads{_}, self.wide_head_dim{_})
      [half, not mixed] wrong = {ns}.wrong(inputs, self.vocab{_}, torch.len(((self.__tensors__{_}).narrow)["{each}"]), self.n_kv_heads{_}, self.head_dim{_})
    [near] if torch.eq(wrong, ""):
    [near]   wrong = {ns}.wrong_window(inputs, [self.near_layers{_}, 1, 0, self.n_kv_heads{_}, self.head_dim{_}])
    [learned] if torch.eq(wrong, ""):
    [learned]   wrong = {ns}.wrong_length(inputs, self.positions{_})
    [delta] if torch.eq(wrong, ""):
    [delta]   wrong = {ns}.wrong_states(inputs, [self.delta_layers{_}, self.delta_channels{_}, self.delta_taps{_}], [self.delta_layers{_}, self.delta_heads{_}, self.delta_key_dim{_}, self.delta_value_dim{_}])
    if torch.eq(wrong, ""):
      made = (self).infer(inputs, )
      names = torch.keys(made)
      for i in range(torch.len(names)):
        torch._set_item(out, names[i], made[names[i]])
    else:
      [returns] torch._set_item(out, "error", wrong)
      [raises] ops.prim.RaiseException(wrong)
    return out
"#;

/// `forward` that takes and returns one tensor. A tensor or a module may have the name of a method: PyTorch looks for the
/// method first.
pub(super) const POSITIONAL: &str = r#"  def forward(self: Self,
    tokens: Tensor) -> Tensor:
    inputs = annotate(Dict[str, Tensor], {"tokens": tokens})
    [not half, not mixed] wrong = {ns}.wrong(inputs, self.vocab{_}, torch.len((self.__tensors__{_})["{each}"]), self.n_kv_heads{_}, self.head_dim{_})
    [mixed] wrong = {ns}.wrong(inputs, self.vocab{_}, self.wide_layers{_}, self.wide_kv_heads{_}, self.wide_head_dim{_})
    [half, not mixed] wrong = {ns}.wrong(inputs, self.vocab{_}, torch.len(((self.__tensors__{_}).narrow)["{each}"]), self.n_kv_heads{_}, self.head_dim{_})
    [learned] if torch.eq(wrong, ""):
    [learned]   wrong = {ns}.wrong_length(inputs, self.positions{_})
    if torch.ne(wrong, ""):
      ops.prim.RaiseException(wrong)
    out = (self).infer(inputs, )
    return out["logits"]
"#;

/// Functions that check inputs: `tensors` returns the tensors among them, `wrong` returns an error message, or an empty string; `is_on` reads a switch that was
/// checked.
pub(super) const FUNCTIONS: &str = r#"[dict] def tensors(given: Any,
[dict]     others: List[str]) -> Dict[str, Tensor]:
  [dict] inputs = annotate(Dict[str, Tensor], {})
  [dict] has_tensors = isinstance(given, Dict[str, Tensor])
  [dict] if has_tensors:
    [dict] inputs = unchecked_cast(Dict[str, Tensor], given)
  [dict] has_others = isinstance(given, Dict[str, Any])
  [dict] if has_others:
    [dict] values = unchecked_cast(Dict[str, Any], given)
    [dict] names = torch.keys(values)
    [dict] for i in range(torch.len(names)):
      [dict] value = values[names[i]]
      [dict] is_tensor = isinstance(value, Tensor)
      [dict] if is_tensor:
        [dict] torch._set_item(inputs, names[i], unchecked_cast(Tensor, value))
      [dict] else:
        [dict] _ = torch.append(others, names[i])
  [dict] return inputs
def wrong(inputs: Dict[str, Tensor],
    vocab: int,
    layers: int,
    heads: int,
    head_dim: int) -> str:
  wrong = ""
  names = torch.keys(inputs)
  for i in range(torch.len(names)):
    [not delta, not near] if torch.__not__(torch.__contains__(["tokens", "last_only", "use_cache", "past_key", "past_value"], names[i])):
    [near] if torch.__not__(torch.__contains__(["tokens", "last_only", "use_cache", "past_key", "past_value", "past_window_key", "past_window_value"], names[i])):
    [delta] if torch.__not__(torch.__contains__(["tokens", "last_only", "use_cache", "past_key", "past_value", "past_conv", "past_state"], names[i])):
      [not delta, not near] wrong = torch.format("there is no input {}; the inputs are tokens and, if wanted, last_only, use_cache, past_key and past_value", names[i])
      [near] wrong = torch.format("there is no input {}; the inputs are tokens and, if wanted, last_only, use_cache, past_key, past_value, past_window_key and past_window_value", names[i])
      [delta] wrong = torch.format("there is no input {}; the inputs are tokens and, if wanted, last_only, use_cache, past_key, past_value, past_conv and past_state", names[i])
  if torch.eq(wrong, ""):
    if torch.__contains__(inputs, "tokens"):
      wrong = {ns}.wrong_tokens(inputs["tokens"], vocab)
    else:
      wrong = "the input tokens is missing"
  if torch.eq(wrong, ""):
    wrong = {ns}.wrong_switch(inputs, "last_only")
  if torch.eq(wrong, ""):
    wrong = {ns}.wrong_switch(inputs, "use_cache")
  if torch.eq(wrong, ""):
    wrong = {ns}.wrong_past(inputs, layers, heads, head_dim)
  return wrong
def wrong_tokens(tokens: Tensor,
    vocab: int) -> str:
  wrong = ""
  if torch.__or__(torch.is_floating_point(tokens), torch.is_complex(tokens)):
    wrong = "the input tokens has numbers that are not integers, expected token ids as int64"
  if torch.eq(wrong, ""):
    if torch.__not__(torch.__contains__([1, 2], torch.dim(tokens))):
      wrong = torch.format("tokens has {} dimensions, expected 2: batch and seq", torch.dim(tokens))
  if torch.eq(wrong, ""):
    if torch.eq(torch.numel(tokens), 0):
      wrong = torch.format("tokens has the shape {}, expected at least one token", torch.size(tokens))
    else:
      ids = torch.to(tokens, 4)
      low = int(torch.min(ids))
      high = int(torch.max(ids))
      if torch.__or__(torch.lt(low, 0), torch.ge(high, vocab)):
        wrong = torch.format("the input tokens has ids from {} to {}, expected ids from 0 to {}", low, high, torch.sub(vocab, 1))
  return wrong
def wrong_switch(inputs: Dict[str, Tensor],
    name: str) -> str:
  wrong = ""
  if torch.__contains__(inputs, name):
    if torch.ne(torch.numel(inputs[name]), 1):
      wrong = torch.format("{} has the shape {}, expected one number: 0 turns it off, others turn it on", name, torch.size(inputs[name]))
  return wrong
def wrong_past(inputs: Dict[str, Tensor],
    layers: int,
    heads: int,
    head_dim: int) -> str:
  wrong = ""
  has_key = torch.__contains__(inputs, "past_key")
  has_value = torch.__contains__(inputs, "past_value")
  if torch.ne(has_key, has_value):
    wrong = "one of past_key and past_value is missing: they come together"
  if torch.__and__(has_key, has_value):
    batch = 1
    if torch.eq(torch.dim(inputs["tokens"]), 2):
      batch = torch.size(inputs["tokens"], 0)
    key = torch.size(inputs["past_key"])
    value = torch.size(inputs["past_value"])
    n = 0
    if torch.eq(torch.len(key), 5):
      n = key[2]
    expected = [layers, batch, n, heads, head_dim]
    if torch.__or__(torch.ne(key, expected), torch.ne(value, expected)):
      wrong = torch.format("past_key has the shape {} and past_value {}, expected [{}, {}, past, {}, {}] of both", key, value, layers, batch, heads, head_dim)
  return wrong
def is_on(inputs: Dict[str, Tensor],
    name: str) -> bool:
  on = False
  if torch.__contains__(inputs, name):
    on = bool(inputs[name])
  return on
"#;

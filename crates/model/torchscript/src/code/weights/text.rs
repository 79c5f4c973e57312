//! Source text of the weights module, which returns or raises errors.
//!
//! Facts: PyTorch 2.0.1 and 2.15 compiled and ran the texts.

use crate::OnInvalidInput;

pub(super) fn methods(errors: OnInvalidInput) -> String {
    let statement = match errors {
        OnInvalidInput::Return => "torch._set_item(out, \"error\", wrong)",
        OnInvalidInput::Raise => "ops.prim.RaiseException(wrong)",
    };
    FORWARD.replace("{wrong}", statement)
}

/// Returns the functions that `forward` calls; with `has_float4`, they also export pairs of 4-bit floats.
pub(super) fn functions(has_float4: bool) -> String {
    let export =
        if has_float4 { EXPORT.replace(EXPORT_FLOAT4.0, EXPORT_FLOAT4.1) } else { EXPORT.to_owned() };
    CHECK.to_owned() + &export
}

/// Text of `forward`, which Carton's runner calls with gradients enabled and a dict of its inputs. `{wrong}` stands for the
/// statement that it runs for invalid inputs.
const FORWARD: &str = r#"  def forward(self: Self,
    inputs: Dict[str, Tensor]) -> Dict[str, Any]:
    index = self.__tensors__{_}
    out = annotate(Dict[str, Any], {})
    wrong = {ns}.check(index, inputs)
    if torch.eq(wrong, ""):
      if torch.eq(torch.len(inputs), 0):
        names = torch.keys(index)
      else:
        names = torch.keys(inputs)
      for i in range(torch.len(names)):
        name = names[i]
        torch._set_item(out, name, {ns}.export(index[name]))
    else:
      {wrong}
    return out
"#;

/// Function that returns an error message about the inputs, or an empty string. There may be a million tensors, so the
/// message names a few of them.
const CHECK: &str = r#"def check(index: Dict[str, Tensor],
    inputs: Dict[str, Tensor]) -> str:
  wrong = ""
  names = torch.keys(inputs)
  for i in range(torch.len(names)):
    if torch.eq(wrong, ""):
      if torch.__not__(torch.__contains__(index, names[i])):
        wrong = torch.format("there is no tensor {}; {}", names[i], {ns}.known(index))
  return wrong
def known(index: Dict[str, Tensor]) -> str:
  names = torch.keys(index)
  count = torch.len(names)
  few = torch.join(", ", torch.slice(names, 0, 5))
  if torch.eq(count, 0):
    text = "the module has none"
  else:
    if torch.gt(count, 5):
      text = torch.format("the module has {}, such as {}", count, few)
    else:
      text = torch.format("the module has {}", few)
  return text
"#;

/// Function that converts a tensor to a dtype that Carton has. Numbers are `c10::ScalarType`s: 0 uint8, 6 f32, 7 f64, 8
/// complex of f16, 9 complex of f32, 11 bool. `crate::export` is the same conversion in Rust.
const EXPORT: &str = r"def export(t: Tensor) -> Tensor:
  d = ops.prim.dtype(t)
  if torch.is_complex(t):
    if torch.eq(d, 8):
      r = torch.view_as_real(torch.to(t, 9))
    else:
      r = torch.view_as_real(torch.resolve_conj(t))
  else:
    if torch.eq(d, 11):
      r = torch.to(t, 0)
    else:
      if torch.is_floating_point(t):
        if torch.eq(d, 7):
          r = t
        else:
          r = torch.to(t, 6)
      else:
        r = t
  return torch.contiguous(r)
";

/// Text of the last conversion, and its replacement if there are pairs of 4-bit floats, whose `c10::ScalarType` is 45.
const EXPORT_FLOAT4: (&str, &str) = (
    "          r = torch.to(t, 6)\n",
    "          if torch.eq(d, 45):\n            r = torch.view_copy(t, dtype=0)\n          else:\n            r = torch.to(t, 6)\n",
);

//! The forward of the weights module as source text: the one that is written now, as it returns and as it raises errors, and
//! the one that was written before.
//!
//! Facts: PyTorch 2.0.1 and 2.15 compiled and ran the texts. The older one is that of this project's history. An archive that
//! has it runs like a new one, so it is kept as it was, byte for byte. Where the text changes, the old one becomes a constant
//! and a row here.

use crate::Errors;

/// A text.
pub(super) struct Text {
    /// Carton's runner calls this with gradients on and a dict of its inputs. `{wrong}` stands for [`wrong`](Self::wrong).
    forward: &'static str,
    /// What `forward` does with wrong inputs.
    wrong: &'static str,
    /// The functions that `forward` calls.
    functions: &'static [&'static str],
}

/// All texts, those that are written now first.
pub(super) static TEXTS: [&Text; 3] = [&RETURNS, &RAISES, &FIRST];

static RETURNS: Text = Text {
    forward: FORWARD,
    wrong: "      torch._set_item(out, \"error\", wrong)\n",
    functions: &[CHECK, EXPORT],
};
static RAISES: Text = Text { wrong: "      ops.prim.RaiseException(wrong)\n", ..RETURNS };
static FIRST: Text = Text { forward: FIRST_FORWARD, wrong: "", functions: &[EXPORT] };

impl Text {
    /// The text of the modules that are written now.
    pub(super) fn newest(errors: Errors) -> &'static Self {
        match errors {
            Errors::Return => &RETURNS,
            Errors::Raise => &RAISES,
        }
    }

    /// `forward`.
    pub(super) fn methods(&self) -> String {
        self.forward.replace("{wrong}", self.wrong)
    }

    /// The functions that it calls, which export pairs of 4-bit floats if there are some.
    pub(super) fn functions(&self, has_float4: bool) -> String {
        let functions = self.functions.concat();
        if has_float4 { functions.replace(EXPORT_FLOAT4.0, EXPORT_FLOAT4.1) } else { functions }
    }
}

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
{wrong}    return out
"#;

const FIRST_FORWARD: &str = r"  def forward(self: Self,
    inputs: Dict[str, Tensor]) -> Dict[str, Tensor]:
    index = self.__tensors__{_}
    out = annotate(Dict[str, Tensor], {})
    if torch.eq(torch.len(inputs), 0):
      names = torch.keys(index)
    else:
      names = torch.keys(inputs)
    for i in range(torch.len(names)):
      name = names[i]
      torch._set_item(out, name, {ns}.export(index[name]))
    return out
";

/// What is wrong with the inputs, or nothing. There may be a million tensors, so it names a few of them.
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

/// Numbers are `c10::ScalarType`s: 0 uint8, 6 f32, 7 f64, 8 complex of f16, 9 complex of f32, 11 bool. The
/// same in Rust is `crate::export`.
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

/// Replaces the last conversion if there are pairs of 4-bit floats, number 45.
const EXPORT_FLOAT4: (&str, &str) = (
    "          r = torch.to(t, 6)\n",
    "          if torch.eq(d, 45):\n            r = torch.view_copy(t, dtype=0)\n          else:\n            r = torch.to(t, 6)\n",
);

//! Text of inputs of each layer besides the rows of the one before, and of the factor of a layer's result.

use decoder::LayerInputs;

use super::super::flag::Flag;
use super::named_values::{NamedValues, float_attribute, size_attribute};
use crate::Result;

pub(super) const FLAGS: &[Flag] = &[
    Flag::new("layer inputs", |it| it.decoder.block().layer_inputs.is_some()),
    Flag::new("layer scalars", |it| it.decoder.block().layer_scalars),
];

/// Returns the numbers that the lines read.
pub(super) fn attributes(inputs: LayerInputs, dim: u64) -> Result<NamedValues> {
    Ok(vec![
        size_attribute("layer_input", inputs.width)?,
        float_attribute("layer_embedding_scale", inputs.embedding_factor()),
        float_attribute("layer_projection_scale", LayerInputs::projection_factor(dim)),
    ])
}

/// Lines of `infer` after the embeddings: the inputs of all layers.
pub(super) const INPUTS: &str = r#"    [layer inputs] x = torch.to(h, narrow)
    [layer inputs] inner = torch.to({linear layer_projection x 0}, wide)
    [layer inputs] inner = torch.view(torch.mul_(inner, self.layer_projection_scale{_}), [b, s, -1, self.layer_input{_}])
    [layer inputs] inner = {norm layer_projection_norm inner 0}
    [layer inputs, not blocks] own = torch.to(torch.embedding((weights["layer_embedding"])[0], tokens), wide)
    [layer inputs, blocks] own = torch.to({ns}.dequantized(torch.embedding((weights["layer_embedding"])[0], tokens)), wide)
    [layer inputs] own = torch.view(torch.mul_(own, self.layer_embedding_scale{_}), [b, s, -1, self.layer_input{_}])
    [layer inputs] inner = torch.mul_(torch.add_(inner, own), 0.70710678118654757)
"#;

/// Lines at the end of the loop.
pub(super) const ADDED: &str = r#"      [layer inputs] y = torch.to(h, narrow)
      [layer inputs] g = (self).gated({linear layer_input_gate y}, torch.to(torch.select(inner, 2, i), narrow), )
      [layer inputs] f = torch.to({linear layer_input_output g}, wide)
      [layer inputs] h = torch.add_(h, {norm layer_input_norm f})
      [layer scalars] h = torch.mul_(h, torch.to((weights["layer_scalar"])[i], dev, wide))
"#;

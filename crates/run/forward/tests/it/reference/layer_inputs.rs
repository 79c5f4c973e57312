//! Inputs of layers, and experts next to dense layers, the plain way.

use super::*;

impl Random {
    /// The inputs of all layers for a token whose embedding is `h`.
    pub(super) fn inputs(&self, id: i64, h: &[f64]) -> Vec<f64> {
        let Some(inputs) = self.decoder.block().layer_inputs else { return Vec::new() };
        let width = inputs.width as usize;
        let projected = self.linear(Weight::LayerProjection, None, h);
        let scaled: Vec<f64> = projected.iter().map(|x| x / (h.len() as f64).sqrt()).collect();
        let own = &self.of(Weight::LayerEmbedding)[usize::try_from(id).expect("an id") * scaled.len()..];
        let weight = self.of(Weight::LayerProjectionNorm);
        let normed = scaled.chunks_exact(width).flat_map(|part| self.norm(part, weight, None));
        let factor = f64::from((width as f64).sqrt() as f32);
        normed.zip(own).map(|(x, own)| (x + own * factor) / 2_f64.sqrt()).collect()
    }

    /// Adds what a layer makes of its input, and multiplies the row.
    pub(super) fn end_layer(&self, layer: u64, inputs: &[f64], h: &mut [f64]) {
        let of = |part| Weight::Layer { layer, part };
        let block = self.decoder.block();
        if let Some(width) = block.layer_inputs.map(|inputs| inputs.width as usize) {
            let own = &inputs[layer as usize * width..][..width];
            let gate = self.linear(of(LayerPart::LayerInputGate), None, h);
            let gated: Vec<f64> =
                gate.iter().zip(own).map(|(gate, own)| self.activation(*gate, *own)).collect();
            let y = self.linear(of(LayerPart::LayerInputOutput), None, &gated);
            let y = self.norm(&y, self.of(of(LayerPart::LayerInputNorm)), None);
            h.iter_mut().zip(y).for_each(|(h, y)| *h += y);
        }
        if block.layer_scalars {
            let scalar = self.of(of(LayerPart::LayerScalar))[0];
            for h in h.iter_mut() {
                *h *= scalar;
            }
        }
    }

    /// The sum of the dense layer's output for `x` and of the experts' for `h`.
    pub(super) fn experts_beside_dense(&self, layer: u64, h: &[f64], x: &[f64]) -> Vec<f64> {
        let of = |part| (Weight::Layer { layer, part }, Weight::Bias { layer, part });
        let norm = |part, x: &[f64]| self.norm(x, self.of(of(part).0), None);
        let dense = self.dense(layer, [LayerPart::W1, LayerPart::W3, LayerPart::W2].map(of), x);
        let read = norm(LayerPart::RouterScale, h);
        let read: Vec<f64> = read.iter().map(|x| x / (h.len() as f64).sqrt()).collect();
        let y = self.experts(layer, &read, &norm(LayerPart::ExpertsNorm, h));
        let (dense, y) = (norm(LayerPart::DensePostNorm, &dense), norm(LayerPart::ExpertsPostNorm, &y));
        dense.iter().zip(y).map(|(dense, y)| dense + y).collect()
    }
}

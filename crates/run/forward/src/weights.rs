//! Lookup and check of a decoder's weights: matrices stay in the file, vectors are widened.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};

use decoder::{
    Activation, Alibi, AssignedWeight, Assignment, Decoder, FeedForwardKind, HeadNormScope, LayerInputs,
    LayerPart, NormKind, Router, Weight,
};
use tensor::{Budget, Tensor, Tensors};

use crate::activation::LayerActivation;
use crate::alibi::ScoreBias;
use crate::attention::ScoreTransform;
use crate::block::{self, Attention, Layer, Mixer, Norms};
use crate::dims::DecoderDims;
use crate::experts::{Beside, Experts, SharedExpertLayer};
use crate::feed_forward::{FeedForward, GateAndUp};
use crate::kernel::Matrix;
use crate::layer_inputs::InputTable;
use crate::learned_positions::PositionTable;
use crate::linear::Linear;
use crate::memory::{checked_product, size_in_memory};
use crate::norm::Norm;
use crate::number::Real;
use crate::projections::Projections;
use crate::router::ExpertRouter;
use crate::xielu::Xielu;
use crate::{Error, Problem, Result};

#[derive(Debug)]
pub(crate) struct Weights<T> {
    /// Matrix of shape [vocab, dim].
    pub(crate) embedding: Matrix,
    pub(crate) embedding_norm: Option<Norm<T>>,
    /// Positions that are added to embeddings.
    pub(crate) positions: Option<PositionTable>,
    /// Inputs of each layer besides the rows of the one before.
    pub(crate) inputs: Option<InputTable<T>>,
    pub(crate) layers: Vec<Layer<T>>,
    pub(crate) norm: Norm<T>,
    /// Matrix of shape [vocab, dim].
    pub(crate) output: Linear<T>,
}

/// Bytes by which copies of weights may exceed their storages: four bytes can be expanded to terabytes.
const REPEATED_BYTES_MAX: u64 = 1 << 26;

pub(crate) struct WeightLookup<'s> {
    pub(crate) decoder: &'s Decoder,
    pub(crate) dims: DecoderDims,
    tensors: &'s Tensors,
    assigned: HashMap<Weight, &'s AssignedWeight>,
    /// Layer whose keys and values each layer uses.
    pub(crate) key_layers: Vec<u64>,
    /// Budget for copies of weights that cannot be read in place.
    budget: RefCell<Budget>,
}

impl<T: Real> Weights<T> {
    /// Finds the weights of `decoder` among `tensors`.
    ///
    /// # Errors
    /// When a weight is missing, has another shape than the decoder's or another dtype than a floating-point one, or
    /// cannot be read.
    pub(crate) fn new(
        decoder: &Decoder,
        dims: DecoderDims,
        tensors: &Tensors,
        assignment: &Assignment,
    ) -> Result<Self> {
        let assigned = assignment.weights.iter().map(|assigned| (assigned.weight, assigned)).collect();
        let budget = RefCell::new(Budget::new(REPEATED_BYTES_MAX));
        let key_layers = decoder.key_layers();
        let source = WeightLookup { decoder, dims, tensors, assigned, key_layers, budget };
        let layers = (0..decoder.n_layers()).map(|layer| source.layer(layer)).collect::<Result<_>>()?;
        let embedding = source.matrix(Weight::Embedding)?;
        let view = |weight| source.tensor(weight).map(|(_, tensor)| tensor.view_id());
        let output = if view(Weight::Embedding)? == view(Weight::Output)? {
            embedding.clone()
        } else {
            source.matrix(Weight::Output)?
        };
        let bias = (decoder.block().norm == NormKind::Layer).then_some(Weight::NormBias);
        let norm = source.norm(&[Weight::Norm], bias, dims.dim)?;
        let embedding_norm = decoder.block().embedding_norm.then(|| {
            let bias = bias.map(|_| Weight::EmbeddingNormBias);
            source.norm(&[Weight::EmbeddingNorm], bias, dims.dim)
        });
        let embedding_norm = embedding_norm.transpose()?;
        let bias = decoder.biases().logits.then(|| source.vector(Weight::OutputBias)).transpose()?;
        let positions = decoder.block().learned_positions.map(|learned| {
            let offset = size_in_memory(learned.offset)?;
            Ok::<_, Error>(PositionTable { rows: source.matrix(Weight::Positions)?, offset })
        });
        let positions = positions.transpose()?;
        let output = Linear { matrix: output, bias };
        let inputs = source.input_table()?;
        Ok(Self { embedding, embedding_norm, positions, inputs, layers, norm, output })
    }
}

impl WeightLookup<'_> {
    fn layer<T: Real>(&self, layer: u64) -> Result<Layer<T>> {
        let block = self.decoder.block();
        let norm = |part| {
            let weight = Weight::Layer { layer, part };
            // The assignment has followed the flags that say which norms a layer has.
            if !self.assigned.contains_key(&weight) {
                return Ok(None);
            }
            let bias = self.decoder.has_bias(part).then_some(Weight::Bias { layer, part });
            self.norm(&[weight], bias, self.dims.dim).map(Some)
        };
        let replaces_rows = block.adds_to_norms;
        let norms = |before, after| {
            Ok::<_, Error>(Norms { before: norm(before)?, after: norm(after)?, replaces_rows })
        };
        let part = if block.has_experts(layer) {
            block::FeedForwardPart::Experts(Box::new(self.experts(layer)?))
        } else {
            block::FeedForwardPart::FeedForward(Box::new(self.dense(layer)?))
        };
        let mixer = if block.has_delta_net(layer) {
            Mixer::DeltaNet(Box::new(self.delta_net(layer)?))
        } else {
            Mixer::Attention(Box::new(self.attention(layer)?))
        };
        Ok(Layer {
            mixer,
            attention_norms: norms(LayerPart::AttentionNorm, LayerPart::AttentionPostNorm)?,
            part,
            part_norms: norms(LayerPart::FfnNorm, LayerPart::FfnPostNorm)?,
            is_parallel: block.parallel,
            activation: self.activation(layer)?,
            residual: T::from_f64(block.scales.residual),
            input: self.layer_input(layer)?,
            factor: self.layer_scalar(layer)?,
        })
    }

    fn dense<T: Real>(&self, layer: u64) -> Result<FeedForward<T>> {
        let linear = |part| self.layer_linear(layer, part);
        if self.decoder.block().feed_forward == FeedForwardKind::Plain {
            return Ok(FeedForward {
                gate: GateAndUp::Up(linear(LayerPart::W3)?),
                down: linear(LayerPart::W2)?,
            });
        }
        feed_forward([LayerPart::W1, LayerPart::W3, LayerPart::W2].map(linear))
    }

    fn activation(&self, layer: u64) -> Result<LayerActivation> {
        let activation = self.decoder.block().activation;
        if activation != Activation::Xielu {
            return Ok(LayerActivation::Function(activation));
        }
        let mut numbers = [0.0; 4];
        let parts =
            [LayerPart::XieluPositive, LayerPart::XieluNegative, LayerPart::XieluBeta, LayerPart::XieluEps];
        for (number, part) in numbers.iter_mut().zip(parts) {
            *number = self.vector::<f64>(Weight::Layer { layer, part })?.first().copied().unwrap_or_default();
        }
        Ok(LayerActivation::Xielu(Xielu::new(numbers)))
    }

    fn attention<T: Real>(&self, layer: u64) -> Result<Attention<T>> {
        let (scores, heads) = (&self.decoder.block().scores, self.head_sizes(layer)?);
        let is_mixed = self.decoder.block().mixed_heads.is_some();
        // A window that does not fit `usize` is longer than any sequence.
        let window = self.decoder.windows().window_of(layer).map(usize::try_from);
        #[expect(clippy::cast_precision_loss, reason = "the size of a head is small")]
        let usual = T::ONE / T::from_f64((heads.head_dim as f64).sqrt());
        let alibi = self.decoder.block().alibi;
        let sinks = scores.sinks.then(|| self.vector(Weight::Layer { layer, part: LayerPart::Sinks }));
        Ok(Attention {
            place: self.cache_place(layer)?,
            heads,
            value_norm: is_mixed.then(|| self.bare_norm(heads.head_dim)),
            projections: self.projections(layer)?,
            output: self.layer_linear(layer, LayerPart::Wo)?,
            query_norm: self.head_norm(layer, LayerPart::QNorm, self.decoder.n_heads())?,
            key_norm: if self.decoder.shares_keys(layer) {
                None
            } else {
                self.head_norm(layer, LayerPart::KNorm, self.decoder.n_kv_heads_of(layer))?
            },
            has_late_norms: self.decoder.block().head_norm_last,
            limit: self.decoder.block().qkv_limit.map(T::from_f64),
            query_scale: self.decoder.block().query_scale,
            rope: self.decoder.rope_of(layer),
            scores: ScoreTransform {
                window: window.map(|window| window.unwrap_or(usize::MAX).min(usize::MAX / 2)),
                factor: scores.scale.map_or(usual, T::from_f64),
                soft_cap: scores.soft_cap.map(T::from_f64),
                bias: alibi.map(|kind| ScoreBias { kind, slopes: Alibi::slopes(self.decoder.n_heads()) }),
                sinks: sinks.transpose()?,
            },
        })
    }

    fn projections<T: Real>(&self, layer: u64) -> Result<Projections<T>> {
        if let Some(mixed) = self.mixed_projections(layer)? {
            return Ok(mixed);
        }
        let linear = |part| self.layer_linear(layer, part);
        if self.decoder.block().fused_heads {
            return linear(LayerPart::Wqkv).map(Projections::Fused);
        }
        let each = [linear(LayerPart::Wq)?, linear(LayerPart::Wk)?, linear(LayerPart::Wv)?];
        let is_gated = self.decoder.block().gated_attention;
        Ok(if is_gated { Projections::Gated(Box::new(each)) } else { Projections::Three(Box::new(each)) })
    }

    fn head_norm<T: Real>(&self, layer: u64, part: LayerPart, heads: u64) -> Result<Option<Norm<T>>> {
        let head_dim = self.head_sizes(layer)?.head_dim;
        let whole = Weight::Layer { layer, part };
        let norm = match self.decoder.block().head_norm {
            None => return Ok(None),
            Some(HeadNormScope::Head | HeadNormScope::Heads) => {
                let bias = self.decoder.has_bias(part).then_some(Weight::Bias { layer, part });
                self.norm(&[whole], bias, head_dim)?
            }
            Some(HeadNormScope::Projection) => {
                self.norm(&[whole], None, checked_product(&[size_in_memory(heads)?, head_dim])?)?
            }
            Some(HeadNormScope::EachHead) => {
                // If there are more heads than weights, the first missing weight is refused: some weights are not of heads.
                let heads = heads.min(self.assigned.len() as u64);
                let each: Vec<_> = (0..heads).map(|head| Weight::Head { layer, part, head }).collect();
                self.norm(&each, None, head_dim)?
            }
        };
        Ok(Some(norm))
    }

    fn experts<T: Real>(&self, layer: u64) -> Result<Experts<T>> {
        let Some(experts) = &self.decoder.block().experts else {
            return Err(self.missing_weight(Weight::Layer { layer, part: LayerPart::Router }));
        };
        let each = (0..experts.count).map(|expert| {
            let linear = |part| {
                let bias = experts.biases.then_some(Weight::ExpertBias { layer, part, expert });
                self.linear(Weight::Expert { layer, part, expert }, bias)
            };
            if experts.interleaved {
                let gate = GateAndUp::Interleaved(linear(LayerPart::W13)?);
                return Ok(FeedForward { gate, down: linear(LayerPart::W2)? });
            }
            feed_forward([LayerPart::W1, LayerPart::W3, LayerPart::W2].map(linear))
        });
        let shared = experts.shared.map(|shared| {
            let parts = [LayerPart::SharedW1, LayerPart::SharedW3, LayerPart::SharedW2]
                .map(|part| self.layer_linear(layer, part));
            let gate = shared.gated.then(|| self.layer_linear(layer, LayerPart::SharedGate));
            Ok::<_, Error>(SharedExpertLayer { layer: feed_forward(parts)?, gate: gate.transpose()? })
        });
        let choice_bias = Weight::Layer { layer, part: LayerPart::ChoiceBias };
        let router = ExpertRouter {
            kind: experts.router,
            per_token: size_in_memory(experts.per_token)?,
            is_renormalised: experts.renormalised,
            scales: if experts.router == Router::Scaled {
                self.vector(Weight::Layer { layer, part: LayerPart::ExpertScale })?
            } else {
                Vec::new()
            },
            choice_bias: if experts.router.has_choice_bias() {
                self.vector(choice_bias)?
            } else {
                Vec::new()
            },
        };
        Ok(Experts {
            scores: self.layer_linear(layer, LayerPart::Router)?,
            router,
            beside: if experts.beside_dense { Some(self.beside(layer)?) } else { None },
            each: each.collect::<Result<_>>()?,
            shared: shared.transpose()?,
        })
    }

    /// Returns the dense layer next to experts, and their norms.
    fn beside<T: Real>(&self, layer: u64) -> Result<Beside<T>> {
        let norm = |part| self.norm(&[Weight::Layer { layer, part }], None, self.dims.dim);
        let mut router_norm: Norm<T> = norm(LayerPart::RouterScale)?;
        let factor = T::from_f64(LayerInputs::projection_factor(self.decoder.dim()));
        router_norm.weight.iter_mut().for_each(|weight| *weight *= factor);
        Ok(Beside {
            dense: self.dense(layer)?,
            dense_norm: norm(LayerPart::DensePostNorm)?,
            router_norm,
            norms: [norm(LayerPart::ExpertsNorm)?, norm(LayerPart::ExpertsPostNorm)?],
        })
    }

    /// Returns a matrix of a layer, with its bias if it has one.
    pub(crate) fn layer_linear<T: Real>(&self, layer: u64, part: LayerPart) -> Result<Linear<T>> {
        let bias = self.decoder.has_bias(part).then_some(Weight::Bias { layer, part });
        self.linear(Weight::Layer { layer, part }, bias)
    }

    pub(crate) fn linear<T: Real>(&self, weight: Weight, bias: Option<Weight>) -> Result<Linear<T>> {
        let matrix = self.matrix(weight)?;
        Ok(Linear { matrix, bias: bias.map(|bias| self.vector(bias)).transpose()? })
    }

    /// Creates a norm over `part` numbers from the concatenation of these weights.
    pub(crate) fn norm<T: Real>(
        &self,
        weights: &[Weight],
        bias: Option<Weight>,
        part: usize,
    ) -> Result<Norm<T>> {
        let kind = self.decoder.block().norm;
        let mut weight = Vec::new();
        for each in weights {
            weight.extend(self.vector::<T>(*each)?);
        }
        if kind == NormKind::RmsPlusOne {
            for weight in &mut weight {
                *weight += T::ONE;
            }
        }
        Ok(Norm {
            weight,
            bias: bias.map(|bias| self.vector(bias)).transpose()?,
            eps: T::from_f64(self.decoder.norm_eps()),
            is_centred: kind.is_centred(),
            part,
        })
    }

    /// Returns the tensor of a weight, and the name of the tensor that contains it.
    fn tensor(&self, weight: Weight) -> Result<(&str, &Tensor)> {
        let assigned = self.assigned.get(&weight).and_then(|assigned| {
            let (name, _) = self.tensors.get_index(assigned.index)?;
            Some((name, assigned.tensor(self.tensors)?))
        });
        assigned.ok_or_else(|| self.missing_weight(weight))
    }

    fn missing_weight(&self, weight: Weight) -> Error {
        let name = self.decoder.names().name(weight);
        Problem::MissingWeight { weight: name.unwrap_or_else(|| format!("{weight:?}")) }.into()
    }

    /// Returns the tensor of a weight, after comparing its shape with the decoder's.
    fn checked_tensor(&self, weight: Weight) -> Result<&Tensor> {
        let (name, tensor) = self.tensor(weight)?;
        let expected = self.decoder.part_dimensions(weight);
        if tensor.shape() == expected {
            return Ok(tensor);
        }
        Err(Problem::WeightShape { tensor: name.to_owned(), found: tensor.shape().to_vec(), expected }.into())
    }

    fn spend_budget(&self, tensor: &Tensor) -> Result<()> {
        if self.budget.borrow_mut().spend(tensor) {
            return Ok(());
        }
        Err(Problem::TooLarge { shape: tensor.shape().to_vec() }.into())
    }

    pub(crate) fn matrix(&self, weight: Weight) -> Result<Matrix> {
        let (_, tensor) = self.tensor(weight)?;
        // Rows of embeddings are looked up, so they must be rows in the file.
        let turned = Some(tensor)
            .filter(|_| !matches!(weight, Weight::Embedding | Weight::LayerEmbedding | Weight::Positions))
            .and_then(Matrix::column_major);
        if let Some(turned) = turned {
            return self.checked_tensor(weight).map(|_| turned);
        }
        if tensor.mapped_bytes().is_none() {
            self.spend_budget(tensor)?;
        }
        Matrix::new(self.checked_tensor(weight)?)
    }

    pub(crate) fn vector<T: Real>(&self, weight: Weight) -> Result<Vec<T>> {
        let tensor = self.checked_tensor(weight)?;
        if tensor.mapped_bytes().is_none() {
            self.spend_budget(tensor)?;
        }
        let row = tensor.reshaped(&[1, tensor.numel()])?;
        let mut numbers = Vec::new();
        Matrix::new(&row)?.for_each_in_row(0, |number| numbers.push(T::from_f64(number)));
        Ok(numbers)
    }
}

fn feed_forward<T: Real>([gate, up, down]: [Result<Linear<T>>; 3]) -> Result<FeedForward<T>> {
    Ok(FeedForward { gate: GateAndUp::Two([gate?, up?]), down: down? })
}

/// Returns the size of all weights in bytes, as products read them; tensors that are used twice count once.
pub(crate) fn assigned_nbytes(tensors: &Tensors, assignment: &Assignment) -> u64 {
    let indexes: HashSet<usize> = assignment.weights.iter().map(|assigned| assigned.index).collect();
    let tensors = indexes.into_iter().filter_map(|index| tensors.get_index(index));
    let nbytes = |tensor: &Tensor| tensor.q8_0_blocks().as_ref().unwrap_or(tensor).nbytes();
    tensors.fold(0, |sum, (_, tensor)| sum.saturating_add(nbytes(tensor)))
}

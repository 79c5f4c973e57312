//! Assignment of tensors to the weights of a decoder, with a check of their shapes and dtypes.
//!
//! Facts: `model.py` in Meta's `llama-models` 0.3.0 and the modeling files of Hugging Face's `transformers` 5.23, for
//! shapes.

use tensor::{Dtype, Tensor, Tensors};

use crate::block::{HeadNormScope, NormKind, NormPlace};
use crate::delta_net::DeltaNet;
use crate::feed_forward::{Activation, FeedForwardKind};
use crate::layout::{WeightPlace, is_frequencies_name};
use crate::rope::{Llama3, RopeScaling};
use crate::router::Router;
use crate::shape::{SizeTerm, expert_dimensions, shape};
use crate::sizes::Decoder;
use crate::weight::{IN_ORDER, LayerPart, Weight};
use crate::{DecoderNote, Error, Problem, Result};

/// Assignment of tensors to the weights of a decoder.
#[derive(Clone, Debug)]
pub struct Assignment {
    /// Assigned weights: the embeddings, the last norm, the output matrix and the bias of the last norm first, then the
    /// layers in order.
    pub weights: Vec<AssignedWeight>,
    /// Notes about the documents and the tensors.
    pub notes: Vec<DecoderNote>,
}

/// A weight and the tensor that holds it.
#[derive(Clone, Debug)]
pub struct AssignedWeight {
    pub weight: Weight,
    /// Index of the tensor. Tied weights, and weights that are views of one tensor, share an index.
    pub index: usize,
    /// View of the weight inside a fused or stacked tensor; `None` if the weight is the whole tensor.
    pub view: Option<Tensor>,
}

impl AssignedWeight {
    /// Returns the weight as a tensor. `tensors` must be the collection that was assigned.
    pub fn tensor<'t>(&'t self, tensors: &'t Tensors) -> Option<&'t Tensor> {
        self.view.as_ref().or_else(|| tensors.get_index(self.index).map(|(_, tensor)| tensor))
    }

    /// Returns true if the weight is the transpose of its tensor, or of a part of it. `tensors` must be the collection that was assigned.
    pub fn is_transposed(&self, tensors: &Tensors) -> bool {
        let Some((view, (_, tensor))) = self.view.as_ref().zip(tensors.get_index(self.index)) else {
            return false;
        };
        !tensor.stride().ends_with(view.stride())
    }
}

impl Decoder {
    /// Finds and checks the tensor of each weight. With `keep_extra`, unused tensors are reported in a note.
    ///
    /// # Errors
    /// Returns an error if two tensors have the same name, or if a tensor is missing, has the wrong shape or a dtype that is
    /// not floating-point, or is unused and `keep_extra` is false.
    pub fn assign(&self, tensors: &Tensors, keep_extra: bool) -> Result<Assignment> {
        let mut notes = self.notes.clone();
        if let Some(name) = tensors.duplicate_name() {
            return Err(Problem::Duplicate { name: name.to_owned() }.into());
        }
        let mut used = vec![false; tensors.len()];
        let mut first_use =
            |index: usize| used.get_mut(index).is_some_and(|used| !std::mem::replace(used, true));
        let mut weights: Vec<AssignedWeight> = Vec::new();
        let mut embedding = None;
        for weight in self.weights() {
            let mut places = self.places(weight);
            let has_shape = |place: &WeightPlace| {
                tensors.get(&place.name).is_some_and(|tensor| self.has_stored_shape(weight, place, tensor))
            };
            // The same name may hold a matrix or its transpose.
            let at = places.iter().position(has_shape);
            let at =
                at.or_else(|| places.iter().position(|place| tensors.contains(&place.name))).unwrap_or(0);
            // A weight without a name in the layout counts as missing.
            let place = if at < places.len() {
                places.swap_remove(at)
            } else {
                WeightPlace::unsupported_weight(weight)
            };
            let (index, view) = match tensors
                .position(&place.name)
                .and_then(|index| Some((index, tensors.get_index(index)?.1)))
            {
                Some((index, tensor)) => {
                    first_use(index);
                    self.check_weight_tensor(&place.name, tensor, &self.stored_dimensions(weight, &place))?;
                    (index, self.weight_view(weight, &place, tensor)?)
                }
                None => match embedding.filter(|_| self.tied && weight == Weight::Output) {
                    Some(embedding) => {
                        notes.push(DecoderNote::TiedOutput { name: place.name });
                        (embedding, None)
                    }
                    None => {
                        return Err(
                            Problem::MissingTensor { name: place.name, n_layers: self.n_layers() }.into()
                        );
                    }
                },
            };
            embedding = embedding.or(Some(index));
            weights.push(AssignedWeight { weight, index, view });
        }
        for (index, (name, tensor)) in tensors.iter().enumerate() {
            if is_frequencies_name(name) && first_use(index) {
                self.check_weight_tensor(name, tensor, &[vec![SizeTerm::Pairs]])?;
            }
        }
        let extra = tensors.iter().zip(&used).filter(|(_, used)| !**used);
        let names: Vec<String> = extra.map(|((name, _), _)| name.clone()).collect();
        match names.len() {
            0 => {}
            _ if keep_extra => notes.push(DecoderNote::ExtraTensors { names }),
            _ => return Err(Problem::UnexpectedTensors { names }.into()),
        }
        if let Some(RopeScaling::Llama3(Llama3 { factor, .. })) = self.rope().scaling {
            notes.push(DecoderNote::ScaledPositions { factor });
        }
        Ok(Assignment { weights, notes })
    }

    fn places(&self, weight: Weight) -> Vec<WeightPlace> {
        let stored = weight.layer().map_or(weight, |layer| weight.with_layer(self.stored_layer(layer)));
        self.names().places(stored)
    }

    /// Returns all weights, the embeddings first. Their number comes from an untrusted document, so a caller checks each
    /// weight before it requests the next.
    pub fn weights(&self) -> impl Iterator<Item = Weight> {
        let bias = (self.block().norm == NormKind::Layer).then_some(Weight::NormBias);
        let output = self.biases().logits.then_some(Weight::OutputBias);
        let positions = self.block().learned_positions.map(|_| Weight::Positions);
        let outer = [Weight::Embedding, Weight::Norm, Weight::Output].into_iter();
        let outer = outer.chain(bias).chain(output).chain(positions);
        let of_embeddings = [Some(Weight::EmbeddingNorm), bias.map(|_| Weight::EmbeddingNormBias)];
        let of_embeddings = of_embeddings.into_iter().flatten().filter(|_| self.block().embedding_norm);
        let outer = outer.chain(of_embeddings);
        let of_layers = [Weight::LayerEmbedding, Weight::LayerProjection, Weight::LayerProjectionNorm];
        let outer = outer.chain(of_layers.into_iter().filter(|_| self.block().layer_inputs.is_some()));
        outer.chain((0..self.n_layers()).flat_map(|layer| self.layer_weights(layer)))
    }

    fn layer_weights(&self, layer: u64) -> impl Iterator<Item = Weight> {
        let experts = self.block().experts.as_ref().filter(|_| self.block().has_experts(layer));
        let parts = IN_ORDER.into_iter().filter(move |part| self.has_part(layer, *part, experts.is_some()));
        let parts = parts.flat_map(move |part| {
            let heads = match part {
                LayerPart::QNorm => self.n_heads(),
                LayerPart::KNorm => self.n_kv_heads(),
                _ => 0,
            };
            let each = self.block().head_norm == Some(HeadNormScope::EachHead) && heads > 0;
            let alone = (!each).then_some(Weight::Layer { layer, part });
            let bias = self.has_bias(part).then_some(Weight::Bias { layer, part });
            let heads = (0..if each { heads } else { 0 }).map(move |head| Weight::Head { layer, part, head });
            alone.into_iter().chain(bias).chain(heads)
        });
        let experts = experts.into_iter().flat_map(move |experts| {
            let matrices: &[LayerPart] = if experts.interleaved {
                &[LayerPart::W13, LayerPart::W2]
            } else {
                &[LayerPart::W1, LayerPart::W2, LayerPart::W3]
            };
            let each = matrices.iter().flat_map(|part| (0..experts.count).map(|expert| (*part, expert)));
            each.flat_map(move |(part, expert)| {
                let bias = experts.biases.then_some(Weight::ExpertBias { layer, part, expert });
                [Some(Weight::Expert { layer, part, expert }), bias].into_iter().flatten()
            })
        });
        parts.chain(experts)
    }

    fn has_part(&self, layer: u64, part: LayerPart, experts: bool) -> bool {
        let block = self.block();
        let shared = block.experts.as_ref().and_then(|experts| experts.shared).filter(|_| experts);
        let attends = !block.has_delta_net(layer);
        let fused = block.delta_net.as_ref().is_some_and(|delta_net| delta_net.fused);
        let dense = block.has_dense(layer);
        let router = block.experts.as_ref().filter(|_| experts).map(|experts| experts.router);
        match part {
            LayerPart::DeltaQkv | LayerPart::DeltaZ | LayerPart::DeltaB | LayerPart::DeltaA => {
                !attends && !fused
            }
            LayerPart::DeltaQkvz | LayerPart::DeltaBa => !attends && fused,
            LayerPart::DeltaConv
            | LayerPart::DeltaLog
            | LayerPart::DeltaBias
            | LayerPart::DeltaNorm
            | LayerPart::DeltaOut => !attends,
            LayerPart::Wk | LayerPart::KNorm if self.shares_keys(layer) => false,
            LayerPart::Wv if self.shares_keys(layer) || self.has_keys_as_values(layer) => false,
            LayerPart::Wq | LayerPart::Wk | LayerPart::Wv => attends && !block.fused_heads,
            LayerPart::Wqkv => attends && block.fused_heads,
            LayerPart::Wo => attends,
            LayerPart::W1 => dense && block.feed_forward == FeedForwardKind::Gated,
            LayerPart::W2 | LayerPart::W3 => dense,
            LayerPart::AttentionNorm => block.norms != NormPlace::After,
            LayerPart::FfnNorm => {
                block.norms != NormPlace::After && (!block.parallel || block.parallel_norms)
            }
            LayerPart::AttentionPostNorm => block.norms != NormPlace::Before,
            LayerPart::FfnPostNorm => block.norms != NormPlace::Before && !block.parallel,
            LayerPart::QNorm | LayerPart::KNorm => attends && block.head_norm.is_some(),
            LayerPart::Sinks => attends && block.scores.sinks,
            LayerPart::Router => experts,
            LayerPart::SharedW1 | LayerPart::SharedW2 | LayerPart::SharedW3 => shared.is_some(),
            LayerPart::SharedGate => shared.is_some_and(|shared| shared.gated),
            LayerPart::ChoiceBias => router.is_some_and(|router| router.has_choice_bias()),
            LayerPart::RouterScale | LayerPart::ExpertScale => router == Some(Router::Scaled),
            LayerPart::DensePostNorm | LayerPart::ExpertsNorm | LayerPart::ExpertsPostNorm => {
                experts && block.has_experts_beside_dense()
            }
            LayerPart::LayerInputGate | LayerPart::LayerInputOutput | LayerPart::LayerInputNorm => {
                block.layer_inputs.is_some()
            }
            LayerPart::LayerScalar => block.layer_scalars,
            LayerPart::XieluPositive
            | LayerPart::XieluNegative
            | LayerPart::XieluBeta
            | LayerPart::XieluEps => block.activation == Activation::Xielu,
            LayerPart::W13 => false,
        }
    }

    /// Returns true if a part of a layer has a bias.
    pub fn has_bias(&self, part: LayerPart) -> bool {
        match part {
            LayerPart::Wq | LayerPart::Wk | LayerPart::Wv | LayerPart::Wqkv => self.biases().qkv,
            LayerPart::Wo => self.biases().output,
            LayerPart::W1 | LayerPart::W2 | LayerPart::W3 => self.biases().feed_forward,
            LayerPart::AttentionNorm
            | LayerPart::FfnNorm
            | LayerPart::AttentionPostNorm
            | LayerPart::FfnPostNorm => self.block().norm == NormKind::Layer,
            LayerPart::QNorm | LayerPart::KNorm => self.biases().head_norm,
            LayerPart::Router => self.block().experts.as_ref().is_some_and(|experts| experts.biases),
            _ => false,
        }
    }

    /// Returns the expected shape of a weight.
    pub fn part_dimensions(&self, weight: Weight) -> Vec<u64> {
        self.dimensions(weight).iter().map(|sizes| self.sum_of_sizes(sizes)).collect()
    }

    fn dimensions(&self, weight: Weight) -> Vec<Vec<SizeTerm>> {
        let matrix = |part| match weight {
            Weight::Expert { .. } | Weight::ExpertBias { .. } => expert_dimensions(part),
            _ => shape(part, self.block()),
        };
        let of_layer = |size: &SizeTerm| self.size_in_layer(*size, weight.layer());
        let terms = |sizes: &[SizeTerm]| sizes.iter().flat_map(of_layer).collect();
        let all = |sizes: &[&[SizeTerm]]| sizes.iter().map(|sizes| terms(sizes)).collect();
        match weight {
            Weight::Embedding if self.other_embeddings > 0 => {
                all(&[&[SizeTerm::Vocab, SizeTerm::OtherEmbeddings], &[SizeTerm::Dim]])
            }
            Weight::Embedding | Weight::Output => all(&[&[SizeTerm::Vocab], &[SizeTerm::Dim]]),
            Weight::Positions => all(&[&[SizeTerm::Positions], &[SizeTerm::Dim]]),
            Weight::LayerEmbedding => all(&[&[SizeTerm::LayerVocab], &[SizeTerm::LayerInputs]]),
            Weight::LayerProjection => all(&[&[SizeTerm::LayerInputs], &[SizeTerm::Dim]]),
            Weight::LayerProjectionNorm => all(&[&[SizeTerm::LayerInput]]),
            Weight::OutputBias => all(&[&[SizeTerm::Vocab]]),
            Weight::EmbeddingNorm | Weight::EmbeddingNormBias | Weight::Norm | Weight::NormBias => {
                all(&[&[SizeTerm::Dim]])
            }
            Weight::Layer { part, .. } | Weight::Expert { part, .. } => all(matrix(part)),
            Weight::Bias { part, .. } | Weight::ExpertBias { part, .. } => {
                matrix(part).iter().take(1).map(|sizes| terms(sizes)).collect()
            }
            Weight::Head { .. } => all(&[&[SizeTerm::Head]]),
        }
    }

    /// Returns the sizes that add up to a size of the weights of a layer.
    fn size_in_layer(&self, size: SizeTerm, layer: Option<u64>) -> Vec<SizeTerm> {
        let is_wide = layer.is_some_and(|layer| {
            self.block().mixed_heads.is_some() && self.windows().window_of(layer).is_none()
        });
        match size {
            SizeTerm::Head if is_wide => vec![SizeTerm::WideHead],
            SizeTerm::Queries if is_wide => vec![SizeTerm::WideQueries],
            SizeTerm::Keys if is_wide => vec![SizeTerm::WideKeys],
            SizeTerm::Hidden if layer.is_some_and(|layer| self.doubles_hidden(layer)) => vec![size; 2],
            _ => vec![size],
        }
    }

    /// Returns the sizes that add up to each dimension of the tensor at `place`, which may be fused or stacked.
    fn stored_dimensions(&self, weight: Weight, place: &WeightPlace) -> Vec<Vec<SizeTerm>> {
        let mut dimensions = self.dimensions(weight);
        if let Some(rows) = dimensions.first_mut().filter(|_| !place.fused_parts.is_empty()) {
            *rows = place.fused_parts.iter().flat_map(|part| self.row_sizes(weight, *part)).collect();
        }
        if place.has_columns_first {
            dimensions.reverse();
        }
        if let Some((_, transposed)) = place.stack_index {
            if transposed {
                dimensions.reverse();
            }
            dimensions.insert(0, vec![SizeTerm::Experts]);
        }
        dimensions
    }

    /// Returns the sizes that add up to the number of rows of `part` in the same layer as `weight`.
    fn row_sizes(&self, weight: Weight, part: LayerPart) -> Vec<SizeTerm> {
        self.dimensions(weight.with_part(part)).into_iter().next().unwrap_or_default()
    }

    /// Returns the view of the weight inside a fused or stacked tensor; `None` if the weight is the whole tensor.
    fn weight_view(&self, weight: Weight, place: &WeightPlace, tensor: &Tensor) -> Result<Option<Tensor>> {
        let is_turned = place.has_columns_first && tensor.shape().len() == 2;
        if place.fused_parts.is_empty() && place.stack_index.is_none() && !is_turned {
            return Ok(None);
        }
        let failed = |reason: tensor::Error| Error::from(reason).in_tensor(&place.name);
        let before = place.fused_parts.iter().take_while(|part| weight.part() != Some(**part));
        let first = before
            .fold(0_u64, |sum, part| sum.saturating_add(self.sum_of_sizes(&self.row_sizes(weight, *part))));
        let mut stride = tensor.stride().to_vec();
        let mut offset = Some(tensor.storage_offset());
        let mut skip = |count: u64, stride: u64| {
            offset = offset.and_then(|offset| offset.checked_add(count.checked_mul(stride)?));
        };
        if place.has_columns_first {
            stride.reverse();
        }
        if let Some((expert, transposed)) = place.stack_index {
            skip(expert, stride.remove(0));
            if transposed {
                stride.reverse();
            }
        }
        skip(first, stride.first().copied().unwrap_or(0));
        // An offset that overflows is outside the storage too, so `Tensor::new` reports it.
        let offset = offset.unwrap_or(u64::MAX);
        let storage = tensor.storage().clone();
        Tensor::new(tensor.dtype(), self.part_dimensions(weight), stride, offset, storage)
            .map(Some)
            .map_err(failed)
    }

    fn has_stored_shape(&self, weight: Weight, place: &WeightPlace, tensor: &Tensor) -> bool {
        let expected = self.stored_dimensions(weight, place);
        expected.iter().map(|sizes| self.sum_of_sizes(sizes)).eq(tensor.shape().iter().copied())
    }

    fn check_weight_tensor(&self, name: &str, tensor: &Tensor, dimensions: &[Vec<SizeTerm>]) -> Result<()> {
        let expected: Vec<u64> = dimensions.iter().map(|sizes| self.sum_of_sizes(sizes)).collect();
        if tensor.shape() != expected {
            let why = dimensions.iter().map(|sizes| {
                sizes.iter().map(|size| self.describe_size(*size)).collect::<Vec<_>>().join(" plus ")
            });
            return Err(Problem::Shape {
                tensor: name.to_owned(),
                found: tensor.shape().to_vec(),
                expected,
                why: why.collect::<Vec<_>>().join(" and "),
            }
            .into());
        }
        match tensor.dtype() {
            Dtype::Float64 | Dtype::Float32 | Dtype::Float16 | Dtype::BFloat16 => Ok(()),
            dtype => Err(Problem::NotFloat { tensor: name.to_owned(), dtype }.into()),
        }
    }

    fn sum_of_sizes(&self, sizes: &[SizeTerm]) -> u64 {
        sizes.iter().fold(0, |sum, size| sum.saturating_add(self.size_value(*size)))
    }

    fn size_value(&self, size: SizeTerm) -> u64 {
        let experts = self.block().experts.as_ref();
        let shared = experts.and_then(|experts| experts.shared);
        let delta_net = self.block().delta_net.as_ref();
        let mixed = self.block().mixed_heads;
        let inputs = self.block().layer_inputs;
        match size {
            SizeTerm::One => 1,
            SizeTerm::WideHead => mixed.map_or(0, |mixed| mixed.head_dim),
            SizeTerm::WideQueries => mixed.map_or(0, |mixed| self.n_heads().saturating_mul(mixed.head_dim)),
            SizeTerm::WideKeys => mixed.map_or(0, |mixed| mixed.kv_heads.saturating_mul(mixed.head_dim)),
            SizeTerm::LayerInput => inputs.map_or(0, |inputs| inputs.width),
            SizeTerm::LayerInputs => inputs.map_or(0, |inputs| self.n_layers().saturating_mul(inputs.width)),
            SizeTerm::LayerVocab => inputs.map_or(0, |inputs| inputs.vocab),
            SizeTerm::Dim => self.dim(),
            SizeTerm::Head => self.head_dim(),
            SizeTerm::Heads => self.n_heads(),
            SizeTerm::KeyHeads => self.n_kv_heads(),
            SizeTerm::Queries => self.n_heads().saturating_mul(self.head_dim()),
            SizeTerm::Keys => self.n_kv_heads().saturating_mul(self.head_dim()),
            SizeTerm::Hidden => self.hidden(),
            SizeTerm::Vocab => self.vocab(),
            SizeTerm::OtherEmbeddings => self.other_embeddings,
            SizeTerm::Positions => {
                self.block().learned_positions.map_or(0, |it| it.count.saturating_add(it.offset))
            }
            SizeTerm::Pairs => self.rotated().checked_div(2).unwrap_or(0),
            SizeTerm::Experts => experts.map_or(0, |experts| experts.count),
            SizeTerm::ExpertHidden => experts.map_or(0, |experts| experts.hidden),
            SizeTerm::SharedHidden => shared.map_or(0, |shared| shared.hidden),
            SizeTerm::Channels => delta_net.map_or(0, DeltaNet::channels),
            SizeTerm::DeltaHeads => delta_net.map_or(0, |it| it.value_heads),
            SizeTerm::DeltaValue => delta_net.map_or(0, |it| it.value_dim),
            SizeTerm::DeltaValues => delta_net.map_or(0, DeltaNet::values),
            SizeTerm::Kernel => delta_net.map_or(0, |it| it.kernel),
        }
    }

    /// Describes the source of a size, for the error about a shape.
    fn describe_size(&self, size: SizeTerm) -> String {
        let (keys, each, number) = (self.keys(), self.head_dim(), self.size_value(size));
        match size {
            SizeTerm::One => "1".to_owned(),
            SizeTerm::Dim => format!("{} {number}", keys.dim),
            SizeTerm::Head => format!("{} {number}", keys.head_dim),
            SizeTerm::Heads => format!("{} {number}", keys.n_heads),
            SizeTerm::KeyHeads => format!("{} {number}", keys.n_kv_heads),
            SizeTerm::Queries => format!("{} {} (of {each} each)", keys.n_heads, self.n_heads()),
            SizeTerm::Keys => format!("{} {} (of {each} each)", keys.n_kv_heads, self.n_kv_heads()),
            SizeTerm::Hidden => format!("a feed-forward width of {number}"),
            SizeTerm::Vocab => format!("{} {number}", keys.vocab),
            SizeTerm::Positions => format!("{number} positions"),
            SizeTerm::OtherEmbeddings => format!("{number} more"),
            SizeTerm::Pairs => format!("{} {each}", keys.head_dim),
            SizeTerm::Experts => format!("{number} experts"),
            SizeTerm::ExpertHidden => format!("an expert's width of {number}"),
            SizeTerm::SharedHidden => format!("a shared expert's width of {number}"),
            SizeTerm::Channels => format!("{number} channels of queries, keys and values"),
            SizeTerm::DeltaHeads => format!("linear_num_value_heads {number}"),
            SizeTerm::DeltaValue => format!("linear_value_head_dim {number}"),
            SizeTerm::DeltaValues => format!("linear_num_value_heads times linear_value_head_dim {number}"),
            SizeTerm::Kernel => format!("linear_conv_kernel_dim {number}"),
            SizeTerm::WideHead => format!("global_head_dim {number}"),
            SizeTerm::WideQueries => format!("{} times global_head_dim {number}", keys.n_heads),
            SizeTerm::WideKeys => format!("num_global_key_value_heads times global_head_dim {number}"),
            SizeTerm::LayerInput => format!("hidden_size_per_layer_input {number}"),
            SizeTerm::LayerInputs => format!("hidden_size_per_layer_input for each layer {number}"),
            SizeTerm::LayerVocab => format!("vocab_size_per_layer_input {number}"),
        }
    }
}

//! Serves a decoder: tokens in, logits out, with the batch as first dimension of every tensor, as KServe requires.
//!
//! | | in the carton | here |
//! |---|---|---|
//! | `tokens` | `[batch, seq]` | the same |
//! | `last_only`, `use_cache` | `[]` | `[batch]`; zeros count as absent |
//! | `past_key`, `past_value`, `present_key`, `present_value`, and those of windows and states | `[layers, batch, …]` | `[batch, layers, …]` |
//!
//! A response has `present_key` and `present_value` if the request lists them, or if it lists no outputs and gives
//! `use_cache` or the past.

use std::sync::Arc;

use decoder::interface::{DecoderPort, PortDim, PortSizes};
use kserve::{Datatype, InferRequest, InputTensor, ModelConfig, OutputTensor, RequestedOutput, TensorConfig};
use runtime::{Runnable, RunnablePort, RunningCall};
use tensor::{Dtype, Storage, Tensor, contiguous_strides};

use super::elements::{datatype, gather_elements};
use super::request_error::{check_memory, classify, failed};
use crate::model::{CancelToken, InferModel, InferTask, ModelError};
use crate::options::{DEFAULT_MAX_POSITIONS, RequestLimits};
use crate::text::TextModel;

/// Largest batch in the model configuration that clients read. The real bound on a request is its memory.
const MAX_BATCH: u32 = 1024;

/// Tokens of all sequences that go through the layers at once. Other requests run between two such pieces.
const ROWS_AT_ONCE: usize = 128;

/// Decoder in a carton, as a model of the server.
pub(super) struct DecoderModel {
    runnable: Runnable,
    sizes: PortSizes,
    memory: u64,
    /// Tokens of a request, and tokens of a sequence with its past.
    tokens: u64,
    positions: u64,
    text: Option<Arc<TextModel>>,
}

/// Maps a port of the carton to the decoder's own port; `None` if the decoder has no such port.
fn decoder_port(port: &RunnablePort) -> Option<DecoderPort> {
    DecoderPort::from_name(port.internal())
}

impl DecoderModel {
    /// Wraps `runnable`, which must be a decoder of these sizes.
    pub(super) fn new(runnable: Runnable, sizes: PortSizes, limits: &RequestLimits) -> Self {
        let positions =
            limits.positions.or_else(|| runnable.max_positions()).unwrap_or(DEFAULT_MAX_POSITIONS);
        let text = TextModel::from_runnable(&runnable, limits).map(Arc::new);
        Self { runnable, sizes, memory: limits.memory as u64, tokens: limits.tokens, positions, text }
    }

    fn tensor(&self, port: &RunnablePort) -> TensorConfig {
        let shape = decoder_port(port).map(|own| own.shape(&self.sizes)).unwrap_or_default();
        let dims = shape.into_iter().filter(|dim| *dim != PortDim::BATCH).map(|dim| match dim {
            PortDim::Size(size) => Some(size),
            PortDim::Symbol(_) => None,
        });
        TensorConfig {
            name: port.name.clone(),
            datatype: port.tensor_dtype().and_then(datatype).unwrap_or(Datatype::Fp32),
            dims: dims.collect(),
            optional: port.optional || decoder_port(port).is_some_and(DecoderPort::is_present),
        }
    }

    fn input(&self, name: &str) -> Option<&RunnablePort> {
        self.runnable.inputs().iter().find(|port| port.name == name)
    }

    /// Refuses a request that has too many tokens, or whose logits and KV cache would take more than the allowed memory,
    /// before anything is computed.
    fn check_size(&self, request: &InferRequest) -> Result<(), ModelError> {
        let PortSizes { layers, kv_heads, head_dim, vocab, window, delta } = self.sizes;
        let (mut tokens, mut past, mut rows, mut batch) = (0_u64, 0_u64, None, 0);
        for input in &request.inputs {
            let Some(port) = self.input(&input.name) else { continue };
            match (decoder_port(port), input.shape.as_slice()) {
                (Some(DecoderPort::Tokens), &[sequences, seq]) => (batch, tokens) = (sequences, seq),
                (Some(DecoderPort::PastKey | DecoderPort::PastValue), &[_, _, len, _, _]) => {
                    past = past.max(len);
                }
                (Some(DecoderPort::LastOnly), _) if is_on(input)? => rows = Some(1),
                _ => {}
            }
        }
        let (all, sequence) = (batch.saturating_mul(tokens), tokens.saturating_add(past));
        if all > self.tokens {
            return Err(ModelError::Input(Box::new(TooManyTokens { found: all, allowed: self.tokens })));
        }
        if sequence > self.positions {
            let error = TooManyPositions { found: sequence, allowed: self.positions };
            return Err(ModelError::Input(Box::new(error)));
        }
        let product = |sizes: &[u64]| sizes.iter().copied().fold(1, u64::saturating_mul);
        let logits = product(&[batch, rows.unwrap_or(tokens), vocab, F32_SIZE]);
        let cache = product(&[2, batch, sequence, layers, kv_heads, head_dim, F32_SIZE]);
        let near = window
            .map_or(0, |it| product(&[2, batch, sequence, it.layers, it.kv_heads, it.head_dim, F32_SIZE]));
        let cache = cache.saturating_add(near);
        let states = delta.map_or(0, |it| {
            let matrices = product(&[it.heads, it.key_dim, it.value_dim]);
            let each = product(&[it.channels, it.taps]).saturating_add(matrices);
            product(&[2, batch, it.layers, each, F32_SIZE])
        });
        check_memory(logits.saturating_add(cache).saturating_add(states), self.memory)
    }
}

/// Size of an f32, in bytes.
const F32_SIZE: u64 = 4;

impl InferModel for DecoderModel {
    fn text(&self) -> Option<Arc<TextModel>> {
        self.text.clone()
    }

    fn config(&self) -> ModelConfig {
        ModelConfig {
            name: String::new(),
            platform: "carton_decoder".to_owned(),
            backend: "torch2carton".to_owned(),
            max_batch_size: MAX_BATCH,
            input: self.runnable.inputs().iter().map(|port| self.tensor(port)).collect(),
            output: self.runnable.outputs().iter().map(|port| self.tensor(port)).collect(),
        }
    }

    fn infer(
        &self,
        request: &InferRequest,
        cancel: &CancelToken<'_>,
    ) -> Result<Vec<OutputTensor>, ModelError> {
        let mut task = self.start(request.clone())?;
        loop {
            if let Some(outputs) = task.step(cancel)? {
                return Ok(outputs);
            }
        }
    }

    fn steps(&self, request: &InferRequest) -> u64 {
        let is_tokens = |input: &&InputTensor| {
            self.input(&input.name).and_then(decoder_port) == Some(DecoderPort::Tokens)
        };
        match request.inputs.iter().find(is_tokens).map(|tokens| tokens.shape.as_slice()) {
            Some(&[batch, seq]) => {
                seq.div_ceil((ROWS_AT_ONCE as u64).checked_div(batch).unwrap_or_default().max(1))
            }
            _ => 1,
        }
    }

    fn start<'m>(&'m self, request: InferRequest) -> Result<Box<dyn InferTask + 'm>, ModelError> {
        self.check_size(&request)?;
        let (mut inputs, mut keeps) = (Vec::new(), false);
        for input in &request.inputs {
            let Some(port) = self.input(&input.name) else { continue };
            let tensor = match decoder_port(port) {
                Some(own) if own.is_switch() && !is_on(input)? => continue,
                Some(own) if own.is_switch() => {
                    keeps |= own == DecoderPort::UseCache;
                    Tensor::new(Dtype::Int64, vec![], vec![], 0, Storage::owned(1_i64.to_le_bytes().to_vec()))
                        .map_err(failed)?
                }
                Some(own) if own.is_past() => {
                    keeps = true;
                    swap_batch_and_layers(&input_tensor(port, input)?)
                }
                _ => input_tensor(port, input)?,
            };
            inputs.push((input.name.clone(), tensor));
        }
        let mut wanted: Vec<String> = request.outputs.iter().map(|output| output.name.clone()).collect();
        let is_present = |port: &&RunnablePort| decoder_port(port).is_some_and(DecoderPort::is_present);
        let present = || self.runnable.outputs().iter().filter(is_present).map(|port| &port.name);
        if keeps && !request.lists_outputs {
            wanted.extend(present().cloned());
        }
        let call = self.runnable.start(&inputs, Some(&wanted), ROWS_AT_ONCE).map_err(classify)?;
        Ok(Box::new(DecoderTask { model: self, call: Some(call), listed: request.outputs }))
    }
}

/// Request whose tokens go through the layers in pieces.
struct DecoderTask<'m> {
    model: &'m DecoderModel,
    call: Option<RunningCall>,
    listed: Vec<RequestedOutput>,
}

impl InferTask for DecoderTask<'_> {
    fn step(&mut self, cancel: &CancelToken<'_>) -> Result<Option<Vec<OutputTensor>>, ModelError> {
        let Some(call) = &mut self.call else { return Ok(Some(Vec::new())) };
        if call.advance(cancel).map_err(classify)? {
            return Ok(None);
        }
        let outputs = self.call.take().map_or(Ok(Vec::new()), RunningCall::finish).map_err(classify)?;
        let output = |(name, tensor): (String, Tensor)| {
            let port = self.model.runnable.outputs().iter().find(|port| port.name == name);
            let is_present = port.and_then(decoder_port).is_some_and(DecoderPort::is_present);
            let tensor = if is_present { swap_batch_and_layers(&tensor) } else { tensor };
            let listed = self.listed.iter().find(|output| output.name == name);
            Ok(OutputTensor {
                name,
                datatype: datatype(tensor.dtype()).unwrap_or(Datatype::Fp32),
                shape: tensor.shape().to_vec(),
                parameters: Vec::new(),
                data: gather_elements(&tensor)?,
                is_binary: listed.or(self.listed.first()).is_some_and(|output| output.is_binary),
            })
        };
        outputs.into_iter().map(output).collect::<Result<_, _>>().map(Some)
    }
}

/// Builds a tensor from an input, with the dtype of its port.
fn input_tensor(port: &RunnablePort, input: &InputTensor) -> Result<Tensor, ModelError> {
    let dtype = port.tensor_dtype().unwrap_or(Dtype::Float32);
    let (shape, stride) = (input.shape.clone(), contiguous_strides(&input.shape));
    Tensor::new(dtype, shape, stride, 0, Storage::owned(input.data.to_vec())).map_err(failed)
}

/// Transposes the first two dimensions, batch and layers, without copying.
fn swap_batch_and_layers(tensor: &Tensor) -> Tensor {
    tensor.transpose(0, 1).unwrap_or_else(|| tensor.clone())
}

/// Reads a switch such as `use_cache`: true if its values are nonzero. The values must agree across the batch, since its
/// sequences run together.
fn is_on(input: &InputTensor) -> Result<bool, ModelError> {
    let size = input.datatype.size().unwrap_or(1).max(1);
    let mut values = input.data.chunks(size).map(|value| value.iter().any(|byte| *byte != 0));
    let first = values.next().unwrap_or(false);
    if values.any(|value| value != first) {
        return Err(ModelError::Input(Box::new(MixedSwitch { name: input.name.clone() })));
    }
    Ok(first)
}

/// Error for a request that gives more tokens than one request may.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the request has {found} tokens, and {allowed} are allowed")]
struct TooManyTokens {
    found: u64,
    allowed: u64,
}

/// Error for a sequence that is longer than the model's positions.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("a sequence has {found} tokens with its past, and the model has {allowed} positions")]
struct TooManyPositions {
    found: u64,
    allowed: u64,
}

#[derive(Debug, thiserror::Error)]
#[error("the input `{}` differs within the batch", name.escape_debug())]
struct MixedSwitch {
    name: String,
}

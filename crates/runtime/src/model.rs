//! Runs a decoder with the inputs and outputs that its carton declares.
//!
//! Facts: the TorchScript text that `torchscript` writes: which inputs it takes, what they mean, and when it returns keys
//! and values.

use carton_format::{DataType, Dimension, Shape};
use forward::{Cache, Model, Rows};
use tensor::{Dtype, Tensor};

use crate::numbers::{floats, integers};
use crate::{Check, Error, InputError, Port, Result, ports};

const TOKENS: &str = "tokens";
const LAST_ONLY: &str = "last_only";
const USE_CACHE: &str = "use_cache";
const PAST_KEY: &str = "past_key";
const PAST_VALUE: &str = "past_value";
const LOGITS: &str = "logits";
const PRESENT_KEY: &str = "present_key";
const PRESENT_VALUE: &str = "present_value";

/// What the model takes.
pub(crate) const INPUTS: [&str; 5] = [TOKENS, LAST_ONLY, USE_CACHE, PAST_KEY, PAST_VALUE];
/// What it returns.
pub(crate) const OUTPUTS: [&str; 3] = [LOGITS, PRESENT_KEY, PRESENT_VALUE];

/// The inputs and outputs of a decoder whose carton declares none.
pub(crate) fn ports(decoder: &decoder::Decoder) -> (Vec<Port>, Vec<Port>) {
    let symbol = |name: &str| Dimension::Symbol(name.to_owned());
    let port = |name: &str, dtype, shape: Vec<Dimension>| {
        carton_format::Port::new(name, dtype, Shape::Dimensions(shape))
    };
    let batch_seq = || vec![symbol("batch"), symbol("seq")];
    let cache = |name: &str, tokens: &str| {
        let (heads, head_dim) = (Dimension::Size(decoder.n_kv_heads()), Dimension::Size(decoder.head_dim()));
        let shape =
            vec![Dimension::Size(decoder.n_layers()), symbol("batch"), symbol(tokens), heads, head_dim];
        port(name, DataType::Float32, shape)
    };
    let mut logits = batch_seq();
    logits.push(Dimension::Size(decoder.vocab()));
    let inputs = [
        (port(TOKENS, DataType::Int64, batch_seq()), false),
        (port(LAST_ONLY, DataType::Int64, Vec::new()), true),
        (port(USE_CACHE, DataType::Int64, Vec::new()), true),
        (cache(PAST_KEY, "past"), true),
        (cache(PAST_VALUE, "past"), true),
    ];
    let outputs = [
        (port(LOGITS, DataType::Float32, logits), false),
        (cache(PRESENT_KEY, "total"), true),
        (cache(PRESENT_VALUE, "total"), true),
    ];
    let made = |ports: &[(carton_format::Port, bool)]| {
        ports.iter().map(|(port, optional)| Port::new(port, *optional)).collect()
    };
    (made(&inputs), made(&outputs))
}

/// A decoder and the ports that carton.toml gives it.
pub(crate) struct Decoder<'r> {
    pub(crate) model: &'r Model,
    pub(crate) inputs: &'r [Port],
    pub(crate) outputs: &'r [Port],
}

impl Decoder<'_> {
    pub(crate) fn infer(
        &self,
        inputs: &[(String, Tensor)],
        wanted: Option<&[String]>,
        check: Check<'_>,
    ) -> Result<Vec<(String, Tensor)>> {
        let inputs = self.batched(inputs);
        ports::check(self.inputs, &inputs)?;
        let input = |internal: &str| {
            let port = self.inputs.iter().find(|port| port.internal() == internal)?;
            inputs.iter().find(|(name, _)| *name == port.name)
        };
        for name in wanted.unwrap_or_default() {
            if !self.outputs.iter().any(|port| port.name == *name) {
                let known = self.outputs.iter().map(|port| port.name.clone()).collect();
                return Err(Error::NoOutput { name: name.clone(), known });
            }
        }
        let (name, tokens) = input(TOKENS).ok_or_else(|| InputError::Missing { name: TOKENS.to_owned() })?;
        let ids = integers(name, tokens)?.ok_or_else(|| InputError::Dtype {
            name: name.clone(),
            found: tokens.dtype().name().to_owned(),
            expected: "integers",
        })?;
        let &[batch, seq] = tokens.shape() else {
            let (found, expected) = (tokens.shape().to_vec(), "[batch, seq]".to_owned());
            return Err(InputError::Shape { name: name.clone(), found, expected }.into());
        };
        let rows = if input(LAST_ONLY).is_some() { Rows::Last } else { Rows::All };
        let batch_len = usize::try_from(batch).unwrap_or(usize::MAX);
        let (mut cache, has_past) = self.cache(batch_len, input(PAST_KEY), input(PAST_VALUE))?;
        let logits = self.model.forward(&ids, batch_len, &mut cache, rows, check)?;
        let is_wanted = |port: &Port| wanted.is_none_or(|wanted| wanted.contains(&port.name));
        // A caller that lists keys and values as outputs need not give `use_cache`, too.
        let keeps = has_past || input(USE_CACHE).is_some() || wanted.is_some();
        let is_cache = |port: &Port| port.internal() == PRESENT_KEY || port.internal() == PRESENT_VALUE;
        let needs_cache = keeps && self.outputs.iter().any(|port| is_cache(port) && is_wanted(port));
        let present = if needs_cache { Some(cache.tensors()?) } else { None };
        let mut out = Vec::new();
        for port in self.outputs.iter().filter(|port| is_wanted(port)) {
            let tensor = match (port.internal(), &present) {
                (LOGITS, _) => {
                    let seq = if rows == Rows::Last { 1 } else { seq };
                    floats(vec![batch, seq, self.model.vocab() as u64], &logits)
                }
                (PRESENT_KEY, Some([keys, _])) => Some(keys.clone()),
                (PRESENT_VALUE, Some([_, values])) => Some(values.clone()),
                _ => None,
            };
            out.extend(tensor.map(|tensor| (port.name.clone(), tensor)));
        }
        Ok(out)
    }

    /// Tokens with one dimension are a batch of one, as the description of the input says.
    fn batched(&self, inputs: &[(String, Tensor)]) -> Vec<(String, Tensor)> {
        let tokens = self.inputs.iter().find(|port| port.internal() == TOKENS).map(|port| port.name.as_str());
        let batched = |(name, tensor): &(String, Tensor)| {
            let is_row = Some(name.as_str()) == tokens && tensor.shape().len() == 1;
            let row = if is_row { as_row(tensor) } else { None };
            (name.clone(), row.unwrap_or_else(|| tensor.clone()))
        };
        inputs.iter().map(batched).collect()
    }

    fn cache(
        &self,
        batch: usize,
        key: Option<&(String, Tensor)>,
        value: Option<&(String, Tensor)>,
    ) -> Result<(Cache, bool)> {
        match (key, value) {
            (None, None) => Ok((self.model.cache(batch)?, false)),
            (Some((_, key)), Some((_, value))) => {
                Ok((self.model.cache_from_tensors(batch, key, value)?, true))
            }
            _ => Err(InputError::HalfPast.into()),
        }
    }
}

/// The same elements with a first dimension of 1.
fn as_row(tensor: &Tensor) -> Option<Tensor> {
    let (&[len], &[step]) = (tensor.shape(), tensor.stride()) else { return None };
    let stride = vec![len.saturating_mul(step), step];
    let dtype: Dtype = tensor.dtype();
    Tensor::new(dtype, vec![1, len], stride, tensor.storage_offset(), tensor.storage().clone()).ok()
}

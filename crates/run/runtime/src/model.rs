//! Runs a decoder with the inputs and outputs that its carton declares.
//!
//! Facts: [`decoder::interface`].

use std::sync::Arc;

use byte_source::Observer;
use carton_format::{DataType, Dimension, Shape};
use decoder::interface::{DecoderCall, DecoderPort, InvalidCall, PortDim, PortSizes};
use forward::{ForwardModel, ForwardPass, KvCache, LogitPositions};
use tensor::{Dtype, Tensor};

use crate::numbers::{f32_tensor, read_f64, read_i64};
use crate::{InputError, Problem, Result, RunnablePort, ports};

/// Returns the inputs and outputs of a decoder whose carton declares none.
pub(crate) fn default_ports(decoder: &decoder::Decoder) -> (Vec<RunnablePort>, Vec<RunnablePort>) {
    let sizes = PortSizes::from(decoder);
    let dimension = |dim| match dim {
        PortDim::Symbol(symbol) => Dimension::Symbol(symbol.to_owned()),
        PortDim::Size(size) => Dimension::Size(size),
    };
    let port = |port: DecoderPort| {
        let shape = Shape::Dimensions(port.shape(&sizes).into_iter().map(dimension).collect());
        let dtype = if port.dtype() == Dtype::Int64 { DataType::Int64 } else { DataType::Float32 };
        RunnablePort::new(&carton_format::Port::new(port.name(), dtype, shape), port.is_optional())
    };
    let all = |ports: Vec<DecoderPort>| ports.into_iter().map(port).collect();
    (all(DecoderPort::inputs(&sizes)), all(DecoderPort::outputs(&sizes)))
}

/// Decoder with the ports that carton.toml declares.
pub(crate) struct DecoderRun<'r> {
    pub(crate) model: &'r Arc<ForwardModel>,
    pub(crate) inputs: &'r [RunnablePort],
    pub(crate) outputs: &'r [RunnablePort],
}

/// Call of a decoder whose tokens go through the layers in pieces.
#[derive(Debug)]
pub(crate) struct DecoderPass {
    model: Arc<ForwardModel>,
    cache: KvCache,
    pass: ForwardPass,
    rows: LogitPositions,
    batch: u64,
    seq: u64,
    /// Outputs to return, each with the decoder's own port.
    wanted: Vec<(String, Option<DecoderPort>)>,
    needs_cache: bool,
}

impl DecoderPass {
    /// Computes the next piece. Returns true if there are more.
    pub(crate) fn advance(&mut self, observer: &dyn Observer) -> Result<bool> {
        self.model.advance(&mut self.pass, &mut self.cache, observer)
    }

    /// Returns the outputs, once all pieces are computed.
    pub(crate) fn finish(self) -> Result<Vec<(String, Tensor)>> {
        let logits = self.pass.into_logits();
        let present = if self.needs_cache { self.cache.tensors()? } else { Vec::new() };
        let mut out = Vec::new();
        for (name, own) in self.wanted {
            let tensor = match own {
                Some(DecoderPort::Logits) => {
                    let seq = if self.rows == LogitPositions::Last { 1 } else { self.seq };
                    f32_tensor(vec![self.batch, seq, self.model.vocab() as u64], &logits)
                }
                own => present.iter().find(|(port, _)| Some(*port) == own).map(|(_, tensor)| tensor.clone()),
            };
            out.extend(tensor.map(|tensor| (name, tensor)));
        }
        Ok(out)
    }
}

impl DecoderRun<'_> {
    /// Checks the inputs of a call, and starts a pass of about `rows_at_once` rows in each piece.
    pub(crate) fn start(
        &self,
        inputs: &[(String, Tensor)],
        wanted: Option<&[String]>,
        rows_at_once: usize,
    ) -> Result<DecoderPass> {
        let inputs = self.with_batch_dimension(inputs);
        ports::check_inputs_fit(self.inputs, &inputs)?;
        let input = |own: DecoderPort| {
            let port = self.inputs.iter().find(|port| port.internal() == own.name())?;
            inputs.iter().find(|(name, _)| *name == port.name)
        };
        let missing = || InputError::Missing { name: DecoderPort::Tokens.name().to_owned() };
        for name in wanted.unwrap_or_default() {
            if !self.outputs.iter().any(|port| port.name == *name) {
                let known = self.outputs.iter().map(|port| port.name.clone()).collect();
                return Err(Problem::NoOutput { name: name.clone(), known }.into());
            }
        }
        let mut given = Vec::new();
        let ports = DecoderPort::inputs(&self.model.port_sizes());
        for port in ports.iter().copied() {
            if let Some((name, tensor)) = input(port)
                && (!port.is_switch() || is_on(name, tensor)?)
            {
                given.push(port);
            }
        }
        let call = DecoderCall::new(&given).map_err(|invalid| match invalid {
            InvalidCall::NoTokens => missing(),
            InvalidCall::IncompletePast => InputError::IncompletePast { ports: "past_key and past_value" },
        })?;
        let (name, tokens) = input(DecoderPort::Tokens).ok_or_else(missing)?;
        let ids = read_i64(name, tokens)?.ok_or_else(|| InputError::Dtype {
            name: name.clone(),
            found: tokens.dtype().name().to_owned(),
            expected: "integers",
        })?;
        let &[batch, seq] = tokens.shape() else {
            let (found, expected) = (tokens.shape().to_vec(), "[batch, seq]".to_owned());
            return Err(InputError::Shape { name: name.clone(), found, expected }.into());
        };
        let rows = if call.last_only { LogitPositions::Last } else { LogitPositions::All };
        let batch_len = usize::try_from(batch).unwrap_or(usize::MAX);
        let given_past: Vec<Tensor> = ports
            .iter()
            .filter(|port| port.is_past())
            .filter_map(|port| Some(input(*port)?.1.clone()))
            .collect();
        let cache = if given_past.is_empty() {
            self.model.cache(batch_len)?
        } else if given_past.len() == ports.iter().filter(|port| port.is_past()).count() {
            self.model.cache_from_tensors(batch_len, &given_past)?
        } else {
            let ports = if self.model.port_sizes().window.is_some() {
                "past_key, past_value, past_window_key and past_window_value"
            } else {
                "past_key, past_value, past_conv and past_state"
            };
            return Err(InputError::IncompletePast { ports }.into());
        };
        let pass = self.model.start(&ids, batch_len, rows, rows_at_once)?;
        let is_wanted = |port: &&RunnablePort| wanted.is_none_or(|wanted| wanted.contains(&port.name));
        // A caller that lists keys and values as outputs does not also have to give `use_cache`.
        let returns_cache = call.returns_cache || wanted.is_some();
        let own = |port: &RunnablePort| (port.name.clone(), DecoderPort::from_name(port.internal()));
        let wanted: Vec<_> = self.outputs.iter().filter(is_wanted).map(own).collect();
        let has_present = wanted.iter().any(|(_, own)| own.is_some_and(DecoderPort::is_present));
        let needs_cache = returns_cache && has_present;
        let model = Arc::clone(self.model);
        Ok(DecoderPass { model, cache, pass, rows, batch, seq, wanted, needs_cache })
    }

    /// Adds a batch dimension of 1 to tokens with one dimension, as the description of the input promises.
    fn with_batch_dimension(&self, inputs: &[(String, Tensor)]) -> Vec<(String, Tensor)> {
        let is_tokens = |port: &&RunnablePort| port.internal() == DecoderPort::Tokens.name();
        let tokens = self.inputs.iter().find(is_tokens).map(|port| port.name.as_str());
        let batched = |(name, tensor): &(String, Tensor)| {
            let is_row = Some(name.as_str()) == tokens && tensor.shape().len() == 1;
            let row = if is_row { add_batch_dimension(tensor) } else { None };
            (name.clone(), row.unwrap_or_else(|| tensor.clone()))
        };
        inputs.iter().map(batched).collect()
    }
}

/// Reads a switch such as `last_only`: true if any of its elements is nonzero.
fn is_on(name: &str, switch: &Tensor) -> Result<bool> {
    Ok(read_f64(name, switch)?.is_some_and(|numbers| numbers.iter().any(|number| *number != 0.0)))
}

/// Adds a first dimension of 1 to a tensor of one dimension; `None` for any other tensor.
fn add_batch_dimension(tensor: &Tensor) -> Option<Tensor> {
    let &[_] = tensor.shape() else { return None };
    tensor.unsqueeze(0)
}

#[cfg(test)]
mod tests {
    use tensor::Storage;

    use super::*;
    use crate::{Runnable, RunnableOptions};

    fn integers(shape: &[u64], values: &[i64]) -> Tensor {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let stride = tensor::contiguous_strides(shape);
        Tensor::new(Dtype::Int64, shape.to_vec(), stride, 0, Storage::owned(bytes)).expect("it fits")
    }

    #[test]
    fn switches_are_on_if_they_are_not_0() {
        let folder = tempfile::tempdir().expect("a folder");
        test_support::tiny_llama::write(folder.path()).expect("the checkpoint is written");
        let mut options = convert::ConvertOptions::new(folder.path());
        options.output = Some(folder.path().join("x.carton"));
        convert::convert(&options, &()).expect("it converts");
        let opened = Runnable::open(&folder.path().join("x.carton"), &RunnableOptions::default(), &());
        let llama = opened.expect("a carton of ours");
        let shapes = |switches: &[(DecoderPort, i64)]| {
            let mut inputs = vec![("tokens".to_owned(), integers(&[1, 3], &[1, 2, 3]))];
            let switch =
                |(port, value): &(DecoderPort, i64)| (port.name().to_owned(), integers(&[], &[*value]));
            inputs.extend(switches.iter().map(switch));
            let outputs = llama.infer(&inputs, None).expect("it runs");
            outputs.into_iter().map(|(name, tensor)| (name, tensor.shape().to_vec())).collect::<Vec<_>>()
        };
        let logits = |tokens| ("logits".to_owned(), vec![1, tokens, 256]);
        assert_eq!(shapes(&[(DecoderPort::LastOnly, 0), (DecoderPort::UseCache, 0)]), [logits(3)]);
        assert_eq!(shapes(&[(DecoderPort::LastOnly, 2)]), [logits(1)]);
        assert_eq!(shapes(&[(DecoderPort::UseCache, 1)]).len(), 3);
    }
}

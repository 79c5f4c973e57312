//! Inputs and outputs of a decoder, common to its TorchScript module, the CPU forward and the server.
//!
//! Facts: `forward` of the TorchScript text that `torchscript` writes.

use tensor::Dtype;

use crate::Decoder;

/// An input or an output of a decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecoderPort {
    /// Token ids, as an input.
    Tokens,
    /// Switch that limits the logits to the last token.
    LastOnly,
    /// Switch that adds the KV cache to the outputs.
    UseCache,
    /// Keys of the preceding tokens.
    PastKey,
    /// Values of the preceding tokens.
    PastValue,
    /// Logits of the tokens that may follow.
    Logits,
    /// Keys of all tokens so far.
    PresentKey,
    /// Values of all tokens so far.
    PresentValue,
}

/// A dimension of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortDim {
    /// A size that depends on the call; equal symbols have equal sizes.
    Symbol(&'static str),
    /// A fixed number of elements.
    Size(u64),
}

impl PortDim {
    /// Number of sequences in a call.
    pub const BATCH: Self = Self::Symbol("batch");
    /// Number of new tokens in each sequence.
    pub const SEQ: Self = Self::Symbol("seq");
    /// Number of tokens in each sequence before the new ones.
    pub const PAST: Self = Self::Symbol("past");
    /// Number of tokens in each sequence after the call.
    pub const TOTAL: Self = Self::Symbol("total");
}

/// Sizes, in elements, that are the same for all calls of a decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortSizes {
    /// Number of layers in the model.
    pub layers: u64,
    /// Number of heads of keys and values.
    pub kv_heads: u64,
    /// Size of a head.
    pub head_dim: u64,
    /// Size of the vocabulary.
    pub vocab: u64,
}

impl From<&Decoder> for PortSizes {
    fn from(decoder: &Decoder) -> Self {
        Self {
            layers: decoder.n_layers(),
            kv_heads: decoder.n_kv_heads(),
            head_dim: decoder.head_dim(),
            vocab: decoder.vocab(),
        }
    }
}

impl DecoderPort {
    /// Input ports, in the order of carton.toml.
    pub const INPUTS: [Self; 5] =
        [Self::Tokens, Self::LastOnly, Self::UseCache, Self::PastKey, Self::PastValue];
    /// Output ports, in the order of carton.toml.
    pub const OUTPUTS: [Self; 3] = [Self::Logits, Self::PresentKey, Self::PresentValue];

    /// Returns the key of the port in the dict of inputs or outputs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tokens => "tokens",
            Self::LastOnly => "last_only",
            Self::UseCache => "use_cache",
            Self::PastKey => "past_key",
            Self::PastValue => "past_value",
            Self::Logits => "logits",
            Self::PresentKey => "present_key",
            Self::PresentValue => "present_value",
        }
    }

    /// Returns the port with this key.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::INPUTS.into_iter().chain(Self::OUTPUTS).find(|port| port.name() == name)
    }

    /// Returns the dtype of the elements.
    pub fn dtype(self) -> Dtype {
        match self {
            Self::Tokens | Self::LastOnly | Self::UseCache => Dtype::Int64,
            _ => Dtype::Float32,
        }
    }

    /// Returns the dimensions for a model of these sizes.
    pub fn shape(self, sizes: &PortSizes) -> Vec<PortDim> {
        use PortDim::Size;
        let cache = |tokens| {
            let (layers, heads) = (Size(sizes.layers), Size(sizes.kv_heads));
            vec![layers, PortDim::BATCH, tokens, heads, Size(sizes.head_dim)]
        };
        match self {
            Self::Tokens => vec![PortDim::BATCH, PortDim::SEQ],
            Self::LastOnly | Self::UseCache => Vec::new(),
            Self::PastKey | Self::PastValue => cache(PortDim::PAST),
            Self::Logits => vec![PortDim::BATCH, PortDim::SEQ, Size(sizes.vocab)],
            Self::PresentKey | Self::PresentValue => cache(PortDim::TOTAL),
        }
    }

    /// Returns true if calls may omit the port.
    pub fn is_optional(self) -> bool {
        !matches!(self, Self::Tokens | Self::Logits)
    }

    /// Returns true if the port is an input that enables a behaviour: present and not 0.
    pub fn is_switch(self) -> bool {
        matches!(self, Self::LastOnly | Self::UseCache)
    }

    /// Returns true if the port is a cache of keys or values that a call reads.
    pub fn is_past(self) -> bool {
        matches!(self, Self::PastKey | Self::PastValue)
    }

    /// Returns true if the port is a cache of keys or values that a call returns.
    pub fn is_present(self) -> bool {
        matches!(self, Self::PresentKey | Self::PresentValue)
    }

    /// Returns a description of the port for users of the model.
    pub fn description(self, sizes: &PortSizes) -> String {
        let past = |of: &str| format!("{of}s of the preceding tokens, as returned in present_{of}");
        let present = |of: &str| {
            format!("{of}s of all tokens so far; returned if use_cache is on or past_key is present")
        };
        let switch = |what: &str| format!("if present and not 0, {what}");
        match self {
            Self::Tokens => {
                format!("token ids below {}; a tensor with one dimension is a batch of one", sizes.vocab)
            }
            Self::LastOnly => switch("logits are returned for the last token only"),
            Self::UseCache => switch("present_key and present_value are returned"),
            Self::PastKey => past("key"),
            Self::PastValue => past("value"),
            Self::Logits => "scores for the token that follows each position".to_owned(),
            Self::PresentKey => present("key"),
            Self::PresentValue => present("value"),
        }
    }
}

/// Outputs that a valid combination of inputs requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecoderCall {
    /// True if logits are returned for the last token only.
    pub last_only: bool,
    /// True if keys and values of all tokens are returned.
    pub returns_cache: bool,
}

/// An error in a combination of inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvalidCall {
    /// The input `tokens` is missing.
    NoTokens,
    /// Keys are present without values, or values without keys.
    IncompletePast,
}

impl DecoderCall {
    /// Returns the call with these inputs. A switch counts as an input only if it is on.
    ///
    /// # Errors
    /// Returns an error if there are no tokens, or only one of past keys and past values.
    pub fn new(inputs: &[DecoderPort]) -> Result<Self, InvalidCall> {
        let has = |port| inputs.contains(&port);
        if !has(DecoderPort::Tokens) {
            return Err(InvalidCall::NoTokens);
        }
        let has_past = has(DecoderPort::PastKey);
        if has_past != has(DecoderPort::PastValue) {
            return Err(InvalidCall::IncompletePast);
        }
        Ok(Self {
            last_only: has(DecoderPort::LastOnly),
            returns_cache: has_past || has(DecoderPort::UseCache),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::DecoderPort::{LastOnly, PastKey, PastValue, Tokens, UseCache};
    use super::*;

    #[test]
    fn names_identify_ports() {
        for port in DecoderPort::INPUTS.into_iter().chain(DecoderPort::OUTPUTS) {
            assert_eq!(DecoderPort::from_name(port.name()), Some(port));
        }
        assert_eq!(DecoderPort::from_name("batch"), None);
    }

    #[test]
    fn ports_have_the_properties_of_the_interface() {
        use PortDim::{Size, Symbol};
        let sizes = PortSizes { layers: 2, kv_heads: 3, head_dim: 4, vocab: 5 };
        let cache = |tokens| vec![Size(2), Symbol("batch"), Symbol(tokens), Size(3), Size(4)];
        let logits = vec![Symbol("batch"), Symbol("seq"), Size(5)];
        let switch = (Dtype::Int64, Vec::new(), "optional switch");
        for (port, (dtype, shape, kind), description) in [
            (Tokens, (Dtype::Int64, vec![Symbol("batch"), Symbol("seq")], ""), "token ids below 5"),
            (LastOnly, switch.clone(), "logits are returned for the last token only"),
            (UseCache, switch, "present_key and present_value are returned"),
            (PastKey, (Dtype::Float32, cache("past"), "optional past"), "as returned in present_key"),
            (PastValue, (Dtype::Float32, cache("past"), "optional past"), "as returned in present_value"),
            (DecoderPort::Logits, (Dtype::Float32, logits, ""), "scores for the token that follows"),
            (
                DecoderPort::PresentKey,
                (Dtype::Float32, cache("total"), "optional present"),
                "keys of all tokens",
            ),
            (
                DecoderPort::PresentValue,
                (Dtype::Float32, cache("total"), "optional present"),
                "values of all",
            ),
        ] {
            assert_eq!((port.dtype(), port.shape(&sizes)), (dtype, shape), "{port:?}");
            let kinds = [
                (port.is_optional(), "optional"),
                (port.is_switch(), "switch"),
                (port.is_past(), "past"),
                (port.is_present(), "present"),
            ];
            let kinds: Vec<&str> = kinds.into_iter().filter_map(|(is, kind)| is.then_some(kind)).collect();
            assert_eq!(kinds.join(" "), kind, "{port:?}");
            assert!(port.description(&sizes).contains(description), "{port:?}");
        }
    }

    #[test]
    fn keys_and_values_come_together_and_are_returned() {
        let plain = DecoderCall { last_only: false, returns_cache: false };
        assert_eq!(DecoderCall::new(&[Tokens]), Ok(plain));
        assert_eq!(DecoderCall::new(&[Tokens, LastOnly]), Ok(DecoderCall { last_only: true, ..plain }));
        assert_eq!(DecoderCall::new(&[Tokens, UseCache]), Ok(DecoderCall { returns_cache: true, ..plain }));
        assert_eq!(
            DecoderCall::new(&[Tokens, PastKey, PastValue]),
            Ok(DecoderCall { returns_cache: true, ..plain })
        );
        assert_eq!(DecoderCall::new(&[Tokens, PastKey]), Err(InvalidCall::IncompletePast));
        assert_eq!(DecoderCall::new(&[Tokens, PastValue, UseCache]), Err(InvalidCall::IncompletePast));
        assert_eq!(DecoderCall::new(&[UseCache]), Err(InvalidCall::NoTokens));
    }
}

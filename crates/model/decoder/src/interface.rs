//! The inputs and outputs of a decoder. Its TorchScript module, the CPU forward and the server all have these.
//!
//! Facts: `forward` of the TorchScript text that `torchscript` writes.

use tensor::Dtype;

use crate::Decoder;

/// An input or an output of a decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecoderPort {
    /// The ids of the tokens.
    Tokens,
    /// A switch: logits are returned for the last token only.
    LastOnly,
    /// A switch: keys and values are returned.
    UseCache,
    /// The keys of the preceding tokens.
    PastKey,
    /// The values of the preceding tokens.
    PastValue,
    /// The scores of the tokens that may follow.
    Logits,
    /// The keys of all tokens so far.
    PresentKey,
    /// The values of all tokens so far.
    PresentValue,
}

/// A dimension of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortDim {
    /// A size that a call chooses: the same wherever this symbol is used.
    Symbol(&'static str),
    /// This many elements.
    Size(u64),
}

impl PortDim {
    /// The sequences of a call.
    pub const BATCH: Self = Self::Symbol("batch");
    /// The new tokens of each sequence.
    pub const SEQ: Self = Self::Symbol("seq");
    /// The tokens of each sequence before the new ones.
    pub const PAST: Self = Self::Symbol("past");
    /// The tokens of each sequence after the call.
    pub const TOTAL: Self = Self::Symbol("total");
}

/// The sizes in elements that all calls of a decoder have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortSizes {
    /// The number of layers.
    pub layers: u64,
    /// The number of heads of keys and values.
    pub kv_heads: u64,
    /// The size of a head.
    pub head_dim: u64,
    /// The number of tokens that the model knows.
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
    /// The inputs, in the order of carton.toml.
    pub const INPUTS: [Self; 5] =
        [Self::Tokens, Self::LastOnly, Self::UseCache, Self::PastKey, Self::PastValue];
    /// The outputs, in the order of carton.toml.
    pub const OUTPUTS: [Self; 3] = [Self::Logits, Self::PresentKey, Self::PresentValue];

    /// The key in the dict of inputs or outputs.
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

    /// The port with this key.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::INPUTS.into_iter().chain(Self::OUTPUTS).find(|port| port.name() == name)
    }

    /// The type of the elements.
    pub fn dtype(self) -> Dtype {
        match self {
            Self::Tokens | Self::LastOnly | Self::UseCache => Dtype::Int64,
            _ => Dtype::Float32,
        }
    }

    /// The dimensions in the model of these sizes.
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

    /// Returns whether calls may omit the port.
    pub fn is_optional(self) -> bool {
        !matches!(self, Self::Tokens | Self::Logits)
    }

    /// Returns whether the port is an input that turns something on: present and not 0.
    pub fn is_switch(self) -> bool {
        matches!(self, Self::LastOnly | Self::UseCache)
    }

    /// Returns whether the port is a cache of keys or values that a call reads.
    pub fn is_past(self) -> bool {
        matches!(self, Self::PastKey | Self::PastValue)
    }

    /// Returns whether the port is a cache of keys or values that a call returns.
    pub fn is_present(self) -> bool {
        matches!(self, Self::PresentKey | Self::PresentValue)
    }

    /// A description for callers.
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

/// The outputs that a valid combination of inputs asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// Set if logits are returned for the last token only.
    pub last_only: bool,
    /// Set if keys and values of all tokens are returned.
    pub returns_cache: bool,
}

/// Why a combination of inputs is not valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvalidCall {
    /// There are no tokens.
    NoTokens,
    /// There are keys without values, or values without keys.
    HalfPast,
}

impl Call {
    /// The call with these inputs, of which switches are on.
    ///
    /// # Errors
    /// When the inputs do not go together.
    pub fn new(inputs: &[DecoderPort]) -> Result<Self, InvalidCall> {
        let has = |port| inputs.contains(&port);
        if !has(DecoderPort::Tokens) {
            return Err(InvalidCall::NoTokens);
        }
        let has_past = has(DecoderPort::PastKey);
        if has_past != has(DecoderPort::PastValue) {
            return Err(InvalidCall::HalfPast);
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
    fn keys_and_values_come_together_and_are_returned() {
        let plain = Call { last_only: false, returns_cache: false };
        assert_eq!(Call::new(&[Tokens]), Ok(plain));
        assert_eq!(Call::new(&[Tokens, LastOnly]), Ok(Call { last_only: true, ..plain }));
        assert_eq!(Call::new(&[Tokens, UseCache]), Ok(Call { returns_cache: true, ..plain }));
        assert_eq!(Call::new(&[Tokens, PastKey, PastValue]), Ok(Call { returns_cache: true, ..plain }));
        assert_eq!(Call::new(&[Tokens, PastKey]), Err(InvalidCall::HalfPast));
        assert_eq!(Call::new(&[Tokens, PastValue, UseCache]), Err(InvalidCall::HalfPast));
        assert_eq!(Call::new(&[UseCache]), Err(InvalidCall::NoTokens));
    }
}

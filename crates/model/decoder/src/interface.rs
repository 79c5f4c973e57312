//! Inputs and outputs of a decoder, common to its TorchScript module, the CPU forward and the server.
//!
//! Facts: `forward` of the TorchScript text that `torchscript` writes.

use tensor::Dtype;

use crate::{CacheLayers, Decoder, DeltaNet, DeltaSizes};

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
    /// Keys of the preceding tokens in layers with a window, if these have other sizes than the others.
    PastWindowKey,
    /// Values of the preceding tokens in these layers.
    PastWindowValue,
    /// What the convolutions of gated `DeltaNet` still read of the preceding tokens.
    PastConv,
    /// States of gated `DeltaNet` after the preceding tokens.
    PastState,
    /// Logits of the tokens that may follow.
    Logits,
    /// Keys of all tokens so far.
    PresentKey,
    /// Values of all tokens so far.
    PresentValue,
    /// Keys of all tokens so far in layers with a window, if these have other sizes than the others.
    PresentWindowKey,
    /// Values of all tokens so far in these layers.
    PresentWindowValue,
    /// What the convolutions of gated `DeltaNet` will read of the tokens so far.
    PresentConv,
    /// States of gated `DeltaNet` after all tokens so far.
    PresentState,
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
    /// Number of layers with keys and values, but for those of `window`.
    pub layers: u64,
    /// Number of heads of keys and values.
    pub kv_heads: u64,
    /// Size of a head.
    pub head_dim: u64,
    /// Size of the vocabulary.
    pub vocab: u64,
    /// Layers with a window, if their keys and values have other sizes than those of the others.
    pub window: Option<CacheLayers>,
    /// Sizes of the states of gated `DeltaNet`, in models that have it.
    pub delta: Option<DeltaSizes>,
}

impl From<&Decoder> for PortSizes {
    fn from(decoder: &Decoder) -> Self {
        let delta = decoder.block().delta_net.as_ref().map(DeltaNet::sizes);
        let (CacheLayers { layers, kv_heads, head_dim }, window) = decoder.cache_layers();
        Self { layers, kv_heads, head_dim, vocab: decoder.vocab(), window, delta }
    }
}

impl DecoderPort {
    const ALL: [Self; 16] = [
        Self::Tokens,
        Self::LastOnly,
        Self::UseCache,
        Self::PastKey,
        Self::PastValue,
        Self::PastWindowKey,
        Self::PastWindowValue,
        Self::PastConv,
        Self::PastState,
        Self::Logits,
        Self::PresentKey,
        Self::PresentValue,
        Self::PresentWindowKey,
        Self::PresentWindowValue,
        Self::PresentConv,
        Self::PresentState,
    ];

    /// Returns the input ports of a model of these sizes, in the order of carton.toml.
    pub fn inputs(sizes: &PortSizes) -> Vec<Self> {
        Self::ALL.into_iter().filter(|port| port.is_input() && port.is_of(sizes)).collect()
    }

    /// Returns the output ports of a model of these sizes, in the order of carton.toml.
    pub fn outputs(sizes: &PortSizes) -> Vec<Self> {
        Self::ALL.into_iter().filter(|port| !port.is_input() && port.is_of(sizes)).collect()
    }

    fn is_input(self) -> bool {
        matches!(self, Self::Tokens) || self.is_switch() || self.is_past()
    }

    fn is_of(self, sizes: &PortSizes) -> bool {
        (sizes.delta.is_some() || !self.is_of_delta_net())
            && (sizes.window.is_some() || !self.is_of_windows())
    }

    /// Returns true for the states of gated `DeltaNet`.
    pub fn is_of_delta_net(self) -> bool {
        matches!(self, Self::PastConv | Self::PastState | Self::PresentConv | Self::PresentState)
    }

    /// Returns true for the keys and values of layers with a window that have ports of their own.
    fn is_of_windows(self) -> bool {
        matches!(
            self,
            Self::PastWindowKey | Self::PastWindowValue | Self::PresentWindowKey | Self::PresentWindowValue
        )
    }

    /// Returns the key of the port in the dict of inputs or outputs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tokens => "tokens",
            Self::LastOnly => "last_only",
            Self::UseCache => "use_cache",
            Self::PastKey => "past_key",
            Self::PastValue => "past_value",
            Self::PastWindowKey => "past_window_key",
            Self::PastWindowValue => "past_window_value",
            Self::PastConv => "past_conv",
            Self::PastState => "past_state",
            Self::Logits => "logits",
            Self::PresentKey => "present_key",
            Self::PresentValue => "present_value",
            Self::PresentWindowKey => "present_window_key",
            Self::PresentWindowValue => "present_window_value",
            Self::PresentConv => "present_conv",
            Self::PresentState => "present_state",
        }
    }

    /// Returns the port with this key.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|port| port.name() == name)
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
        let PortSizes { layers, kv_heads, head_dim, window, .. } = *sizes;
        let all = Some(CacheLayers { layers, kv_heads, head_dim });
        let cache = |of: Option<CacheLayers>, tokens| {
            let dims = |it: CacheLayers| {
                vec![Size(it.layers), PortDim::BATCH, tokens, Size(it.kv_heads), Size(it.head_dim)]
            };
            of.map(dims).unwrap_or_default()
        };
        let delta = |of: fn(DeltaSizes) -> Vec<u64>| {
            let sizes = sizes.delta.map(of).unwrap_or_default();
            let mut dims: Vec<PortDim> = sizes.into_iter().map(Size).collect();
            dims.insert(dims.len().min(1), PortDim::BATCH);
            dims
        };
        match self {
            Self::PastConv | Self::PresentConv => delta(|it| vec![it.layers, it.channels, it.taps]),
            Self::PastState | Self::PresentState => {
                delta(|it| vec![it.layers, it.heads, it.key_dim, it.value_dim])
            }
            Self::Tokens => vec![PortDim::BATCH, PortDim::SEQ],
            Self::LastOnly | Self::UseCache => Vec::new(),
            Self::PastKey | Self::PastValue => cache(all, PortDim::PAST),
            Self::PastWindowKey | Self::PastWindowValue => cache(window, PortDim::PAST),
            Self::Logits => vec![PortDim::BATCH, PortDim::SEQ, Size(sizes.vocab)],
            Self::PresentKey | Self::PresentValue => cache(all, PortDim::TOTAL),
            Self::PresentWindowKey | Self::PresentWindowValue => cache(window, PortDim::TOTAL),
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

    /// Returns true if the port is a cache of keys, values or states that a call reads.
    pub fn is_past(self) -> bool {
        matches!(
            self,
            Self::PastKey
                | Self::PastValue
                | Self::PastWindowKey
                | Self::PastWindowValue
                | Self::PastConv
                | Self::PastState
        )
    }

    /// Returns true if the port is a cache of keys, values or states that a call returns.
    pub fn is_present(self) -> bool {
        matches!(
            self,
            Self::PresentKey
                | Self::PresentValue
                | Self::PresentWindowKey
                | Self::PresentWindowValue
                | Self::PresentConv
                | Self::PresentState
        )
    }

    /// Returns a description of the port for users of the model.
    pub fn description(self, sizes: &PortSizes) -> String {
        let past = |of: &str| format!("{of}s of the preceding tokens, as returned in present_{of}");
        let present = |of: &str| {
            format!("{of}s of all tokens so far; returned if use_cache is on or past_key is present")
        };
        let near = |of: &str, tokens: &str| format!("{of}s in layers with a window of {tokens}");
        let switch = |what: &str| format!("if present and not 0, {what}");
        match self {
            Self::Tokens => {
                format!("token ids below {}; a tensor with one dimension is a batch of one", sizes.vocab)
            }
            Self::LastOnly => switch("logits are returned for the last token only"),
            Self::UseCache => switch("present_key and present_value are returned"),
            Self::PastKey => past("key"),
            Self::PastValue => past("value"),
            Self::PastWindowKey => near("key", "the preceding tokens, as returned in present_window_key"),
            Self::PastWindowValue => {
                near("value", "the preceding tokens, as returned in present_window_value")
            }
            Self::PresentWindowKey => near("key", "all tokens so far; returned as present_key is"),
            Self::PresentWindowValue => near("value", "all tokens so far; returned as present_key is"),
            Self::PastConv => format!("{CONV} the preceding tokens, as returned in present_conv"),
            Self::PastState => format!("{STATE} the preceding tokens, as returned in present_state"),
            Self::PresentConv => format!("{CONV} all tokens so far; returned as present_key is"),
            Self::PresentState => format!("{STATE} all tokens so far; returned as present_key is"),
            Self::Logits => "scores for the token that follows each position".to_owned(),
            Self::PresentKey => present("key"),
            Self::PresentValue => present("value"),
        }
    }
}

const CONV: &str = "what convolutions read of";
const STATE: &str = "states of layers without attention after";

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
        for port in DecoderPort::ALL {
            assert_eq!(DecoderPort::from_name(port.name()), Some(port));
        }
        assert_eq!(DecoderPort::from_name("batch"), None);
    }

    const DELTA: DeltaSizes =
        DeltaSizes { layers: 6, channels: 7, taps: 8, heads: 9, key_dim: 10, value_dim: 11 };

    const WINDOW: CacheLayers = CacheLayers { layers: 12, kv_heads: 13, head_dim: 14 };
    const SIZES: PortSizes =
        PortSizes { layers: 2, kv_heads: 3, head_dim: 4, vocab: 5, window: Some(WINDOW), delta: Some(DELTA) };

    #[test]
    fn states_are_ports_of_models_that_have_them() {
        use PortDim::Size;
        let sizes = SIZES;
        let plain = PortSizes { window: None, delta: None, ..sizes };
        let names = |ports: Vec<DecoderPort>| ports.into_iter().map(DecoderPort::name).collect::<Vec<_>>();
        assert_eq!(
            names(DecoderPort::inputs(&sizes))[3..],
            ["past_key", "past_value", "past_window_key", "past_window_value", "past_conv", "past_state"]
        );
        assert_eq!(names(DecoderPort::inputs(&plain))[3..], ["past_key", "past_value"]);
        let outputs = [
            "logits",
            "present_key",
            "present_value",
            "present_window_key",
            "present_window_value",
            "present_conv",
            "present_state",
        ];
        assert_eq!(names(DecoderPort::outputs(&sizes)), outputs);
        assert_eq!(names(DecoderPort::outputs(&plain)), outputs[..3]);
        let window = [Size(12), PortDim::BATCH, PortDim::TOTAL, Size(13), Size(14)];
        assert_eq!(DecoderPort::PresentWindowKey.shape(&sizes), window);
        let conv = [Size(6), PortDim::BATCH, Size(7), Size(8)];
        assert_eq!(DecoderPort::PastConv.shape(&sizes), conv);
        let state = [Size(6), PortDim::BATCH, Size(9), Size(10), Size(11)];
        assert_eq!(DecoderPort::PresentState.shape(&sizes), state);
    }

    #[test]
    fn ports_have_the_properties_of_the_interface() {
        use PortDim::{Size, Symbol};
        let sizes = SIZES;
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

//! Fourth version of the code: the first with a record of the decoder. Its `forward` took a dict of tensors, so that a text
//! ended Carton's runner.

mod attributes;
mod checks;
mod forward;
mod functions;
mod markers;

use crate::code::decoder::flag::Flag;
use crate::code::decoder::version::CodeVersion;

pub(in crate::code::decoder) static VERSION: CodeVersion = CodeVersion {
    number: 4,
    methods: &[
        (Some(Flag::Dict), checks::DICT),
        (Some(Flag::Positional), checks::POSITIONAL),
        (None, forward::INFER),
        (None, forward::FREQUENCIES),
        (None, forward::ATTENTION),
        (Some(Flag::FeedForward), forward::FEED_FORWARD),
        (None, forward::GATED),
        (Some(Flag::Experts), forward::EXPERTS),
    ],
    functions: &[
        (None, checks::FUNCTIONS),
        (None, functions::FUNCTIONS),
        (Some(Flag::Half), functions::HALF),
    ],
    has_entry: false,
    markers: [("{linear ", markers::linear), ("{norm ", markers::norm), ("{head norm ", markers::head_norm)],
    attributes: attributes::attributes,
};

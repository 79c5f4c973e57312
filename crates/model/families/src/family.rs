//! What a row of the table says of a model type.

use crate::config::Config;
use crate::decoder::Decoder;
use crate::rule::Rule;
use crate::tree::Scope;

/// Tensors of the model without a head.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Body {
    Decoder(&'static Decoder),
    Built(fn(&Config<'_>, &Scope<'_>)),
}

impl Body {
    pub(crate) fn add(&self, c: &Config<'_>, s: &Scope<'_>) {
        match self {
            Self::Decoder(decoder) => decoder.add(c, s),
            Self::Built(build) => build(c, s),
        }
    }
}

/// What several model types have in common.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Family {
    pub(crate) body: Body,
    /// Module of the body in classes with a head.
    pub(crate) prefix: &'static str,
    /// Embedding of the body that a head may be tied to.
    pub(crate) embedding: &'static str,
    /// Module of the head of a language model.
    pub(crate) head: &'static str,
    /// Changes from those names to the names of the body alone, which published files also have; none if they have not.
    pub(crate) bare: &'static [Rule],
    /// Keys of configurations that give the model all parts that a decoder may have, if they are true.
    pub(crate) flags: &'static [&'static str],
    /// Ends of names of tensors that files have and models do not use, or starts, which end with a dot.
    pub(crate) unread: &'static [&'static str],
    /// Changes from the names in memory to those that are released.
    pub(crate) rules: &'static [Rule],
}

pub(crate) const fn family(body: &'static Decoder, rules: &'static [Rule]) -> Family {
    Family { body: Body::Decoder(body), ..built(|_, _| {}, rules) }
}

pub(crate) const fn built(build: fn(&Config<'_>, &Scope<'_>), rules: &'static [Rule]) -> Family {
    Family {
        body: Body::Built(build),
        prefix: "model",
        embedding: "embed_tokens.weight",
        head: "lm_head",
        bare: &[],
        flags: &[],
        unread: &[],
        rules,
    }
}

/// Model types with the same tensors, and their family.
pub(crate) type Row = (&'static [&'static str], Family);

//! What the lists have about the classes and functions that a pickle names.

use tensor::Dtype;

use crate::judged_calls::JudgedGlobal;
use crate::lists::{ClassTraits, Reviewed};
use crate::rebuild::RebuildFunction;
use crate::{lists, risk};

/// Maximum length in bytes of the names that are looked up; longer ones are dangerous anyway.
pub(super) const NAME_LEN_MAX: usize = 512;

/// A class or function that a pickle calls or makes instances of.
#[derive(Clone, Copy)]
pub(super) struct Callee {
    /// Index of the global that a finding is reported for.
    pub(super) global: usize,
    pub(super) package: Package,
    pub(super) traits: ClassTraits,
    pub(super) reviewed: Option<&'static Reviewed>,
    pub(super) judged: Option<JudgedGlobal>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Package {
    /// The standard library, torch or numpy.
    Core,
    /// Another package, whose globals are unknown or dangerous whatever their use.
    Other,
    /// Another package, of which this name makes data.
    OtherData,
}

/// Returns what the lists have about a class or function; a finding is reported for the global with this index.
pub(super) fn callee_named(module: &str, name: &str, global: usize) -> Callee {
    let package = match lists::is_core_module(module) {
        true => Package::Core,
        false if risk::is_listed_data(module, name) => Package::OtherData,
        false => Package::Other,
    };
    let judged = JudgedGlobal::from_names(module, name);
    // A name that cannot be looked up ends the pickle.
    let package = if risk::is_unresolvable_name(name) { Package::Other } else { package };
    if package != Package::Core {
        return Callee { global, package, traits: ClassTraits::default(), reviewed: None, judged: None };
    }
    let familiar = lists::same_object(module, name);
    let reviewed = lists::reviewed(module, name)
        .or_else(|| familiar.and_then(|(module, name)| lists::reviewed(module, name)))
        // The classes of tensors that PyTorch before 0.2 wrote.
        .or_else(|| {
            (RebuildFunction::from_names(module, name) == Some(RebuildFunction::SetState))
                .then(|| lists::reviewed("torch", "FloatTensor"))?
        });
    let traits = lists::class_traits(module, name)
        .or_else(|| familiar.and_then(|(module, name)| lists::class_traits(module, name)))
        .unwrap_or_default();
    let traits = reviewed.map_or(traits, |found| traits.with(found.traits));
    Callee { global, package, traits, reviewed, judged }
}

/// Returns true if a global is a constant of torch, such as a dtype or a layout.
pub(super) fn is_constant((module, name): (&str, &str)) -> bool {
    module == "torch" && (Dtype::from_name(name).is_some() || CONSTANTS.contains(&name))
}

/// Constants of torch that are not dtypes.
const CONSTANTS: [&str; 16] = [
    "strided",
    "jagged",
    "sparse_coo",
    "sparse_csr",
    "sparse_csc",
    "sparse_bsr",
    "sparse_bsc",
    "_mkldnn",
    "contiguous_format",
    "preserve_format",
    "channels_last",
    "channels_last_3d",
    "per_tensor_affine",
    "per_tensor_symmetric",
    "per_channel_affine",
    "per_channel_symmetric",
];

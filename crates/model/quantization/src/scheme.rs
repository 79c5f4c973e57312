//! Table of the methods: one row each, in the order in which they are tried without a configuration.

use tensor::Tensors;

use crate::config::{AUTO_ROUND, QuantizationConfig};
use crate::hqq_description::described_codes;
use crate::quantized_model::QuantizedModel;
use crate::survey::Survey;
use crate::{
    Codes, Problem, QuantizationDocuments, Result, auto_round, awq, bitnet, bitsandbytes, comfy,
    compressed_tensors, float8, gguf, gptq, hqq, mlx, modelopt, mxfp4, pytorch, quanto, torchao,
};

/// Row of the table.
struct Scheme {
    /// Names of the method in configurations; the first one is shown for tensors without a configuration.
    methods: &'static [&'static str],
    recognise: fn(&mut Survey<'_>) -> Result<()>,
    /// Returns true if a list of tensors is quantized with the method, whatever the configuration says.
    is_present: fn(&Tensors) -> bool,
    /// Suffixes of which one is in a list for which `is_present` is true, unless the list has tensors of several parts.
    markers: &'static [&'static str],
    /// Suffixes of tensors that mean nothing without codes.
    companions: &'static [&'static str],
}

const SCHEMES: &[Scheme] = &[
    Scheme {
        methods: &["comfyui"],
        recognise: comfy::recognise,
        is_present: comfy::is_present,
        markers: &[".comfy_quant", "scaled_fp8"],
        companions: comfy::COMPANIONS,
    },
    Scheme {
        methods: &["fp8", "mxfp8", "fbgemm_fp8"],
        recognise: float8::recognise,
        is_present: float8::is_present,
        markers: &["_scale_inv", "_scale", ".scale", ".scale_weight"],
        companions: float8::COMPANIONS,
    },
    Scheme {
        methods: &["mxfp4"],
        recognise: mxfp4::recognise,
        is_present: mxfp4::is_present,
        markers: &["_blocks"],
        companions: mxfp4::COMPANIONS,
    },
    Scheme {
        methods: &["gptq"],
        recognise: gptq::recognise,
        is_present: |_| false,
        markers: &[],
        companions: gptq::COMPANIONS,
    },
    Scheme {
        methods: &["awq"],
        recognise: awq::recognise,
        is_present: |_| false,
        markers: &[],
        companions: awq::COMPANIONS,
    },
    Scheme {
        methods: &[AUTO_ROUND],
        recognise: auto_round::recognise,
        is_present: |_| false,
        markers: &[],
        companions: auto_round::COMPANIONS,
    },
    Scheme {
        methods: &["compressed-tensors"],
        recognise: compressed_tensors::recognise,
        is_present: |_| false,
        markers: &[],
        companions: compressed_tensors::COMPANIONS,
    },
    Scheme {
        methods: &["bitsandbytes"],
        recognise: bitsandbytes::recognise,
        is_present: bitsandbytes::is_present,
        markers: &[".bitsandbytes__nf4", ".bitsandbytes__fp4", ".SCB"],
        companions: bitsandbytes::COMPANIONS,
    },
    Scheme {
        methods: &["modelopt", "modelopt_fp4", "modelopt_mixed"],
        recognise: modelopt::recognise,
        is_present: float8::has_global_scales,
        markers: &[".weight_scale_2"],
        companions: modelopt::COMPANIONS,
    },
    Scheme {
        methods: &["hqq"],
        recognise: hqq::recognise,
        is_present: hqq::is_present,
        markers: &[".W_q"],
        companions: hqq::COMPANIONS,
    },
    Scheme {
        methods: &["quanto"],
        recognise: quanto::recognise,
        is_present: quanto::is_present,
        markers: &["._data"],
        companions: quanto::COMPANIONS,
    },
    Scheme {
        methods: &["torchao"],
        recognise: torchao::recognise,
        is_present: torchao::is_present,
        markers: &["._weight_qdata"],
        companions: torchao::COMPANIONS,
    },
    Scheme {
        methods: &["mlx"],
        recognise: mlx::recognise,
        is_present: mlx::is_present,
        markers: &[".scales"],
        companions: mlx::COMPANIONS,
    },
    Scheme {
        methods: &["metal"],
        recognise: mlx::recognise_metal,
        is_present: |_| false,
        markers: &[],
        companions: mlx::METAL_COMPANIONS,
    },
    Scheme {
        methods: &["bitnet"],
        recognise: bitnet::recognise,
        is_present: |_| false,
        markers: &[],
        companions: bitnet::COMPANIONS,
    },
    Scheme {
        methods: &["gguf"],
        recognise: gguf::recognise,
        is_present: gguf::is_present,
        markers: &[],
        companions: &[],
    },
    Scheme {
        methods: &["PyTorch"],
        recognise: pytorch::recognise,
        is_present: pytorch::is_present,
        markers: &[],
        companions: &[],
    },
];

/// Methods whose numbers are not computed, each with the reason and what to do.
const NOT_COMPUTED: &[(&str, &str)] = &[
    (
        "fp_quant",
        "its weights are rotated by a matrix, and only its own kernels for GPUs pack them; quantize the original model with another method",
    ),
    (
        "nvfp4",
        "a kernel for GPUs packs them in an order of its own; NVFP4 of ModelOpt or compressed-tensors can be read",
    ),
    ("quark", "its own format differs from file to file; what Quark exports as `fp8` or `awq` can be read"),
];

/// Returns false if [`recognise`] returns `None` for tensors with these names, none of which consists of several parts.
pub fn is_possible<'n>(documents: &QuantizationDocuments, mut names: impl Iterator<Item = &'n str>) -> bool {
    let markers = || SCHEMES.iter().flat_map(|scheme| scheme.markers);
    !matches!(documents.quantization(), Ok(None))
        || names.any(|name| markers().any(|marker| name.ends_with(marker)))
}

/// Recognises the quantized tensors of a model by its documents and its tensors. Returns `None` if neither says that the
/// weights are quantized.
///
/// # Errors
/// When the method is not known, a companion of a quantized tensor is missing or has the wrong shape or dtype, or one belongs
/// to no quantized tensor.
pub fn recognise(documents: &QuantizationDocuments, tensors: &Tensors) -> Result<Option<QuantizedModel>> {
    let Some((config, scheme)) = find(documents, tensors)? else { return Ok(None) };
    let Some(scheme) = scheme else {
        if let Some((_, reason)) = NOT_COMPUTED.iter().find(|(method, _)| *method == config.method) {
            return Err(Problem::NotComputed { method: config.method, reason }.into());
        }
        let known: Vec<&str> = SCHEMES.iter().flat_map(|scheme| scheme.methods).copied().collect();
        return Err(Problem::UnknownMethod { method: config.method, known: known.join(", ") }.into());
    };
    let mut survey = Survey::new(tensors, config);
    (scheme.recognise)(&mut survey)?;
    survey.finish(scheme.companions).map(Some)
}

/// Returns why nothing was recognised: there is nothing, or codes of a method that neither documents nor names tell.
pub fn not_quantized(tensors: &Tensors) -> Problem {
    let codes = Codes::new(tensors);
    let mut found = tensors
        .iter()
        .filter_map(|(name, tensor)| Some((name.to_owned(), codes.companion(name, tensor.dtype())?)));
    match found.next() {
        Some((tensor, companion)) => Problem::UnknownCodes { tensor, companion },
        None => Problem::NotQuantized,
    }
}

/// Returns the name of the method that the documents or the tensors show; `None` if the weights are not quantized.
pub fn method(documents: &QuantizationDocuments, tensors: &Tensors) -> Option<String> {
    let (config, _) = find(documents, tensors).ok().flatten()?;
    Some(config.method)
}

/// Returns the name of a tensor that shows that the value `name` of a pickled checkpoint describes a quantized layer: the codes of HQQ,
/// or the maxima of bitsandbytes. `None` if no value of this name does.
///
/// A file of safetensors has these values as small tensors: texts as the bytes of their characters, the others as integers.
pub fn described_layer(name: &str) -> Option<String> {
    let maxima =
        name.strip_suffix(bitsandbytes::ORDER).map(|module| format!("{module}{}", bitsandbytes::MAXIMA));
    maxima.or_else(|| described_codes(name))
}

/// Returns the description of the quantization, and the row of its method.
fn find(
    documents: &QuantizationDocuments,
    tensors: &Tensors,
) -> Result<Option<(QuantizationConfig, Option<&'static Scheme>)>> {
    if let Some(config) = documents.quantization()? {
        let scheme = SCHEMES.iter().find(|scheme| scheme.methods.contains(&config.method.as_str()));
        return Ok(Some((config, scheme)));
    }
    let scheme = SCHEMES.iter().find(|scheme| (scheme.is_present)(tensors));
    Ok(scheme.map(|scheme| {
        let method = scheme.methods.first().copied().unwrap_or_default().to_owned();
        (QuantizationConfig { method, ..QuantizationConfig::default() }, Some(scheme))
    }))
}

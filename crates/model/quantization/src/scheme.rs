//! Table of the methods: one row each, in the order in which they are tried without a configuration.

use tensor::Tensors;

use crate::config::QuantizationConfig;
use crate::quantized_model::QuantizedModel;
use crate::survey::Survey;
use crate::{
    Error, QuantizationDocuments, Result, awq, bitsandbytes, compressed_tensors, float8, gptq, hqq, modelopt,
    mxfp4, pytorch, quanto, torchao,
};

/// Row of the table.
struct Scheme {
    /// Names of the method in configurations; the first one is shown for tensors without a configuration.
    methods: &'static [&'static str],
    /// Adds the quantized tensors to the survey.
    recognise: fn(&mut Survey<'_>) -> Result<()>,
    /// Returns true if a list of tensors is quantized with the method, whatever the configuration says.
    is_present: fn(&Tensors) -> bool,
    /// Suffixes of tensors that mean nothing without codes.
    companions: &'static [&'static str],
}

const SCHEMES: &[Scheme] = &[
    Scheme {
        methods: &["fp8", "mxfp8", "fbgemm_fp8"],
        recognise: float8::recognise,
        is_present: float8::is_present,
        companions: float8::COMPANIONS,
    },
    Scheme {
        methods: &["mxfp4"],
        recognise: mxfp4::recognise,
        is_present: mxfp4::is_present,
        companions: mxfp4::COMPANIONS,
    },
    Scheme {
        methods: &["gptq"],
        recognise: gptq::recognise,
        is_present: |_| false,
        companions: gptq::COMPANIONS,
    },
    Scheme {
        methods: &["awq"],
        recognise: awq::recognise,
        is_present: |_| false,
        companions: awq::COMPANIONS,
    },
    Scheme {
        methods: &["compressed-tensors"],
        recognise: compressed_tensors::recognise,
        is_present: |_| false,
        companions: compressed_tensors::COMPANIONS,
    },
    Scheme {
        methods: &["bitsandbytes"],
        recognise: bitsandbytes::recognise,
        is_present: bitsandbytes::is_present,
        companions: bitsandbytes::COMPANIONS,
    },
    Scheme {
        methods: &["modelopt", "modelopt_fp4", "modelopt_mixed"],
        recognise: modelopt::recognise,
        is_present: modelopt::is_present,
        companions: modelopt::COMPANIONS,
    },
    Scheme {
        methods: &["hqq"],
        recognise: hqq::recognise,
        is_present: hqq::is_present,
        companions: hqq::COMPANIONS,
    },
    Scheme {
        methods: &["quanto"],
        recognise: quanto::recognise,
        is_present: quanto::is_present,
        companions: quanto::COMPANIONS,
    },
    Scheme {
        methods: &["torchao"],
        recognise: torchao::recognise,
        is_present: torchao::is_present,
        companions: torchao::COMPANIONS,
    },
    Scheme {
        methods: &["PyTorch"],
        recognise: pytorch::recognise,
        is_present: pytorch::is_present,
        companions: &[],
    },
];

/// Recognises the quantized tensors of a model by its documents and its tensors. Returns `None` if neither says that the
/// weights are quantized.
///
/// # Errors
/// When the method is not known, a companion of a quantized tensor is missing or has the wrong shape or dtype, or one belongs
/// to no quantized tensor.
pub fn recognise(documents: &QuantizationDocuments, tensors: &Tensors) -> Result<Option<QuantizedModel>> {
    let Some((config, scheme)) = find(documents, tensors)? else { return Ok(None) };
    let Some(scheme) = scheme else {
        let known: Vec<&str> = SCHEMES.iter().flat_map(|scheme| scheme.methods).copied().collect();
        return Err(Error::UnknownMethod { method: config.method, known: known.join(", ") });
    };
    let mut survey = Survey::new(tensors, config);
    (scheme.recognise)(&mut survey)?;
    survey.finish(scheme.companions).map(Some)
}

/// Returns the name of the method that the documents or the tensors show; `None` if the weights are not quantized.
pub fn method(documents: &QuantizationDocuments, tensors: &Tensors) -> Option<String> {
    let (config, _) = find(documents, tensors).ok().flatten()?;
    Some(config.method)
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

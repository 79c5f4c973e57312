//! What is written is read again: requests and responses with any tensors; and any bytes are read or refused.

use bytes::Bytes;
use kserve::{
    Body, Datatype, InferRequest, InferResponse, ModelConfig, Parameter, RequestedOutput, Tensor,
    TensorConfig,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

/// The values of parameters. NaN is not equal to itself, so it is tested elsewhere.
fn parameters() -> impl Strategy<Value = Vec<(String, Parameter)>> {
    let value = prop_oneof![
        any::<bool>().prop_map(Parameter::Bool),
        any::<i64>().prop_map(Parameter::Int),
        (i64::MAX as u64 + 1..=u64::MAX).prop_map(Parameter::Uint),
        any::<f64>().prop_filter("equal to itself", |value| !value.is_nan()).prop_map(Parameter::Double),
        any::<String>().prop_map(Parameter::String),
    ];
    vec(("[a-z]{1,3}", value), 0..3)
}

/// The bytes of a tensor of this datatype with this many elements, which can be JSON if `json`.
fn data(datatype: Datatype, elements: usize, json: bool) -> BoxedStrategy<Vec<u8>> {
    let texts = |texts: Vec<Vec<u8>>| kserve::encode_bytes_elements(texts).expect("they are short");
    match datatype.size() {
        None if json => vec(any::<String>().prop_map(String::into_bytes), elements).prop_map(texts).boxed(),
        None => vec(vec(any::<u8>(), 0..5), elements).prop_map(texts).boxed(),
        Some(1) if datatype == Datatype::Bool => vec(0..2_u8, elements).boxed(),
        Some(size) => {
            let bytes = vec(any::<u8>(), elements * size);
            bytes.prop_map(move |bytes| if json { without_nan(datatype, bytes) } else { bytes }).boxed()
        }
    }
}

/// JSON keeps that a number is NaN, but not which of them.
fn without_nan(datatype: Datatype, bytes: Vec<u8>) -> Vec<u8> {
    match datatype {
        Datatype::Fp32 => {
            let value = |bytes: &[u8; 4]| Some(f32::from_le_bytes(*bytes)).filter(|value| !value.is_nan());
            bytes
                .as_chunks()
                .0
                .iter()
                .flat_map(|bytes| value(bytes).unwrap_or(f32::NAN).to_le_bytes())
                .collect()
        }
        Datatype::Fp64 => {
            let value = |bytes: &[u8; 8]| Some(f64::from_le_bytes(*bytes)).filter(|value| !value.is_nan());
            bytes
                .as_chunks()
                .0
                .iter()
                .flat_map(|bytes| value(bytes).unwrap_or(f64::NAN).to_le_bytes())
                .collect()
        }
        _ => bytes,
    }
}

fn tensor() -> impl Strategy<Value = Tensor> {
    let datatype = select(Datatype::all().collect::<Vec<_>>());
    (datatype, vec(0..4_u64, 0..4), any::<bool>()).prop_flat_map(|(datatype, shape, binary)| {
        let binary = binary || !datatype.has_json();
        let elements = usize::try_from(shape.iter().product::<u64>()).expect("small");
        (parameters(), data(datatype, elements, !binary)).prop_map(move |(parameters, data)| Tensor {
            name: String::new(),
            datatype,
            shape: shape.clone(),
            parameters,
            data: Bytes::from(data),
            is_binary: binary,
        })
    })
}

fn tensors() -> impl Strategy<Value = Vec<Tensor>> {
    vec((tensor(), any::<String>()), 0..4).prop_map(|tensors| {
        let named =
            |(n, (tensor, name)): (usize, (Tensor, String))| Tensor { name: format!("{n}{name}"), ..tensor };
        tensors.into_iter().enumerate().map(named).collect()
    })
}

fn model(max_batch_size: u32, inputs: &[Tensor], outputs: &[RequestedOutput]) -> ModelConfig {
    let skip = usize::from(max_batch_size > 0);
    let input = |tensor: &Tensor| TensorConfig {
        name: tensor.name.clone(),
        datatype: tensor.datatype,
        dims: tensor.shape.iter().skip(skip).map(|&size| (size != 1).then_some(size)).collect(),
        optional: false,
    };
    let output = |output: &RequestedOutput| TensorConfig {
        name: output.name.clone(),
        datatype: if output.is_binary { Datatype::Fp16 } else { Datatype::Fp32 },
        dims: Vec::new(),
        optional: false,
    };
    ModelConfig {
        name: "m".to_owned(),
        platform: String::new(),
        backend: String::new(),
        max_batch_size,
        input: inputs.iter().rev().map(input).collect(),
        output: outputs.iter().rev().map(output).collect(),
    }
}

/// The bytes of a body and the value of its header.
fn sent(body: &Body) -> (Bytes, Option<String>) {
    assert_eq!(body.len(), body.parts.iter().map(Bytes::len).sum::<usize>());
    (Bytes::from(body.parts.concat()), body.header_length.map(|length| length.to_string()))
}

fn received<T>(body: &Body, parse: impl Fn(&Bytes, Option<&[u8]>) -> T) -> T {
    let (bytes, length) = sent(body);
    parse(&bytes, length.as_deref().map(str::as_bytes))
}

proptest! {
    #[test]
    fn requests_are_read_as_they_were_written(
        id in any::<Option<String>>(),
        parameters in parameters(),
        inputs in tensors(),
        outputs in vec((any::<String>(), self::parameters(), any::<bool>()), 1..4),
    ) {
        let output = |(n, (name, parameters, binary))| RequestedOutput { name: format!("{n}{name}"), parameters, is_binary: binary };
        let outputs: Vec<_> = outputs.into_iter().enumerate().map(output).collect();
        let request = InferRequest { id, parameters, inputs, outputs, lists_outputs: true };
        let model = model(0, &request.inputs, &request.outputs);
        let body = request.to_body().expect("it can be written");
        let read = received(&body, |bytes, length| InferRequest::parse(bytes, length, &model));
        prop_assert_eq!(read.expect("it was written"), request);
    }

    #[test]
    fn responses_are_read_as_they_were_written(
        (model_name, model_version) in any::<(String, String)>(),
        id in any::<Option<String>>(),
        parameters in parameters(),
        outputs in tensors(),
    ) {
        let response = InferResponse { model_name, model_version, id, parameters, outputs };
        let body = response.to_body().expect("it can be written");
        prop_assert_eq!(received(&body, InferResponse::parse).expect("it was written"), response);
    }

    /// A client that knows only JSON reads the same: serde_json, unless there is a number that it refuses.
    #[test]
    fn other_readers_agree(outputs in tensors(), id in any::<Option<String>>()) {
        let (model_name, model_version) = ("m".to_owned(), "1".to_owned());
        let response = InferResponse { model_name, model_version, id: id.clone(), parameters: Vec::new(), outputs };
        let body = response.to_body().expect("it can be written");
        let text = std::str::from_utf8(&body.parts[0]).expect("it is text");
        let is_finite = !["NaN", "Infinity"].iter().any(|token| text.contains(token));
        if let Ok(value) = serde_json::from_str::<serde_json::Value>(text) {
            prop_assert_eq!(value["id"].as_str(), id.as_deref());
            for (tensor, object) in response.outputs.iter().zip(value["outputs"].as_array().expect("an array")) {
                prop_assert_eq!(object["name"].as_str(), Some(tensor.name.as_str()));
                prop_assert_eq!(object["shape"].as_array().map(Vec::len), Some(tensor.shape.len()));
                let values = object["data"].as_array().map(|data| u64::try_from(data.len()).expect("small"));
                prop_assert_eq!(values, tensor.elements().filter(|_| !tensor.is_binary));
            }
        } else {
            prop_assert!(!is_finite, "{text}");
        }
    }

    /// Every prefix and every change of a byte is read or refused; what is read fits the model.
    #[test]
    fn damaged_requests_are_read_or_refused(
        inputs in tensors(),
        cut in any::<prop::sample::Index>(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let outputs = vec![RequestedOutput { name: "o".to_owned(), parameters: Vec::new(), is_binary: true }];
        let request = InferRequest { id: None, parameters: Vec::new(), inputs, outputs, lists_outputs: true };
        let model = model(0, &request.inputs, &request.outputs);
        let (bytes, length) = sent(&request.to_body().expect("it can be written"));
        let mut changed = bytes.to_vec();
        changed[at.index(bytes.len())] = byte;
        changed.truncate(cut.index(bytes.len() * 2).max(1));
        let length = length.as_deref().map(str::as_bytes);
        if let Ok(read) = InferRequest::parse(&Bytes::from(changed), length, &model) {
            prop_assert_eq!(read.inputs.len(), request.inputs.len());
            prop_assert!(read.to_body().is_ok());
        }
        prop_assert!(InferRequest::parse(&bytes, length, &model).is_ok());
    }

    #[test]
    fn raw_requests_are_the_bytes(tensor in tensor(), batches in any::<bool>()) {
        let max_batch_size = u32::from(batches);
        let tensor = Tensor { is_binary: true, parameters: Vec::new(), ..tensor };
        let mut model = model(0, std::slice::from_ref(&tensor), &[]);
        model.max_batch_size = max_batch_size;
        let read = InferRequest::parse(&tensor.data, Some(b"0"), &model);
        let free = model.input[0].dims.iter().filter(|dim| dim.is_none()).count();
        let is_empty = tensor.elements() == Some(0);
        if tensor.datatype == Datatype::Bytes {
            // The bytes of the whole tensor are one text.
            prop_assert_eq!(read.is_ok(), tensor.elements() == Some(1) && free == 0);
        } else if let Ok(read) = read {
            let batch = batches.then_some(1).into_iter();
            prop_assert_eq!(&read.inputs[0].data, &tensor.data);
            prop_assert!(is_empty || read.inputs[0].shape.iter().copied().eq(batch.chain(tensor.shape.clone())));
        } else {
            prop_assert!(free > 1 || is_empty, "{:?}", read);
        }
    }
}

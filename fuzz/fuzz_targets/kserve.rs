//! A request is read or refused. One that is read is the same if it is written and read again, its syntax is the one that
//! `serde_json` accepts apart from the tokens NaN and Infinity, and `serde_json` reads the numbers of its response.

#![no_main]

use bytes::Bytes;
use kserve::{
    Body, Datatype, Error, InferRequest, InferResponse, JsonProblem, ModelConfig, RequestedOutput, Tensor,
    TensorConfig,
};
use libfuzzer_sys::{Corpus, fuzz_target};
use serde::de::IgnoredAny;
use serde_json::Value;

fuzz_target!(|bytes: &[u8]| -> Corpus {
    // The model, the length of the JSON or `-`, a line feed, and the body.
    let Some(at) = bytes.iter().position(|&byte| byte == b'\n') else { return Corpus::Reject };
    let (&[first, b' ', ref length @ ..], body) = (&bytes[..at], &bytes[at + 1..]) else {
        return Corpus::Reject;
    };
    let length = (length != b"-").then_some(length);
    let body = Bytes::copy_from_slice(body);
    let model = model(first, length == Some(b"0"));
    let read = InferRequest::parse(&body, length, &model);
    if length != Some(b"0") {
        syntax(&read, &body, length);
    }
    if let Ok(request) = read {
        written_again(&request, &model);
        answered(request);
    }
    Corpus::Keep
});

/// A model that takes a tensor of each datatype, or a single one.
fn model(number: u8, raw: bool) -> ModelConfig {
    let number = usize::from(number);
    let dims: [&[Option<u64>]; 4] = [&[None], &[Some(1)], &[None, Some(3), None], &[Some(2), None, Some(2)]];
    let tensor = |datatype: Datatype, dims: &[Option<u64>], optional| TensorConfig {
        name: datatype.name().to_owned(),
        datatype,
        dims: dims.to_vec(),
        optional,
    };
    let all =
        |optional| Datatype::all().map(|datatype| tensor(datatype, &[None], optional)).collect::<Vec<_>>();
    let input = if raw {
        vec![tensor(Datatype::all().nth(number % 14).expect("one of 14"), dims[number / 14 % 4], false)]
    } else {
        all(true)
    };
    ModelConfig {
        name: "m".to_owned(),
        platform: String::new(),
        backend: String::new(),
        max_batch_size: u32::from(number >= 128) * 2,
        input,
        output: all(number % 2 == 0),
    }
}

/// Compares what is JSON with `serde_json`.
fn syntax(read: &Result<InferRequest, Error>, body: &[u8], length: Option<&[u8]>) {
    let length =
        length.and_then(|length| std::str::from_utf8(length).ok()).and_then(|length| length.parse().ok());
    let Some(json) = body.get(..length.unwrap_or(body.len())) else { return };
    match read {
        Ok(_) => {
            let is_extended = json.windows(3).any(|bytes| bytes == b"NaN" || bytes == b"Inf");
            assert!(is_extended || serde_json::from_slice::<IgnoredAny>(json).is_ok(), "only we accept it");
        }
        Err(Error::Json { problem, .. }) => {
            let is_syntax = matches!(
                problem,
                JsonProblem::Value
                    | JsonProblem::Number
                    | JsonProblem::Key
                    | JsonProblem::Colon
                    | JsonProblem::Comma { .. }
                    | JsonProblem::Control
                    | JsonProblem::Unterminated
                    | JsonProblem::TrailingCharacters
                    | JsonProblem::InvalidUtf8
            );
            assert!(
                !is_syntax || serde_json::from_slice::<Value>(json).is_err(),
                "only we refuse it: {problem}"
            );
        }
        Err(_) => {}
    }
}

/// The bytes of a body and the value of its header.
fn sent(body: &Body) -> (Bytes, Option<String>) {
    (Bytes::from(body.parts.concat()), body.header_length.map(|length| length.to_string()))
}

fn written_again(request: &InferRequest, model: &ModelConfig) {
    let (body, length) = sent(&request.to_body().expect("it was read"));
    let again =
        InferRequest::parse(&body, length.as_deref().map(str::as_bytes), model).expect("it was written");
    // NaN is not equal to itself, so the texts are compared.
    assert_eq!(sent(&again.to_body().expect("it was read")), (body, length));
    assert_eq!(again.inputs.len(), request.inputs.len());
    for (one, other) in request.inputs.iter().zip(&again.inputs) {
        assert_eq!((&one.data, &one.shape, one.datatype), (&other.data, &other.shape, other.datatype));
    }
}

/// Answers with the inputs.
fn answered(request: InferRequest) {
    let InferRequest { id, parameters, inputs, outputs, .. } = request;
    let binary = |name: &str| {
        outputs
            .iter()
            .find(|output| output.name == name)
            .is_some_and(|output: &RequestedOutput| output.is_binary)
    };
    let outputs =
        inputs.into_iter().map(|input| Tensor { is_binary: binary(&input.name), ..input }).collect();
    let response =
        InferResponse { model_name: "m".to_owned(), model_version: "1".to_owned(), id, parameters, outputs };
    let body = match response.to_body() {
        Ok(body) => body,
        Err(Error::NoJson { .. } | Error::NotUtf8Element { .. }) => return,
        Err(error) => panic!("the tensors were checked: {error}"),
    };
    let (bytes, length) = sent(&body);
    let again = InferResponse::parse(&bytes, length.as_deref().map(str::as_bytes)).expect("it was written");
    assert_eq!(sent(&again.to_body().expect("it was read")), (bytes, length));
    if let Ok(json) = serde_json::from_slice::<Value>(&body.parts[0]) {
        for (tensor, object) in response.outputs.iter().zip(json["outputs"].as_array().expect("an array")) {
            assert_eq!(object["name"], tensor.name.as_str());
            if let Some(values) = object["data"].as_array() {
                assert_eq!(values.len() as u64, tensor.elements().expect("few"));
                numbers(tensor, values);
            }
        }
    }
}

/// Compares the numbers that a client reads with the bytes.
fn numbers(tensor: &Tensor, values: &[Value]) {
    let bytes = |value: &Value| match tensor.datatype {
        Datatype::Fp32 => (value.as_f64().expect("a number") as f32).to_le_bytes().to_vec(),
        Datatype::Fp64 => value.as_f64().expect("a number").to_le_bytes().to_vec(),
        Datatype::Uint64 => value.as_u64().expect("a number").to_le_bytes().to_vec(),
        Datatype::Int64 => value.as_i64().expect("a number").to_le_bytes().to_vec(),
        Datatype::Bool => vec![u8::from(value.as_bool().expect("true or false"))],
        Datatype::Bytes => {
            kserve::encode_bytes_elements([value.as_str().expect("a text")]).expect("it is short")
        }
        other => {
            value.as_i64().expect("a number").to_le_bytes()[..other.size().expect("it has one")].to_vec()
        }
    };
    assert_eq!(values.iter().flat_map(bytes).collect::<Vec<_>>(), tensor.data);
}

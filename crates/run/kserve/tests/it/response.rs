//! Responses: the JSON, the bytes after it, and the texts of errors that only a server makes.
//!
//! Facts: `extension_binary_data.md`, responses of Triton 2.51; `json.loads` of Python reads the numbers.

use bytes::Bytes;
use kserve::{Body, Datatype, Error, InferResponse, Parameter, Tensor, TensorLabel};

fn output(name: &str, datatype: Datatype, shape: &[u64], data: &[u8], binary: bool) -> Tensor {
    let (name, data) = (name.to_owned(), Bytes::copy_from_slice(data));
    Tensor { name, datatype, shape: shape.to_vec(), parameters: Vec::new(), data, is_binary: binary }
}

fn response(outputs: Vec<Tensor>) -> InferResponse {
    InferResponse {
        model_name: "m".to_owned(),
        model_version: "1".to_owned(),
        id: None,
        parameters: Vec::new(),
        outputs,
    }
}

/// The `data` of an output of one dimension.
fn data(datatype: Datatype, size: u64, data: &[u8]) -> String {
    let body = response(vec![output("x", datatype, &[size], data, false)]).to_body().expect("a body");
    assert_eq!((body.header_length, body.parts.len()), (None, 1));
    let text = String::from_utf8(body.parts[0].to_vec()).expect("it is text");
    text.split_once("\"data\":")
        .expect("it has data")
        .1
        .strip_suffix("}]}")
        .expect("the last member")
        .to_owned()
}

#[test]
fn the_response_of_the_specification() {
    let data: Vec<u8> = (0..24).collect();
    let body =
        response(vec![output("output0", Datatype::Fp32, &[3, 2], &data, true)]).to_body().expect("a body");
    insta::assert_snapshot!(String::from_utf8_lossy(&body.parts[0]), @r#"{"model_name":"m","model_version":"1","outputs":[{"name":"output0","datatype":"FP32","shape":[3,2],"parameters":{"binary_data_size":24}}]}"#);
    assert_eq!(body.header_length, Some(body.parts[0].len()));
    assert_eq!(body.parts[1], data);
    assert_eq!(body.len(), body.parts[0].len() + 24);
    assert_eq!(body.content_type(), "application/octet-stream");
}

#[test]
fn binary_tensors_follow_in_order_without_a_copy() {
    let outputs = vec![
        output("a", Datatype::Uint8, &[2], &[1, 2], true),
        output("b", Datatype::Uint8, &[2], &[3, 4], false),
        output("c", Datatype::Uint8, &[0], &[], true),
        output("d", Datatype::Fp16, &[1], &[5, 6], true),
    ];
    let mut response = response(outputs);
    response.id = Some("7\"".to_owned());
    response.parameters =
        vec![("p".to_owned(), Parameter::Double(f64::NEG_INFINITY)), ("q".to_owned(), Parameter::Int(-1))];
    response.outputs[3].parameters = vec![("r".to_owned(), Parameter::Bool(false))];
    let body = response.to_body().expect("a body");
    insta::assert_snapshot!(String::from_utf8_lossy(&body.parts[0]), @r#"{"id":"7\"","model_name":"m","model_version":"1","parameters":{"p":-Infinity,"q":-1},"outputs":[{"name":"a","datatype":"UINT8","shape":[2],"parameters":{"binary_data_size":2}},{"name":"b","datatype":"UINT8","shape":[2],"data":[3,4]},{"name":"c","datatype":"UINT8","shape":[0],"parameters":{"binary_data_size":0}},{"name":"d","datatype":"FP16","shape":[1],"parameters":{"r":false,"binary_data_size":2}}]}"#);
    assert_eq!(body.parts[1..], [response.outputs[0].data.clone(), response.outputs[3].data.clone()]);
    assert_eq!(body.parts[1].as_ptr(), response.outputs[0].data.as_ptr());
}

#[test]
fn no_bytes_need_no_header() {
    let json = response(vec![output("x", Datatype::Bool, &[], &[1], false)]).to_body().expect("a body");
    assert_eq!((json.header_length, json.content_type()), (None, "application/json"));
    assert!(!json.is_empty() && Body { header_length: None, parts: vec![Bytes::new()] }.is_empty());
    let empty = response(vec![output("x", Datatype::Fp16, &[0], &[], true)]).to_body().expect("a body");
    assert_eq!((empty.header_length, empty.parts.len()), (None, 1));
    insta::assert_snapshot!(String::from_utf8_lossy(&empty.parts[0]), @r#"{"model_name":"m","model_version":"1","outputs":[{"name":"x","datatype":"FP16","shape":[0],"parameters":{"binary_data_size":0}}]}"#);
}

#[test]
fn numbers_are_written_exactly() {
    let f32s = |values: &[f32]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<_>>();
    let values = [
        0.1,
        -0.0,
        1.0,
        16_777_216.0,
        f32::MIN_POSITIVE,
        f32::MAX,
        1e-45,
        f32::NAN,
        f32::INFINITY,
        f32::NEG_INFINITY,
    ];
    insta::assert_snapshot!(data(Datatype::Fp32, 10, &f32s(&values)), @"[0.1,-0.0,1.0,16777216.0,1.1754944e-38,3.4028235e+38,1e-45,NaN,Infinity,-Infinity]");
    let f64s: Vec<u8> =
        [0.1, 5e-324, f64::MAX, f64::NAN].iter().flat_map(|value: &f64| value.to_le_bytes()).collect();
    insta::assert_snapshot!(data(Datatype::Fp64, 4, &f64s), @"[0.1,5e-324,1.7976931348623157e+308,NaN]");
    insta::assert_snapshot!(data(Datatype::Uint64, 2, &[u64::MAX, 0].map(u64::to_le_bytes).concat()), @"[18446744073709551615,0]");
    insta::assert_snapshot!(data(Datatype::Int8, 3, &[128, 255, 127]), @"[-128,-1,127]");
    insta::assert_snapshot!(data(Datatype::Bool, 2, &[1, 0]), @"[true,false]");
    let texts = kserve::encode_bytes_elements(["\"\né\u{5}", ""]).expect("they are short");
    insta::assert_snapshot!(data(Datatype::Bytes, 2, &texts), @r#"["\"\né\u0005",""]"#);
}

/// Clients read a number as 64 bits and round it to 32. For one float that differs from reading it as 32 bits.
#[test]
fn a_client_that_reads_64_bits_gets_the_same_float() {
    for value in [7.038_531e-26_f32, -7.038_531e-26, 0.1, 1.175_494_4e-38, 3.402_823_5e38] {
        let text = data(Datatype::Fp32, 1, &value.to_le_bytes());
        let read: f64 = text.trim_matches(['[', ']']).parse().expect("a number");
        #[expect(clippy::cast_possible_truncation, reason = "as clients do")]
        let rounded = read as f32;
        assert_eq!(rounded.to_bits(), value.to_bits(), "{text}");
    }
}

#[test]
fn what_clients_ask_for_and_cannot_have_is_their_fault() {
    let print = |datatype, shape: &[u64], data: &[u8], binary| {
        let error =
            response(vec![output("x", datatype, shape, data, binary)]).to_body().expect_err("it is wrong");
        format!("{} {error}\n", error.status())
    };
    let answers = [
        print(Datatype::Fp16, &[1], &[0; 2], false),
        print(Datatype::Bf16, &[1], &[0; 2], false),
        print(Datatype::Bytes, &[2], b"\x01\0\0\0a\x01\0\0\0\xff", false),
        // The server's faults.
        print(Datatype::Fp32, &[2], &[0; 4], true),
        print(Datatype::Bytes, &[2], &[0; 4], false),
        print(Datatype::Bool, &[1], &[2], true),
        print(Datatype::Fp32, &[1 << 62], &[], true),
        print(Datatype::Bytes, &[u64::MAX, 2], &[], true),
    ];
    insta::assert_snapshot!(answers.concat(), @"
    400 output `x` is FP16, which has no JSON form: it can only be sent as bytes (`binary_data`)
    400 output `x` is BF16, which has no JSON form: it can only be sent as bytes (`binary_data`)
    400 output `x` has bytes in element 1 that are not UTF-8: it can only be sent as bytes (`binary_data`)
    500 the answer of the model is wrong: output `x` has 4 bytes, but its shape [2] of FP32 needs 8
    500 the answer of the model is wrong: output `x` ends within element 1, which needs 4 bytes: 0 are left
    500 the answer of the model is wrong: output `x` has the byte 2 as element 0, expected 0 or 1 for BOOL
    500 the answer of the model is wrong: output `x` has the shape [4611686018427387904], which has more elements than can be counted
    500 the answer of the model is wrong: output `x` has the shape [18446744073709551615, 2], which has more elements than can be counted
    ");
}

#[test]
fn errors_of_the_server() {
    let model = "m\n".to_owned();
    let errors = [
        Error::UnknownModel { model: model.clone() },
        Error::UnknownVersion { model: model.clone(), version: "7".to_owned() },
        Error::UnknownEncoding { encoding: "br".to_owned() },
        Error::Busy { model, waiting: 8 },
        Error::InvalidModelOutput(Box::new(Error::DuplicateTensorName {
            tensor: TensorLabel::Output("x".to_owned()),
        })),
    ];
    let answers: Vec<String> = errors
        .iter()
        .map(|error| format!("{} {}\n", error.status(), serde_json::to_string(&error.body()).expect("JSON")))
        .collect();
    insta::assert_snapshot!(answers.concat(), @r#"
    404 {"error":"unknown model `m\\n`"}
    404 {"error":"model `m\\n` has no version `7`"}
    501 {"error":"unknown Content-Encoding `br`, expected gzip, deflate or identity"}
    503 {"error":"model `m\\n` is busy: 8 requests are waiting for it already"}
    500 {"error":"the answer of the model is wrong: output `x` appears more than once"}
    "#);
}

#[test]
fn a_response_is_read_as_it_was_written() {
    let mut written = response(vec![
        output("a", Datatype::Bytes, &[1, 2], b"\x01\0\0\0a\0\0\0\0", false),
        output("b", Datatype::Bf16, &[1], &[7, 8], true),
    ]);
    written.id = Some(String::new());
    let body = written.to_body().expect("a body");
    let length = body.header_length.map(|length| length.to_string());
    let bytes = Bytes::from(body.parts.concat());
    assert_eq!(
        InferResponse::parse(&bytes, length.as_deref().map(str::as_bytes)).expect("a response"),
        written
    );
    insta::assert_snapshot!(InferResponse::parse(&Bytes::from_static(b"{\"outputs\":[]}"), None).expect_err("it is wrong"), @"the JSON is wrong at byte 14: `model_name` is missing");
    assert_eq!(InferResponse::parse(&bytes, Some(b"0")), Err(Error::Empty));
}

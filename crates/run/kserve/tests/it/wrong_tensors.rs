//! Requests with tensors that the model does not take, or with wrong bytes, with the texts of the answers.
//!
//! Facts: answers of Triton 2.51 where it answers 400; where it answers something else, or wraps numbers, 400 is ours.

use crate::models::{error, json, mixed, model, tensor};
use bytes::Bytes;
use kserve::{Datatype, InferRequest};

#[test]
fn tensors_that_the_model_does_not_take() {
    let model = model(0, vec![tensor("x", Datatype::Uint8, &[2]), tensor("y", Datatype::Fp32, &[-1, 4])]);
    let x = r#"{"name":"x","datatype":"UINT8","shape":[2],"data":[1,2]}"#;
    let y = r#"{"name":"y","datatype":"FP32","shape":[1,4],"data":[1,2,3,4]}"#;
    let requests = [
        format!(r#"{{"inputs":[{x}]}}"#),
        format!(r#"{{"inputs":[{x},{y},{}]}}"#, x.replace('x', "z")),
        format!(r#"{{"inputs":[{x},{y},{x}]}}"#),
        format!(r#"{{"inputs":[{x},{}]}}"#, y.replace("FP32", "FP64")),
        format!(r#"{{"inputs":[{x},{}]}}"#, y.replace("[1,4]", "[4]")),
        format!(r#"{{"inputs":[{x},{}]}}"#, y.replace("[1,4]", "[4,1]")),
        format!(r#"{{"inputs":[{x},{}]}}"#, y.replace("[1,4]", "[1,1,4]")),
        format!(r#"{{"inputs":[{x},{y}],"outputs":[{{"name":"out"}},{{"name":"nowhere"}}]}}"#),
        format!(r#"{{"inputs":[{x},{y}],"outputs":[{{"name":"out"}},{{"name":"out"}}]}}"#),
        format!(r#"{{"inputs":[{x},{y}],"outputs":[{{"name":"out","parameters":{{"classification":2}}}}]}}"#),
        format!(
            r#"{{"inputs":[{x},{y}],"outputs":[{{"name":"out","parameters":{{"shared_memory_region":"r"}}}}]}}"#
        ),
    ];
    let answers: Vec<String> = requests.iter().map(|request| error(json(&model, request))).collect();
    insta::assert_snapshot!(answers.join("\n"), @"
    400 model `m` needs input `y`, which the request leaves out
    400 model `m` has no input `z`
    400 input `x` appears more than once
    400 input `y` is FP64, but model `m` takes FP32
    400 input `y` has the shape [4], but model `m` takes [-1, 4]
    400 input `y` has the shape [4, 1], but model `m` takes [-1, 4]
    400 input `y` has the shape [1, 1, 4], but model `m` takes [-1, 4]
    400 model `m` has no output `nowhere`
    400 output `out` appears more than once
    400 output `out` has the parameter `classification`, which is not supported
    400 output `out` has the parameter `shared_memory_region`, which is not supported
    ");
}

#[test]
fn batches_that_the_model_does_not_take() {
    let model = model(2, vec![tensor("x", Datatype::Uint8, &[1]), tensor("y", Datatype::Uint8, &[1])]);
    let request = |x: &str, y: &str, data: [&str; 2]| {
        let [a, b] = data;
        error(json(
            &model,
            format!(
                r#"{{"inputs":[{{"name":"x","datatype":"UINT8","shape":{x},"data":{a}}},
                {{"name":"y","datatype":"UINT8","shape":{y},"data":{b}}}]}}"#
            ),
        ))
    };
    let answers = [
        request("[3,1]", "[3,1]", ["[1,2,3]"; 2]),
        request("[2,1]", "[1,1]", ["[1,2]", "[1]"]),
        request("[1]", "[1]", ["[1]"; 2]),
        request("[]", "[]", ["[1]"; 2]),
    ];
    insta::assert_snapshot!(answers.join("\n"), @"
    400 input `x` has a batch of 3, but model `m` takes at most 2
    400 input `y` has a batch of 1, but input `x` has a batch of 2
    400 input `x` has the shape [1], but model `m` takes [-1, 1]
    400 input `x` has the shape [], but model `m` takes [-1, 1]
    ");
}

#[test]
fn outputs_without_a_json_form() {
    let mut model = model(0, Vec::new());
    model.output[0].datatype = Datatype::Bf16;
    let requests = [
        r#"{"inputs":[]}"#,
        r#"{"inputs":[],"outputs":[{"name":"out"}]}"#,
        r#"{"inputs":[],"outputs":[{"name":"out","parameters":{"binary_data":false}}],"parameters":{"binary_data_output":true}}"#,
    ];
    let answers: Vec<String> = requests.iter().map(|request| error(json(&model, request))).collect();
    insta::assert_snapshot!(answers.join("\n"), @"
    400 output `out` is BF16, which has no JSON form: it can only be sent as bytes (`binary_data`)
    400 output `out` is BF16, which has no JSON form: it can only be sent as bytes (`binary_data`)
    400 output `out` is BF16, which has no JSON form: it can only be sent as bytes (`binary_data`)
    ");
    assert!(json(&model, r#"{"inputs":[],"outputs":[{"name":"other"}]}"#).is_ok());
    assert!(json(&model, r#"{"inputs":[],"parameters":{"binary_data_output":true}}"#).is_ok());
}

#[test]
fn lengths_of_the_json_that_are_not_in_the_body() {
    let model = model(0, Vec::new());
    let body = Bytes::from_static(br#"{"inputs":[]}"#);
    let parse = |length: &[u8]| InferRequest::parse(&body, Some(length), &model);
    let lengths: [&[u8]; 13] = [
        b"",
        b"x",
        b"-1",
        b"+13",
        b" 13",
        b"13 ",
        b"13.0",
        b"0x0d",
        b"14",
        b"99999999999999999999",
        b"1,13",
        b"\xff",
        b"-0",
    ];
    let answers: Vec<String> = lengths.iter().map(|length| error(parse(length))).collect();
    insta::assert_snapshot!(answers.join("\n"), @"
    400 Inference-Header-Content-Length is ``, expected a number of bytes from 0 to 13, the length of the body
    400 Inference-Header-Content-Length is `x`, expected a number of bytes from 0 to 13, the length of the body
    400 Inference-Header-Content-Length is `-1`, expected a number of bytes from 0 to 13, the length of the body
    400 Inference-Header-Content-Length is `+13`, expected a number of bytes from 0 to 13, the length of the body
    400 Inference-Header-Content-Length is ` 13`, expected a number of bytes from 0 to 13, the length of the body
    400 Inference-Header-Content-Length is `13 `, expected a number of bytes from 0 to 13, the length of the body
    400 Inference-Header-Content-Length is `13.0`, expected a number of bytes from 0 to 13, the length of the body
    400 Inference-Header-Content-Length is `0x0d`, expected a number of bytes from 0 to 13, the length of the body
    400 Inference-Header-Content-Length is `14`, expected a number of bytes from 0 to 13, the length of the body
    400 Inference-Header-Content-Length is `99999999999999999999`, expected a number of bytes from 0 to 13, the length of the body
    400 Inference-Header-Content-Length is `1,13`, expected a number of bytes from 0 to 13, the length of the body
    400 Inference-Header-Content-Length is `�`, expected a number of bytes from 0 to 13, the length of the body
    400 Inference-Header-Content-Length is `-0`, expected a number of bytes from 0 to 13, the length of the body
    ");
    assert!(parse(b"13").is_ok());
    assert!(parse(b"00013").is_ok());
    // A part of the JSON.
    insta::assert_snapshot!(error(parse(b"5")), @"400 the JSON is wrong at byte 5: a text does not end");
    insta::assert_snapshot!(error(InferRequest::parse(&Bytes::new(), None, &model)), @"400 the body is empty, expected an inference request in JSON");
}

#[test]
fn bytes_that_are_missing_left_over_or_wrong() {
    let cases: [(Datatype, &str, u64, &[u8]); 13] = [
        (Datatype::Int32, "[2]", 8, &[0; 7]),
        (Datatype::Int32, "[2]", 8, &[0; 9]),
        (Datatype::Int32, "[2]", 7, &[0; 7]),
        (Datatype::Int32, "[2]", 9, &[0; 9]),
        (Datatype::Int32, "[2]", 0, &[]),
        (Datatype::Int32, "[2]", u64::MAX / 2, &[0; 8]),
        (Datatype::Int64, "[4611686018427387904]", 0, &[]),
        (Datatype::Bool, "[3]", 3, &[0, 1, 2]),
        (Datatype::Bytes, "[2]", 4, &[0; 4]),
        (Datatype::Bytes, "[2]", 6, &[0; 6]),
        (Datatype::Bytes, "[2]", 9, b"\x05\0\0\0abcd\0"),
        (Datatype::Bytes, "[1]", 4, &[0xff; 4]),
        (Datatype::Bytes, "[1]", 6, b"\x01\0\0\0ab"),
    ];
    let answer = |(datatype, shape, size, blob): (Datatype, &str, u64, &[u8])| {
        let model = model(0, vec![tensor("x", datatype, &[-1])]);
        let header = format!(
            r#"{{"inputs":[{{"name":"x","datatype":"{datatype}","shape":{shape},"parameters":{{"binary_data_size":{size}}}}}]}}"#
        );
        error(mixed(&model, header, blob))
    };
    insta::assert_snapshot!(cases.map(answer).join("\n"), @"
    400 input `x` has a `binary_data_size` of 8, but the body has 7 bytes left
    400 the body has 1 byte after those of its tensors
    400 input `x` has 7 bytes, but its shape [2] of INT32 needs 8
    400 input `x` has 9 bytes, but its shape [2] of INT32 needs 8
    400 input `x` has 0 bytes, but its shape [2] of INT32 needs 8
    400 input `x` has a `binary_data_size` of 9223372036854775807, but the body has 8 bytes left
    400 input `x` has the shape [4611686018427387904], which has more elements than can be counted
    400 input `x` has the byte 2 as element 2, expected 0 or 1 for BOOL
    400 input `x` ends within element 1, which needs 4 bytes: 0 are left
    400 input `x` ends within element 1, which needs 4 bytes: 2 are left
    400 input `x` ends within element 1, which needs 4 bytes: 0 are left
    400 input `x` ends within element 0, which needs 4294967299 bytes: 4 are left
    400 input `x` has 1 byte after the last of its elements, of which its shape has 1
    ");
    // Bytes after JSON that asks for none, and bytes that are asked for without the header.
    let model = model(0, vec![tensor("x", Datatype::Uint8, &[1])]);
    let flat = r#"{"inputs":[{"name":"x","datatype":"UINT8","shape":[1],"data":[1]}]}"#;
    insta::assert_snapshot!(error(mixed(&model, flat, &[0])), @"400 the body has 1 byte after those of its tensors");
    let binary =
        r#"{"inputs":[{"name":"x","datatype":"UINT8","shape":[1],"parameters":{"binary_data_size":1}}]}"#;
    insta::assert_snapshot!(error(json(&model, binary)), @"400 input `x` has a `binary_data_size` of 1, but the body has 0 bytes left");
    insta::assert_snapshot!(error(json(&model, format!("{binary}\u{1}"))), @"400 the JSON is wrong at byte 92: expected the end");
}

#[test]
fn raw_requests_that_cannot_be() {
    let raw = |max_batch_size, inputs: &[(Datatype, &[i64])], body: &[u8]| {
        let inputs =
            inputs.iter().zip(["x", "y"]).map(|(&(datatype, dims), name)| tensor(name, datatype, dims));
        let model = model(max_batch_size, inputs.collect());
        error(InferRequest::parse(&Bytes::copy_from_slice(body), Some(b"0"), &model))
    };
    let answers = [
        raw(0, &[], b""),
        raw(0, &[(Datatype::Uint8, &[1]), (Datatype::Uint8, &[1])], b"a"),
        raw(0, &[(Datatype::Uint8, &[-1, -1])], b"a"),
        raw(0, &[(Datatype::Fp32, &[-1])], &[0; 5]),
        raw(4, &[(Datatype::Fp32, &[2, -1])], &[0; 12]),
        raw(0, &[(Datatype::Fp32, &[2, 2])], &[0; 12]),
        raw(4, &[(Datatype::Fp32, &[2, 2])], &[0; 32]),
        raw(0, &[(Datatype::Bytes, &[-1])], b"a"),
        raw(0, &[(Datatype::Bytes, &[2])], b"a"),
        raw(0, &[(Datatype::Bool, &[-1])], b"a"),
        raw(0, &[(Datatype::Fp32, &[-1, i64::MAX])], &[0; 12]),
        raw(0, &[(Datatype::Fp32, &[-1, 0])], &[0; 12]),
    ];
    insta::assert_snapshot!(answers.join("\n"), @"
    400 a raw request is for a model with one input, and model `m` has 0
    400 a raw request is for a model with one input, and model `m` has 2
    400 a raw request cannot give the shape of input `x`: more than one size of [-1, -1] is free
    400 a raw request has 5 bytes, but input `x` takes a multiple of 4
    400 a raw request has 12 bytes, but input `x` takes a multiple of 8
    400 a raw request has 12 bytes, but input `x` takes 16
    400 a raw request has 32 bytes, but input `x` takes 16
    400 a raw request of BYTES has one element, but input `x` takes [-1]
    400 a raw request of BYTES has one element, but input `x` takes [2]
    400 input `x` has the byte 97 as element 0, expected 0 or 1 for BOOL
    400 input `x` has the shape [9223372036854775807], which has more elements than can be counted
    400 a raw request has 12 bytes, but input `x` takes a multiple of 0
    ");
}

#[test]
fn shapes_that_are_large_allocate_nothing() {
    let model = model(0, vec![tensor("x", Datatype::Int64, &[-1]), tensor("s", Datatype::Bytes, &[-1])]);
    for (name, datatype) in [("x", "INT64"), ("s", "BYTES")] {
        let request = format!(
            r#"{{"inputs":[{{"name":"{name}","datatype":"{datatype}","shape":[1152921504606846975],"data":[]}}]}}"#
        );
        assert!(error(json(&model, request)).contains("1152921504606846975"));
        let header = format!(
            r#"{{"inputs":[{{"name":"{name}","datatype":"{datatype}","shape":[1152921504606846975],"parameters":{{"binary_data_size":4}}}}]}}"#
        );
        assert!(error(mixed(&model, header, &[0; 4])).contains("400"));
    }
}

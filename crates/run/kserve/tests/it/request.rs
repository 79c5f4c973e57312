//! Requests that the protocol allows, and what is read from them.
//!
//! Facts: `extension_binary_data.md`, `extension_parameters.md` of Triton, the protocol's `required_api.md`, and requests of
//! `tritonclient` 2.73.

use crate::models::{json, mixed, model, tensor};
use bytes::Bytes;
use kserve::{Datatype, InferRequest, Parameter};

/// The values of a tensor of FP32.
fn f32s(data: &[u8]) -> Vec<f32> {
    data.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

/// The values of `data` as the only input, of one dimension.
fn values(datatype: Datatype, size: usize, data: &str) -> kserve::Result<Bytes> {
    let model = model(0, vec![tensor("x", datatype, &[-1])]);
    let request =
        format!(r#"{{"inputs":[{{"name":"x","datatype":"{datatype}","shape":[{size}],"data":{data}}}]}}"#);
    Ok(json(&model, request)?.inputs.remove(0).data)
}

#[test]
fn the_request_of_the_specification() {
    let model =
        model(0, vec![tensor("input0", Datatype::Uint32, &[2, 2]), tensor("input1", Datatype::Bool, &[3])]);
    let header = r#"{
      "model_name" : "mymodel",
      "inputs" : [
        { "name" : "input0", "shape" : [ 2, 2 ], "datatype" : "UINT32", "parameters" : { "binary_data_size" : 16 } },
        { "name" : "input1", "shape" : [ 3 ], "datatype" : "BOOL", "parameters" : { "binary_data_size" : 3 } }
      ],
      "outputs" : [ { "name" : "out", "parameters" : { "binary_data" : true } } ]
    }"#;
    let blobs = [1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 1, 1, 0, 1];
    let request = mixed(&model, header, &blobs).expect("a request");
    assert_eq!(request.id, None);
    assert_eq!(request.inputs.len(), 2);
    assert_eq!(
        (request.inputs[0].name.as_str(), request.inputs[0].shape.as_slice()),
        ("input0", &[2, 2][..])
    );
    assert_eq!(request.inputs[0].data, blobs[..16]);
    assert_eq!(request.inputs[1].data, blobs[16..]);
    assert!(request.inputs.iter().all(|input| input.is_binary && input.parameters.is_empty()));
    assert_eq!(request.outputs.len(), 1);
    assert_eq!((request.outputs[0].name.as_str(), request.outputs[0].is_binary), ("out", true));
}

#[test]
fn tensors_are_slices_of_the_body() {
    let model = model(0, vec![tensor("x", Datatype::Fp64, &[-1])]);
    let header =
        r#"{"inputs":[{"name":"x","shape":[2],"datatype":"FP64","parameters":{"binary_data_size":16}}]}"#;
    let body = Bytes::from([header.as_bytes(), &[7; 16]].concat());
    let length = header.len().to_string();
    let request = InferRequest::parse(&body, Some(length.as_bytes()), &model).expect("a request");
    assert_eq!(request.inputs[0].data.as_ptr(), body[header.len()..].as_ptr());
    let aligned = kserve::aligned(&request.inputs[0].data, 8);
    assert_eq!((aligned.as_ptr().addr() % 8, aligned.as_ref()), (0, &[7; 16][..]));
}

#[test]
fn aligned_copies_only_what_is_misplaced() {
    let bytes = Bytes::from(vec![1; 64]);
    for start in 0..16 {
        let slice = bytes.slice(start..start + 32);
        for align in [1, 2, 4, 8, 64] {
            let aligned = kserve::aligned(&slice, align);
            assert_eq!(aligned, slice);
            assert_eq!(aligned.as_ptr().addr() % align, 0);
            let was = slice.as_ptr().addr() % align == 0;
            assert_eq!(aligned.as_ptr() == slice.as_ptr(), was, "{start} {align}");
        }
    }
}

#[test]
fn blobs_follow_in_the_order_of_the_inputs_and_json_takes_none() {
    let names = ["c", "a", "b"];
    let model = model(0, names.map(|name| tensor(name, Datatype::Uint8, &[-1])).to_vec());
    let header = r#"{"inputs":[
        {"name":"a","shape":[2],"datatype":"UINT8","parameters":{"binary_data_size":2}},
        {"name":"b","shape":[2],"datatype":"UINT8","data":[5,6]},
        {"name":"c","shape":[3],"datatype":"UINT8","parameters":{"binary_data_size":3}}]}"#;
    let request = mixed(&model, header, &[1, 2, 3, 4, 5]).expect("a request");
    let data: Vec<&[u8]> = request.inputs.iter().map(|input| input.data.as_ref()).collect();
    assert_eq!(data, [&[1, 2][..], &[5, 6], &[3, 4, 5]]);
    assert_eq!(request.inputs.iter().map(|input| input.is_binary).collect::<Vec<_>>(), [true, false, true]);
}

#[test]
fn without_the_header_the_whole_body_is_json() {
    let model = model(0, vec![tensor("x", Datatype::Uint8, &[-1])]);
    let text = r#" {"inputs":[{"name":"x","shape":[1],"datatype":"UINT8","data":[5]}]} "#;
    assert_eq!(json(&model, text), mixed(&model, text, &[]));
    assert!(json(&model, text).is_ok());
    // No bytes need no header.
    let text =
        r#"{"inputs":[{"name":"x","shape":[0],"datatype":"UINT8","parameters":{"binary_data_size":0}}]}"#;
    assert_eq!(json(&model, text).expect("a request").inputs[0].data, Bytes::new());
}

#[test]
fn members_may_come_in_any_order() {
    let model = model(0, vec![tensor("x", Datatype::Int16, &[2])]);
    let orders = [
        r#"{"name":"x","shape":[2],"datatype":"INT16","data":[1,-2]}"#,
        r#"{"data":[1,-2],"shape":[2],"datatype":"INT16","name":"x"}"#,
        r#"{"datatype":"INT16","data":[1,-2],"unknown":{"a":[{}]},"shape":[2],"name":"x"}"#,
        r#"{"shape":[2],"data":[1,-2],"datatype":"INT16","parameters":{},"name":"x"}"#,
    ];
    for input in orders {
        let request = json(&model, format!(r#"{{"outputs":[],"inputs":[{input}],"x":null}}"#)).expect(input);
        assert_eq!(request.inputs[0].data.as_ref(), [1, 0, 0xfe, 0xff]);
    }
}

#[test]
fn json_may_be_flat_or_nested() {
    let model = model(0, vec![tensor("x", Datatype::Uint8, &[2, 3])]);
    for data in ["[1,2,3,4,5,6]", "[[1,2,3],[4,5,6]]", "[ [ [1] , 2,3 ],\n[],[4,5,[6]]]"] {
        let request =
            format!(r#"{{"inputs":[{{"name":"x","shape":[2,3],"datatype":"UINT8","data":{data}}}]}}"#);
        let request = json(&model, request).expect(data);
        assert_eq!(request.inputs[0].data.as_ref(), [1, 2, 3, 4, 5, 6], "{data}");
    }
}

#[test]
fn every_datatype_with_json_takes_its_whole_range() {
    let cases = [
        (Datatype::Bool, "[true,false]", [1_u8, 0].to_vec()),
        (Datatype::Uint8, "[0,255]", vec![0, 255]),
        (Datatype::Int8, "[-128,127]", vec![128, 127]),
        (Datatype::Uint16, "[65535,-0]", vec![255, 255, 0, 0]),
        (Datatype::Int16, "[-32768,32767]", vec![0, 128, 255, 127]),
        (Datatype::Uint32, "[4294967295,1]", [u32::MAX, 1].map(u32::to_le_bytes).concat()),
        (Datatype::Int32, "[-2147483648,2147483647]", [i32::MIN, i32::MAX].map(i32::to_le_bytes).concat()),
        (Datatype::Uint64, "[18446744073709551615,0]", [u64::MAX, 0].map(u64::to_le_bytes).concat()),
        (
            Datatype::Int64,
            "[-9223372036854775808,9223372036854775807]",
            [i64::MIN, i64::MAX].map(i64::to_le_bytes).concat(),
        ),
        (Datatype::Fp32, "[-3.4028235e38,1]", [f32::MIN, 1.0].map(f32::to_le_bytes).concat()),
        (
            Datatype::Fp64,
            "[1.7976931348623157e308,5e-324]",
            [f64::MAX, 5e-324].map(f64::to_le_bytes).concat(),
        ),
        (Datatype::Bytes, r#"["a\u00e9\n",""]"#, b"\x04\0\0\0a\xc3\xa9\n\0\0\0\0".to_vec()),
    ];
    for (datatype, data, expected) in cases {
        assert_eq!(values(datatype, 2, data).expect(data), expected, "{datatype} {data}");
    }
    let with_json: Vec<_> = cases_of(Datatype::has_json);
    assert_eq!(with_json.len(), 12);
}

fn cases_of(is: fn(Datatype) -> bool) -> Vec<Datatype> {
    Datatype::all().filter(|&datatype| is(datatype)).collect()
}

#[test]
fn floats_that_are_not_finite_are_bare_tokens() {
    let data = values(Datatype::Fp32, 5, "[NaN,Infinity,-Infinity,-0.0,1e-50]").expect("a request");
    let floats = f32s(&data);
    assert!(floats[0].is_nan());
    assert_eq!(floats[1..3], [f32::INFINITY, f32::NEG_INFINITY]);
    assert_eq!(floats[3..].iter().map(|value| value.to_bits()).collect::<Vec<_>>(), [1 << 31, 0]);
    let data = values(Datatype::Fp64, 3, "[[NaN],[Infinity],[-Infinity]]").expect("a request");
    assert_eq!(data[8..], [f64::INFINITY, f64::NEG_INFINITY].map(f64::to_le_bytes).concat());
}

#[test]
fn every_datatype_can_be_sent_as_bytes() {
    for datatype in Datatype::all().filter(|&datatype| datatype != Datatype::Bytes) {
        let size = datatype.size().expect("they have one");
        let model = model(0, vec![tensor("x", datatype, &[-1, 2])]);
        let blob = vec![1; size * 6];
        let header = format!(
            r#"{{"inputs":[{{"name":"x","shape":[3,2],"datatype":"{datatype}","parameters":{{"binary_data_size":{}}}}}]}}"#,
            blob.len()
        );
        let request = mixed(&model, header, &blob).expect("a request");
        assert_eq!((request.inputs[0].datatype, request.inputs[0].data.as_ref()), (datatype, &blob[..]));
    }
}

#[test]
fn bytes_have_a_length_before_each_element() {
    let model = model(0, vec![tensor("x", Datatype::Bytes, &[-1])]);
    let blob = b"\x03\0\0\0a\xffc\0\0\0\0\x01\0\0\0z";
    let header =
        r#"{"inputs":[{"name":"x","shape":[3],"datatype":"BYTES","parameters":{"binary_data_size":16}}]}"#;
    let request = mixed(&model, header, blob).expect("a request");
    let texts: Vec<&[u8]> = kserve::bytes_elements(&request.inputs[0].data).collect();
    assert_eq!(texts, [&b"a\xffc"[..], b"", b"z"]);
    assert_eq!(kserve::encode_bytes_elements(texts).expect("short texts"), blob);
}

#[test]
fn an_output_decides_before_the_request_does() {
    let model = model(0, Vec::new());
    let cases = [
        (r#""outputs":[{"name":"out"}]"#, vec![("out", false)]),
        (r#""outputs":[{"name":"out","parameters":{"binary_data":true}}]"#, vec![("out", true)]),
        (r#""parameters":{"binary_data_output":true}"#, vec![("out", true), ("other", true)]),
        (r#""parameters":{"binary_data_output":false}"#, vec![("out", false), ("other", false)]),
        (r#""parameters":{"binary_data_output":true},"outputs":[]"#, vec![("out", true), ("other", true)]),
        // The text of the extension says so; Triton answers JSON.
        (r#""parameters":{"binary_data_output":true},"outputs":[{"name":"other"}]"#, vec![("other", true)]),
        (
            r#""outputs":[{"name":"other","parameters":{"binary_data":false}},{"name":"out"}],"parameters":{"binary_data_output":true}"#,
            vec![("other", false), ("out", true)],
        ),
        (
            r#""parameters":{"binary_data_output":false},"outputs":[{"name":"out","parameters":{"binary_data":true}}]"#,
            vec![("out", true)],
        ),
    ];
    for (members, expected) in cases {
        let request = json(&model, format!(r#"{{"inputs":[],{members}}}"#)).expect(members);
        let found: Vec<_> =
            request.outputs.iter().map(|output| (output.name.as_str(), output.is_binary)).collect();
        assert_eq!(found, expected, "{members}");
        assert_eq!(request.parameters, []);
    }
}

#[test]
fn parameters_are_strings_integers_booleans_and_doubles() {
    let model = model(0, vec![tensor("x", Datatype::Bool, &[])]);
    let text = r#"{"id":"é","parameters":{"s":"a","i":-5,"b":true,"d":0.5,"e":1e3,"sequence_id":18446744073709551615,"binary_data_output":true},
        "inputs":[{"name":"x","shape":[],"datatype":"BOOL","parameters":{"p":"q"},"data":[true]}],
        "outputs":[{"name":"out","parameters":{"binary_data":false,"k":1}}]}"#;
    let request = json(&model, text).expect("a request");
    let named = |name: &str, value| (name.to_owned(), value);
    let string = |text: &str| Parameter::String(text.to_owned());
    assert_eq!(request.id.as_deref(), Some("é"));
    assert_eq!(
        request.parameters,
        [
            named("s", string("a")),
            named("i", Parameter::Int(-5)),
            named("b", Parameter::Bool(true)),
            named("d", Parameter::Double(0.5)),
            named("e", Parameter::Double(1000.0)),
            named("sequence_id", Parameter::Uint(u64::MAX)),
        ]
    );
    assert_eq!(request.inputs[0].parameters, [named("p", string("q"))]);
    assert_eq!(request.outputs[0].parameters, [named("k", Parameter::Int(1))]);
}

#[test]
fn optional_inputs_may_be_left_out() {
    let mut model = model(0, vec![tensor("x", Datatype::Bool, &[1]), tensor("y", Datatype::Bool, &[1])]);
    model.input[1].optional = true;
    let x = r#"{"name":"x","shape":[1],"datatype":"BOOL","data":[true]}"#;
    assert_eq!(json(&model, format!(r#"{{"inputs":[{x}]}}"#)).expect("a request").inputs.len(), 1);
    let y = x.replace('x', "y");
    assert_eq!(json(&model, format!(r#"{{"inputs":[{y},{x}]}}"#)).expect("a request").inputs.len(), 2);
    assert!(json(&model, format!(r#"{{"inputs":[{y}]}}"#)).is_err());
}

#[test]
fn optional_outputs_are_sent_if_they_are_listed() {
    let mut model = model(0, Vec::new());
    model.output[1].optional = true;
    let names = |members: &str| {
        let request = json(&model, format!(r#"{{"inputs":[]{members}}}"#)).expect(members);
        request.outputs.into_iter().map(|output| output.name).collect::<Vec<_>>()
    };
    assert_eq!(names(""), ["out"]);
    assert_eq!(names(r#","outputs":[{"name":"other"}]"#), ["other"]);
}

#[test]
fn batches_up_to_the_largest() {
    let model = model(4, vec![tensor("x", Datatype::Uint8, &[2]), tensor("y", Datatype::Uint8, &[-1])]);
    let request = |x: u64, y: u64| {
        let (a, b) = (2 * x, 3 * y);
        let header = format!(
            r#"{{"inputs":[{{"name":"x","shape":[{x},2],"datatype":"UINT8","parameters":{{"binary_data_size":{a}}}}},
            {{"name":"y","shape":[{y},3],"datatype":"UINT8","parameters":{{"binary_data_size":{b}}}}}]}}"#
        );
        mixed(&model, header, &vec![0; usize::try_from(a + b).expect("small")])
    };
    assert_eq!(request(1, 1).expect("a request").inputs[0].shape, [1, 2]);
    assert_eq!(request(4, 4).expect("a request").inputs[1].shape, [4, 3]);
    assert!(request(5, 5).is_err());
    assert!(request(2, 1).is_err());
}

fn raw(model: &kserve::ModelConfig, body: &[u8]) -> kserve::Result<InferRequest> {
    InferRequest::parse(&Bytes::copy_from_slice(body), Some(b"0"), model)
}

#[test]
fn a_raw_request_is_the_only_input() {
    let fixed = model(0, vec![tensor("x", Datatype::Int32, &[2, 2])]);
    let request = raw(&fixed, &[1; 16]).expect("a request");
    assert_eq!((request.inputs[0].name.as_str(), request.inputs[0].shape.as_slice()), ("x", &[2, 2][..]));
    assert_eq!(request.inputs[0].data.as_ref(), [1; 16]);
    assert!(request.outputs.iter().all(|output| output.is_binary));
    assert_eq!(
        request.outputs.iter().map(|output| output.name.as_str()).collect::<Vec<_>>(),
        ["out", "other"]
    );

    let free = model(0, vec![tensor("x", Datatype::Bf16, &[3, -1, 2])]);
    assert_eq!(raw(&free, &[0; 48]).expect("a request").inputs[0].shape, [3, 4, 2]);
    assert_eq!(raw(&free, &[]).expect("a request").inputs[0].shape, [3, 0, 2]);

    let batching = model(8, vec![tensor("x", Datatype::Int64, &[-1])]);
    assert_eq!(raw(&batching, &[0; 24]).expect("a request").inputs[0].shape, [1, 3]);
    let mut second =
        model(0, vec![tensor("past", Datatype::Fp32, &[-1, -1]), tensor("x", Datatype::Int64, &[-1])]);
    second.input[0].optional = true;
    assert_eq!(raw(&second, &[0; 24]).expect("a request").inputs[0].name, "x");
    let scalar = model(0, vec![tensor("x", Datatype::Uint8, &[])]);
    assert_eq!(raw(&scalar, &[9]).expect("a request").inputs[0].shape, [0_u64; 0]);
}

#[test]
fn a_raw_request_of_bytes_is_one_element() {
    for (max_batch_size, shape) in [(0, vec![1]), (4, vec![1, 1])] {
        let model = model(max_batch_size, vec![tensor("x", Datatype::Bytes, &[1])]);
        let request = raw(&model, b"hello").expect("a request");
        assert_eq!(request.inputs[0].shape, shape);
        assert_eq!(request.inputs[0].data.as_ref(), b"\x05\0\0\0hello");
    }
}

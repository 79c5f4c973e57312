//! Requests whose JSON is wrong, with the texts of the answers.
//!
//! Facts: answers of Triton 2.51 where it answers 400; where it answers something else, or wraps numbers, 400 is ours.

use crate::models::{error, json, model, tensor};
use bytes::Bytes;
use kserve::{Datatype, InferRequest};

/// The answers to requests with `data` for an input of this datatype, whose shape has two elements.
fn data(datatype: Datatype, data: &[&str]) -> String {
    let model = model(0, vec![tensor("x", datatype, &[-1])]);
    let answer = |data: &&str| {
        let request =
            format!(r#"{{"inputs":[{{"name":"x","datatype":"{datatype}","shape":[2],"data":{data}}}]}}"#);
        format!("{data}: {}\n", error(json(&model, request)))
    };
    data.iter().map(answer).collect()
}

/// The answers to requests to a model with the input `x`, which is two UINT8.
fn requests(requests: &[&str]) -> String {
    let model = model(0, vec![tensor("x", Datatype::Uint8, &[2])]);
    let answer = |request: &&str| format!("{request}: {}\n", error(json(&model, request)));
    requests.iter().map(answer).collect()
}

/// The answers to requests with such an input.
fn inputs(inputs: &[&str]) -> String {
    let model = model(0, vec![tensor("x", Datatype::Uint8, &[2])]);
    let answer = |input: &&str| {
        format!("{input}: {}\n", error(json(&model, format!(r#"{{"inputs":[{{{input}}}]}}"#))))
    };
    inputs.iter().map(answer).collect()
}

#[test]
fn malformed_json() {
    insta::assert_snapshot!(
        requests(&[
            "", " ", "{", "x", "nul", "[]", "5", "{}x", r#"{"a"}"#, r#"{"a":}"#, r#"{"a":1,}"#, r#"{"a":[1,]}"#, r#"{"a":[1 2]}"#,
            r"{a:1}", r#"{"a":tru}"#, r#"{"a":nulL}"#, r#"{"a":01}"#, r#"{"a":1.}"#, r#"{"a":.5}"#, r#"{"a":-}"#, r#"{"a":+1}"#, r#"{"a":1e}"#,
            r#"{"a":nan}"#, r#"{"a":Inf}"#, r#"{"a":-NaN}"#, r#"{"id":"x"#, r#"{"id":"\x"}"#, r#"{"id":"\ud800"}"#,
            "{\"id\":\"\n\"}", r#"{"a":"\u12"}"#, r#"{"a":{"b":1]}"#, r#"{"inputs":[]"#, r#"{"inputs":[]}}"#,
            r"{'inputs':[]}", "// c\n{}",
        ]),
        @r#"
    : 400 the body is empty, expected an inference request in JSON
     : 400 the JSON is wrong at byte 1: expected a value
    {: 400 the JSON is wrong at byte 1: expected a key in quotes
    x: 400 the JSON is wrong at byte 0: expected a value
    nul: 400 the JSON is wrong at byte 0: expected a value
    []: 400 the JSON is wrong at byte 0: expected an object, found an array
    5: 400 the JSON is wrong at byte 0: expected an object, found a number
    {}x: 400 the JSON is wrong at byte 2: `inputs` is missing
    {"a"}: 400 the JSON is wrong at byte 4: expected a colon
    {"a":}: 400 the JSON is wrong at byte 5, in `a`: expected a value
    {"a":1,}: 400 the JSON is wrong at byte 7: expected a key in quotes
    {"a":[1,]}: 400 the JSON is wrong at byte 8, in `a`: expected a value
    {"a":[1 2]}: 400 the JSON is wrong at byte 8, in `a`: expected a comma or `]`
    {a:1}: 400 the JSON is wrong at byte 1: expected a key in quotes
    {"a":tru}: 400 the JSON is wrong at byte 5, in `a`: expected a value
    {"a":nulL}: 400 the JSON is wrong at byte 5, in `a`: expected a value
    {"a":01}: 400 the JSON is wrong at byte 6: expected a comma or `}`
    {"a":1.}: 400 the JSON is wrong at byte 5, in `a`: expected a digit of a number
    {"a":.5}: 400 the JSON is wrong at byte 5, in `a`: expected a value
    {"a":-}: 400 the JSON is wrong at byte 5, in `a`: expected a digit of a number
    {"a":+1}: 400 the JSON is wrong at byte 5, in `a`: expected a value
    {"a":1e}: 400 the JSON is wrong at byte 5, in `a`: expected a digit of a number
    {"a":nan}: 400 the JSON is wrong at byte 5, in `a`: expected a value
    {"a":Inf}: 400 the JSON is wrong at byte 5, in `a`: expected a digit of a number
    {"a":-NaN}: 400 the JSON is wrong at byte 5, in `a`: expected a digit of a number
    {"id":"x: 400 the JSON is wrong at byte 8, in `id`: a text does not end
    {"id":"\x"}: 400 the JSON is wrong at byte 9, in `id`: a text has an escape that is not a character
    {"id":"\ud800"}: 400 the JSON is wrong at byte 13, in `id`: a text has an escape that is not a character
    {"id":"
    "}: 400 the JSON is wrong at byte 8, in `id`: a text has a control character, which must be escaped
    {"a":"\u12"}: 400 the JSON is wrong at byte 10, in `a`: a text has an escape that is not a character
    {"a":{"b":1]}: 400 the JSON is wrong at byte 11, in `a`: expected a comma or `}`
    {"inputs":[]: 400 the JSON is wrong at byte 12: expected a comma or `}`
    {"inputs":[]}}: 400 the JSON is wrong at byte 13: expected the end
    {'inputs':[]}: 400 the JSON is wrong at byte 1: expected a key in quotes
    // c
    {}: 400 the JSON is wrong at byte 0: expected a value
    "#
    );
    let model = model(0, Vec::new());
    let answer = error(InferRequest::parse(&Bytes::from_static(b"{\"id\":\"\xff\"}"), None, &model));
    insta::assert_snapshot!(answer, @"400 the JSON is wrong at byte 7: it is not UTF-8");
}

#[test]
fn members_of_the_wrong_kind() {
    insta::assert_snapshot!(
        requests(&[
            "{}", r#"{"outputs":[]}"#, r#"{"inputs":null}"#, r#"{"inputs":{}}"#, r#"{"inputs":[[]]}"#, r#"{"inputs":[{}]}"#,
            r#"{"inputs":[],"inputs":[]}"#, r#"{"id":5}"#, r#"{"id":null}"#, r#"{"parameters":[]}"#,
            r#"{"parameters":{"binary_data_output":1}}"#, r#"{"parameters":{"a":null}}"#, r#"{"parameters":{"a":[1]}}"#,
            r#"{"parameters":{"a":18446744073709551616}}"#, r#"{"outputs":{}}"#, r#"{"outputs":["out"]}"#, r#"{"outputs":[{}]}"#,
            r#"{"outputs":[{"name":1}]}"#, r#"{"outputs":[{"name":"out","parameters":{"binary_data":"true"}}]}"#,
            r#"{"outputs":[{"name":"out","parameters":{"binary_data":true,"binary_data":true}}]}"#,
        ]),
        @r#"
    {}: 400 the JSON is wrong at byte 2: `inputs` is missing
    {"outputs":[]}: 400 the JSON is wrong at byte 14: `inputs` is missing
    {"inputs":null}: 400 the JSON is wrong at byte 10, in `inputs`: expected an array, found null
    {"inputs":{}}: 400 the JSON is wrong at byte 10, in `inputs`: expected an array, found an object
    {"inputs":[[]]}: 400 the JSON is wrong at byte 11, in `inputs[0]`: expected an object, found an array
    {"inputs":[{}]}: 400 the JSON is wrong at byte 13, in `inputs[0]`: `name` is missing
    {"inputs":[],"inputs":[]}: 400 the JSON is wrong at byte 22, in `inputs`: it appears more than once
    {"id":5}: 400 the JSON is wrong at byte 6, in `id`: expected a string, found a number
    {"id":null}: 400 the JSON is wrong at byte 6, in `id`: expected a string, found null
    {"parameters":[]}: 400 the JSON is wrong at byte 14, in `parameters`: expected an object, found an array
    {"parameters":{"binary_data_output":1}}: 400 the JSON is wrong at byte 36, in `parameters.binary_data_output`: expected a boolean, found a number
    {"parameters":{"a":null}}: 400 the JSON is wrong at byte 19, in `parameters.a`: expected a string, a number or a boolean, found null
    {"parameters":{"a":[1]}}: 400 the JSON is wrong at byte 19, in `parameters.a`: expected a string, a number or a boolean, found an array
    {"parameters":{"a":18446744073709551616}}: 400 the JSON is wrong at byte 19, in `parameters.a`: expected a whole number from -9223372036854775808 to 18446744073709551615, found `18446744073709551616`
    {"outputs":{}}: 400 the JSON is wrong at byte 11, in `outputs`: expected an array, found an object
    {"outputs":["out"]}: 400 the JSON is wrong at byte 12, in `outputs[0]`: expected an object, found a string
    {"outputs":[{}]}: 400 the JSON is wrong at byte 14, in `outputs[0]`: `name` is missing
    {"outputs":[{"name":1}]}: 400 the JSON is wrong at byte 20, in `outputs[0].name`: expected a string, found a number
    {"outputs":[{"name":"out","parameters":{"binary_data":"true"}}]}: 400 the JSON is wrong at byte 54, in `outputs[0].parameters.binary_data`: expected a boolean, found a string
    {"outputs":[{"name":"out","parameters":{"binary_data":true,"binary_data":true}}]}: 400 the JSON is wrong at byte 73, in `outputs[0].parameters.binary_data`: it appears more than once
    "#
    );
    insta::assert_snapshot!(
        inputs(&[
            r#""datatype":"UINT8","shape":[2],"data":[1,2]"#,
            r#""name":"x","shape":[2],"data":[1,2]"#,
            r#""name":"x","datatype":"UINT8","data":[1,2]"#,
            r#""name":"x","datatype":"UINT8","shape":[2]"#,
            r#""name":7,"datatype":"UINT8","shape":[2],"data":[1,2]"#,
            r#""name":"x","name":"x","datatype":"UINT8","shape":[2],"data":[1,2]"#,
            r#""name":"x","datatype":"uint8","shape":[2],"data":[1,2]"#,
            r#""name":"x","datatype":5,"shape":[2],"data":[1,2]"#,
            r#""name":"x","datatype":"UINT8","shape":2,"data":[1,2]"#,
            r#""name":"x","datatype":"UINT8","shape":[-1],"data":[1,2]"#,
            r#""name":"x","datatype":"UINT8","shape":[2.0],"data":[1,2]"#,
            r#""name":"x","datatype":"UINT8","shape":[2e0],"data":[1,2]"#,
            r#""name":"x","datatype":"UINT8","shape":["2"],"data":[1,2]"#,
            r#""name":"x","datatype":"UINT8","shape":[NaN],"data":[1,2]"#,
            r#""name":"x","datatype":"UINT8","shape":[[2]],"data":[1,2]"#,
            r#""name":"x","datatype":"UINT8","shape":[9223372036854775808],"data":[1,2]"#,
            r#""name":"x","datatype":"UINT8","shape":[4294967296,4294967296],"data":[1,2]"#,
            r#""name":"x","datatype":"UINT8","shape":[2],"data":5"#,
            r#""name":"x","datatype":"UINT8","shape":[2],"data":null"#,
            r#""name":"x","datatype":"UINT8","shape":[2],"data":{"a":1}"#,
            r#""name":"x","datatype":"UINT8","shape":[2],"data":[1,2],"parameters":{"binary_data_size":2}"#,
            r#""name":"x","datatype":"UINT8","shape":[2],"data":[1,2],"parameters":{"shared_memory_region":"a"}"#,
            r#""name":"x","datatype":"UINT8","shape":[2],"parameters":{"shared_memory_region":"a","binary_data_size":2}"#,
            r#""name":"x","datatype":"UINT8","shape":[2],"data":[],"parameters":{"shared_memory_region":"a","binary_data_size":2}"#,
            r#""name":"x","datatype":"UINT8","shape":[2],"parameters":{"shared_memory_region":"a"}"#,
            r#""name":"x","datatype":"UINT8","shape":[2],"parameters":{"binary_data_size":-2}"#,
            r#""name":"x","datatype":"UINT8","shape":[2],"parameters":{"binary_data_size":"2"}"#,
            r#""name":"x","datatype":"UINT8","shape":[2],"parameters":{"binary_data_size":2.5}"#,
        ]),
        @r#"
    "datatype":"UINT8","shape":[2],"data":[1,2]: 400 the JSON is wrong at byte 56, in `inputs[0]`: `name` is missing
    "name":"x","shape":[2],"data":[1,2]: 400 the JSON is wrong at byte 48, in `inputs[0]`: `datatype` is missing
    "name":"x","datatype":"UINT8","data":[1,2]: 400 the JSON is wrong at byte 55, in `inputs[0]`: `shape` is missing
    "name":"x","datatype":"UINT8","shape":[2]: 400 input `x` must have exactly one of `data`, `binary_data_size` and `shared_memory_region`, and has none
    "name":7,"datatype":"UINT8","shape":[2],"data":[1,2]: 400 the JSON is wrong at byte 19, in `inputs[0].name`: expected a string, found a number
    "name":"x","name":"x","datatype":"UINT8","shape":[2],"data":[1,2]: 400 the JSON is wrong at byte 30, in `inputs[0].name`: it appears more than once
    "name":"x","datatype":"uint8","shape":[2],"data":[1,2]: 400 input `x` has the unknown datatype `uint8`
    "name":"x","datatype":5,"shape":[2],"data":[1,2]: 400 the JSON is wrong at byte 34, in `inputs[0].datatype`: expected a string, found a number
    "name":"x","datatype":"UINT8","shape":2,"data":[1,2]: 400 the JSON is wrong at byte 50, in `inputs[0].shape`: expected an array, found a number
    "name":"x","datatype":"UINT8","shape":[-1],"data":[1,2]: 400 the JSON is wrong at byte 51, in `inputs[0].shape[0]`: expected a whole number from 0 to 9223372036854775807, found `-1`
    "name":"x","datatype":"UINT8","shape":[2.0],"data":[1,2]: 400 the JSON is wrong at byte 51, in `inputs[0].shape[0]`: expected a whole number from 0 to 9223372036854775807, found `2.0`
    "name":"x","datatype":"UINT8","shape":[2e0],"data":[1,2]: 400 the JSON is wrong at byte 51, in `inputs[0].shape[0]`: expected a whole number from 0 to 9223372036854775807, found `2e0`
    "name":"x","datatype":"UINT8","shape":["2"],"data":[1,2]: 400 the JSON is wrong at byte 51, in `inputs[0].shape[0]`: expected a number, found a string
    "name":"x","datatype":"UINT8","shape":[NaN],"data":[1,2]: 400 the JSON is wrong at byte 51, in `inputs[0].shape[0]`: expected a whole number from 0 to 9223372036854775807, found `NaN`
    "name":"x","datatype":"UINT8","shape":[[2]],"data":[1,2]: 400 the JSON is wrong at byte 51, in `inputs[0].shape[0]`: expected a number, found an array
    "name":"x","datatype":"UINT8","shape":[9223372036854775808],"data":[1,2]: 400 the JSON is wrong at byte 51, in `inputs[0].shape[0]`: expected a whole number from 0 to 9223372036854775807, found `9223372036854775808`
    "name":"x","datatype":"UINT8","shape":[4294967296,4294967296],"data":[1,2]: 400 input `x` has the shape [4294967296, 4294967296], which has more elements than can be counted
    "name":"x","datatype":"UINT8","shape":[2],"data":5: 400 the JSON is wrong at byte 61, in `inputs[0].data`: expected an array, found a number
    "name":"x","datatype":"UINT8","shape":[2],"data":null: 400 the JSON is wrong at byte 61, in `inputs[0].data`: expected an array, found null
    "name":"x","datatype":"UINT8","shape":[2],"data":{"a":1}: 400 the JSON is wrong at byte 61, in `inputs[0].data`: expected an array, found an object
    "name":"x","datatype":"UINT8","shape":[2],"data":[1,2],"parameters":{"binary_data_size":2}: 400 input `x` must have exactly one of `data`, `binary_data_size` and `shared_memory_region`, and has `data` and `binary_data_size`
    "name":"x","datatype":"UINT8","shape":[2],"data":[1,2],"parameters":{"shared_memory_region":"a"}: 400 input `x` must have exactly one of `data`, `binary_data_size` and `shared_memory_region`, and has `data` and `shared_memory_region`
    "name":"x","datatype":"UINT8","shape":[2],"parameters":{"shared_memory_region":"a","binary_data_size":2}: 400 input `x` must have exactly one of `data`, `binary_data_size` and `shared_memory_region`, and has `binary_data_size` and `shared_memory_region`
    "name":"x","datatype":"UINT8","shape":[2],"data":[],"parameters":{"shared_memory_region":"a","binary_data_size":2}: 400 input `x` must have exactly one of `data`, `binary_data_size` and `shared_memory_region`, and has all three
    "name":"x","datatype":"UINT8","shape":[2],"parameters":{"shared_memory_region":"a"}: 400 input `x` has the parameter `shared_memory_region`, which is not supported
    "name":"x","datatype":"UINT8","shape":[2],"parameters":{"binary_data_size":-2}: 400 the JSON is wrong at byte 87, in `inputs[0].parameters.binary_data_size`: expected a whole number from 0 to 9223372036854775807, found `-2`
    "name":"x","datatype":"UINT8","shape":[2],"parameters":{"binary_data_size":"2"}: 400 the JSON is wrong at byte 87, in `inputs[0].parameters.binary_data_size`: expected a number, found a string
    "name":"x","datatype":"UINT8","shape":[2],"parameters":{"binary_data_size":2.5}: 400 the JSON is wrong at byte 87, in `inputs[0].parameters.binary_data_size`: expected a whole number from 0 to 9223372036854775807, found `2.5`
    "#
    );
}

#[test]
fn values_of_the_wrong_kind_or_out_of_range() {
    insta::assert_snapshot!(
        [
            data(Datatype::Uint8, &["[300,1]", "[1,-1]", "[1.0,2]", "[1e2,2]", "[NaN,1]", r#"["1",2]"#, "[true,1]", "[null,1]", "[{},1]"]),
            data(Datatype::Int8, &["[128,1]", "[-129,1]"]),
            data(Datatype::Uint16, &["[65536,1]"]),
            data(Datatype::Int16, &["[32768,1]"]),
            data(Datatype::Uint32, &["[4294967296,1]"]),
            data(Datatype::Int32, &["[2147483648,1]"]),
            data(Datatype::Uint64, &["[18446744073709551616,1]"]),
            data(Datatype::Int64, &["[9223372036854775808,1]", "[1,123456789012345678901234567890123456789012345]"]),
            data(Datatype::Fp32, &["[1e39,1]", "[-3.5e38,1]", r#"["NaN",1]"#, "[false,1]"]),
            data(Datatype::Fp64, &["[1e309,1]", "[null,1]"]),
            data(Datatype::Bool, &["[1,0]", r#"["true",true]"#]),
            data(Datatype::Bytes, &["[1,2]", "[null,null]", r#"["\udc00",""]"#]),
            data(Datatype::Fp16, &["[1,2]"]),
            data(Datatype::Bf16, &["[1.0,2.0]"]),
        ]
        .concat(),
        @r#"
    [300,1]: 400 the JSON is wrong at byte 62, in `inputs[0].data`: element 0 is `300`, expected a whole number from 0 to 255 for UINT8
    [1,-1]: 400 the JSON is wrong at byte 64, in `inputs[0].data`: element 1 is `-1`, expected a whole number from 0 to 255 for UINT8
    [1.0,2]: 400 the JSON is wrong at byte 62, in `inputs[0].data`: element 0 is `1.0`, expected a whole number from 0 to 255 for UINT8
    [1e2,2]: 400 the JSON is wrong at byte 62, in `inputs[0].data`: element 0 is `1e2`, expected a whole number from 0 to 255 for UINT8
    [NaN,1]: 400 the JSON is wrong at byte 62, in `inputs[0].data`: element 0 is `NaN`, expected a whole number from 0 to 255 for UINT8
    ["1",2]: 400 the JSON is wrong at byte 62, in `inputs[0].data`: element 0 is a string, expected a whole number from 0 to 255 for UINT8
    [true,1]: 400 the JSON is wrong at byte 62, in `inputs[0].data`: element 0 is a boolean, expected a whole number from 0 to 255 for UINT8
    [null,1]: 400 the JSON is wrong at byte 62, in `inputs[0].data`: element 0 is null, expected a whole number from 0 to 255 for UINT8
    [{},1]: 400 the JSON is wrong at byte 62, in `inputs[0].data`: element 0 is an object, expected a whole number from 0 to 255 for UINT8
    [128,1]: 400 the JSON is wrong at byte 61, in `inputs[0].data`: element 0 is `128`, expected a whole number from -128 to 127 for INT8
    [-129,1]: 400 the JSON is wrong at byte 61, in `inputs[0].data`: element 0 is `-129`, expected a whole number from -128 to 127 for INT8
    [65536,1]: 400 the JSON is wrong at byte 63, in `inputs[0].data`: element 0 is `65536`, expected a whole number from 0 to 65535 for UINT16
    [32768,1]: 400 the JSON is wrong at byte 62, in `inputs[0].data`: element 0 is `32768`, expected a whole number from -32768 to 32767 for INT16
    [4294967296,1]: 400 the JSON is wrong at byte 63, in `inputs[0].data`: element 0 is `4294967296`, expected a whole number from 0 to 4294967295 for UINT32
    [2147483648,1]: 400 the JSON is wrong at byte 62, in `inputs[0].data`: element 0 is `2147483648`, expected a whole number from -2147483648 to 2147483647 for INT32
    [18446744073709551616,1]: 400 the JSON is wrong at byte 63, in `inputs[0].data`: element 0 is `18446744073709551616`, expected a whole number from 0 to 18446744073709551615 for UINT64
    [9223372036854775808,1]: 400 the JSON is wrong at byte 62, in `inputs[0].data`: element 0 is `9223372036854775808`, expected a whole number from -9223372036854775808 to 9223372036854775807 for INT64
    [1,123456789012345678901234567890123456789012345]: 400 the JSON is wrong at byte 64, in `inputs[0].data`: element 1 is `1234567890123456789012345678901234567890…`, expected a whole number from -9223372036854775808 to 9223372036854775807 for INT64
    [1e39,1]: 400 the JSON is wrong at byte 61, in `inputs[0].data`: element 0 is `1e39`, expected a number from -3.4028235e38 to 3.4028235e38, NaN, Infinity or -Infinity for FP32
    [-3.5e38,1]: 400 the JSON is wrong at byte 61, in `inputs[0].data`: element 0 is `-3.5e38`, expected a number from -3.4028235e38 to 3.4028235e38, NaN, Infinity or -Infinity for FP32
    ["NaN",1]: 400 the JSON is wrong at byte 61, in `inputs[0].data`: element 0 is a string, expected a number from -3.4028235e38 to 3.4028235e38, NaN, Infinity or -Infinity for FP32
    [false,1]: 400 the JSON is wrong at byte 61, in `inputs[0].data`: element 0 is a boolean, expected a number from -3.4028235e38 to 3.4028235e38, NaN, Infinity or -Infinity for FP32
    [1e309,1]: 400 the JSON is wrong at byte 61, in `inputs[0].data`: element 0 is `1e309`, expected a number from -1.7976931348623157e308 to 1.7976931348623157e308, NaN, Infinity or -Infinity for FP64
    [null,1]: 400 the JSON is wrong at byte 61, in `inputs[0].data`: element 0 is null, expected a number from -1.7976931348623157e308 to 1.7976931348623157e308, NaN, Infinity or -Infinity for FP64
    [1,0]: 400 the JSON is wrong at byte 61, in `inputs[0].data`: element 0 is a number, expected true or false for BOOL
    ["true",true]: 400 the JSON is wrong at byte 61, in `inputs[0].data`: element 0 is a string, expected true or false for BOOL
    [1,2]: 400 the JSON is wrong at byte 62, in `inputs[0].data`: element 0 is a number, expected a string for BYTES
    [null,null]: 400 the JSON is wrong at byte 62, in `inputs[0].data`: element 0 is null, expected a string for BYTES
    ["\udc00",""]: 400 the JSON is wrong at byte 69, in `inputs[0].data`: a text has an escape that is not a character
    [1,2]: 400 input `x` is FP16, which has no JSON form: it can only be sent as bytes (`binary_data_size`)
    [1.0,2.0]: 400 input `x` is BF16, which has no JSON form: it can only be sent as bytes (`binary_data_size`)
    "#
    );
}

#[test]
fn more_or_fewer_values_than_the_shape_has() {
    insta::assert_snapshot!(data(Datatype::Int32, &["[]", "[1]", "[1,2,3]", "[[1],[2],[3],[4]]"]), @"
    []: 400 input `x`: the number of values in `data` is 0, and its shape [2] needs 2
    [1]: 400 input `x`: the number of values in `data` is 1, and its shape [2] needs 2
    [1,2,3]: 400 input `x`: the number of values in `data` is 3, and its shape [2] needs 2
    [[1],[2],[3],[4]]: 400 input `x`: the number of values in `data` is 4, and its shape [2] needs 2
    ");
    insta::assert_snapshot!(data(Datatype::Bytes, &["[]", r#"["a","b","c"]"#]), @r#"
    []: 400 input `x`: the number of values in `data` is 0, and its shape [2] needs 2
    ["a","b","c"]: 400 input `x`: the number of values in `data` is 3, and its shape [2] needs 2
    "#);
}

#[test]
fn json_that_is_nested_too_deeply() {
    let model = model(0, vec![tensor("x", Datatype::Uint8, &[1])]);
    let data = |depth: usize, close: &str| {
        let data = "[".repeat(depth) + "1" + &close.repeat(depth);
        json(&model, format!(r#"{{"inputs":[{{"name":"x","datatype":"UINT8","shape":[1],"data":{data}}}]}}"#))
    };
    // Three levels are around the values.
    assert!(data(97, "]").is_ok());
    insta::assert_snapshot!(error(data(98, "]")), @"400 the JSON is wrong at byte 158, in `inputs[0].data`: it is nested deeper than 100");
    insta::assert_snapshot!(error(data(1_000_000, "")), @"400 the JSON is wrong at byte 158, in `inputs[0].data`: it is nested deeper than 100");
    let skipped = |depth: usize| {
        let value = r#"[{"a":"#.repeat(depth) + "1" + &"}]".repeat(depth);
        json(&model, format!(r#"{{"a":{value},"inputs":[]}}"#))
    };
    insta::assert_snapshot!(error(skipped(49)), @"400 model `m` needs input `x`, which the request leaves out");
    insta::assert_snapshot!(error(skipped(50)), @"400 the JSON is wrong at byte 300, in `a`: it is nested deeper than 100");
    // Before the datatype is known.
    let deep = "[".repeat(98) + &"]".repeat(98);
    insta::assert_snapshot!(error(json(&model, format!(r#"{{"inputs":[{{"data":{deep}}}]}}"#))), @"400 the JSON is wrong at byte 116, in `inputs[0].data`: it is nested deeper than 100");
}

#[test]
fn long_values_are_shortened_in_texts() {
    let model = model(0, vec![tensor("x", Datatype::Uint8, &[1])]);
    let many = "1".repeat(100_000);
    let requests = [
        format!(r#"{{"inputs":[{{"name":"x","datatype":"UINT8","shape":[1],"data":[{many}]}}]}}"#),
        format!(r#"{{"inputs":[{{"name":"x","datatype":"{many}","shape":[1],"data":[1]}}]}}"#),
        format!(r#"{{"inputs":[{{"name":"x","datatype":"UINT8","shape":[{many}],"data":[1]}}]}}"#),
        format!(
            r#"{{"inputs":[{{"name":"x","datatype":"UINT8","shape":[{}1],"data":[1]}}]}}"#,
            "1,".repeat(100_000)
        ),
        format!(r#"{{"{many}":[,],"inputs":[]}}"#),
        format!(r#"{{"parameters":{{"{many}":{many}}},"inputs":[]}}"#),
    ];
    for request in requests {
        assert!(error(json(&model, &request)).len() < 300, "{}", error(json(&model, &request)));
    }
}

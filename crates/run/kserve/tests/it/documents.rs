//! The documents that a server answers with, member by member.
//!
//! Facts: the protocol's `required_api.md`, `extension_model_configuration.md`, `extension_model_repository.md`,
//! `extension_statistics.md` of Triton, and answers of Triton 2.51.

use crate::models::{model, tensor};
use kserve::{
    BatchStatistics, Datatype, EXTENSIONS, IndexEntry, InferStatistics, ModelStatistics, ServerMetadata,
    StatisticDuration, Statistics, VersionState,
};

fn json(document: &impl serde::Serialize) -> String {
    serde_json::to_string(document).expect("JSON")
}

#[test]
fn a_server_lists_its_extensions() {
    let metadata = ServerMetadata {
        name: "s".to_owned(),
        version: "0.1.0".to_owned(),
        extensions: EXTENSIONS.map(str::to_owned).to_vec(),
    };
    insta::assert_snapshot!(json(&metadata), @r#"{"name":"s","version":"0.1.0","extensions":["binary_tensor_data","model_configuration","model_repository","parameters","statistics"]}"#);
}

#[test]
fn shapes_in_metadata_have_the_batch_dimension() {
    let inputs = || vec![tensor("x", Datatype::Int64, &[-1, 4]), tensor("s", Datatype::Bytes, &[])];
    let batching = model(8, inputs()).metadata(vec!["1".to_owned(), "3".to_owned()]);
    insta::assert_snapshot!(json(&batching), @r#"{"name":"m","versions":["1","3"],"platform":"","inputs":[{"name":"x","datatype":"INT64","shape":[-1,-1,4]},{"name":"s","datatype":"BYTES","shape":[-1]}],"outputs":[{"name":"out","datatype":"FP32","shape":[-1,-1]},{"name":"other","datatype":"BYTES","shape":[-1,-1]}]}"#);
    let whole = model(0, inputs()).metadata(Vec::new());
    insta::assert_snapshot!(json(&whole.inputs), @r#"[{"name":"x","datatype":"INT64","shape":[-1,4]},{"name":"s","datatype":"BYTES","shape":[]}]"#);
}

#[test]
fn a_configuration_has_sizes_without_the_batch_dimension() {
    let mut model = model(8, vec![tensor("x", Datatype::Bf16, &[-1, 4]), tensor("s", Datatype::Bytes, &[])]);
    model.input[1].optional = true;
    insta::assert_snapshot!(json(&model), @r#"{"name":"m","platform":"","backend":"test","max_batch_size":8,"input":[{"name":"x","data_type":"TYPE_BF16","format":"FORMAT_NONE","dims":[-1,4],"is_shape_tensor":false,"allow_ragged_batch":false,"optional":false},{"name":"s","data_type":"TYPE_STRING","format":"FORMAT_NONE","dims":[],"is_shape_tensor":false,"allow_ragged_batch":false,"optional":true}],"output":[{"name":"out","data_type":"TYPE_FP32","dims":[-1],"label_filename":"","is_shape_tensor":false},{"name":"other","data_type":"TYPE_STRING","dims":[-1],"label_filename":"","is_shape_tensor":false}]}"#);
}

#[test]
fn an_index_leaves_out_what_is_unknown() {
    let entry = IndexEntry { name: "m".to_owned(), version: None, state: None, reason: None };
    let states =
        [VersionState::Ready, VersionState::Unavailable, VersionState::Loading, VersionState::Unloading];
    let mut index = vec![entry.clone()];
    index.extend(states.map(|state| IndexEntry {
        version: Some("2".to_owned()),
        state: Some(state),
        ..entry.clone()
    }));
    index[2].reason = Some("unloaded".to_owned());
    insta::assert_snapshot!(json(&index), @r#"[{"name":"m"},{"name":"m","version":"2","state":"READY"},{"name":"m","version":"2","state":"UNAVAILABLE","reason":"unloaded"},{"name":"m","version":"2","state":"LOADING"},{"name":"m","version":"2","state":"UNLOADING"}]"#);
}

#[test]
fn statistics_have_the_members_of_triton() {
    let duration = StatisticDuration { count: 2, ns: 3000 };
    let statistics = Statistics {
        model_stats: vec![ModelStatistics {
            name: "m".to_owned(),
            version: "1".to_owned(),
            last_inference: 1_700_000_000_000,
            inference_count: 4,
            execution_count: 2,
            inference_stats: InferStatistics { success: duration, ..InferStatistics::default() },
            batch_stats: vec![BatchStatistics {
                batch_size: 2,
                compute_infer: duration,
                ..BatchStatistics::default()
            }],
        }],
    };
    insta::assert_snapshot!(json(&statistics), @r#"{"model_stats":[{"name":"m","version":"1","last_inference":1700000000000,"inference_count":4,"execution_count":2,"inference_stats":{"success":{"count":2,"ns":3000},"fail":{"count":0,"ns":0},"queue":{"count":0,"ns":0},"compute_input":{"count":0,"ns":0},"compute_infer":{"count":0,"ns":0},"compute_output":{"count":0,"ns":0},"cache_hit":{"count":0,"ns":0},"cache_miss":{"count":0,"ns":0}},"batch_stats":[{"batch_size":2,"compute_input":{"count":0,"ns":0},"compute_infer":{"count":2,"ns":3000},"compute_output":{"count":0,"ns":0}}]}]}"#);
}

#[test]
fn datatypes_have_two_names_each() {
    let rows: Vec<String> = Datatype::all()
        .map(|it| {
            format!(
                "{it} {} {:?} {:?}\n",
                it.config_name(),
                it.size(),
                Datatype::from_name(it.name()) == Some(it)
            )
        })
        .collect();
    insta::assert_snapshot!(rows.concat(), @"
    BOOL TYPE_BOOL Some(1) true
    UINT8 TYPE_UINT8 Some(1) true
    UINT16 TYPE_UINT16 Some(2) true
    UINT32 TYPE_UINT32 Some(4) true
    UINT64 TYPE_UINT64 Some(8) true
    INT8 TYPE_INT8 Some(1) true
    INT16 TYPE_INT16 Some(2) true
    INT32 TYPE_INT32 Some(4) true
    INT64 TYPE_INT64 Some(8) true
    FP16 TYPE_FP16 Some(2) true
    FP32 TYPE_FP32 Some(4) true
    FP64 TYPE_FP64 Some(8) true
    BF16 TYPE_BF16 Some(2) true
    BYTES TYPE_STRING None true
    ");
    assert_eq!(Datatype::from_name("STRING"), None);
}

//! Programs of `torch.export`, whose archives the tests write.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use byte_source::{BufferSource, Source, hex, sha256};
use tensor::{CompoundKind, Dtype};
use test_support::stored_zip;
use torch_import::{Checkpoint, Container, OmissionReason, Result, Risk, Scan, ScanDepth};

type Records = Vec<(String, Vec<u8>)>;

/// A pickle of four float32 numbers of storage 0.
const TENSOR: &[u8] = b"ctorch._utils\n_rebuild_tensor_v2\n((Vstorage\nctorch\nFloatStorage\nV0\nVcpu\nI4\ntQI0\n(I4\nt(I1\nt\x89\
    ccollections\nOrderedDict\n)RtR";
const HOSTILE: &[u8] = b"\x80\x02cos\nsystem\nX\x04\0\0\0true\x85R.";

/// An archive of `torch.save` with this pickle, and the numbers 0, 1, 2 and 3.
fn saved(pickle: &[u8]) -> Vec<u8> {
    let numbers: Vec<u8> = [0_f32, 1.0, 2.0, 3.0].iter().flat_map(|number| number.to_le_bytes()).collect();
    stored_zip([("archive/data.pkl", pickle), ("archive/version", b"3\n"), ("archive/data/0", &numbers)])
}

fn saved_dict(name: &str) -> Vec<u8> {
    saved(&[b"}V", name.as_bytes(), b"\n", TENSOR, b"s."].concat())
}

/// An entry of a document: float32 if the number of the dtype is 7.
fn view(record: &str, dtype: u8, [sizes, strides]: [&[u64]; 2], offset: u64) -> String {
    let list = |numbers: &[u64]| {
        let texts: Vec<_> = numbers.iter().map(|number| format!(r#"{{"as_int": {number}}}"#)).collect();
        texts.join(", ")
    };
    format!(
        r#"{{"path_name": "{record}", "is_param": true, "use_pickle": false, "tensor_meta": {{"dtype": {dtype}, "sizes": [{}],
            "requires_grad": true, "device": {{"type": "cpu", "index": null}}, "strides": [{}],
            "storage_offset": {{"as_int": {offset}}}, "layout": 7}}}}"#,
        list(sizes),
        list(strides)
    )
}

fn pickled(record: &str) -> String {
    format!(r#"{{"path_name": "{record}", "is_param": false, "use_pickle": true, "tensor_meta": null}}"#)
}

/// The records of a model, next to those that all archives have.
fn model(name: &str, weights: &[(&str, String)], constants: &[(&str, String)]) -> Records {
    let config = |entries: &[(&str, String)]| {
        let texts: Vec<_> = entries.iter().map(|(name, entry)| format!("{name:?}: {entry}")).collect();
        format!(r#"{{"config": {{{}}}}}"#, texts.join(", ")).into_bytes()
    };
    let program = br#"{"graph_module": {"graph": {"tensor_values": {"x": {"dtype": 7, "sizes": [{"as_expr": {"expr_str":
        "2*Symbol('s0', positive=True)", "hint": null}}, {"as_int": 4}], "strides": [], "storage_offset": {"as_int": 0},
        "layout": 7}}}, "signature": {"input_specs": [{"parameter": {"arg": {"name": "p_w"}, "parameter_name": "w"}},
        {"user_input": {"arg": {"as_tensor": {"name": "x"}}}}], "output_specs": [{"user_output": {"arg": {"as_int": 3}}}]}},
        "schema_version": {"major": 8, "minor": 20}, "torch_version": "2.15.0"}"#;
    let record = |name: String, bytes: &[u8]| (format!("stem/{name}"), bytes.to_vec());
    vec![
        record(format!("models/{name}.json"), program),
        record(format!("data/weights/{name}_weights_config.json"), &config(weights)),
        record(format!("data/constants/{name}_constants_config.json"), &config(constants)),
        record(format!("data/sample_inputs/{name}.pt"), &saved(HOSTILE)),
        record("archive_format".to_owned(), b"pt2"),
    ]
}

fn with(mut records: Records, more: &[(&str, &[u8])]) -> Records {
    let mut known = HashSet::new();
    records.retain(|(name, _)| known.insert(name.clone()));
    records.extend(more.iter().map(|(name, bytes)| (format!("stem/data/{name}"), bytes.to_vec())));
    records
}

fn open(records: Records) -> Result<(Container, Checkpoint)> {
    let container = Container::from_source(Arc::new(BufferSource::new("m.pt2", stored_zip(records))))?;
    let checkpoint = Checkpoint::read_readable(&container, &())?;
    Ok((container, checkpoint))
}

fn read(records: Records) -> Checkpoint {
    open(records).expect("it is whole").1
}

fn names(checkpoint: &Checkpoint) -> Vec<&str> {
    checkpoint.items.iter().map(|item| item.name.as_str()).collect()
}

fn unread(checkpoint: &Checkpoint) -> Vec<String> {
    checkpoint.unreadable.iter().map(|(_, error)| error.to_string()).collect()
}

fn floats(numbers: impl IntoIterator<Item = u8>) -> Vec<u8> {
    numbers.into_iter().flat_map(|number| f32::from(number).to_le_bytes()).collect()
}

#[test]
fn tensors_are_views_of_whole_storages() {
    let weights = [
        ("fc.weight", view("weight_1", 7, [&[2, 3], &[1, 2]], 0)),
        ("tied.weight", view("weight_1", 7, [&[2], &[3]], 1)),
        ("expanded", view("weight_0", 13, [&[4], &[0]], 0)),
        ("empty", view("weight_2", 28, [&[0, 3], &[3, 1]], 0)),
    ];
    let constants = [("lifted_tensor_0", view("tensor_0", 5, [&[], &[]], 0))];
    let records = [
        ("weights/weight_0", &b"\x80\x3f"[..]),
        ("weights/weight_1", &floats(0..6)),
        ("weights/weight_2", b""),
        ("constants/tensor_0", &7_u64.to_le_bytes()),
    ];
    let (container, checkpoint) =
        open(with(model("model", &weights, &constants), &records)).expect("it is whole");
    assert_eq!(container.format(), "pt2");
    assert_eq!(names(&checkpoint), ["fc.weight", "tied.weight", "expanded", "empty", "lifted_tensor_0"]);
    let tensors = checkpoint.to_tensors();
    let found: Vec<_> =
        tensors.iter().map(|(_, it)| (it.dtype(), it.shape(), it.stride(), it.storage_offset())).collect();
    assert_eq!(found[0], (Dtype::Float32, &[2, 3][..], &[1, 2][..], 0));
    assert_eq!(found[1], (Dtype::Float32, &[2][..], &[3][..], 1));
    assert_eq!(found[2], (Dtype::BFloat16, &[4][..], &[0][..], 0));
    assert_eq!(found[3], (Dtype::UInt16, &[0, 3][..], &[3, 1][..], 0));
    assert_eq!(found[4], (Dtype::Int64, &[][..], &[][..], 0));
    let storage = |at: usize| tensors.as_slice()[at].1.storage().id();
    assert_eq!(storage(0), storage(1));
    assert_ne!(storage(0), storage(2));
    assert_eq!((checkpoint.left_out.count(), unread(&checkpoint).len()), (0, 0));
}

#[test]
fn the_signature_is_that_of_the_graph() {
    let (container, _) = open(model("enc", &[], &[])).expect("it is whole");
    let [model] = container.exported_models() else { panic!("there is one model") };
    let signature = model.signature().expect("it is whole").expect("there is a program");
    assert_eq!((signature.model.as_str(), signature.schema_version.as_str()), ("enc", "8.20"));
    let [weight, input] = signature.inputs.as_slice() else { panic!("{:?}", signature.inputs) };
    assert_eq!((weight.kind.as_str(), weight.target.as_deref()), ("parameter", Some("w")));
    assert_eq!((input.name.as_str(), input.dtype), ("x", Some("float32")));
    assert_eq!(input.shape.as_deref(), Some(&["2*s0".to_owned(), "4".to_owned()][..]));
    assert_eq!(signature.outputs[0].name, "3");
}

#[test]
fn several_models_have_their_names_before_their_tensors() {
    let entry = |record: &str| [("w", view(record, 1, [&[1], &[1]], 0))];
    let records = [model("a", &entry("weight_0"), &[]), model("b.c", &entry("weight_1"), &[])].concat();
    let checkpoint = read(with(records, &[("weights/weight_0", b"\0"), ("weights/weight_1", b"\x01")]));
    assert_eq!(names(&checkpoint), ["a.w", "b.c.w"]);
    // The second could be either model's.
    let same = [("c.w", view("weight_0", 1, [&[1], &[1]], 0))];
    let records = [model("b", &same, &[]), model("b.c", &entry("weight_0"), &[])].concat();
    let error = open(with(records, &[("weights/weight_0", b"\0")])).expect_err("two names are equal");
    assert!(error.to_string().contains("two tensors have the name `b.c.w`"), "{error}");
}

#[test]
fn what_has_no_numbers_is_refused_by_name() {
    let symbol = view("weight_0", 7, [&[9], &[1]], 0).replace(
        r#"{"as_int": 9}"#,
        r#"{"as_expr": {"expr_str": "Symbol('u0', integer=True)", "hint": null}}"#,
    );
    let weights = [
        ("good", view("weight_0", 7, [&[2], &[1]], 0)),
        ("symbol", symbol),
        ("negative", view("weight_0", 7, [&[1], &[1]], 0).replace(r#"{"as_int": 1}"#, r#"{"as_int": -1}"#)),
        ("outside", view("weight_0", 7, [&[2], &[1]], 1)),
        ("dtype", view("weight_0", 99, [&[2], &[1]], 0)),
        ("sparse", view("weight_0", 7, [&[2], &[1]], 0).replace(r#""layout": 7"#, r#""layout": 1"#)),
        ("absent", view("weight_7", 7, [&[2], &[1]], 0)),
        ("path", view("x/weight_0", 7, [&[2], &[1]], 0)),
        ("fake", view("weight_1", 7, [&[2], &[1]], 0)),
    ];
    let records = [
        ("weights/weight_0", &floats(0..2)[..]),
        ("weights/x/weight_0", &floats(0..2)),
        ("weights/weight_1", b""),
    ];
    let checkpoint = read(with(model("model", &weights, &[]), &records));
    assert_eq!(names(&checkpoint), ["good", "fake"]);
    let (_, fake) = checkpoint.compounds().next().expect("it has no data");
    assert!(matches!(fake.kind, CompoundKind::Meta { .. }));
    let unread = unread(&checkpoint);
    for (error, expected) in unread.iter().zip([
        "tensor `symbol`: its shape has the symbol `u0`, which is a number only when the program runs",
        "tensor `negative`: its shape has the number -1",
        "tensor `outside`: record `stem/data/weights/weight_0`: ",
        "tensor `dtype`: its dtype has the number 99",
        "tensor `sparse`: its layout has the number 1, expected 7, strided",
        "tensor `absent`: its record `stem/data/weights/weight_7` is missing",
        "tensor `path`: its record `stem/data/weights/x/weight_0` is missing",
    ]) {
        assert!(error.starts_with(expected), "{error}");
    }
    assert_eq!(unread.len(), 7);
}

#[test]
fn a_hostile_part_does_not_keep_the_others_from_being_read() {
    let weights = [
        ("hostile", pickled("weight_0")),
        ("whole", pickled("weight_1")),
        ("damaged", pickled("weight_3")),
        ("again", pickled("weight_1")),
        ("raw", view("weight_2", 7, [&[4], &[1]], 0)),
    ];
    let constants = [("object", pickled("opaque_obj_0")), ("script", pickled("custom_obj_0"))];
    let records = with(
        model("model", &weights, &constants),
        &[
            ("weights/weight_0", &saved(HOSTILE)[..]),
            ("weights/weight_1", &saved(&[TENSOR, b"."].concat())),
            ("weights/weight_2", &floats(0..4)),
            ("weights/weight_3", b"no archive"),
            ("constants/opaque_obj_0", HOSTILE),
            ("constants/custom_obj_0", &saved(HOSTILE)),
        ],
    );
    let checkpoint = read(records.clone());
    assert_eq!(names(&checkpoint), ["raw", "whole"]);
    assert!(checkpoint.globals().is_empty());
    let notes: Vec<_> = checkpoint.notes.iter().map(ToString::to_string).collect();
    assert_eq!(
        notes,
        [
            "`object` is left out: it is an object, not a tensor",
            "`script` is left out: it is an object, not a tensor",
            "`hostile` is left out: its pickle names `os.system`",
        ]
    );
    let [again, damaged] = unread(&checkpoint).try_into().expect("two are");
    assert_eq!(again, "tensor `again`: its record `stem/data/weights/weight_1` is that of another tensor");
    assert!(damaged.starts_with("tensor `damaged`: record `stem/data/weights/weight_3`: "), "{damaged}");
    let source: Arc<dyn Source> = Arc::new(BufferSource::new("m.pt2", stored_zip(records)));
    let scan = Scan::source(&source, ScanDepth::Everything, &()).expect("it is whole");
    let places: Vec<_> = scan.pickles.iter().map(|pickle| pickle.place.to_string()).collect();
    for record in
        ["sample_inputs/model.pt", "weights/weight_0", "constants/opaque_obj_0", "constants/custom_obj_0"]
    {
        let is_found = |place: &String| place.contains(record);
        assert!(places.iter().any(is_found), "{record}: {places:?}");
    }
}

#[test]
fn the_state_dict_of_an_old_archive_is_a_pickle() {
    let old = |state: &[u8], constants: &[u8]| {
        let record = |name: &str, bytes: &[u8]| (name.to_owned(), bytes.to_vec());
        vec![
            record("version", b"8.2"),
            record("serialized_exported_program.json", b"{}"),
            record("serialized_state_dict.pt", state),
            record("serialized_constants.pt", constants),
            record("serialized_example_inputs.pt", &saved(HOSTILE)),
        ]
    };
    let checkpoint = read(old(&saved_dict("fc.weight"), &saved_dict("buffer")));
    assert_eq!(names(&checkpoint), ["fc.weight", "buffer"]);
    let checkpoint = read(old(&saved_dict("fc.weight"), &saved(HOSTILE)));
    assert_eq!(names(&checkpoint), ["fc.weight"]);
    assert!(checkpoint.left_out.listed.iter().any(|it| it.reason == OmissionReason::Pickled));
    // As in a file of `torch.save`, what opens it decides on the globals.
    let hostile =
        [b"}", HOSTILE.get(2..HOSTILE.len() - 1).expect("it is long"), b"0V", b"a\n", TENSOR, b"s."].concat();
    let checkpoint = read(old(&saved(&hostile), b""));
    assert!(checkpoint.globals().iter().any(|global| global.risk() == Risk::Dangerous));
    assert!(open(old(b"no archive", b"")).is_err());
    assert!(
        read(old(&saved_dict("a"), &saved_dict("b"))).globals().iter().all(|it| it.risk() == Risk::Known)
    );
    let error = open(old(&saved_dict("a"), &saved_dict("a"))).expect_err("two tensors have one name");
    assert!(error.to_string().contains('a'), "{error}");
}

#[test]
fn compiled_models_have_views_of_pickled_tensors() {
    let code = ("stem/data/aotinductor/m/x.so".to_owned(), b"\x7fELF".to_vec());
    let mark = ("stem/archive_format".to_owned(), b"pt2".to_vec());
    let error = open(vec![mark.clone(), code.clone()]).expect_err("the weights are in the code");
    assert!(error.to_string().contains("with its weights inside the code"), "{error}");
    let config = br#"{"fc.weight": ["weight_0", [2, 2], [1, 2], 0], "row": ["weight_0", [2], [1], 2],
        "far": ["weight_0", [9], [1], 0], "absent": ["weight_1", [1], [1], 0]}"#;
    let records = vec![
        mark,
        code,
        ("stem/data/weights/weight_0".to_owned(), saved(&[TENSOR, b"."].concat())),
        ("stem/data/aotinductor/m/weights_config.json".to_owned(), config.to_vec()),
    ];
    let checkpoint = read(records);
    assert_eq!(names(&checkpoint), ["fc.weight", "row"]);
    let tensors = checkpoint.to_tensors();
    assert_eq!(
        tensors.get("fc.weight").map(|it| (it.stride(), it.shape())),
        Some((&[1, 2][..], &[2, 2][..]))
    );
    assert_eq!(tensors.get("row").map(tensor::Tensor::storage_offset), Some(2));
    assert_eq!(unread(&checkpoint).len(), 2);
    assert_eq!(checkpoint.left_out.listed[0].reason, OmissionReason::CompiledCode);
}

/// `tests/conformance/workers/exported_models.py` wrote the archives, and what `torch.export.load` of the same version finds in them.
#[test]
fn archives_of_older_versions_have_their_bits() {
    for version in ["2.6.0", "2.9.1"] {
        let file = |end: &str| format!("{}/tests/exported/torch-{version}.{end}", env!("CARGO_MANIFEST_DIR"));
        let facts = std::fs::read_to_string(file("json")).expect("it is checked in");
        let facts: BTreeMap<String, (String, Vec<u64>, Vec<u64>, String)> =
            serde_json::from_str(&facts).expect("dtype, shape, stride and hash");
        let container = Container::open(file("pt2").as_ref()).expect("it is checked in");
        let tensors = Checkpoint::read(&container).expect("it is whole").to_tensors();
        let found = tensors.iter().map(|(name, it)| {
            let hash = hex(&sha256(&it.gathered(), &()).expect("it can be read"));
            (name.to_owned(), (it.dtype().to_string(), it.shape().to_vec(), it.stride().to_vec(), hash))
        });
        assert_eq!(found.collect::<BTreeMap<_, _>>(), facts, "{version}");
    }
}

//! Calls of each kind that make tensors, with the arguments that decide what they make.
//!
//! Facts: `torch/_utils.py`, `torch/_tensor.py` and `torch/serialization.py` of PyTorch 2.15; the state of an array in
//! `numpy/core/src/multiarray/methods.c` of NumPy 2.3.

use torch_import::CompoundKind;

use super::programs::{
    archive, call, check, dict, global, named, one, read, storage, tensor, text, with_checkpoint,
};

const HOOKS: &[u8] = b"ccollections\nOrderedDict\n)R";
const WHOLE: &[u8] = b"K\0K\x02\x85K\x01\x85";

/// `module.name(*args)`.
fn made(function: &str, args: &[&[u8]]) -> Vec<u8> {
    let (module, name) = function.rsplit_once('.').expect("functions have modules");
    [format!("c{module}\n{name}\n").into_bytes(), call(args), b"R".to_vec()].concat()
}

/// All of storage `0`, with metadata.
fn with_metadata(class: &str, metadata: &[u8]) -> Vec<u8> {
    made("torch._utils._rebuild_tensor_v2", &[&storage(class, "0", 2), WHOLE, b"\x89", HOOKS, metadata])
}

/// The names of what a program reads as, or the error.
fn parts(pickle: &[u8]) -> Result<Vec<String>, String> {
    Ok(read(pickle)?.into_iter().map(|(name, ..)| name).collect())
}

#[track_caller]
fn refused(pickle: &[u8], part: &str) {
    let error = read(pickle).expect_err(part);
    assert!(error.contains(part), "{part}: {error}");
}

const FLOATS: Result<&[(&str, &[f32])], &str> = Ok(&[("a", &[1.0, 2.0])]);

#[test]
fn functions_make_tensors_of_what_they_take() {
    let no_metadata = made("torch._utils._rebuild_tensor", &[&storage("FloatStorage", "0", 2), WHOLE]);
    let from_cpu = |dtype: &str| {
        made(
            "torch._utils._rebuild_device_tensor_from_cpu_tensor",
            &[&tensor("0"), &global(dtype), &text("xla:0"), b"\x89"],
        )
    };
    let parameter_class = [global("torch.nn.parameter.Parameter"), b")\x81".to_vec()].concat();
    let set = call(&[&storage("FloatStorage", "1", 2), WHOLE]);
    let of_parameter = made("torch.nn.parameter.Parameter", &[&tensor("0")]);
    let with_keywords = |kwargs: &[u8]| {
        [
            global("torch.nn.parameter.Parameter"),
            tensor("0"),
            b"\x85".to_vec(),
            kwargs.to_vec(),
            b"\x92".to_vec(),
        ]
        .concat()
    };
    check(&[
        ("without metadata", one(no_metadata), FLOATS),
        ("of a device", one(from_cpu("torch.float32")), FLOATS),
        (
            "of a device and another dtype",
            one(from_cpu("torch.float64")),
            Err("its dtype is float64, but its data are float32"),
        ),
        (
            "a function that is not known",
            one(made("torch._utils._rebuild_other", &[])),
            Err("is not supported"),
        ),
        (
            "a tensor in place of a storage",
            one(made("torch._utils._rebuild_tensor", &[&tensor("0"), WHOLE])),
            Err("expected a storage, found"),
        ),
        (
            "a parameter without data before BUILD",
            one([&parameter_class[..], &set, b"b"].concat()),
            Ok(&[("a", &[3.0, 4.0])]),
        ),
        ("a parameter before BUILD", one([&of_parameter[..], b"\x89\x89N\x87b"].concat()), FLOATS),
        (
            "a state of three that is not one of gradients",
            one([&tensor("0")[..], b"K\0\x89N\x87b"].concat()),
            Err("is not the state of a tensor"),
        ),
        (
            "a tensor of Paddle, with its name",
            one(made("builtins.tuple", &[&call(&[&text("linear_0.w_0"), &tensor("0")])])),
            FLOATS,
        ),
        (
            "a tuple of tensors",
            one(made("builtins.tuple", &[&call(&[&tensor("1"), &tensor("0")])])),
            Ok(&[("a.0", &[3.0, 4.0]), ("a.1", &[1.0, 2.0])]),
        ),
        ("no keywords", one(with_keywords(b"}")), FLOATS),
        ("keywords", one(with_keywords(&dict(&[("requires_grad", b"\x89")]))), Err("calls it with keywords")),
    ]);
}

#[test]
fn signs_are_flipped_where_a_dtype_has_them() {
    let neg = dict(&[("neg", b"\x88")]);
    let conj = dict(&[("conj", b"\x88")]);
    let both = dict(&[("conj", b"\x88"), ("neg", b"\x88")]);
    let flipped: Result<&[(&str, &[f32])], &str> = Ok(&[("a", &[-1.0, -2.0])]);
    let ordered = [global("collections.OrderedDict"), neg.clone(), b"\x85R".to_vec()].concat();
    let tagged = |change: &[u8]| {
        [made("torch.jit._pickle.restore_type_tag", &[&neg, &text("Dict[str, bool]")]), change.to_vec()]
            .concat()
    };
    let floats = |metadata: &[u8]| one(with_metadata("FloatStorage", metadata));
    let pair = [text("neg"), b"\x88\x86a".to_vec()].concat();
    let changed =
        [b"]q\x010".to_vec(), made("collections.OrderedDict", &[b"h\x01"]), b"q\x020h\x01".to_vec()];
    let later = [changed.concat(), pair, b"0".to_vec(), with_metadata("FloatStorage", b"h\x02")].concat();
    check(&[
        ("neg", floats(&neg), flipped),
        ("neg in an OrderedDict", floats(&ordered), flipped),
        ("an OrderedDict of a list that changes", one(later), Err("(list) changes afterwards")),
        ("neg in a dict with a type", floats(&tagged(b"")), flipped),
        (
            "which changes",
            floats(&tagged(b"X\x01\0\0\0a\x88s")),
            Err("the pickle changes one of its arguments"),
        ),
        ("conj of numbers that are not complex", floats(&conj), Err("conj and neg bits on float32")),
        ("conj and neg of them", floats(&both), Err("conj and neg bits on float32")),
        ("neg of integers", one(with_metadata("IntStorage", &neg)), Err("conj and neg bits on int32")),
        (
            "another storage for flipped numbers",
            one([
                with_metadata("FloatStorage", &neg),
                call(&[&storage("FloatStorage", "1", 2), WHOLE]),
                b"b".to_vec(),
            ]
            .concat()),
            Err("the pickle gives its result another storage (BUILD)"),
        ),
    ]);
}

fn archive_key(key: &str) -> Vec<u8> {
    storage("FloatStorage", key, 2)
}

#[test]
fn references_to_one_storage_have_to_agree() {
    let bytes = storage("ByteStorage", "0", 2);
    for (name, other, part) in [
        ("bytes after numbers", bytes.clone(), "storage `0` is 2 of uint8 here but was 2 of float32 before"),
        (
            "another size",
            storage("FloatStorage", "0", 1),
            "storage `0` is 1 of float32 here but was 2 of float32",
        ),
    ] {
        refused(&named(&[("a", archive_key("0")), ("b", other.clone())]), part);
        // Also if no tensor uses it.
        let unused =
            [b"\x80\x02".to_vec(), archive_key("0"), b"0".to_vec(), one(other.clone())[2..].to_vec()];
        assert!(read(&unused.concat()).is_err(), "{name}");
        let unused_later = [archive_key("0"), b"q\x01".to_vec(), other, b"0".to_vec()].concat();
        assert!(read(&one(unused_later)).is_err(), "{name}");
    }
}

/// Whichever object a reference is: a storage that no tensor uses is compared with one that is used by many.
#[test]
fn references_are_compared_wherever_they_are() {
    let class = b"ctorch\nFloatStorage\nq\x01";
    let rest =
        [text("0"), b"q\x02".to_vec(), text("cpu"), b"q\x03K\x02".to_vec(), b"q\x04".to_vec()].concat();
    let start = [b"\x80\x02".to_vec(), text("storage"), b"q\0".to_vec(), class.to_vec(), rest].concat();
    let unread = b"(h\0ctorch\nIntStorage\nh\x02h\x03h\x04tQ".as_slice();
    // Lists are objects that nothing refers to.
    for (before, between) in (0..66).flat_map(|before| [(before, 0), (before, 1), (before, 2)]) {
        let [before, between] = [before, between].map(|lists| b"]0".repeat(lists));
        let entry = |key: u8| [b"K".to_vec(), vec![key], b"(h\0h\x01h\x02h\x03h\x04tQ".to_vec()].concat();
        let many: Vec<u8> = (0..150).flat_map(entry).collect();
        let early = [&start[..], &before, unread, b"0", &between, b"}(", &many, b"u."].concat();
        refused(&early, "storage `0` is 2 of");
        let late = [&start[..], b"}(", &many, b"u", &before, unread, b"0."].concat();
        refused(&late, "storage `0` is 2 of int32 here but was 2 of float32 before");
    }
}

/// As above, for objects whose numbers are far apart: one is 4,097 times the other.
#[test]
fn references_are_compared_however_far_apart_they_are() {
    let other = storage("IntStorage", "0", 2);
    let read_later = |between: usize| {
        let named = named(&[("a", archive_key("0"))]);
        [b"\x80\x02", &other[..], b"0", &b"]0".repeat(between), &named[2..]].concat()
    };
    let read_first = |between: usize| {
        let named = named(&[("a", archive_key("0"))]);
        let end = named.len() - 1;
        [&named[..end], &b"]0".repeat(between), &other, b"0."].concat()
    };
    for pickle in [&read_later as &dyn Fn(usize) -> Vec<u8>, &read_first] {
        let near = pickle(0);
        let loaded = pickle_vm::load(&near).expect("it is well-formed");
        let &[first, second] = loaded.heap.persistent_objects() else { panic!("two storages") };
        let far = pickle(4097 * first.index() - second.index());
        let loaded = pickle_vm::load(&far).expect("it is well-formed");
        let &[first, second] = loaded.heap.persistent_objects() else { panic!("two storages") };
        assert_eq!(second.index(), 4097 * first.index());
        refused(&far, "storage `0` is 2 of");
    }
}

#[test]
fn quantized_tensors_have_scales_and_zero_points() {
    let quantized = |quantizer: &[u8]| {
        let args: &[&[u8]] = &[&storage("QInt8Storage", "0", 8), WHOLE, quantizer, b"\x89", HOOKS];
        one(made("torch._utils._rebuild_qtensor", args))
    };
    let affine = global("torch.per_tensor_affine");
    let found =
        read(&quantized(&call(&[&affine, b"G\x3f\xd0\0\0\0\0\0\0", b"K\x05"]))).expect("PyTorch reads it");
    let scale = found.iter().find(|(name, ..)| name == "a.scale").expect("it has one");
    assert_eq!((scale.1.as_str(), scale.2.as_slice()), ("float64", &0.25_f64.to_le_bytes()[..]));
    let affine = global("torch.per_channel_affine");
    let scales = b"](G\x3f\xd0\0\0\0\0\0\0G\x3f\xd0\0\0\0\0\0\0e";
    let channels = |points: &[u8]| quantized(&call(&[&affine, scales, points, b"K\0"]));
    assert_eq!(parts(&channels(b"](K\0K\0e")).map(|parts| parts.len()), Ok(3));
    refused(&channels(b"](K\0e"), "does not have 2 scales and 1 zero points");
}

#[test]
fn sparse_tensors_of_torchscript_have_a_number_for_their_layout() {
    let args: &[&[u8]] = &[b"K\x01", b"K\x02\x85", b"\x89", &tensor("0"), &tensor("1")];
    let found = parts(&one(made("torch._utils._rebuild_sparse_tensor", args)));
    assert_eq!(found, Ok(vec!["a.indices".to_owned(), "a.values".to_owned()]));
}

/// `_rebuild_from_type_v2(_rebuild_wrapper_subclass, class, …, state)`.
fn subclass(class: &str, state: &[u8]) -> Vec<u8> {
    let class = global(class);
    let inner = call(&[&class, &global("torch.float32"), b"K\x02\x85", b"K\x01\x85", b"K\0", b"NN\x89"]);
    let function = global("torch._utils._rebuild_wrapper_subclass");
    one(made("torch._tensor._rebuild_from_type_v2", &[&function, &class, &inner, state]))
}

#[test]
fn attributes_of_subclasses_are_their_parts() {
    let inside = |value: &[u8]| parts(&subclass("mine.Packed", &dict(&[("w", value)])));
    assert_eq!(inside(&tensor("0")), Ok(vec!["a.w".to_owned()]));
    assert_eq!(inside(&[b"](".to_vec(), tensor("0"), b"e".to_vec()].concat()), Ok(vec!["a.w.0".to_owned()]));
    assert_eq!(inside(&[tensor("0"), b"\x85".to_vec()].concat()), Ok(vec!["a.w.0".to_owned()]));
    assert_eq!(inside(&dict(&[("x", &tensor("0"))])), Ok(vec!["a.w.x".to_owned()]));
    // A list that contains itself.
    let own = [b"]q\x01(h\x01".to_vec(), tensor("0"), b"e".to_vec()].concat();
    assert_eq!(inside(&own), Ok(vec!["a.w.1".to_owned()]));
    let sparse: &[&[u8]] = &[b"K\x01", b"K\x02\x85", b"\x89", &tensor("0"), &tensor("1")];
    let sparse = made("torch._utils._rebuild_sparse_tensor", sparse);
    assert_eq!(inside(&sparse), Ok(vec!["a.w.indices".to_owned(), "a.w.values".to_owned()]));
}

#[test]
fn a_state_with_data_is_refused_where_the_data_may_be_shared() {
    let function = global("torch._utils._rebuild_device_tensor_from_cpu_tensor");
    let inner = call(&[&tensor("0"), &global("torch.float32"), &text("xla:0"), b"\x89"]);
    let class = global("mine.Tensor");
    let state = dict(&[("data", &tensor("1"))]);
    let of_type =
        |state: &[u8]| one(made("torch._tensor._rebuild_from_type_v2", &[&function, &class, &inner, state]));
    refused(&of_type(&state), "its state replaces the data of a tensor that it may not own");
    check(&[("other attributes", of_type(&dict(&[("x", b"N")])), FLOATS)]);
}

/// `numpy.core.multiarray._reconstruct(…)` with the state `(1, shape, dtype, fortran, bytes)`.
fn array(dtype: &[u8], fortran: &[u8]) -> Vec<u8> {
    let empty =
        made("numpy.core.multiarray._reconstruct", &[&global("numpy.ndarray"), b"K\0\x85", b"U\x01b"]);
    let bytes: Vec<u8> = [1.0_f32, 2.0, 3.0, 4.0].into_iter().flat_map(f32::to_le_bytes).collect();
    let state = call(&[b"K\x01", b"K\x02K\x02\x86", dtype, fortran, b"C\x10", &bytes]);
    one([empty, state, b"b".to_vec()].concat())
}

#[test]
fn arrays_are_read_by_their_dtype_and_order() {
    let plain = made("numpy.dtype", &[&text("f4"), b"\x89\x88"]);
    let rows: Result<&[(&str, &[f32])], &str> = Ok(&[("a", &[1.0, 2.0, 3.0, 4.0])]);
    let columns: Result<&[(&str, &[f32])], &str> = Ok(&[("a", &[1.0, 3.0, 2.0, 4.0])]);
    let with = |change: &[u8]| array(&[&plain[..], change].concat(), b"\x89");
    let state =
        |subarray: &[u8]| [b"(K\x03U\x01<", subarray, b"NNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tb"].concat();
    let changed = "the pickle changes one of its arguments";
    check(&[
        ("rows", array(&plain, b"\x89"), rows),
        ("columns", array(&plain, b"\x88"), columns),
        ("rows, as a number", array(&plain, b"K\0"), rows),
        ("columns, as a number", array(&plain, b"K\x01"), columns),
        ("a dtype with a state", with(&state(b"N")), rows),
        ("a dtype with a subarray", with(&state(b"K\x02\x85")), Err("is not that of a dtype of numbers")),
        ("a dtype with items", with(b"K\0K\0s"), Err(changed)),
        ("a dtype with appended items", with(b"K\0a"), Err(changed)),
        ("a dtype with two states", with(&[state(b"N"), state(b"N")].concat()), Err(changed)),
    ]);
}

#[test]
fn what_many_names_share_is_made_once() {
    // The numbers of an array that is written as text are copied.
    let zeros = [b"X\0\0\x10\0".to_vec(), vec![0; 1 << 20]].concat();
    let bytes = made("_codecs.encode", &[&zeros, &text("latin1")]);
    let dtype = made("numpy.dtype", &[&text("u1"), b"\x89\x88"]);
    let empty =
        made("numpy.core.multiarray._reconstruct", &[&global("numpy.ndarray"), b"K\0\x85", b"U\x01b"]);
    let state = call(&[b"K\x01", b"J\0\0\x10\0\x85", &dtype, b"\x89", &bytes]);
    let made = [empty, state, b"bq\x01".to_vec()].concat();
    let mut entries = vec![("first", made)];
    let names: Vec<String> = (0..200).map(|number| number.to_string()).collect();
    entries.extend(names.iter().map(|name| (name.as_str(), b"h\x01".to_vec())));
    assert_eq!(parts(&named(&entries)).map(|parts| parts.len()), Ok(201));
}

fn object(class: &str, state: &[(&str, &[u8])]) -> Vec<u8> {
    [global(class), b")\x81".to_vec(), dict(state), b"b".to_vec()].concat()
}

fn list(items: &[&[u8]]) -> Vec<u8> {
    [b"](".to_vec(), items.concat(), b"e".to_vec()].concat()
}

#[test]
fn a_parameter_that_is_not_initialised_is_a_tensor_without_data() {
    for class in ["UninitializedParameter", "UninitializedBuffer"] {
        let pickle = one(made(&format!("torch.nn.parameter.{class}"), &[b"\x88"]));
        let kinds = with_checkpoint(&archive(&pickle), |checkpoint| {
            checkpoint.compounds().map(|(name, it)| (name.to_owned(), it.kind.clone())).collect::<Vec<_>>()
        });
        let kinds = kinds.expect("PyTorch reads it");
        assert!(matches!(kinds.as_slice(), [(name, CompoundKind::Meta { .. })] if name == "a"), "{kinds:?}");
    }
}

/// The names of the tensors in a program, and what they are shards of.
fn shards(pickle: &[u8]) -> (Vec<String>, Vec<Option<String>>) {
    let found = with_checkpoint(&archive(pickle), |checkpoint| {
        let shards = checkpoint.compounds().map(|(_, compound)| match &compound.kind {
            CompoundKind::Subclass { shard, .. } => shard.clone(),
            _ => None,
        });
        (checkpoint.tensors().map(|(name, _)| name.into_owned()).collect(), shards.collect())
    });
    found.expect("PyTorch reads it")
}

#[test]
fn tensors_of_several_ranks_are_shards_unless_this_rank_has_all() {
    let shard = || object("torch.distributed.tensor.placement_types.Shard", &[("dim", b"K\0")]);
    let partial = || object("torch.distributed.tensor.placement_types.Partial", &[]);
    let dtensor = |placements: &[u8], mesh: &[(&str, &[u8])]| {
        let mesh = object("torch.distributed.device_mesh.DeviceMesh", mesh);
        let spec = object(
            "torch.distributed.tensor._dtensor_spec.DTensorSpec",
            &[("placements", placements), ("mesh", &mesh)],
        );
        let state = dict(&[("_local_tensor", &tensor("0")), ("_spec", &spec)]);
        shards(&subclass("torch.distributed.tensor.DTensor", &state))
    };
    let ranks = |ranks: &[&[u8]]| list(ranks);
    let two = ranks(&[b"K\x03", b"K\x05"]);
    let whole = (vec!["a".to_owned()], vec![]);
    let part = |shard: &str| (vec!["a._local_tensor".to_owned()], vec![Some(shard.to_owned())]);
    assert_eq!(dtensor(&list(&[&shard()]), &[("_flatten_rank_map", &two)]), whole);
    assert_eq!(dtensor(b")", &[("_flatten_rank_map", &ranks(&[b"K\0"]))]), whole);
    assert_eq!(dtensor(b")", &[("_flatten_rank_map", &two)]), part("a shard of [2], one of 2"));
    let partial = list(&[&partial()]);
    assert_eq!(dtensor(&partial, &[("_flatten_mesh_list", &two)]), part("a shard of [2], one of 2"));
    let with_rank: &[(&str, &[u8])] = &[("_flatten_rank_map", &two), ("_rank", b"K\x01")];
    assert_eq!(dtensor(&partial, with_rank), part("a shard of [2], rank 1 of 2"));
    // The coordinate in the mesh stands for a rank.
    let coordinate = list(&[b"K\x01"]);
    let with_coordinate: &[(&str, &[u8])] =
        &[("_flatten_mesh_list", &two), ("_coordinate_on_dim", &coordinate)];
    assert_eq!(dtensor(&partial, with_coordinate), part("a shard of [2], rank 5 of 2"));
    let local = object("torch.distributed._shard.sharded_tensor.shard.Shard", &[("tensor", &tensor("0"))]);
    let state = call(&[&list(&[&local]), b"N", b"N", b"N", b"N"]);
    assert_eq!(shards(&subclass("torch.distributed._shard.sharded_tensor.api.ShardedTensor", &state)), whole);
}

#[test]
fn an_object_may_be_its_own_state() {
    let own = [global("mine.Model"), b")\x81q\x01h\x01b".to_vec()].concat();
    check(&[("BUILD", named(&[("a", tensor("0")), ("m", own)]), FLOATS)]);
}

/// What a class does with a list is not known, so the list may change.
#[test]
fn an_argument_of_a_class_may_change() {
    let takes = [global("mine.Model"), b"]q\x01\x85R".to_vec()].concat();
    let pickle = named(&[("a", tensor("0")), ("m", takes), ("z", b"h\x01K\x01a".to_vec())]);
    check(&[("a list", pickle, FLOATS)]);
}

#[test]
fn a_parameter_that_nothing_refers_to_is_left_out_once() {
    let hooks = [b"\x89", HOOKS].concat();
    let parameter = made("torch._utils._rebuild_parameter", &[&tensor("1"), &hooks]);
    let pickle = [b"\x80\x02", &parameter[..], b"0", &one(tensor("0"))[2..]].concat();
    assert_eq!(with_checkpoint(&archive(&pickle), |checkpoint| checkpoint.left_out.count()), Ok(1));
}

/// JAX and TensorFlow have arrays of dtypes that NumPy lacks.
#[test]
fn arrays_of_ml_dtypes_are_tensors() {
    let array = |dtype: &str| {
        let made = b"cnumpy._core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\0\x85C\x01b\x87R(K\x01K\x02\x85cnumpy\ndtype\ncml_dtypes\n";
        let state = b"\n\x89\x88\x87R(K\x03X\x01\0\0\0<NNNK\x02K\x02K@tb\x89C\x04\x80?\0@tb";
        [&made[..], dtype.as_bytes(), state].concat()
    };
    let arrays = read(&named(&[("a", array("bfloat16"))])).expect("it is a dict of arrays");
    assert_eq!(arrays, [("a".to_owned(), "bfloat16".to_owned(), b"\x80?\0@".to_vec())]);
    // PyTorch has no such dtype, so it is a value.
    let arrays = read(&named(&[("a", array("int4")), ("b", array("bfloat16"))]));
    assert_eq!(arrays.map(|arrays| arrays.len()), Ok(1));
}

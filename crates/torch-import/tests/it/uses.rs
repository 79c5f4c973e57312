//! The risk of a global follows from what a pickle does with it: calls, instances, states, items and keys.
//!
//! The lists are `lists/reviewed.txt` and `lists/instances.txt`.

use std::io::Write;

use torch_import::{GlobalUseKind, Risk, Scan, ScanDepth};

use crate::pickled::{build, call, dict, global, graph, list, loader, new, text, tuple};

const REVIEWED: &str = include_str!("../../lists/reviewed.txt");

/// Scans a pickle of protocol 4.
fn scan_of(body: &[u8]) -> Scan {
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
    file.write_all(&[b"\x80\x04", body, b"."].concat()).expect("it can be written");
    Scan::file(file.path(), ScanDepth::Everything, &()).expect("it is a pickle")
}

/// Returns the risk of each global of a pickle, with the uses that were not judged.
pub(crate) fn risks(body: &[u8]) -> Vec<(String, Risk, Vec<GlobalUseKind>)> {
    let scan = scan_of(body);
    let found = scan.uses();
    found
        .map(|(_, found)| (found.global.to_string(), found.risk, found.global.findings().iter().collect()))
        .collect()
}

pub(crate) fn worst(body: &[u8]) -> Risk {
    risks(body).into_iter().map(|(_, risk, _)| risk).max().expect("it names a global")
}

/// Returns the uses of a global that were not judged.
fn findings(body: &[u8], global: &str) -> Vec<GlobalUseKind> {
    risks(body).into_iter().find(|(name, ..)| name == global).map(|(.., uses)| uses).unwrap_or_default()
}

/// Returns an argument that fits a rule of the list, and one that does not.
fn samples(rule: &str) -> (Vec<u8>, Option<Vec<u8>>) {
    let number = b"K\x01".to_vec();
    let class = || global("collections", "OrderedDict");
    match rule {
        "data" | "storage" => (number, Some(loader())),
        "plain" => (number, Some(call(&global("collections", "Counter"), &[]))),
        "named" => (class(), Some(loader())),
        "pairs" => (list(&[tuple(&[text("k"), loader()])]), Some(list(&[tuple(&[loader(), text("k")])]))),
        "any" => (loader(), None),
        "text" => (text("a"), Some(loader())),
        "class" => (class(), Some(global("torch.utils.data.dataloader", "_utils"))),
        "new" => (class(), Some(global("numpy", "matrix"))),
        "type" => (global("builtins", "object"), Some(global("torch.utils.data.dataloader", "DataLoader"))),
        "function" => {
            (global("torch._utils", "_rebuild_parameter"), Some(global("torch.nn.functional", "relu")))
        }
        "applied" => (tuple(&[number]), Some(tuple(&[loader()]))),
        "attributes" => (dict(&[("a", loader())]), Some(dict(&[("__class__", class())]))),
        "bitgenerator" => (text("MT19937"), Some(global("torch.utils.data.dataloader", "DataLoader"))),
        "generator" => {
            let made = call(&global("numpy.random._pickle", "__bit_generator_ctor"), &[text("PCG64")]);
            (made, Some(global("collections", "UserDict")))
        }
        "generatorctor" => (global("numpy.random._pickle", "__bit_generator_ctor"), Some(class())),
        _ => panic!("there is no rule {rule}"),
    }
}

/// Functions that are judged in another way: the bytes of one are scanned, and those of an attribute lookup.
const APART: [&str; 1] = ["torch.storage _load_from_bytes"];

#[test]
fn each_reviewed_call_is_known_for_its_arguments_and_unreviewed_for_others() {
    let mut count = 0;
    for line in REVIEWED.lines().filter(|line| !line.starts_with('#')) {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let (&[names, rules, ..], false) = (cells.as_slice(), APART.contains(&cells[0])) else { continue };
        if rules == "-" {
            continue;
        }
        let (module, name) = names.split_once(' ').expect("a module and a name");
        let function = global(module, name);
        let rules: Vec<&str> = rules.split(',').collect();
        let fitting: Vec<Vec<u8>> = rules.iter().map(|rule| samples(rule).0).collect();
        let found = risks(&call(&function, &fitting));
        let own =
            found.iter().find(|(found, ..)| *found == format!("{module}.{name}")).expect("it is listed");
        assert_eq!(own.1, Risk::Known, "{line}: {found:?}");
        count += 1;
        for (at, rule) in rules.iter().enumerate() {
            let Some(other) = samples(rule).1 else { continue };
            let mut args = fitting.clone();
            args[at] = other;
            let findings = findings(&call(&function, &args), &format!("{module}.{name}"));
            assert_eq!(findings, [GlobalUseKind::Called], "{line}: argument {at}");
        }
    }
    assert!(count > 80, "{count}");
}

#[test]
fn what_nobody_reviewed_is_unreviewed_if_it_is_called() {
    for (module, name) in [
        ("torch.nn.functional", "relu"),
        ("torch.optim.adam", "Adam"),
        ("torch.optim.swa_utils", "deepcopy"),
        ("torch.nn.utils.rnn", "namedtuple"),
        ("numpy.ma.core", "_convert2ma"),
        ("numpy.ma.core", "_frommethod"),
        ("torch.ao.quantization.fx._lower_to_native_backend", "GraphModule"),
        ("torch.ao.quantization.fx._lower_to_native_backend", "Node"),
    ] {
        assert!(worst(&call(&global(module, name), &[text("a")])) >= Risk::Unreviewed, "{module} {name}");
    }
    assert_eq!(worst(&global("torch.nn.functional", "relu")), Risk::Known);
}

#[test]
fn setters_run_only_for_judged_classes() {
    let slots = tuple(&[b"N".to_vec(), dict(&[("owning_module", text("a"))])]);
    assert!(worst(&build(&new(&graph(), &[]), &slots)) >= Risk::Unreviewed);
    assert!(worst(&call(&graph(), &[])) >= Risk::Unreviewed);
    // A setter of the interpreter changes the class.
    let class = tuple(&[b"N".to_vec(), dict(&[("__class__", graph())])]);
    let named = new(&global("torch.utils.data.dataset", "Subset"), &[]);
    assert_eq!(
        findings(&build(&named, &class), "torch.utils.data.dataset.Subset"),
        [GlobalUseKind::StateSlots]
    );
    let plain = tuple(&[b"N".to_vec(), dict(&[("indices", list(&[]))])]);
    assert_eq!(worst(&build(&named, &plain)), Risk::Known);
}

#[test]
fn a_looked_up_attribute_is_dangerous() {
    let lazy =
        build(&new(&global("torch.torch_version", "_LazyImport"), &[]), &dict(&[("_cls_name", text("os"))]));
    // Its `__call__` looks up the name.
    assert_eq!(worst(&call(&lazy, &[text("id")])), Risk::Dangerous);
    let lookup = call(&global("builtins", "dict.get"), &[lazy, text("system")]);
    assert_eq!(worst(&call(&lookup, &[text("id")])), Risk::Dangerous);
    let attribute =
        call(&global("builtins", "getattr"), &[global("torch.nn.modules.module", "Module"), text("apply")]);
    assert_eq!(worst(&attribute), Risk::Dangerous);
}

#[test]
fn the_result_of_a_call_is_not_called_or_changed() {
    let next = call(&global("builtins", "next"), &[call(&global("builtins", "iter"), &[list(&[loader()])])]);
    let state = dict(&[("a", b"N".to_vec())]);
    assert!(findings(&build(&next, &state), "builtins.next").contains(&GlobalUseKind::ResultChanged));
    let partial = call(&global("functools", "partial"), &[global("torch.nn.functional", "relu")]);
    assert_eq!(worst(&partial), Risk::Known);
    assert_eq!(findings(&call(&partial, &[]), "functools.partial"), [GlobalUseKind::ResultCalled]);
    assert_eq!(worst(&call(&partial, &[])), Risk::Dangerous);
    let logger = call(&global("logging", "getLogger"), &[text("a")]);
    assert_eq!(worst(&logger), Risk::Known);
    assert_eq!(findings(&build(&logger, &state), "logging.getLogger"), [GlobalUseKind::ResultChanged]);
}

#[test]
fn functions_read_only_data() {
    for (module, name) in
        [("builtins", "list"), ("builtins", "set"), ("collections", "OrderedDict"), ("builtins", "iter")]
    {
        let read = call(&global(module, name), &[loader()]);
        assert_eq!(findings(&read, &format!("{module}.{name}")), [GlobalUseKind::Called], "{module} {name}");
        let inside = call(&global(module, name), &[list(&[tuple(&[text("k"), loader()])])]);
        // An `OrderedDict` only stores its values.
        let expected: &[_] = if name == "OrderedDict" { &[] } else { &[GlobalUseKind::Called] };
        assert_eq!(findings(&inside, &format!("{module}.{name}")), expected, "{module} {name}");
    }
    // The factory of a dict is called for a key that the dict lacks.
    let dict_of = |factory: Vec<u8>| call(&global("collections", "defaultdict"), &[factory]);
    let adam = |groups: Vec<u8>| {
        build(&new(&global("torch.optim.adam", "Adam"), &[]), &dict(&[("param_groups", groups)]))
    };
    assert_eq!(worst(&adam(dict_of(global("builtins", "list")))), Risk::Known);
    let other = adam(dict_of(global("torch.nn.functional", "relu")));
    assert_eq!(findings(&other, "torch.optim.adam.Adam"), [GlobalUseKind::StateHook]);
    assert_eq!(findings(&adam(loader()), "torch.optim.adam.Adam"), [GlobalUseKind::StateHook]);
}

#[test]
fn states_cannot_replace_methods() {
    let hook = dict(&[("__setstate__", global("torch.nn.functional", "relu"))]);
    let linear = new(&global("torch.nn.modules.linear", "Linear"), &[]);
    assert_eq!(
        findings(&build(&linear, &hook), "torch.nn.modules.linear.Linear"),
        [GlobalUseKind::StateHook]
    );
    let modules = dict(&[("_modules", loader())]);
    let conv = new(&global("torch.nn.modules.conv", "Conv2d"), &[]);
    assert_eq!(findings(&build(&conv, &modules), "torch.nn.modules.conv.Conv2d"), [GlobalUseKind::StateHook]);
    assert_eq!(worst(&build(&conv, &dict(&[("_modules", dict(&[("a", loader())]))]))), Risk::Known);
}

#[test]
fn a_hook_searches_only_dicts_and_data() {
    // `Conv2d.__setstate__` looks for a name in `_parameters`, and a list compares the name with everything in it.
    let conv = |parameters: Vec<u8>| {
        build(&new(&global("torch.nn.modules.conv", "Conv2d"), &[]), &dict(&[("_parameters", parameters)]))
    };
    let ordered = || call(&global("collections", "OrderedDict"), &[]);
    let empty_array = call(
        &global("numpy.core.multiarray", "_reconstruct"),
        &[global("numpy", "ndarray"), tuple(&[b"K\x00".to_vec()]), text("b")],
    );
    let object = call(&global("numpy", "dtype"), &[text("O8"), b"\x89".to_vec(), b"\x88".to_vec()]);
    let array_of = |item: Vec<u8>| {
        let shape = tuple(&[b"K\x01".to_vec()]);
        build(
            &empty_array,
            &tuple(&[b"K\x01".to_vec(), shape, object.clone(), b"\x89".to_vec(), list(&[item])]),
        )
    };
    let with_item = |object: Vec<u8>, item: Vec<u8>| [object, text("w"), item, b"s".to_vec()].concat();
    let appended = |object: Vec<u8>, item: Vec<u8>| [object, b"(".to_vec(), item, b"e".to_vec()].concat();
    for (parameters, risk) in [
        (dict(&[("w", loader())]), Risk::Known),
        (with_item(ordered(), loader()), Risk::Known),
        // As Python 2 pickles it.
        (call(&global("collections", "OrderedDict"), &[list(&[list(&[text("w"), loader()])])]), Risk::Known),
        (
            call(&global("collections", "OrderedDict"), &[list(&[list(&[loader(), text("w")])])]),
            Risk::Unreviewed,
        ),
        (b"N".to_vec(), Risk::Known),
        (list(&[text("w")]), Risk::Known),
        (list(&[loader()]), Risk::Unreviewed),
        (tuple(&[tuple(&[loader()])]), Risk::Unreviewed),
        (appended(call(&global("builtins", "list"), &[]), loader()), Risk::Unreviewed),
        (appended(call(&global("collections", "deque"), &[]), loader()), Risk::Unreviewed),
        (array_of(loader()), Risk::Unreviewed),
        (loader(), Risk::Unreviewed),
    ] {
        assert_eq!(worst(&conv(parameters.clone())), risk, "{parameters:?}");
    }
    let mesh = |names: Vec<u8>| {
        let class = global("torch.distributed.device_mesh", "DeviceMesh");
        worst(&build(&new(&class, &[]), &dict(&[("_dim_group_names", names)])))
    };
    assert_eq!(mesh(list(&[text("a")])), Risk::Known);
    assert_eq!(mesh(list(&[loader()])), Risk::Unreviewed);
}

#[test]
fn what_a_key_is_made_of_counts_if_its_class_reads_attributes() {
    let key = |key: Vec<u8>| worst(&[b"}".to_vec(), key, b"K\x02s".to_vec()].concat());
    let network = || new(&global("ipaddress", "IPv4Network"), &[]);
    assert_eq!(key(call(&global("ipaddress", "IPv4Network"), &[text("10.0.0.0/8")])), Risk::Known);
    assert_eq!(key(build(&network(), &dict(&[("netmask", b"K\x01".to_vec())]))), Risk::Known);
    assert_eq!(key(build(&network(), &dict(&[("netmask", loader())]))), Risk::Unreviewed);
    let mesh = new(&global("torch.distributed.device_mesh", "DeviceMesh"), &[]);
    assert_eq!(key(build(&mesh, &dict(&[("_layout", loader())]))), Risk::Unreviewed);
}

#[test]
fn comparisons_call_no_attribute() {
    // `torch.load` compares the first object of a file with a number.
    let header = new(&global("email.header", "Header"), &[]);
    assert_eq!(
        findings(&build(&header, &dict(&[("_chunks", list(&[loader()]))])), "email.header.Header"),
        [GlobalUseKind::StateDict]
    );
    // `poly1d.__ne__` is `not self.__eq__(other)`.
    let poly = new(&global("numpy", "poly1d"), &[]);
    let relu = global("torch.nn.functional", "relu");
    assert_eq!(
        findings(&build(&poly, &dict(&[("__eq__", relu.clone())])), "numpy.poly1d"),
        [GlobalUseKind::StateDict]
    );
    assert_eq!(worst(&build(&poly, &dict(&[("coeffs", relu.clone())]))), Risk::Known);
    // An instance of a generic class keeps the annotation that made it.
    let namespace = new(&global("argparse", "Namespace"), &[]);
    assert_eq!(worst(&build(&namespace, &dict(&[("__orig_class__", relu)]))), Risk::Known);
}

#[test]
fn a_persistent_class_has_the_methods_of_its_class() {
    // A lazy module of a legacy checkpoint keeps two methods as hooks.
    let class = |name: &str| {
        let none = || b"N".to_vec();
        let fields = [text("module"), global("torch.nn.modules.linear", name), none(), none()];
        [tuple(&fields), b"Q".to_vec()].concat()
    };
    let method = |name: &str| {
        call(&global("builtins", "getattr"), &[new(&class(name), &[]), text("_infer_parameters")])
    };
    assert_eq!(worst(&method("LazyLinear")), Risk::Known);
    assert_eq!(worst(&method("Linear")), Risk::Dangerous);
    let partial = |function: Vec<u8>| call(&global("functools", "partial"), &[function]);
    assert_eq!(worst(&partial(class("Linear"))), Risk::Known);
    assert_eq!(worst(&call(&partial(class("Linear")), &[])), Risk::Dangerous);
    let system = [tuple(&[text("module"), global("os", "system")]), b"Q".to_vec()].concat();
    assert_eq!(worst(&partial(system)), Risk::Dangerous);
}

#[test]
fn an_array_of_joblib_is_data_unless_it_may_hold_objects() {
    let dtype =
        |code: &str| call(&global("numpy", "dtype"), &[text(code), b"\x89".to_vec(), b"\x88".to_vec()]);
    let wrapper = |more: (&str, Vec<u8>)| {
        let state =
            [("subclass", global("numpy", "ndarray")), ("dtype", dtype("u4")), ("shape", tuple(&[])), more];
        build(&new(&global("joblib.numpy_pickle", "NumpyArrayWrapper"), &[]), &dict(&state))
    };
    let found = |array: Vec<u8>| {
        let seeds = call(&global("numpy.random._pickle", "__randomstate_ctor"), &[text("MT19937")]);
        let built = build(&seeds, &dict(&[("key", array)]));
        findings(&built, "numpy.random._pickle.__randomstate_ctor")
    };
    assert_eq!(found(wrapper(("order", text("C")))), []);
    assert_eq!(found(wrapper(("dtype", dtype("O")))), [GlobalUseKind::StateHook]);
    assert_eq!(found(wrapper(("detach", text("C")))), [GlobalUseKind::StateHook]);
    assert_eq!(found(wrapper(("order", loader()))), [GlobalUseKind::StateHook]);
    assert_eq!(found(wrapper(("subclass", global("numpy", "memmap")))), [GlobalUseKind::StateHook]);
}

#[test]
fn a_persistent_id_is_a_class_only_if_its_fields_say_so() {
    let loader = global("torch.utils.data.dataloader", "DataLoader");
    let none = || b"N".to_vec();
    let called = |fields: &[Vec<u8>]| scan_of(&[tuple(fields), b"Q)R".to_vec()].concat());
    let name = "torch.utils.data.dataloader.DataLoader";
    let computed = call(&global("builtins", "str"), &[text("module")]);
    for (fields, is_followed) in [
        (vec![text("module"), loader.clone(), none(), none()], true),
        (vec![loader.clone(), none(), none()], true),
        (vec![loader.clone(), global("builtins", "print"), none()], true),
        (vec![computed, loader.clone(), none(), none()], false),
        (vec![b"C\x06module".to_vec(), loader.clone(), none(), none()], true),
        (vec![text("storage"), loader.clone(), none(), none()], false),
    ] {
        let scan = called(&fields);
        let is_found = scan.uses().any(|(_, found)| {
            found.global.to_string() == name && found.global.findings().contains(GlobalUseKind::Called)
        });
        assert_eq!(is_found, is_followed, "{fields:?}");
        assert_eq!(scan.findings.is_empty(), is_followed, "{fields:?}");
    }
}

#[test]
fn attributes_of_data_cannot_replace_methods() {
    // `Adam.__setstate__` calls `group.setdefault`.
    let group = |attribute: Vec<u8>| {
        build(&call(&global("collections", "OrderedDict"), &[]), &dict(&[("setdefault", attribute)]))
    };
    let adam = |group: Vec<u8>| {
        let groups = dict(&[("param_groups", list(&[group]))]);
        build(&new(&global("torch.optim.adam", "Adam"), &[]), &groups)
    };
    assert_eq!(worst(&adam(group(text("a")))), Risk::Known);
    let function = adam(group(global("torch.nn.functional", "relu")));
    assert_eq!(findings(&function, "torch.optim.adam.Adam"), [GlobalUseKind::StateHook]);
}

/// Returns `types.GenericAlias(function, int)`, whose call calls the function.
fn annotation(function: &str) -> Vec<u8> {
    let int = global("builtins", "int");
    call(&global("types", "GenericAlias"), &[global("torch.nn.functional", function), int])
}

#[test]
fn an_annotation_in_the_place_of_a_method_may_be_called() {
    let ordered = |method: Vec<u8>| {
        build(&call(&global("collections", "OrderedDict"), &[]), &dict(&[("keys", method)]))
    };
    let list = call(&global("operator", "getitem"), &[global("typing", "List"), global("builtins", "int")]);
    for method in [annotation("relu"), list.clone()] {
        let read = call(&global("builtins", "dict"), &[ordered(method.clone())]);
        assert_eq!(findings(&read, "builtins.dict"), [GlobalUseKind::Called]);
        // `io.BytesIO` closes itself when it goes away.
        let state = tuple(&[b"C\x01a".to_vec(), b"K\0".to_vec(), dict(&[("close", method)])]);
        let stream = build(&new(&global("io", "BytesIO"), &[]), &state);
        assert_eq!(findings(&stream, "io.BytesIO"), [GlobalUseKind::StateHook]);
    }
    // As data, it is a class.
    assert_eq!(worst(&call(&global("builtins", "set"), &[tuple(std::slice::from_ref(&list))])), Risk::Known);
    assert_eq!(findings(&call(&global("torch", "Size"), &[list]), "torch.Size"), [GlobalUseKind::Called]);
}

#[test]
fn the_factory_of_a_defaultdict_may_be_called() {
    // NumPy looks for keys.
    let read = |factory: Vec<u8>| {
        call(&global("numpy", "dtype"), &[call(&global("collections", "defaultdict"), &[factory])])
    };
    assert_eq!(worst(&read(global("builtins", "list"))), Risk::Known);
    assert_eq!(
        findings(&read(global("torch.nn.functional", "relu")), "numpy.dtype"),
        [GlobalUseKind::Called]
    );
    assert_eq!(findings(&read(annotation("relu")), "numpy.dtype"), [GlobalUseKind::Called]);
}

#[test]
fn attributes_that_a_function_sets_cannot_replace_methods() {
    let none = || b"N".to_vec();
    let function = || global("torch.nn.functional", "relu");
    let storage = [
        tuple(&[text("storage"), global("torch", "FloatStorage"), text("0"), text("cpu"), b"K\x01".to_vec()]),
        b"Q".to_vec(),
    ];
    let one = || b"K\x01\x85".to_vec();
    let tensor = [storage.concat(), b"K\0".to_vec(), one(), one(), b"\x89".to_vec(), b"}".to_vec()];
    let buffer = |state: Vec<u8>| {
        let made = [
            global("torch._utils", "_rebuild_tensor_v2"),
            global("torch.nn.parameter", "Buffer"),
            tuple(&tensor),
            state,
        ];
        call(&global("torch._tensor", "_rebuild_from_type_v2"), &made)
    };
    // `Parameter(data)` calls `data.detach()`.
    let parameter = |data: Vec<u8>| {
        call(&global("torch._utils", "_rebuild_parameter"), &[data, b"\x88".to_vec(), b"}".to_vec()])
    };
    let name = "torch._utils._rebuild_parameter";
    assert_eq!(worst(&buffer(dict(&[("detach", function())]))), Risk::Known);
    assert_eq!(worst(&parameter(buffer(dict(&[("a", text("b"))])))), Risk::Known);
    for state in [dict(&[("detach", function())]), tuple(&[none(), dict(&[("detach", annotation("relu"))])])]
    {
        assert_eq!(findings(&parameter(buffer(state)), name), [GlobalUseKind::Called]);
    }
    // `Tensor.__setstate__` calls `self.set_` with the items of a tuple of four.
    let four = || tuple(&[b"K\x01".to_vec(), b"K\x01".to_vec(), b"K\x01".to_vec(), b"K\x01".to_vec()]);
    let set = |method: Vec<u8>| build(&buffer(dict(&[("set_", method)])), &four());
    assert_eq!(worst(&set(text("a"))), Risk::Known);
    assert_eq!(findings(&set(function()), "torch.nn.parameter.Buffer"), [GlobalUseKind::StateHook]);
    // `_rebuild_from_type_v2` calls `as_subclass` of what the other function returned.
    let subclass = |method: Vec<u8>| {
        let plain = call(&global("torch._utils", "_rebuild_tensor_v2"), &tensor);
        let args = [plain, b"\x88".to_vec(), b"}".to_vec(), dict(&[("as_subclass", method)])];
        let made = [
            global("torch._utils", "_rebuild_parameter_with_state"),
            global("torch.nn.parameter", "Buffer"),
            tuple(&args),
            dict(&[]),
        ];
        call(&global("torch._tensor", "_rebuild_from_type_v2"), &made)
    };
    assert_eq!(worst(&subclass(text("a"))), Risk::Known);
    let name = "torch._tensor._rebuild_from_type_v2";
    assert_eq!(findings(&subclass(function()), name), [GlobalUseKind::Called]);
    // A function that makes something else would give attributes to it.
    let ordered = global("collections", "OrderedDict");
    let made = [ordered.clone(), ordered, tuple(&[]), dict(&[("keys", function())])];
    let made = call(&global("torch._tensor", "_rebuild_from_type_v2"), &made);
    assert_eq!(findings(&made, "torch._tensor._rebuild_from_type_v2"), [GlobalUseKind::Called]);
}

#[test]
fn flags_of_a_dtype_fit_its_code() {
    let dtype = |code: &str, flags: u8| {
        let made = call(&global("numpy", "dtype"), &[text(code), b"\x89".to_vec(), b"\x88".to_vec()]);
        let none = || b"N".to_vec();
        let size = || b"J\xff\xff\xff\xff".to_vec();
        let state = [b"K\x03".to_vec(), text("|"), none(), none(), none(), size(), size(), vec![b'K', flags]];
        build(&made, &tuple(&state))
    };
    for (code, flags, risk) in [
        ("O8", 63, Risk::Known),
        ("f4", 0, Risk::Known),
        ("O8", 0, Risk::Unreviewed),
        ("f4", 1, Risk::Unreviewed),
    ] {
        assert_eq!(worst(&dtype(code, flags)), risk, "{code} {flags}");
    }
}

#[test]
fn items_and_keys_are_uses() {
    let linear = || new(&global("torch.nn.modules.linear", "Linear"), &[]);
    let name = "torch.nn.modules.linear.Linear";
    assert_eq!(findings(&[linear(), b"(K\x01e".to_vec()].concat(), name), [GlobalUseKind::Appended]);
    assert_eq!(findings(&[linear(), b"K\x01K\x02s".to_vec()].concat(), name), [GlobalUseKind::ItemsSet]);
    let key = |key: Vec<u8>| [b"}".to_vec(), key, b"K\x02s".to_vec()].concat();
    assert_eq!(worst(&key(linear())), Risk::Known);
    let cookie = new(&global("http.cookies", "Morsel"), &[]);
    assert_eq!(findings(&key(cookie), "http.cookies.Morsel"), [GlobalUseKind::Hashed]);
    // Inside of a tuple, too.
    let node = tuple(&[new(&global("http.cookies", "Morsel"), &[])]);
    assert_eq!(findings(&key(node), "http.cookies.Morsel"), [GlobalUseKind::Hashed]);
}

#[test]
fn protocols_before_2_are_judged_by_class() {
    let reconstructor = global("copyreg", "_reconstructor");
    let object = || global("builtins", "object");
    let made = |class: Vec<u8>| call(&reconstructor, &[class, object(), b"N".to_vec()]);
    assert_eq!(worst(&made(global("torch.nn.modules.linear", "Linear"))), Risk::Known);
    assert!(worst(&made(graph())) >= Risk::Unreviewed);
    let state = dict(&[("a", b"N".to_vec())]);
    let built = build(&made(global("torch.nn.modules.linear", "Linear")), &state);
    assert_eq!(worst(&built), Risk::Known);
}

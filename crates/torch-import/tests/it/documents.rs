//! Scans of documents: what programs call, evaluate, unpickle or import because a document says so.
//!
//! Facts: the sources named in `src/scan/documents`; `tests/conformance/test_scan_documents.py` runs these attacks in the programs.

use std::sync::Arc;

use byte_source::{BufferSource, Source};
use test_support::{safetensors, stored_zip};
use torch_import::{DocumentKind, Risk, Scan, ScanDepth};

pub(crate) fn tar(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    for (name, data) in members {
        let mut header = tar::Header::new_gnu();
        header.set_size(data.len() as u64);
        tar.append_data(&mut header, name, *data).expect("memory takes it");
    }
    tar.into_inner().expect("memory takes it")
}

pub(crate) fn scan(bytes: Vec<u8>) -> Result<Scan, byte_source::Error> {
    Scan::source(&(Arc::new(BufferSource::new("a", bytes)) as Arc<dyn Source>), ScanDepth::Everything, &())
}

/// What was found, the worst first: `dangerous os.system`, `template`, `missed`, `unknown a.B` or `clean`.
pub(crate) fn worst(scan: &Scan) -> String {
    let uses = |risk: Risk| scan.uses().find(|(_, found)| found.risk == risk);
    let shown = |risk: Risk| uses(risk).map(|(_, found)| format!("{} {}", risk.name(), found.global));
    shown(Risk::Dangerous)
        .or_else(|| Some(scan.findings.first()?.kind.to_owned()))
        .or_else(|| (!scan.is_fully_read()).then(|| "missed".to_owned()))
        .or_else(|| shown(Risk::Unknown))
        .unwrap_or_else(|| "clean".to_owned())
}

/// Scans a document alone, in a zip and in a tar archive.
pub(crate) fn found(name: &str, text: &[u8]) -> String {
    let source = Arc::new(BufferSource::new(name, text.to_vec())) as Arc<dyn Source>;
    let kind = DocumentKind::of(name).expect("a document");
    let (alone, _) = Scan::document(&source, kind, &|_| false, &()).expect("it is read");
    let alone = worst(&alone);
    let archives = [stored_zip([(name, text)]), tar(&[(name, text)])];
    for archive in archives {
        assert_eq!(worst(&scan(archive).expect("an archive")), alone, "{name}: {}", text.escape_ascii());
    }
    alone
}

#[test]
fn callables_of_configurations_are_judged() {
    for (text, expected) in [
        (
            "encoder:\n  _target_: nemo.collections.asr.modules.ConformerEncoder\noptim: {_target_: torch.optim.AdamW}",
            "clean",
        ),
        ("_target_: os.system\n", "dangerous os.system"),
        ("{\"_target_\": \"builtins.exec\", a: 1}", "dangerous builtins.exec"),
        ("x: {_target_: 'subprocess.run'}", "dangerous subprocess.run"),
        ("_target_ : os.system # a", "dangerous os.system"),
        ("\"\\x5ftarget_\": \"os.sys\\u0074em\"", "dangerous os.system"),
        ("a: &x os.system\n_target_: *x", "dangerous os.system"),
        ("a: &x _target_\n*x : os.system", "dangerous os.system"),
        ("? _target_\n: >-\n  os.system", "dangerous os.system"),
        ("base: &b {_target_: os.system}\nmodel: {<<: *b}", "dangerous os.system"),
        ("a: 1\n---\n_target_: os.system", "dangerous os.system"),
        ("# \u{85}_target_: os.system", "missed"),
        ("_target_: ${oc.env:HOME}", "unknown ${oc.env:HOME}"),
        ("x: ${eval:'1'}", "unknown _target_.${eval:'1'}"),
        ("x: ${now:%Y} ${a.b}", "clean"),
        ("x: ${oc.create:'{a:1}'}", "unknown ${oc.create:'{a:1}'}"),
        ("_target_: mine.Model", "unknown mine.Model"),
        ("_target_: hydra.utils.get_method\npath: os.system", "dangerous hydra.utils.get_method"),
        ("class_path: os.system", "dangerous os.system"),
        ("target: ldm.models.Autoencoder", "unknown ldm.models.Autoencoder"),
        ("target: os.system", "dangerous os.system"),
        ("target: mine.build", "unknown mine.build"),
        ("type: mmdet.ResNet", "unknown mmdet.ResNet"),
        ("type: builtins.dict", "clean"),
        ("network_class_name: mine.build", "unknown mine.build"),
        ("any: [1, os.system]", "dangerous os.system"),
        ("any: os.system()", "clean"),
        ("any: code.py", "clean"),
        ("merges: [os.system]", "clean"),
        ("urls: ['pipe:cat a']", "unknown _target_.pipe:cat a"),
        ("download: 'import os; os.mkdir(1)'", "expression"),
        ("download: bash get.sh", "unknown bash get.sh"),
        ("download: https://example.com/a b.zip", "clean"),
        ("download: true", "clean"),
        ("megatron_core: megatron.core", "clean"),
        ("megatron_core: mine", "unknown _target_.mine"),
        ("x: \"$(lambda x: 1)(2)\"", "unknown _target_.$(lambda x: 1)(2)"),
        ("x: $ [f('x')]", "unknown _target_.$ [f('x')]"),
        ("x: $ import os", "unknown _target_.$ import os"),
        ("x: $5 (5 (f('x')))", "unknown _target_.$5 (5 (f('x')))"),
        ("x: $(a) + (b)", "clean"),
        ("x: !!python/object/apply:os.system ['x']", "tag"),
        ("%TAG !p! tag:yaml.org,2002:python/\n---\nx: !p!name:os.system", "tag"),
        ("x: !<tag:yaml.org,2002:pyth%6fn/name:os.system>", "tag"),
        ("x: !!python/tuple [1, !!int 2]", "clean"),
        ("x: !new:os.system {}", "dangerous os.system"),
        ("x: !mine 1", "missed"),
        ("x: !ref <a>\ny: !tuple (1, 2)", "clean"),
        ("x: !applyref:os.system ['x']", "dangerous os.system"),
        ("imports: [$import os]", "unknown _target_.$import os"),
        ("device: $torch.device('cpu')\nx: $5 and $x", "unknown $torch.device('cpu')"),
        ("x: $5 (each)", "clean"),
        ("a: [", "missed"),
        (
            "backbone:\n  - [-1, 1, Conv, [64, 3, nn.SiLU(), 'nearest']]\nactivation: torch.nn.LeakyReLU(0.1)",
            "clean",
        ),
        ("head: [[-1, 1, \"__import__('os').system('x')\", []]]", "expression"),
        ("backbone: [[-1, 1, Conv, [\"open ('x', 'w')\"]]]", "expression"),
        ("activation: nn.SiLU(exec('x'))", "expression"),
        ("activation: relu\nhead: {x: f(x)}\nneck: [f(x)]", "clean"),
        ("_instantiator: lightning.pytorch.cli.instantiate_module", "clean"),
        ("_instantiator: os.system", "dangerous os.system"),
        ("pipeline: {name: pyannote.audio.pipelines.SpeakerDiarization}", "clean"),
        ("pipeline: {name: mine.Pipeline}", "unknown mine.Pipeline"),
        ("preprocessors: {audio: {name: mine.Step, params: {a: 1}}}", "unknown mine.Step"),
        ("steps: {audio: {name: mine.Step}}", "clean"),
        ("runtime_info: {cfg: import os}", "missed"),
        ("tokenizer_kwargs: {trust_remote_code: True}", "missed"),
        ("transformer_config: {trust_remote_code: true}\nx: {trust_remote_code: false}", "missed"),
        ("type: mine.models.Net", "unknown mine.models.Net"),
        ("type: sentence_transformers.models.Pooling\nx: {type: torch.nn.Linear}", "clean"),
        ("target: antigravity.Fly", "dangerous antigravity.Fly"),
        ("x: 1\nclass_name: TFOpLambda\nconfig: {function: io.write_file}", "unknown io.write_file"),
        (
            "x: 1\nclass_name: TFOpLambda\nconfig: {function: math.add}\ny: {config: {function: cast}}",
            "clean",
        ),
        ("config: {function: py_function}", "unknown _target_.py_function"),
        ("config: {vocabulary: /etc/passwd}", "missed"),
        ("config: {vocabulary: [/, a]}", "clean"),
        ("_target_:\n  - _target_", "unknown _target_._target_"),
    ] {
        assert_eq!(found("model_config.yaml", text.as_bytes()), expected, "{text}");
    }
    assert_eq!(
        found("a.json", b"{\"a\": NaN, \"_target_\": \"os.system\", \"_target_\": \"a.B\"}"),
        "dangerous os.system"
    );
    assert_eq!(
        found("a.json", &[b"[".repeat(200), b"{\"_target_\": \"os.system\"}".to_vec()].concat()),
        "dangerous os.system"
    );
}

#[test]
fn what_python_evaluates_is_in_a_grammar() {
    let program = |key: &str, value: &str| {
        let text = format!(
            "{{\"graph_module\": {{\"graph\": {{\"nodes\": [{{{key:?}: {value:?}}}]}}}}, \"guards_code\": []}}"
        );
        found("archive/models/model.json", text.as_bytes())
    };
    assert_eq!(
        program("expr_str", "FloorDiv(Symbol('s77', positive=True, integer=True), Integer(2))"),
        "clean"
    );
    assert_eq!(program("expr_str", "__import__('os').system('x')"), "expression");
    assert_eq!(program("guards_code", "L['x'].size()[0] % 2 == 0"), "clean");
    assert_eq!(program("guards_code", "True, 'x') or print('x'"), "expression");
    assert_eq!(program("target", "torch.ops.aten.linear.default"), "clean");
    assert_eq!(program("target", "_operator.mul"), "clean");
    assert_eq!(program("target", "torch.ops.mine.f.default"), "unknown torch.ops.mine.f.default");
    assert_eq!(program("target", "torch.serialization.os.system"), "dangerous torch.serialization.os.system");
    let spec =
        "[1, {\"type\": \"x\", \"context\": {\"__enum__\": true, \"fqn\": \"os:system\", \"name\": \"x\"}}]";
    assert_eq!(program("in_spec", spec), "dangerous os.system");
}

#[test]
fn pickles_and_code_in_texts_are_found() {
    // `os.system("x")` as stable-baselines3 stores objects, with what Python skips.
    let pickle = "gAJjb3MKc3lzdGVtClgBAAAAeIVSLg==";
    for (text, expected) in [
        (
            format!("{{\"policy\": {{\":type:\": \"x\", \":serialized:\": \"{pickle}\"}}}}"),
            "dangerous os.system",
        ),
        (
            format!("{{\"policy\": {{\":serialized:\": \"*{}\"}}}}", pickle.replace("gAJj", "gA!Jj")),
            "dangerous os.system",
        ),
        (format!("[[\"{pickle}\"]]"), "dangerous os.system"),
        ("{\"policy\": {\":serialized:\": \"gAJ9Lg==\"}}".to_owned(), "clean"),
        ("{\"class_name\": \"Lambda\", \"config\": {}}".to_owned(), "lambda"),
        ("{\"module\": \"keras.layers\", \"class_name\": \"TorchModuleWrapper\"}".to_owned(), "lambda"),
        (
            "{\"module\": \"builtins\", \"class_name\": \"function\", \"config\": \"eval\"}".to_owned(),
            "dangerous builtins.eval",
        ),
        ("{\"module\": \"builtins\", \"class_name\": \"function\", \"config\": \"relu\"}".to_owned(), "clean"),
        ("{\"dtype\": \"|O\", \"filters\": [{\"id\": \"pickle\", \"protocol\": 5}]}".to_owned(), "missed"),
        ("{\"tokenizer_kwargs\": {\"trust_remote_code\": true}}".to_owned(), "missed"),
        ("{\"tokenizer_kwargs\": {\"trust_remote_code\": false}, \"trust_remote_code\": true}".to_owned(), "clean"),
        (
            "{\"module\": \"os\", \"class_name\": \"system\", \"config\": \"x\"}".to_owned(),
            "dangerous os.system",
        ),
        (
            "{\"module\": \"mine\", \"class_name\": \"Layer\", \"config\": {}}".to_owned(),
            "unknown mine.Layer",
        ),
        ("{\"module\": \"keras.layers\", \"class_name\": \"Dense\", \"config\": {}}".to_owned(), "clean"),
        ("{\"module\": \"os\", \"class_name\": \"system\"}".to_owned(), "clean"),
        ("{\"chat_template\": \"{{ x.__class__ }}\"}".to_owned(), "template"),
        (
            "{\"chat_template\": [{\"name\": \"a\", \"template\": \"{{ x['__class__'] }}\"}]}".to_owned(),
            "template",
        ),
        ("{\"chat_template\": \"{{ x }}\", \"other\": \"{{ x }} __class__\"}".to_owned(), "clean"),
        ("{\"template_format\": \"jinja2\", \"template\": \"{{ x.__class__ }}\"}".to_owned(), "template"),
        ("{\"session_options\": {\"custom_ops_library\": \"a.SO\"}}".to_owned(), "missed"),
        ("{\"model\": {\"handler\": \"handler.py:run\"}}".to_owned(), "missed"),
        ("{\"model\": {\"handler\": \"os:system\"}}".to_owned(), "dangerous os.system"),
        ("{\"attn_implementation\": \"sdpa\"}".to_owned(), "clean"),
        ("{\"attn_implementation\": \"a/kernels\"}".to_owned(), "unknown _target_.a/kernels"),
        ("{\"attn_implementation\": {\"vision_config\": \"a/kernels\"}}".to_owned(), "unknown _target_.a/kernels"),
        ("{\"parent_library\": \"mine\", \"base_model_class\": \"M\"}".to_owned(), "unknown mine.M"),
        (
            "{\"parent_library\": \"transformers.models.bert.modeling_bert\", \"base_model_class\": \"BertModel\"}".to_owned(),
            "clean",
        ),
        (
            "{\"__class__\": \"Popen\", \"__module__\": \"subprocess\", \"__loader__\": \"ObjectNode\"}".to_owned(),
            "dangerous subprocess.Popen",
        ),
        (
            "{\"__class__\": \"dict\", \"__module__\": \"builtins\", \"__loader__\": \"DictNode\"}".to_owned(),
            "clean",
        ),
        ("{\"model\": {\"handler\": \"image_classifier\"}}".to_owned(), "clean"),
        ("{\"py/reduce\": [{\"py/type\": \"mine.f\"}, {\"py/tuple\": []}]}".to_owned(), "unknown mine.f"),
        ("{\"py/object\": \"mine.C\", \"a\": 1}".to_owned(), "unknown mine.C"),
        ("{\"py/repr\": \"os/os.mkdir(1)\"}".to_owned(), "expression"),
        ("{\"weight_map\": {\"a\": \"../b/c.bin\"}}".to_owned(), "missed"),
        ("{\"weight_map\": {\"a\": \"/c.bin\"}}".to_owned(), "missed"),
        ("{\"weight_map\": {\"a\": \"b/c.bin\"}, \"x\": \"../b\"}".to_owned(), "clean"),
        ("{\"a\": [\"antigravity\", \"fly\"], \"_class_name\": \"P\"}".to_owned(), "dangerous antigravity.fly"),
        ("{\"a\": [\"transformers\", \"CLIPTextModel\"], \"_class_name\": \"P\"}".to_owned(), "clean"),
        ("{\"a\": [\"antigravity\", \"fly\"]}".to_owned(), "clean"),
    ] {
        assert_eq!(found("config.json", text.as_bytes()), expected, "{text}");
    }
    let model =
        |text: &str| found("MLmodel", format!("flavors:\n  python_function:\n    {text}\n").as_bytes());
    assert_eq!(model("loader_module: mlflow.sklearn"), "clean");
    assert_eq!(model("loader_module: mine"), "unknown mine._load_pyfunc");
    assert_eq!(model("code: code"), "missed");
    assert_eq!(model("model_code_path: agent.py"), "missed");
    assert_eq!(found("pickle_module_info.txt", b"mlflow.pytorch.pickle_module\n"), "clean");
    assert_eq!(found("pickle_module_info.txt", b"mine\n"), "unknown mine._load_pyfunc");
    assert_eq!(found("chat_template.jinja", b"{{ x|attr('__class__') }}"), "template");
    // stable-baselines3 gives its document no extension.
    for start in ["", "\u{feff}", "["] {
        let data = format!("{start}{{\"a\": {{\":serialized:\": \"{pickle}\"}}}}");
        let archive = stored_zip([("data", data.as_bytes())]);
        assert_eq!(worst(&scan(archive).expect("an archive")), "dangerous os.system", "{start:?}");
    }
}

#[test]
fn texts_of_pickles_are_judged_as_those_of_documents() {
    let text = |text: &str| {
        [b"X", &u32::try_from(text.len()).expect("it is short").to_le_bytes()[..], text.as_bytes()].concat()
    };
    let dict = |key: &str, value: Vec<u8>| [b"}".to_vec(), text(key), value, b"s".to_vec()].concat();
    let list = |items: Vec<u8>| [b"](".to_vec(), items, b"e".to_vec()].concat();
    let ordered = |key: &str, value: &str| {
        [
            b"ccollections\nOrderedDict\n]]".to_vec(),
            text(key),
            b"a".to_vec(),
            text(value),
            b"aa\x85R".to_vec(),
        ]
        .concat()
    };
    for (program, expected) in [
        (dict("hyper_parameters", dict("_instantiator", text("os.system"))), "dangerous os.system"),
        (dict("a", dict("_target_", text("subprocess.Popen"))), "dangerous subprocess.Popen"),
        (dict("a", dict("_target_", text("torch.optim.AdamW"))), "clean"),
        (ordered("_target_", "os.system"), "dangerous os.system"),
        (
            [b"ccollections\nOrderedDict\n)R".to_vec(), text("_target_"), text("os.system"), b"s".to_vec()]
                .concat(),
            "dangerous os.system",
        ),
        (dict("activation", text("print(1)")), "pickle"),
        (dict("activation", text("nn.SiLU()")), "clean"),
        (dict("head", list(list([text("Conv"), list(text("exec('x')"))].concat()))), "pickle"),
        (dict("head", dict("weight", text("f('x')"))), "clean"),
        (dict("a", text("exec('x')")), "pickle"),
        (dict("a", text("Call exec('x').")), "clean"),
        (dict("a", text("return getattr(x, y)")), "clean"),
        (dict("runtime_info", dict("cfg", text("import os"))), "missed"),
        (dict("meta", dict("config", text("model = dict(type='A')"))), "missed"),
        (dict("meta", dict("cfg", text("import os"))), "missed"),
        (dict("meta", dict("config", text("configs/a_b-1.py"))), "clean"),
        (dict("runtime_info", dict("iter", b"K\x01".to_vec())), "clean"),
        (dict("model", dict("conv_feature_layers", text("[(512, 10, 5)] + [(512, 3, 2)] * 4"))), "clean"),
        (dict("model", dict("conv_feature_layers", text("[f(512)] * 4"))), "pickle"),
        (dict("adam_betas", text("(0.9, 0.98)")), "clean"),
        (dict("architecture", dict("module", text("mine.model"))), "unknown mine.model"),
        (dict("architecture", dict("module", text("pyannote.audio.models.segmentation.PyanNet"))), "clean"),
        (dict("architecture", text("resnet50")), "clean"),
        (dict("a", text("[__import__('os').system('x')]")), "pickle"),
        (dict("a", text("().__class__.__base__.__subclasses__()")), "pickle"),
        (dict("a", text("`__import__` of Python")), "clean"),
    ] {
        let pickle = [b"\x80\x02".to_vec(), program, b".".to_vec()].concat();
        assert_eq!(worst(&scan(pickle.clone()).expect("a pickle")), expected, "{}", pickle.escape_ascii());
        let archive = stored_zip([("a/data.pkl", &pickle[..]), ("a/version", b"3\n")]);
        assert_eq!(worst(&scan(archive).expect("an archive")), expected, "{}", pickle.escape_ascii());
    }
}

#[test]
fn tensors_that_are_unpickled_are_scanned() {
    let pickle = b"\x80\x02cos\nsystem\nX\x01\0\0\0x\x85R.";
    let len = pickle.len();
    for (name, bytes, expected) in [
        ("a._extra_state", &pickle[..], "dangerous os.system"),
        ("a.\\u005fextra_state", pickle, "dangerous os.system"),
        ("a._extra_state", b"\x80\x02}.", "clean"),
        ("a._extra_state", b"\0\x01\x02\x03", "clean"),
        ("a.weight", pickle, "clean"),
    ] {
        let file = safetensors([("b", "U8", [0].as_slice(), &[][..]), (name, "U8", &[bytes.len()], bytes)]);
        assert_eq!(worst(&scan(file).expect("a checkpoint")), expected, "{name}");
    }
    // Files in memory: pickles without a protocol.
    for inner in [&b"cos\nsystem\n(X\x01\0\0\0xtR."[..], b"(X\x01\0\0\0xios\nsystem\n."] {
        let len = u32::try_from(inner.len()).expect("it is short").to_le_bytes();
        let state = [b"\x80\x03c_io\nBytesIO\n)\x81(B", &len[..], inner, b"K\0Ntb."].concat();
        assert_eq!(worst(&scan(state).expect("a pickle")), "dangerous os.system", "{}", inner.escape_ascii());
        let text: String = inner.iter().map(|byte| char::from(*byte)).collect();
        let len = u32::try_from(text.len()).expect("it is short").to_le_bytes();
        let encoded =
            [b"\x80\x02c_codecs\nencode\nX", &len[..], text.as_bytes(), b"X\x06\0\0\0latin1\x86R."].concat();
        assert_eq!(
            worst(&scan(encoded).expect("a pickle")),
            "dangerous os.system",
            "{}",
            inner.escape_ascii()
        );
    }
    // A view in the middle of its storage.
    let storage = [&[0; 3], &pickle[..], &[0; 5]].concat();
    let program = |name: &str| {
        let number = |number: usize| [b'K', u8::try_from(number).expect("it is short")];
        [
            b"\x80\x02}X",
            &u32::try_from(name.len()).expect("it is short").to_le_bytes()[..],
            name.as_bytes(),
            b"ctorch._utils\n_rebuild_tensor_v2\n((X\x07\0\0\0storagectorch\nByteStorage\nX\x01\0\0\x000X\x03\0\0\0cpu",
            &number(storage.len()),
            b"tQ",
            &number(3),
            &number(len),
            b"\x85K\x01\x85\x89ccollections\nOrderedDict\n)RtRs.",
        ]
        .concat()
    };
    for (name, expected) in [("a._extra_state", "dangerous os.system"), ("a.weight", "clean")] {
        let archive =
            stored_zip([("a/data.pkl", &program(name)[..]), ("a/data/0", &storage), ("a/version", b"3\n")]);
        assert_eq!(worst(&scan(archive).expect("an archive")), expected, "{name}");
    }
}

#[test]
fn code_in_the_archive_of_a_document_is_named() {
    let config: (&str, &[u8]) = ("m/config.json", b"{\"auto_map\": {\"AutoModel\": \"modeling.X\"}}");
    for (code, is_named) in [("m/modeling.py", true), ("n/modeling.py", false)] {
        let found = scan(tar(&[config, (code, b"pass")])).expect("an archive");
        assert_eq!(found.uses().any(|(_, it)| it.global.to_string() == "modeling.X"), is_named, "{code}");
        // What nothing names is not read, either, and pickles of a zip archive may name its code, too.
        for found in [found, scan(stored_zip([config, (code, b"pass")])).expect("an archive")] {
            assert_eq!(worst(&found), "missed", "{code}");
        }
    }
    let manifest: (&str, &[u8]) =
        ("MAR-INF/MANIFEST.json", b"{\"model\": {\"handler\": \"image_classifier\"}}");
    assert_eq!(worst(&scan(stored_zip([manifest, ("model.py", b"pass")])).expect("an archive")), "missed");
}

#[test]
fn weights_of_an_exported_program_that_pytorch_unpickles_are_scanned() {
    let call = b"cos\nsystem\n(Vx\ntR.\xff\xff\xff";
    let numbers = [0, 0, 0x80, 0x3f].repeat(200);
    for (start, expected) in [
        (&call[..], "dangerous os.system"),
        (&call[..call.len() - 4], "dangerous os.system"),
        (b"}.\xff\xff", "clean"),
        (b"", "clean"),
    ] {
        let weight = [start, &numbers].concat();
        let archive = stored_zip([
            ("m/archive_format", &b"pt2"[..]),
            ("m/a.json", b"{}"),
            ("m/data/weights/weight_0", &weight),
        ]);
        assert_eq!(worst(&scan(archive).expect("an archive")), expected, "{}", start.escape_ascii());
    }
    let hidden = tar(&[("storages", call)]);
    let archive = stored_zip([
        ("m/archive_format", &b"pt2"[..]),
        ("m/a.json", b"{}"),
        ("m/data/constants/tensor_0", &hidden),
    ]);
    assert_eq!(worst(&scan(archive).expect("an archive")), "dangerous os.system");
}

/// jsonargparse reads JSON as YAML, and maps have any keys in YAML.
#[test]
fn what_only_readers_of_yaml_accept_is_read() {
    for (name, text, expected) in [
        ("a.json", "{class_path: os.system}", "dangerous os.system"),
        ("a.json", "# a\nclass_path: os.system\n", "dangerous os.system"),
        ("a.json", "{\"a\": 1}\n{\"_target_\": \"os.system\"}\n", "dangerous os.system"),
        ("a.json", "{\"a\": 1}\n{\"b\": 2}\n", "clean"),
        ("a.json", "{\"a\": 1", "missed"),
        ("a.yaml", "? [a]\n: b\n_target_: os.system\n", "dangerous os.system"),
        ("a.yaml", "? {a: b}\n: {c: d}\n_target_: mine.C\n", "unknown mine.C"),
        ("a.yaml", "x: &x [a]\n*x : b\n_target_: os.system\n", "dangerous os.system"),
    ] {
        assert_eq!(found(name, text.as_bytes()), expected, "{text}");
    }
}

#[test]
fn an_archive_of_other_files_is_no_checkpoint() {
    for archive in [stored_zip([("a.txt", &b"text"[..])]), tar(&[("a.png", b"\x89PNG\r\n")])] {
        let error = scan(archive).expect_err("nothing is scanned");
        assert!(error.to_string().contains("an archive in which nothing is a model"), "{error}");
    }
    let array = b"\x93NUMPY\x01\0\x39\0{'descr': '<f4', 'fortran_order': False, 'shape': (0,), }";
    assert_eq!(worst(&scan(stored_zip([("a.npy", &array[..])])).expect("an archive")), "clean");
    let keras: (&str, &[u8]) = ("config.json", b"{\"class_name\": \"Sequential\"}");
    assert_eq!(
        worst(&scan(stored_zip([keras, ("model.weights.h5", b"\x89HDF\r\n")])).expect("an archive")),
        "missed"
    );
}

//! Scans of texts whose key or whose name does not say what a program makes of them.
//!
//! Facts: the sources named in `src/scan/documents`; `tests/conformance/test_scan_programs.py` runs these attacks in the programs.

use std::sync::Arc;

use byte_source::{BufferSource, Source};
use test_support::stored_zip;
use torch_import::{DocumentKind, Scan};

use crate::documents::{found, scan, tar, worst};

/// Trainers keep names of modules and classes in TOML.
#[test]
fn toml_is_judged() {
    for (text, expected) in [
        ("[a]\nb = [1, 2.5, true, 1979-05-27]\nc = {d = 'x'}\n", "clean"),
        ("[a]\n\"_t\\u0061rget_\" = \"\"\"\\\n  os.system\"\"\"\n", "dangerous os.system"),
        ("a = [{b = 'os.system'}]", "dangerous os.system"),
        ("a = {model = 'a/b', trust_remote_code = true}", "missed"),
        ("a =", "missed"),
    ] {
        assert_eq!(found("config.toml", text.as_bytes()), expected, "{text}");
    }
}

/// Texts under other names are read as what they are, and lines of tables and logs are evaluated by some programs.
#[test]
fn texts_without_a_format_are_judged() {
    for (name, text, expected) in [
        ("model.opt", "{\"model\": \"subprocess:Popen\"}", "dangerous subprocess.Popen"),
        ("model.opt", "{model: os.system, other: {}}", "dangerous os.system"),
        ("notes.txt", "{os.system is dangerous\n- ]", "clean"),
        ("config", "a: !!python/name:os.system ''", "tag"),
        ("notes.txt", "[!!python/name:os.system", "tag"),
        ("notes.txt", "a: [\n!!python/name:os.system", "missed"),
        ("table.csv", "1,\"exec('x')\"", "expression"),
        ("train.log", "1\tINFO\t{'a': exec('x')}", "expression"),
        ("train.log", "epoch 1 (loss 2): exec('x') was called", "clean"),
        ("template.txt", "{{ x.__class__ }}", "template"),
        ("train.py", "exec('x')", "clean"),
        ("README.md", "`exec('x')`", "clean"),
    ] {
        let kind = DocumentKind::of_text(name, text.as_bytes());
        let source = Arc::new(BufferSource::new(name, text.as_bytes().to_vec())) as Arc<dyn Source>;
        let alone = kind.map(|kind| Scan::document(&source, kind, &|_| false, &()).expect("it is read").0);
        assert_eq!(alone.map_or_else(|| "clean".to_owned(), |scan| worst(&scan)), expected, "{text}");
        let pickle = ("a.pkl", &b"\x80\x02}."[..]);
        for archive in
            [stored_zip([(name, text.as_bytes()), pickle]), tar(&[(name, text.as_bytes()), pickle])]
        {
            let found = worst(&scan(archive).expect("an archive"));
            // Code in an archive is reported.
            let expected = if name == "train.py" { "missed" } else { expected };
            assert_eq!(found, expected, "{name}: {text}");
        }
    }
}

/// Programs of which nothing is known may call, evaluate, import or unpickle what a text says.
#[test]
fn texts_of_other_programs_are_judged() {
    for (text, expected) in [
        ("any: os:system", "dangerous os.system"),
        ("any: 'path:os.system'", "dangerous path.os.system"),
        ("any: torch.hub.load", "dangerous torch.hub.load"),
        ("any: 'a:b'", "clean"),
        ("task_cls: mine.Task", "unknown mine.Task"),
        ("tokenizer_class: LlamaTokenizer", "clean"),
        ("any: mine.Task", "clean"),
        ("{module: os, name: system}", "dangerous os.system"),
        ("{module: mine, name: build}", "clean"),
        ("{module: mine, name: build, kwargs: {}}", "unknown mine.build"),
        ("{type: pyref, module: mine, name: build}", "unknown mine.build"),
        ("{type: pyref, module: builtins, name: dict}", "clean"),
        ("{'@module': mine, '@class': Model}", "unknown mine.Model"),
        ("'@class': com.mine.Model", "unknown com.mine.Model"),
        ("_attn_implementation_internal: a/kernel", "unknown _target_.a/kernel"),
        ("exec('x'): {}", "expression"),
        ("any: exec('x')", "expression"),
        ("any: Call exec('x') at your own risk", "clean"),
        ("vocab: {exec('x'): 1}", "clean"),
        ("any: \"import os\\nx = 1\"", "missed"),
        ("stats: gunzip -c a.gz |", "unknown gunzip -c a.gz |"),
        ("pad: '|'\nsep: 'a|b'", "clean"),
        ("{trust_remote_code: true}", "clean"),
        ("{model: a/b, trust_remote_code: true}", "unknown _target_.a/b"),
        ("{model: a/b, trust_remote_code: no}", "clean"),
        ("allow_remote: true", "missed"),
        ("plugins: [https://example.com/a.whl]", "unknown https://example.com/a.whl"),
        ("custom_imports: {imports: [mine]}", "unknown _target_.mine"),
        ("class_name: TFSMLayer", "lambda"),
        ("op: _Native", "missed"),
        ("library: libmine.so.1", "missed"),
        ("x: gA", "clean"),
        ("x: 'bytes:gASVDgAAAAAAAACMAm9zlIwGc3lzdGVtlJMu'", "dangerous os.system"),
        ("x: '80048c026f738c0673797374656d932e'", "dangerous os.system"),
    ] {
        assert_eq!(found("settings.yaml", text.as_bytes()), expected, "{text}");
    }
}

#[test]
fn the_templates_of_gguf_are_read() {
    let text = |text: &str| [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat();
    let entry = |key: &str, kind: u32, value: &[u8]| [&text(key)[..], &kind.to_le_bytes(), value].concat();
    let file = |template: &str, count: u64| {
        let array = [&8_u32.to_le_bytes()[..], &2_u64.to_le_bytes(), &text("a"), &text("b")].concat();
        let numbers = [&4_u32.to_le_bytes()[..], &3_u64.to_le_bytes(), &[0; 12]].concat();
        let entries = [
            entry("general.architecture", 8, &text("llama")),
            entry("tokenizer.ggml.tokens", 9, &array),
            entry("tokenizer.ggml.types", 9, &numbers),
            entry("general.bool", 7, &[1]),
            entry("tokenizer.chat_template.tool", 8, &text(template)),
        ];
        [b"GGUF", &3_u32.to_le_bytes()[..], &0_u64.to_le_bytes(), &count.to_le_bytes(), &entries.concat()]
            .concat()
    };
    assert_eq!(found("a.gguf", &file("{{ x.__class__ }}", 5)), "template");
    assert_eq!(found("a.gguf", &file("{{ x }}", 5)), "clean");
    assert_eq!(found("a.gguf", &file("{{ x }}", 6)), "missed");
    assert_eq!(found("a.gguf", b"GGUF\x01\0\0\0"), "missed");
    // Under any name.
    assert_eq!(worst(&scan(file("{{ x.__class__ }}", 5)).expect("a model")), "template");
    assert_eq!(worst(&scan(file("{{ x }}", 5)).expect("a model")), "clean");
}

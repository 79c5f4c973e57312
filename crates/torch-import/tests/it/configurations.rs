//! Scans of configurations in other notations than JSON and YAML, and of documents that were compressed.

use std::io::Write;

use crate::documents::found;

/// spaCy's sections, and the text of protocol buffers, which Caffe and Triton read.
#[test]
fn sections_and_protocol_buffers_are_judged() {
    for (text, expected) in [
        ("[nlp]\nlang = \"en\"\npipeline = [\"ner\"]\n\n[components.ner]\nfactory = \"ner\"\n", "clean"),
        ("[a.transformer_config]\ntrust_remote_code = true\n", "missed"),
        ("[a]\ntransformer_config = {\"x_kwargs\": {\"trust_remote_code\": true}}\n", "missed"),
        ("# a = {\n[a]\n_target_: os.system\n", "dangerous os.system"),
        ("[a]\nx_kwargs = {\"a\": 1,\n\n  # b\n  \"trust_remote_code\": true}\n", "missed"),
        ("[a]\nx = {\"a\": ${b.c}}\ny = ${b.c}\n", "missed"),
        ("[a]\n  b = c\n  _target_ = os.system\n", "dangerous os.system"),
    ] {
        assert_eq!(found("spacy.cfg", text.as_bytes()), expected, "{text}");
    }
    for (text, expected) in [
        ("name: \"net\"\nlayer { name: 'a' type: \"ReLU\" bottom: \"x\" }\ninput_dim: 1\n", "clean"),
        ("layer { python_param { module: 'm' \"ine\" layer: \"L\" } }", "unknown _target_.mine"),
        ("layer <hdf5_output_param: {file_name: \"a\"}>", "writes"),
        (
            "dims: [1, -1, 2.5e+3] x { a: 1 } [e.x]: 1 # }\nlayer { python_param { module: '\\x6d\\151ne' } }",
            "unknown _target_.mine",
        ),
        ("parameters { key: \"EXECUTION_ENV_PATH\" value { string_value: \"a.tar.gz\" } }", "missed"),
        ("dims: [ {a: 1}, {python_param: {module: \"mine\"}} ] }}}", "unknown _target_.mine"),
        ("a: 'no end", "clean"),
    ] {
        assert_eq!(found("a.prototxt", text.as_bytes()), expected, "{text}");
    }
}

/// HOCON, in which values may be put together from others.
#[test]
fn hocon_is_judged_if_it_means_what_it_says() {
    for (text, expected) in [
        ("model { hidden = 512, layers = [1, 2, 3] }\n# a comment\nname = a b // another\n", "clean"),
        ("{\"a\": {\"b\": [1, {\"c\": \"d\"}]}, url = \"http://a/b\"}\n", "clean"),
        ("model {\n  _target_ = os.system\n}\n", "dangerous os.system"),
        ("model._target_ = \"os.system\"", "dangerous os.system"),
        ("model.\"_target_\" : os\".system\"\n", "dangerous os.system"),
        ("model = [{}, {_target_: os.system # a\n}]", "dangerous os.system"),
        ("a.b.c { _target_ = \"\"\"os.system\"\"\" }, b = 1", "dangerous os.system"),
        ("model\n// a\n{ \"_target_\"\n:\nos.system }", "dangerous os.system"),
        ("include \"weights.dat\"\n", "missed"),
        ("a { include url(\"http://a/b\") }\n", "missed"),
        ("INCLUDE required(file(\"a\"))\n", "missed"),
        ("a = os\n_target_ = ${a}.system\n", "missed"),
        ("a = {b: 1} {c: 2}\n", "missed"),
        ("a = [1] ${?b}\n", "missed"),
        ("a = o\\s.system\n", "missed"),
        ("a = \"\\u006fs.system\"\n", "missed"),
        ("a = {}\n} b = 1", "missed"),
        // Files of other programs with this extension.
        ("--use-energy=false # a\n--num-mel-bins=40\n", "clean"),
        ("server {\n  listen 80;\n  include mime.types;\n}\n", "clean"),
    ] {
        for name in ["a.conf", "b.hocon"] {
            assert_eq!(found(name, text.as_bytes()), expected, "{text}");
        }
    }
}

/// The name before the extension of a compression says what is inside.
#[test]
fn compressed_documents_are_read() {
    let gzip = |text: &str| {
        let mut made = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        made.write_all(text.as_bytes()).expect("memory takes it");
        made.finish().expect("memory takes it")
    };
    for (name, text, expected) in [
        ("a.pbtxt.gz", "node { op: \"WriteFile\" }", "missed"),
        ("a.pbtxt.gz", "name: \"a\"", "clean"),
        ("a.yaml.gz", "_target_: os.system", "dangerous os.system"),
        ("a.yaml", "_target_: os.system", "dangerous os.system"),
    ] {
        assert_eq!(found(name, &gzip(text)), expected, "{text}");
    }
    assert_eq!(found("a.json.bz2", b"BZh91AY&SY\0\x01\x02"), "missed");
}

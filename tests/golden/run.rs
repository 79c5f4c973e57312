//! What `run` prints, and what it refuses with which text.

use std::path::Path;

use serde_json::{Value, json};

use crate::carton_tools::{ok, run, scratch, write};
use crate::cli::output;

/// A carton `x.carton` of the README's small model in `root`, with these files in misc/.
fn model(root: &Path, misc: &[(&str, &str)]) {
    test_support::tiny_llama::write(root).expect("a temporary folder");
    let mut args = vec!["consolidated.00.pth", "-q", "--force", "-o", "x.carton"];
    for (name, text) in misc {
        write(root.join("misc").join(name), text);
    }
    let paths: Vec<String> = misc.iter().map(|(name, _)| format!("misc/{name}")).collect();
    args.extend(paths.iter().flat_map(|path| ["--misc", path.as_str()]));
    ok(root, &args);
}

/// Unpacks `x.carton` into `x` and changes a file there.
fn changed(root: &Path, file: &str, change: impl FnOnce(String) -> String) {
    ok(root, &["unpack", "x.carton", "-q", "-o", "x", "--force"]);
    std::fs::remove_file(root.join("x/MANIFEST")).expect("it was unpacked");
    let text = std::fs::read_to_string(root.join("x").join(file)).unwrap_or_default();
    write(root.join("x").join(file), change(text));
}

/// The text that a run prints, without what depends on the machine: times, and the digits of differences.
fn without_times(text: &str) -> String {
    let mut out = String::new();
    for part in text.split_inclusive([' ', '\n']) {
        let (word, end) = part.split_at(part.len().saturating_sub(1));
        let is_number = word.trim_start_matches('(').starts_with(|c: char| c.is_ascii_digit())
            && word.contains(['.', 'e']);
        out.push_str(if is_number { "N" } else { word });
        out.push_str(end);
    }
    out
}

/// Appends the transcript of a command that must fail, after a line with `what` it tests.
fn refused(texts: &mut String, root: &Path, what: &str, args: &[&str]) {
    let (status, text) = run(root, args);
    assert!(matches!(status, Some(1 | 2)), "{what}: {text}");
    assert!(!text.contains("panicked"), "{what}: {text}");
    texts.extend(["--- ", what, "\n", &text]);
}

#[test]
fn cartons_that_do_not_run() {
    let (scratch, mut texts) = (scratch(), String::new());
    let root = scratch.path();
    let mut tokens = |what: &str| refused(&mut texts, root, what, &["run", "x", "--tokens", "1,2"]);
    model(root, &[]);
    changed(root, "carton.toml", |text| text.replace("\"torchscript\"", "\"python\""));
    tokens("another runner");
    changed(root, "carton.toml", |text| text + "[runner.opts]\nnum_threads = 0\n");
    tokens("no threads");
    changed(root, "carton.toml", |text| text.replacen("\"last_only\"", "\"first_only\"", 1));
    tokens("an input that the model does not have");
    changed(root, "carton.toml", |text| text.replacen("\"present_key\"", "\"presents\"", 1));
    tokens("an output that the model does not have");
    changed(root, "carton.toml", |text| text.replacen("\"int64\"", "\"int7\"", 1));
    tokens("a document that does not follow the specification");
    ok(
        root,
        &["shrink", "x.carton", "-q", "--base", "https://example.org", "--blobs", "b", "-o", "small.carton"],
    );
    refused(&mut texts, root, "a model elsewhere", &["run", "small.carton", "--tokens", "1"]);
    ok(root, &["unpack", "small.carton", "-q", "-o", "parts"]);
    refused(&mut texts, root, "a model elsewhere, unpacked", &["run", "parts", "--tokens", "1"]);
    refused(&mut texts, root, "no file", &["run", "none.carton", "--tokens", "1"]);
    // The length stays, so that only a hash is wrong.
    let mut bytes = std::fs::read(root.join("x.carton")).expect("it was made");
    let at = bytes
        .windows(8)
        .position(|it| it == b"batches ")
        .or_else(|| bytes.windows(4).position(|it| it == b"\"dim").map(|at| at.saturating_add(1)));
    let at = at.expect("params.json is stored");
    *bytes.get_mut(at).expect("in the file") ^= 1;
    write(root.join("damaged.carton"), bytes);
    refused(&mut texts, root, "a damaged carton", &["run", "damaged.carton", "--tokens", "1", "--verify"]);
    ok(root, &["consolidated.00.pth", "-q", "--arch", "weights", "-o", "w.carton"]);
    refused(&mut texts, root, "tokens for weights", &["run", "w.carton", "--tokens", "1"]);
    refused(&mut texts, root, "no such tensor", &["run", "w.carton", "--get", "w", "-o", "w.npy"]);
    let other = ["run", "other", "--tokens", "1"];
    ok(root, &["unpack", "x.carton", "-q", "-o", "other"]);
    let path = root.join("other/model/model.pt");
    let mut bytes = std::fs::read(&path).expect("it was unpacked");
    let at = bytes.windows(7).position(|it| it == b"rsqrt_(").expect("the code is stored");
    // Another function with the same checksum would be found, too: the zip file is only damaged here.
    bytes.get_mut(at).map(|byte| *byte ^= 1).expect("in the file");
    write(path, bytes);
    std::fs::remove_file(root.join("other/MANIFEST")).expect("it was unpacked");
    refused(&mut texts, root, "other code", &other);
    insta::assert_snapshot!("run-cartons", texts);
}

#[test]
fn tokens_texts_and_numbers_that_are_refused() {
    let (scratch, mut texts) = (scratch(), String::new());
    let root = scratch.path();
    model(root, &[]);
    let mut case = |what: &str, args: &[&str]| {
        refused(&mut texts, root, what, &[&["run", "x.carton"], args].concat());
    };
    case("an array of another format", &["--get", "norm.weight", "-o", "a.txt"]);
    case("a text and tokens", &["a", "--tokens", "1"]);
    case("a token that the model does not know", &["--tokens", "1,256"]);
    case("no number", &["--tokens", "1,x"]);
    case("a text without a tokenizer", &["Once"]);
    case("no temperature", &["--tokens", "1", "--temperature=-1"]);
    case("a sum of probabilities above 1", &["--tokens", "1", "--temperature", "1", "--top-p", "1.5"]);
    case("a sum without a temperature", &["--tokens", "1", "--top-p", "0.5"]);
    case("an output without a tensor", &["--tokens", "1", "-o", "x.npy"]);
    case("no candidates", &["--tokens", "1", "--top", "0"]);
    insta::assert_snapshot!("run-refused", texts);
}

#[test]
fn tokenizers_that_are_refused() {
    let (scratch, mut texts) = (scratch(), String::new());
    let root = scratch.path();
    let doubling = json!({"type": "Replace", "pattern": {"String": "a"}, "content": "aa"});
    let file = |change: &dyn Fn(&mut Value)| {
        let mut file = json!({
            "version": "1.0", "added_tokens": [], "normalizer": null, "pre_tokenizer": null, "post_processor": null,
            "decoder": null, "model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}
        });
        change(&mut file);
        file.to_string()
    };
    for (what, name, text) in [
        ("a SentencePiece model that is cut off", "tokenizer.model", "\n\u{e}\n\u{5}<unk>".to_owned()),
        ("a vocabulary alone", "vocab.json", "{}".to_owned()),
        ("not JSON", "tokenizer.json", "{".to_owned()),
        (
            "a decoder that makes the library panic",
            "tokenizer.json",
            file(&|file| file["decoder"] = json!(7)),
        ),
        (
            "a text that doubles 60 times",
            "tokenizer.json",
            file(&|file| {
                file["normalizer"] = json!({"type": "Sequence", "normalizers": vec![doubling.clone(); 60]});
            }),
        ),
        (
            "a text of 1 MB before each text",
            "tokenizer.json",
            file(&|file| file["normalizer"] = json!({"type": "Prepend", "prepend": "a".repeat(1 << 20)})),
        ),
        (
            "5000 components",
            "tokenizer.json",
            file(&|file| {
                let digits = json!({"type": "Digits", "individual_digits": true});
                file["pre_tokenizer"] = json!({"type": "Sequence", "pretokenizers": vec![digits; 5000]});
            }),
        ),
        (
            "a token of 5000 bytes",
            "tokenizer.json",
            file(&|file| file["model"]["vocab"] = json!({"a".repeat(5000): 0})),
        ),
        (
            "a decoder that fails on tokens",
            "tokenizer.json",
            file(&|file| file["decoder"] = json!({"type": "Strip", "content": "a", "start": 0, "stop": 9})),
        ),
        ("ranks with a hole", "tokenizer.model", "IQ== 0\nIg== 2\n".to_owned()),
    ] {
        model(root, &[(name, &text)]);
        refused(&mut texts, root, what, &["run", "x.carton", "a", "--max-tokens", "1"]);
    }

    model(
        root,
        &[("tokenizer.json", &file(&|_| ())), ("generation_config.json", "{\"eos_token_id\": \"x\"}")],
    );
    refused(&mut texts, root, "stop tokens that are not numbers", &["run", "x.carton", "a"]);
    let split = |pattern: &str| {
        let split =
            json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false});
        file(&|file| file["pre_tokenizer"] = split.clone())
    };
    model(root, &[("tokenizer.json", &split(r"(a)\1"))]);
    refused(&mut texts, root, "a pattern with a back reference", &["run", "x.carton", "a"]);
    model(root, &[("tokenizer.json", &split("(?<=a)a(?=a*$)"))]);
    refused(
        &mut texts,
        root,
        "a pattern that reads the text for each letter",
        &["run", "x.carton", &"a".repeat(20_000)],
    );
    let huge = " ".repeat(65 << 20);
    model(root, &[("tokenizer.json", &huge)]);
    refused(&mut texts, root, "a file of 65 MiB", &["run", "x.carton", "a"]);
    // Which panic it is depends on the build.
    let (before, after) = texts.split_once("`tokenizer.json` failed: ").expect("one failed");
    let (_, after) = after.split_once('\n').expect("an exit status follows");
    insta::assert_snapshot!("run-tokenizers", format!("{before}`tokenizer.json` failed: PANIC\n{after}"));
}

#[test]
fn results_are_printed() {
    let (scratch, mut texts) = (scratch(), String::new());
    let root = scratch.path();
    model(root, &[]);
    for args in [
        &["run", "x.carton", "--tokens", "1,2", "--top", "1"][..],
        &["run", "x.carton", "--tokens", "1,2", "--max-tokens", "1"],
        &["run", "x.carton", "--get", "norm.weight", "-o", "norm.npy"],
    ] {
        texts.extend(["--- ", &args.join(" "), "\n", &without_times(&ok(root, args))]);
    }
    insta::assert_snapshot!("run-results", texts);
    let (status, text) = run(root, &["run", "x.carton", "--self-test"]);
    assert_eq!(status, Some(1), "{text}");
    assert!(text.contains("x.carton: it has no self tests; `convert --self-test` stores one"), "{text}");
}

#[test]
fn a_text_longer_than_the_context_is_noted() {
    let scratch = scratch();
    let root = scratch.path();
    model(root, &[("config.json", r#"{"max_position_embeddings": 4}"#)]);
    let text = |args: &[&str]| {
        let (status, _, text) = output(root, &[&["run", "x.carton"], args].concat());
        assert_eq!(status, Some(0), "{text}");
        text
    };
    let long = "note: the text has 5 tokens, and the model was made for at most 4: what follows may be meaningless\n";
    assert!(text(&["--tokens", "1,2,3,4,5"]).starts_with(long));
    assert!(text(&["--tokens", "1,2,3,4,5", "-n", "2"]).starts_with(long));
    let both = "note: the text and its continuation have 6 tokens, and the model was made for at most 4: the end may be \
                meaningless; -n limits the continuation\n";
    assert!(text(&["--tokens", "1,2,3", "-n", "3"]).contains(both));
    for args in
        [&["--tokens", "1,2,3,4"][..], &["--tokens", "1,2", "-n", "2"], &["-q", "--tokens", "1,2,3,4,5"]]
    {
        assert!(!text(args).contains("made for"), "{args:?}");
    }
    let json = ok(root, &["run", "x.carton", "--json", "--tokens", "1,2,3,4,5"]);
    assert!(json.contains(r#""context":4,"#), "{json}");
}

#[test]
fn self_tests_are_printed() {
    let (scratch, mut texts) = (scratch(), String::new());
    let root = scratch.path();
    model(root, &[]);
    let case = |name: &str, tokens: &str, expected: &str| {
        let expected = if expected.is_empty() {
            String::new()
        } else {
            format!("expected_out = {{ logits = \"@tensor_data/{expected}\" }}\n")
        };
        format!(
            "[[self_test]]\nname = \"{name}\"\ninputs = {{ tokens = \"@tensor_data/{tokens}\" }}\n{expected}"
        )
    };
    let inputs =
        |name: &str, inputs: &str| format!("[[self_test]]\nname = \"{name}\"\ninputs = {{ {inputs} }}\n");
    let cases = [
        case("nothing expected", "tokens", ""),
        case("another shape", "tokens", "short"),
        case("other numbers", "tokens", "zeros"),
        case("strings", "tokens", "words"),
        case("ragged", "ragged", "zeros"),
        case("tokens that are words", "words", "zeros"),
        inputs("an unknown input", "ids = \"@tensor_data/tokens\""),
        inputs("three dimensions", "tokens = \"@tensor_data/cube\""),
        inputs("two batches", "tokens = \"@tensor_data/tokens\", past_key = \"@tensor_data/two\""),
        inputs("keys alone", "tokens = \"@tensor_data/tokens\", past_key = \"@tensor_data/past\""),
    ];
    changed(root, "carton.toml", |text| text + &cases.concat());
    let tensor = |name: &str, dtype: &str, shape: &str, file: &str| {
        format!(
            "[[tensor]]\nname = \"{name}\"\ndtype = \"{dtype}\"\nshape = {shape}\nfile = \"{file}\"\ninner = []\n"
        )
    };
    let nested = "[[tensor]]\nname = \"ragged\"\ndtype = \"nested\"\ninner = [\"tokens\", \"one\"]\n";
    let index = [
        tensor("tokens", "int64", "[1, 2]", "tokens.bin"),
        tensor("one", "int64", "[1]", "one.bin"),
        tensor("short", "float32", "[1, 1]", "short.bin"),
        tensor("zeros", "float32", "[1, 2, 256]", "zeros.bin"),
        tensor("words", "string", "[2]", "words.toml"),
        tensor("cube", "int64", "[1, 1, 1]", "one.bin"),
        tensor("two", "float32", "[2, 2, 1, 4, 16]", "two.bin"),
        tensor("past", "float32", "[2, 1, 1, 4, 16]", "past.bin"),
        nested.to_owned(),
    ];
    let folder = root.join("x/tensor_data");
    write(folder.join("tokens.bin"), [1_i64, 2].map(i64::to_le_bytes).concat());
    write(folder.join("one.bin"), 3_i64.to_le_bytes());
    write(folder.join("short.bin"), [0; 4]);
    write(folder.join("zeros.bin"), [0; 2048]);
    write(folder.join("two.bin"), [0; 1024]);
    write(folder.join("past.bin"), [0; 512]);
    write(folder.join("words.toml"), "data = [\"a\", \"b\"]\n");
    write(folder.join("index.toml"), index.concat());
    let (status, text) = run(root, &["run", "x", "--self-test"]);
    assert_eq!(status, Some(1), "{text}");
    texts.push_str(&without_times(&text));
    insta::assert_snapshot!("run-self-tests", texts);
}

#[test]
fn a_dtype_that_numpy_lacks_is_refused() {
    let scratch = scratch();
    let root = scratch.path();
    write(root.join("f4.safetensors"), test_support::safetensors([("w", "F4", [2], [7])]));
    ok(root, &["f4.safetensors", "-q", "--torch", "newest", "-o", "f4.carton"]);
    let mut texts = String::new();
    refused(&mut texts, root, "pairs of 4-bit floats", &["run", "f4.carton", "--get", "w", "-o", "w.npy"]);
    insta::assert_snapshot!("run-npy", texts);
}

/// A tokenizer of words.
const WORDS: &str = r#"{"version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
    "pre_tokenizer": {"type": "Whitespace"}, "post_processor": null, "decoder": null,
    "model": {"type": "WordLevel", "vocab": {"[UNK]": 0, "a": 1, "b": 2}, "unk_token": "[UNK]"}}"#;

#[test]
fn a_chat_template_and_an_end_at_once_are_noted() {
    let scratch = scratch();
    let root = scratch.path();
    let text = |args: &[&str]| output(root, &[&["run", "x.carton", "a b"], args].concat()).2;
    let template = "note: the model has a chat template, which is not applied: the text is continued as it is; \
         `torch2carton chat` applies it\n";
    model(root, &[("tokenizer.json", WORDS)]);
    assert!(!text(&["-n", "1"]).contains("note"), "{}", text(&["-n", "1"]));
    let top: Value =
        serde_json::from_str(&ok(root, &["run", "x.carton", "a b", "--top", "1", "--json"])).expect("JSON");
    let top = &top["candidates"][0]["id"];
    let ends = json!({ "eos_token_id": top }).to_string();
    for (name, document) in
        [("chat_template.jinja", "{{ messages }}"), ("tokenizer_config.json", r#"{"chat_template": "x"}"#)]
    {
        model(root, &[("tokenizer.json", WORDS), (name, document), ("generation_config.json", &ends)]);
        let printed = text(&[]);
        assert!(printed.starts_with(template), "{printed}");
        assert!(printed.contains(&format!("note: the first token is {top}")), "{printed}");
        assert!(printed.contains("which ends a text, so there is no continuation\n"), "{printed}");
        assert!(!text(&["-q"]).contains("note"), "{}", text(&["-q"]));
    }
}

/// A `SentencePiece` model of these pieces: texts, scores and types.
fn sentencepiece_model(pieces: &[(&str, f32, u8)]) -> Vec<u8> {
    let mut model = Vec::new();
    for (text, score, kind) in pieces {
        let len = u8::try_from(text.len()).expect("a short text");
        let piece = [&[10, len], text.as_bytes(), &[21], &score.to_le_bytes(), &[24, *kind]].concat();
        model.extend([10, u8::try_from(piece.len()).expect("a short piece")]);
        model.extend(piece);
    }
    // Byte-pair encoding.
    model.extend([18, 2, 24, 2]);
    model
}

#[test]
fn a_sentencepiece_model_is_a_tokenizer() {
    let scratch = scratch();
    let root = scratch.path();
    test_support::tiny_llama::write(root).expect("a temporary folder");
    let pieces = [
        ("<unk>", 0.0, 2),
        ("<s>", 0.0, 3),
        ("</s>", 0.0, 3),
        ("▁a", -1.0, 1),
        ("bc", -2.0, 1),
        ("a", -3.0, 1),
        ("b", -4.0, 1),
        ("c", -5.0, 1),
        ("▁", -6.0, 1),
        ("<x>", 0.0, 4),
    ];
    write(root.join("tokenizer.model"), sentencepiece_model(&pieces));
    ok(root, &["consolidated.00.pth", "-q", "-o", "x.carton"]);
    let prompt = |text: &str, arguments: &[&str]| {
        let report =
            ok(root, &[&["run", "--json", "-n", "1", "x.carton"], arguments, &["--", text]].concat());
        serde_json::from_str::<Value>(&report).expect("JSON")["prompt_tokens"].clone()
    };
    assert_eq!(prompt(" abc  a", &[]), json!([1, 3, 4, 3]));
    assert_eq!(prompt("<x>z<s>", &[]), json!([1, 8, 9, 0]), "a control piece in a text is a text");
    write(
        root.join("tokenizer_config.json"),
        r#"{"add_bos_token": false, "added_tokens_decoder": {"20": {"content": "bb"}}}"#,
    );
    ok(root, &["consolidated.00.pth", "-q", "--force", "-o", "x.carton"]);
    assert_eq!(prompt("abba", &[]), json!([3, 20, 3]));
}

#[test]
fn checkpoints_run_in_place() {
    let scratch = scratch();
    let root = scratch.path();
    model(root, &[]);
    let stdout = |file: &str| {
        let (status, stdout, stderr) = output(root, &["run", file, "--tokens", "1,2", "-n", "5"]);
        assert_eq!(status, Some(0), "{stderr}");
        stdout
    };
    let wanted = stdout("x.carton");
    assert_eq!(stdout("consolidated.00.pth"), wanted);
    std::fs::create_dir(root.join("folder")).expect("a temporary folder");
    for name in ["consolidated.00.pth", "params.json"] {
        std::fs::rename(root.join(name), root.join("folder").join(name)).expect("it was written");
    }
    assert_eq!(stdout("folder"), wanted);
    assert_eq!(std::fs::read_dir(root.join("folder")).expect("a folder").count(), 2);
    std::fs::remove_file(root.join("folder/params.json")).expect("it was written");
    let (status, text) = run(root, &["run", "folder", "--tokens", "1"]);
    assert_eq!(status, Some(1), "{text}");
    assert!(text.contains("params.json"), "{text}");
}

#[test]
fn quantized_weights_run_in_place() {
    let scratch = scratch();
    let root = scratch.path();
    model(root, &[]);
    ok(root, &["consolidated.00.pth", "-q", "--names", "hf", "-o", "hf/"]);
    let listed: Value = serde_json::from_str(&ok(root, &["inspect", "--json", "hf"])).expect("JSON");
    let mut tensors = Vec::new();
    for row in listed["tensors"].as_array().expect("rows") {
        let name = row["name"].as_str().expect("a name").to_owned();
        let shape: Vec<usize> = row["shape"]
            .as_array()
            .expect("a shape")
            .iter()
            .map(|it| it.as_u64().and_then(|size| usize::try_from(size).ok()).expect("a size"))
            .collect();
        let count: usize = shape.iter().product();
        let codes = (0_u8..=0xbf).step_by(5).cycle().take(count);
        if name.ends_with("proj.weight") {
            let scales: Vec<usize> = shape.iter().map(|size| size.div_ceil(128)).collect();
            let scale = 0.03_f32.to_le_bytes().repeat(scales.iter().product());
            tensors.push((name.clone() + "_scale_inv", "F32", scales, scale));
            tensors.push((name, "F8_E4M3", shape, codes.collect()));
        } else {
            // The upper half of a number from 0.5 to 1.
            let bytes = codes.flat_map(|code| [code, 0x3f]).collect();
            tensors.push((name, "BF16", shape, bytes));
        }
    }
    let tensors = tensors.iter().map(|(name, dtype, shape, bytes)| (name, *dtype, shape, bytes.clone()));
    write(root.join("hf/model.safetensors"), test_support::safetensors(tensors));
    let mut config: Value =
        serde_json::from_str(&std::fs::read_to_string(root.join("hf/config.json")).expect("it was written"))
            .expect("JSON");
    config["quantization_config"] = json!({"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128]});
    write(root.join("hf/config.json"), config.to_string());
    ok(root, &["hf", "-q", "--dequantize", "--to", "safetensors", "-o", "numbers/"]);
    let stdout = |file: &str| {
        let (status, stdout, stderr) = output(root, &["run", file, "--tokens", "1,2", "-n", "9"]);
        assert_eq!(status, Some(0), "{stderr}");
        stdout
    };
    assert_eq!(stdout("hf"), stdout("numbers"));
}

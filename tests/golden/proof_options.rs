//! Each option of `convert` is in the statement of a conversion that has it, and the conversion is repeated with it.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value as Json;

use crate::carton_tools::{ok, run, scratch, write};
use crate::dequantize::model;
use crate::layouts::{LLAVA, make};
use crate::made::{Value, dict, tensor, write_pth, write_safetensors};
use crate::program::folder;
use crate::self_tests::llama;

/// Options on which no byte of an output depends, or that the statement has in another form.
const LEFT_OUT: &str = "allow-http cache checksum color dry-run each files-from force help jobs json no-clobber no-sync offline \
                        output quiet results resume statement timeout to";

/// Conversions: the input and its options, and the output. The options of each line are those that the statement has.
const CONVERSIONS: [(&str, &str); 38] = [
    ("tiny --to safetensors --max-shard-size 20KB", "tiny-out/"),
    ("tiny --digest --torch newest --n-heads 2 --rope-theta 10000 --norm-eps 0.00001", "x.carton"),
    ("llama --rope-factor 8 --arch llama", "x.carton"),
    ("a.pth --single --ties duplicate", "x.safetensors"),
    ("tiny --incomplete --exclude *k_proj*", "x.pth"),
    ("tiny --pre-tokenizer llama-bpe --dtype q8_0", "x.gguf"),
    ("tiny --to gguf --pre-tokenizer llama-bpe --split-max-size 20KB", "split/"),
    ("b.pth --key w --keep-values", "x.safetensors"),
    ("tiny --name x --license MIT --misc a.pth", "x.carton"),
    ("tiny --description x --short-description y", "x.carton"),
    ("tiny --repository https://example.org/a --homepage https://example.org", "x.carton"),
    ("tiny --config c.toml", "x.carton"),
    ("b.pth --key w --no-values", "x.carton"),
    ("tiny --arch weights", "x.carton"),
    ("tiny --require-model", "x.carton"),
    ("tiny --keep-extra", "x.carton"),
    ("tiny --errors raise", "x.carton"),
    ("tiny --self-test", "x.carton"),
    ("float16.pt --input x=float32[batch,4] --output-type output=float32[batch,4]", "x.carton"),
    ("float16.pt --input x=float32[batch,4] --output-names y", "x.carton"),
    ("weights.pt --no-wrap", "x.carton"),
    ("a.pth --include w", "x.pth"),
    ("a.pth --strip-prefix m.", "x.pth"),
    ("a.pth --rename ^w=v", "x.pth"),
    ("tiny --names meta", "named/"),
    ("two --part text", "part/"),
    ("lost --complete-from tiny", "x.safetensors"),
    ("tiny --dtype float16", "x.pth"),
    ("tiny --cast float32=float16", "x.pth"),
    ("quantized --dequantize", "x.safetensors"),
    ("tiny --merge lora=0.5", "x.pth"),
    ("tiny --add lost=0.5 --common", "x.pth"),
    ("tiny --average lost --common", "x.pth"),
    ("a.pth --deny-unknown", "x.pth"),
    ("a.pth --allow-dangerous", "x.pth"),
    ("a.pth --max-expansion 3", "x.pth"),
    ("tiny --to triton --name y", "models"),
    ("float16.pt --to triton --input x=float16[4] --output-type output=float16[4]", "models"),
];

const CONFIG: &str = r#"{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 32, "vocab_size": 64,
    "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 2, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
    "max_position_embeddings": 64, "tie_word_embeddings": false}"#;

/// A decoder with a tokenizer, its parts, an adapter, and other small inputs.
fn write_inputs(root: &Path) {
    llama(root);
    make(root, "bytes", CONFIG, |_| true);
    ok(root, &["bytes", "--cast", "uint8=float32", "--to", "safetensors", "-o", "tiny"]);
    ok(root, &["tiny", "--exclude", "*norm*", "--incomplete", "--to", "safetensors", "-o", "lost"]);
    make(root, "two", LLAVA, |_| true);
    let vocab: Vec<String> =
        ('!'..).take(64).zip(0..).map(|(c, id)| format!("{}:{id}", Json::from(c.to_string()))).collect();
    let tokenizer = format!(
        r#"{{"version": "1.0", "added_tokens": [], "pre_tokenizer": {{"type": "ByteLevel", "add_prefix_space": false}},
            "decoder": {{"type": "ByteLevel"}}, "model": {{"type": "BPE", "vocab": {{{}}}, "merges": []}}}}"#,
        vocab.join(",")
    );
    write(root.join("tiny/tokenizer.json"), tokenizer);
    let low_rank = [("lora_A", [4, 32]), ("lora_B", [32, 4])].map(|(name, shape)| {
        (format!("base_model.model.model.layers.0.self_attn.q_proj.{name}.weight"), shape)
    });
    let low_rank = low_rank.each_ref().map(|(name, shape)| (name.as_str(), &shape[..]));
    write_safetensors(&root.join("bytes.safetensors"), &[], &low_rank);
    ok(root, &["bytes.safetensors", "--cast", "uint8=float32", "-o", "lora/adapter_model.safetensors"]);
    write(root.join("lora/adapter_config.json"), r#"{"peft_type": "LORA", "r": 4, "lora_alpha": 8}"#);
    write_pth(&root.join("a.pth"), &dict(&[("m.v", tensor(2)), ("w", tensor(3))]));
    write_pth(&root.join("b.pth"), &dict(&[("w", dict(&[("a", tensor(2))])), ("epoch", Value::Int(3))]));
    write(root.join("c.toml"), "short_description = \"x\"\n");
    let written = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/model/torchscript/tests/written");
    for (name, from) in [("float16.pt", folder().join("scripts")), ("weights.pt", written)] {
        std::fs::copy(from.join(name), root.join(name)).expect("it is checked in");
    }
    for file in ["config.json", "model.safetensors"] {
        let bytes = std::fs::read(model("gptq_2_v1").join(file)).expect("it is checked in");
        write(root.join("quantized").join(file), bytes);
    }
}

/// Names of the options in the help.
fn options(root: &Path) -> BTreeSet<String> {
    let help = ok(root, &["convert", "--help"]);
    // The text of an option is further to the right.
    let named = help.lines().filter_map(|line| line.split_once("--")).filter(|(before, _)| before.len() == 6);
    named.filter_map(|(_, rest)| rest.split(' ').next()).map(str::to_owned).collect()
}

#[test]
fn each_option_is_in_the_statement_and_repeated() {
    let scratch = scratch();
    let root = scratch.path();
    write_inputs(root);
    let mut seen: BTreeSet<String> = LEFT_OUT.split_whitespace().map(str::to_owned).collect();
    for (line, output) in CONVERSIONS {
        let words: Vec<&str> = line.split(' ').collect();
        let made = ["-o", output, "--statement", "s.json", "--force", "-q"];
        ok(root, &[&words[..], &made].concat());
        let text = std::fs::read_to_string(root.join("s.json")).expect("it was written");
        let json: Json = serde_json::from_str(&text).expect("JSON");
        let parameters = &json["predicate"]["buildDefinition"]["externalParameters"];
        for option in words.iter().filter_map(|word| word.strip_prefix("--")) {
            assert!(
                parameters.get(option.replace('-', "_")).is_some(),
                "{line}: {option} is not in {parameters}"
            );
            seen.insert(option.to_owned());
        }
        let output = output.trim_end_matches('/');
        let (status, text) = run(root, &["verify", "--statement", "s.json", "--input", ".", output]);
        assert_eq!(status, Some(0), "{line}: {text}");
    }
    assert_eq!(seen, options(root));
}

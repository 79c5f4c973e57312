//! Notes and summaries: what a person should know about a conversion, once and only if it matters.

use std::path::Path;

use crate::carton_tools::{ok, run, scratch, write};
use crate::cli::{json, one_tensor};
use crate::made::{Value, dict, tensor, write_pth, write_safetensors};
use crate::program::folder;

#[test]
fn a_model_can_be_required() {
    let scratch = scratch();
    let root = scratch.path();
    one_tensor(root);
    let (status, text) = run(root, &["a.pth", "--require-model"]);
    assert_eq!(status, Some(1), "{text}");
    assert_eq!(
        text.lines().next(),
        Some(
            "error: a.pth: it is not a model that runs: no known architecture; without --require-model its tensors are converted"
        )
    );
    assert!(!root.join("a.carton").exists());
    let input = folder().join("checkpoints/llama_tiny").display().to_string();
    ok(root, &[&input, "--require-model", "-q", "-o", "x.carton"]);
    let (status, text) = run(root, &[&input, "--require-model", "--arch", "weights", "-o", "y.carton"]);
    assert_eq!(status, Some(1), "{text}");
    assert!(text.contains("weights were asked for"), "{text}");
}

#[test]
fn an_architecture_without_a_forward_is_named() {
    let scratch = scratch();
    let root = scratch.path();
    write_safetensors(&root.join("t5/model.safetensors"), &[], &[("shared.weight", &[2, 2])]);
    write(root.join("t5/config.json"), r#"{"model_type": "t5"}"#);
    let text = ok(root, &["t5"]);
    let first = text.lines().next().unwrap_or_default();
    let none = "docs/models.md lists the decoders that have one";
    assert_eq!(first, format!("note: no forward for t5: the carton returns its tensors; {none}"));
    assert!(root.join("t5.carton").exists());
    let (status, text) = run(root, &["t5", "--require-model", "-o", "no.carton"]);
    assert_eq!(status, Some(1), "{text}");
    assert!(text.contains("no forward for") && text.contains("t5"), "{text}");
    assert!(!root.join("no.carton").exists());
    // Those of the same family are named, which is not a matter of letters.
    write(root.join("t5/config.json"), r#"{"model_type": "gpt9"}"#);
    assert!(
        ok(root, &["t5"]).contains(&format!("no forward for gpt9: the carton returns its tensors; {none}"))
    );
    write(root.join("t5/config.json"), r#"{"model_type": "gemma9"}"#);
    let text = ok(root, &["t5"]);
    assert!(
        text.contains("of its family, gemma, gemma2, gemma3_text have one (docs/models.md lists all)"),
        "{text}"
    );
    // A kind of block that is missing is named, and what keeps the tensors.
    write(root.join("t5/config.json"), r#"{"model_type": "lfm2"}"#);
    let needs = "lfm2 needs short convolutions, which decoders do not have yet";
    let text = ok(root, &["t5"]);
    assert!(text.starts_with(&format!("note: {needs}: the carton returns its tensors\n")), "{text}");
    let (status, text) = run(root, &["t5", "--require-model", "-o", "no.carton"]);
    let advice = "-o NAME.safetensors or --arch weights keeps its tensors";
    assert_eq!((status, text.contains(&format!("{needs}; {advice}"))), (Some(1), true), "{text}");
    // What was asked for is not noted.
    let text = ok(root, &["t5", "--arch", "weights"]);
    assert!(!text.contains("no forward"), "{text}");
}

#[test]
fn the_error_for_quantized_weights_names_the_method() {
    let scratch = scratch();
    let root = scratch.path();
    let tensors: &[(&str, &[u64])] = &[("model.layers.0.self_attn.q_proj.qweight", &[2, 2])];
    write_safetensors(&root.join("q/model.safetensors"), &[], tensors);
    let config = r#"{"model_type": "llama", "quantization_config": {"quant_method": "gptq", "bits": 4}}"#;
    write(root.join("q/config.json"), config);
    let (status, text) = run(root, &["q"]);
    assert_eq!(status, Some(1), "{text}");
    let error = "error: q/config.json: the weights are quantized with `gptq` (4 bits), expected float32, float16, bfloat16 or \
                 float64 in a model that runs; --dequantize computes the numbers that they stand for, and --arch weights \
                 converts the tensors without a forward\n";
    assert!(text.starts_with(error), "{text}");
    ok(root, &["q", "--arch", "weights", "-q"]);
}

#[test]
fn an_adapter_alone_is_refused_with_the_command_that_merges_it() {
    let scratch = scratch();
    let root = scratch.path();
    let name = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight";
    write_safetensors(&root.join("lora/adapter_model.safetensors"), &[], &[(name, &[2, 2])]);
    let document = r#"{"base_model_name_or_path": "base", "peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": ["v_proj", "q_proj"]}"#;
    write(root.join("lora/adapter_config.json"), document);
    for output in [&["lora"][..], &["lora/adapter_model.safetensors", "-o", "x.pth"]] {
        let (status, text) = run(root, output);
        assert_eq!(status, Some(1), "{text}");
        let input = output.first().expect("an input");
        let expected = format!(
            "error: {input}: this is an adapter for base, and not a model; `torch2carton BASE --merge {input}` merges it into \
             its model, whose path is BASE"
        );
        assert!(text.starts_with(&expected), "{text}");
    }
    assert!(!root.join("lora.carton").exists() && !root.join("x.pth").exists());
    for input in ["lora", "lora/adapter_model.safetensors"] {
        let text = ok(root, &["inspect", input]);
        let expected = "adapter: LORA; rank 2; alpha 4; base base; targets q_proj, v_proj\n";
        assert!(text.ends_with(expected), "{text}");
    }
    let report = json(root, &["inspect", "lora", "--json"]);
    let expected = r#"{"base":"base","method":"LORA","rank":2,"alpha":4.0,"targets":["q_proj","v_proj"]}"#;
    assert_eq!(report["adapter"].to_string(), expected);
}

/// The lines that begin with `note:`.
fn notes(text: &str) -> Vec<&str> {
    text.lines().filter(|line| line.starts_with("note:")).collect()
}

#[test]
fn an_escape_in_a_name_is_noted() {
    let scratch = scratch();
    let root = scratch.path();
    // `{'\ud800': 1}`, protocol 2.
    write(root.join("a.pkl"), b"\x80\x02}X\x03\0\0\0\xed\xa0\x80K\x01s.");
    let text = ok(root, &["inspect", "--all", "a.pkl"]);
    let note = r"1 key has a lone surrogate, which UTF-8 cannot represent: names have an escape, such as `\ud800`, instead";
    assert!(text.starts_with("no tensors\n\n\\ud800  int  1\n"), "{text}");
    assert!(text.ends_with(&format!("\nnote        {note}\n")), "{text}");
    // A text with the characters of an escape has no surrogate.
    write(root.join("a.pkl"), b"\x80\x02}X\x06\0\0\0\\ud800K\x01s.");
    assert!(!ok(root, &["inspect", "--all", "a.pkl"]).contains("surrogate"));
}

#[test]
fn a_note_about_every_shard_is_one_line() {
    let scratch = scratch();
    let root = scratch.path();
    // Archives without checksums take other names without complaint.
    let plain = std::fs::read(folder().join("checkpoints/crc_zero.pth")).expect("it is checked in");
    for number in 1..=4_u8 {
        let mut shard = plain.clone();
        for name in [b'w', b'n', b'z'] {
            let at = shard.windows(6).position(|bytes| bytes == [b'X', 1, 0, 0, 0, name]).expect("a name");
            shard[at + 5] = name.to_ascii_uppercase() - 4 * (name % 2) - number;
        }
        write(root.join(format!("set/model-0000{number}-of-00004.pth")), shard);
    }
    let text = ok(root, &["set", "--arch", "weights"]);
    assert_eq!(
        notes(&text),
        [
            "note: model-00001-of-00004.pth and 3 more files: the archive has no checksums: damage would go unnoticed"
        ],
        "{text}"
    );
    let text = ok(root, &["inspect", "set"]);
    assert_eq!(text.matches("no checksums").count(), 1, "{text}");
}

#[test]
fn a_second_form_of_a_checkpoint_is_mentioned() {
    let scratch = scratch();
    let root = scratch.path();
    let mut map = Vec::new();
    for number in 1..=2 {
        let (file, tensor) = (format!("model-0000{number}-of-00002.safetensors"), format!("w{number}"));
        write_safetensors(&root.join("set").join(&file), &[("format", "pt")], &[(&tensor, &[1])]);
        map.push(format!("\"{tensor}\": \"{file}\""));
    }
    let index = format!("{{\"weight_map\": {{{}}}}}", map.join(", "));
    write(root.join("set/model.safetensors.index.json"), index);
    write_safetensors(&root.join("set/consolidated.safetensors"), &[], &[("other", &[1])]);
    let note = "using model.safetensors.index.json, not consolidated.safetensors";
    let text = ok(root, &["set", "--arch", "weights"]);
    assert_eq!(notes(&text), [format!("note: {note}")], "{text}");
    assert!(text.contains("returns w1, w2\n"), "{text}");
    let text = ok(root, &["inspect", "set"]);
    assert!(text.contains(note), "{text}");
}

/// Three shards of a training checkpoint, each with a part of the model and the same number.
fn training_shards(folder: &Path, extension: &str) {
    for number in 1..=3 {
        let name = format!("w{number}");
        let root = dict(&[("model", dict(&[(name.as_str(), tensor(4))])), ("epoch", Value::Int(1))]);
        write_pth(&folder.join(format!("a-0000{number}-of-00003.{extension}")), &root);
    }
}

#[test]
fn no_tensor_of_a_sharded_training_checkpoint_is_said_to_be_left_out() {
    let scratch = scratch();
    let root = scratch.path();
    for extension in ["pth", "bin"] {
        training_shards(&root.join(extension), extension);
        let text = ok(root, &[extension]);
        assert!(!text.contains("left out"), "{text}");
        assert!(text.contains("tensors   3, 12 parameters"), "{text}");
        let key: Vec<_> = notes(&text).into_iter().filter(|note| note.contains("key `model`")).collect();
        assert_eq!(key, ["note: using key `model` (3 tensors)"], "{text}");
        // The values of the other shards are one note, not one for each.
        assert_eq!(notes(&text).len(), 3, "{text}");
        assert!(text.contains("misc      checkpoint.json"), "{text}");
    }
}

#[test]
fn values_in_misc_are_listed() {
    let scratch = scratch();
    let root = scratch.path();
    write_pth(&root.join("a.pth"), &dict(&[("w", tensor(1)), ("epoch", Value::Int(1))]));
    let text = ok(root, &["a.pth"]);
    assert!(
        text.contains("note: 1 value is kept in misc/checkpoint.json (--no-values leaves it out)\n"),
        "{text}"
    );
    assert!(text.contains("  misc      checkpoint.json\n"), "{text}");
    let listing = ok(root, &["inspect", "a.carton"]);
    assert!(listing.contains("misc/checkpoint.json"), "{listing}");
    let text = ok(root, &["a.pth", "--no-values"]);
    assert!(notes(&text).is_empty() && !text.contains("  misc"), "{text}");
}

#[test]
fn metadata_that_says_nothing_is_silent() {
    let scratch = scratch();
    let root = scratch.path();
    write_safetensors(&root.join("a.safetensors"), &[("format", "pt")], &[("w", &[1])]);
    let text = ok(root, &["a.safetensors"]);
    assert!(notes(&text).is_empty() && !text.contains("  misc"), "{text}");
    assert!(!ok(root, &["inspect", "a.carton"]).contains("checkpoint.json"));
    for number in 1..=3 {
        let (file, tensor) = (format!("set/model-0000{number}-of-00003.safetensors"), format!("w{number}"));
        write_safetensors(&root.join(file), &[("format", "pt")], &[(&tensor, &[1])]);
    }
    let text = ok(root, &["set", "--arch", "weights"]);
    assert!(notes(&text).is_empty() && !text.contains("  misc"), "{text}");
    // Anything else is kept.
    write_safetensors(&root.join("b.safetensors"), &[("format", "pt"), ("step", "9")], &[("w", &[1])]);
    assert!(ok(root, &["b.safetensors"]).contains("  misc      checkpoint.json\n"));
    write_safetensors(&root.join("c.safetensors"), &[("format", "tf")], &[("w", &[1])]);
    assert!(ok(root, &["c.safetensors"]).contains("  misc      checkpoint.json\n"));
}

#[test]
fn one_of_a_thing_is_singular() {
    let scratch = scratch();
    let root = scratch.path();
    one_tensor(root);
    let text = ok(root, &["a.pth"]);
    assert!(text.contains("tensors   1, 1 parameter\n"), "{text}");
    let text = ok(root, &["verify", "a.carton", "--against", "a.pth"]);
    assert!(text.contains("1 tensor equal bit for bit"), "{text}");
    let text = ok(root, &["scan", "a.pth"]);
    assert!(text.contains("1 pickle,"), "{text}");
}

#[test]
fn one_of_a_thing_is_singular_in_notes_and_errors() {
    let scratch = scratch();
    let root = scratch.path();
    let one = || dict(&[("w", tensor(1))]);
    write_pth(&root.join("a.pth"), &dict(&[("model", one())]));
    write_pth(&root.join("b.pth"), &dict(&[("model", one()), ("state_dict", one())]));
    let mut texts = ok(root, &["a.pth"]);
    let (status, text) = run(root, &["b.pth"]);
    assert_eq!(status, Some(1), "{text}");
    texts += &text;
    let args = ["shrink", "a.carton", "-o", "s.carton", "--base", "https://a.b", "--blobs", "blobs"];
    texts += &ok(root, &[&args[..], &["--min-size", "1000"]].concat());
    texts += &ok(root, &["verify", "s.carton"]);
    texts += &ok(root, &["unpack", "s.carton"]);
    let mut wrong = Vec::new();
    for line in texts.lines() {
        let mut words = line.split([' ', '(']);
        while let Some(word) = words.next() {
            let next = words.clone().next().unwrap_or_default().trim_end_matches([',', ')', ';', ':']);
            let is_plural =
                ["tensors", "files", "parameters", "values", "globals", "problems"].contains(&next);
            if word == "1" && is_plural {
                wrong.push(line);
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn fields_that_carton_does_not_define_are_reported() {
    let scratch = scratch();
    let root = scratch.path();
    one_tensor(root);
    write(
        root.join("c.toml"),
        "licence = 'MIT'\nhomepage = 'https://a.b'\n[runner]\nversion = 2\n[[output]]\nname = 'w'\nunits = 'm'\n",
    );
    let text = ok(root, &["a.pth", "--config", "c.toml"]);
    assert_eq!(
        notes(&text),
        ["note: c.toml: Carton does not define `licence`, `runner.version`, `output w.units`"]
    );
    // They are kept.
    ok(root, &["unpack", "a.carton", "-q"]);
    let toml = std::fs::read_to_string(root.join("a/carton.toml")).expect("it was unpacked");
    assert!(toml.contains("licence = ") && toml.contains("homepage = "), "{toml}");
    write(root.join("c.toml"), "license = 'MIT'\n");
    assert!(notes(&ok(root, &["a.pth", "--config", "c.toml"])).is_empty());
}

#[test]
fn damage_names_the_file_and_the_tensor() {
    let scratch = scratch();
    let root = scratch.path();
    let damaged = std::fs::read(folder().join("hostile/bad_crc_storage.pth")).expect("it is checked in");
    write(root.join("a.pth"), damaged);
    let (status, text) = run(root, &["a.pth"]);
    assert_eq!(status, Some(1), "{text}");
    assert!(text.starts_with("error: a.pth: tensor `w`: record `archive/data/0` is damaged"), "{text}");
    assert!(text.contains("; copy the file again") && !text.contains("a.carton"), "{text}");
    let (status, text) = run(root, &["inspect", "--sha256", "a.pth"]);
    assert_eq!(status, Some(1), "{text}");
    assert!(text.contains("tensor `w`") && text.contains("a.pth") && text.contains("damaged"), "{text}");
    let left: Vec<_> = root.read_dir().expect("a folder").flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(left, ["a.pth"]);
}

#[test]
fn bytes_after_the_last_storage_are_a_finding() {
    let scratch = scratch();
    let root = scratch.path();
    for name in ["legacy", "legacy_protocol_5"] {
        let file = format!("{name}.pth");
        let mut bytes = std::fs::read(folder().join("checkpoints").join(&file)).expect("it is checked in");
        assert_eq!(run(&folder(), &["scan", &format!("checkpoints/{file}")]).0, Some(0));
        bytes.extend(b"tail");
        write(root.join(&file), bytes);
        let (status, text) = run(root, &["scan", &file]);
        assert_eq!(status, Some(1), "{text}");
        assert!(text.contains("4 bytes follow the last storage"), "{text}");
        let object = json(root, &["scan", "--json", &file]);
        assert_eq!(object["irregularities"][0]["kind"], "trailing", "{object}");
        // A conversion only notes it.
        assert!(ok(root, &[&file]).contains("note: 4 bytes follow the last storage"));
    }
}

#[cfg(unix)]
#[test]
fn a_link_out_of_the_folder_is_not_kept_unless_it_is_named() {
    use std::os::unix::fs::symlink;
    let scratch = scratch();
    let root = scratch.path().canonicalize().expect("it is there");
    let root = root.as_path();
    one_tensor(root);
    write(root.join("m/config.json"), "{}");
    std::fs::rename(root.join("a.pth"), root.join("m/a.pth")).expect("it was made");
    symlink("/etc/passwd", root.join("m/tokenizer.model")).expect("a temporary folder");
    let text = ok(root, &["m/a.pth"]);
    let expected = "note: tokenizer.model is left out: it is a link to /etc/passwd, outside of the checkpoint's folder; \
                    --misc m/tokenizer.model keeps it";
    assert_eq!(notes(&text), [expected]);
    assert!(text.contains("  misc      config.json\n"), "{text}");
    let object = json(root, &["--json", "m/a.pth", "--dry-run"]);
    assert_eq!(object["misc"], serde_json::json!(["config.json"]), "{object}");
    assert_eq!(object["notes"].as_array().map(Vec::len), Some(1), "{object}");
    let text = ok(root, &["m/a.pth", "--misc", "m/tokenizer.model"]);
    assert!(notes(&text).is_empty() && text.contains("config.json, tokenizer.model"), "{text}");
    // The files of a checkpoint may be anywhere, but that is said.
    let elsewhere = root.join("elsewhere");
    std::fs::create_dir(&elsewhere).expect("a temporary folder");
    symlink(root.join("m/a.pth"), elsewhere.join("b.pth")).expect("a temporary folder");
    assert_eq!(notes(&ok(root, &["elsewhere"])), ["note: b.pth is a link to a file outside of the folder"]);
    assert!(notes(&ok(root, &["elsewhere/b.pth", "-o", "c.carton"])).is_empty());
}

#[test]
fn what_is_next_to_the_weights_is_copied_or_named() {
    let scratch = scratch();
    let root = scratch.path();
    write_safetensors(&root.join("in/model.safetensors"), &[], &[("w", &[2, 2])]);
    for name in [
        "config.json",
        "preprocessor_config.json",
        "processor_config.json",
        "tekken.json",
        "modeling_own.py",
        "run.py",
        "modules.json",
        "2_Dense/config.json",
    ] {
        write(root.join("in").join(name), "{}");
    }
    let text = ok(root, &["in", "--to", "safetensors", "-o", "out"]);
    assert!(
        text.contains("note: the model's Python code is left out: modeling_own.py; --misc FILE keeps one\n"),
        "{text}"
    );
    assert!(
        text.contains("note: modules.json names modules in folders, which are left out: 2_Dense\n"),
        "{text}"
    );
    for name in ["preprocessor_config.json", "processor_config.json", "tekken.json"] {
        assert!(root.join("out").join(name).exists(), "{name}");
    }
    let text = ok(root, &["in", "--to", "safetensors", "-o", "more", "--misc", "in/modeling_own.py"]);
    assert!(!text.contains("Python code") && root.join("more/modeling_own.py").exists(), "{text}");
}

//! Tests that each option has one name and one meaning: on the command line, in JSON, and as a Python keyword.

use std::collections::BTreeSet;

use clap::{CommandFactory as _, FromArgMatches as _};
use convert::{ConvertOptions, outputs};
use open::{changed_options, set_options};
use serde_json::{Map, Value as Json, json};

use super::{Cli, Command};

/// Options of `convert` on the command line and in JSON.
fn convert_rows() -> Vec<(&'static str, Json)> {
    vec![
        ("--to triton", json!({ "to": "triton" })),
        ("-o x.safetensors", json!({ "output": "x.safetensors" })),
        ("-o x.pth --names meta", json!({ "output": "x.pth", "names": "meta" })),
        ("-o x.pth", json!({ "output": "x.pth", "self_test": false, "misc": [], "license": null })),
        ("--names meta", json!({ "names": "meta" })),
        ("--names hf", json!({ "names": "hf" })),
        ("--no-clobber", json!({ "no_clobber": true })),
        ("--force", json!({ "force": true })),
        ("--dry-run", json!({ "dry_run": true })),
        ("--no-sync", json!({ "no_sync": true })),
        ("--digest", json!({ "digest": true })),
        ("--statement a.json", json!({ "statement": "a.json" })),
        ("--single", json!({ "single": true })),
        ("--incomplete", json!({ "incomplete": true })),
        ("--allow-dangerous", json!({ "allow_dangerous": true })),
        ("--deny-unknown", json!({ "deny_unknown": true })),
        ("--n-heads 32", json!({ "n_heads": 32 })),
        ("--rope-theta 10000", json!({ "rope_theta": 10000 })),
        ("--rope-factor 8", json!({ "rope_factor": 8.0 })),
        ("--norm-eps 1e-5", json!({ "norm_eps": 1e-5 })),
        ("--key ema", json!({ "key": "ema" })),
        ("--include a* --include b*", json!({ "include": ["a*", "b*"] })),
        ("--exclude a*", json!({ "exclude": "a*" })),
        ("--strip-prefix module.", json!({ "strip-prefix": "module." })),
        ("--rename ^a=b", json!({ "rename": ["^a=b"] })),
        ("--names modules", json!({ "names": "modules" })),
        ("--part text", json!({ "part": "text" })),
        ("--complete-from a", json!({ "complete_from": "a" })),
        ("--dequantize", json!({ "dequantize": true })),
        (
            "--add a=0.5 --add b --common",
            json!({ "add": [{ "path": "a", "weight": 0.5 }, "b"], "common": true }),
        ),
        ("--average a", json!({ "average": ["a"] })),
        ("--merge a=2", json!({ "merge": ["a=2"] })),
        ("--cast f32=half", json!({ "cast": ["float32=float16"] })),
        ("--dtype bf16", json!({ "dtype": "bfloat16" })),
        ("--max-expansion 3", json!({ "max_expansion": 3 })),
        ("--name a", json!({ "name": "a" })),
        ("--description a", json!({ "description": "a" })),
        ("--short-description a", json!({ "short_description": "a" })),
        ("--license a", json!({ "license": "a" })),
        ("--repository a", json!({ "repository": "a" })),
        ("--homepage a", json!({ "homepage": "a" })),
        ("--config a.toml", json!({ "config": "a.toml" })),
        ("--misc a --misc b", json!({ "misc": ["a", "b"] })),
        ("--no-values", json!({ "no_values": true })),
        ("--self-test", json!({ "self_test": true })),
        ("--torch newest", json!({ "torch": "newest" })),
        ("--arch llama", json!({ "arch": "llama" })),
        ("--keep-extra", json!({ "keep_extra": true })),
        ("--require-model", json!({ "require_model": true })),
        ("--errors raise", json!({ "errors": "raise" })),
        ("--input x=float32[n,3]", json!({ "input": ["x=f32[n, 3]"] })),
        ("--output-type y=int64[]", json!({ "output_type": ["y=int64[]"] })),
        ("--output-names a,b", json!({ "output_names": ["a", "b"] })),
        ("--no-wrap", json!({ "no_wrap": true })),
        ("--keep-values", json!({ "keep_values": true })),
        ("--ties duplicate", json!({ "ties": "duplicate" })),
        ("--pre-tokenizer qwen2", json!({ "pre_tokenizer": "qwen2" })),
        ("--split-max-size 2GB", json!({ "split_max_size": 2_000_000_000_u64 })),
        ("--dtype q4_0 -o x.gguf", json!({ "dtype": "q4_0", "output": "x.gguf" })),
        ("--max-shard-size 5GB", json!({ "max_shard_size": 5_000_000_000_u64 })),
    ]
}

fn object(json: &Json) -> Map<String, Json> {
    json.as_object().cloned().expect("an object")
}

/// Parses a command line, whose words are separated by spaces.
fn parse(line: &str) -> Command {
    let words = ["torch2carton"].into_iter().chain(line.split(' ').filter(|word| !word.is_empty()));
    let matches =
        Cli::command().try_get_matches_from(words).unwrap_or_else(|error| panic!("{line}: {error}"));
    Cli::from_arg_matches(&matches).unwrap_or_else(|error| panic!("{line}: {error}")).command
}

/// Returns the names of all options of a conversion.
fn convert_names() -> BTreeSet<String> {
    let options = outputs().map(|format| {
        let mut options = ConvertOptions::default();
        options.target = format.target();
        options
    });
    options.flat_map(|options| changed_options(&options, &())).map(|(name, _)| name).collect()
}

/// Returns the keywords of a function of the Python package.
fn keywords(function: &str) -> BTreeSet<String> {
    let text = include_str!("../../../python/python/torch2carton/_verbs.py");
    let (_, rest) = text.split_once(&format!("\ndef {function}(")).expect("the function");
    let (parameters, _) = rest.split_once(") -> ").expect("its parameters");
    let names =
        parameters.split(", ").flat_map(|part| part.split('\n')).filter_map(|part| part.split_once(':'));
    names.map(|(name, _)| name.trim().to_owned()).collect()
}

fn names(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn an_option_of_convert_is_the_same_in_json() {
    let mut seen = BTreeSet::new();
    for (line, json) in convert_rows() {
        let Command::Convert(typed) = parse(&format!("convert {line} x")) else { panic!("{line}") };
        let given = ConvertOptions::from_json(object(&json)).expect(line);
        assert_eq!(changed_options(&typed.options, &()), changed_options(&given, &()), "{line}");
        assert_ne!(changed_options(&given, &ConvertOptions::default()), Map::new(), "{line}");
        let again = ConvertOptions::from_json(changed_options(&given, &())).expect(line);
        assert_eq!(changed_options(&again, &()), changed_options(&given, &()), "{line}");
        seen.extend(json.as_object().expect("an object").keys().map(|name| name.replace('-', "_")));
    }
    assert_eq!(seen, convert_names());
}

#[test]
fn options_are_flags_and_python_keywords() {
    let requests: [(&str, BTreeSet<String>, BTreeSet<String>); 6] = [
        ("convert", convert_names(), names(&["src", "dst", "progress"])),
        (
            "verify",
            changed_options(&carton_tools::VerifyOptions::default(), &())
                .into_iter()
                .map(|(name, _)| name)
                .collect(),
            names(&["path", "against", "statement", "input", "any_version", "progress"]),
        ),
        (
            "diff",
            changed_options(&inspect::DiffOptions::default(), &())
                .into_iter()
                .map(|(name, _)| name)
                .collect(),
            names(&["a", "b", "progress"]),
        ),
        (
            "digest",
            changed_options(&inspect::InputOptions::default(), &())
                .into_iter()
                .map(|(name, _)| name)
                .collect(),
            names(&["path", "progress"]),
        ),
        (
            "check",
            changed_options(&inspect::CheckOptions::default(), &())
                .into_iter()
                .map(|(name, _)| name)
                .collect(),
            names(&["path", "progress"]),
        ),
        (
            "scan",
            changed_options(&inspect::ScanOptions::default(), &())
                .into_iter()
                .map(|(name, _)| name)
                .collect(),
            names(&["paths", "deny_unknown", "progress"]),
        ),
    ];
    let program = Cli::command();
    for (verb, options, others) in requests {
        let command = program.find_subcommand(verb).expect("a subcommand");
        let flags: BTreeSet<String> = command
            .get_arguments()
            .filter_map(|arg| arg.get_long())
            .map(|name| name.replace('-', "_"))
            .collect();
        assert!(options.is_subset(&flags), "{verb}: {:?} are not flags", options.difference(&flags));
        let mut expected: BTreeSet<String> = options.union(&others).cloned().collect();
        expected.remove("output");
        assert_eq!(keywords(verb), expected, "{verb}");
    }
}

#[test]
fn wrong_options_are_named() {
    let refused =
        |json: Json| ConvertOptions::from_json(object(&json)).map(drop).expect_err("it is wrong").to_string();
    assert_eq!(refused(json!({ "dtyp": "x" })), "there is no option `dtyp`");
    assert_eq!(
        refused(json!({ "to": "pth", "license": "MIT" })),
        "`license` is an option of carton, and the output is pth"
    );
    assert_eq!(
        refused(json!({ "output": "x.carton", "names": "hf" })),
        "`names` is an option of safetensors and pth, and the output is carton"
    );
    assert!(refused(json!({ "include": [1], "key": "a" })).starts_with("`include`: "));
    assert!(refused(json!({ "no_clobber": true, "force": true })).contains("exclude each other"));
    assert!(refused(json!({ "max_shard_size": "5 apples" })).contains("such as 5GB"));
    let options: inspect::InputOptions =
        set_options(&inspect::InputOptions::default(), object(&json!({ "include": "a", "key": null })))
            .expect("a single text stands for a list");
    assert_eq!((options.selection.include, options.selection.key), (vec!["a".to_owned()], None));
}

//! Documents with every field, and documents with every mistake.

use carton_format::{Config, Error, FileLen, Problem, TensorIndex};

/// The specification's own example, an unknown field or table in each of its parts.
const WHOLE: &str = include_str!("whole.toml");

const INDEX: &str = r#"
[[tensor]]
name = "x0"
dtype = "float32"
shape = [1, 3]
file = "x0.bin"
inner = []
[[tensor]]
name = "y0"
dtype = "float32"
shape = [2, 10]
file = "y0.bin"
inner = []
"#;

fn problems(error: Error) -> Vec<String> {
    match error.downcast().expect("a problem of a document") {
        Problem::Document(problems) => problems.0.iter().map(ToString::to_string).collect(),
        other => panic!("{other}"),
    }
}

#[test]
fn nothing_is_lost_on_a_round_trip() {
    let parsed = Config::parse(WHOLE).expect("it is valid");
    assert_eq!(parsed.filled_in.0, []);
    let printed = parsed.document.to_toml().expect("TOML can express it");
    let table = |text: &str| toml::from_str::<toml::Table>(text).expect("TOML");
    assert_eq!(table(WHOLE), table(&printed), "{printed}");
}

#[test]
fn outputs_that_are_printed_one_by_one_give_the_same_text() {
    let mut whole = Config::parse(WHOLE).expect("it is valid").document;
    let mut bare = whole.clone();
    bare.inputs.clear();
    bare.outputs.clear();
    for config in [&whole, &bare, &Config::new(whole.runner.clone())] {
        assert_eq!(config.to_toml().expect("TOML"), toml::to_string(config).expect("TOML"));
    }
    let at_once = whole.to_toml().expect("TOML");
    let outputs = whole.outputs.split_off(1);
    assert_eq!(whole.to_toml_with(outputs.into_iter()).expect("TOML"), at_once);
}

#[test]
fn fields_that_the_client_requires_are_filled_in_and_reported() {
    let text = "[[output]]\nname = 'y'\ndtype = 'int8'\n[[example]]\ninputs = {}\n[runner]\nrunner_name = 't'\n\
                required_framework_version = '*'\n";
    let parsed = Config::parse(text).expect("it is valid");
    let added: Vec<_> = parsed.filled_in.0.iter().map(|problem| problem.key.as_str()).collect();
    let expected =
        ["spec_version", "output[0].shape", "example[0].sample_out", "runner.runner_compat_version"];
    assert_eq!(added, expected);
    let again = Config::parse(&parsed.document.to_toml().expect("TOML can express it")).expect("it is valid");
    assert_eq!(again.filled_in.0, []);
}

#[test]
fn all_problems_are_reported_together() {
    let text = r#"spec_version = 2
short_description = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
model_name = 3
homepage = "example"
required_platforms = ["x86_64-unknown-linux-gnu", "toaster"]
[[input]]
name = "x"
dtype = "float16"
shape = ["n", -1]
[[input]]
name = "x"
dtype = "float32"
shape = "n"
[[output]]
dtype = "float32"
shape = 3.0
[runner]
required_framework_version = "two"
runner_compat_version = "1"
opts = { a = 1, b = [1] }
"#;
    let found = problems(Config::parse(text).expect_err("it is invalid")).join("\n");
    assert_eq!(
        found,
        "carton.toml:1:16: spec_version is `2`, expected 1, the only version there is\n\
         carton.toml:2:21: short_description has 101 characters, at most 100 are allowed\n\
         carton.toml:3:14: model_name is an integer, expected a string\n\
         carton.toml:4:12: homepage is `example`, expected an http or https URL\n\
         carton.toml:5:51: required_platforms[1] is `toaster`, expected a target triple such as x86_64-unknown-linux-gnu\n\
         carton.toml:8:9: input[0].dtype is `float16`, expected one of float32, float64, string, int8, int16, int32, \
         int64, uint8, uint16, uint32, uint64\n\
         carton.toml:9:9: input[0].shape uses the symbol `n` for a whole shape and for one dimension\n\
         carton.toml:9:15: input[0].shape[1] is `-1`, expected a number from 0 to 2^63 - 1\n\
         carton.toml:11:8: input[1].name is `x`, which is already used\n\
         carton.toml:14:1: output[0].name is missing\n\
         carton.toml:16:9: output[0].shape is a float, expected a symbol or a list of symbols and integers\n\
         carton.toml:17:1: runner.runner_name is missing\n\
         carton.toml:18:30: runner.required_framework_version is `two`, expected a semver requirement such as =2.0\n\
         carton.toml:19:25: runner.runner_compat_version is a string, expected an integer\n\
         carton.toml:20:21: runner.opts.b is a list, expected an integer, a float, a string or a boolean"
    );
}

#[test]
fn references_are_checked() {
    let index =
        TensorIndex::parse(INDEX, &|path| FileLen::Bytes(if path.ends_with("x0.bin") { 12 } else { 80 }));
    let index = index.expect("it is valid").document;
    let text = r#"
spec_version = 1
model_description = "See @misc/there.png and ![gone](@misc/gone.png)."
[[input]]
name = "x"
dtype = "float32"
shape = ["batch", 3]
[[input]]
name = "y"
dtype = "float64"
shape = ["batch", 10]
[[output]]
name = "out"
dtype = "float32"
shape = ["batch", 4]
[[self_test]]
inputs = { x = "@tensor_data/x0", y = "@tensor_data/y0", z = "@tensor_data/x0" }
expected_out = { out = "@tensor_data/x0" }
[[self_test]]
inputs = { x = "@misc/there.png", y = "@tensor_data/none" }
[[example]]
inputs = { x = "@misc/there.png" }
sample_out = { out = "@misc/gone.png" }
[runner]
runner_name = "t"
required_framework_version = "*"
runner_compat_version = 1
"#;
    let config = Config::parse(text).expect("it is valid by itself").document;
    let found = config.check(&index, &|path| path == "misc/there.png");
    let found: Vec<_> = found.0.iter().map(ToString::to_string).collect();
    assert_eq!(
        found.join("\n"),
        "carton.toml:17:39: self_test[0].inputs.y is the tensor `y0` of float32, expected float64\n\
         carton.toml:17:39: self_test[0].inputs.y resolves the symbol `batch` to 2, but it was 1 before\n\
         carton.toml:17:62: self_test[0].inputs.z names `z`, which is not an input of the model\n\
         carton.toml:18:24: self_test[0].expected_out.out is the tensor `x0` of shape [1, 3], expected [batch, 4]\n\
         carton.toml:20:16: self_test[1].inputs.x is `@misc/there.png`, expected @tensor_data/…\n\
         carton.toml:20:39: self_test[1].inputs.y refers to `@tensor_data/none`, which does not exist\n\
         carton.toml:23:22: example[0].sample_out.out refers to `@misc/gone.png`, which does not exist\n\
         carton.toml:3:21: model_description refers to `@misc/gone.png`, which does not exist"
    );
}

#[test]
fn tests_need_inputs_and_outputs() {
    let text = "spec_version = 1\n[[self_test]]\ninputs = {x = '@tensor_data/x0'}\n[runner]\nrunner_name = 't'\n\
                required_framework_version = '*'\nrunner_compat_version = 1\n";
    let config = Config::parse(text).expect("it is valid by itself").document;
    let found = config.check(&TensorIndex::default(), &|_| false);
    assert_eq!(
        found.0[0].to_string(),
        "carton.toml:2:1: self_test[0] needs inputs and outputs to be specified"
    );
}

#[test]
fn a_test_needs_what_it_uses_to_be_specified() {
    let port = |kind: &str| format!("[[{kind}]]\nname = 'x'\ndtype = 'float32'\nshape = '*'\n");
    let taking = "[[self_test]]\ninputs = {x = '@tensor_data/x0'}\n";
    let nothing = "[[self_test]]\ninputs = {}\n";
    for (test, ports, unspecified) in [
        (taking, port("output"), true),
        (taking, port("input"), true),
        (taking, port("input") + &port("output"), false),
        (nothing, port("output"), false),
        (nothing, port("input"), true),
    ] {
        let text = format!(
            "spec_version = 1\n{test}{ports}[runner]\nrunner_name = 't'\n\
             required_framework_version = '*'\nrunner_compat_version = 1\n"
        );
        let config = Config::parse(&text).expect("it is valid by itself").document;
        let found = config.check(&TensorIndex::default(), &|_| false);
        let found = found
            .0
            .iter()
            .any(|problem| matches!(problem.kind, carton_format::ProblemKind::PortsNotDeclared));
        assert_eq!(found, unspecified, "{text}");
    }
}

#[test]
fn a_shape_of_one_symbol_is_one_shape_and_a_star_is_any() {
    let index = TensorIndex::parse(INDEX, &|_| FileLen::Unknown).expect("it is valid").document;
    for (shape, problems) in [("*", 0), ("s", 1)] {
        // x0 has shape [1, 3], y0 has shape [2, 10].
        let text = format!(
            "spec_version = 1\n[[self_test]]\ninputs = {{x = '@tensor_data/x0', y = '@tensor_data/y0'}}\n\
             [[input]]\nname = 'x'\ndtype = 'float32'\nshape = '{shape}'\n\
             [[input]]\nname = 'y'\ndtype = 'float32'\nshape = '{shape}'\n\
             [[output]]\nname = 'z'\ndtype = 'float32'\nshape = '*'\n[runner]\nrunner_name = 't'\n\
             required_framework_version = '*'\nrunner_compat_version = 1\n"
        );
        let config = Config::parse(&text).expect("it is valid by itself").document;
        let found = config.check(&index, &|_| false);
        assert_eq!(found.0.len(), problems, "{found}");
    }
}

#[test]
fn a_link_of_the_description_may_end_a_sentence() {
    // A file may be called `a.` as well as `a`, and a sentence may be about the folder.
    for (files, missing) in
        [(["misc/a.", "misc/b"], false), (["misc/a", "misc/b"], false), (["misc/b", "misc/c"], true)]
    {
        let text = "spec_version = 1\nmodel_description = 'In @misc/ are @misc/b and @misc/a.'\n[runner]\n\
                    runner_name = 't'\nrequired_framework_version = '*'\nrunner_compat_version = 1\n";
        let config = Config::parse(text).expect("it is valid by itself").document;
        let found = config.check(&TensorIndex::default(), &|path| files.contains(&path));
        assert_eq!(!found.0.is_empty(), missing, "{files:?}: {found}");
    }
}

#[test]
fn fields_that_the_specification_does_not_define_are_listed() {
    let config = Config::parse(WHOLE).expect("it is valid").document;
    let mut unknown = config.unknown_fields();
    unknown.sort();
    assert_eq!(
        unknown,
        ["example.seen", "input x.unit", "note", "runner.beyond", "self_test.tolerance", "unknown"]
    );
}

#[test]
fn a_symbol_is_a_shape_or_a_size_and_a_star_is_neither() {
    for (shape, size, allowed) in [("*", "*", true), ("s", "n", true), ("s", "s", false)] {
        let text = format!(
            "spec_version = 1\n[[input]]\nname = 'x'\ndtype = 'float32'\nshape = '{shape}'\n\
             [[input]]\nname = 'y'\ndtype = 'float32'\nshape = ['{size}', 3]\n[runner]\nrunner_name = 't'\n\
             required_framework_version = '*'\nrunner_compat_version = 1\n"
        );
        let parsed = Config::parse(&text);
        assert_eq!(parsed.is_ok(), allowed, "{text}");
        let Ok(parsed) = parsed else { continue };
        let place = parsed.document.key_position("input[1].shape").expect("it was parsed");
        assert_eq!((place.line, place.column), (9, 9));
        assert_eq!(parsed.document.key_position("input[2].shape"), None);
    }
}

#[test]
fn a_short_description_has_at_most_100_characters() {
    let mut config = Config::new(carton_format::Runner::new("t", "*", 1));
    // Characters, not bytes.
    config.short_description = Some("é".repeat(100));
    config.to_toml().expect("100 are allowed");
    config.short_description = Some("é".repeat(101));
    assert!(matches!(config.to_toml(), Err(Problem::ShortDescription { found: 101 })));
    config.short_description = Some("é".repeat(300));
    assert!(matches!(config.to_toml(), Err(Problem::ShortDescription { found: 300 })));
}

#[test]
fn the_place_of_a_key_is_that_of_its_deepest_part_that_is_there() {
    let text = "a = 1\n[b]\nc = [2, 3]\n[[d]]\ne = 4\n[[d]]\ne = 5\n";
    let place = |key| carton_format::find_position(text, key).map(|place| (place.line, place.column));
    assert_eq!(place("a"), Some((1, 5)));
    assert_eq!(place("b.c[1]"), Some((3, 9)));
    assert_eq!(place("b.c[7]"), Some((3, 5)));
    assert_eq!(place("b.c.x"), Some((3, 5)));
    assert_eq!(place("d[1].e"), Some((7, 5)));
    assert_eq!(place("a.x"), Some((1, 5)));
    assert_eq!(place("x"), None);
}

#[test]
fn an_index_is_compared_with_its_files() {
    let text = r#"
[[tensor]]
name = "a"
dtype = "int16"
shape = [2, 3]
file = "a.bin"
[[tensor]]
name = "a"
dtype = "string"
shape = []
file = "gone.toml"
[[tensor]]
name = "n"
dtype = "nested"
inner = ["a", "n", "z"]
[[tensor]]
name = "up"
dtype = "int8"
shape = []
file = "../up.bin"
"#;
    let error = TensorIndex::parse(text, &|path| {
        if path == "tensor_data/a.bin" { FileLen::Bytes(13) } else { FileLen::Missing }
    });
    assert_eq!(
        problems(error.expect_err("it is invalid")).join("\n"),
        "tensor_data/index.toml:6:8: tensor[0].file is `a.bin` with 13 bytes, dtype and shape need 12\n\
         tensor_data/index.toml:8:8: tensor[1].name is `a`, which is already used\n\
         tensor_data/index.toml:11:8: tensor[1].file refers to `gone.toml`, which does not exist\n\
         tensor_data/index.toml:15:15: tensor[2].inner[1] names `n`, which is nested itself\n\
         tensor_data/index.toml:15:20: tensor[2].inner[2] refers to `z`, which does not exist\n\
         tensor_data/index.toml:20:8: tensor[3].file is `../up.bin`, expected the name of a .bin file in tensor_data"
    );
}

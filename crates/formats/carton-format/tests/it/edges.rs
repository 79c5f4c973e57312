//! Values that are just right or just wrong.

use carton_format::{
    Config, Error, FileLen, Links, Problem, StringTensorFile, TensorIndex, is_valid_carton_path,
};

fn problems<T: std::fmt::Debug>(parsed: Result<T, Error>) -> String {
    match parsed.expect_err("it is invalid").downcast().expect("a problem of a document") {
        Problem::Document(problems) => {
            problems.0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
        }
        other => panic!("{other}"),
    }
}

fn index(name: &str, dtype: &str, file: &str) -> Result<TensorIndex, Error> {
    let text = format!("[[tensor]]\nname = '{name}'\ndtype = '{dtype}'\nshape = [2, 3]\nfile = '{file}'\n");
    TensorIndex::parse(&text, &|_| FileLen::Unknown).map(|parsed| parsed.document)
}

#[test]
fn the_file_of_a_tensor_has_a_name_and_its_ending() {
    for (dtype, file) in [("int8", "x.bin"), ("string", "x.toml")] {
        let index = index("x", dtype, file).expect("it is valid");
        let tensor = index.find("x").expect("it is there");
        assert_eq!((tensor.name(), tensor.numel(), index.find("y")), ("x", Some(6), None));
    }
    for (dtype, file) in [
        ("int8", ".bin"),
        ("int8", "x.toml"),
        ("int8", "x"),
        ("int8", "a/x.bin"),
        ("string", "x.bin"),
        ("string", "index.toml"),
    ] {
        let problems = problems(index("x", dtype, file));
        assert!(problems.contains(&format!("tensor[0].file is `{file}`, expected")), "{problems}");
    }
}

#[test]
fn a_string_tensor_has_as_many_strings_as_elements() {
    let strings = |text, expected| StringTensorFile::parse("tensor_data/x.toml", text, expected);
    assert_eq!(strings("data = ['a', 'b']", 2).expect("it is valid").data, ["a", "b"]);
    assert!(problems(strings("data = ['a', 'b']", 3)).contains("x.toml"));
    let wrong = problems(strings("data = ['a', 1]", 3));
    assert_eq!(wrong.lines().count(), 1, "how many there are is not known: {wrong}");
}

#[test]
fn paths_are_inside_on_every_system() {
    assert!(is_valid_carton_path("a/b.c") && is_valid_carton_path("é"));
    for path in ["a\\b", "c:d", "a\0b", "a\nb", "", "/a", "a/", "a//b", "a/./b", "../a"] {
        assert!(!is_valid_carton_path(path), "{path:?}");
    }
}

#[test]
fn links_lead_to_the_web() {
    let links = |url: &str| Links::parse(&format!("version = 1\n[urls]\n{} = ['{url}']\n", "0".repeat(64)));
    assert!(links("https://a.org/b").is_ok(), "{:?}", links("https://a.org/b"));
    for url in ["ftp://a.org/b", "file:///b", "a.org/b", "https://"] {
        assert!(links(url).is_err(), "{url}");
    }
}

#[test]
fn options_of_a_runner_are_single_values() {
    let config = |value: &str| {
        let start = "spec_version = 1\n[runner]\nrunner_name = 'a'\nrequired_framework_version = '*'\nrunner_compat_version = 1\n";
        Config::parse(&format!("{start}opts = {{ a = {value} }}\n"))
    };
    for value in ["1", "1.5", "'b'", "true"] {
        assert!(config(value).is_ok(), "{value}");
    }
    for (value, kind) in [("1979-05-27", "a date"), ("[1]", "a list"), ("{ b = 1 }", "a table")] {
        let problems = problems(config(value));
        assert!(problems.contains(kind) && problems.contains("runner.opts.a"), "{problems}");
    }
}

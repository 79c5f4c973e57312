//! Properties of all documents, checked with generated ones.

use std::path::{Component, Path};

use carton_format::{
    Config, DataType, Dimension, Example, FileLen, Links, Manifest, Port, References, Runner, SelfTest,
    Shape, StringTensorFile, TensorIndex, TensorSpec, is_valid_carton_path,
};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use toml::{Table, Value};

/// Values of every kind but dates, tables in lists in tables.
fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        any::<i64>().prop_map(Value::Integer),
        // NaN is not equal to itself.
        any::<f64>().prop_filter("equal to itself", |it| !it.is_nan()).prop_map(Value::Float),
        any::<bool>().prop_map(Value::Boolean),
        ".*".prop_map(Value::String),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::Array),
            btree_map(".*", inner, 0..4).prop_map(|map| Value::Table(map.into_iter().collect())),
        ]
    })
}

/// Fields that the specification does not define.
fn other() -> impl Strategy<Value = Table> {
    btree_map("x_.*", value(), 0..4).prop_map(|map| map.into_iter().collect())
}

fn dtype() -> impl Strategy<Value = DataType> {
    const NAMES: &[&str] =
        &["float32", "float64", "string", "int8", "int16", "int32", "int64", "uint8", "uint64"];
    prop::sample::select(NAMES).prop_map(|name| DataType::from_name(name).expect("it is one"))
}

fn shape() -> impl Strategy<Value = Shape> {
    let dimension = prop_oneof![
        "d_.+".prop_map(Dimension::Symbol),
        Just(Dimension::Symbol("*".to_owned())),
        (0..1_u64 << 63).prop_map(Dimension::Size),
    ];
    // A symbol is a shape or a size, not both.
    prop_oneof!["s_.+".prop_map(Shape::Symbol), vec(dimension, 0..4).prop_map(Shape::Dimensions)]
}

fn ports() -> impl Strategy<Value = Vec<Port>> {
    let text = || prop::option::of(".*");
    btree_map(".+", (dtype(), shape(), text(), text(), other()), 0..3).prop_map(|ports| {
        let port = |(name, (dtype, shape, description, internal_name, other))| Port {
            name,
            dtype,
            shape,
            description,
            internal_name,
            other,
        };
        ports.into_iter().map(port).collect()
    })
}

fn references() -> impl Strategy<Value = References> {
    btree_map(".*", ".*", 0..3).prop_map(|map| References(map.into_iter().collect()))
}

fn config() -> impl Strategy<Value = Config> {
    let text = || prop::option::of(".*");
    let tests = (text(), references(), prop::option::of(references()), other());
    let examples = (text(), references(), references(), other());
    let runner = (".*", 0..1_u64 << 63, other());
    (
        (text(), "(?s).{0,100}", text()),
        (ports(), ports()),
        vec(tests, 0..3),
        vec(examples, 0..3),
        runner,
        other(),
    )
        .prop_map(|(texts, (inputs, outputs), tests, examples, (name, compat, runner), other)| {
            let mut config = Config::new(Runner::new(&name, "=2.0", compat));
            config.runner.other = runner;
            (config.model_name, config.short_description, config.license) = (texts.0, Some(texts.1), texts.2);
            (config.inputs, config.outputs, config.other) = (inputs, outputs, other);
            for (name, inputs, expected_out, other) in tests {
                config.self_tests.push(SelfTest { name, inputs, expected_out, other, ..SelfTest::default() });
            }
            for (description, inputs, sample_out, other) in examples {
                config.examples.push(Example {
                    description,
                    inputs,
                    sample_out,
                    other,
                    ..Example::default()
                });
            }
            config
        })
}

/// Paths of files inside a carton, with what makes lines hard to split.
fn path() -> impl Strategy<Value = String> {
    vec("[a-zA-Z0-9 =.~ü🦙-]{1,8}", 1..4)
        .prop_map(|parts| parts.join("/"))
        .prop_filter("inside", |it| is_valid_carton_path(it))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_configuration_survives_printing_and_parsing(config in config()) {
        let text = config.to_toml().expect("TOML can express it");
        prop_assert_eq!(&text, &toml::to_string(&config).expect("TOML can express it"));
        let parsed = Config::parse(&text).expect("it was valid");
        prop_assert!(parsed.filled_in.0.is_empty());
        // Only the places of the keys are new.
        prop_assert_eq!(parsed.document.to_toml().expect("TOML can express it"), text.clone());
        let (before, after): (Table, Table) = (toml::from_str(&text).expect("TOML"), Table::try_from(&config).expect("TOML"));
        prop_assert_eq!(before, after);
    }

    #[test]
    fn unknown_fields_of_a_text_are_kept(table in other(), inner in other()) {
        let mut whole = Table::try_from(Config::new(Runner::new("r", "*", 1))).expect("TOML");
        whole.extend(table);
        let runner = whole.get_mut("runner").and_then(Value::as_table_mut).expect("it is there");
        runner.extend(inner);
        let text = toml::to_string(&whole).expect("TOML");
        let parsed = Config::parse(&text).expect("it is valid").document;
        prop_assert_eq!(toml::from_str::<Table>(&parsed.to_toml().expect("TOML")).expect("TOML"), whole);
    }

    #[test]
    fn a_manifest_survives_printing_and_parsing(files in btree_map(path(), any::<[u8; 32]>(), 0..20)) {
        let mut manifest = Manifest::default();
        // In any order.
        for (path, hash) in files.iter().rev() {
            manifest.add(path, *hash).expect("its path is new");
        }
        let parsed = Manifest::parse(&manifest.to_string()).expect("it is valid");
        prop_assert!(parsed.lines().eq(files.iter().map(|(path, hash)| (path.as_str(), *hash))));
    }

    #[test]
    fn links_survive_printing_and_parsing(urls in btree_map(any::<[u8; 32]>(), vec("https://[a-z]{1,9}/[ -~]*", 0..3), 0..5), other in other()) {
        let links = Links { urls, other };
        prop_assert_eq!(Links::parse(&links.to_toml().expect("TOML can express it")).ok(), Some(links));
    }

    #[test]
    fn an_index_survives_printing_and_parsing(
        tensors in btree_map(".*", (dtype(), vec(0..1000_u64, 0..4), other()), 0..5),
        nested in vec(any::<prop::sample::Index>(), 0..5),
        rest in other(),
    ) {
        let mut index = TensorIndex { other: rest, ..TensorIndex::default() };
        for (number, (name, (dtype, shape, other))) in tensors.into_iter().enumerate() {
            let ending = if dtype == DataType::String { "toml" } else { "bin" };
            index.tensors.push(TensorSpec::Array { name, dtype, shape, file: format!("{number}.{ending}"), other });
        }
        if !index.tensors.is_empty() && index.find("ragged").is_none() {
            let inner = nested.iter().map(|at| at.get(&index.tensors).name().to_owned()).collect();
            index.tensors.push(TensorSpec::Nested { name: "ragged".to_owned(), inner, other: Table::new() });
        }
        let len = |path: &str| {
            let file = path.strip_prefix("tensor_data/").expect("tensors are in this folder");
            let spec = index.tensors.iter().find(|it| matches!(it, TensorSpec::Array { file: other, .. } if other == file));
            spec.map_or(FileLen::Missing, |spec| FileLen::Bytes(spec.nbytes().unwrap_or_default()))
        };
        let parsed = TensorIndex::parse(&index.to_toml().expect("TOML can express it"), &len).expect("it is valid");
        prop_assert_eq!(parsed.document, index.clone());
        prop_assert!(parsed.filled_in.0.is_empty());
    }

    #[test]
    fn strings_survive_printing_and_parsing(data in vec("(?s).*", 0..9)) {
        let strings = StringTensorFile { data };
        let text = toml::to_string(&strings).expect("TOML can express it");
        prop_assert_eq!(StringTensorFile::parse("s.toml", &text, strings.data.len() as u64).ok(), Some(strings));
    }

    #[test]
    fn any_text_is_rejected_or_read(text in "(?s).*", lines in vec("[a-z\\[\\]=\"'{}., 0-9]*", 0..9)) {
        for text in [text, lines.join("\n")] {
            let _ = Config::parse(&text);
            let _ = Manifest::parse(&text);
            let _ = Links::parse(&text);
            let _ = TensorIndex::parse(&text, &|_| FileLen::Missing);
            let _ = StringTensorFile::parse("s.toml", &text, 3);
        }
    }

    #[test]
    fn paths_that_are_inside_have_only_normal_components(parts in vec(prop_oneof!["\\.{0,3}", "[ -~]{0,5}", "/", ".*"], 0..5)) {
        let path = parts.join("/");
        if is_valid_carton_path(&path) {
            let mut components = Path::new(&path).components();
            prop_assert!(components.all(|part| matches!(part, Component::Normal(_))), "{}", path);
            prop_assert_eq!(Path::new(&path).components().count(), path.split('/').count());
        }
    }
}

/// Thousands of keys in one line: finding the place of one must not take a walk through all of them.
#[test]
fn parsing_takes_linear_time() {
    let strings = StringTensorFile { data: vec!["word".to_owned(); 300_000] };
    let text = toml::to_string(&strings).expect("TOML can express it");
    assert_eq!(text.lines().count(), 1);
    assert_eq!(StringTensorFile::parse("s.toml", &text, 300_000).ok(), Some(strings));
    let many: Vec<String> = (0..20_000).map(|number| format!("x{number} = {number}")).collect();
    let text = format!(
        "spec_version = 1\nmany = {{ {} }}\n[runner]\nrunner_name = 'r'\nrequired_framework_version = '*'\n\
         runner_compat_version = 1\n",
        many.join(", ")
    );
    assert!(Config::parse(&text).is_ok());
    let wrong = "[[input]]\nname = 'x'\ndtype = 'half'\n".repeat(20_000);
    let error = Config::parse(&wrong).expect_err("all of it is wrong");
    assert!(error.to_string().len() > 1_000_000);
}

//! Tests of inputs and outputs: their names, their dtypes, and wrappers that take and return tensors.

use super::*;

fn declared_input(name: &str, dtype: Dtype, sizes: &[u64]) -> DeclaredInput {
    let shape = sizes.iter().map(|size| Dim::Size(*size)).collect();
    DeclaredInput { name: name.to_owned(), dtype, shape }
}

fn declared_output(name: &str, dtype: Dtype, sizes: &[u64]) -> DeclaredOutput {
    let DeclaredInput { name, dtype, shape } = declared_input(name, dtype, sizes);
    DeclaredOutput { name, dtype, shape }
}

/// Names, dtypes and shapes.
fn texts(ports: impl IntoIterator<Item = ModulePort>) -> Vec<String> {
    ports
        .into_iter()
        .map(|ModulePort { name, dtype, shape, .. }| format!("{name} {dtype} {shape:?}"))
        .collect()
}

fn outputs(module: &Module) -> Vec<String> {
    texts(module.outputs.ports(&Vec::new().into()))
}

#[test]
fn only_inputs_that_the_module_has_are_declared() {
    let code = net(", x: Tensor, l: List[Tensor]) -> Tensor");
    let options = |name: &str| ScriptOptions {
        inputs: vec![declared_input(name, Dtype::Float32, &[1])],
        ..ScriptOptions::default()
    };
    for name in ["x", "l_0"] {
        assert!(
            matches!(scripted(archive(&code, &[]), &options(name)), Ok(WrapOutcome::Module(_))),
            "{name}"
        );
    }
    // Names that begin like the tensor's, like the list's, and like none.
    for name in ["x_0", "l", "y"] {
        let error = scripted(archive(&code, &[]), &options(name)).expect_err("there is no such input");
        assert_eq!(error.code(), "torchscript::UnknownInputName", "{name}: {error}");
    }
}

#[test]
fn only_outputs_that_are_tensors_are_declared() {
    let code = net(", x: Tensor) -> Tuple[Tensor, int, List[Tensor]]");
    let options = |name: &str| ScriptOptions {
        outputs: vec![declared_output(name, Dtype::Float32, &[1])],
        ..ScriptOptions::default()
    };
    for name in ["output_0", "output_2_0"] {
        assert!(
            matches!(scripted(archive(&code, &[]), &options(name)), Ok(WrapOutcome::Module(_))),
            "{name}"
        );
    }
    // A number, a list, and no output.
    for name in ["output_1", "output_2", "other"] {
        let error = scripted(archive(&code, &[]), &options(name)).expect_err("it is not a tensor");
        assert_eq!(error.code(), "torchscript::UnknownOutputName", "{name}: {error}");
    }
}

#[test]
fn complex_inputs_are_pairs_of_numbers() {
    let options = ScriptOptions {
        inputs: vec![
            declared_input("s", Dtype::Complex64, &[3]),
            declared_input("d", Dtype::Complex128, &[]),
        ],
        ..ScriptOptions::default()
    };
    let code = net(", s: Tensor, d: Tensor) -> Tensor");
    let Ok(WrapOutcome::Module(made)) = scripted(archive(&code, &[]), &options) else { panic!("one") };
    assert_eq!(texts(made.inputs), ["s float32 [Size(3), Size(2)]", "d float64 [Size(2)]"]);
}

#[test]
fn results_of_each_kind_have_names() {
    let pair = "class Pair(NamedTuple):\n  a : int\n  b : float\n";
    for (returns, expected) in [
        ("NoneType", &[][..]),
        ("int", &["output int64 []"]),
        ("Tuple[int, NoneType, float]", &["output_0 int64 []", "output_2 float64 []"]),
        ("__torch__.net.Pair", &["a int64 []", "b float64 []"]),
        ("Optional[__torch__.net.Pair]", &["a int64 []", "b float64 []"]),
        ("List[__torch__.net.Pair]", &[]),
    ] {
        let made = module(&(net(&format!(", x: Tensor) -> {returns}")) + pair), &[]);
        assert_eq!(outputs(&made), expected, "{returns}");
    }
}

#[test]
fn functions_are_written_for_the_types_that_are_put() {
    let count = |returns: &str| {
        let code = module(&net(&format!(", x: Tensor) -> {returns}")), &[]).archive.code().to_vec();
        String::from_utf8(code).expect("it was a text").matches("\ndef put_").count()
    };
    // The keys of a dict become parts of names.
    assert_eq!(["Tensor", "Dict[int, Tensor]", "List[Tensor]"].map(count), [1, 2, 2]);
}

#[test]
fn a_union_with_none_is_not_annotated() {
    let code = |kind: &str| {
        let code = module(&net(&format!(", x: {kind}) -> Tensor")), &[]).archive.code().to_vec();
        String::from_utf8(code).expect("it was a text")
    };
    let (early, annotated) = ("  else:\n    return None\n", "  value = annotate(Optional[Tensor], None)\n");
    let union = code("Union[Tensor, int, NoneType]");
    assert!(union.contains(early) && !union.contains("  value = annotate("), "{union}");
    let optional = code("Optional[Tensor]");
    assert!(!optional.contains(early) && optional.contains(annotated), "{optional}");
    let never_none = code("Union[Tensor, int]");
    assert!(!never_none.contains(early) && !never_none.contains("  value = annotate("), "{never_none}");
}

#[test]
fn arguments_that_keep_their_defaults_are_noted() {
    let made = module(&net(", x: Tensor, d: Optional[Device]=None, e: Device=\"cpu\") -> Tensor"), &[]);
    let fixed = ModuleNote::FixedArguments { names: vec!["d".to_owned(), "e".to_owned()] };
    assert_eq!(made.notes.iter().filter(|note| **note == fixed).count(), 1, "{:?}", made.notes);
    let made = module(&net(", x: Tensor) -> Tensor"), &[]);
    assert!(!made.notes.iter().any(|note| matches!(note, ModuleNote::FixedArguments { .. })));
}

#[test]
fn an_output_with_the_name_of_error_messages_is_noted() {
    let error = ModuleNote::ErrorOutput { names: vec![ERROR_OUTPUT.to_owned()] };
    for (returns, statement, expected) in [
        ("Dict[str, Tensor]", "    name = \"error\"\n", true),
        ("Dict[str, Tensor]", "", false),
        ("Tensor", "    name = \"error\"\n", false),
    ] {
        let made = module(&(net(&format!(", x: Tensor) -> {returns}")) + statement), &[]);
        assert_eq!(made.notes.contains(&error), expected, "{returns} {statement}");
    }
}

#[test]
fn a_positional_wrapper_takes_and_returns_tensors() {
    let code = net(", x: Tensor, n: int, k: float=1., l: List[int]) -> Tuple[Tensor, int]");
    let options = ScriptOptions {
        inputs: vec![declared_input("x", Dtype::Float32, &[2])],
        outputs: vec![declared_output("output_0", Dtype::Float32, &[2])],
        ..ScriptOptions::default()
    };
    let whole = Storage::owned(b"whole".to_vec());
    let wrapped = wrap_positional_script(archive(&code, &[]), &whole, &options);
    let Ok(WrapOutcome::Module(made)) = wrapped else { panic!("{wrapped:?}") };
    // Numbers without dimensions have one of size 1. An input with a default that is not declared is left out.
    assert_eq!(outputs(&made), ["output_0 float32 [Size(2)]", "output_1 int64 [Size(1)]"]);
    let text = String::from_utf8(made.archive.code().to_vec()).expect("it was a text");
    let class = "class Wrapper(Module):
  __parameters__ = []
  __buffers__ = []
  training : bool
  module : __torch__.net.Net
  def forward(self: __torch__.torch2carton.Wrapper,
    x: Tensor,
    n: Tensor,
    l: Tensor) -> Tuple[Tensor, Tensor]:
    given_0 = annotate(Dict[str, Tensor], {})
    torch._set_item(given_0, \"x\", x)
    torch._set_item(given_0, \"n\", torch.reshape(n, annotate(List[int], [])))
    torch._set_item(given_0, \"l\", l)
    given_1 = __torch__.torch2carton.respond(self.module, given_0)
    return (__torch__.torch2carton.output(given_1, \"output_0\", False), __torch__.torch2carton.output(given_1, \"output_1\", True))
";
    assert!(text.starts_with(class), "{text}");
    // A request that is refused raises an exception.
    assert!(text.contains("ops.prim.RaiseException(wrong)") && !text.contains("\"error\""), "{text}");
    assert_eq!(
        texts(made.inputs),
        ["x float32 [Size(2)]", "n int64 [Size(1)]", "l int64 [Symbol(\"l_len\")]"]
    );
}

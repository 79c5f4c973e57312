//! Pickled modules: their tensors have the names of `state_dict()`, and their members are not keys.

use super::programs::{archive, call, dict, global, named, tensor, with_checkpoint};

/// The attributes of a module with a parameter, or with a submodule.
fn attributes(parameters: &[(&str, &[u8])], modules: &[(&str, &[u8])]) -> Vec<u8> {
    let (parameters, modules) = (dict(parameters), dict(modules));
    dict(&[("_parameters", &parameters), ("_buffers", &dict(&[])), ("_modules", &modules)])
}

/// An instance of a class with this state.
fn instance(state: &[u8]) -> Vec<u8> {
    [&global("__main__.Net")[..], b")\x81", state, b"b"].concat()
}

/// An instance whose class travels with its code, as `torch_utils.persistence` writes it.
fn persistent(state: &[u8]) -> Vec<u8> {
    let meta = dict(&[("type", b"Vclass\n"), ("module_src", b"Vpass\n"), ("state", state)]);
    [global("torch_utils.persistence._reconstruct_persistent_obj"), call(&[&meta]), b"R".to_vec()].concat()
}

/// The names of the tensors, each with the keys around it.
fn names(pickle: &[u8]) -> Vec<(String, Option<String>, Option<String>)> {
    let found = with_checkpoint(&archive(pickle), |checkpoint| {
        let owned = |key: Option<&str>| key.map(str::to_owned);
        let item = |item: &torch_import::CheckpointItem| {
            (item.name.clone(), owned(item.root_key()), owned(item.second_key()))
        };
        checkpoint.items.iter().filter(|item| item.tensor().is_some()).map(item).collect()
    });
    found.expect("PyTorch reads it")
}

#[test]
fn members_of_a_module_are_not_keys() {
    let inner = instance(&attributes(&[("w", &tensor("0"))], &[]));
    let outer = instance(&attributes(&[], &[("model", &inner)]));
    let expected = ("model.model.w".to_owned(), Some("model".to_owned()), None);
    assert_eq!(names(&named(&[("model", outer)])), [expected]);
    let plain = dict(&[("model", &dict(&[("w", &tensor("0"))]))]);
    let key = Some("model.model".to_owned());
    let expected = ("model.model.w".to_owned(), Some("model".to_owned()), key);
    assert_eq!(names(&named(&[("model", plain)])), [expected]);
}

#[test]
fn a_module_with_its_code_has_the_names_of_its_state() {
    let inner = persistent(&attributes(&[("w", &tensor("0"))], &[]));
    let outer = persistent(&attributes(&[("b", &tensor("1"))], &[("conv", &inner)]));
    let names: Vec<String> = names(&named(&[("G", outer)])).into_iter().map(|(name, ..)| name).collect();
    assert_eq!(names, ["G.b", "G.conv.w"]);
}

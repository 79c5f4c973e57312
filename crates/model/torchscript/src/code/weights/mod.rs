//! Weights module: holds any checkpoint's tensors, and returns them by name from `forward`.
//!
//! The tensors are in nested modules, and also in a dict in which `forward` looks them up. So the size of the code does not
//! depend on the number of tensors, and any string can be a key.

mod text;

use std::collections::HashSet;
use tensor::{Dtype, Tensors};

use super::state_dict_tree::{self, OwnAttributes};
use crate::archive::ScriptArchive;
use crate::module_tree::AttributeValue;
use crate::{
    ERROR_OUTPUT, Module, ModuleCode, ModuleNote, ModuleOutputs, OnInvalidInput, OutputPorts, Result, export,
};

/// Makes a module that returns `tensors`: `forward({})` returns all of them, any other input the tensors that its keys name.
/// bool is returned as uint8; f16, bf16 and float8 as f32; complex numbers with a last dimension of 2.
///
/// # Errors
/// Returns an error if two tensors have one name, PyTorch's modules reserve a name, or TorchScript cannot express a tensor's
/// dtype or size, or the dtypes of tensors that share a storage.
pub fn weights_module(tensors: &Tensors, errors: OnInvalidInput) -> Result<Module> {
    let (archive, mut notes) = weights_archive(tensors, errors)?;
    notes.extend(name_notes(tensors));
    let outputs = ModuleOutputs(OutputPorts::Tensors);
    Ok(Module { archive, inputs: Vec::new(), outputs, notes, code: ModuleCode::Weights { why: None } })
}

/// Returns notes about names that Carton's client cannot tell apart from others, or cannot pass.
fn name_notes(tensors: &Tensors) -> impl Iterator<Item = ModuleNote> {
    let error = tensors.iter().any(|(name, _)| name == ERROR_OUTPUT);
    let error = error.then(|| ModuleNote::ErrorOutput { names: vec![ERROR_OUTPUT.to_owned()] });
    let names: Vec<String> =
        tensors.iter().filter(|(name, _)| name.contains('\0')).map(|(name, _)| name.clone()).collect();
    let visible = |name: &str| name.split('\0').next().unwrap_or_default().to_owned();
    let nul = (!names.is_empty()).then(|| {
        let mut seen = HashSet::new();
        let collide = tensors.iter().any(|(name, _)| !seen.insert(visible(name)));
        ModuleNote::NulNames { names, collide }
    });
    error.into_iter().chain(nul)
}

/// Class name of the weights module.
pub(super) const WEIGHTS_CLASS: &str = "Weights";

pub(super) fn weights_archive(
    tensors: &Tensors,
    errors: OnInvalidInput,
) -> Result<(ScriptArchive, Vec<ModuleNote>)> {
    tensors.iter().try_for_each(|(name, tensor)| export::tensor_port(name, tensor).map(drop))?;
    let index = vec![("__tensors__".to_owned(), AttributeValue::Tensors)];
    let has_float4 = tensors.iter().any(|(_, tensor)| tensor.dtype() == Dtype::Float4E2M1FnX2);
    state_dict_tree::state_dict_archive(
        tensors,
        WEIGHTS_CLASS,
        &text::methods(errors),
        &text::functions(has_float4),
        OwnAttributes { values: index, entry: None },
    )
}

#[cfg(test)]
mod tests {
    use tensor::{Storage, Tensor};

    use super::*;

    fn named(names: &[&str]) -> Tensors {
        let scalar = || {
            Tensor::new(Dtype::Int8, vec![], vec![], 0, Storage::owned(vec![1])).expect("1 byte is enough")
        };
        names.iter().map(|name| ((*name).to_owned(), scalar())).collect()
    }

    fn code(converted: &Module) -> String {
        String::from_utf8(converted.archive.code().to_vec()).expect("it was text")
    }

    #[test]
    fn a_module_of_very_many_members_has_a_note() {
        let wide = |count: usize| {
            let names: Vec<String> = (0..count).map(|number| format!("t{number}")).collect();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let made = weights_module(&named(&names), OnInvalidInput::Return).expect("plain names");
            made.notes.iter().find_map(|note| match note {
                ModuleNote::Wide { members } => Some(*members),
                _ => None,
            })
        };
        // The module has members of its own.
        let members = wide(20_000).expect("more than 20,000 members");
        assert!((20_001..20_010).contains(&members), "{members}");
        let own = members - 20_000;
        assert_eq!([wide(20_000 - own), wide(20_001 - own)], [None, Some(20_001)]);
    }

    #[test]
    fn own_tensors_come_before_submodules_and_equal_modules_are_one_class() {
        let converted =
            weights_module(&named(&["b.w", "a.w", "top", "c.x.w", "b.0"]), OnInvalidInput::Return)
                .expect("plain names");
        assert!(converted.notes.is_empty());
        let (classes, _) = code(&converted)
            .split_once("  def forward")
            .map(|(a, b)| (a.to_owned(), b.to_owned()))
            .expect("it has one");
        assert_eq!(
            classes,
            "class M0(Module):
  __parameters__ = [\"w\", ]
  __buffers__ = []
  w : Tensor
  training : bool
class M1(Module):
  __parameters__ = []
  __buffers__ = []
  x : __torch__.torch2carton.M0
  training : bool
class M2(Module):
  __parameters__ = [\"w\", \"0\", ]
  __buffers__ = []
  w : Tensor
  __annotations__[\"0\"] = Tensor
  training : bool
class Weights(Module):
  __parameters__ = [\"top\", ]
  __buffers__ = []
  top : Tensor
  b : __torch__.torch2carton.M2
  a : __torch__.torch2carton.M0
  c : __torch__.torch2carton.M1
  __annotations__[\"__tensors__\"] = Dict[str, Tensor]
  training : bool
"
        );
    }

    #[test]
    fn names_that_do_not_make_a_tree_are_flat_with_a_reason() {
        let deep = "a.".repeat(100_000) + "w";
        for (names, why) in [
            (vec!["a.b", "a"], "`a` is both a tensor and the prefix of `a.b`"),
            (vec!["x.a", "x.a.b.c"], "`x.a` is both a tensor and the prefix of `x.a.b.c`"),
            (vec!["forward.w"], "`forward.w` has a part that PyTorch's modules reserve"),
            (vec!["a.training"], "`a.training` has a part that PyTorch's modules reserve"),
            (vec!["a..b"], "`a..b` has an empty part"),
            (vec![deep.as_str()], "a name has 100000 dots"),
        ] {
            let converted = weights_module(&named(&names), OnInvalidInput::Return).expect("flat holds it");
            let [note] = converted.notes.as_slice() else { panic!("{names:?}: {:?}", converted.notes) };
            let text = note.to_string();
            assert!(text.starts_with(&format!("all tensors are in one module, because {why}; ")), "{text}");
            assert_eq!(code(&converted).matches("class ").count(), 1);
        }
    }

    #[test]
    fn reserved_names_are_rejected_and_harmless_ones_are_not() {
        for name in ["forward", "_modules", "__parameters__"] {
            let error = weights_module(&named(&["a.b", name]), OnInvalidInput::Return)
                .expect_err("reserved")
                .to_string();
            assert_eq!(error, format!("tensor `{name}`: TorchScript or PyTorch's modules reserve this name"));
        }
        for name in
            ["", "a.", "a.forward", "_parameters", "class", "self.torch", "__tensors__", "__tensors__.w"]
        {
            let converted = weights_module(&named(&[name]), OnInvalidInput::Return).expect(name);
            assert!(converted.notes.is_empty(), "{:?}", converted.notes);
        }
        let index =
            code(&weights_module(&named(&["__tensors__"]), OnInvalidInput::Return).expect("another index"));
        assert!(index.contains("index = self.__tensors___\n"), "{index}");
        // In a flat module, the item `w` of the index has the same path as the last tensor.
        let flat = weights_module(&named(&["a", "a.b", "w", "__tensors__.w"]), OnInvalidInput::Return)
            .expect("another index");
        assert!(code(&flat).contains("index = self.__tensors___\n"), "{}", code(&flat));
        let training =
            weights_module(&named(&["training"]), OnInvalidInput::Return).expect("eval() is the user's");
        assert_eq!(training.notes, [ModuleNote::Training]);
        assert_eq!(code(&training).matches("training : ").count(), 1);
    }

    #[test]
    fn what_torchscript_cannot_express_is_an_error() {
        let error = |tensors: &Tensors| {
            weights_module(tensors, OnInvalidInput::Return).expect_err("wrong").to_string()
        };
        assert_eq!(error(&named(&["a", "b", "a"])), "two tensors have the name `a`");
        let storage = Storage::owned(vec![0; 8]);
        let view = |dtype, shape: u64, offset| {
            Tensor::new(dtype, vec![shape], vec![1], offset, storage.clone()).expect("8 bytes are enough")
        };
        let (a, b) = ("a".to_owned(), "b".to_owned());
        assert_eq!(
            error(&Tensors::from(
                [(a.clone(), view(Dtype::Float32, 2, 0)), (b, view(Dtype::Int32, 1, 1))].to_vec()
            )),
            "tensors `a` (float32) and `b` (int32) share a storage, but a TorchScript storage has one dtype"
        );
        assert_eq!(
            error(&Tensors::from([(a.clone(), view(Dtype::QInt8, 4, 0))].to_vec())),
            "tensor `a`: qint8 cannot be a Carton output and has no conversion"
        );
        let newer = [(a.clone(), view(Dtype::UInt16, 4, 0))];
        assert!(weights_module(&newer.to_vec().into(), OnInvalidInput::Return).is_ok());
        assert_eq!(
            crate::check_loads_in_2_0(&newer.to_vec().into()).expect_err("2.0.1 has no uint16").to_string(),
            "tensor `a`: PyTorch 2.0, which Carton runs, cannot load uint16"
        );
        assert!(crate::check_loads_in_2_0(&named(&["a"])).is_ok());
        assert_eq!(
            error(&Tensors::from([(a, view(Dtype::Float32, 0, 3))].to_vec())),
            "tensor `a`: starts at element 3 of its storage, which has 2"
        );
    }

    #[test]
    fn names_that_carton_cannot_pass_are_noted() {
        let notes = |names: &[&str]| -> Vec<String> {
            let converted = weights_module(&named(names), OnInvalidInput::Return).expect("plain names");
            converted.notes.iter().map(ToString::to_string).collect()
        };
        assert_eq!(
            notes(&["error", "errors"]),
            ["an error message has the name `error` too: look at the type of the output `error`"]
        );
        let text = "Carton ends names at the first NUL, and its runner ends if an input has such a name: tensor `a\\0b`";
        assert_eq!(notes(&["a\0b", "b"]), [text]);
        assert_eq!(
            notes(&["a\0b", "a"]),
            [format!("{text}; two tensors then have the same name, and one is lost")]
        );
    }

    #[test]
    fn outputs_are_of_types_that_carton_has() {
        let storage = Storage::owned(vec![0; 16]);
        let port = |dtype| {
            let tensor =
                Tensor::new(dtype, vec![1], vec![1], 0, storage.clone()).expect("16 bytes are enough");
            let tensors = [("a".to_owned(), tensor)];
            let converted =
                weights_module(&tensors.to_vec().into(), OnInvalidInput::Return).expect("a dtype of 2.15");
            converted
                .outputs
                .ports(&tensors.to_vec().into())
                .next()
                .map(|port| (port.dtype, port.shape.len(), port.description))
        };
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(port(Dtype::Float64), Some((Dtype::Float64, 1, None)));
        assert_eq!(port(Dtype::BFloat16), Some((Dtype::Float32, 1, text("bfloat16 in the checkpoint"))));
        assert_eq!(port(Dtype::UInt32), Some((Dtype::UInt32, 1, None)));
        let bytes = text("float4_e2m1fn_x2 in the checkpoint");
        assert_eq!(port(Dtype::Float4E2M1FnX2), Some((Dtype::UInt8, 1, bytes)));
        assert_eq!(port(Dtype::Bool), Some((Dtype::UInt8, 1, text("bool in the checkpoint"))));
        let pairs = text("complex128 in the checkpoint, as real and imaginary parts");
        assert_eq!(port(Dtype::Complex128), Some((Dtype::Float64, 2, pairs)));
    }
}

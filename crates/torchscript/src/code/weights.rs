//! The bag of weights: any checkpoint's tensors, and a `forward` that hands them out by name.
//!
//! The tensors hang in nested modules, so that `state_dict()` names them as the checkpoint does, and once
//! more in a dict that `forward` looks them up in: the code's size does not depend on their number, and
//! any string can be a key. Names that no tree of modules can hold make the module flat: one class whose
//! attributes have dots in their names. Which names those are was found by trying all attributes of
//! `nn.Module` and `ScriptModule`, and Python's and TorchScript's words, in PyTorch 2.0.1 and 2.15, as
//! tensors and as submodules, at the root and below.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use tensor::Tensor;

use crate::archive::Archive;
use crate::module::{ModuleId, TensorId, Tree, Value};
use crate::{Converted, Error, Kind, Result, export};

/// Tensors of these names break the module they stand in: PyTorch 2.0.1 crashes on the first four.
const NO_TENSOR: &[&str] = &[
    "__buffers__",
    "__forward_hooks__",
    "__forward_pre_hooks__",
    "__parameters__",
    "_buffers",
    "_initializing",
    "_modules",
];

/// Submodules of these names break the module they stand in, beside those of [`NO_TENSOR`].
const NO_SUBMODULE: &[&str] = &[
    // `named_parameters` finds no name between two dots.
    "",
    "_backward_hooks",
    "_backward_pre_hooks",
    "_c",
    "_concrete_type",
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
    "_load_state_dict_post_hooks",
    "_load_state_dict_pre_hooks",
    "_non_persistent_buffers_set",
    "_parameters",
    "_state_dict_hooks",
    "_state_dict_pre_hooks",
    FORWARD_NAME,
];

/// The method that Carton's runner calls.
const FORWARD_NAME: &str = "forward";

/// `eval()` and `train()` set this attribute.
const TRAINING: &str = "training";

/// More submodules inside each other than this make the module flat. `torch.jit.load` recurses: it gave up
/// between 300 and 400, with Python's limit of 1000 frames and none of them in use.
const DEPTH: usize = 100;

/// PyTorch compares each attribute's name with all others of its class (`ClassType::checkNotExist`): 20,000
/// take a second or two, 100,000 a minute in 2.0.1 and half of one in 2.15.
const WIDE: usize = 20_000;

/// A module that hands `tensors` out: `forward({})` returns all of them, otherwise those that the keys of
/// its input name. bool comes as uint8, f16 and bf16 as f32, complex numbers with a last dimension of 2.
///
/// # Errors
/// When two tensors have one name, a name is one that PyTorch's modules use themselves, or a tensor has a
/// dtype, a size or a neighbour in its storage that TorchScript cannot express.
pub fn weights<'a>(tensors: &[(String, Tensor<'a>)]) -> Result<Converted<'a>> {
    let outputs = tensors.iter().map(|(name, tensor)| export::port(name, tensor)).collect::<Result<_>>()?;
    let mut notes = Vec::new();
    for (name, _) in tensors {
        // No dot that could hide them.
        if name == FORWARD_NAME || NO_TENSOR.contains(&name.as_str()) {
            return Err(Error::Reserved { name: name.clone() });
        }
        if name == TRAINING {
            notes.push("a tensor is called `training`: eval() and train() fail on the module".to_owned());
        }
    }
    let mut tree = Tree::default();
    let root = match Nested::of(tensors)? {
        Ok(nested) => nested.add_to(&mut tree),
        Err(reason) => {
            notes.push(format!(
                "the module is flat, because {reason}: one class, dots in its attributes' names, and \
                 load_state_dict needs strict=False"
            ));
            flat(&mut tree, tensors)
        }
    };
    if tree.widest() > WIDE {
        notes.push(format!(
            "one module has {} members: the time that PyTorch takes to load it grows with their square",
            tree.widest()
        ));
    }
    tree.functions(EXPORT);
    let archive = Archive::new(&tree, root, tensors)?;
    notes.extend(archive.left_behind());
    Ok(Converted { archive, inputs: Vec::new(), outputs, notes, kind: Kind::Weights })
}

/// The root module: `attributes` and what `forward` needs.
fn root(tree: &mut Tree, mut attributes: Vec<(String, Value)>) -> ModuleId {
    let mut index = "__tensors__".to_owned();
    while attributes.iter().any(|(name, _)| *name == index) {
        index.push('_');
    }
    let methods = FORWARD.replace("{index}", &index);
    attributes.push((index, Value::Tensors));
    if attributes.iter().all(|(name, _)| name != TRAINING) {
        attributes.push((TRAINING.to_owned(), Value::Bool(false)));
    }
    tree.add(Some("Weights"), &methods, attributes)
}

/// One module for all tensors, in their order.
fn flat(tree: &mut Tree, tensors: &[(String, Tensor<'_>)]) -> ModuleId {
    let attribute = |(i, (name, _)): (usize, &(String, _))| (name.clone(), Value::Parameter(TensorId(i)));
    let attributes = tensors.iter().enumerate().map(attribute).collect();
    root(tree, attributes)
}

/// A tensor, or a module by its number.
#[derive(Clone, Copy)]
enum Member {
    Tensor(TensorId),
    Module(usize),
}

/// The names as a tree of modules; the root is number 0, and each module has a lower number than those in it.
struct Nested<'n> {
    /// By module, its members in the order in which the names bring them up.
    modules: Vec<Vec<(&'n str, Member)>>,
}

impl<'n> Nested<'n> {
    /// The tree, or why there is none.
    fn of(tensors: &'n [(String, Tensor<'_>)]) -> Result<Result<Self, String>> {
        let mut all = HashSet::with_capacity(tensors.len());
        let twice = tensors.iter().find(|(name, _)| !all.insert(name.as_str()));
        if let Some((name, _)) = twice {
            return Err(Error::Duplicate { name: name.clone() });
        }
        let mut modules = vec![Vec::new()];
        let mut known: HashMap<(usize, &str), Member> = HashMap::new();
        for (i, (name, _)) in tensors.iter().enumerate() {
            if let Some(reason) = refusal(name) {
                return Ok(Err(reason));
            }
            let (path, leaf) =
                name.rsplit_once('.').map_or((None, name.as_str()), |(path, leaf)| (Some(path), leaf));
            let mut at = 0;
            for part in path.into_iter().flat_map(|path| path.split('.')) {
                let next = modules.len();
                let member = match known.entry((at, part)) {
                    Entry::Occupied(entry) => *entry.get(),
                    Entry::Vacant(entry) => {
                        let member = *entry.insert(Member::Module(next));
                        modules.push(Vec::new());
                        join(&mut modules, at, part, member);
                        member
                    }
                };
                match member {
                    Member::Module(module) => at = module,
                    Member::Tensor(TensorId(other)) => return Ok(Err(prefix(tensors, other, name))),
                }
            }
            let member = Member::Tensor(TensorId(i));
            if known.insert((at, leaf), member).is_some() {
                let longer = tensors.iter().find(|(other, _)| {
                    other.strip_prefix(name.as_str()).is_some_and(|rest| rest.starts_with('.'))
                });
                return Ok(Err(prefix(tensors, i, longer.map_or(name, |(other, _)| other))));
            }
            join(&mut modules, at, leaf, member);
        }
        Ok(Ok(Self { modules }))
    }

    fn add_to(self, tree: &mut Tree) -> ModuleId {
        // Inner modules have higher numbers, so backwards each finds its submodules added.
        let mut added: HashMap<usize, ModuleId> = HashMap::with_capacity(self.modules.len());
        let mut outermost = Vec::new();
        for (number, members) in self.modules.into_iter().enumerate().rev() {
            // The order of state_dict(): a module's own tensors, then its submodules'.
            let own = members.iter().filter_map(|(name, member)| match member {
                Member::Tensor(id) => Some(((*name).to_owned(), Value::Parameter(*id))),
                Member::Module(_) => None,
            });
            let inner = members.iter().filter_map(|(name, member)| match member {
                Member::Module(number) => {
                    added.get(number).map(|id| ((*name).to_owned(), Value::Module(*id)))
                }
                Member::Tensor(_) => None,
            });
            let mut attributes: Vec<_> = own.chain(inner).collect();
            if number == 0 {
                outermost = attributes;
                break;
            }
            attributes.push((TRAINING.to_owned(), Value::Bool(false)));
            added.insert(number, tree.add(None, "", attributes));
        }
        root(tree, outermost)
    }
}

fn join<'n>(modules: &mut [Vec<(&'n str, Member)>], at: usize, name: &'n str, member: Member) {
    modules.get_mut(at).expect("modules are numbered as they are pushed").push((name, member));
}

fn prefix(tensors: &[(String, Tensor<'_>)], shorter: usize, longer: &str) -> String {
    let shorter = tensors.get(shorter).map_or("", |(name, _)| name);
    format!("`{}` is a tensor and the beginning of `{}`", shorter.escape_debug(), longer.escape_debug())
}

/// Why `name` cannot stand in a tree of modules, whatever the other names are.
fn refusal(name: &str) -> Option<String> {
    let (path, leaf) = name.rsplit_once('.')?;
    let reserved = path
        .split('.')
        .find(|part| NO_SUBMODULE.contains(part) || NO_TENSOR.contains(part) || *part == TRAINING)
        .or_else(|| (NO_TENSOR.contains(&leaf) || leaf == TRAINING).then_some(leaf));
    if let Some(part) = reserved {
        let what = if part.is_empty() {
            "has an empty part"
        } else {
            "has a part that PyTorch's modules use themselves"
        };
        return Some(format!("`{}` {what}", name.escape_debug()));
    }
    let depth = path.split('.').count();
    (depth > DEPTH).then(|| format!("a name has {depth} dots"))
}

/// Carton's runner calls this with gradients on and a dict of its inputs.
const FORWARD: &str = r"  def forward(self: Self,
    inputs: Dict[str, Tensor]) -> Dict[str, Tensor]:
    index = self.{index}
    out = annotate(Dict[str, Tensor], {})
    if torch.eq(torch.len(inputs), 0):
      names = torch.keys(index)
    else:
      names = torch.keys(inputs)
    for i in range(torch.len(names)):
      name = names[i]
      torch._set_item(out, name, {ns}.export(index[name]))
    return out
";

/// Numbers are `c10::ScalarType`s: 0 uint8, 6 f32, 7 f64, 8 complex of f16, 9 complex of f32, 11 bool. The
/// same in Rust is `crate::export`.
const EXPORT: &str = r"def export(t: Tensor) -> Tensor:
  d = ops.prim.dtype(t)
  if torch.is_complex(t):
    if torch.eq(d, 8):
      r = torch.view_as_real(torch.to(t, 9))
    else:
      r = torch.view_as_real(torch.resolve_conj(t))
  else:
    if torch.eq(d, 11):
      r = torch.to(t, 0)
    else:
      if torch.is_floating_point(t):
        if torch.eq(d, 7):
          r = t
        else:
          r = torch.to(t, 6)
      else:
        r = t
  return torch.contiguous(r)
";

#[cfg(test)]
mod tests {
    use tensor::{Dtype, Storage};

    use super::*;

    fn named(names: &[&str]) -> Vec<(String, Tensor<'static>)> {
        let scalar = || {
            Tensor::new(Dtype::Int8, vec![], vec![], 0, Storage::owned(vec![1])).expect("1 byte is enough")
        };
        names.iter().map(|name| ((*name).to_owned(), scalar())).collect()
    }

    fn code(converted: &Converted<'_>) -> String {
        String::from_utf8(converted.archive.code().to_vec()).expect("it was text")
    }

    #[test]
    fn own_tensors_come_before_submodules_and_equal_modules_are_one_class() {
        let converted = weights(&named(&["b.w", "a.w", "top", "c.x.w", "b.0"])).expect("plain names");
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
    fn what_no_tree_holds_is_flat_and_says_why() {
        let deep = "a.".repeat(100_000) + "w";
        for (names, why) in [
            (vec!["a.b", "a"], "`a` is a tensor and the beginning of `a.b`"),
            (vec!["x.a", "x.a.b.c"], "`x.a` is a tensor and the beginning of `x.a.b.c`"),
            (vec!["forward.w"], "`forward.w` has a part that PyTorch's modules use themselves"),
            (vec!["a.training"], "`a.training` has a part that PyTorch's modules use themselves"),
            (vec!["a..b"], "`a..b` has an empty part"),
            (vec![deep.as_str()], "a name has 100000 dots"),
        ] {
            let converted = weights(&named(&names)).expect("flat holds it");
            let [note] = converted.notes.as_slice() else { panic!("{names:?}: {:?}", converted.notes) };
            assert!(note.starts_with(&format!("the module is flat, because {why}: ")), "{note}");
            assert_eq!(code(&converted).matches("class ").count(), 1);
        }
    }

    #[test]
    fn reserved_names_are_refused_and_harmless_ones_are_not() {
        for name in ["forward", "_modules", "__parameters__"] {
            let error = weights(&named(&["a.b", name])).expect_err("reserved").to_string();
            assert_eq!(
                error,
                format!("tensor `{name}`: TorchScript or PyTorch's modules use this name themselves")
            );
        }
        for name in
            ["", "a.", "a.forward", "_parameters", "class", "self.torch", "__tensors__", "__tensors__.w"]
        {
            let converted = weights(&named(&[name])).expect(name);
            assert!(converted.notes.is_empty(), "{:?}", converted.notes);
        }
        let index = code(&weights(&named(&["__tensors__"])).expect("another index"));
        assert!(index.contains("index = self.__tensors___\n"), "{index}");
        let training = weights(&named(&["training"])).expect("eval() is the user's");
        assert_eq!(training.notes, ["a tensor is called `training`: eval() and train() fail on the module"]);
        assert_eq!(code(&training).matches("training : ").count(), 1);
    }

    #[test]
    fn what_torchscript_cannot_express_is_an_error() {
        let error = |tensors: &[(String, Tensor<'_>)]| weights(tensors).expect_err("wrong").to_string();
        assert_eq!(error(&named(&["a", "b", "a"])), "two tensors are called `a`");
        let storage = Storage::owned(vec![0; 8]);
        let view = |dtype, shape: u64, offset| {
            Tensor::new(dtype, vec![shape], vec![1], offset, storage.clone()).expect("8 bytes are enough")
        };
        let (a, b) = ("a".to_owned(), "b".to_owned());
        assert_eq!(
            error(&[(a.clone(), view(Dtype::Float32, 2, 0)), (b, view(Dtype::Int32, 1, 1))]),
            "tensors `a` (float32) and `b` (int32) share a storage: TorchScript gives a storage one dtype"
        );
        assert_eq!(
            error(&[(a.clone(), view(Dtype::UInt16, 4, 0))]),
            "tensor `a`: uint16 cannot be written for PyTorch 2.0, which Carton runs"
        );
        assert_eq!(
            error(&[(a, view(Dtype::Float32, 0, 3))]),
            "tensor `a`: starts at element 3 of its storage, which has 2"
        );
    }

    #[test]
    fn outputs_are_of_types_that_carton_has() {
        let storage = Storage::owned(vec![0; 16]);
        let port = |dtype| {
            let tensor =
                Tensor::new(dtype, vec![1], vec![1], 0, storage.clone()).expect("16 bytes are enough");
            let converted = weights(&[("a".to_owned(), tensor)]).expect("a dtype of 2.0");
            converted.outputs.into_iter().next().map(|port| (port.dtype, port.shape.len(), port.description))
        };
        let said = |text: &str| Some(text.to_owned());
        assert_eq!(port(Dtype::Float64), Some((Dtype::Float64, 1, None)));
        assert_eq!(port(Dtype::BFloat16), Some((Dtype::Float32, 1, said("bfloat16 in the checkpoint"))));
        assert_eq!(port(Dtype::Bool), Some((Dtype::UInt8, 1, said("bool in the checkpoint"))));
        let pairs = said("complex128 in the checkpoint, as real and imaginary parts");
        assert_eq!(port(Dtype::Complex128), Some((Dtype::Float64, 2, pairs)));
    }
}

//! Tree of nested modules that holds a checkpoint's tensors, so that `state_dict()` has the checkpoint's names.
//!
//! Names that a tree of modules cannot hold make the module flat: one class whose attributes have dots in their names. These
//! names were found by trying all attributes of `nn.Module` and `ScriptModule`, and the keywords of Python and TorchScript,
//! in PyTorch 2.0.1 and 2.15, as tensors and as submodules, at the root and below.

use std::borrow::Cow;
use std::hash::BuildHasher;

use foldhash::HashSet;
use foldhash::fast::RandomState;
use hashbrown::HashTable;
use tensor::Tensors;

use crate::archive::ScriptArchive;
use crate::module_tree::{AttributeValue, ModuleId, ModuleTree, TensorId};
use crate::{FlatReason, ModuleNote, Problem, Result};

/// Names of tensors that break the module which holds them: PyTorch 2.0.1 crashes on the first four.
const RESERVED_TENSOR_NAMES: &[&str] = &[
    "__buffers__",
    "__forward_hooks__",
    "__forward_pre_hooks__",
    "__parameters__",
    "_buffers",
    "_initializing",
    "_modules",
];

/// Names of submodules that, like the names in [`RESERVED_TENSOR_NAMES`], break the module which holds them.
const RESERVED_SUBMODULE_NAMES: &[&str] = &[
    // `named_parameters` does not find an empty name between two dots.
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

/// Name of the method that Carton's runner calls.
const FORWARD_NAME: &str = "forward";

/// Name of the attribute that `eval()` and `train()` set.
const TRAINING: &str = "training";

/// Maximum depth of nested submodules; deeper names make the module flat. `torch.jit.load` recurses: it failed between 300
/// and 400 levels, with Python's limit of 1000 frames and none of them in use.
const NESTED_DEPTH_MAX: usize = 100;

/// Number of members of a class above which a note is added. PyTorch compares each attribute's name with all others of its
/// class (`ClassType::checkNotExist`): 20,000 take a second or two, 100,000 a minute in 2.0.1 and half a minute in 2.15.
const SLOW_MEMBER_COUNT: usize = 20_000;

pub(super) struct OwnAttributes {
    pub(super) values: Vec<(String, AttributeValue)>,
    /// Class and methods of the object that Python calls, if there is one.
    pub(super) entry: Option<(&'static str, String)>,
}

/// Makes the archive of a root module that holds `tensors` under their names, runs `methods`, and has the additional
/// attributes `own`; returns it with notes. In `methods`, `{_}` stands for the suffix of the names of `own`, by which they
/// differ from the tensors' names; free `functions` follow the classes. The object that Python calls has the same
/// additional attributes. It is in the attribute `forward`, a name that no tensor or submodule has: Python calls it, because
/// `ScriptModule.__getattr__` looks for submodules before methods.
///
/// # Errors
/// Returns an error if two tensors have one name, PyTorch's modules reserve a name, or TorchScript cannot express a tensor.
pub(super) fn state_dict_archive(
    tensors: &Tensors,
    class: &'static str,
    methods: &str,
    functions: &str,
    OwnAttributes { values: own, entry }: OwnAttributes,
) -> Result<(ScriptArchive, Vec<ModuleNote>)> {
    let mut notes = Vec::new();
    for (name, _) in tensors {
        // A name without a dot cannot be hidden in a flat module.
        if name == FORWARD_NAME || RESERVED_TENSOR_NAMES.contains(&name.as_str()) {
            return Err(Problem::Reserved { name: name.clone() }.into());
        }
        if name == TRAINING {
            notes.push(ModuleNote::Training);
        }
    }
    let mut tree = ModuleTree::default();
    let mut members = match arrange(tensors)? {
        Arrangement::Nested(nested) => nested.add_to(&mut tree),
        Arrangement::Flat(why) => {
            notes.push(ModuleNote::Flat { why });
            let names = tensors.iter().map(|(name, _)| Cow::from(name)).enumerate();
            names.map(|(i, name)| (name, AttributeValue::Parameter(TensorId(i)))).collect()
        }
    };
    // A flat module has dots in its names: the tensor `own.a` and the item `a` of `own` would have the same path.
    let first =
        |name: &'_ (Cow<'_, str>, AttributeValue)| name.0.split('.').next().unwrap_or_default().to_owned();
    let taken: HashSet<String> = members.iter().map(first).collect();
    let mut end = String::new();
    while own.iter().any(|(name, _)| taken.contains(format!("{name}{end}").as_str())) {
        end.push('_');
    }
    let training = !taken.contains(TRAINING);
    if let Some((class, methods)) = entry {
        let mut attributes: Vec<(Cow<'_, str>, AttributeValue)> =
            own.iter().map(|(name, value)| (name.clone().into(), value.clone())).collect();
        attributes.push((TRAINING.into(), AttributeValue::Bool(false)));
        let entry = tree.add(Some(class), &methods.replace("{_}", ""), attributes);
        members.push((FORWARD_NAME.into(), AttributeValue::Module(entry)));
    }
    members.extend(own.into_iter().map(|(name, value)| (format!("{name}{end}").into(), value)));
    if training {
        members.push((TRAINING.into(), AttributeValue::Bool(false)));
    }
    let root = tree.add(Some(class), &methods.replace("{_}", &end), members);
    if tree.attribute_count_max() > SLOW_MEMBER_COUNT {
        notes.push(ModuleNote::Wide { members: tree.attribute_count_max() });
    }
    tree.add_functions(functions);
    let archive = ScriptArchive::new(tree, root, tensors)?;
    notes.extend(archive.cut_storages());
    Ok((archive, notes))
}

/// Arrangement of tensors in modules: a tree, or one flat module.
enum Arrangement<'n> {
    Nested(NameTree<'n>),
    Flat(FlatReason),
}

/// Member of a module: a tensor, or a submodule by its index.
#[derive(Clone, Copy)]
enum TreeMember {
    Tensor(TensorId),
    Module(usize),
}

/// Named member, with the module that holds it.
struct PlacedMember<'n> {
    /// Index of the module that holds the member.
    module: usize,
    name: &'n str,
    member: TreeMember,
}

/// Tree of modules, split from tensor names. The root has index 0, and each module has a lower index than its submodules.
///
/// A million tensors may be in a million modules, so one list and one table hold all of them.
#[derive(Default)]
struct NameTree<'n> {
    /// Members of all modules, in the order of the tensor names.
    members: Vec<PlacedMember<'n>>,
    /// Indices in `members`, by the hash of module index and name.
    places: HashTable<usize>,
    state: RandomState,
}

impl<'n> NameTree<'n> {
    /// Returns the member `name` of a module; without one, adds `new` and returns `None`.
    fn find_or_add(&mut self, module: usize, name: &'n str, new: TreeMember) -> Option<TreeMember> {
        let Self { members, places, state } = self;
        let hash = state.hash_one((module, name));
        let is_it = |placed: &PlacedMember<'n>| placed.module == module && placed.name == name;
        let found = places.find(hash, |place| members.get(*place).is_some_and(is_it));
        if let Some(place) = found {
            return members.get(*place).map(|placed| placed.member);
        }
        let rehash = |place: &usize| {
            members.get(*place).map_or(hash, |placed| state.hash_one((placed.module, placed.name)))
        };
        places.insert_unique(hash, members.len(), rehash);
        members.push(PlacedMember { module, name, member: new });
        None
    }
}

/// Arranges the tensors in a tree of modules, or returns the reason why they must be flat. Fails if two tensors have one
/// name.
fn arrange(tensors: &Tensors) -> Result<Arrangement<'_>> {
    let arrangement = build_name_tree(tensors);
    // Tensors with equal names never form a tree, so only flat arrangements are checked for duplicates.
    if matches!(arrangement, Arrangement::Flat(_))
        && let Some(name) = tensors.duplicate_name()
    {
        return Err(Problem::Duplicate { name: name.to_owned() }.into());
    }
    Ok(arrangement)
}

/// Builds the tree of modules from the tensor names, if each name has a place of its own.
fn build_name_tree(tensors: &Tensors) -> Arrangement<'_> {
    let mut nested = NameTree::default();
    let mut modules = 1_usize;
    for (i, (name, _)) in tensors.iter().enumerate() {
        if let Some(why) = flat_reason(name) {
            return Arrangement::Flat(why);
        }
        let (path, leaf) =
            name.rsplit_once('.').map_or((None, name.as_str()), |(path, leaf)| (Some(path), leaf));
        let mut at = 0;
        for part in path.into_iter().flat_map(|path| path.split('.')) {
            at = match nested.find_or_add(at, part, TreeMember::Module(modules)) {
                Some(TreeMember::Module(module)) => module,
                Some(TreeMember::Tensor(TensorId(other))) => {
                    return Arrangement::Flat(tensor_and_module(tensors, other, name));
                }
                None => {
                    let new = modules;
                    modules = modules.saturating_add(1);
                    new
                }
            };
        }
        if nested.find_or_add(at, leaf, TreeMember::Tensor(TensorId(i))).is_some() {
            let longer = tensors.iter().find(|(other, _)| {
                other.strip_prefix(name.as_str()).is_some_and(|rest| rest.starts_with('.'))
            });
            let longer = longer.map_or(name, |(other, _)| other);
            return Arrangement::Flat(tensor_and_module(tensors, i, longer));
        }
    }
    Arrangement::Nested(nested)
}

impl<'n> NameTree<'n> {
    /// Adds the modules below the root to `tree`, and returns the root's members.
    fn add_to(self, tree: &mut ModuleTree<'n>) -> Vec<(Cow<'n, str>, AttributeValue)> {
        let Self { mut members, .. } = self;
        // The stable sort keeps the order of each module's members.
        members.sort_by_key(|placed| placed.module);
        let modules = members.last().map_or(1, |last| last.module.saturating_add(1));
        let mut added: Vec<Option<ModuleId>> = vec![None; modules];
        // Submodules have higher indices than their parents, so in reverse order they are added first.
        for members in members.chunk_by(|first, second| first.module == second.module).rev() {
            let number = members.first().map_or(0, |first| first.module);
            // The order of `state_dict()`: a module's own tensors, then those of its submodules.
            let own = members.iter().filter_map(|PlacedMember { name, member, .. }| match member {
                TreeMember::Tensor(id) => Some(((*name).into(), AttributeValue::Parameter(*id))),
                TreeMember::Module(_) => None,
            });
            let inner = members.iter().filter_map(|PlacedMember { name, member, .. }| match member {
                TreeMember::Module(number) => {
                    let id = added.get(*number).copied().flatten();
                    id.map(|id| ((*name).into(), AttributeValue::Module(id)))
                }
                TreeMember::Tensor(_) => None,
            });
            let mut attributes: Vec<_> = own.chain(inner).collect();
            if number == 0 {
                return attributes;
            }
            attributes.push((TRAINING.into(), AttributeValue::Bool(false)));
            if let Some(added) = added.get_mut(number) {
                *added = Some(tree.add(None, "", attributes));
            }
        }
        Vec::new()
    }
}

fn tensor_and_module(tensors: &Tensors, shorter: usize, longer: &str) -> FlatReason {
    let tensor = tensors.get_index(shorter).map_or("", |(name, _)| name).to_owned();
    FlatReason::TensorAndModule { tensor, member: longer.to_owned() }
}

/// Returns the reason why `name` alone prevents a tree of modules, if there is one.
fn flat_reason(name: &str) -> Option<FlatReason> {
    let (path, leaf) = name.rsplit_once('.')?;
    let reserved = path
        .split('.')
        .find(|part| {
            RESERVED_SUBMODULE_NAMES.contains(part)
                || RESERVED_TENSOR_NAMES.contains(part)
                || *part == TRAINING
        })
        .or_else(|| (RESERVED_TENSOR_NAMES.contains(&leaf) || leaf == TRAINING).then_some(leaf));
    if let Some(part) = reserved {
        let name = name.to_owned();
        return Some(if part.is_empty() {
            FlatReason::EmptyPart { name }
        } else {
            FlatReason::ReservedPart { name }
        });
    }
    let dots = path.split('.').count();
    (dots > NESTED_DEPTH_MAX).then_some(FlatReason::Deep { dots })
}

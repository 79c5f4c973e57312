//! Judges the arguments of reviewed calls.

use pickle_vm::{Instance, Object, ObjectId};

use super::analysis::Analysis;
use super::callee::{Callee, Package};
use super::level::Level;
use super::states;
use crate::encoded::LOAD_FROM_BYTES;
use crate::judged_calls;
use crate::lists::{self, ArgumentRule, ClassTraits};

/// Types whose constructors `copyreg._reconstructor` calls.
const BUILTIN_TYPES: [&str; 12] = [
    "object",
    "dict",
    "list",
    "tuple",
    "set",
    "frozenset",
    "int",
    "float",
    "complex",
    "str",
    "bytes",
    "bytearray",
];

impl Analysis<'_, '_> {
    pub(super) fn may_create(
        &mut self,
        traits: ClassTraits,
        args: &[ObjectId],
        kwargs: Option<ObjectId>,
    ) -> bool {
        // Some constructors in C have hidden keywords: `torch.Tensor(cdata=…)` takes an address.
        if kwargs.is_some_and(|kwargs| self.heap.entries(kwargs).is_none_or(|entries| !entries.is_empty())) {
            return false;
        }
        if traits.has(ClassTraits::CREATED_WITH_ANY) {
            return true;
        }
        traits.has(ClassTraits::CREATED) && args.iter().all(|arg| self.level(*arg) <= Level::Named)
    }

    pub(super) fn may_call(&mut self, callee: Callee, args: &[ObjectId]) -> bool {
        if let Some(rules) = rules_of(callee) {
            return self.all_fit(rules, args) && self.applied_fit(rules, args);
        }
        if callee.traits.has(ClassTraits::ENUMERATION) {
            return matches!(args, [value] if self.level(*value) == Level::Data);
        }
        callee.traits.has(ClassTraits::EXCEPTION) && args.iter().all(|arg| self.level(*arg) <= Level::Named)
    }

    pub(super) fn all_fit(&mut self, rules: &[ArgumentRule], args: &[ObjectId]) -> bool {
        let mut rules = rules.iter().copied();
        let mut rule = rules.next();
        args.iter().all(|arg| {
            let fits = rule.is_some_and(|rule| self.fits(rule, *arg));
            rule = rules.next().or(rule);
            fits
        })
    }

    /// Returns true if the arguments that a function passes to another one fit that one.
    pub(super) fn applied_fit(&mut self, rules: &[ArgumentRule], args: &[ObjectId]) -> bool {
        let place = |rule| {
            let at = rules.iter().position(|found| *found == rule)?;
            args.get(at).copied()
        };
        let Some(function) = place(ArgumentRule::Function).and_then(|id| self.callee(id)) else {
            return true;
        };
        let applied = place(ArgumentRule::Applied).and_then(|id| self.heap.items(id));
        match (rules_of(function), applied) {
            (Some(rules), Some(applied)) => {
                // The caller calls methods of what comes back, such as `as_subclass`.
                let first = rules.iter().position(|rule| *rule == ArgumentRule::Attributes);
                let mut states = applied.iter().skip(first.unwrap_or(applied.len()));
                self.all_fit(rules, applied) && !states.any(|state| self.sets_callable(*state))
            }
            _ => function.package == Package::Other,
        }
    }

    pub(super) fn fits(&mut self, rule: ArgumentRule, arg: ObjectId) -> bool {
        let heap = self.heap;
        match rule {
            ArgumentRule::Any => true,
            ArgumentRule::Plain => {
                let items = heap.items(arg).unwrap_or_default();
                self.spend(items.len())
                    && [arg].iter().chain(items).all(|part| match heap.get(*part) {
                        Object::ByteArray(_) => true,
                        Object::Tuple(_) | Object::List(_) => *part == arg,
                        _ => judged_calls::is_plain(heap, *part),
                    })
            }
            ArgumentRule::Data => self.level(arg) == Level::Data,
            ArgumentRule::Named => self.level(arg) <= Level::Named,
            ArgumentRule::Pairs => self.level(arg) <= Level::Named || self.is_list_of_pairs(arg),
            ArgumentRule::Text => heap.is_none(arg) || heap.text(arg).is_some(),
            ArgumentRule::Class => self.callee(arg).is_some_and(|class| {
                class.package != Package::Core
                    || [ClassTraits::CREATED, ClassTraits::CREATED_WITH_ANY, ClassTraits::MADE_BY_FUNCTIONS]
                        .into_iter()
                        .any(|judged| class.traits.has(judged))
            }),
            ArgumentRule::NewClass => self.callee(arg).is_some_and(|class| {
                class.package != Package::Core
                    || class.traits.has(ClassTraits::CREATED)
                    || class.traits.has(ClassTraits::CREATED_WITH_ANY)
            }),
            ArgumentRule::BuiltinType => heap.global(arg).is_some_and(|(module, name)| {
                let (module, name) = lists::resolve_alias(module, name).unwrap_or((module, name));
                module == "builtins" && BUILTIN_TYPES.contains(&name)
            }),
            // What others return, such as a dict, would get attributes that replace its methods.
            ArgumentRule::Function => self.callee(arg).is_some_and(|function| {
                let name = self.globals.get(function.global).map(|facts| facts.name);
                function.package == Package::Other
                    || (name.is_some_and(|name| name.starts_with("_rebuild_"))
                        && rules_of(function).is_some_and(|rules| !rules.contains(&rule)))
            }),
            // The caller checks these with the function.
            ArgumentRule::Applied => matches!(heap.get(arg), Object::Tuple(_)),
            ArgumentRule::Attributes => states::dicts_of_state(heap, arg).is_some_and(|(dict, slots)| {
                [dict, slots].into_iter().flatten().all(|dict| !states::has_special_name(heap, dict))
            }),
            ArgumentRule::BitGenerator => {
                heap.text(arg).is_some() || heap.global(arg).is_some_and(is_bit_generator)
            }
            ArgumentRule::Generator => {
                let is_made = |instance: &Instance| {
                    heap.global(instance.callable).is_some_and(|(module, name)| {
                        is_bit_generator((module, name))
                            || (module.starts_with("numpy.random.") && name == "__bit_generator_ctor")
                    })
                };
                self.fits(ArgumentRule::BitGenerator, arg) || heap.instance(arg).is_some_and(is_made)
            }
            ArgumentRule::BitGeneratorConstructor => {
                heap.global(arg).is_some_and(|(_, name)| name == "__bit_generator_ctor")
            }
            ArgumentRule::Storage => {
                let loaded = heap.instance(arg).and_then(|instance| heap.global(instance.callable));
                loaded == Some(LOAD_FROM_BYTES) || self.level(arg) <= Level::Named
            }
        }
    }

    /// Returns true for the items of a dict as Python 2 pickles an `OrderedDict`: `[[key, value], …]`.
    fn is_list_of_pairs(&mut self, arg: ObjectId) -> bool {
        let heap = self.heap;
        let items_of = |id: ObjectId| match heap.get(id) {
            Object::List(_) | Object::Tuple(_) => heap.items(id),
            _ => None,
        };
        let Some(pairs) = items_of(arg).filter(|pairs| self.spend(pairs.len())) else { return false };
        pairs.iter().all(|pair| match items_of(*pair) {
            Some(&[key, _]) => self.level(key) <= Level::Named,
            _ => false,
        })
    }

    pub(super) fn level(&mut self, id: ObjectId) -> Level {
        if let Some(level) = self.levels.known_level(self.heap, id) {
            return level;
        }
        let mut levels = std::mem::take(&mut self.levels);
        let level = levels.search(self.heap, id, &mut |id| self.reading(id));
        self.levels = levels;
        level
    }
}

/// Returns true if a global is a class of numpy's bit generators.
fn is_bit_generator((module, name): (&str, &str)) -> bool {
    module.starts_with("numpy.random")
        && matches!(name, "MT19937" | "PCG64" | "PCG64DXSM" | "Philox" | "SFC64")
}

pub(super) fn rules_of(function: Callee) -> Option<&'static [ArgumentRule]> {
    function.reviewed.and_then(|found| found.arguments.as_deref())
}

//! Judges calls that are known only in the form in which their own package writes them: numbers, symbols and sums of sympy, and the
//! local file system of fsspec, which Lightning's callbacks keep.
//!
//! Facts: `__getnewargs__` and `__getnewargs_ex__` in `core/` of sympy 1.14; `AbstractFileSystem.__reduce__` of fsspec 2026.9;
//! `save_reduce` in `Lib/pickle.py`, which writes NEWOBJ_EX before protocol 4 as a call of
//! `functools.partial(getattr(Class, '__new__'), Class, …)`.

use pickle_vm::{Construction, Instance, Object, ObjectId};

use super::analysis::Analysis;
use super::callee::Callee;
use crate::judged_calls::JudgedGlobal;
use crate::lists::ClassTraits;

/// A call by which a package makes an object.
pub(super) struct WrittenCall<'h> {
    pub(super) callee: Callee,
    pub(super) args: &'h [ObjectId],
    pub(super) kwargs: Option<ObjectId>,
}

impl<'h> Analysis<'h, '_> {
    /// Returns the call of a class or function that is judged only in the form in which its package writes it.
    pub(super) fn written_call(&self, instance: &Instance) -> Option<WrittenCall<'h>> {
        let args = self.heap.items(instance.args)?;
        let found = match self.callee(instance.callable) {
            Some(callee) => WrittenCall { callee, args, kwargs: instance.kwargs() },
            None if args.is_empty() => self.call_of_new(self.heap.instance(instance.callable)?)?,
            None => return None,
        };
        found.callee.traits.has(ClassTraits::AS_WRITTEN).then_some(found)
    }

    /// Returns the call that `partial(getattr(Class, '__new__'), Class, …)` makes.
    fn call_of_new(&self, partial: &Instance) -> Option<WrittenCall<'h>> {
        let (module, name) = self.heap.global(partial.callable)?;
        let &[state] = partial.state() else { return None };
        let is_partial = JudgedGlobal::from_names(module, name) == Some(JudgedGlobal::Partial);
        let (&[function], &[same, args, kwargs, _]) =
            (self.heap.items(partial.args)?, self.heap.items(state)?)
        else {
            return None;
        };
        let getattr = self.heap.instance(function)?;
        let (module, name) = self.heap.global(getattr.callable)?;
        let is_getattr = JudgedGlobal::from_names(module, name) == Some(JudgedGlobal::Getattr);
        let (&[class, new], [first, args @ ..]) = (self.heap.items(getattr.args)?, self.heap.items(args)?)
        else {
            return None;
        };
        let is_same = same == function
            && self.heap.global(*first) == self.heap.global(class)
            && self.heap.text(new)? == "__new__";
        let callee = self.callee(class)?;
        (is_partial && is_getattr && is_same).then_some(WrittenCall { callee, args, kwargs: Some(kwargs) })
    }

    pub(super) fn is_as_written(&self, call: &WrittenCall<'h>, construction: Construction) -> bool {
        let heap = self.heap;
        let Some(facts) = self.globals.get(call.callee.global) else { return false };
        let is_int = |id: ObjectId| matches!(heap.get(id), Object::Int(_) | Object::Long(_));
        let is_flag = |id: ObjectId| heap.is_none(id) || matches!(heap.get(id), Object::Bool(_));
        let keywords_are = |is_fine: &dyn Fn(&str, ObjectId) -> bool| {
            call.kwargs.filter(|kwargs| !heap.is_none(*kwargs)).is_none_or(|kwargs| {
                let is_fine = |key: ObjectId, value| heap.text(key).is_some_and(|key| is_fine(&key, value));
                matches!(heap.get(kwargs), Object::Dict(_))
                    && heap
                        .entries(kwargs)
                        .unwrap_or_default()
                        .iter()
                        .all(|(key, value)| is_fine(*key, *value))
            })
        };
        let has_no_keywords = || keywords_are(&|_, _| false);
        let are_assumptions = || {
            keywords_are(&|key, value| {
                key.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_') && is_flag(value)
            })
        };
        if (facts.module, facts.name) == ("fsspec.spec", "make_instance") {
            let &[class, args, kwargs] = call.args else { return false };
            let options = heap.entries(kwargs).unwrap_or_default();
            return construction == Construction::Reduce
                && heap.global(class) == Some(("fsspec.implementations.local", "LocalFileSystem"))
                && matches!(heap.get(args), Object::Tuple(_))
                && heap.items(args).is_some_and(<[_]>::is_empty)
                && matches!(heap.get(kwargs), Object::Dict(_))
                && options.iter().all(|(key, value)| {
                    heap.text(*key).is_some_and(|key| key == "auto_mkdir") && is_flag(*value)
                });
        }
        let is_new = matches!(construction, Construction::NewObj | Construction::NewObjEx)
            || (construction == Construction::Reduce && call.kwargs.is_some());
        let is_expression = |id: &ObjectId| {
            let call = heap.instance(*id).and_then(|instance| self.written_call(instance));
            let module = call.and_then(|call| self.globals.get(call.callee.global)).map(|facts| facts.module);
            module.is_some_and(|module| module.starts_with("sympy."))
        };
        is_new
            && match (facts.name, call.args) {
                // Constants.
                (_, []) => has_no_keywords(),
                ("Integer", [value]) => is_int(*value) && has_no_keywords(),
                ("Rational", [p, q]) => is_int(*p) && is_int(*q) && has_no_keywords(),
                ("Float", [parts]) => {
                    let is_number = match (heap.get(*parts), heap.items(*parts)) {
                        (Object::Tuple(_), Some(&[sign, digits, exponent, bits])) => {
                            [sign, exponent, bits].into_iter().all(is_int)
                                && (heap.text(digits).is_some() || is_int(digits))
                        }
                        _ => false,
                    };
                    is_number && keywords_are(&|key, value| key == "precision" && is_int(value))
                }
                ("Symbol", [name]) => heap.text(*name).is_some() && are_assumptions(),
                ("Dummy", [name, number]) => {
                    heap.text(*name).is_some() && is_int(*number) && are_assumptions()
                }
                ("Add" | "Mul" | "Tuple", parts) => parts.iter().all(is_expression) && has_no_keywords(),
                _ => false,
            }
    }
}

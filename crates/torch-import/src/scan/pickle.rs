//! One pickle: what it names, what it would call, and which byte strings in it are pickles.

use std::borrow::Cow;
use std::collections::HashMap;

use pickle_vm::{Arg, Error, Heap, Instance, Limits, Machine, Object, ObjectId, Opcode, Reader};

use super::{Call, Use, archive};
use crate::container::legacy;
use crate::globals::{LOADS, Uses};
use crate::{Global, Risk, encoded};

/// The most calls of one global that are kept.
const CALLS_MAX: usize = 8;
/// The most findings of one pickle that are kept.
const ODDITIES_MAX: usize = 16;
/// How many levels of calls of the results of calls are followed.
const CALLS_OF_CALLS: usize = 8;

/// What a pickle holds.
pub(super) struct Found<'p> {
    pub(super) uses: Vec<Use>,
    pub(super) nested: Vec<(u64, Cow<'p, [u8]>)>,
    /// Irregularities, as clauses.
    pub(super) oddities: Vec<String>,
    pub(super) error: Option<Error>,
    /// The bytes that were read, up to and including STOP, or up to the error.
    pub(super) read: u64,
    /// Whether the object is the number that a legacy checkpoint starts with.
    pub(super) is_magic: bool,
}

/// A BUILD instruction: its offset, the object that it builds, and the state.
struct Build {
    offset: u64,
    target: ObjectId,
    state: ObjectId,
}

/// Reads the pickle that `bytes` start with.
pub(super) fn run(bytes: &[u8]) -> Found<'_> {
    let mut reader = Reader::new(bytes);
    let mut machine = Machine::new(Limits::default());
    let (mut builds, mut root, mut error) = (Vec::new(), None, None);
    for instruction in reader.by_ref() {
        let instruction = match instruction {
            Ok(instruction) => instruction,
            Err(cause) => {
                error = Some(cause);
                break;
            }
        };
        if instruction.opcode == Opcode::Build
            && let [.., target, state] = *machine.stack()
        {
            builds.push(Build { offset: instruction.offset, target, state });
        }
        match machine.step(instruction) {
            Ok(None) => {}
            Ok(Some(id)) => {
                root = Some(id);
                break;
            }
            Err(cause) => {
                error = Some(cause);
                break;
            }
        }
    }
    let read = reader.offset();
    let heap = machine.heap();
    let mut names = Names::in_heap(heap);
    let mut oddities = Vec::new();
    names.uses_of_instances(heap, &mut oddities);
    names.uses_of_builds(heap, &builds, &mut oddities);
    if error.is_some() {
        names.uses_after_error(reader);
    }
    oddities.truncate(ODDITIES_MAX);
    Found {
        uses: names.uses,
        nested: nested(heap),
        oddities,
        error,
        read,
        is_magic: root.and_then(|root| heap.long(root)?.to_i128()) == Some(legacy::MAGIC),
    }
}

/// The globals of a pickle by their names.
struct Names {
    uses: Vec<Use>,
    places: HashMap<(String, String), usize>,
    /// The objects that are globals and not known to be harmless.
    risky: HashMap<ObjectId, usize>,
    how: Uses,
}

impl Names {
    fn in_heap(heap: &Heap<'_>) -> Self {
        let how = Uses::in_heap(heap);
        let mut names = Self { uses: Vec::new(), places: HashMap::new(), risky: HashMap::new(), how };
        let mut known: HashMap<(&str, &str), usize> = HashMap::new();
        for id in heap.ids() {
            let Some((module, name)) = heap.global(id) else { continue };
            let place = *known
                .entry((module, name))
                .or_insert_with(|| names.place(module, name, heap.offset(id), false));
            if names.uses.get(place).is_some_and(|found| found.risk != Risk::Known) {
                names.risky.insert(id, place);
            }
        }
        names
    }

    fn place(&mut self, module: &str, name: &str, offset: u64, after_error: bool) -> usize {
        let next = self.uses.len();
        let place = *self.places.entry((module.to_owned(), name.to_owned())).or_insert(next);
        if place == next {
            let global = Global::new(module, name, offset, self.how);
            let risk = global.risk();
            self.uses.push(Use { global, risk, calls: Vec::new(), more: 0, after_error });
        }
        place
    }

    fn call(
        &mut self,
        place: usize,
        (opcode, offset): (Opcode, u64),
        has_arguments: bool,
        text: impl FnOnce() -> String,
    ) {
        let Some(found) = self.uses.get_mut(place) else { return };
        // A call with arguments replaces one without.
        let first = found.calls.iter().position(|call| !call.has_arguments);
        if let Some(first) = first.filter(|_| has_arguments && found.calls.len() >= CALLS_MAX) {
            found.calls.remove(first);
            found.more = found.more.saturating_add(1);
        }
        if found.calls.len() < CALLS_MAX {
            found.calls.push(Call { opcode: opcode.name(), offset, text: text(), has_arguments });
        } else {
            found.more = found.more.saturating_add(1);
        }
    }

    fn uses_of_instances(&mut self, heap: &Heap<'_>, oddities: &mut Vec<String>) {
        for id in heap.ids() {
            let offset = heap.offset(id);
            match heap.get(id) {
                Object::Instance(instance) => {
                    let given = heap.items(instance.args).unwrap_or_default().iter().copied();
                    let more = instance.kwargs().and_then(|kwargs| heap.entries(kwargs)).unwrap_or_default();
                    let given: Vec<ObjectId> = given.chain(more.iter().map(|(_, value)| *value)).collect();
                    let called = self.called(heap, instance).map(|callable| (callable, !given.is_empty()));
                    for (part, has_arguments) in
                        called.into_iter().chain(given.iter().map(|part| (*part, false)))
                    {
                        if let Some(place) = self.risky.get(&part) {
                            let at = (instance.how.opcode(), offset);
                            self.call(*place, at, has_arguments, || heap.display(id).to_string());
                        }
                    }
                }
                Object::Persistent(pid) => {
                    for part in heap.items(*pid).unwrap_or_default() {
                        if let Some(place) = self.risky.get(part) {
                            let at = (Opcode::BinPersId, offset);
                            self.call(*place, at, false, || heap.display(*pid).to_string());
                        }
                    }
                }
                Object::Extension(code) => {
                    oddities.push(format!(
                        "extension {code} at 0x{offset:x} refers to a global that only the program knows"
                    ));
                }
                _ => {}
            }
            if oddities.len() > ODDITIES_MAX {
                oddities.truncate(ODDITIES_MAX);
            }
        }
    }

    /// The global that an instance calls, directly or as the result of a call.
    fn called(&self, heap: &Heap<'_>, instance: &Instance) -> Option<ObjectId> {
        let mut callable = instance.callable;
        for _ in 0..CALLS_OF_CALLS {
            match heap.instance(callable) {
                Some(inner) => callable = inner.callable,
                None => break,
            }
        }
        self.risky.contains_key(&callable).then_some(callable)
    }

    fn uses_of_builds(&mut self, heap: &Heap<'_>, builds: &[Build], oddities: &mut Vec<String>) {
        for Build { offset, target, state } in builds {
            if let Some((module, name)) = heap.global(*target) {
                let (module, name) = (module.escape_debug(), name.escape_debug());
                oddities.push(format!("BUILD at 0x{offset:x} sets attributes of {module}.{name} itself"));
            }
            let inner = heap.instance(*target).and_then(|instance| self.called(heap, instance));
            // A dict, or a tuple of a dict and one of slots.
            let dicts = heap.items(*state).unwrap_or_default().iter().take(2).chain([state]);
            let values = dicts.filter_map(|dict| heap.entries(*dict)).flatten().map(|(_, value)| *value);
            let parts: Vec<ObjectId> = values.chain([*target, *state]).chain(inner).collect();
            for part in parts {
                if let Some(place) = self.risky.get(&part) {
                    self.call(*place, (Opcode::Build, *offset), false, || match heap.global(*target) {
                        Some(_) => format!("{} with state {}", heap.display(*target), heap.display(*state)),
                        // The text of an instance includes its states.
                        None => heap.display(*target).to_string(),
                    });
                }
            }
        }
    }

    /// Finds the globals after an error without running the machine. Python does not reach them, but other readers may.
    fn uses_after_error(&mut self, reader: Reader<'_>) {
        let mut texts: [Option<String>; 2] = [None, None];
        for instruction in reader {
            let Ok(instruction) = instruction else { break };
            match (instruction.opcode, &instruction.arg) {
                (_, Arg::Global { module, name }) => {
                    self.place(module, name, instruction.offset, true);
                }
                (Opcode::StackGlobal, _) => {
                    if let [Some(module), Some(name)] = &texts {
                        self.place(&module.clone(), &name.clone(), instruction.offset, true);
                    }
                }
                (_, Arg::Text(text)) => {
                    texts.swap(0, 1);
                    texts[1] = Some(text.to_str().into_owned());
                }
                (_, Arg::String(bytes)) => {
                    texts.swap(0, 1);
                    texts[1] = Some(String::from_utf8_lossy(bytes).into_owned());
                }
                _ => {}
            }
        }
    }
}

/// The byte strings that are pickles or archives, and their offsets.
fn nested<'p>(heap: &Heap<'p>) -> Vec<(u64, Cow<'p, [u8]>)> {
    let mut found = Vec::new();
    for id in heap.ids() {
        let bytes = match heap.get(id) {
            Object::Bytes(bytes) | Object::ByteArray(bytes) => Cow::Borrowed(*bytes),
            Object::String(bytes) if is_pickle(bytes) => Cow::Owned(bytes.to_vec()),
            // The bytes that it loads are scanned.
            Object::Instance(instance) if heap.global(instance.callable) == Some(LOADS) => {
                let arg = heap.items(instance.args).and_then(|args| args.first());
                let bytes = arg.and_then(|arg| encoded::bytes(heap, *arg)).filter(|bytes| !is_pickle(bytes));
                found.extend(bytes.map(|bytes| (heap.offset(id), Cow::Owned(bytes.into_owned()))));
                continue;
            }
            Object::Instance(instance) => {
                let text = heap.items(instance.args).and_then(|args| heap.text(*args.first()?));
                // Before protocol 3 bytes are written as text.
                if !text.is_some_and(|text| text.starts_with(['\u{80}', 'P', 'L', '\u{8a}'])) {
                    continue;
                }
                match encoded::latin1(heap, id) {
                    Some(bytes) => Cow::Owned(bytes.into_owned()),
                    None => continue,
                }
            }
            _ => continue,
        };
        if is_pickle(&bytes) {
            found.push((heap.offset(id), bytes));
        }
    }
    found
}

fn is_pickle(bytes: &[u8]) -> bool {
    matches!(bytes, [0x80, 0..=5, ..]) || archive::is_archive(bytes) || legacy::recognises(bytes)
}

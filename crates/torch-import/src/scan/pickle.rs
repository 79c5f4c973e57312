//! Scans one pickle: the globals that it names, their calls, and the byte strings in it that are pickles.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use pickle_vm::{Error, ErrorKind, Instruction, Machine, Object, ObjectId, Opcode, Reader};

use super::budget::ScanBudget;
use super::cpython_errors::{self, InstructionsAfterError};
use super::documents::pickled::{self, PickledTexts};
use super::global_uses::{BuildInstruction, GlobalUses, IRREGULARITIES_MAX};
use super::joblib::{self, ArrayElements};
use super::nested::{NestedBytes, find_nested};
use super::{GlobalUse, NamedRange};
use crate::Risk;
use crate::container::formats::legacy;
use crate::risk::is_array_wrapper;

/// Number of instructions between two looks at the observer.
const STEPS_PER_CHECK: u64 = 1 << 16;
/// Pickles that are looked at after one that runs nothing; more count as if one of them ran something.
const FOLLOWING_MAX: usize = 1 << 12;

pub(super) struct PickleFindings<'p> {
    pub(super) uses: Vec<GlobalUse>,
    pub(super) nested: Vec<NestedBytes<'p>>,
    /// Irregularities of the pickle, as clauses.
    pub(super) irregularity_texts: Vec<String>,
    /// Reason why the frames are wrong, as a clause.
    frame_error: Option<String>,
    /// Reasons why parts were not scanned, as clauses.
    pub(super) missed: Vec<Cow<'static, str>>,
    /// Places of other pickles that the texts of the pickle name.
    pub(super) ranges: Vec<NamedRange>,
    /// True if a tensor may hold a pickle.
    pub(super) has_extra_state: bool,
    pub(super) error: Option<Error>,
    /// Bytes read, up to and including STOP, or up to the error.
    pub(super) bytes_read: u64,
    /// True if the root object is the magic number of a legacy checkpoint.
    pub(super) is_magic: bool,
    /// True if Python may execute something in the bytes. If false, an error ends them before the first call, in
    /// Python's unpicklers too.
    pub(super) may_execute: bool,
}

impl PickleFindings<'_> {
    /// Returns true if Python stops at the first GLOBAL or INST, because its lines have no end, or because no module has a name with a
    /// space or a colon. A text that begins with `c` or `i` is like that, such as `components:`.
    pub(super) fn ends_in_unusable_name(&self, bytes: &[u8]) -> bool {
        let module = |at: usize| {
            let line =
                bytes.get(at..).and_then(|rest| rest.split(|byte| *byte == b'\n').next()).unwrap_or_default();
            line.iter().any(|byte| matches!(byte, b' ' | b':'))
        };
        if matches!(bytes, [b'c' | b'i', ..]) && module(1) {
            return true;
        }
        let Some(error) = self.error.as_ref().filter(|error| error.kind == ErrorKind::NoNewline) else {
            return false;
        };
        let has_space = usize::try_from(error.offset).is_ok_and(module);
        self.uses.is_empty() && (error.offset == 0 || has_space)
    }
}

/// Returns true for a GLOBAL or INST whose module has a null byte.
fn starts_with_null(bytes: &[u8]) -> bool {
    let module = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
    matches!(bytes, [b'c' | b'i', ..]) && module.contains(&0)
}

/// The machine and its records after running a pickle.
struct PickleRun<'p> {
    reader: Reader<'p>,
    machine: Machine<'p>,
    builds: Vec<BuildInstruction>,
    /// Offset of a `STACK_GLOBAL` whose module or name a call computes.
    computed_name: Option<u64>,
    root: Option<ObjectId>,
    error: Option<Error>,
    /// Pickles of object arrays in joblib's files.
    objects: Vec<NestedBytes<'p>>,
    /// Descriptions of arrays whose elements were skipped, with the offsets of their last changes. joblib replaces them by the arrays.
    arrays: BTreeMap<ObjectId, Option<u64>>,
    /// Offset of an array of objects whose pickle is that of something else.
    other_object: Option<u64>,
    missed: Vec<&'static str>,
    /// Bytes of the pickles of object arrays.
    elements_read: u64,
}

/// Scans the pickle at the start of `bytes`.
pub(super) fn scan_pickle<'p>(bytes: &'p [u8], budget: &mut ScanBudget<'_>) -> PickleFindings<'p> {
    let ran = PickleRun::new(bytes, false, budget);
    let heap = ran.machine.heap();
    if !heap.global_objects().iter().any(|id| heap.global(*id).is_some_and(is_array_wrapper)) {
        let mut found = ran.into_findings(bytes, budget);
        found.irregularity_texts.extend(found.frame_error.take());
        return found;
    }
    // joblib reads the elements of arrays between two instructions. Every other unpickler reads the elements as
    // instructions, and stops at the end of the pickle of an object array.
    let mut plain = ran.into_findings(bytes, budget);
    let mut found = PickleRun::new(bytes, true, budget).into_findings(bytes, budget);
    if plain.error.is_none() && found.error.is_some() {
        // No elements follow, so the file is not one of joblib.
        std::mem::swap(&mut plain, &mut found);
    }
    let names = |used: &GlobalUse| (used.global.module.clone(), used.global.name.clone());
    let listed: HashMap<(String, String), Risk> =
        found.uses.iter().map(|used| (names(used), used.risk)).collect();
    let plain_end = plain.error.is_none().then_some(plain.bytes_read).filter(|end| *end != found.bytes_read);
    // Names read from array elements are mostly noise.
    let risky = plain.uses.into_iter().filter(|used| !used.after_error && used.risk >= Risk::Unreviewed);
    let others = risky.filter(|used| listed.get(&names(used)).is_none_or(|risk| *risk < used.risk));
    found.uses.extend(others);
    found.nested.extend(plain.nested.into_iter().filter(|nested| nested.is_loaded));
    found.irregularity_texts.extend(plain.irregularity_texts);
    if let Some(end) = plain_end {
        found.irregularity_texts.extend(find_next_pickle(bytes, end, budget));
    }
    // Elements that are read as instructions have frames by chance.
    let plain_error = plain.frame_error.filter(|_| plain.error.is_none());
    found.irregularity_texts.extend(found.frame_error.take().or(plain_error));
    found
}

/// Returns true if Python may execute something in one of the pickles that follow one another in `bytes`, which a program may load one
/// by one after a pickle that runs nothing.
pub(super) fn may_execute_later(bytes: &[u8]) -> bool {
    let mut rest = bytes;
    for _ in 0..FOLLOWING_MAX {
        if rest.is_empty() {
            return false;
        }
        let found = scan_pickle(rest, &mut ScanBudget::new(0));
        if found.may_execute || found.error.is_some() {
            return found.may_execute && !found.ends_in_unusable_name(rest);
        }
        rest = usize::try_from(found.bytes_read).ok().and_then(|read| rest.get(read..)).unwrap_or_default();
    }
    true
}

/// Returns what readers other than joblib run in the pickles from `end` on, where the pickle ended for them, as a clause: they may
/// find them among the elements of an array.
fn find_next_pickle(bytes: &[u8], end: u64, budget: &mut ScanBudget<'_>) -> Option<String> {
    let mut at = usize::try_from(end).ok()?;
    for _ in 0..legacy::LEGACY_PICKLES {
        let rest = bytes.get(at..).filter(|rest| !rest.is_empty())?;
        let next = PickleRun::new(rest, false, budget).into_findings(rest, budget);
        let is_whole = next.error.is_none();
        let mut reached = next.uses.iter().filter(|used| !used.after_error);
        if let Some(used) =
            reached.find(|used| used.risk == Risk::Dangerous || is_whole && used.risk > Risk::Known)
        {
            let global = &used.global;
            return Some(format!("a reader other than joblib goes on at 0x{at:x}, where it finds {global}"));
        }
        if !is_whole {
            return None;
        }
        at = at.saturating_add(usize::try_from(next.bytes_read).ok()?);
    }
    None
}

impl<'p> PickleRun<'p> {
    fn new(bytes: &'p [u8], with_arrays: bool, budget: &mut ScanBudget<'_>) -> Self {
        let mut ran = Self {
            reader: Reader::new(bytes),
            machine: Machine::new(budget.limits()),
            builds: Vec::new(),
            computed_name: None,
            root: None,
            error: None,
            objects: Vec::new(),
            arrays: BTreeMap::new(),
            other_object: None,
            missed: Vec::new(),
            elements_read: 0,
        };
        let mut steps = 0_u64;
        while let Some(instruction) = ran.reader.next() {
            steps = steps.saturating_add(1);
            if steps.is_multiple_of(STEPS_PER_CHECK) && budget.is_stopped() {
                break;
            }
            // A closure would store the instruction, which takes longer.
            let stepped = match instruction {
                Ok(instruction) => ran.step(instruction),
                Err(error) => Err(error),
            };
            match stepped {
                Ok(None) => {}
                Ok(Some(root)) => {
                    ran.root = Some(root);
                    break;
                }
                Err(error) => {
                    ran.error = Some(error);
                    break;
                }
            }
            // Where the elements of one array end is unknown, so is where the next ones start.
            if with_arrays
                && ran.missed.is_empty()
                && ran.builds.last().is_some_and(|build| build.offset == ran.last_build_offset())
            {
                ran.skip_elements(bytes, budget);
            }
        }
        budget.spend_opcodes(ran.machine.opcodes());
        ran
    }

    /// Returns the offset of the last instruction, assuming that it is a BUILD of one byte.
    fn last_build_offset(&self) -> u64 {
        self.reader.offset().saturating_sub(1)
    }

    fn step(&mut self, instruction: Instruction<'p>) -> Result<Option<ObjectId>, Error> {
        if instruction.opcode == Opcode::Build
            && let [.., target, state] = *self.machine.stack()
        {
            self.builds.push(BuildInstruction { offset: instruction.offset, target, state });
        }
        if instruction.opcode == Opcode::StackGlobal
            && let [.., module, name] = *self.machine.stack()
            && [module, name].into_iter().any(|part| {
                let object = self.machine.heap().get(part);
                matches!(object, Object::Instance(_) | Object::Persistent(_) | Object::Extension(_))
            })
        {
            self.computed_name = Some(instruction.offset);
        }
        self.machine.step(instruction)
    }

    /// Skips the elements of an array that the last BUILD described.
    fn skip_elements(&mut self, bytes: &'p [u8], budget: &mut ScanBudget<'_>) {
        let Some(&id) = self.machine.stack().last() else { return };
        if self.arrays.contains_key(&id) {
            return;
        }
        let Some(elements) = joblib::elements_after_build(self.machine.heap(), id) else { return };
        if self.reader.is_in_frame() {
            self.missed.push(
                "the elements of an array of joblib are inside a frame, where joblib does not look for them; load it where nothing can \
                 be harmed",
            );
            return;
        }
        let at = self.reader.offset();
        let rest = usize::try_from(at).ok().and_then(|at| bytes.get(at..)).unwrap_or_default();
        let passed = match elements {
            ArrayElements::Bytes(count, padded) => {
                let padding =
                    if padded { rest.first().map_or(1, |len| u64::from(*len).saturating_add(1)) } else { 0 };
                self.reader.skip_bytes(count.saturating_add(padding))
            }
            ArrayElements::Pickle => {
                let inner = PickleRun::new(rest, false, budget);
                let read = inner.reader.offset();
                self.elements_read = self.elements_read.saturating_add(read);
                let len = usize::try_from(read).ok().filter(|_| inner.root.is_some());
                let bytes = len.and_then(|len| rest.get(..len)).unwrap_or(rest);
                self.objects.push(NestedBytes { at, bytes: Cow::Borrowed(bytes), is_loaded: true });
                // joblib goes on with this object in the place of the array.
                if inner.root.is_some_and(|root| !joblib::is_array(inner.machine.heap(), root)) {
                    self.other_object.get_or_insert(at);
                }
                inner.root.is_some() && self.reader.skip_bytes(read)
            }
            ArrayElements::Unknown => false,
        };
        if passed {
            self.arrays.insert(id, self.machine.heap().last_change(id));
        } else {
            self.missed.push(
                "an array of joblib has a shape or a dtype of which only NumPy knows the size, such as a structured one, so \
                 what follows it cannot be found; load it where nothing can be harmed",
            );
        }
    }

    fn into_findings(self, bytes: &'p [u8], budget: &mut ScanBudget<'_>) -> PickleFindings<'p> {
        let Self {
            reader,
            machine,
            builds,
            computed_name,
            root,
            error,
            objects,
            arrays,
            other_object,
            missed,
            elements_read,
        } = self;
        let mut missed: Vec<Cow<'static, str>> = missed.into_iter().map(Cow::Borrowed).collect();
        let read = reader.offset();
        let frame_error = reader.frame_error().map(ToString::to_string);
        // The search for the end of an unterminated line reads all remaining bytes.
        let without_end = error.as_ref().is_some_and(|error| error.kind == ErrorKind::NoNewline);
        let cost = if without_end { bytes.len() as u64 } else { read.max(1) };
        let mut whole = budget.spend(cost.saturating_add(elements_read));
        let heap = machine.heap();
        if heap.global_objects().iter().any(|id| heap.global(*id).is_some_and(joblib::is_external_array)) {
            missed.push(
                "`joblib.load` reads an array from another file, which may be a pickle; scan that file, too"
                    .into(),
            );
        }
        let mut names = GlobalUses::in_heap(heap, budget);
        let mut oddities = Vec::new();
        oddities.extend(computed_name.map(|offset| {
            format!("STACK_GLOBAL at 0x{offset:x} looks up a name that only the interpreter knows")
        }));
        oddities.extend(other_object.map(|offset| {
            format!("the pickle of an array of objects of joblib at 0x{offset:x} has another object")
        }));
        let changed = arrays.iter().find(|(id, change)| heap.last_change(**id) != **change);
        let calls = heap.ids().filter(|_| !arrays.is_empty()).filter_map(|id| heap.instance(id));
        let called = calls.map(|call| call.callable).find(|callable| arrays.contains_key(callable));
        oddities.extend(changed.map(|(id, _)| *id).or(called).map(|id| {
            format!("the array of joblib at 0x{:x} is changed or called after its elements", heap.offset(id))
        }));
        names.uses_of_instances(heap, &mut oddities);
        names.uses_of_builds(heap, &builds, &mut oddities);
        let is_extension = |id| matches!(heap.get(id), Object::Extension(_));
        let has_names = !names.uses.is_empty() || heap.ids().any(is_extension);
        let risky = names.uses.iter().any(|used| used.risk == Risk::Dangerous);
        let called = !builds.is_empty() || heap.ids().any(|id| heap.instance(id).is_some());
        let matters = match &error {
            // No module has such a name. A tar archive may begin like that.
            Some(_) if starts_with_null(bytes) => false,
            // Where the frame is wrong, other bytes may follow for Python.
            None => has_names || frame_error.is_some(),
            Some(error) => {
                let is_marked = bytes.first() == Some(&0x80);
                // No call is possible without a name.
                let goes_on = !cpython_errors::python_stops(error, bytes);
                let names_later = names.uses_after_error(InstructionsAfterError::new(bytes, reader, error));
                (has_names && (is_marked || called)) || risky || (goes_on && (has_names || names_later))
            }
        };
        whole &= names.within_budget;
        let mut uses = names.uses;
        let mut nested = objects;
        whole &= find_nested(heap, budget, &mut nested);
        let texts = pickled::read(heap, budget);
        whole &= texts.is_some();
        let PickledTexts { found, ranges, has_extra_state } = texts.unwrap_or_default();
        uses.extend(found.uses);
        oddities.extend(found.findings.into_iter().map(|finding| finding.text));
        oddities.truncate(IRREGULARITIES_MAX);
        missed.extend(found.missed.into_iter().map(Cow::Owned));
        if !whole {
            missed.push("the limit on the work for one file was reached".into());
        }
        let is_magic = root.and_then(|root| heap.long(root)?.to_i128()) == Some(legacy::LEGACY_MAGIC);
        PickleFindings {
            uses,
            nested,
            irregularity_texts: oddities,
            frame_error,
            missed,
            ranges,
            has_extra_state,
            error,
            bytes_read: read,
            is_magic,
            may_execute: matters,
        }
    }
}

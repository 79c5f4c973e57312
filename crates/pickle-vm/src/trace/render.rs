//! Printing of an object in Python's notation, truncated if it is large, without recursion.
//!
//! Memory and time are bounded whatever the object contains: a value prints a limited number of objects, and cycles are
//! shown as `[...]`, as in Python.

use std::fmt::{self, Write};
use std::rc::Rc;

use super::options::Annotate;
use super::repr;
use crate::heap::Heap;
use crate::limits::PickleLimits;
use crate::object::{Instance, Object, ObjectId, RecordedChanges};

/// Maximum characters of a printed name, longer than a person would choose. A name is printed at each step at which it
/// is on the stack, so without a limit the listing would grow with the square of the pickle.
pub(crate) const PRINTED_NAME_MAX: usize = 200;

#[derive(Clone, Copy, Debug)]
pub(crate) struct PrintLimits {
    /// Maximum characters of a string.
    pub(crate) text: usize,
    /// Maximum characters of a module, of a global's name, and of an annotator's text.
    pub(crate) name: usize,
    /// Maximum items of a container.
    pub(crate) items: usize,
    /// Maximum nesting depth of containers.
    pub(crate) depth: usize,
    /// Maximum number of objects in total.
    pub(crate) parts: usize,
}

impl PrintLimits {
    pub(crate) const SHORT: PrintLimits =
        PrintLimits { text: 60, name: PRINTED_NAME_MAX, items: 6, depth: 3, parts: 24 };
    const LONG: PrintLimits = PrintLimits { text: 1000, name: 1000, items: 100, depth: 16, parts: 100 };

    /// Returns the limits for printing values in full. Without a limit on the number of objects, thirty tuples that
    /// each contain the previous tuple twice would take hours to print; in a real pickle only a few containers share an
    /// object.
    pub(crate) fn full(limits: &PickleLimits, heap: &Heap<'_>) -> PrintLimits {
        let parts = heap.len().saturating_mul(16).saturating_add(10_000);
        PrintLimits {
            text: usize::MAX,
            name: usize::MAX,
            items: usize::MAX,
            depth: limits.depth as usize,
            parts,
        }
    }
}

/// Prints an object in Python's notation on one line: `{'epoch': 7, 'model': collections.OrderedDict()}`.
///
/// Large values are truncated with `…`; control characters are escaped.
#[derive(Clone, Copy)]
pub struct ObjectDisplay<'h, 'p> {
    heap: &'h Heap<'p>,
    id: ObjectId,
    annotate: Option<&'h Annotate<'h>>,
    extent: PrintLimits,
}

impl<'h> ObjectDisplay<'h, '_> {
    /// Raises the limits to 1000 characters of each string, and 100 objects.
    #[must_use]
    pub fn long(self) -> Self {
        ObjectDisplay { extent: PrintLimits::LONG, ..self }
    }

    /// Prints the annotator's description of an object, if there is one.
    #[must_use]
    pub fn annotated(self, annotate: &'h Annotate<'h>) -> Self {
        ObjectDisplay { annotate: Some(annotate), ..self }
    }
}

impl<'p> Heap<'p> {
    /// Returns a printer of an object in Python's notation, truncated if the object is large.
    pub fn display(&self, id: ObjectId) -> ObjectDisplay<'_, 'p> {
        ObjectDisplay { heap: self, id, annotate: None, extent: PrintLimits::SHORT }
    }
}

impl fmt::Display for ObjectDisplay<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut name = |id| self.annotate.and_then(|annotate| annotate(self.heap, id)).map(Rc::from);
        Renderer::default().render(f, self.heap, self.id, self.extent, &mut name)
    }
}

impl fmt::Debug for ObjectDisplay<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Work stack for printing a value without recursion. Reused between values to save allocations.
#[derive(Debug, Default)]
pub(crate) struct Renderer {
    work: Vec<RenderTask>,
    /// Containers around the current object, outermost first.
    path: Vec<ObjectId>,
    /// Number of objects that may still be printed.
    parts: usize,
}

#[derive(Clone, Copy, Debug)]
enum RenderTask {
    Object(ObjectId),
    Text(&'static str),
    /// The remaining items of a sequence, from index `next` on, and the closing text.
    Parts {
        of: ObjectId,
        part: ObjectSequence,
        next: usize,
        close: &'static str,
    },
    /// End of the container at the end of the path.
    Leave,
}

/// One of an object's sequences of contained objects.
#[derive(Clone, Copy, Debug)]
enum ObjectSequence {
    Items,
    Entries,
    SetItems,
    Appends,
    States,
}

/// Callback that returns the description of an object, if there is one.
pub(crate) type Describe<'n> = dyn FnMut(ObjectId) -> Option<Rc<str>> + 'n;

impl Renderer {
    /// Returns the number of objects that the last value left unused of its limit.
    pub(crate) fn parts_left(&self) -> usize {
        self.parts
    }

    pub(crate) fn render(
        &mut self,
        out: &mut dyn Write,
        heap: &Heap<'_>,
        id: ObjectId,
        extent: PrintLimits,
        name: &mut Describe<'_>,
    ) -> fmt::Result {
        self.work.clear();
        self.path.clear();
        self.work.push(RenderTask::Object(id));
        self.parts = extent.parts;
        while let Some(work) = self.work.pop() {
            match work {
                RenderTask::Text(text) => out.write_str(text)?,
                RenderTask::Leave => {
                    self.path.pop();
                }
                RenderTask::Object(id) => match self.parts.checked_sub(1) {
                    Some(left) => {
                        self.parts = left;
                        self.object(out, heap, id, extent, name)?;
                    }
                    None => out.write_char('…')?,
                },
                RenderTask::Parts { of, part, next, close } => {
                    let (len, entry) = Renderer::sequence_item(heap, of, part, next);
                    let Some((key, value)) = entry else {
                        out.write_str(close)?;
                        continue;
                    };
                    if next > 0 {
                        out.write_str(", ")?;
                    }
                    if next >= extent.items || self.parts == 0 {
                        write!(out, "… {} more{close}", len.saturating_sub(next))?;
                        continue;
                    }
                    self.work.push(RenderTask::Parts { of, part, next: next.saturating_add(1), close });
                    self.work.push(RenderTask::Object(value));
                    if let Some(key) = key {
                        self.work.push(RenderTask::Text(": "));
                        self.work.push(RenderTask::Object(key));
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns the length of a sequence, and its item at index `next`, with the key if the sequence has keys.
    fn sequence_item(
        heap: &Heap<'_>,
        of: ObjectId,
        part: ObjectSequence,
        next: usize,
    ) -> (usize, Option<(Option<ObjectId>, ObjectId)>) {
        let recorded = || heap.recorded_changes(of);
        let single = |items: &[ObjectId]| (items.len(), items.get(next).map(|&item| (None, item)));
        let pairs = |entries: &[(ObjectId, ObjectId)]| {
            (entries.len(), entries.get(next).map(|&(key, value)| (Some(key), value)))
        };
        match part {
            ObjectSequence::Items => single(heap.items(of).unwrap_or_default()),
            ObjectSequence::Entries => pairs(heap.entries(of).unwrap_or_default()),
            ObjectSequence::SetItems => pairs(recorded().map(RecordedChanges::items).unwrap_or_default()),
            ObjectSequence::Appends => single(recorded().map(RecordedChanges::appends).unwrap_or_default()),
            ObjectSequence::States => single(recorded().map(RecordedChanges::state).unwrap_or_default()),
        }
    }

    /// Prints a scalar, or opens a container and pushes its items on the work stack.
    fn object(
        &mut self,
        out: &mut dyn Write,
        heap: &Heap<'_>,
        id: ObjectId,
        extent: PrintLimits,
        name: &mut Describe<'_>,
    ) -> fmt::Result {
        match heap.get(id) {
            Object::Global(_) | Object::Instance(_) | Object::Persistent(_) | Object::Extension(_) => {
                if let Some(name) = name(id) {
                    return repr::name(out, &name, extent.name);
                }
            }
            _ => {}
        }
        match heap.get(id) {
            Object::None => out.write_str("None"),
            Object::Bool(value) => out.write_str(if *value { "True" } else { "False" }),
            Object::Int(value) => write!(out, "{value}"),
            Object::Long(value) if value.bytes().len() > extent.text => {
                write!(out, "<integer of {} bytes>", value.bytes().len())
            }
            Object::Long(value) => write!(out, "{value}"),
            Object::Float(value) => repr::float(out, *value),
            Object::Text(text) => repr::text(out, text, extent.text),
            Object::String(bytes) if bytes.is_ascii() => repr::latin1(out, bytes, extent.text),
            Object::String(bytes) => repr::bytes(out, bytes, extent.text),
            Object::Bytes(bytes) => repr::bytes(out, bytes, extent.text),
            Object::ByteArray(bytes) => {
                repr::bytearray(out, bytes, extent.text)?;
                if heap.recorded_changes(id).is_some() && self.enter(id, extent) {
                    self.push_changes(heap, id);
                }
                Ok(())
            }
            Object::Tuple(_) => {
                let close = if heap.items(id).is_some_and(|items| items.len() == 1) { ",)" } else { ")" };
                self.open(out, id, ObjectSequence::Items, "(", close, extent)
            }
            Object::List(_) => self.open(out, id, ObjectSequence::Items, "[", "]", extent),
            Object::Dict(_) => self.open(out, id, ObjectSequence::Entries, "{", "}", extent),
            Object::Set(items) if items.get().is_empty() => out.write_str("set()"),
            Object::Set(_) => self.open(out, id, ObjectSequence::Items, "{", "}", extent),
            Object::FrozenSet(_) => self.open(out, id, ObjectSequence::Items, "frozenset({", "})", extent),
            Object::Global(_) => {
                let (module, name) = heap.global(id).unwrap_or_default();
                repr::name(out, module, extent.name)?;
                out.write_char('.')?;
                repr::name(out, name, extent.name)?;
                if heap.recorded_changes(id).is_some() && self.enter(id, extent) {
                    self.push_changes(heap, id);
                }
                Ok(())
            }
            Object::Instance(instance) => self.instance(out, heap, id, instance, extent),
            Object::Persistent(_) | Object::Extension(_) if !self.enter(id, extent) => out.write_str("..."),
            Object::Persistent(pid) => {
                out.write_str("persistent ")?;
                self.push_changes(heap, id);
                self.work.push(RenderTask::Object(*pid));
                Ok(())
            }
            Object::Extension(code) => {
                write!(out, "extension {code}")?;
                self.push_changes(heap, id);
                Ok(())
            }
            Object::Buffer { index, readonly } => {
                write!(out, "{}buffer {index}", if *readonly { "readonly " } else { "" })
            }
        }
    }

    fn open(
        &mut self,
        out: &mut dyn Write,
        id: ObjectId,
        part: ObjectSequence,
        open: &'static str,
        close: &'static str,
        extent: PrintLimits,
    ) -> fmt::Result {
        out.write_str(open)?;
        if !self.enter(id, extent) {
            return write!(out, "...{close}");
        }
        self.work.push(RenderTask::Leave);
        self.work.push(RenderTask::Parts { of: id, part, next: 0, close });
        Ok(())
    }

    /// Enters a container. Returns false if the container contains itself or is too deep.
    fn enter(&mut self, id: ObjectId, extent: PrintLimits) -> bool {
        let enter = self.path.len() < extent.depth && !self.path.contains(&id);
        if enter {
            self.path.push(id);
        }
        enter
    }

    fn instance(
        &mut self,
        out: &mut dyn Write,
        heap: &Heap<'_>,
        id: ObjectId,
        instance: &Instance,
        extent: PrintLimits,
    ) -> fmt::Result {
        if !self.enter(id, extent) {
            return out.write_str("...");
        }
        self.push_changes(heap, id);
        match instance.kwargs() {
            Some(kwargs) => {
                self.work.extend([
                    RenderTask::Text(")"),
                    RenderTask::Object(kwargs),
                    RenderTask::Text(", **"),
                ]);
                self.work.push(RenderTask::Parts {
                    of: instance.args,
                    part: ObjectSequence::Items,
                    next: 0,
                    close: "",
                });
            }
            None => {
                self.work.push(RenderTask::Parts {
                    of: instance.args,
                    part: ObjectSequence::Items,
                    next: 0,
                    close: ")",
                });
            }
        }
        self.work.push(RenderTask::Text("("));
        self.work.push(RenderTask::Object(instance.callable));
        Ok(())
    }

    /// Pushes the recorded changes of an entered object, and its end, on the work stack.
    fn push_changes(&mut self, heap: &Heap<'_>, id: ObjectId) {
        self.work.push(RenderTask::Leave);
        let Some(recorded) = heap.recorded_changes(id) else { return };
        if !recorded.state().is_empty() {
            self.work.push(RenderTask::Parts { of: id, part: ObjectSequence::States, next: 0, close: "" });
            self.work.push(RenderTask::Text(" with state "));
        }
        if !recorded.appends().is_empty() {
            self.work.push(RenderTask::Parts { of: id, part: ObjectSequence::Appends, next: 0, close: "]" });
            self.work.push(RenderTask::Text(" + ["));
        }
        if !recorded.items().is_empty() {
            self.work.push(RenderTask::Parts { of: id, part: ObjectSequence::SetItems, next: 0, close: "}" });
            self.work.push(RenderTask::Text(" | {"));
        }
    }
}

//! Trace of a pickle, step by step: the instruction, its effect, and stack, metastack and memo after it.
//!
//! The cost of a step is proportional to the printed text, not to the size of the machine's state, unless the state is
//! printed in full. A full listing grows with the square of the pickle, so it is truncated beyond
//! [`PickleLimits::repeat_budget`](crate::PickleLimits).

use std::collections::VecDeque;
use std::fmt::{self, Write};
use std::rc::Rc;

use super::event::{Effect, TraceEvent};
use super::listing_writer::{LimitedWriter, ListingWriter};
use super::options::{Annotate, ListingOptions, TraceError, TraceView};
use super::render::{PRINTED_NAME_MAX, PrintLimits, Renderer};
use super::{effect_text, json, repr};
use crate::error::{Error, ErrorKind};
use crate::heap::{Heap, Pickle};
use crate::machine::Machine;
use crate::object::ObjectId;
use crate::reader::{Arg, Instruction, Reader};

/// Default limits for printing the machine's state: objects of the current frame, frames of the metastack, objects of
/// each metastack frame, and memo entries.
const STACK_ITEMS_MAX: usize = 6;
const FRAMES_MAX: usize = 3;
const FRAME_ITEMS_MAX: usize = 3;
const MEMO_ENTRIES_MAX: usize = 4;

/// Version of the JSON members of [`TraceView::Json`].
const SCHEMA_VERSION: u32 = 1;

/// Limits for printing one object of the machine's state.
const STATE_LIMITS: PrintLimits =
    PrintLimits { text: 40, name: PRINTED_NAME_MAX, items: 5, depth: 2, parts: 12 };

/// Traces the pickle at the start of `bytes`. Returns the pickle, or `None` if the limit ended the trace early.
///
/// # Errors
///
/// Returns the errors of [`load`](crate::load), after all steps before the fault are written, or an error if the
/// listing cannot be written.
pub fn write<'p>(
    bytes: &'p [u8],
    options: &ListingOptions<'_>,
    out: &mut dyn std::io::Write,
) -> Result<Option<Pickle<'p>>, TraceError> {
    let mut out = ListingWriter::new(out);
    let result = trace_instructions(bytes, options, &mut out);
    out.finish()?;
    result
}

fn trace_instructions<'p>(
    bytes: &'p [u8],
    options: &ListingOptions<'_>,
    out: &mut ListingWriter<'_>,
) -> Result<Option<Pickle<'p>>, TraceError> {
    let mut reader = Reader::new(bytes);
    let mut machine = Machine::new(options.limits);
    let mut printer = Printer::new(options, bytes.len() as u64);
    while let Some(instruction) = reader.next() {
        if options.limit.is_some_and(|limit| machine.opcodes() >= limit) {
            if options.view != TraceView::Json {
                out.write(|out| writeln!(out, "… stopped after {} opcodes", machine.opcodes()))?;
            }
            return Ok(None);
        }
        let instruction = instruction?;
        let event = match TraceEvent::execute(&mut machine, instruction.clone()) {
            Ok(event) => event,
            Err(error) => {
                // The instruction at fault is printed, as pickletools does.
                if options.view != TraceView::Json {
                    out.write(|out| {
                        printer.instruction(out, &instruction)?;
                        out.write_char('\n')
                    })?;
                }
                return Err(error.into());
            }
        };
        printer.track_effect(event.effect);
        let before = out.len();
        out.write(|out| printer.event(out, &event, &machine))?;
        printer.left = printer.left.map(|left| left.saturating_sub(out.len().saturating_sub(before)));
        if let Some(root) = event.result() {
            return Ok(Some(machine.finish(root, reader.offset())));
        }
    }
    Err(Error { kind: ErrorKind::NoStop, offset: reader.offset(), opcode: None }.into())
}

struct Printer<'a> {
    options: &'a ListingOptions<'a>,
    values: ValuePrinter<'a>,
    /// Most recently stored memo entries, newest last.
    recent: VecDeque<(u64, ObjectId)>,
    /// Number of bytes that may still be printed in full; `None` if values are truncated.
    left: Option<u64>,
}

impl<'a> Printer<'a> {
    /// Creates a printer for a pickle of `len` bytes.
    fn new(options: &'a ListingOptions<'a>, len: u64) -> Self {
        let left = options.full.then(|| options.limits.repeat_budget(len));
        Printer { options, values: ValuePrinter::new(options.annotate), recent: VecDeque::new(), left }
    }

    /// Updates the recent memo entries and the cached names after an instruction.
    fn track_effect(&mut self, effect: Effect) {
        match effect {
            Effect::Put { key, object } => {
                self.recent.retain(|&(other, _)| other != key);
                if self.recent.len() >= MEMO_ENTRIES_MAX {
                    self.recent.pop_front();
                }
                self.recent.push_back((key, object));
            }
            Effect::Append { target, .. }
            | Effect::Appends { target, .. }
            | Effect::AddItems { target, .. }
            | Effect::SetItem { target, .. }
            | Effect::SetItems { target, .. }
            | Effect::SetState { target, .. } => self.values.forget(target),
            _ => {}
        }
    }

    fn event(&mut self, out: &mut dyn Write, event: &TraceEvent<'_>, machine: &Machine<'_>) -> fmt::Result {
        let heap = machine.heap();
        let mut extent = PrintLimits::SHORT;
        self.values.left = None;
        if self.left.is_some() {
            extent = PrintLimits::full(&self.options.limits, heap);
            self.values.left = Some(extent.parts);
        }
        let most = self.left.unwrap_or(u64::MAX);
        match self.options.view {
            TraceView::Json => {
                let TraceEvent { ref instruction, effect, stack, metastack, memo } = *event;
                let Instruction { offset, opcode, ref arg } = *instruction;
                write!(out, "{{\"schema_version\":{SCHEMA_VERSION},")?;
                if let Some(file) = self.options.file {
                    out.write_str("\"file\":")?;
                    json::text(out, file)?;
                    out.write_char(',')?;
                }
                write!(out, "\"offset\":{offset},\"opcode\":\"{opcode}\",\"arg\":")?;
                json::arg(out, arg)?;
                write!(out, ",\"stack\":{stack},\"metastack\":{metastack},\"memo\":{memo},\"effect\":\"")?;
                let values = &mut self.values;
                let mut inside = json::JsonEscaper(&mut *out);
                let mut capped = LimitedWriter::new(&mut inside, most);
                let written = effect_text::effect(&mut capped, effect, &mut |out, id| {
                    values.write(out, heap, id, extent)
                });
                if capped.is_full {
                    self.left = None;
                    out.write_char('…')?;
                } else {
                    written?;
                }
                out.write_str("\"}\n")
            }
            TraceView::Lines | TraceView::Steps => {
                let mut capped = LimitedWriter::new(&mut *out, most);
                let written = self.step(&mut capped, event, machine, extent);
                if !capped.is_full {
                    return written;
                }
                self.left = None;
                out.write_str("…\n… the listing is too long: values are cut short from here on\n")
            }
        }
    }

    /// Prints the instruction, its effect, and the state after it.
    fn step(
        &mut self,
        out: &mut dyn Write,
        event: &TraceEvent<'_>,
        machine: &Machine<'_>,
        extent: PrintLimits,
    ) -> fmt::Result {
        let (heap, is_line) = (machine.heap(), self.options.view == TraceView::Lines);
        self.instruction(out, &event.instruction)?;
        out.write_str(if is_line { "; " } else { "\n    " })?;
        let values = &mut self.values;
        effect_text::effect(out, event.effect, &mut |out, id| values.write(out, heap, id, extent))?;
        out.write_char('\n')?;
        if is_line { Ok(()) } else { self.state(out, machine) }
    }

    /// Prints the offset, byte, opcode and argument of an instruction.
    fn instruction(&self, out: &mut dyn Write, instruction: &Instruction<'_>) -> fmt::Result {
        let Instruction { offset, opcode, ref arg } = *instruction;
        let code = opcode.code();
        let character = if code.is_ascii_graphic() { char::from(code) } else { ' ' };
        write!(out, "0x{offset:<8x} {code:02x} {character} {}", opcode.name())?;
        if *arg != Arg::None {
            write!(out, "{:1$}", "", 17_usize.saturating_sub(opcode.name().len()))?;
            argument(out, arg, if self.left.is_some() { usize::MAX } else { PrintLimits::SHORT.text })?;
        }
        Ok(())
    }

    fn state(&mut self, out: &mut dyn Write, machine: &Machine<'_>) -> fmt::Result {
        let full = self.left.is_some();
        let heap = machine.heap();
        let extent = if full { PrintLimits::full(&self.options.limits, heap) } else { STATE_LIMITS };
        let most = |most: usize| if full { usize::MAX } else { most };

        out.write_str("    stack      ")?;
        self.values.frame(out, heap, machine.stack(), most(STACK_ITEMS_MAX), extent)?;

        out.write_str("\n    metastack  [")?;
        let hidden = machine.metastack().len().saturating_sub(most(FRAMES_MAX));
        let mut list = CommaList::after(out, hidden)?;
        for frame in hidden..machine.metastack().len() {
            let frame = machine.frame(frame);
            list.comma()?;
            self.values.frame(list.out, heap, frame, most(FRAME_ITEMS_MAX), extent)?;
        }

        out.write_str("]\n    memo       {")?;
        if full {
            let mut list = CommaList::after(out, 0)?;
            for (key, id) in machine.memo() {
                list.comma()?;
                write!(list.out, "{key}: ")?;
                self.values.write(list.out, heap, id, extent)?;
            }
        } else {
            let mut list = CommaList::after(out, machine.memo_len().saturating_sub(self.recent.len()))?;
            for &(key, id) in &self.recent {
                list.comma()?;
                write!(list.out, "{key}: ")?;
                self.values.write(list.out, heap, id, extent)?;
            }
        }
        out.write_str("}\n")
    }
}

/// Printer of comma-separated items, after the number of hidden items.
struct CommaList<'o> {
    out: &'o mut dyn Write,
    started: bool,
}

impl<'o> CommaList<'o> {
    fn after(out: &'o mut dyn Write, hidden: usize) -> Result<CommaList<'o>, fmt::Error> {
        if hidden > 0 {
            write!(out, "… {hidden} more")?;
        }
        Ok(CommaList { out, started: hidden > 0 })
    }

    fn comma(&mut self) -> fmt::Result {
        if std::mem::replace(&mut self.started, true) { self.out.write_str(", ") } else { Ok(()) }
    }
}

fn argument(out: &mut dyn Write, arg: &Arg<'_>, most: usize) -> fmt::Result {
    match arg {
        Arg::None => Ok(()),
        Arg::Bool(value) => out.write_str(if *value { "True" } else { "False" }),
        Arg::Int(value) => write!(out, "{value}"),
        Arg::FrameLength(value) => write!(out, "{value}"),
        Arg::Long(value) if value.bytes().len() > most => {
            write!(out, "<integer of {} bytes>", value.bytes().len())
        }
        Arg::Long(value) => write!(out, "{value}"),
        Arg::Float(value) => repr::float(out, *value),
        Arg::Text(text) => repr::text(out, text, most),
        Arg::String(bytes) => repr::latin1(out, bytes, most),
        Arg::Bytes(bytes) => repr::bytes(out, bytes, most),
        Arg::Global { module, name } => {
            repr::plain(out, module)?;
            out.write_char(' ')?;
            repr::plain(out, name)
        }
    }
}

/// Printer of values that caches the annotator's texts for recent objects.
struct ValuePrinter<'a> {
    renderer: Renderer,
    annotate: Option<&'a Annotate<'a>>,
    /// Cached annotator's texts, indexed by the id modulo [`NAME_SLOTS`].
    names: Vec<Option<(ObjectId, Option<Rc<str>>)>>,
    /// Number of objects that this step may still print, if all of its values share the limit.
    left: Option<usize>,
}

const NAME_SLOTS: usize = 256;

impl<'a> ValuePrinter<'a> {
    fn new(annotate: Option<&'a Annotate<'a>>) -> Self {
        ValuePrinter { renderer: Renderer::default(), annotate, names: vec![None; NAME_SLOTS], left: None }
    }

    fn write(
        &mut self,
        out: &mut dyn Write,
        heap: &Heap<'_>,
        id: ObjectId,
        extent: PrintLimits,
    ) -> fmt::Result {
        let (names, annotate) = (&mut self.names, self.annotate);
        let extent = PrintLimits { parts: self.left.unwrap_or(extent.parts), ..extent };
        let result = self.renderer.render(out, heap, id, extent, &mut |id| {
            let annotate = annotate?;
            let slot = names.get_mut(id.index() % NAME_SLOTS)?;
            match slot {
                Some((known, name)) if *known == id => name.clone(),
                _ => {
                    let name: Option<Rc<str>> = annotate(heap, id).map(Rc::from);
                    *slot = Some((id, name.clone()));
                    name
                }
            }
        });
        self.left = self.left.map(|_| self.renderer.parts_left());
        result
    }

    fn forget(&mut self, id: ObjectId) {
        if let Some(slot) = self.names.get_mut(id.index() % NAME_SLOTS) {
            *slot = None;
        }
    }

    /// Prints a frame of the stack, bottom first.
    fn frame(
        &mut self,
        out: &mut dyn Write,
        heap: &Heap<'_>,
        frame: &[ObjectId],
        most: usize,
        extent: PrintLimits,
    ) -> fmt::Result {
        out.write_char('[')?;
        let hidden = frame.len().saturating_sub(most);
        let mut list = CommaList::after(out, hidden)?;
        for &id in frame.get(hidden..).unwrap_or_default() {
            list.comma()?;
            self.write(list.out, heap, id, extent)?;
        }
        out.write_char(']')
    }
}

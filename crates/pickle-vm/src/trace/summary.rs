//! Counts of the opcodes, globals and memo entries of one pickle.

use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::io;

use super::listing_writer::ListingWriter;
use super::repr;
use crate::error::{Error, ErrorKind, Result};
use crate::heap::Pickle;
use crate::limits::PickleLimits;
use crate::machine::Machine;
use crate::opcode::Opcode;
use crate::reader::Reader;

/// A pickle and the counts of its opcodes and globals.
#[derive(Clone, Debug)]
pub struct PickleSummary<'p> {
    pub pickle: Pickle<'p>,
    /// Number of instructions by the opcode's byte.
    counts: Vec<u64>,
}

impl<'p> PickleSummary<'p> {
    /// Reads the pickle at the start of `bytes`, and counts its opcodes.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`load_with`](crate::load_with).
    pub fn read(bytes: &'p [u8], limits: &PickleLimits) -> Result<PickleSummary<'p>> {
        let mut reader = Reader::new(bytes);
        let mut machine = Machine::new(*limits);
        let mut counts = vec![0_u64; 256];
        while let Some(instruction) = reader.next() {
            let instruction = instruction?;
            if let Some(count) = counts.get_mut(usize::from(instruction.opcode.code())) {
                *count = count.saturating_add(1);
            }
            if let Some(root) = machine.step(instruction)? {
                return Ok(PickleSummary { pickle: machine.finish(root, reader.offset()), counts });
            }
        }
        Err(Error { kind: ErrorKind::NoStop, offset: reader.offset(), opcode: None })
    }

    /// Returns the opcodes that occur, in the order of the table, each with its count.
    pub fn opcodes(&self) -> impl Iterator<Item = (Opcode, u64)> + '_ {
        let count = |opcode: Opcode| self.counts.get(usize::from(opcode.code())).copied().unwrap_or(0);
        Opcode::ALL.iter().map(move |&opcode| (opcode, count(opcode))).filter(|&(_, count)| count > 0)
    }

    /// Returns the globals that occur, by module and name, each with the number of its recorded calls.
    pub fn globals(&self) -> BTreeMap<(&str, &str), u64> {
        let heap = &self.pickle.heap;
        let mut globals = BTreeMap::new();
        for id in heap.ids() {
            if let Some(global) = heap.global(id) {
                globals.entry(global).or_insert(0);
            }
            if let Some(global) = heap.instance(id).and_then(|instance| heap.global(instance.callable)) {
                let calls: &mut u64 = globals.entry(global).or_insert(0);
                *calls = calls.saturating_add(1);
            }
        }
        globals
    }

    /// Writes the counts. The last line is `N opcodes, N tensors, N memo entries`, where the caller supplies the number
    /// of tensors.
    ///
    /// # Errors
    ///
    /// Returns an error if the summary cannot be written.
    pub fn write(&self, tensors: u64, out: &mut dyn io::Write) -> io::Result<()> {
        let mut out = ListingWriter::new(out);
        out.write(|out| self.text(tensors, out))?;
        out.finish()
    }

    fn text(&self, tensors: u64, out: &mut dyn Write) -> fmt::Result {
        out.write_str("opcodes\n")?;
        let mut opcodes: Vec<(Opcode, u64)> = self.opcodes().collect();
        opcodes.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
        for (opcode, count) in opcodes {
            writeln!(out, "{count:>12} {opcode}")?;
        }
        out.write_str("globals, and how often each is called\n")?;
        for ((module, name), calls) in self.globals() {
            write!(out, "{calls:>12} ")?;
            repr::plain(out, module)?;
            out.write_char('.')?;
            repr::plain(out, name)?;
            out.write_char('\n')?;
        }
        let Pickle { opcodes, memo_len, .. } = self.pickle;
        writeln!(out, "{opcodes} opcodes, {tensors} tensors, {memo_len} memo entries")
    }
}

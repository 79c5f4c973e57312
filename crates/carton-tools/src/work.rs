//! Long work that an observer follows and can stop between two windows.

use std::io::{self, Write};
use std::ops::ControlFlow;

use carton_reader::Carton;
use mapped::Cancelled;
use pipeline::{Action, Observer, Step, advance};

/// Long work whose progress is counted in bytes.
pub(crate) struct Work<'o> {
    observer: &'o dyn Observer,
    name: String,
    action: Action,
    total: Option<u64>,
    done: u64,
}

impl<'o> Work<'o> {
    pub(crate) fn new(observer: &'o dyn Observer, name: &str, action: Action, total: Option<u64>) -> Self {
        Self { observer, name: name.to_owned(), action, total, done: 0 }
    }

    /// `done` bytes are done.
    pub(crate) fn set(&mut self, done: u64) -> ControlFlow<()> {
        self.done = done;
        let Self { observer, name, action, total, .. } = self;
        advance(*observer, Step { name, action: *action, done, total: *total })
    }

    /// The same, where the total is learned on the way.
    pub(crate) fn set_of(&mut self, done: u64, total: Option<u64>) -> ControlFlow<()> {
        self.total = total.or(self.total);
        self.set(done)
    }

    /// Copies the file at `path` of the carton to `out`, checked.
    pub(crate) fn copy(
        &mut self,
        carton: &Carton,
        path: &str,
        out: &mut dyn Write,
    ) -> carton_reader::Result<()> {
        carton.copy(path, &mut Watched { out, work: self })
    }
}

/// A writer that fails when the observer stops the work.
struct Watched<'w, 'o> {
    out: &'w mut dyn Write,
    work: &'w mut Work<'o>,
}

impl Write for Watched<'_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        Cancelled::check(self.work.set(self.work.done.saturating_add(written as u64)))?;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

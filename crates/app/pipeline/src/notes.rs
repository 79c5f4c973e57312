//! Collects the notes of a conversion.

use crate::{Note, Observer};

/// The notes of a conversion: the observer receives each at once, and the report has all of them.
pub(crate) struct Notes<'o> {
    observer: &'o dyn Observer,
    all: Vec<Note>,
}

impl<'o> Notes<'o> {
    /// No notes yet.
    pub(crate) fn new(observer: &'o dyn Observer) -> Self {
        Self { observer, all: Vec::new() }
    }

    /// Adds a note.
    pub(crate) fn push(&mut self, note: Note) {
        self.observer.note(&note);
        self.all.push(note);
    }

    /// All notes, in the order in which they were added.
    pub(crate) fn into_vec(self) -> Vec<Note> {
        self.all
    }
}

impl Extend<Note> for Notes<'_> {
    fn extend<N: IntoIterator<Item = Note>>(&mut self, notes: N) {
        notes.into_iter().for_each(|note| self.push(note));
    }
}

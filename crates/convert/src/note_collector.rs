//! Collection of the notes of a conversion.

use crate::Note;
use byte_source::Observer;

/// Notes of a conversion. Each is passed to the observer immediately, and all of them to the report.
pub struct NoteCollector<'o> {
    observer: &'o dyn Observer,
    all: Vec<Note>,
}

impl<'o> NoteCollector<'o> {
    /// Creates an empty collection.
    pub(crate) fn new(observer: &'o dyn Observer) -> Self {
        Self { observer, all: Vec::new() }
    }

    /// Adds a note, and passes it to the observer.
    pub fn push(&mut self, note: Note) {
        self.observer.note(&note);
        self.all.push(note);
    }

    /// Returns all notes, in the order in which they were added.
    pub(crate) fn into_vec(self) -> Vec<Note> {
        self.all
    }
}

impl<N: Into<Note>> Extend<N> for NoteCollector<'_> {
    fn extend<I: IntoIterator<Item = N>>(&mut self, notes: I) {
        notes.into_iter().for_each(|note| self.push(note.into()));
    }
}

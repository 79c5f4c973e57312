//! Archives made byte by byte, each with one thing that ordinary programs do not write.
//!
//! Facts: PKWARE's APPNOTE.TXT 6.3.10, sections 4.3 to 4.5; Info-ZIP's `proginfo/extrafld.txt`.

mod archive;
mod flaws;
mod index;
mod lazy;
mod survey;

//! What programs in protocol 2 read as, as one program.

mod calls;
mod modules;
mod mutations;
mod old;
mod programs;

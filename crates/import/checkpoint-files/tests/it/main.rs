//! The integration tests of `checkpoint-files`, in one program.

mod companions;
mod folders;
mod made_folder;
mod remote;
mod trainers;

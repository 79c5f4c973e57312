//! The integration tests of `checkpoint-files`, in one program.

mod folders;
mod made_folder;
mod trainers;

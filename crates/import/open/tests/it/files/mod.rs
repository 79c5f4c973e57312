//! Tests of what a path stands for.

mod companions;
mod folders;
mod made_folder;
mod remote;
mod trainers;

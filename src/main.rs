//! The program: see `torch2carton::cli`.

use std::process::ExitCode;

fn main() -> ExitCode {
    // The process is this program's. Others that call the library decide about their memory themselves.
    byte_source::on_memory_freed(byte_source::release_freed);
    torch2carton::cli::run(std::env::args_os())
}

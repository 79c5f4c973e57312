//! Entry point of the program; see `torch2carton::cli`.

use std::process::ExitCode;

fn main() -> ExitCode {
    // This program owns its process, so freed memory goes back to the system. Other callers of the library decide that
    // themselves.
    byte_source::on_memory_freed(byte_source::release_freed);
    torch2carton::cli::run(std::env::args_os())
}

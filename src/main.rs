//! Entry point of the program; see `torch2carton::cli`.

use std::ffi::OsString;
use std::process::ExitCode;

fn main() -> ExitCode {
    // This program owns its process, so freed memory goes back to the system. Other callers of the library decide that
    // themselves.
    byte_source::on_memory_freed(byte_source::release_freed);
    torch2carton::cli::run(arguments())
}

#[cfg(unix)]
fn arguments() -> impl Iterator<Item = OsString> {
    std::env::args_os()
}

/// Returns the arguments with files in place of wildcards, which shells of Windows leave to the program.
#[cfg(not(unix))]
fn arguments() -> impl Iterator<Item = OsString> {
    wild::args_os()
}

//! The binary: see the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    torch2carton::run(std::env::args_os())
}

//! Record of the typed subcommand for commands in advice, and the error for wrong usage.

use std::cell::RefCell;

pub(crate) const PROGRAM: &str = "torch2carton";

/// Error about wrong command-line usage: exit status 2.
#[derive(Debug)]
pub(crate) struct UsageError(pub(crate) String);

impl std::fmt::Display for UsageError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UsageError {}

thread_local! {
    /// Program and subcommand as typed.
    static TYPED_COMMAND: RefCell<String> = RefCell::new(PROGRAM.to_owned());
}

/// Returns the program and the subcommand as typed, for commands in advice.
pub(crate) fn typed_command() -> String {
    TYPED_COMMAND.with_borrow(Clone::clone)
}

/// Returns the subcommand as typed; `None` for the default one.
pub(crate) fn typed_verb() -> Option<String> {
    typed_command().strip_prefix(PROGRAM)?.strip_prefix(' ').map(str::to_owned)
}

/// Records the typed subcommand; `None` for the default one.
pub(crate) fn record_subcommand(subcommand: Option<&str>) {
    let text = subcommand.map_or_else(|| PROGRAM.to_owned(), |name| format!("{PROGRAM} {name}"));
    TYPED_COMMAND.set(text);
}

//! `torch2carton -VV`: prints the version and the processor's extensions that this program uses.

use std::process::ExitCode;

use anyhow::Result;
use byte_source::Sha256;
use kernels::Extension;

/// Prints the version, the implementation of SHA-256, and which extensions are used.
pub(crate) fn version() -> Result<ExitCode> {
    let names = |are_used| {
        let names = Extension::ALL.into_iter().filter(|extension| extension.is_used() == are_used);
        let names: Vec<_> = names.map(Extension::name).collect();
        if names.is_empty() { "none".to_owned() } else { names.join(", ") }
    };
    let text = format!(
        "torch2carton {}\nSHA-256     {}\nextensions  {}\nnot used    {}\n",
        env!("CARGO_PKG_VERSION"),
        Sha256::implementation(),
        names(true),
        names(false)
    );
    super::write_stdout(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

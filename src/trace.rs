//! `torch2carton trace`: the instructions of a checkpoint's pickle.

use anyhow::Result;

use crate::cli;

pub(crate) fn run(args: &cli::Trace) -> Result<()> {
    anyhow::bail!("{}", args.file.display())
}

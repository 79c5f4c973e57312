//! Files on their way from one carton into another, as they are.

use std::ops::ControlFlow;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use carton_format::{Links, Manifest, Problems};
use carton_reader::{Carton, Entry, Method};
use carton_writer::{File, Written};
use store::{IfExists, Output, file_name};
use tensor::Storage;
use torch_import::Container;
use zip_layout::{Content, Packed};

use crate::inspect_carton::is_carton;
use crate::terminal::{self, Progress};
use crate::ui::shell::quoted;

/// An entry of a packed carton and what is needed to write it again.
pub(crate) struct Kept<'c> {
    path: &'c str,
    sha256: Option<[u8; 32]>,
    bytes: Storage,
    kind: Kind,
}

enum Kind {
    Stored,
    Packed(zip_layout::Method, u64, u32),
    Link(Vec<u8>),
}

impl<'c> Kept<'c> {
    /// The entry as it is; one that is compressed is checked here, one that is stored while it is written.
    pub(crate) fn of(carton: &'c Carton, entry: &'c Entry) -> Result<Self> {
        let path = entry.path.as_str();
        let sha256 = carton.manifest().and_then(|manifest| manifest.hash(path));
        let (file, range, crc) = carton.packed(path).context("only a packed carton has entries")?;
        let packed = |method| -> Result<Kind> {
            carton.copy(path, &mut std::io::sink())?;
            Ok(Kind::Packed(method, entry.len, crc))
        };
        let kind = match entry.method {
            _ if entry.link => {
                carton.link_target(entry)?;
                Kind::Link(carton.link_text(entry)?.into_bytes())
            }
            Method::Stored => Kind::Stored,
            Method::Deflated => packed(zip_layout::Method::Deflated)?,
            Method::Zstd => packed(zip_layout::Method::Zstd)?,
            Method::Other(method) => bail!(carton_reader::Error::Method { path: path.to_owned(), method }),
        };
        let bytes = Storage::mapped(file, range, None).context("an entry outside of its file")?;
        Ok(Self { path, sha256, bytes, kind })
    }

    pub(crate) fn file<'b>(&'b self) -> File<'b> {
        let content = match &self.kind {
            Kind::Stored => Content::Blob(&self.bytes),
            Kind::Packed(method, len, crc) => {
                Content::Packed(Packed { blob: &self.bytes, method: *method, len: *len, crc: *crc })
            }
            Kind::Link(target) => Content::Link(target),
        };
        File { path: self.path.to_owned(), content, sha256: self.sha256 }
    }
}

/// Whether the carton's own bookkeeping is meant, which is written anew.
pub(crate) fn is_bookkeeping(path: &str) -> bool {
    [Manifest::PATH, Links::PATH].contains(&path)
}

/// Writes a carton to `target`, whole or not at all.
pub(crate) fn write(
    carton: &carton_writer::Carton<'_>,
    target: &Path,
    if_exists: IfExists,
    quiet: bool,
) -> Result<Written> {
    let len = carton.len()?;
    let mut output = Output::create(target, len)?;
    let mut progress = Progress::new(&file_name(target), len, quiet);
    let written = carton
        .write(&mut output, &mut |done| {
            progress.set(done);
            ControlFlow::Continue(())
        })
        .with_context(|| format!("cannot write {}", target.display()))?;
    drop(progress);
    output.commit(if_exists)?;
    Ok(written)
}

/// All problems, a line each, and the error that sums them up.
pub(crate) fn refused(path: &Path, problems: &Problems) -> anyhow::Error {
    for problem in &problems.0 {
        terminal::error(&anyhow::anyhow!("{problem}"));
    }
    anyhow::anyhow!("{}: {}", path.display(), counted(problems.0.len()))
}

/// How many things are wrong, in words.
pub(crate) fn counted(n: usize) -> String {
    if n == 1 { "one thing is wrong".to_owned() } else { format!("{n} things are wrong") }
}

/// What a carton leaves out, all of which LINKS must know.
pub(crate) fn absent(carton: &Carton) -> Result<Vec<(String, [u8; 32])>> {
    let absent = carton.absent();
    for (path, _) in &absent {
        if let Err(error @ carton_reader::Error::Missing { .. }) = carton.entry(path) {
            let file = carton.path().display();
            return Err(anyhow::Error::new(error).context(format!("{file}: LINKS does not know it")));
        }
    }
    Ok(absent)
}

/// The format of a file that is a checkpoint and no carton.
pub(crate) fn checkpoint_format(path: &Path) -> Option<&'static str> {
    if !path.is_file() || is_carton(path) {
        return None;
    }
    Container::open(path).ok().map(|container| container.format().name())
}

/// An error of the reader; the problems of a document are told one by one.
pub(crate) fn told(path: &Path, error: carton_reader::Error) -> anyhow::Error {
    if let Some(format) = checkpoint_format(path) {
        let shown = quoted(path);
        return anyhow!(
            "{}: a checkpoint ({format}), not a carton; `torch2carton {shown}` makes one",
            path.display()
        );
    }
    match error {
        carton_reader::Error::Format(carton_format::Error::Document(problems)) => refused(path, &problems),
        other => anyhow::Error::new(other).context(path.display().to_string()),
    }
}

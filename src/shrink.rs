//! `torch2carton shrink`: files move out of a carton into a folder that many cartons share.

use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result, bail};
use carton_format::{Config, TensorIndex, sha256_to_hex};
use carton_reader::Carton;
use store::{IfExists, Output};

use crate::cli::{self, Usage};
use crate::repack::{self, Kept, is_bookkeeping, told};
use crate::terminal::{bytes, safe};

pub(crate) fn run(args: &cli::Shrink, quiet: bool) -> Result<()> {
    let base = base(&args.base)?;
    let carton = Carton::open(&args.file).map_err(|error| told(&args.file, error))?;
    if !carton.is_packed() {
        bail!("{} is a folder: `torch2carton pack` makes a carton of it first", args.file.display());
    }
    let if_exists = cli::if_exists(args.no_clobber);
    store::check_target(&args.output, &[&args.file], if_exists)?;
    std::fs::create_dir_all(&args.blobs).with_context(|| format!("cannot make {}", args.blobs.display()))?;
    let manifest = carton.manifest().context("a packed carton has a MANIFEST")?;
    let mut links = carton.links().clone();
    let mut absent = repack::absent(&carton)?;
    let mut kept = Vec::new();
    let (mut moved, mut moved_bytes) = (0_usize, 0_u64);
    for entry in carton.entries().filter(|entry| !is_bookkeeping(&entry.path)) {
        // Without its documents nobody could tell what a carton is.
        let document = [Config::PATH, TensorIndex::PATH].contains(&entry.path.as_str());
        if document || entry.link || entry.len < args.min_size {
            kept.push(Kept::of(&carton, entry).with_context(|| args.file.display().to_string())?);
            continue;
        }
        let sha256 = manifest
            .hash(&entry.path)
            .with_context(|| format!("`{}` is not listed in MANIFEST", entry.path.escape_debug()))?;
        let name = sha256_to_hex(&sha256);
        blob(&carton, &entry.path, &args.blobs.join(&name))?;
        links.add(sha256, format!("{base}/{name}"));
        absent.push((entry.path.clone(), sha256));
        moved = moved.saturating_add(1);
        moved_bytes = moved_bytes.saturating_add(entry.len);
    }
    // A carton without its files must not outlive them.
    store::sync_folder(&args.blobs)?;
    let links = if absent.is_empty() { None } else { Some(links.to_toml()?) };
    let files = kept.iter().map(Kept::file).collect();
    let shrunk = carton_writer::Carton { files, absent, links };
    let written = repack::write(&shrunk, &args.output, if_exists, quiet)?;
    if !quiet {
        let mut err = anstream::stderr().lock();
        writeln!(
            err,
            "{}: {}; {moved} files, {} are in {}",
            safe(args.output.display()),
            bytes(written.len),
            bytes(moved_bytes),
            safe(args.blobs.display())
        )?;
    }
    Ok(())
}

/// What stands before a blob's name in its URL.
fn base(text: &str) -> Result<&str> {
    let base = text.trim_end_matches('/');
    let fine = url::Url::parse(base).is_ok_and(|url| {
        matches!(url.scheme(), "http" | "https")
            && url.has_host()
            && url.query().is_none()
            && url.fragment().is_none()
    });
    if !fine {
        bail!(Usage(format!("--base {text}: expected an http or https URL without a query")));
    }
    Ok(base)
}

/// Writes the file at `path` of the carton to `target`, unless it is there already.
fn blob(carton: &Carton, path: &str, target: &Path) -> Result<()> {
    if target.symlink_metadata().is_ok() {
        let expected = carton.entry(path)?.len;
        let found = target.metadata().with_context(|| target.display().to_string())?.len();
        if found != expected {
            bail!("{} has {found} bytes, the file of that hash has {expected}", target.display());
        }
        return same(carton, path, target);
    }
    let mut output = Output::create(target, carton.entry(path)?.len)?;
    carton.copy(path, &mut &mut output)?;
    Ok(output.commit_unsynced(IfExists::Replace)?)
}

/// Whether the blob that is there has the bytes of the carton's file.
fn same(carton: &Carton, path: &str, target: &Path) -> Result<()> {
    use std::io::{BufRead, Read};
    let mut ours = carton.read(path)?;
    let mut theirs = std::fs::File::open(target).with_context(|| target.display().to_string())?;
    let mut buffer = vec![0; mapped::WINDOW];
    loop {
        let chunk = ours.fill_buf()?;
        if chunk.is_empty() {
            return Ok(());
        }
        let other = buffer.get_mut(..chunk.len()).context("a chunk is a window at most")?;
        theirs.read_exact(other).with_context(|| target.display().to_string())?;
        if chunk != other {
            bail!("{} is damaged: it does not have the hash that it is called by", target.display());
        }
        let len = chunk.len();
        ours.consume(len);
    }
}

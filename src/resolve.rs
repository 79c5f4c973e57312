//! `torch2carton resolve`: the files that a carton leaves out come back into it.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use carton_format::sha256_to_hex;
use carton_reader::Carton;
use mapped::{Blob, Sink, UnopenedFile, Window};
use sha2::{Digest, Sha256};
use sources::location::folder;
use zip_layout::Content;

use crate::cli;
use crate::fetch::{self, Rules};
use crate::output::{self, Scratch};
use crate::repack::{self, Kept, is_bookkeeping, told};
use crate::terminal::{self, Progress, bytes, safe};

pub(crate) fn run(args: &cli::Resolve, quiet: bool) -> Result<()> {
    let shown = || args.file.display().to_string();
    let carton = Carton::open(&args.file).map_err(|error| told(&args.file, error))?;
    if !carton.is_packed() {
        bail!("{} is a folder: `torch2carton pack` makes a carton of it first", args.file.display());
    }
    output::check(&args.output, &[&args.file], args.no_clobber)?;
    let absent = repack::absent(&carton)?;
    // Without a cache the files wait beside the output, and go away with this.
    let scratch;
    let cache = if let Some(cache) = &args.cache {
        std::fs::create_dir_all(cache).with_context(|| format!("cannot make {}", cache.display()))?;
        cache.as_path()
    } else {
        scratch = Scratch::create(folder(&args.output))?;
        scratch.path()
    };
    let stalled = Duration::from_secs(args.timeout);
    let mut fetched = Vec::with_capacity(absent.len());
    for (path, sha256) in &absent {
        // What is fetched is written twice: here, and into the carton.
        let limit = match args.max_size {
            Some(limit) => limit,
            None => output::free(cache)? / 2,
        };
        let rules = Rules { allow_http: args.allow_http, stalled, is_public: fetch::is_public, limit };
        let file = cached(&carton, path, sha256, cache, rules, quiet).with_context(shown)?;
        fetched.push((path, *sha256, UnopenedFile::find(&file)?));
    }
    let mut kept = Vec::new();
    for entry in carton.entries().filter(|entry| !is_bookkeeping(&entry.path)) {
        kept.push(Kept::of(&carton, entry).with_context(shown)?);
    }
    let mut files: Vec<carton_writer::File<'_, '_>> = kept.iter().map(Kept::file).collect();
    files.extend(fetched.iter().map(|(path, sha256, file)| carton_writer::File {
        path: (*path).to_owned(),
        content: Content::Blob(file),
        sha256: Some(*sha256),
    }));
    files.sort_by_key(|file| (file.path.starts_with(carton_reader::MODEL), file.path.clone()));
    let whole = carton_writer::Carton::new(files);
    let written = repack::write(&whole, &args.output, args.no_clobber, quiet)?;
    if !quiet {
        let mut err = anstream::stderr().lock();
        let shown = safe(args.output.display());
        writeln!(err, "{shown}: {}, {} files fetched", bytes(written.len), absent.len())?;
    }
    Ok(())
}

/// The file with this hash in the cache, fetched where it is not there yet.
fn cached(
    carton: &Carton,
    path: &str,
    sha256: &[u8; 32],
    cache: &Path,
    rules: Rules,
    quiet: bool,
) -> Result<PathBuf> {
    let name = sha256_to_hex(sha256);
    let target = cache.join(&name);
    if target.is_file() {
        if hash(&target)? == *sha256 {
            return Ok(target);
        }
        terminal::note(format!("{} is damaged and is fetched again", target.display()));
    }
    let (mut file, partial) = partial(cache, &name)?;
    let mut failures = Vec::new();
    for url in carton.links().urls(sha256) {
        let mut progress = Progress::new(path, 0, quiet);
        let told = &mut |done, total| progress.set_of(done, total);
        match fetch::fetch(url, sha256, &mut file, rules, told) {
            Ok(()) => {
                file.sync_all()?;
                std::fs::rename(&partial, &target)?;
                return Ok(target);
            }
            Err(error) => failures.push(format!("{error:#}")),
        }
    }
    if file.metadata()?.len() == 0 || partial != shared(cache, &name) {
        // Nothing that a later run would go on from.
        let _ = std::fs::remove_file(&partial);
    }
    bail!("cannot fetch `{}`: {}", path.escape_debug(), failures.join("; "))
}

/// Where a download waits for the run that goes on with it.
fn shared(cache: &Path, name: &str) -> PathBuf {
    cache.join(format!("{name}.partial"))
}

/// The file that a download goes into, and its path: the one that an earlier run left, or, while another
/// run writes into that, one of its own.
fn partial(cache: &Path, name: &str) -> Result<(File, PathBuf)> {
    let path = shared(cache, name);
    let shown = || format!("cannot write {}", path.display());
    loop {
        let mut options = OpenOptions::new();
        let file =
            options.read(true).write(true).create(true).truncate(false).open(&path).with_context(shown)?;
        if !locked(&file) {
            let prefix = format!("{name}.");
            let mut own = tempfile::Builder::new();
            let own = own.prefix(&prefix).suffix(".partial").tempfile_in(cache);
            return own.and_then(|own| Ok(own.keep()?)).with_context(shown);
        }
        // Before it was locked, another run may have made a whole file of it.
        let opened = same_file::Handle::from_file(file.try_clone()?)?;
        if same_file::Handle::from_path(&path).is_ok_and(|there| there == opened) {
            return Ok((file, path));
        }
    }
}

/// Whether the file is this run's alone, for as long as it is open.
#[cfg(unix)]
fn locked(file: &File) -> bool {
    use rustix::fs::{FlockOperation, flock};
    // A filesystem without locks is one where nobody else writes.
    !matches!(flock(file, FlockOperation::NonBlockingLockExclusive), Err(rustix::io::Errno::WOULDBLOCK))
}

#[cfg(not(unix))]
fn locked(_: &File) -> bool {
    true
}

fn hash(path: &Path) -> Result<[u8; 32]> {
    struct Hasher(Sha256);
    impl<'a> Sink<'a> for Hasher {
        fn write(&mut self, window: Window<'a>) -> std::io::Result<()> {
            self.0.update(&*window);
            Ok(())
        }
    }
    let mut hasher = Hasher(Sha256::new());
    UnopenedFile::find(path)?.write_to(&mut hasher)?;
    Ok(hasher.0.finalize().into())
}

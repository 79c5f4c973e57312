//! `torch2carton resolve`: the files that a carton leaves out come back into it.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use carton_format::sha256_to_hex;
use carton_reader::Carton;
use mapped::{Blob, MappedFile, Sink, Window};
use sha2::{Digest, Sha256};
use zip_layout::Content;

use crate::beside::folder;
use crate::cli;
use crate::fetch::{self, Rules};
use crate::output;
use crate::repack::{self, Kept, is_bookkeeping, told};
use crate::terminal::{self, Progress, bytes, safe};

pub(crate) fn run(args: &cli::Resolve, quiet: bool) -> Result<()> {
    let shown = || args.file.display().to_string();
    let carton = Carton::open(&args.file).map_err(|error| told(&args.file, error))?;
    if !carton.is_packed() {
        bail!("{} is a folder: `torch2carton pack` makes a carton of it first", args.file.display());
    }
    output::check(&args.output, &[&args.file], args.no_clobber)?;
    let absent = carton.absent();
    for (path, _) in &absent {
        if let Err(error @ carton_reader::Error::Missing { .. }) = carton.entry(path) {
            return Err(anyhow::Error::new(error).context(format!("{}: LINKS does not know it", shown())));
        }
    }
    // Without a cache the files wait beside the output, and go away with this.
    let scratch;
    let cache = if let Some(cache) = &args.cache {
        std::fs::create_dir_all(cache).with_context(|| format!("cannot make {}", cache.display()))?;
        cache.as_path()
    } else {
        scratch = tempfile::Builder::new().prefix(".torch2carton-").tempdir_in(folder(&args.output))?;
        scratch.path()
    };
    let rules = Rules { allow_http: args.allow_http };
    let mut fetched = Vec::with_capacity(absent.len());
    for (path, sha256) in &absent {
        let file = cached(&carton, path, sha256, cache, rules, quiet).with_context(shown)?;
        fetched.push((path, *sha256, MappedFile::open(&file)?));
    }
    let mut kept = Vec::new();
    for entry in carton.entries().filter(|entry| !is_bookkeeping(&entry.path)) {
        kept.push(Kept::of(&carton, entry).with_context(shown)?);
    }
    let maps: Vec<(&str, [u8; 32], &MappedFile)> =
        fetched.iter().map(|(path, sha256, map)| (path.as_str(), *sha256, map)).collect();
    let mut files: Vec<carton_writer::File<'_, '_>> = kept.iter().map(Kept::file).collect();
    files.extend(maps.iter().map(|(path, sha256, map)| carton_writer::File {
        path: (*path).to_owned(),
        content: Content::Blob(map),
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
    let partial = cache.join(format!("{name}.partial"));
    // A file that another process is still writing is not shared: each has the whole or starts anew.
    let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&partial)?;
    let mut failures = Vec::new();
    for url in carton.links().urls(sha256) {
        let mut progress = Progress::new(path, 0, quiet);
        match fetch::fetch(url, sha256, &mut file, rules, &mut |done| progress.set(done)) {
            Ok(()) => {
                file.sync_all()?;
                std::fs::rename(&partial, &target)?;
                return Ok(target);
            }
            Err(error) => failures.push(format!("{error:#}")),
        }
    }
    if file.metadata()?.len() == 0 {
        // Nothing to go on from.
        let _ = std::fs::remove_file(&partial);
    }
    bail!("cannot fetch `{}`: {}", path.escape_debug(), failures.join("; "))
}

fn hash(path: &Path) -> Result<[u8; 32]> {
    struct Hasher(Sha256);
    impl<'a> Sink<'a> for Hasher {
        fn write(&mut self, window: Window<'a>) -> std::io::Result<()> {
            self.0.update(&*window);
            Ok(())
        }
    }
    let map = MappedFile::of(&File::open(path)?, path)?;
    let mut hasher = Hasher(Sha256::new());
    (&map).write_to(&mut hasher)?;
    Ok(hasher.0.finalize().into())
}

//! `torch2carton unpack`: a carton's files in a folder, byte for byte, never outside of it.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use carton_reader::{Carton, Entry};

use crate::cli;
use crate::output::{self, Output};
use crate::repack::told;
use crate::terminal::{self, Progress, bytes, safe};
use sources::location::file_name;

/// The most files that an error lists.
const LISTED: usize = 5;

pub(crate) fn run(args: &cli::Unpack, quiet: bool) -> Result<()> {
    let carton = Carton::open(&args.file).map_err(|error| told(&args.file, error))?;
    if !carton.is_packed() {
        bail!("{} is a folder: there is nothing to unpack", args.file.display());
    }
    let root = &args.directory;
    std::fs::create_dir_all(root).with_context(|| format!("cannot make {}", root.display()))?;
    let entries: Vec<&Entry> = carton.entries().collect();
    refuse_existing(root, &entries, args.force)?;
    for entry in entries.iter().filter(|entry| entry.link) {
        carton.link_target(entry).map_err(|error| told(&args.file, error))?;
    }
    let total = entries.iter().fold(0_u64, |sum, entry| sum.saturating_add(entry.len));
    output::ask_for(total, root)?;
    let mut progress = Progress::new(&file_name(&args.file), total, quiet);
    let mut made = Vec::new();
    if let Err(error) = write(args, &carton, &entries, &mut progress, &mut made) {
        // With --force, what was there before is gone, and what is new is better than nothing.
        if !args.force {
            remove(&made);
        }
        return Err(error);
    }
    drop(progress);
    if !quiet {
        let absent = carton.absent().len();
        if absent > 0 {
            terminal::note(format!(
                "{absent} files are not in the carton: `torch2carton resolve` fetches them"
            ));
        }
        let mut err = anstream::stderr().lock();
        writeln!(err, "{}: {} files, {}", safe(root.display()), entries.len(), bytes(total))?;
    }
    Ok(())
}

/// Writes the entries, and tells in `made` which files and folders it made.
fn write(
    args: &cli::Unpack,
    carton: &Carton,
    entries: &[&Entry],
    progress: &mut Progress,
    made: &mut Vec<PathBuf>,
) -> Result<()> {
    let root = &args.directory;
    let mut done = 0_u64;
    // Links last: no file is written through one.
    for entry in entries.iter().filter(|entry| !entry.link) {
        let target = prepared(root, &entry.path, made)?;
        let mut output = Output::create(&target, entry.len)?;
        let mut counted = Counted { out: &mut output, progress, done };
        carton.copy(&entry.path, &mut counted).map_err(|error| told(&args.file, error))?;
        done = counted.done;
        output.put(!args.force)?;
        made.push(target);
    }
    for entry in entries.iter().filter(|entry| entry.link) {
        let target = prepared(root, &entry.path, made)?;
        link(carton, entry, &target, args.force)?;
        made.push(target);
    }
    output::sync(root)
}

/// Removes what was made, the last of it first.
fn remove(made: &[PathBuf]) {
    for path in made.iter().rev() {
        let is_folder = path.symlink_metadata().is_ok_and(|kind| kind.is_dir());
        // A folder that is not empty has files of someone else.
        let _ = if is_folder { std::fs::remove_dir(path) } else { std::fs::remove_file(path) };
    }
}

/// A folder is someone's work: nothing in it is replaced unasked.
fn refuse_existing(root: &Path, entries: &[&Entry], force: bool) -> Result<()> {
    let there: Vec<PathBuf> = entries
        .iter()
        .map(|entry| root.join(&entry.path))
        .filter(|path| path.symlink_metadata().is_ok())
        .collect();
    if let Some(folder) = there.iter().find(|path| path.symlink_metadata().is_ok_and(|kind| kind.is_dir())) {
        bail!("cannot write {}: it is a folder", folder.display());
    }
    for entry in entries {
        let mut folder = root.join(&entry.path);
        while folder.pop() && folder != *root {
            if folder.symlink_metadata().is_ok_and(|kind| !kind.is_dir()) {
                bail!("cannot write into {}: it is no folder", folder.display());
            }
        }
    }
    if there.is_empty() || force {
        return Ok(());
    }
    let mut names: Vec<String> = there.iter().take(LISTED).map(|path| path.display().to_string()).collect();
    if there.len() > LISTED {
        names.push(format!("{} more", there.len().saturating_sub(LISTED)));
    }
    bail!("already there: {}; --force replaces them", names.join(", "))
}

/// The path of an entry below `root`, its folders made. None of them may be a link: it could lead out.
fn prepared(root: &Path, entry: &str, made: &mut Vec<PathBuf>) -> Result<PathBuf> {
    let mut path = root.to_owned();
    let mut parts = entry.split('/').peekable();
    while let Some(part) = parts.next() {
        path.push(part);
        if parts.peek().is_none() {
            break;
        }
        match path.symlink_metadata() {
            Ok(kind) if kind.is_dir() => {}
            Ok(_) => bail!("cannot write into {}: it is no folder", path.display()),
            Err(_) => {
                std::fs::create_dir(&path).with_context(|| format!("cannot make {}", path.display()))?;
                made.push(path.clone());
            }
        }
    }
    Ok(path)
}

#[cfg(unix)]
fn link(carton: &Carton, entry: &Entry, path: &Path, force: bool) -> Result<()> {
    let target = carton.link_text(entry)?;
    if force && path.symlink_metadata().is_ok() {
        std::fs::remove_file(path).with_context(|| format!("cannot replace {}", path.display()))?;
    }
    std::os::unix::fs::symlink(target, path).with_context(|| format!("cannot link {}", path.display()))
}

/// Where there are no links, a copy of what the link leads to takes its place.
#[cfg(not(unix))]
fn link(carton: &Carton, entry: &Entry, path: &Path, force: bool) -> Result<()> {
    let target = carton.link_target(entry)?;
    let mut output = Output::create(path, carton.entry(&target)?.len)?;
    carton.copy(&target, &mut &mut output)?;
    output.commit(!force)
}

struct Counted<'o, 'p> {
    out: &'o mut dyn Write,
    progress: &'p mut Progress,
    done: u64,
}

impl Write for Counted<'_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.done = self.done.saturating_add(written as u64);
        self.progress.set(self.done);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

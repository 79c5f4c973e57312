//! Unpacks a carton's files into a folder, byte for byte, and never outside of the folder.

use std::path::{Path, PathBuf};

use byte_source::{Action, FileError, Location, Observer, ProgressReporter};
use carton_format::{Carton, CartonEntry};
use open::path_json;
use output::{IfExists, OutputFile, file_name};
use serde::{Deserialize, Serialize};

use crate::error::{at, copying};
use crate::open::open_packed;
use crate::{CartonNote, Problem, Result, SCHEMA_VERSION};

/// Options for unpacking a carton.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "cli", derive(clap::Args))]
#[serde(default)]
#[non_exhaustive]
pub struct UnpackOptions {
    /// The carton. One that is not on this machine is unpacked into the current folder by default.
    #[serde(skip)]
    #[cfg_attr(feature = "cli", arg(skip))]
    pub file: Location,
    /// The folder to write into, which is created if needed [default: next to the carton, with its name]
    #[serde(with = "path_json::option")]
    #[cfg_attr(feature = "cli", arg(short, long, value_name = "DIR", value_hint = clap::ValueHint::DirPath))]
    pub output: Option<PathBuf>,
    /// Replace files that exist
    #[cfg_attr(feature = "cli", arg(long))]
    pub force: bool,
}

impl UnpackOptions {
    /// Creates options that unpack `file` into the default folder.
    pub fn new(file: impl Into<Location>) -> Self {
        Self { file: file.into(), ..Self::default() }
    }
}

/// Number and size of the unpacked files, and the number of files that the carton lacks.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct UnpackReport {
    /// Version of the report's format.
    pub schema_version: u32,
    /// Path of the carton, as the caller gave it.
    pub file: String,
    /// Path of the folder.
    pub output: String,
    /// Number of files written, including MANIFEST and LINKS.
    pub files: usize,
    /// Total size of the files in bytes.
    pub nbytes: u64,
    /// Number of files that MANIFEST lists and the carton lacks.
    pub absent: usize,
    pub notes: Vec<CartonNote>,
}

/// Writes the files of a carton into a folder.
///
/// # Errors
/// Returns an error if the carton cannot be read or is damaged, the folder cannot be written, or `observer` stops the work.
/// The files written so far are then removed, unless `force` is set: in that case, files replaced so far are lost.
pub fn unpack(options: &UnpackOptions, observer: &dyn Observer) -> Result<UnpackReport> {
    let file = options.file.path();
    let carton = open_packed(&options.file)?;
    let root = match &options.output {
        Some(output) => output.clone(),
        None => checked_default_folder(options)?,
    };
    let entries: Vec<&CartonEntry> = carton.entries().collect();
    for entry in entries.iter().filter(|entry| entry.is_symbolic_link) {
        carton.link_target(entry).map_err(at(file))?;
    }
    refuse_existing(&root, &entries, options.force)?;
    let total = entries.iter().fold(0_u64, |sum, entry| sum.saturating_add(entry.len));
    let name = file_name(file);
    let work = ProgressReporter::new(observer, &name, Action::Write, Some(total));
    let mut writer =
        FolderWriter { carton: &carton, root: &root, force: options.force, work, created_paths: Vec::new() };
    let written = writer.create_root().and_then(|()| writer.write(&entries, total));
    if let Err(error) = written {
        if !options.force {
            remove_created(&writer.created_paths);
        }
        return Err(error);
    }
    let absent = carton.absent().len();
    Ok(UnpackReport {
        schema_version: SCHEMA_VERSION,
        file: file.display().to_string(),
        output: root.display().to_string(),
        files: entries.len(),
        nbytes: total,
        absent,
        notes: if absent == 0 { Vec::new() } else { vec![CartonNote::FilesElsewhere { files: absent }] },
    })
}

/// Returns the folder into which a carton is unpacked by default: next to the carton, with its name. `llama.carton` becomes
/// `llama`; a name without that extension gets the suffix `.unpacked`.
pub fn default_unpack_folder(carton: &Path) -> PathBuf {
    let name = file_name(carton);
    match name.strip_suffix(".carton") {
        Some(stem) if !stem.is_empty() => carton.with_file_name(stem),
        _ => carton.with_file_name(format!("{name}.unpacked")),
    }
}

/// Returns the default folder if it is empty or files may be replaced.
fn checked_default_folder(options: &UnpackOptions) -> Result<PathBuf> {
    let mut folder = default_unpack_folder(options.file.path());
    if !options.file.is_local() {
        folder = file_name(&folder).into();
    }
    let has_files = folder.read_dir().is_ok_and(|mut items| items.next().is_some());
    if has_files && !options.force { Err(Problem::FolderNotEmpty { folder }.into()) } else { Ok(folder) }
}

/// Refuses to replace files unless `force` is set, and to replace anything but files.
fn refuse_existing(root: &Path, entries: &[&CartonEntry], force: bool) -> Result<()> {
    let paths = entries.iter().map(|entry| root.join(&entry.path));
    let paths: Vec<PathBuf> = paths.filter(|path| path.symlink_metadata().is_ok()).collect();
    if let Some(path) = paths.iter().find(|path| path.symlink_metadata().is_ok_and(|kind| kind.is_dir())) {
        return Err(output::Problem::IsFolder { path: path.clone() }.into());
    }
    for entry in entries {
        let mut folder = root.join(&entry.path);
        while folder.pop() && folder != *root {
            if folder.symlink_metadata().is_ok_and(|kind| !kind.is_dir()) {
                return Err(Problem::ParentNotAFolder { path: folder }.into());
            }
        }
    }
    if paths.is_empty() || force { Ok(()) } else { Err(Problem::FilesExist { paths }.into()) }
}

/// Removes created files and folders in reverse order.
fn remove_created(made: &[PathBuf]) {
    for path in made.iter().rev() {
        let is_folder = path.symlink_metadata().is_ok_and(|kind| kind.is_dir());
        // A folder that is not empty has files of another program.
        let _ = if is_folder { std::fs::remove_dir(path) } else { std::fs::remove_file(path) };
    }
}

struct FolderWriter<'w> {
    carton: &'w Carton,
    root: &'w Path,
    force: bool,
    work: ProgressReporter<'w>,
    /// Created files and folders, in order of creation.
    created_paths: Vec<PathBuf>,
}

impl FolderWriter<'_> {
    fn create_root(&mut self) -> Result<()> {
        let missing = self
            .root
            .ancestors()
            .take_while(|folder| *folder != Path::new("") && folder.symlink_metadata().is_err());
        let missing: Vec<&Path> = missing.collect();
        for folder in missing.into_iter().rev() {
            self.create_folder(folder)?;
        }
        if self.root.is_dir() {
            Ok(())
        } else {
            Err(Problem::NotAFolder { path: self.root.to_owned() }.into())
        }
    }

    fn create_folder(&mut self, path: &Path) -> Result<()> {
        output::check_system_name(path)?;
        std::fs::create_dir(path).map_err(|reason| FileError::Create { path: path.to_owned(), reason })?;
        self.created_paths.push(path.to_owned());
        Ok(())
    }

    fn write(&mut self, entries: &[&CartonEntry], total: u64) -> Result<()> {
        output::require_free_space(total, self.root)?;
        let mut done = 0_u64;
        // Links come last, so that no file is written through a link.
        for entry in entries.iter().filter(|entry| !entry.is_symbolic_link) {
            let target = self.create_parents(&entry.path)?;
            let mut output = OutputFile::create(&target, entry.len)?;
            let copied = self.carton.copy(&entry.path, &mut output, self.work);
            copied.map_err(copying(self.carton.path(), &target))?;
            output.commit_unsynced(self.if_exists())?;
            self.created_paths.push(target);
            done = done.saturating_add(entry.len);
            self.work = self.work.resumed_at(done);
        }
        for entry in entries.iter().filter(|entry| entry.is_symbolic_link) {
            let target = self.create_parents(&entry.path)?;
            self.link(entry, &target)?;
            self.created_paths.push(target);
        }
        self.carton.check_unchanged()?;
        output::sync_folder(self.root)
    }

    fn if_exists(&self) -> IfExists {
        if self.force { IfExists::Replace } else { IfExists::Fail }
    }

    /// Returns the path of an entry below the root, and creates its folders. A link among them is an error, since it could
    /// lead outside of the root.
    fn create_parents(&mut self, entry: &str) -> Result<PathBuf> {
        let mut path = self.root.to_owned();
        let mut parts = entry.split('/').peekable();
        while let Some(part) = parts.next() {
            path.push(part);
            if parts.peek().is_none() {
                break;
            }
            match path.symlink_metadata() {
                Ok(kind) if kind.is_dir() => {}
                Ok(_) => return Err(Problem::ParentNotAFolder { path }.into()),
                Err(_) => self.create_folder(&path)?,
            }
        }
        Ok(path)
    }

    #[cfg(unix)]
    fn link(&self, entry: &CartonEntry, path: &Path) -> Result<()> {
        let failed = |reason| FileError::Write { path: path.to_owned(), reason };
        let target = self.carton.link_text(entry).map_err(at(self.carton.path()))?;
        if self.force && path.symlink_metadata().is_ok() {
            std::fs::remove_file(path).map_err(failed)?;
        }
        Ok(std::os::unix::fs::symlink(target, path).map_err(failed)?)
    }

    /// Copies the link's target, on systems without symbolic links.
    #[cfg(not(unix))]
    fn link(&self, entry: &CartonEntry, path: &Path) -> Result<()> {
        let carton = self.carton;
        let target = carton.link_target(entry).map_err(at(carton.path()))?;
        let len = carton.entry(&target).map_err(at(carton.path()))?.len;
        let mut output = OutputFile::create(path, len)?;
        carton.copy(&target, &mut output, self.work).map_err(copying(carton.path(), path))?;
        Ok(output.commit_unsynced(self.if_exists())?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_named_after_cartons() {
        let folder = |path: &str| default_unpack_folder(Path::new(path)).display().to_string();
        assert_eq!(folder("a/llama.carton"), "a/llama");
        assert_eq!(folder("llama-3.1.carton"), "llama-3.1");
        assert_eq!(folder("a/llama"), "a/llama.unpacked");
        assert_eq!(folder("a/.carton"), "a/.carton.unpacked");
    }
}

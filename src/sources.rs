//! What paths on the command line mean: a file, the files of a folder that hold a checkpoint together, or
//! such files by name.
//!
//! Facts: the names that Meta's `llama-models`, Hugging Face's `transformers`, Lightning and `DeepSpeed` give
//! their files.

mod folder;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use store::{file_name, folder};
use torch_import::{Checkpoint, Container, Index, ModelSizes, Shard};

use crate::beside::{self, Numbering};
use crate::cli::Usage;
use crate::terminal::bytes;

/// More than any index or params.json has.
const DOCUMENT_MAX: u64 = 64 << 20;

/// The files of one checkpoint, found but not opened.
#[derive(Debug)]
pub(crate) struct Sources {
    /// In the order of their numbers.
    pub(crate) files: Vec<PathBuf>,
    /// What a person calls the checkpoint, and what its output is named after: the file itself, or
    /// `consolidated.pth` in the folder of `consolidated.00.pth`.
    pub(crate) path: PathBuf,
    /// What was decided that a person may not expect.
    pub(crate) notes: Vec<String>,
    kind: Kind,
}

/// How the files make one checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    /// It is one file.
    Single,
    /// Meta's: most tensors are split over all files.
    ModelParallel,
    /// Each tensor is whole in one of the files, as the index at this path says.
    Indexed(PathBuf),
    /// The same without an index.
    Numbered,
}

impl Sources {
    /// The files that `paths` mean together. With `single`, a file stands for itself even when its name
    /// says that it is one of several.
    pub(crate) fn find(paths: &[PathBuf], single: bool) -> Result<Self> {
        match paths {
            [path] if path.is_dir() => folder::find(path),
            [path] if path.to_string_lossy().ends_with(folder::INDEX) => Self::indexed(path),
            [path] => {
                if let Some(shard) = beside::shard(path)
                    && !single
                {
                    bail!(lone_shard(path, shard));
                }
                Ok(Self::file(path))
            }
            paths => Self::set(paths),
        }
    }

    pub(crate) fn file(path: &Path) -> Self {
        Self { files: vec![path.to_owned()], path: path.to_owned(), notes: Vec::new(), kind: Kind::Single }
    }

    /// The files that an index names, which lie beside it.
    fn indexed(path: &Path) -> Result<Self> {
        let name = file_name(path);
        let index = Index::from_json(&name, &document(path)?).with_context(|| shown(folder(path)))?;
        let files: Vec<PathBuf> = index.files().iter().map(|file| beside(path, file)).collect();
        if let Some(missing) = files.iter().find(|file| !file.is_file()) {
            bail!("{name} names {}, which is not in {}", file_name(missing), shown(folder(path)));
        }
        // `model.safetensors.index.json` is an index of what would be `model.safetensors`.
        let path = path.with_file_name(name.strip_suffix(folder::INDEX).unwrap_or(&name));
        let kind = Kind::Indexed(path.with_file_name(&name));
        Ok(Self { files, path, notes: Vec::new(), kind })
    }

    /// Several files that are to be one checkpoint.
    fn set(paths: &[PathBuf]) -> Result<Self> {
        if let Some(missing) = paths.iter().find(|path| !path.exists()) {
            bail!("there is no file {}", missing.display());
        }
        let mut members = Vec::new();
        for path in paths {
            match Numbering::of(&file_name(path)) {
                Some(numbering) if path.is_file() => members.push((numbering, path.clone())),
                _ => bail!(Usage(no_set(paths))),
            }
        }
        let first = members.first().map(|(numbering, path)| (numbering.set(), folder(path).to_owned()));
        let alike = |(numbering, path): &(Numbering, PathBuf)| {
            Some((numbering.set(), folder(path).to_owned())) == first
        };
        if !members.iter().all(alike) {
            bail!(Usage(no_set(paths)));
        }
        Self::numbered(members)
    }

    /// A set of numbered files without gaps.
    fn numbered(mut members: Vec<(Numbering, PathBuf)>) -> Result<Self> {
        members.sort_by(|a, b| (a.0.number, &a.1).cmp(&(b.0.number, &b.1)));
        let Some((first, path)) = members.first().cloned() else { bail!("there is no file in the set") };
        for pair in members.windows(2) {
            if let [(a, first), (b, second)] = pair
                && a.number == b.number
            {
                bail!("{} and {} have one number, {}", first.display(), second.display(), a.number);
            }
        }
        let last = members.last().map_or(0, |(numbering, _)| numbering.number);
        let start = first.first(members.iter().any(|(numbering, _)| numbering.number == 0));
        let end = first.of.map_or(last, |of| start.saturating_add(of).saturating_sub(1));
        for number in start..=end {
            if !members.iter().any(|(numbering, _)| numbering.number == number) {
                let missing = path.with_file_name(first.name(number));
                bail!("{} is missing: {} of its set are here", missing.display(), members.len());
            }
        }
        if let Some((_, extra)) = members.iter().find(|(numbering, _)| numbering.number > end) {
            bail!("{} is one shard too many: its name says {}", extra.display(), first.of.unwrap_or(0));
        }
        let kind = if first.of.is_some() { Kind::Numbered } else { Kind::ModelParallel };
        let files = members.into_iter().map(|(_, path)| path).collect();
        Ok(Self { files, path: path.with_file_name(first.without_number()), notes: Vec::new(), kind })
    }

    /// The paths from which the checkpoint is read.
    pub(crate) fn inputs(&self) -> impl Iterator<Item = &Path> {
        let index = match &self.kind {
            Kind::Indexed(index) => Some(index.as_path()),
            _ => None,
        };
        self.files.iter().map(PathBuf::as_path).chain(index)
    }

    /// Opens the files.
    pub(crate) fn open(&self) -> Result<Vec<Container>> {
        self.files.iter().map(|path| Container::open(path).with_context(|| shown(path))).collect()
    }

    /// Reads the files as one checkpoint, each once `judge` lets it pass; and what there is to say of them, as
    /// sentences.
    pub(crate) fn read<'c>(
        &self,
        containers: &'c [Container],
        judge: &dyn Fn(&Path, &Checkpoint) -> Result<()>,
    ) -> Result<(Checkpoint, Vec<String>)> {
        let several = containers.len() > 1;
        let mut notes = self.notes.clone();
        let mut shards = Vec::with_capacity(containers.len());
        for container in containers {
            let file = file_name(container.path());
            let checkpoint = Checkpoint::read(container).with_context(|| shown(container.path()))?;
            judge(container.path(), &checkpoint)?;
            let said = container.notes().iter().map(note);
            notes.extend(said.map(|note| if several { format!("{file}: {note}") } else { note }));
            shards.push(Shard { file, checkpoint });
        }
        let merged = match &self.kind {
            Kind::Single | Kind::Numbered => torch_import::union(shards, None),
            Kind::Indexed(path) => {
                let index = Index::from_json(&file_name(path), &document(path)?)?;
                torch_import::union(shards, Some(&index))
            }
            Kind::ModelParallel => {
                let params = beside(&self.path, "params.json");
                let sizes = if params.is_file() {
                    ModelSizes::from_json(&document(&params)?)?
                } else {
                    ModelSizes::default()
                };
                torch_import::model_parallel(shards, &sizes)
            }
        };
        let merged = merged.with_context(|| shown(folder(&self.path)))?;
        notes.extend(merged.notes.iter().map(note));
        Ok((merged.checkpoint, notes))
    }

    /// What one types to name the checkpoint.
    pub(crate) fn typed(&self) -> String {
        quoted(match self.kind {
            Kind::Single => &self.path,
            _ => folder(&self.path),
        })
    }

    /// Whether the checkpoint is one file of its own.
    pub(crate) fn is_single(&self) -> bool {
        self.kind == Kind::Single
    }
}

/// A note of the reader, and the option that shows more.
fn note(note: &torch_import::Note) -> String {
    match note {
        torch_import::Note::AfterPickle { .. } => format!("{note}; trace --pickle 1 shows what they are"),
        note => note.to_string(),
    }
}

/// What to do about one shard.
pub(crate) fn lone_shard(file: &Path, shard: beside::Shard) -> String {
    format!(
        "{} is shard {} of {}: run `torch2carton {}`, or --single for this file alone",
        file_name(file),
        shard.number,
        shard.of,
        quoted(folder(file))
    )
}

/// Several paths that hold no checkpoint together.
fn no_set(paths: &[PathBuf]) -> String {
    const SHOWN: usize = 3;
    let names: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    let list = match names.as_slice() {
        [all @ .., last] if all.len() < SHOWN => format!("{} and {last}", all.join(", ")),
        names => {
            let first = names.get(..SHOWN).unwrap_or_default();
            format!("{} and {} more", first.join(", "), names.len().saturating_sub(SHOWN))
        }
    };
    let first = paths.first().map_or(Path::new(""), PathBuf::as_path);
    let alike = |path: &PathBuf| path.extension() == first.extension() && folder(path) == folder(first);
    let pattern = match first.extension() {
        Some(extension) if paths.iter().all(alike) => {
            let pattern = format!("*.{}", extension.to_string_lossy());
            let folder = folder(first);
            if folder == Path::new(".") { pattern } else { format!("{}/{pattern}", quoted(folder)) }
        }
        _ => paths.iter().map(|path| quoted(path)).collect::<Vec<_>>().join(" "),
    };
    format!(
        "{list} are not shards of one checkpoint; convert each: for f in {pattern}; do torch2carton \"$f\"; done"
    )
}

/// A path as a shell takes it.
pub(crate) fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_alphanumeric() || "/._-+=:@%,".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

fn beside(path: &Path, name: &str) -> PathBuf {
    path.with_file_name(name)
}

/// The text of a small file.
fn document(path: &Path) -> Result<String> {
    let len = path.metadata().with_context(|| shown(path))?.len();
    if len > DOCUMENT_MAX {
        bail!("{}: {} is more than such a file has", shown(path), bytes(len));
    }
    std::fs::read_to_string(path).with_context(|| shown(path))
}

pub(crate) fn shown(path: &Path) -> String {
    path.display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(names: &[&str]) -> Vec<PathBuf> {
        names.iter().map(PathBuf::from).collect()
    }

    #[test]
    fn files_of_their_own_are_converted_one_by_one() {
        assert_eq!(
            no_set(&paths(&["a.pth", "b.pth"])),
            "a.pth and b.pth are not shards of one checkpoint; convert each: \
             for f in *.pth; do torch2carton \"$f\"; done"
        );
        let text = no_set(&paths(&["x y/a.pth", "x y/b.pth", "x y/c.pth", "x y/d.pth"]));
        assert!(text.starts_with("x y/a.pth, x y/b.pth, x y/c.pth and 1 more are not"), "{text}");
        assert!(text.contains("for f in 'x y'/*.pth;"), "{text}");
        let text = no_set(&paths(&["a.pth", "b c.bin"]));
        assert!(text.contains("for f in a.pth 'b c.bin';"), "{text}");
    }
}

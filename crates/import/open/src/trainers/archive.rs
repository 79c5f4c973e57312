//! Archives of `NeMo`: a tar file, which may be compressed with gzip, whose members are the files of a checkpoint.
//!
//! Facts: `SaveRestoreConnector` in `nemo/core/connectors/save_restore_connector.py` of `NeMo` 2: the member `model_weights.ckpt`
//! is a state dict, the folder `model_weights/` a `torch_dist` checkpoint, and folders such as `mp_rank_00` are those of ranks.

use std::io::{Read, Write};
use std::ops::Range;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use byte_source::{
    Location, MappedFile, MemoryStore, Region, SeekableSource, Source, SourceReader, Store, WINDOW,
};
use flate2::read::MultiGzDecoder;
use torch_import::Container;

use crate::trainers::listing::list;
use crate::trainers::{Problem, Result, TrainerFolder, TrainerLayout};

const EXTENSION: &str = "nemo";
const GZIP: &[u8] = b"\x1f\x8b";
const MEMBERS_MAX: usize = 1 << 13;

/// The checkpoint in an archive.
#[derive(Debug)]
pub struct TrainerArchive {
    /// Layout of the files of several ranks; `None` if one member is the whole checkpoint.
    pub layout: Option<&'static dyn TrainerLayout>,
    members: Vec<Arc<dyn Source>>,
}

impl TrainerArchive {
    /// Returns true if the name of a file is that of an archive.
    pub fn is_one(path: &Path) -> bool {
        path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case(EXTENSION))
    }

    /// Finds the checkpoint in an archive.
    ///
    /// # Errors
    /// When the archive cannot be read, is damaged, or has no checkpoint.
    pub fn from_source(mut source: Arc<dyn Source>) -> Result<Self> {
        let path = source.path().to_owned();
        let start = source.read_range(0..source.len().min(GZIP.len() as u64))?;
        if start.as_ref() == GZIP {
            source = decompress(&*source)?;
        }
        let members = read_members(&*source)?;
        let members = members.into_iter().filter_map(|(name, range)| {
            let member = Region::new(&source, range)?.named(&path.join(name));
            Some(Arc::new(member) as Arc<dyn Source>)
        });
        let store = Arc::new(members.collect::<MemoryStore>());
        let root = list(&Location::new(Arc::<MemoryStore>::clone(&store), &path))?;
        let places = root.listing.folders.iter().map(|name| list(&root.location.join(name)));
        let places = places.collect::<Result<Vec<_>>>()?;
        for folder in std::iter::once(&root).chain(&places) {
            if let Some(found) = TrainerFolder::at(folder)? {
                return Ok(Self { layout: Some(found.layout), members: store.open(&found.files)? });
            }
        }
        let is_weights =
            |name: &&String| Path::new(name).extension().is_some_and(|extension| extension == "ckpt");
        let weights: Vec<PathBuf> =
            root.listing.files.iter().filter(is_weights).map(|name| path.join(name)).collect();
        match weights.as_slice() {
            [_] => Ok(Self { layout: None, members: store.open(&weights)? }),
            _ => Err(Problem::Unsupported("the archive has no checkpoint that is known").into()),
        }
    }

    /// Opens the members of the checkpoint.
    ///
    /// # Errors
    /// When a member is damaged.
    pub fn containers(&self) -> Result<Vec<Container>> {
        let open = |source: &Arc<dyn Source>| match self.layout {
            Some(layout) => layout.open(Arc::clone(source)),
            None => Container::from_source(Arc::clone(source)),
        };
        self.members.iter().map(open).collect()
    }
}

/// Decompresses a gzip file into an unlinked temporary file.
fn decompress(source: &dyn Source) -> Result<Arc<dyn Source>> {
    let temporary = torch_import::Problem::TemporaryFile;
    let mut out = tempfile::tempfile().map_err(temporary)?;
    let mut decoder = MultiGzDecoder::new(SourceReader::new(source, 0..source.len()));
    let mut window = vec![0; WINDOW];
    loop {
        let count = decoder.read(&mut window).map_err(|error| damaged(format!("gzip: {error}")))?;
        if count == 0 {
            break;
        }
        out.write_all(window.get(..count).unwrap_or_default()).map_err(temporary)?;
    }
    Ok(Arc::new(MappedFile::from_file(&out, source.path())?))
}

/// Reads the names of the regular files of a tar archive, and their ranges.
fn read_members(source: &dyn Source) -> Result<Vec<(String, Range<u64>)>> {
    let mut members: Vec<(String, Range<u64>)> = Vec::new();
    let mut archive = tar::Archive::new(SeekableSource::new(source));
    let entries = archive.entries_with_seek().map_err(|error| damaged(error.to_string()))?;
    for entry in entries {
        let entry = entry.map_err(|error| damaged(error.to_string()))?;
        let path = entry.path().map_err(|error| damaged(error.to_string()))?.into_owned();
        let parts = path.components().filter(|part| *part != Component::CurDir);
        let parts: Option<Vec<&str>> = parts
            .map(|part| match part {
                Component::Normal(name) => name.to_str(),
                _ => None,
            })
            .collect();
        let Some(parts) = parts.filter(|_| entry.header().entry_type().is_file()) else { continue };
        let (start, name) = (entry.raw_file_position(), parts.join("/"));
        let end = start.checked_add(entry.size()).filter(|end| *end <= source.len());
        let Some(end) = end else {
            return Err(damaged(format!("it ends within member `{}`", name.escape_debug())));
        };
        if members.len() >= MEMBERS_MAX {
            return Err(damaged(format!("more than {MEMBERS_MAX} members")));
        }
        members.push((name, start..end));
    }
    members.sort_by(|(one, _), (other, _)| one.cmp(other));
    let twice = members.windows(2).find_map(|pair| match pair {
        [one, other] if one.0 == other.0 => Some(&one.0),
        _ => None,
    });
    if let Some(name) = twice {
        return Err(damaged(format!("member `{}` appears twice", name.escape_debug())));
    }
    Ok(members)
}

fn damaged(reason: String) -> torch_import::Error {
    torch_import::Problem::Tar(reason).into()
}

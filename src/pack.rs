//! `torch2carton pack`: a folder becomes a carton.

use std::collections::HashMap;
use std::io::{self, Write};
use std::path::Path;

use anyhow::{Context, Result, bail};
use carton_format::{Config, DataType, Strings, TensorIndex, TensorSpec, sha256_to_hex};
use carton_reader::{Carton, Entry, TOML_MAX};
use carton_writer::{Compressed, Compression, File, Part, Spill, Spilled, Written};
use mapped::{Blob, MappedFile, OwnedBlob, UnopenedFile};
use sha2::{Digest, Sha256};
use tensor::Gathered;
use zip_layout::Content;

use crate::cli::{self, Usage};
use crate::inspect_carton::MODEL_PT;
use crate::npy::{self, Array};
use crate::output;
use crate::repack::{self, is_bookkeeping, refused, told};
use crate::terminal::{self, BOLD, DIM, Progress, bytes, safe};
use sources::location::{file_name, folder};

const FOLDERS: &[&str] = &["model/", "tensor_data/", "misc/"];

pub(crate) fn run(args: &cli::Pack, quiet: bool) -> Result<()> {
    let root = &args.directory;
    if !root.is_dir() {
        bail!("{} is no folder; pack takes a folder with a carton.toml in it", root.display());
    }
    let target = args.output.clone().unwrap_or_else(|| beside(root));
    // What a MANIFEST in the folder says of its files is what they were, not what they are.
    let carton = Carton::open_unlisted(root).map_err(|error| told(root, error))?;
    output::check(&target, &[], args.no_clobber)?;
    if let (Ok(parent), Ok(root)) = (folder(&target).canonicalize(), root.canonicalize())
        && parent.starts_with(root)
    {
        bail!(
            "the output {} lies in the folder that it is made of; choose another path with -o",
            target.display()
        );
    }
    let entries = entries(root, &carton)?;
    let parsed = carton.config().map_err(|error| told(root, error))?;
    let given = given(args)?;
    let given: Vec<(String, Array<'_>)> = given
        .iter()
        .map(|(name, map)| {
            let shown = || map.path().display().to_string();
            Ok((name.clone(), npy::read(map).with_context(shown)?))
        })
        .collect::<Result<_>>()?;
    let index = carton.tensor_index().map_err(|error| told(root, error))?;
    let (new_index, new_files) = with_tensors(&carton, &index.document, &given)?;
    let problems = parsed.document.check(&new_index, &|path| carton.has(path));
    if !problems.0.is_empty() {
        return Err(refused(root, &problems));
    }
    for spec in &index.document.tensors {
        if matches!(spec, TensorSpec::Array { dtype: DataType::String, .. }) {
            carton.tensor_data(spec).map_err(|error| told(root, error))?;
        }
    }
    let mut notes: Vec<String> =
        parsed.added.0.iter().map(|it| format!("{it}: added, Carton's client needs it")).collect();
    let config = match parsed.added.0.as_slice() {
        [] => carton.text(Config::PATH)?,
        _ => parsed.document.to_toml()?,
    };
    let has_index = carton.entry(TensorIndex::PATH).is_ok();
    if !has_index {
        notes.push(format!("{} is missing: added, Carton's client needs it", TensorIndex::PATH));
    }
    notes.extend(index.added.0.iter().map(|it| format!("{it}: added, Carton's client needs it")));
    let index_text = if has_index && index.added.0.is_empty() && given.is_empty() {
        carton.text(TensorIndex::PATH)?
    } else {
        new_index.to_toml()?
    };

    let sources = sources(root, &carton, &entries)?;
    let mut contents: Vec<(&str, &dyn Blob<'_>)> = Vec::new();
    for (path, file) in &sources {
        contents.push((path, file));
    }
    for (path, file) in &new_files {
        let blob: &dyn Blob<'_> = match file {
            NewFile::Numbers(gathered) => gathered,
            NewFile::Strings(text) => text,
        };
        contents.push((path, blob));
    }
    // The model last: what describes it is found at the start.
    contents.sort_by_key(|(path, _)| (path.starts_with("model/"), *path));
    let scratch = folder(&target);
    let (packed, spilled) = compressed(&contents, args.compression, scratch, &file_name(root), quiet)?;
    let parts: Vec<Option<Part<'_>>> =
        packed.iter().map(|packed| packed.as_ref().map(|packed| spilled.part(packed))).collect();

    let mut files = vec![
        File::new(Config::PATH, Content::Bytes(config.as_bytes())),
        File::new(TensorIndex::PATH, Content::Bytes(index_text.as_bytes())),
    ];
    for (((path, blob), packed), part) in contents.iter().zip(&packed).zip(&parts) {
        files.push(match (packed, part) {
            (Some(packed), Some(part)) => {
                let (content, sha256) = (packed.content(part), Some(packed.sha256()));
                File { path: (*path).to_owned(), content, sha256 }
            }
            _ => File::new(path, Content::Blob(*blob)),
        });
    }
    let links = links(&carton, &entries, &sources)?;
    for (path, target, sha256) in &links {
        let content = Content::Link(target);
        files.push(File { path: path.clone(), content, sha256: Some(*sha256) });
    }
    let count = files.len();
    let written = repack::write(&carton_writer::Carton::new(files), &target, args.no_clobber, quiet)?;
    if !quiet {
        notes.iter().for_each(terminal::note);
        summary(&target, count, &written)?;
    }
    Ok(())
}

/// `models/llama` → `models/llama.carton`.
fn beside(root: &Path) -> std::path::PathBuf {
    let whole = std::path::absolute(root).unwrap_or_else(|_| root.to_owned());
    whole.with_file_name(format!("{}.carton", file_name(&whole)))
}

/// The files to pack. What the format has no place for is no part of a model, and not left out in silence.
fn entries<'c>(root: &Path, carton: &'c Carton) -> Result<Vec<&'c Entry>> {
    let mut entries = Vec::new();
    for entry in carton.entries() {
        let path = entry.path.as_str();
        let known = path == Config::PATH || FOLDERS.iter().any(|folder| path.starts_with(folder));
        if is_bookkeeping(path) {
            continue;
        }
        if !known {
            bail!(
                "{}: `{}` has no place in a carton, which holds carton.toml, model/, tensor_data/ and misc/",
                root.display(),
                path.escape_debug()
            );
        }
        if entry.link {
            carton.link_target(entry).map_err(|error| told(root, error))?;
        }
        entries.push(entry);
    }
    if !entries.iter().any(|entry| entry.path.starts_with("model/")) {
        bail!("{}: there is no file in model/", root.display());
    }
    Ok(entries)
}

/// The files that are packed as they are.
fn sources(root: &Path, carton: &Carton, entries: &[&Entry]) -> Result<Vec<(String, UnopenedFile)>> {
    let plain = entries
        .iter()
        .filter(|entry| !entry.link && entry.path != Config::PATH && entry.path != TensorIndex::PATH);
    let map =
        |entry: &&Entry| Ok((entry.path.clone(), UnopenedFile::find(&carton.path().join(&entry.path))?));
    plain.map(map).collect::<Result<Vec<_>>>().with_context(|| root.display().to_string())
}

/// A link's path, what it says, and the hash of the file that it leads to.
type Link = (String, Vec<u8>, [u8; 32]);

fn links(carton: &Carton, entries: &[&Entry], sources: &[(String, UnopenedFile)]) -> Result<Vec<Link>> {
    let mut hashes: HashMap<String, [u8; 32]> = HashMap::new();
    let mut links = Vec::new();
    for entry in entries.iter().filter(|entry| entry.link) {
        let leads_to = carton.link_target(entry)?;
        let sha256 = if let Some(sha256) = hashes.get(&leads_to) {
            *sha256
        } else {
            let file = sources.iter().find(|(path, _)| *path == leads_to).map(|(_, file)| file);
            let file = file.with_context(|| format!("`{leads_to}` is not packed"))?;
            let mut hash = Hasher(Sha256::new());
            file.write_to(&mut hash)?;
            let sha256 = hash.0.finalize().into();
            hashes.insert(leads_to, sha256);
            sha256
        };
        links.push((entry.path.clone(), carton.link_text(entry)?.into_bytes(), sha256));
    }
    Ok(links)
}

struct Hasher(Sha256);

impl<'a> mapped::Sink<'a> for Hasher {
    fn write(&mut self, window: mapped::Window<'a>) -> io::Result<()> {
        self.0.update(&*window);
        Ok(())
    }
}

/// The arrays of `--tensor NAME=FILE.npy`, mapped.
fn given(args: &cli::Pack) -> Result<Vec<(String, MappedFile)>> {
    let mut given: Vec<(String, MappedFile)> = Vec::new();
    for pair in &args.tensor {
        let Some((name, file)) = pair.split_once('=') else {
            bail!(Usage(format!("--tensor {pair}: expected NAME=FILE.npy")));
        };
        if name.is_empty() {
            bail!(Usage(format!("--tensor {pair}: expected NAME=FILE.npy")));
        }
        if given.iter().any(|(other, _)| other == name) {
            bail!(Usage(format!("--tensor: two tensors are called {name}")));
        }
        given.push((name.to_owned(), MappedFile::open(Path::new(file))?));
    }
    Ok(given)
}

/// The file of a new tensor.
enum NewFile<'t> {
    Numbers(Gathered<'t, 't>),
    Strings(OwnedBlob),
}

/// The index with the new tensors, and their files.
fn with_tensors<'t>(
    carton: &Carton,
    index: &TensorIndex,
    given: &'t [(String, Array<'t>)],
) -> Result<(TensorIndex, Vec<(String, NewFile<'t>)>)> {
    let mut index = index.clone();
    let mut files = Vec::new();
    let mut number = 0_usize;
    for (name, array) in given {
        if index.find(name).is_some() {
            bail!("--tensor {name}: there is a tensor of that name in {} already", TensorIndex::PATH);
        }
        let extension = if matches!(array, Array::Strings { .. }) { "toml" } else { "bin" };
        let file = loop {
            let file = format!("tensor_{number}.{extension}");
            number = number.saturating_add(1);
            if !carton.has(&format!("tensor_data/{file}")) {
                break file;
            }
        };
        let path = format!("tensor_data/{file}");
        let (dtype, shape) = match array {
            Array::Numbers(tensor) => {
                files.push((path, NewFile::Numbers(tensor.gathered())));
                let dtype = tensor.dtype().name();
                let known = DataType::from_name(dtype);
                (
                    known.with_context(|| format!("--tensor {name}: Carton has no {dtype}"))?,
                    tensor.shape().to_vec(),
                )
            }
            Array::Strings { shape, data } => {
                let text = toml::to_string(&Strings { data: data.clone() })
                    .with_context(|| format!("--tensor {name}"))?;
                if text.len() as u64 > TOML_MAX {
                    bail!(
                        "--tensor {name}: its strings take {} bytes, more than the {TOML_MAX} that are read",
                        text.len()
                    );
                }
                files.push((path, NewFile::Strings(OwnedBlob(text.into_bytes()))));
                (DataType::String, shape.clone())
            }
        };
        index.tensors.push(TensorSpec::Array {
            name: name.clone(),
            dtype,
            shape,
            file,
            other: toml::Table::new(),
        });
    }
    Ok((index, files))
}

/// Each file compressed, where that was asked for or is worth it.
fn compressed(
    contents: &[(&str, &dyn Blob<'_>)],
    how: cli::Compression,
    scratch: &Path,
    name: &str,
    quiet: bool,
) -> Result<(Vec<Option<Compressed>>, Spilled)> {
    let mut spill =
        Spill::create(scratch).with_context(|| format!("cannot write into {}", scratch.display()))?;
    let compression = match how {
        cli::Compression::Stored => return Ok((contents.iter().map(|_| None).collect(), spill.finish()?)),
        cli::Compression::Deflate => Compression::Deflate,
        cli::Compression::Zstd => Compression::Zstd,
        cli::Compression::Auto => Compression::Worthwhile,
    };
    let total = contents.iter().fold(0_u64, |sum, (_, blob)| sum.saturating_add(blob.len()));
    let mut progress = Progress::new(&format!("compressing {name}"), total, quiet);
    let mut before = 0_u64;
    let mut packed = Vec::with_capacity(contents.len());
    for (path, blob) in contents {
        let mut progress = |done| progress.set(before.saturating_add(done));
        packed.push(if how == cli::Compression::Auto && *path == MODEL_PT {
            // Weights shrink by little, and can be mapped out of a carton only where they are stored.
            None
        } else {
            let done = spill.compress(*blob, compression, &mut progress);
            done.with_context(|| format!("cannot compress `{}`", path.escape_debug()))?
        });
        before = before.saturating_add(blob.len());
    }
    Ok((packed, spill.finish()?))
}

fn summary(target: &Path, files: usize, written: &Written) -> io::Result<()> {
    let mut err = anstream::stderr().lock();
    writeln!(err, "{BOLD}{}{BOLD:#}", safe(target.display()))?;
    for (label, value) in [
        ("holds", format!("{files} files, {}", bytes(written.len))),
        ("manifest", sha256_to_hex(&written.manifest_hash)),
    ] {
        writeln!(err, "  {DIM}{label:<10}{DIM:#}{value}")?;
    }
    Ok(())
}

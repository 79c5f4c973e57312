//! `torch2carton convert`: checkpoint → carton. The only file that knows both sides.

use std::io::Write;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use carton_format::{Config, DataType, Dimension, Port, Runner, Shape, TensorIndex};
use carton_writer::{Carton, File, Written};
use mapped::MappedFile;
use store::{Output, file_name, folder};
use tensor::Tensor;
use torch_import::{Checkpoint, Format, Risk};
use torchscript::{Converted, Kind};
use zip_layout::Content;

use crate::cli::{self, Torch, Usage};
use crate::inspect::Totals;
use crate::merge;
use crate::model::converted;
use crate::repack;
use crate::select::select;
use crate::terminal::{self, BOLD, DIM, Progress, bytes, count, counted, safe};
use crate::ui::{flags, shell};
use crate::values::{self, hex};
use sources::{Companion as Misc, Sources};

/// Stems, and beginnings of stems, that say nothing of the model: its folder's name is better.
const GENERIC: &[&str] = &["last", "best"];
const GENERIC_STARTS: &[&str] = &["consolidated", "model", "pytorch_model"];
/// What a checkpoint's name may end in. Other endings, as of `llama-3.1`, belong to the name.
const EXTENSIONS: &[&str] =
    &["pth", "pt", "bin", "ckpt", "pkl", "pickle", "th", "tar", "model", "safetensors", "torch", "zip"];
/// Where the values that are no tensors travel.
const VALUES: &str = "misc/checkpoint.json";

pub(crate) fn run(args: &cli::Convert, quiet: bool) -> Result<()> {
    let start = Instant::now();
    check(args)?;
    let sources = Sources::find(&args.files, args.single)?;
    let containers = sources.open()?;
    let file = sources.path.as_path();
    let target = args.output.clone().unwrap_or_else(|| file.with_file_name(format!("{}.carton", stem(file))));
    let misc = misc(args, file)?;
    let inputs: Vec<&Path> = sources.inputs().chain(misc.iter().map(|(_, path)| path.as_path())).collect();
    store::check_target(&target, &inputs, cli::if_exists(args.no_clobber))?;

    let (checkpoint, read_notes) =
        sources.read(&containers, &|file, checkpoint| judge(args, file, checkpoint))?;
    let kept_names = [Risk::Dangerous, Risk::Unknown].map(|risk| kept_names(&checkpoint, risk, file));
    let selected = select(&args.select, &checkpoint).with_context(|| shown(file))?;
    let values = if args.no_values { None } else { values::file(&checkpoint, &selected.compounds) };
    let value_count = checkpoint.values().count();
    let left_out = match checkpoint.left_out {
        0 => None,
        n => Some(format!("left out {}, where state_dict() does not look", counted(n, "tensor"))),
    };
    let code = containers.iter().any(|container| container.format() == Format::TorchScript);
    let code = code.then(|| "the file's own code stays behind: its tensors are converted".to_owned());
    // The objects of a pickle can take more memory than all that follows.
    drop(checkpoint);
    if let Err(error) = torchscript::loads_in_2_0(&selected.tensors)
        && args.torch == Torch::Carton
    {
        bail!(
            "{}: {error}; --torch newest writes a carton that asks for PyTorch 2.15, --exclude leaves a tensor out",
            shown(file)
        );
    }
    let converted = converted(args, &sources, &selected.tensors)?;
    let written = write(args, file, &target, &converted, &misc, values.as_deref(), quiet)?;
    if !quiet {
        read_notes.iter().for_each(terminal::note);
        let model_notes: Vec<String> = converted.notes.iter().map(flags::note).collect();
        let notes = left_out
            .iter()
            .chain(&code)
            .chain(kept_names.iter().flatten())
            .chain(&selected.notes)
            .chain(&model_notes);
        notes.for_each(terminal::note);
        if values.is_some() {
            let (kept, it) = match value_count {
                0 => ("how the parts of a tensor belong together is".to_owned(), "it"),
                1 => ("1 value".to_owned(), "it"),
                values => (format!("{values} values"), "them"),
            };
            terminal::note(format!("{kept} kept in {VALUES} (--no-values leaves {it} out)"));
        }
        summary(&target, &selected.tensors, &converted, &misc, &written, start.elapsed())?;
    }
    Ok(())
}

/// Refuses a checkpoint that would run code where Python loads it. Here nothing runs; but whoever is sent such
/// a file should know.
fn judge(args: &cli::Convert, file: &Path, checkpoint: &Checkpoint) -> Result<()> {
    let of = |risk: Risk| checkpoint.globals.iter().filter(move |global| global.risk() == risk);
    let path = shell::quoted(file);
    if let Some(global) = of(Risk::Dangerous).next()
        && !args.allow_dangerous
    {
        bail!(
            "{}: its pickle names `{global}` at offset 0x{:x}, which can run code where Python loads it; \
             `torch2carton scan {path}` shows what calls it, --allow-dangerous converts without running it",
            shown(file),
            global.offset
        );
    }
    if let Some(global) = of(Risk::Unknown).next()
        && args.deny_unknown
    {
        bail!(
            "{}: its pickle names `{global}` at offset 0x{:x}, which is not known (--deny-unknown); \
             `torch2carton scan {path}` lists all that it names",
            shown(file),
            global.offset
        );
    }
    Ok(())
}

/// A note on the globals of a risk, which are kept as names.
fn kept_names(checkpoint: &Checkpoint, risk: Risk, file: &Path) -> Option<String> {
    const SHOWN: usize = 3;
    let names = checkpoint.globals.iter().filter(|global| global.risk() == risk);
    let names: Vec<String> = names.map(ToString::to_string).collect();
    let more = match names.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let subject = counted(names.len(), &format!("{} global", risk.name()));
    let kept = match names.len() {
        0 => return None,
        1 => "stays a name and runs",
        _ => "stay names and run",
    };
    let first = names.get(..SHOWN.min(names.len())).unwrap_or_default().join(", ");
    let path = shell::quoted(file);
    Some(format!("{subject} {kept} nothing: {first}{more}; `torch2carton scan {path}` lists them"))
}

/// What can be said before the file is opened.
fn check(args: &cli::Convert) -> Result<()> {
    let Some(file) = args.files.first() else { bail!(Usage("which file?".to_owned())) };
    args.files.iter().try_for_each(|file| store::refuse_remote(file))?;
    if args.output.as_deref() == Some(Path::new("-")) {
        let why = "a carton's first bytes are known when its last are written";
        bail!(Usage(format!("-o -: a carton cannot go to standard output, for {why}; name a file")));
    }
    let found = args.short_description.as_ref().map_or(0, |text| text.chars().count());
    if found > carton_format::SHORT_DESCRIPTION_MAX {
        bail!(Usage(carton_format::Error::ShortDescription { found }.to_string()));
    }
    if args.name.as_ref().is_some_and(String::is_empty) {
        bail!(Usage("--name: a model's name cannot be empty".to_owned()));
    }
    if !file.exists() && !file.is_symlink() {
        if let Some(command) = meant(file) {
            bail!(Usage(format!(
                "there is no file {}; did you mean `torch2carton {command}`?",
                file.display()
            )));
        }
        let parent = folder(file);
        if !parent.is_dir() {
            bail!("there is no file {}: there is no folder {}", file.display(), parent.display());
        }
        let parent = shell::quoted(parent);
        bail!("there is no file {}; `ls {parent}` shows what is there", file.display());
    }
    Ok(())
}

/// The subcommand that a mistyped word resembles.
fn meant(word: &Path) -> Option<String> {
    /// Jaro-Winkler similarity from which on a word is a slip of the finger.
    const SIMILAR: f64 = 0.8;
    let word = word.to_str()?;
    let scored = cli::subcommands().into_iter().map(|name| (strsim::jaro_winkler(word, &name), name));
    let best = scored.max_by(|a, b| a.0.total_cmp(&b.0))?;
    (best.0 >= SIMILAR).then_some(best.1)
}

pub(crate) fn shown(path: &Path) -> String {
    path.display().to_string()
}

/// The file's name without what says that it is a checkpoint.
fn stem(path: &Path) -> String {
    let mut stem = file_name(path);
    while let Some((rest, extension)) = stem.rsplit_once('.') {
        if rest.is_empty() || !EXTENSIONS.contains(&extension.to_ascii_lowercase().as_str()) {
            break;
        }
        stem = rest.to_owned();
    }
    stem
}

/// `--name`, else the stem, else for stems that say nothing the folder's name.
fn model_name(args: &cli::Convert, file: &Path) -> String {
    if let Some(name) = &args.name {
        return name.clone();
    }
    let stem = stem(file);
    let generic =
        GENERIC.contains(&stem.as_str()) || GENERIC_STARTS.iter().any(|start| stem.starts_with(start));
    let folder = std::path::absolute(folder(file)).ok();
    let folder = folder.as_deref().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
    match folder {
        Some(folder) if generic => folder,
        _ => stem,
    }
}

/// The files for `misc/`: those beside the checkpoint and those that were asked for, which win.
fn misc(args: &cli::Convert, file: &Path) -> Result<Vec<Misc>> {
    let mut asked: Vec<Misc> = Vec::new();
    for path in &args.misc {
        if !path.is_file() {
            bail!("--misc {}: there is no such file", path.display());
        }
        let name = path.file_name().and_then(|name| name.to_str());
        let Some(name) = name else { bail!("--misc {}: its name is no UTF-8", path.display()) };
        if asked.iter().any(|(other, _)| other == name) {
            bail!(Usage(format!("--misc: two files are called {name}")));
        }
        asked.push((name.to_owned(), path.clone()));
    }
    let beside = sources::companions(file)?;
    let beside = beside.into_iter().filter(|(name, _)| !asked.iter().any(|(other, _)| other == name));
    let mut all: Vec<Misc> = beside.collect();
    all.extend(asked);
    all.sort();
    Ok(all)
}

fn config(
    args: &cli::Convert,
    file: &Path,
    converted: &Converted,
    has: &dyn Fn(&str) -> bool,
) -> Result<Config> {
    let mut config = Config::new(Runner::new("torchscript", args.torch.required(), 1));
    config.model_name = Some(model_name(args, file));
    config.inputs = converted.inputs.iter().map(port).collect::<Result<_>>()?;
    config.outputs = converted.outputs.iter().map(port).collect::<Result<_>>()?;
    if let Some(file) = &args.config {
        config = merge::merged(&config, file, has)?;
    }
    for (field, given) in [
        (&mut config.model_name, &args.name),
        (&mut config.short_description, &args.short_description),
        (&mut config.model_description, &args.description),
        (&mut config.license, &args.license),
        (&mut config.repository, &args.repository),
        (&mut config.homepage, &args.homepage),
    ] {
        if given.is_some() {
            field.clone_from(given);
        }
    }
    Ok(config)
}

/// What TorchScript calls an input or output, in Carton's words.
fn port(port: &torchscript::Port) -> Result<Port> {
    use tensor::Dtype;
    let dtype = match port.dtype {
        Dtype::Float32 => DataType::Float32,
        Dtype::Float64 => DataType::Float64,
        Dtype::Int8 => DataType::Int8,
        Dtype::Int16 => DataType::Int16,
        Dtype::Int32 => DataType::Int32,
        Dtype::Int64 => DataType::Int64,
        Dtype::UInt8 => DataType::UInt8,
        Dtype::UInt16 => DataType::UInt16,
        Dtype::UInt32 => DataType::UInt32,
        Dtype::UInt64 => DataType::UInt64,
        other => bail!("tensor `{}`: Carton has no {other}", port.name),
    };
    let dimensions = port.shape.iter().map(|dim| match dim {
        torchscript::Dim::Symbol(name) => Dimension::Symbol(name.clone()),
        torchscript::Dim::Size(size) => Dimension::Size(*size),
    });
    let shape = Shape::Dimensions(dimensions.collect());
    let description = port.description.as_ref();
    let description =
        description.map(|text| if port.optional { format!("optional: {text}") } else { text.clone() });
    Ok(Port { description, ..Port::new(&port.name, dtype, shape) })
}

fn write(
    args: &cli::Convert,
    file: &Path,
    target: &Path,
    converted: &Converted,
    misc: &[Misc],
    values: Option<&str>,
    quiet: bool,
) -> Result<Written> {
    let has = |path: &str| {
        let taken = misc.iter().any(|(name, _)| path.strip_prefix("misc/") == Some(name));
        taken || (path == VALUES && values.is_some())
    };
    let config = config(args, file, converted, &has)?;
    let problems = config.check(&TensorIndex::default(), &has);
    if !problems.0.is_empty() {
        return Err(repack::refused(target, &problems));
    }
    let config = config.to_toml()?;
    let index = TensorIndex::default().to_toml()?;
    let maps: Vec<(String, Arc<MappedFile>)> = misc
        .iter()
        .map(|(name, path)| Ok((format!("misc/{name}"), Arc::new(MappedFile::open(path)?))))
        .collect::<Result<_>>()?;
    let mut files = vec![
        File::new(Config::PATH, Content::Bytes(config.as_bytes())),
        File::new(TensorIndex::PATH, Content::Bytes(index.as_bytes())),
    ];
    files.extend(maps.iter().map(|(path, map)| File::new(path, Content::Blob(map))));
    if let Some(values) = values {
        files.push(File::new(VALUES, Content::Bytes(values.as_bytes())));
    }
    files.push(File::new("model/model.pt", Content::Blob(&converted.archive)));

    let carton = Carton::new(files);
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
    output.commit(cli::if_exists(args.no_clobber))?;
    Ok(written)
}

/// The last words: what was made, how large, how fast.
fn summary(
    target: &Path,
    tensors: &[(String, Tensor)],
    converted: &Converted,
    misc: &[Misc],
    written: &Written,
    elapsed: Duration,
) -> Result<()> {
    let seconds = elapsed.as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
    let speed = written.len as f64 / 1e9 / seconds.max(1e-9);
    let names: Vec<&str> = misc.iter().map(|(name, _)| name.as_str()).collect();
    let mut taken = if names.is_empty() { "nothing".to_owned() } else { names.join(", ") };
    if converted.kind != Kind::Weights && !sources::has_tokenizer(misc) {
        taken.push_str("; no tokenizer found (add one with --misc FILE)");
    }
    let ports = |ports: &[torchscript::Port]| {
        let names = ports.iter().filter(|port| !port.optional).map(|port| port.name.as_str());
        match names.collect::<Vec<_>>() {
            many if many.len() > 4 => format!("{} tensors", many.len()),
            few => few.join(", "),
        }
    };
    let why = converted.why.as_ref().map_or_else(String::new, |why| format!(" ({why})"));
    let kind = format!("{}{why}", converted.kind);
    let kind = match converted.inputs.as_slice() {
        [] => format!("{kind}: returns {}", ports(&converted.outputs)),
        inputs => format!("{kind}: {} -> {}", ports(inputs), ports(&converted.outputs)),
    };
    let parameters = Totals::of(tensors.iter().map(|(_, tensor)| tensor)).parameters;
    let mut err = anstream::stderr().lock();
    writeln!(err, "{BOLD}{}{BOLD:#}", safe(target.display()))?;
    for (label, value) in [
        ("module", kind),
        ("holds", format!("{}, {} parameters", counted(tensors.len(), "tensor"), count(parameters))),
        ("size", format!("{} in {seconds:.2} s, {speed:.2} GB/s", bytes(written.len))),
        ("misc", taken),
        ("manifest", hex(&written.manifest_hash)),
    ] {
        writeln!(err, "  {DIM}{label:<10}{DIM:#}{}", safe(value))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stems_keep_what_belongs_to_the_name() {
        let stem = |path: &str| super::stem(Path::new(path));
        assert_eq!(stem("a/consolidated.00.pth"), "consolidated.00");
        assert_eq!(stem("net.pth.tar"), "net");
        assert_eq!(stem("llama-3.1"), "llama-3.1");
        assert_eq!(stem(".pth"), ".pth");
    }

    #[test]
    fn slips_of_the_finger_are_understood() {
        assert_eq!(meant(Path::new("inspct")).as_deref(), Some("inspect"));
        assert_eq!(meant(Path::new("weights.pth")), None);
    }
}

//! Which module a checkpoint becomes: what `--arch`, the documents beside it and the options say, and what to do
//! where they do not come together.

use std::path::Path;

use anyhow::{Context, Result, bail};
use tensor::Tensor;
use torchscript::{About, Asked, Converted, Fact};

use crate::cli::{self, Arch};
use crate::convert::shown;
use crate::ui::{advice, shell};
use sources::Sources;

/// The module that `--arch` asks for: a model, or the weights and the reason why not a model.
pub(crate) fn converted(
    args: &cli::Convert,
    sources: &Sources,
    tensors: &[(String, Tensor)],
) -> Result<Converted> {
    let path = sources.path.as_path();
    let auto = args.model.arch == Arch::Auto;
    let one_shard = || {
        torchscript::weights(tensors)
            .map(|weights| Converted { why: Some("one shard of several".to_owned()), ..weights })
    };
    let alone = args.single && sources.is_single();
    let result = match &args.model.arch {
        Arch::Weights => torchscript::weights(tensors),
        Arch::Auto if alone && sources::shard(path).is_some() => one_shard(),
        Arch::Auto => torchscript::auto(tensors, &about(args, sources)?),
        Arch::Named(name) => torchscript::model(name, tensors, &about(args, sources)?),
    };
    let result = match result {
        Err(torchscript::Error::Shard { .. }) if auto && alone => one_shard(),
        Err(torchscript::Error::Shard { of }) if sources.is_single() => {
            let of = usize::try_from(of).unwrap_or(usize::MAX);
            let error = sources::Error::LoneShard { path: path.to_owned(), number: 1, of };
            bail!("{}: {}", shown(path), advice::cause(&error))
        }
        Err(error) if error.is_of_a_model() => {
            bail!("{}; {}", located(&error, path), remedy(&error, args, sources))
        }
        result => result,
    };
    result.with_context(|| shown(path))
}

/// The error behind the path of what is at fault: a document beside the checkpoint, or the checkpoint.
fn located(error: &torchscript::Error, path: &Path) -> String {
    let text = error.to_string();
    match error.document().and_then(|file| Some((file, text.strip_prefix(file)?))) {
        Some((file, rest)) => format!("{}{rest}", shown(&path.with_file_name(file))),
        None => format!("{}: {text}", shown(path)),
    }
}

/// What lies beside the checkpoint, and what is said on the command line.
fn about(args: &cli::Convert, sources: &Sources) -> Result<About> {
    let documents = &sources.documents;
    Ok(About {
        params: documents.params()?.map(str::to_owned),
        config: documents.config()?.map(str::to_owned),
        adapter: documents.adapter()?.map(str::to_owned),
        asked: asked(&args.model),
        keep_extra: args.model.keep_extra,
    })
}

fn asked(model: &cli::Model) -> Asked {
    Asked {
        n_heads: model.n_heads,
        rope_theta: model.rope_theta,
        rope_factor: model.rope_factor,
        norm_eps: model.norm_eps,
    }
}

/// What to do about a model that does not come together.
fn remedy(error: &torchscript::Error, args: &cli::Convert, sources: &Sources) -> String {
    const WEIGHTS: &str = "--arch weights converts the tensors without a forward";
    match error {
        torchscript::Error::Missing { facts, .. } => {
            let options = options(&args.model, facts);
            let known = if *facts == [Fact::Heads] { "" } else { KNOWN_NUMBERS };
            format!("say it: `torch2carton {}{options}`{known}; {WEIGHTS}", shell::quoted(sources.root()))
        }
        torchscript::Error::Contradiction { .. } => "leave out one of the two".to_owned(),
        torchscript::Error::UnexpectedTensors { .. } => {
            format!("--keep-extra takes them along, --exclude leaves them out, {WEIGHTS}")
        }
        _ => WEIGHTS.to_owned(),
    }
}

const KNOWN_NUMBERS: &str = " (Llama 1 and 2: 10000 and 1e-5 or 1e-6; Llama 3: 500000 and 1e-5)";

/// The options that were given, and those that say `facts`, with words that are no numbers: a guess that
/// fits the shapes would make a wrong model.
fn options(model: &cli::Model, facts: &[Fact]) -> String {
    let arch = match &model.arch {
        Arch::Named(name) => Some(("--arch", name.clone())),
        Arch::Auto | Arch::Weights => None,
    };
    let word = |fact| match fact {
        Fact::Heads => "N",
        Fact::RopeTheta => "BASE",
        Fact::RopeFactor => "FACTOR",
        Fact::NormEps => "EPS",
    };
    let numbers = asked(model).said().into_iter().filter_map(|(fact, given)| {
        let missing = || facts.contains(&fact).then(|| word(fact).to_owned());
        Some((fact.option(), given.or_else(missing)?))
    });
    let options = arch.into_iter().chain(numbers).map(|(option, value)| format!(" {option} {value}"));
    options.chain(model.keep_extra.then(|| " --keep-extra".to_owned())).collect()
}

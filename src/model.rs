//! Which module a checkpoint becomes, from `--arch`, the documents next to it and the flags; and what to do if they
//! do not fit together.

use std::path::Path;

use anyhow::{Context, Result, bail};
use decoder::{Documents, Fact, Given, Options, WhyWeights};
use tensor::Tensor;
use torchscript::Converted;

use crate::cli::{self, Arch};
use crate::convert::shown;
use crate::ui::shell::quoted;
use crate::ui::{advice, flags};
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
        torchscript::weights(tensors).map(|weights| Converted { why: Some(WhyWeights::OneShard), ..weights })
    };
    let alone = args.single && sources.is_single();
    let result = match &args.model.arch {
        Arch::Weights => torchscript::weights(tensors),
        Arch::Auto if alone && sources::shard(path).is_some() => one_shard(),
        Arch::Auto => torchscript::auto(tensors, &model_options(args, sources)?),
        Arch::Named(name) => torchscript::model(name, tensors, &model_options(args, sources)?),
    };
    let result = match result {
        Err(torchscript::Error::Decoder(decoder::Error::Shard { .. })) if auto && alone => one_shard(),
        Err(torchscript::Error::Decoder(decoder::Error::Shard { count })) if sources.is_single() => {
            let of = usize::try_from(count).unwrap_or(usize::MAX);
            let error = sources::Error::LoneShard { path: path.to_owned(), number: 1, of };
            bail!("{}: {}", shown(path), advice::cause(&error))
        }
        Err(torchscript::Error::Decoder(error)) if error.leaves_weights_usable() => {
            bail!("{}; {}", located(&error, path), remedy(&error, args, sources))
        }
        Err(error @ torchscript::Error::Dtype { .. }) => {
            bail!("{}: {error}; --exclude leaves a tensor out", shown(path))
        }
        result => result,
    };
    result.with_context(|| shown(path))
}

/// The error after the path of what is at fault: a document next to the checkpoint, or the checkpoint.
fn located(error: &decoder::Error, path: &Path) -> String {
    let text = error.to_string();
    match error.document().and_then(|file| Some((file, text.strip_prefix(file)?))) {
        Some((file, rest)) => format!("{}{rest}", shown(&path.with_file_name(file))),
        None => format!("{}: {text}", shown(path)),
    }
}

/// The documents next to the checkpoint, and the numbers of the command line.
fn model_options(args: &cli::Convert, sources: &Sources) -> Result<Options> {
    let text = |text: Option<&str>| text.map(str::to_owned);
    let documents = Documents {
        params: text(sources.documents.params()?),
        config: text(sources.documents.config()?),
        adapter: text(sources.documents.adapter()?),
    };
    Ok(Options { documents, given: given(&args.model), keep_extra: args.model.keep_extra })
}

fn given(model: &cli::Model) -> Given {
    Given {
        n_heads: model.n_heads,
        rope_theta: model.rope_theta,
        rope_factor: model.rope_factor,
        norm_eps: model.norm_eps,
    }
}

/// What a user can do about an error.
fn remedy(error: &decoder::Error, args: &cli::Convert, sources: &Sources) -> String {
    const WEIGHTS: &str = "--arch weights converts the tensors without a forward";
    match error {
        decoder::Error::MissingFacts { facts, .. } => {
            let options = options(&args.model, facts);
            let known = if *facts == [Fact::Heads] { "" } else { KNOWN_NUMBERS };
            format!("run `torch2carton {}{options}`{known}; {WEIGHTS}", quoted(sources.root()))
        }
        decoder::Error::Contradiction { fact, .. } => format!("leave out {}", flags::option(*fact)),
        decoder::Error::Heads { .. } => format!("change {}, or {WEIGHTS}", flags::option(Fact::Heads)),
        decoder::Error::UnexpectedTensors { .. } => {
            format!("--keep-extra keeps them, --exclude leaves them out, {WEIGHTS}")
        }
        _ => WEIGHTS.to_owned(),
    }
}

const KNOWN_NUMBERS: &str = " (Llama 1 and 2: 10000 and 1e-5 or 1e-6; Llama 3: 500000 and 1e-5)";

/// The flags that were used, and those that give `facts`, with words instead of numbers: a guess that fits the
/// shapes would make a wrong model.
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
    let numbers = given(model).numbers().into_iter().filter_map(|(fact, number)| {
        let missing = || facts.contains(&fact).then(|| word(fact).to_owned());
        Some((flags::option(fact), number.or_else(missing)?))
    });
    let options = arch.into_iter().chain(numbers).map(|(option, value)| format!(" {option} {value}"));
    options.chain(model.keep_extra.then(|| " --keep-extra".to_owned())).collect()
}

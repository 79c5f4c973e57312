//! Advice about errors: the option or command that helps.
//!
//! Libraries report the problem. Only the command line knows the options and commands.

use std::path::Path;

use byte_source::{Detail, Error, Place, format_bytes};
use convert::{ForeignKind, HyperparameterKind, InvalidOption, ModelChange, Note, Problem};
use output::parent_folder;

use super::advice_table::advice_on;
use super::flags::{self, exclude_advice, glob_literal};
use super::invocation::typed_command;
use super::shell::{shell_quoted, shell_quoted_path};

/// True if this program has the subcommand `resolve`.
pub(crate) const HAS_RESOLVE: bool = cfg!(feature = "download");

/// Advice that applies to every checkpoint.
pub(crate) const WEIGHTS_ADVICE: &str = "--arch weights converts the tensors without a forward";

/// Advice for weights that are quantized.
const DEQUANTIZE_ADVICE: &str = "; --dequantize computes the numbers that they stand for";

/// Returns advice on a problem of opening an input or of changing its tensors; empty if there is none.
pub(crate) fn open_advice(problem: &open::Problem, place: &Place) -> String {
    use open::Problem;
    let file = place.path.as_deref();
    match problem {
        Problem::NotWhole { prefix: Some(prefix), .. } => {
            format!("; --strip-prefix {prefix} takes away how its names begin")
        }
        Problem::AdapterAlone { .. } => file.map_or_else(String::new, adapter_advice),
        Problem::AdapterForm { form } => form_advice(form).to_owned(),
        Problem::DangerousGlobal { .. } => {
            format!(
                "; `{}` shows what calls it, --allow-dangerous converts without executing it",
                scan_command(file)
            )
        }
        Problem::UnknownGlobal { .. } => {
            format!(
                "; `{}` lists all that it names, and without --deny-unknown it is converted",
                scan_command(file)
            )
        }
        Problem::NoData { .. } | Problem::CannotCast { .. } => {
            place.tensor.as_deref().map_or_else(String::new, exclude_advice)
        }
        Problem::TwoOfOneName { listed, .. } => {
            format!("; --exclude {} leaves out the second", shell_quoted(listed))
        }
        Problem::NoTensors { constants: 1.. } => {
            "; -o NAME.carton keeps the code with them, and the module before `torch.jit.freeze` has them as weights".to_owned()
        }
        Problem::NoTensors { .. } => file.map_or_else(String::new, |file| {
            format!("; `torch2carton inspect --all {}` lists what is in it", shell_quoted_path(file))
        }),
        Problem::CodesCast { .. } => "; --dequantize computes the weights, in any dtype".to_owned(),
        problem => advice_on(problem.code()).to_owned(),
    }
}

/// Returns advice on a problem of inspecting, scanning, tracing or comparing; empty if there is none.
pub(crate) fn inspect_advice(problem: &inspect::Problem, file: Option<&Path>) -> String {
    match problem {
        inspect::Problem::NoSuchName { name, is_group: true, .. } => {
            format!("; --include {} lists the tensors below it", shell_quoted(&format!("{name}.*")))
        }
        inspect::Problem::NoSuchName { similar: None, .. } => names_advice(file),
        problem => advice_on(problem.code()).to_owned(),
    }
}

/// Returns the text of an error of a conversion that the command line words in another way.
pub(crate) fn convert_own_text(error: &Error) -> Option<String> {
    let text = if let Some(Problem::Expansion { input, output, factor }) = error.detail() {
        let (sizes, needed) = (format_bytes(*input), output.div_ceil((*input).max(1)));
        format!(
            "the output would have {}, more than {factor} times the {sizes} of the input: its tensors are views that \
             repeat bytes; --max-expansion {needed} writes it",
            format_bytes(*output)
        )
    } else {
        option_text(error.detail()?)
    };
    Some(format!("{}{text}", error.location()))
}

/// Returns advice on a problem of a conversion; empty if there is none. `file` is the checkpoint, if known.
pub(crate) fn convert_advice(problem: &Problem, file: Option<&Path>) -> String {
    match problem {
        Problem::DisallowedOperator { is_dangerous: true, .. } => {
            format!(
                "; `{}` shows where, --allow-dangerous keeps it, --arch weights converts only the tensors",
                scan_command(file)
            )
        }
        Problem::DisallowedOperator { .. } => "; without --deny-unknown it is kept".to_owned(),
        Problem::Model { reason, .. } => match reason.detail() {
            Some(decoder::Problem::Quantized { .. }) => format!("{DEQUANTIZE_ADVICE}, and {WEIGHTS_ADVICE}"),
            Some(decoder::Problem::Contradiction { fact, .. }) => {
                format!("; leave out {}", flags::hyperparameter_flag(*fact))
            }
            Some(decoder::Problem::InvalidHeads { .. }) => {
                format!(
                    "; change {}, or {WEIGHTS_ADVICE}",
                    flags::hyperparameter_flag(HyperparameterKind::Heads)
                )
            }
            Some(decoder::Problem::UnexpectedTensors { .. }) => {
                format!("; --keep-extra keeps them, --exclude leaves them out, {WEIGHTS_ADVICE}")
            }
            _ => format!("; {WEIGHTS_ADVICE}"),
        },
        Problem::UnsupportedTensors { torch_can, tensors, .. } => {
            let name = tensors.first().map_or("", |(name, _)| name);
            let cast = *torch_can && tensors.iter().any(|(_, what)| what == "complex128");
            let cast = if cast { "--cast complex128=complex64 converts elements, " } else { "" };
            let out = shell_quoted(&glob_literal(name));
            let other = if *torch_can {
                "a .pth file holds all of them (--to pth)"
            } else {
                "a carton holds their parts (--to carton)"
            };
            format!("; {cast}--exclude {out} leaves one out, and {other}")
        }
        Problem::QuantizedInput { .. } => DEQUANTIZE_ADVICE.to_owned(),
        Problem::NotAModel {
            why: Some(decoder::NoModelReason::UnsupportedModelType { needs: Some(_), .. }),
        } => "; -o NAME.safetensors or --arch weights keeps its tensors".to_owned(),
        problem => triton_advice(problem).to_owned(),
    }
}

/// Returns the command that scans a file.
fn scan_command(file: Option<&Path>) -> String {
    file.map_or_else(|| "scan".to_owned(), |file| format!("torch2carton scan {}", shell_quoted_path(file)))
}

/// Returns the command that merges an adapter.
fn adapter_advice(adapter: &Path) -> String {
    let adapter = shell_quoted_path(adapter);
    format!("; `torch2carton BASE --merge {adapter}` merges it into its model, whose path is BASE")
}

/// Returns advice on an error of translating a model into another layout; empty if there is none.
pub(crate) fn translation_advice(error: &decoder::Problem) -> String {
    match error {
        decoder::Problem::Quantized { .. } => DEQUANTIZE_ADVICE.to_owned(),
        decoder::Problem::MissingHyperparameters { facts, .. } => {
            let flags: Vec<&str> = facts.iter().map(|fact| flags::hyperparameter_flag(*fact)).collect();
            format!("; give them with {}", flags.join(", "))
        }
        decoder::Problem::Contradiction { fact, .. } => {
            format!("; leave out {}", flags::hyperparameter_flag(*fact))
        }
        decoder::Problem::InvalidHeads { .. } => {
            format!("; change {}", flags::hyperparameter_flag(HyperparameterKind::Heads))
        }
        decoder::Problem::NoName { names, .. } => {
            let name = names.first().map_or("", String::as_str);
            format!("; --exclude {} leaves it out", shell_quoted(&glob_literal(name)))
        }
        decoder::Problem::Frequency { tensor, .. } => format!(
            "; --exclude {} leaves it out, --rope-theta gives another base if no document states one",
            shell_quoted(&glob_literal(tensor))
        ),
        decoder::Problem::NoLayout { why: decoder::NoModelReason::NoDocuments } => {
            "; --n-heads, --rope-theta and --norm-eps replace a params.json".to_owned()
        }
        decoder::Problem::NoConfig { .. } => {
            "; put it next to the weights, or give it with --misc config.json".to_owned()
        }
        decoder::Problem::NotAModel { .. } => "; docs/models.md lists the models that run here".to_owned(),
        decoder::Problem::NoLayout { .. } | decoder::Problem::OtherLayout { .. } => {
            "; --rename changes names alone".to_owned()
        }
        _ => String::new(),
    }
}

/// Returns advice on an error about a model for Triton; empty if there is none.
fn triton_advice(problem: &Problem) -> &'static str {
    match problem {
        Problem::NothingToServe { why: None } => "; leave out --arch weights",
        Problem::NothingToServe { why: Some(decoder::NoModelReason::NoDocuments) } => {
            "; put one there, or use --arch llama with --n-heads, --rope-theta and --norm-eps"
        }
        Problem::NothingToServe { why: Some(decoder::NoModelReason::OneShard) } => {
            "; pass the folder of all shards"
        }
        Problem::NothingToServe { .. } => {
            "; a carton can hold its tensors, and `torch2carton serve` return them by name"
        }
        Problem::ScriptToServe { why: None } => "; leave out the options that change tensors",
        Problem::ScriptToServe { .. } => {
            "; if its forward takes and returns tensors, copy the file to REPOSITORY/NAME/1/model.pt and write \
             REPOSITORY/NAME/config.pbtxt"
        }
        problem => advice_on(problem.code()),
    }
}

/// Returns the text of an invalid option for opening an input or for changing its tensors, with its flag.
pub(crate) fn open_option_text(option: &open::InvalidOption) -> String {
    use open::InvalidOption;
    match option {
        InvalidOption::CannotCast { .. } | InvalidOption::CastTwice { .. } => format!("--cast: {option}"),
        InvalidOption::NotFloatingPoint { .. } => format!("--dtype: {option}"),
        InvalidOption::Regex { .. } | InvalidOption::NoGroup { .. } => format!("--rename: {option}"),
        option => option.with_flags(),
    }
}

/// Returns the text of an invalid option of a conversion, with its flag.
fn option_text(option: &InvalidOption) -> String {
    match option {
        InvalidOption::Open(option) => open_option_text(option),
        InvalidOption::EmptyName => format!("--name: {option}"),
        InvalidOption::TritonName { .. } => format!("{option}; --name gives another name"),
        InvalidOption::MiscMissing { .. }
        | InvalidOption::MiscName { .. }
        | InvalidOption::MiscTwice { .. } => {
            format!("--misc: {option}")
        }
        InvalidOption::NoKind { path } => {
            let path = shell_quoted_path(path);
            format!("{option}; --to safetensors -o {path} writes a folder of them, and --to carton one file")
        }
        InvalidOption::NotAFolder { .. } => {
            format!("{option}; -o names a file if it ends in .carton, .safetensors or .pth")
        }
        InvalidOption::ShardsInFile { path, .. } => {
            format!("{option}; -o {} writes a folder", shell_quoted_path(&path.with_extension("")))
        }
        InvalidOption::NotARepository { path } => {
            format!(
                "{option}; -o {} adds a model to it, and --name chooses the model's folder",
                shell_quoted_path(parent_folder(path))
            )
        }
        InvalidOption::AlreadyConverted { change } => {
            format!("{}: {option}", flags::change_flags(*change))
        }
        InvalidOption::ForeignOutput { kind: ForeignKind::Onnx, .. } => format!(
            "{option}; write a folder with `--to safetensors -o DIR` (for Meta's files with --names hf), then run \
             `optimum-cli export onnx --model DIR OUT`"
        ),
        InvalidOption::ForeignOutput { kind: ForeignKind::Graph, .. } => {
            format!("{option}; load the checkpoint in Python, and export the model there")
        }
        InvalidOption::ForeignOutput { kind: ForeignKind::NumPy, .. } => format!(
            "{option}; `torch2carton inspect FILE TENSOR -o x.npy` writes one tensor, and `-o x.safetensors` a file from \
             which `safetensors.numpy.load_file` of Python reads all arrays"
        ),
        InvalidOption::ForeignOutput { kind: ForeignKind::Hdf5, .. } => format!(
            "{option}; `-o x.safetensors` writes a file from which `safetensors.numpy.load_file` of Python reads arrays for h5py"
        ),
        InvalidOption::ForeignOutput { kind: ForeignKind::Pickle, .. } => {
            format!("{option}; `-o x.pth` writes a file for `torch.load`")
        }
        InvalidOption::SimilarExtension { .. } => {
            format!("{option} `--to carton` writes a carton of this name")
        }
        InvalidOption::SameOutput { .. } => {
            format!("{option}; convert one of them alone, with another -o or --name")
        }
        InvalidOption::GivenTwice { .. } => format!("{option}; give it once, with its whole weight"),
        InvalidOption::SameInput { .. } => format!("{option}; it is converted once"),
        InvalidOption::NoScript { change } => {
            let options =
                "--input, --output-names and --output-type are about the code of a TorchScript module";
            match change {
                Some(ModelChange::Model) => {
                    format!("{options}, which --arch does not keep; leave out one or the other")
                }
                Some(change) => {
                    let flags = flags::change_flags(*change);
                    format!(
                        "{options}, which is not kept if its tensors change ({flags}); leave out one or the other"
                    )
                }
                None => format!("{options}, and the input is not one"),
            }
        }
        option => option.with_flags(),
    }
}

/// Returns what merges an adapter in a form that is not merged here; empty for the form of peft.
fn form_advice(form: &str) -> &'static str {
    const FORMS: [(&str, &str); 5] = [
        ("kohya", DIFFUSERS_MERGES),
        ("diffusers", DIFFUSERS_MERGES),
        (
            "torchtune",
            "; torchtune's checkpointer for Hugging Face writes it for peft, too, and --merge takes that",
        ),
        ("MLX", "; `mlx_lm.fuse` merges it"),
        ("adapter", "; the program that trained it merges it"),
    ];
    FORMS.iter().find(|(word, _)| form.contains(word)).map_or("", |(_, advice)| advice)
}

const DIFFUSERS_MERGES: &str = "; diffusers merges it: `load_lora_weights`, `fuse_lora`, `unload_lora_weights` and `save_pretrained` \
                                of the base's pipeline";

/// Returns the text of a note on an input, with the option that helps.
pub(crate) fn open_note_text(note: &open::Note, file: &str) -> String {
    use open::Note;
    if let Note::OfInput { file, note } = note {
        return format!("{file}: {}", open_note_text(note, file));
    }
    let advice = match note {
        Note::Sources(open::files::FilesNote::Container {
            note: torch_import::CheckpointNote::TrailingAfterPickle { .. },
            ..
        }) => {
            format!("; `torch2carton trace --pickle 1 {}` shows what they are", shell_quoted(file))
        }
        Note::Sources(open::files::FilesNote::LinkLeftOut { path, .. }) => {
            format!("; --misc {} keeps it", shell_quoted_path(path))
        }
        Note::Sources(open::files::FilesNote::CodeLeftOut { .. }) => "; --misc FILE keeps one".to_owned(),
        Note::UsingKey { left_out, .. } if !left_out.is_empty() => "; --key '' keeps everything".to_owned(),
        Note::SetsKept { keys } => {
            let flags: Vec<String> =
                keys.iter().map(|(key, _)| format!("--key {}", shell_quoted(key))).collect();
            let (last, others) = flags.split_last().map_or(("", &[][..]), |(last, it)| (last.as_str(), it));
            format!("; {} or {last} takes one of them", others.join(", "))
        }
        Note::OptimizerLeftOut { keys, .. } => {
            let key = keys.first().map_or("", String::as_str);
            format!("; --key {} takes them, --key '' everything", shell_quoted(key))
        }
        Note::ComparedAsStored { .. } if typed_command().ends_with(" diff") => {
            "; --dequantize compares the numbers that they stand for".to_owned()
        }
        Note::ComparedAsStored { .. } => {
            "; `torch2carton diff --dequantize A B` compares the numbers that they stand for".to_owned()
        }
        Note::AdapterFactors { form } if form.contains("peft") => {
            "; --merge takes it with its adapter_config.json next to it".to_owned()
        }
        Note::AdapterFactors { form } => form_advice(form).to_owned(),
        Note::CommonPrefix { prefix } => format!("; --strip-prefix {prefix} removes it"),
        _ => String::new(),
    };
    format!("{note}{advice}")
}

/// Returns the text of a note on an input of a command with `--rename`, with the option that helps.
pub(crate) fn renamed_note_text(note: &open::Note, file: &str) -> String {
    let text = open_note_text(note, file);
    match note {
        open::Note::WrapperParts { parts, pattern: Some(pattern), .. } => {
            let them = if parts.len() == 1 { "it" } else { "them" };
            format!("{text}; --rename {} removes {them}", shell_quoted(&format!("{pattern}=")))
        }
        _ => text,
    }
}

/// Returns the text of a note on a conversion, with the option that helps.
pub(crate) fn note_text(note: &Note, file: &str) -> String {
    let advice = match note {
        Note::Open(note) => return renamed_note_text(note, file),
        Note::Module(note) => return flags::module_note_text(note),
        Note::CartonByDefault { .. } => "; --to carton says so".to_owned(),
        Note::GlobalsRecorded { .. } => format!("; `torch2carton scan {}` lists them", shell_quoted(file)),
        Note::DocumentsLeftOut { names, to } => {
            let them = if names.len() == 1 { "it" } else { "them" };
            format!("; --to {to} -o FOLDER writes {them} too")
        }
        Note::Quantized { method } if method == "gguf" => {
            "; --dequantize computes the numbers that they stand for, which a carton needs to run".to_owned()
        }
        Note::Quantized { .. } => "; --dequantize computes the numbers that they stand for".to_owned(),
        Note::ValuesLeftOut { values } => {
            let them = if *values == 1 { "it" } else { "them" };
            format!("; `torch2carton inspect --all {}` lists {them}", shell_quoted(file))
        }
        Note::ValuesKept { values } => {
            format!(" (--no-values leaves {} out)", if *values > 1 { "them" } else { "it" })
        }
        _ => String::new(),
    };
    format!("{note}{advice}")
}

/// Returns the text of an error about several keys with weights, whose sizes are printed with units.
pub(crate) fn several_keys_text(keys: &[(String, u64, u64)]) -> String {
    let keys_to_type = keys.first().map(|(key, ..)| shell_quoted(key));
    let keys = keys.iter().map(|(key, tensors, nbytes)| {
        let s = if *tensors == 1 { "" } else { "s" };
        format!("`{key}` ({} tensor{s}, {})", byte_source::format_count(*tensors), format_bytes(*nbytes))
    });
    let keys = keys.collect::<Vec<_>>().join(", ");
    let first = keys_to_type.unwrap_or_default();
    format!(
        "several keys hold weights: {keys}; choose one, such as with `--key {first}`, or keep everything with `--key ''`"
    )
}

/// Returns the command that lists the names of tensors and values.
fn names_advice(file: Option<&Path>) -> String {
    file.map_or_else(String::new, |file| {
        format!("; `torch2carton inspect --all {}` lists the names", shell_quoted_path(file))
    })
}

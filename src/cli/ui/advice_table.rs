//! Advice about the problems of the crates below the verbs, by the codes of the problems.

/// Advice and the code of the problem that it is about.
const ADVICE: &[(&str, &str)] = &[
    ("adapter::NotInBase", COMMON_ADVICE),
    ("adapter::NotInFile", COMMON_ADVICE),
    ("adapter::NotSummed", COMMON_ADVICE),
    ("adapter::OtherDtype", COMMON_ADVICE),
    ("adapter::OtherShape", COMMON_ADVICE),
    ("batch::ResultsExist", "; --resume goes on from them, or name another file"),
    ("batch::ResultsInUse", "; wait until it has ended, or name another file"),
    ("byte-source::FileChanged", "; try again when no other program writes to it"),
    ("byte-source::RecordDamaged", "; copy the file again"),
    ("carton-tools::BaseUrl", "; check --base"),
    ("carton-tools::BlobDamaged", "; remove it and try again"),
    ("carton-tools::BlobLength", "; remove it and try again"),
    ("carton-tools::FilesExist", "; --force replaces them"),
    ("carton-tools::FolderNotEmpty", "; choose another folder with -o"),
    ("carton-tools::NoCheckpoint", "; name it with --against"),
    ("carton-tools::NotAFolder", "; pack takes a folder with a carton.toml in it"),
    ("carton-tools::NotNpy", "; --tensor takes arrays that numpy.save wrote"),
    ("carton-tools::OutputInFolder", "; choose another path with -o"),
    (
        "convert::CartonOfWeights",
        "; pass the checkpoint that it was made from, with its params.json or config.json",
    ),
    (
        "convert::ForeignModule",
        "; pass the TorchScript file that it was made from, with --input and --output-type, or the checkpoint",
    ),
    ("convert::NotAModel", "; without --require-model its tensors are converted"),
    (
        "convert::NothingToQuantize",
        "; --dtype bfloat16 or float16 halves float32, and docs/models.md lists the decoders",
    ),
    ("convert::NothingToTest", "; without --self-test its tensors are converted"),
    ("convert::OtherModelInFolder", "; remove it, or choose another folder with -o"),
    (
        "convert::RankPart",
        "; pass the folder with the files of all ranks, or save the full state dict; --single converts the parts as they are",
    ),
    ("convert::ScriptToTest", "; without --self-test it is converted with its code"),
    ("convert::StatementInput", "; name the folder that has it with --input"),
    ("convert::StatementVersion", "; --any-version tries it anyway"),
    ("convert::TritonOutputNumber", "; --output-names gives other names"),
    ("generate::Temperature", "; check --temperature, which is 0 for the most probable token"),
    ("generate::TopP", "; check --top-p"),
    (
        "generate::NoTokenizer",
        "; copy its tokenizer.json or tokenizer.model next to the weights, or give token ids with --tokens",
    ),
    (
        "generate::Unsupported",
        "; `AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR)` of transformers makes a tokenizer.json in DIR, or give \
         token ids with --tokens",
    ),
    (
        "gguf-model::Architecture",
        "; `--to safetensors -o DIR` writes a folder, which a newer convert_hf_to_gguf.py of llama.cpp may convert",
    ),
    ("gguf-model::Blocks", "; --dequantize computes their numbers"),
    ("gguf-model::NoConfig", "; pass the folder with its config.json"),
    ("gguf-model::NoPreTokenizer", "; check --pre-tokenizer"),
    ("gguf-model::NoTokenizer", "; copy it next to the weights"),
    (
        "gguf-model::PreTokenizer",
        "; --pre-tokenizer names the one of llama.cpp that splits texts in the same way (docs/gguf.md#pre-tokenizers says how to find it)",
    ),
    ("inspect::NoConfiguration", "; copy the model's config.json there"),
    ("open::AllTensorsExcluded", "; check --include and --exclude"),
    ("open::EmptyName", "; check --rename"),
    ("open::GgufType", "; -o x.gguf writes one"),
    ("open::MegatronSetting", "; without --names the tensors keep Megatron's names"),
    ("open::MissingFile", "; copy the files of all ranks again"),
    ("open::MissingRank", "; copy the files of all ranks again"),
    ("open::NoSuchPrefix", "; check --strip-prefix"),
    ("open::NoTensorsUnderKey", "; check --key, --include and --exclude"),
    (
        "open::NotWhole",
        "; --complete-from takes what is missing from its base, and --incomplete converts it as it is",
    ),
    ("open::NothingRenamed", "; check --rename"),
    ("open::OutsideFile", "; copy the files of all ranks again"),
    ("open::SameName", "; check --rename"),
    ("open::SameNameWithoutPrefix", "; check --strip-prefix"),
    ("open::Unfinished", "; wait until the save ends, or pass an earlier step"),
    ("output::CreateIn", "; choose another place with -o"),
    ("output::Exists", "; choose another path with -o, or replace it with --force instead of --no-clobber"),
    ("output::IsFolder", "; name a file in it"),
    ("output::NotAFile", ", and a carton is a file"),
    ("output::NotOwnOutput", "; --force replaces it anyway, -o chooses another path"),
    ("output::OfAnotherInput", "; -o chooses another path, --force replaces it anyway"),
    ("output::RemoteOutput", "; write it to a local path, and copy it from there"),
    ("output::SameFile", "; choose another path with -o"),
    ("quantization::NotQuantized", "; convert it without --dequantize"),
    ("remote-source::Apart", "; give the shards of one folder, or convert each file in a run of its own"),
    ("remote-source::Cache", "; name another folder with --cache"),
    ("remote-source::Changed", "; start again, and name a commit if it is on the Hub"),
    ("remote-source::Conflict", "; start again"),
    (
        "remote-source::Connection",
        "; check the network, the name of the server, and HTTPS_PROXY if there is a proxy",
    ),
    ("remote-source::Gone", "; check the address"),
    ("remote-source::Insecure", "; --allow-http reads it anyway"),
    ("remote-source::Leftover", "; delete it, and take credentials that may delete objects"),
    ("remote-source::NoRanges", "; download the file first"),
    ("remote-source::NotFound", "; check the address"),
    ("remote-source::Offline", "; leave out --offline, and unset HF_HUB_OFFLINE"),
    ("remote-source::PrivateAddress", "; --allow-http reads it anyway"),
    ("remote-source::Repeated", "; leave out all but one of them"),
    ("remote-source::Repository", "; add the path of a file, such as model.safetensors"),
    ("remote-source::Slow", "; try again later"),
    ("remote-source::Status", "; try again later"),
    ("remote-source::TooLarge", "; --max-size allows them"),
    ("remote-source::Wait", "; a --timeout of so many seconds waits for it"),
    ("torchscript::Dtype", "; --exclude leaves a tensor out"),
    ("torchscript::DuplicateOutputName", "; check --output-names"),
    ("torchscript::InputDtype", "; check --input"),
    ("torchscript::MobileOnly", "; --arch weights converts only the tensors"),
    (
        "torchscript::NewerDtype",
        "; --torch newest writes a carton that requires PyTorch 2.15, --exclude leaves a tensor out",
    ),
    ("torchscript::NoDictForward", "; without --no-wrap a module that Carton can call is put around it"),
    ("torchscript::OutputDtype", "; check --output-type"),
    ("torchscript::OutputNameCount", "; check --output-names"),
    ("torchscript::UnknownInputName", "; check --input"),
    ("torchscript::UnknownOutputName", "; check --output-type"),
    ("torchscript::UnloadableOperator", "; convert the module as it was before that call"),
];

const COMMON_ADVICE: &str = "; --common sums what the checkpoints have in common";

/// Returns the advice on the problem with this code; empty if there is none, or if it depends on the values.
pub(crate) fn advice_on(code: &str) -> &'static str {
    ADVICE.iter().find(|(known, _)| *known == code).map_or("", |(_, advice)| advice)
}

#[cfg(test)]
mod tests {
    use open::{files, trainers};

    use super::ADVICE;

    #[test]
    fn each_code_is_that_of_a_problem() {
        let known = [
            adapter::Problem::CODES,
            batch::Problem::CODES,
            byte_source::FileChanged::CODES,
            byte_source::RecordDamaged::CODES,
            carton_tools::NpyError::CODES,
            carton_tools::Problem::CODES,
            convert::Problem::CODES,
            generate::Error::CODES,
            gguf_model::Problem::CODES,
            inspect::Problem::CODES,
            open::InvalidOption::CODES,
            open::Problem::CODES,
            files::Problem::CODES,
            trainers::Problem::CODES,
            output::Problem::CODES,
            quantization::Problem::CODES,
            remote_source::Error::CODES,
            torchscript::Problem::CODES,
        ]
        .concat();
        for (code, _) in ADVICE {
            assert!(known.contains(code), "{code}");
        }
    }
}

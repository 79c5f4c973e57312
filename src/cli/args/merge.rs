//! `--merge`, `--add` and `--average`.

use std::path::{Path, PathBuf};

use clap::{Args, ValueHint};
use pipeline::{CheckpointSum, SumTerms, WeightedPath};

/// Adapters and other checkpoints for the weights.
#[derive(Args, Debug)]
pub(crate) struct MergeArgs {
    /// Merge an adapter of peft: the folder that peft saved, or the file of the tensors in it; `=WEIGHT` scales its changes;
    /// repeatable, in this order
    #[arg(long, value_name = "ADAPTER[=WEIGHT]", value_parser = parse_weighted, value_hint = ValueHint::AnyPath)]
    pub(crate) merge: Vec<WeightedPath>,
    /// Add WEIGHT (1 if it is left out) times what PATH, a fine-tuned copy of the base, differs from it, as task arithmetic
    /// does: base + WEIGHT × (PATH − base); repeatable, the terms are summed
    #[arg(long, value_name = "PATH[=WEIGHT]", value_parser = parse_weighted, group = "sum", value_hint = ValueHint::AnyPath)]
    add: Vec<WeightedPath>,
    /// Write the mean of the input and PATH, such as another checkpoint of the same training; repeatable, all count the same
    #[arg(long, value_name = "PATH", group = "sum", value_hint = ValueHint::AnyPath)]
    average: Vec<PathBuf>,
    /// With --add or --average, sum what the checkpoints have in common: a tensor stays that of the input where PATH lacks
    /// it or has another shape, what only PATH has is left out, and dtypes may differ
    #[arg(long, requires = "sum")]
    common: bool,
}

impl MergeArgs {
    /// Returns the paths of the adapters and of the checkpoints.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &Path> {
        let weighted = self.merge.iter().chain(&self.add).map(|file| file.path.as_path());
        weighted.chain(self.average.iter().map(PathBuf::as_path))
    }

    /// Returns the sum for the library.
    pub(crate) fn sum(&self) -> Option<CheckpointSum> {
        let terms = match (self.add.as_slice(), self.average.as_slice()) {
            ([], []) => return None,
            ([], files) => SumTerms::Average(files.to_vec()),
            (files, _) => SumTerms::Differences(files.to_vec()),
        };
        Some(CheckpointSum { terms, only_common: self.common })
    }
}

/// Parses `PATH` or `PATH=WEIGHT`. A path that exists is taken as it is.
fn parse_weighted(text: &str) -> Result<WeightedPath, String> {
    let whole = || WeightedPath { path: PathBuf::from(text), weight: 1.0 };
    // The query of an address has equals signs of its own.
    if Path::new(text).exists() || (text.contains("://") && text.contains('?')) {
        return Ok(whole());
    }
    let Some((path, number)) = text.rsplit_once('=') else { return Ok(whole()) };
    match number.parse::<f64>() {
        Ok(weight) if weight.is_finite() && !path.is_empty() => {
            Ok(WeightedPath { path: PathBuf::from(path), weight })
        }
        Ok(_) => Err("expected PATH or PATH=WEIGHT with a finite number".to_owned()),
        Err(_) => Ok(whole()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_after_the_last_equals_sign_is_a_weight() {
        let parsed = |text| {
            let WeightedPath { path, weight } = parse_weighted(text).expect("valid");
            (path.display().to_string(), weight)
        };
        assert_eq!(parsed("lora"), ("lora".to_owned(), 1.0));
        assert_eq!(parsed("lora=0.5"), ("lora".to_owned(), 0.5));
        assert_eq!(parsed("lora=-2e-1"), ("lora".to_owned(), -0.2));
        assert_eq!(parsed("r=8/lora"), ("r=8/lora".to_owned(), 1.0));
        assert_eq!(parsed("r=8=2"), ("r=8".to_owned(), 2.0));
        assert_eq!(parsed("hf://a/b=0.5"), ("hf://a/b".to_owned(), 0.5));
        assert_eq!(parsed("https://a/b?c=2"), ("https://a/b?c=2".to_owned(), 1.0));
        assert!(parse_weighted("lora=inf").is_err() && parse_weighted("=1").is_err());
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("alpha=16");
        std::fs::create_dir(&path).expect("a temporary folder");
        let path = path.display().to_string();
        assert_eq!(parsed(&path), (path.clone(), 1.0));
    }
}

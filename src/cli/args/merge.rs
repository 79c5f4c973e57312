//! `--merge`.

use std::path::{Path, PathBuf};

use clap::{Args, ValueHint};
use pipeline::AdapterInput;

/// Adapters for the weights.
#[derive(Args, Debug)]
pub(crate) struct MergeArgs {
    /// Merge an adapter of peft: the folder that peft saved, or the file of the tensors in it; `=WEIGHT` scales its changes;
    /// repeatable, in this order
    #[arg(long, value_name = "ADAPTER[=WEIGHT]", value_parser = parse_adapter, value_hint = ValueHint::AnyPath)]
    pub(crate) merge: Vec<AdapterInput>,
}

/// Parses `ADAPTER` or `ADAPTER=WEIGHT`. A path that exists is taken as it is.
fn parse_adapter(text: &str) -> Result<AdapterInput, String> {
    let whole = || AdapterInput { path: PathBuf::from(text), weight: 1.0 };
    if Path::new(text).exists() {
        return Ok(whole());
    }
    let Some((path, number)) = text.rsplit_once('=') else { return Ok(whole()) };
    match number.parse::<f64>() {
        Ok(weight) if weight.is_finite() && !path.is_empty() => {
            Ok(AdapterInput { path: PathBuf::from(path), weight })
        }
        Ok(_) => Err("expected ADAPTER or ADAPTER=WEIGHT with a finite number".to_owned()),
        Err(_) => Ok(whole()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_after_the_last_equals_sign_is_a_weight() {
        let parsed = |text| {
            let AdapterInput { path, weight } = parse_adapter(text).expect("valid");
            (path.display().to_string(), weight)
        };
        assert_eq!(parsed("lora"), ("lora".to_owned(), 1.0));
        assert_eq!(parsed("lora=0.5"), ("lora".to_owned(), 0.5));
        assert_eq!(parsed("lora=-2e-1"), ("lora".to_owned(), -0.2));
        assert_eq!(parsed("r=8/lora"), ("r=8/lora".to_owned(), 1.0));
        assert_eq!(parsed("r=8=2"), ("r=8".to_owned(), 2.0));
        assert!(parse_adapter("lora=inf").is_err() && parse_adapter("=1").is_err());
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("alpha=16");
        std::fs::create_dir(&path).expect("a temporary folder");
        let path = path.display().to_string();
        assert_eq!(parsed(&path), (path.clone(), 1.0));
    }
}

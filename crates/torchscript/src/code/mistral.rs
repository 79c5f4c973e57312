//! Mistral: LLaMA whose attention may look back a limited number of tokens.
//!
//! Facts: `configuration_mistral.py` and `modeling_mistral.py` in `transformers` 5.23.

use super::Architecture;
use super::decoder::config::Config;
use super::decoder::{Said, Windowed, Windows};
use crate::Result;

pub(super) static MISTRAL: Architecture =
    Architecture { name: "mistral", class: "Mistral", plain: false, said };

/// The window where config.json does not name it; `null` there is none.
const WINDOW: u64 = 4096;

fn said(config: &Config) -> Result<Said> {
    let size = if config.has("sliding_window") { config.size("sliding_window")? } else { Some(WINDOW) };
    // `MistralForCausalLM` gives all layers the window, whatever this says.
    if size.is_some() && config.windowed()?.is_some_and(|layers| layers.contains(&false)) {
        return Err(config.unknown("layer_types"));
    }
    let windows = Windows { size, layers: Windowed::All };
    Ok(Said { windows, ..config.said(&["sliding_window", "layer_types"])? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_is_4096_unless_it_is_said() {
        let size = |text: &str| said(&Config::from_json(text).expect("right")).expect("right").windows.size;
        assert_eq!(size("{}"), Some(4096));
        assert_eq!(size(r#"{"sliding_window": 7}"#), Some(7));
        assert_eq!(size(r#"{"sliding_window": null}"#), None);
        let mixed = r#"{"layer_types": ["sliding_attention", "full_attention"]}"#;
        let error = said(&Config::from_json(mixed).expect("right")).expect_err("not Mistral's").to_string();
        assert_eq!(error, "config.json: `layer_types` changes the result, and no forward here knows it");
    }
}

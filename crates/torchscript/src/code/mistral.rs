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
    let layers = config.windowed()?.map_or(Windowed::All, Windowed::Listed);
    Ok(Said { windows: Windows { size, layers }, ..config.said(&["sliding_window", "layer_types"])? })
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
    }
}

//! Qwen2: LLaMA with biases of queries, keys and values, whose upper layers may have a window.
//!
//! Facts: `configuration_qwen2.py` and `modeling_qwen2.py` in `transformers` 5.23.

use super::Architecture;
use super::decoder::config::Config;
use super::decoder::{Biases, Said, Windowed, Windows};
use crate::Result;

pub(super) static QWEN2: Architecture = Architecture { name: "qwen2", class: "Qwen2", plain: false, said };

/// Where config.json says nothing of them.
const WINDOW: u64 = 4096;
const FIRST_WINDOWED_LAYER: u64 = 28;

const OWN: &[&str] = &["use_sliding_window", "sliding_window", "max_window_layers", "layer_types"];

fn said(config: &Config) -> Result<Said> {
    let window = if config.has("sliding_window") { config.size("sliding_window")? } else { Some(WINDOW) };
    let on = config.flag("use_sliding_window")?;
    let first = config.count("max_window_layers")?.unwrap_or(FIRST_WINDOWED_LAYER);
    let listed = config.windowed()?;
    if !on && listed.as_ref().is_some_and(|layers| layers.contains(&true)) {
        let expected = "true, since layer_types has \"sliding_attention\"".to_owned();
        return Err(config.wrong("use_sliding_window", &on, expected));
    }
    let layers = listed.map_or(Windowed::From(first), Windowed::Listed);
    let size = window.filter(|_| on);
    let biases = Biases { qkv: true, ..Biases::default() };
    Ok(Said { windows: Windows { size, layers }, biases, ..config.said(OWN)? })
}

#[cfg(test)]
mod tests {
    use crate::code::HUGGING_FACE;
    use crate::code::decoder::tests::{code, tensors, zeros};
    use crate::{About, model};

    use super::*;

    #[test]
    fn the_window_is_off_unless_it_is_said() {
        let windows = |text: &str| said(&Config::from_json(text).expect("right")).expect("right").windows;
        assert_eq!(windows(r#"{"sliding_window": 7}"#).size, None);
        assert_eq!(windows(r#"{"use_sliding_window": true}"#).size, Some(4096));
        let on = windows(r#"{"use_sliding_window": true, "sliding_window": 7, "max_window_layers": 0}"#);
        assert_eq!(on.size, Some(7));
        assert!(matches!(on.layers, Windowed::From(0)));
    }

    #[test]
    fn queries_keys_and_values_have_biases() {
        let mut all = tensors(&HUGGING_FACE, 1);
        let config = r#"{"model_type": "qwen2", "num_attention_heads": 4}"#.to_owned();
        let about = About { config: Some(config), ..About::default() };
        let error = model("qwen2", &all, &about).expect_err("no biases").to_string();
        assert_eq!(
            error,
            "there is no tensor `model.layers.0.self_attn.q_proj.bias`, which a model of 2 layers has"
        );
        for layer in 0..2 {
            for (part, size) in [("q", 16), ("k", 8), ("v", 8)] {
                all.push(zeros(&format!("model.layers.{layer}.self_attn.{part}_proj.bias"), &[size]));
            }
        }
        let code = code(&model("qwen2", &all, &about).expect("all is there"));
        assert_eq!(code.matches("(weights[\"bq\"])[i]").count(), 1, "{code}");
        assert!(!code.contains("\"bo\""), "{code}");
    }
}

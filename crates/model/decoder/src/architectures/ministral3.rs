//! Ministral 3: Mistral with `YaRN` and queries that grow with their position.
//!
//! Facts: `configuration_ministral3.py` and `modeling_ministral3.py` in `transformers` 5.23.
use crate::Problem;
use crate::Result;
use crate::architecture::Architecture;
use crate::block::Block;
use crate::config_defaults::{ConfigDefaults, DEFAULTS};
use crate::documents::config::ConfigJson;
use crate::hyperparameters::{AttentionWindows, Hyperparameters, WindowedLayers};
use crate::query_scale::QueryScale;
use crate::rope::{Rope, RopeScaling, Yarn};

pub(super) static ARCHITECTURE: Architecture = Architecture {
    name: "ministral3",
    class: "Ministral3",
    works_without_config: false,
    config_defaults: &ConfigDefaults {
        own_keys: &["layer_types", "sliding_window"],
        norm_eps: ("rms_norm_eps", 1e-5),
        context: 262_144.0,
        ..DEFAULTS
    },
    read_hyperparameters,
};

/// Default of `rope_parameters`.
const ROPE: Rope = Rope {
    theta: 1_000_000.0,
    scaling: Some(RopeScaling::Yarn(Yarn {
        factor: 16.0,
        fast: 32.0,
        slow: 1.0,
        old: 16_384.0,
        magnitude: 1.0,
        truncate: true,
    })),
};
const SCALE: QueryScale = QueryScale { beta: 0.1, old: 16_384.0 };

fn read_hyperparameters(config: &ConfigJson, base: Hyperparameters) -> Result<Hyperparameters> {
    let (rope, query_scale) = match config.rope_object()? {
        None => (ROPE, Some(SCALE)),
        Some(inner) => {
            let missing = |key: &str| Problem::MissingKey { file: config.file, key: inner.path(key) };
            let (beta, old) = ("llama_4_scaling_beta", "original_max_position_embeddings");
            if inner.get(beta).is_none() {
                return Err(missing(beta).into());
            }
            let found = inner.number(old)?.or(config.number(old)?).ok_or_else(|| missing(old))?;
            (base.rope, inner.nonzero_number(beta)?.map(|beta| QueryScale { beta, old: found }))
        }
    };
    let windows = AttentionWindows { size: config.size("sliding_window")?, layers: WindowedLayers::All };
    let head_dim = config.size_or("head_dim", Some(128))?;
    Ok(Hyperparameters { head_dim, rope, windows, block: Block { query_scale, ..base.block }, ..base })
}

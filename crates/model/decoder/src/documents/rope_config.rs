//! Rotary embeddings in `config.json`: `rope_theta`, `rope_scaling` and `rope_parameters`.
//!
//! Facts: `modeling_rope_utils.py` in Hugging Face's `transformers` 5.23.

use serde_json::Value;

use crate::config_defaults::{ConfigDefaults, RopeScalingKind};
use crate::documents::config::ConfigJson;
use crate::hyperparameters::RotaryDims;
use crate::overrides::{number_text, reconcile};
use crate::rope::{Llama3, LongRope, Rope, RopeScaling, Yarn};
use crate::{HyperparameterKind, Problem, Result};

/// Key of [`Llama3::old`] in `config.json`.
pub(crate) const ORIGINAL_CONTEXT_KEY: &str = "original_max_position_embeddings";

impl ConfigJson {
    /// Reads the rotary embedding that all layers share: `rope_scaling`, or else `rope_parameters`; `rope_theta` is in that
    /// object or next to it.
    pub(crate) fn rope(&self, class: &ConfigDefaults) -> Result<Rope> {
        if class.has_layer_ropes {
            return Ok(Rope { theta: class.theta, scaling: None });
        }
        let inner = self.rope_object()?;
        if let Some(inner) = inner.as_ref().filter(|inner| inner.is_per_layer()) {
            return Err(inner.unsupported_key("rope_type"));
        }
        let inner = inner.unwrap_or_else(|| self.empty());
        self.rope_from(&inner, class.theta, class, true)
    }

    /// Reads the rotary embedding that the object `inner` describes. `theta` is the default base. `is_alone` means that the
    /// object applies to all layers, so that keys next to it count too.
    pub(crate) fn rope_from(
        &self,
        inner: &Self,
        theta: f64,
        class: &ConfigDefaults,
        is_alone: bool,
    ) -> Result<Rope> {
        let outer = if is_alone { self.number("rope_theta")? } else { None };
        let theta = inner.number("rope_theta")?.or(outer).unwrap_or(theta);
        let scaling = self.rope_scaling(inner, class, is_alone)?;
        Ok(Rope { theta, scaling })
    }

    pub(crate) fn rotated(&self, class: &ConfigDefaults) -> Result<RotaryDims> {
        let key = "partial_rotary_factor";
        let mut part = class.partial_rotary;
        for object in [Some(self), self.rope_object()?.as_ref()].into_iter().flatten() {
            let Some(found) = object.number(key)? else { continue };
            if class.partial_rotary.is_none() && found < 1.0 {
                return Err(object.unsupported_key(key));
            }
            if found > 1.0 {
                return Err(object.invalid_value(key, &found, "at most 1".to_owned()));
            }
            part = Some(found);
        }
        Ok(part.filter(|part| *part < 1.0).map_or(RotaryDims::All, RotaryDims::HeadFraction))
    }

    pub(crate) fn rope_theta(&self) -> Result<Option<f64>> {
        let inner = match self.rope_object()? {
            Some(inner) if inner.is_per_layer() => inner.object("full_attention")?,
            Some(inner) => inner,
            None => self.empty(),
        };
        Ok(inner.number("rope_theta")?.or(self.number("rope_theta")?))
    }

    /// Scales RoPE by a factor of the caller, with Meta's constants for those that the document omits.
    pub(crate) fn scale_rope(&mut self, factor: f64) -> Result<()> {
        let fact = HyperparameterKind::RopeFactor;
        let key = self.rope_key().unwrap_or("rope_scaling");
        let mut inner = self.object(key)?;
        let (type_key, kind) = inner.rope_type()?;
        if let Some(other) = kind.filter(|kind| *kind != "llama3") {
            let found = format!("`{}` {other:?}", inner.path(type_key));
            return Err(
                Problem::Contradiction { fact, given: number_text(factor), file: self.file, found }.into()
            );
        }
        reconcile(fact, self.file, Some(factor), inner.number("factor")?)?;
        let by = Llama3::with_factor(factor);
        let mut filled = vec![("factor", Value::from(by.factor))];
        if kind.is_none() {
            // One factor cannot go into an object that has an entry for each kind of layer.
            if inner.is_per_layer() {
                return Err(inner.unsupported_key("rope_type"));
            }
            filled.extend([
                ("rope_type", "llama3".into()),
                ("low_freq_factor", by.low.into()),
                ("high_freq_factor", by.high.into()),
                (ORIGINAL_CONTEXT_KEY, by.old.into()),
            ]);
        }
        for (name, value) in filled {
            if inner.get(name).is_none() {
                inner.map.insert(name.to_owned(), value);
            }
        }
        self.map.insert(key.to_owned(), Value::Object(inner.map));
        Ok(())
    }

    fn rope_key(&self) -> Option<&'static str> {
        let filled = |key: &&str| self.get(key).is_some_and(|value| *value != serde_json::json!({}));
        ["rope_scaling", "rope_parameters"].into_iter().find(filled)
    }

    pub(crate) fn rope_object(&self) -> Result<Option<Self>> {
        self.rope_key().map(|key| self.object(key)).transpose()
    }

    /// Returns true if an object about RoPE has a nested object for each kind of layer.
    fn is_per_layer(&self) -> bool {
        self.get("rope_type").is_none() && self.map.values().any(Value::is_object)
    }

    fn rope_type(&self) -> Result<(&'static str, Option<&str>)> {
        let key = if self.get("rope_type").is_some() { "rope_type" } else { "type" };
        Ok((key, self.text(key)?))
    }

    fn rope_scaling(
        &self,
        inner: &Self,
        class: &ConfigDefaults,
        is_alone: bool,
    ) -> Result<Option<RopeScaling>> {
        let (key, name) = inner.rope_type()?;
        let Some(name) = name else { return Ok(None) };
        let Some((_, kind)) = class.scalings.iter().find(|(known, _)| *known == name) else {
            let known: Vec<String> = class.scalings.iter().map(|(known, _)| format!("{known:?}")).collect();
            return Err(inner.invalid_value(key, &format!("{name:?}"), known.join(" or ")));
        };
        let number = |key: &'static str| {
            let missing = || Problem::MissingKey { file: self.file, key: inner.path(key) };
            Ok::<_, crate::Error>(inner.number(key)?.ok_or_else(missing)?)
        };
        let context = self.number("max_position_embeddings")?;
        let (outer, inner_old) = (
            self.number(ORIGINAL_CONTEXT_KEY)?.or(class.original_context),
            inner.number(ORIGINAL_CONTEXT_KEY)?,
        );
        let old = outer.filter(|_| is_alone).or(inner_old).or(context).unwrap_or(class.context);
        let context = context.unwrap_or(class.context);
        Ok(Some(match kind {
            RopeScalingKind::Unscaled => return Ok(None),
            RopeScalingKind::Proportional => RopeScaling::Proportional {
                part: inner.number("partial_rotary_factor")?.unwrap_or(1.0),
                factor: inner.number("factor")?.unwrap_or(1.0),
            },
            RopeScalingKind::Linear => RopeScaling::Linear { factor: number("factor")? },
            RopeScalingKind::Dynamic => RopeScaling::Dynamic { factor: number("factor")?, old: context },
            RopeScalingKind::Yarn => {
                // `null` means the ratio of the context lengths; a missing key is an error.
                let factor =
                    if inner.has("factor") { inner.number("factor")? } else { Some(number("factor")?) };
                let factor = factor.unwrap_or(context / old);
                let magnitude =
                    |scale: f64| if factor <= 1.0 { 1.0 } else { 0.1 * scale * libm::log(factor) + 1.0 };
                let inferred =
                    match (inner.nonzero_number("mscale")?, inner.nonzero_number("mscale_all_dim")?) {
                        (Some(one), Some(all)) => magnitude(one) / magnitude(all),
                        _ => magnitude(1.0),
                    };
                RopeScaling::Yarn(Yarn {
                    factor,
                    fast: inner.number("beta_fast")?.unwrap_or(32.0),
                    slow: inner.number("beta_slow")?.unwrap_or(1.0),
                    old,
                    magnitude: inner.number("attention_factor")?.unwrap_or(inferred),
                    // With an object for each kind of layer, `transformers` looks for this key only next to those objects.
                    truncate: !is_alone || inner.flag_or("truncate", true)?,
                })
            }
            RopeScalingKind::LongRope => {
                let factor = inner.number("factor")?.unwrap_or(context / old);
                let inferred =
                    if factor <= 1.0 { 1.0 } else { (1.0 + libm::log(factor) / libm::log(old)).sqrt() };
                RopeScaling::LongRope(LongRope {
                    short: inner.numbers("short_factor")?,
                    long: inner.numbers("long_factor")?,
                    old,
                    magnitude: inner.number("attention_factor")?.unwrap_or(inferred),
                })
            }
            RopeScalingKind::Llama3 => RopeScaling::Llama3(Llama3 {
                factor: number("factor")?,
                low: number("low_freq_factor")?,
                high: number("high_freq_factor")?,
                old,
            }),
        }))
    }
}

//! auto-round: the codes of GPTQ or AWQ, with bits and groups for each layer.
//!
//! Facts: the packings of auto-round 0.16. `auto_round` and `auto_round:gptqmodel` store zero points as they are, and
//! `auto_round:auto_gptq` minus one; none has `g_idx`. `auto_round:auto_awq` is AWQ's GEMM.

use serde_json::Value;

use crate::gptq::{self, ModuleLayout, bits_from};
use crate::survey::Survey;
use crate::{Result, awq};

/// Suffixes of tensors that mean nothing without codes.
pub(crate) const COMPANIONS: &[&str] = gptq::COMPANIONS;

/// Adds all layers with a `qweight`.
///
/// # Errors
/// When the packing is not known, or a companion is missing or has another shape or dtype.
pub(crate) fn recognise(survey: &mut Survey<'_>) -> Result<()> {
    let adds_one = match survey.config.text("packing_format") {
        Some("auto_round" | "auto_round:gptqmodel") => false,
        Some("auto_round:auto_gptq") => true,
        Some("auto_round:auto_awq") => return awq::recognise(survey),
        _ => {
            let known = "auto_round, auto_round:gptqmodel, auto_round:auto_gptq or auto_round:auto_awq";
            return Err(survey.config.unsupported("packing_format", known));
        }
    };
    for module in survey.stems(".qweight") {
        let own = survey.config.members.get("extra_config").and_then(|layers| layers.get(&module));
        let setting = |key: &str| own.and_then(|own| own.get(key)).or_else(|| survey.config.members.get(key));
        let bits = setting("bits").and_then(bits_from);
        let bits = bits.ok_or_else(|| survey.config.unsupported("bits", "2, 3, 4 or 8"))?;
        let group_size = setting("group_size").and_then(Value::as_i64);
        gptq::add(survey, &module, ModuleLayout { bits, group_size, adds_one })?;
    }
    Ok(())
}

//! Expansion of the markers `{linear LIST X}`, `{norm LIST X}` and `{head norm LIST X}` in templates.

use decoder::HeadNormScope;

use super::super::flag::TextVariant;
use super::super::lists::{bias_list_name, has_list};
use super::norm::{HEAD_NORM_BIAS, LAYER_HEAD_NORM, LAYER_NORM};

/// Returns the text of the product of a matrix of LIST with X, plus its bias if there is one.
pub(super) fn linear(variant: TextVariant<'_>, list: &str, operand: &str) -> String {
    let (x, number) = operand.split_once(' ').unwrap_or((operand, "i"));
    let weight = |list: &str| {
        if variant.has_float16 {
            format!(", (self.__tensors__{{_}}).weight(\"{list}\", {number}, {x}, )")
        } else {
            format!(", {{ns}}.weight(weights[\"{list}\"], {number}, {x})")
        }
    };
    let bias = bias_list_name(list);
    let bias = if has_list(variant.lists, &bias) { weight(&bias) } else { String::new() };
    format!("torch.linear({x}{}{bias})", weight(list))
}

/// Returns the source text that normalises `x` with the weights `i` of the list `list`, or with the first if a 0 follows `x`.
pub(super) fn norm(variant: TextVariant<'_>, list: &str, x: &str) -> String {
    let (x, number) = x.strip_suffix(" 0").map_or((x, "i"), |x| (x, "0"));
    let weight =
        if list == "outer" { "outer[1]".to_owned() } else { format!("(weights[\"{list}\"])[{number}]") };
    let bias = match list {
        _ if !LAYER_NORM.holds(variant) => String::new(),
        "outer" => "(weights[\"norm_bias\"])[0], ".to_owned(),
        _ => format!("(weights[\"{}\"])[{number}], ", bias_list_name(list)),
    };
    format!("{{ns}}.norm({x}, {weight}, {bias}self.norm_eps{{_}})")
}

/// Returns the text of the norm of LIST over queries or keys.
pub(super) fn head_norm(variant: TextVariant<'_>, list: &str, x: &str) -> String {
    let norm = if LAYER_HEAD_NORM.holds(variant) { "head_norm" } else { "norm" };
    let weight = match variant.decoder.block().head_norm {
        Some(HeadNormScope::EachHead) => format!(
            "torch.stack(torch.slice(weights[\"{list}\"], torch.mul(i, torch.size({x}, 2)), \
             torch.mul(torch.add(i, 1), torch.size({x}, 2))))"
        ),
        _ => format!("(weights[\"{list}\"])[i]"),
    };
    let bias = if HEAD_NORM_BIAS.holds(variant) {
        format!("(weights[\"{}\"])[i], ", bias_list_name(list))
    } else {
        String::new()
    };
    format!("{{ns}}.{norm}({x}, {weight}, {bias}self.norm_eps{{_}})")
}

//! Experts: weights of a mixture that one file has fused and another one by one.
//!
//! Facts: `ParamWrapper` in `peft/tuners/lora/layer.py`, and `transformers/conversion_mapping.py` of transformers 5.23.

/// Order in which a module of experts defines its parameters; the first one has the innermost wrapper.
const PARAMETER_ORDER: [&str; 4] = ["gate_up_proj", "gate_up_proj_bias", "down_proj", "down_proj_bias"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Projection {
    Gate,
    Up,
    Down,
}

impl Projection {
    const NAMES: [(&str, Self); 6] = [
        ("w1", Self::Gate),
        ("gate_proj", Self::Gate),
        ("w3", Self::Up),
        ("up_proj", Self::Up),
        ("w2", Self::Down),
        ("down_proj", Self::Down),
    ];

    fn names(self) -> impl Iterator<Item = &'static str> {
        Self::NAMES.into_iter().filter(move |(_, found)| *found == self).map(|(name, _)| name)
    }

    /// Returns the fused parameter, and which of its equal groups of rows the projection is.
    pub(crate) fn fused(self) -> (&'static str, Option<usize>) {
        match self {
            Self::Gate => ("gate_up_proj", Some(0)),
            Self::Up => ("gate_up_proj", Some(1)),
            Self::Down => ("down_proj", None),
        }
    }
}

pub(crate) fn sort_parameters(parameters: &mut [&str]) {
    let place = |name: &str| PARAMETER_ORDER.iter().position(|known| *known == name).unwrap_or(usize::MAX);
    parameters.sort_by_key(|name| (place(name), (*name).to_owned()));
}

pub(crate) fn projections(parameter: &str) -> &'static [Projection] {
    match parameter {
        "gate_up_proj" => &[Projection::Gate, Projection::Up],
        "down_proj" => &[Projection::Down],
        _ => &[],
    }
}

/// Returns the names that a module of experts has in other files.
pub(crate) fn containers(module: &str) -> impl Iterator<Item = String> {
    let renamed =
        [("mlp", "block_sparse_moe"), ("block_sparse_moe", "mlp")].into_iter().filter_map(|(old, new)| {
            let parent = module.strip_suffix(&format!(".{old}.experts"))?;
            Some(format!("{parent}.{new}.experts"))
        });
    [module.to_owned()].into_iter().chain(renamed)
}

pub(crate) fn expert_names(
    module: &str,
    expert: u64,
    projection: Projection,
) -> impl Iterator<Item = String> {
    containers(module).flat_map(move |container| {
        projection.names().map(move |name| format!("{container}.{expert}.{name}.weight")).collect::<Vec<_>>()
    })
}

/// Splits the path of a module into the module of experts, the number of the expert, and its projection.
pub(crate) fn parse_expert(module: &str) -> Option<(&str, u64, Projection)> {
    let (rest, leaf) = module.rsplit_once('.')?;
    let (container, number) = rest.rsplit_once('.')?;
    let projection = Projection::NAMES.iter().find(|(name, _)| *name == leaf)?.1;
    container.ends_with("experts").then_some((container, number.parse().ok()?, projection))
}

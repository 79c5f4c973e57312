//! Names of an adapter's tensors: the module that each changes, and how.
//!
//! Facts: `get_peft_model_state_dict` in `peft/utils/save_and_load.py` of peft 0.21; the names of `lycoris` 3.2 and of the trainers in `FORMS`.

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Role {
    /// `lora_A.weight`: `rank × in`.
    A,
    /// `lora_B.weight`: `out × rank`.
    B,
    /// `lora_B.bias`, which is added to the module's bias.
    BiasOfB,
    /// `lora_embedding_A`: `rank × tokens`.
    EmbeddingA,
    /// `lora_embedding_B`: `dims × rank`.
    EmbeddingB,
    Magnitude,
    /// Rows that replace those of an embedding.
    TokenRows,
    /// Tensor that replaces one of the base.
    Replacement,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AdapterName {
    /// Module in the base model; for a replacement, the tensor.
    pub(crate) module: String,
    /// Number of wrappers around the parameter that is changed; 0 for a module with one change.
    pub(crate) depth: usize,
    pub(crate) role: Role,
}

const ENDS: [(&str, Role); 12] = [
    (".lora_A.weight", Role::A),
    (".lora_B.weight", Role::B),
    (".lora_A.default.weight", Role::A),
    (".lora_B.default.weight", Role::B),
    (".lora_B.bias", Role::BiasOfB),
    (".lora_embedding_A", Role::EmbeddingA),
    (".lora_embedding_B", Role::EmbeddingB),
    (".lora_magnitude_vector", Role::Magnitude),
    (".lora_magnitude_vector.weight", Role::Magnitude),
    (".lora_magnitude_vector.default.weight", Role::Magnitude),
    (".token_adapter.trainable_tokens_delta", Role::TokenRows),
    (".trainable_tokens_delta", Role::TokenRows),
];

/// Ends of names that are an adapter's in a form of its own, and the form with its article.
const FORMS: [(&[&str], &str); 7] = [
    (&[".lora_down.weight", ".lora_up.weight"], "a LoRA with the names of kohya-ss"),
    (&[".lora.down.weight", "_lora.down.weight"], "a LoRA with the older names of diffusers"),
    (&[".lora_a.weight", ".lora_b.weight"], "a LoRA with the names of torchtune"),
    (&[".lora_a", ".lora_b"], "a LoRA with the names of MLX"),
    (&[".lora_A.weight", ".lora_A.default.weight"], "a LoRA with the names of peft"),
    (&[".lokr_w1", ".lokr_w1_a", ".lokr_w2", ".lokr_w2_a"], "a LoKr adapter"),
    (&[".hada_w1_a", ".hada_w2_a"], "a LoHa adapter"),
];

/// Returns what the names of a file's tensors show to be the factors of an adapter, with its article.
pub fn factor_form<'n>(mut names: impl Iterator<Item = &'n str>) -> Option<&'static str> {
    names.find_map(|name| {
        let form = FORMS.iter().find(|(ends, _)| ends.iter().any(|end| name.ends_with(end)));
        form.map(|(_, form)| *form)
    })
}

impl AdapterName {
    pub(crate) fn parse(name: &str) -> Self {
        let name = name.strip_prefix("base_model.model.").unwrap_or(name);
        let found = ENDS.iter().find_map(|(end, role)| Some((name.strip_suffix(end)?, *role)));
        let Some((module, role)) = found else {
            // Older versions keep the wrapper's name: `modules_to_save.default.weight`.
            let tensor = name.replace(".modules_to_save.default.", ".").replace(".modules_to_save.", ".");
            let module = tensor.replace(".base_layer.", ".");
            return Self { module, depth: 0, role: Role::Replacement };
        };
        let (mut module, mut depth) = (module, 0_usize);
        while let Some(inner) = module.strip_suffix(".base_layer") {
            module = inner;
            depth = depth.saturating_add(1);
        }
        Self { module: module.to_owned(), depth, role }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_a_module_and_a_role() {
        let parsed = |name: &str| {
            let AdapterName { module, depth, role } = AdapterName::parse(name);
            (module, depth, role)
        };
        let prefix = "base_model.model.model.layers.0.";
        let module = |path: &str| format!("model.layers.0.{path}");
        for (name, path, depth, role) in [
            ("self_attn.q_proj.lora_A.weight", "self_attn.q_proj", 0, Role::A),
            ("mlp.experts.base_layer.lora_B.weight", "mlp.experts", 1, Role::B),
            ("self_attn.q_proj.base_layer.bias", "self_attn.q_proj.bias", 0, Role::Replacement),
            ("norm.modules_to_save.default.weight", "norm.weight", 0, Role::Replacement),
            ("q.lora_magnitude_vector", "q", 0, Role::Magnitude),
        ] {
            let name = format!("{prefix}{name}");
            assert_eq!(parsed(&name), (module(path), depth, role));
        }
        let embedding = parsed("base_model.model.model.embed_tokens.token_adapter.trainable_tokens_delta");
        assert_eq!(embedding, ("model.embed_tokens".to_owned(), 0, Role::TokenRows));
    }
}

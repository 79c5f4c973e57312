//! Companions of the weights that a quantization changed, and the shapes of the weights themselves.

use serde_json::{Map, Value};

use crate::ignored::IgnoredModules;
use crate::tree::{Kind, TensorPattern};

/// Method of a quantization, with the sizes that shapes depend on.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Method {
    /// A scale for each block of rows and columns.
    Fp8 {
        block: [u64; 2],
    },
    Gptq {
        bits: u64,
        group: u64,
    },
    Awq {
        bits: u64,
        group: u64,
    },
    Packed {
        bits: u64,
        group: u64,
    },
    Nvfp4,
    /// A scale for each row, for groups of a row, or one for the tensor.
    Scaled {
        group: Option<u64>,
    },
    Mxfp4,
    /// A method whose companions are not known.
    Other,
}

/// How the weights of a folder are quantized.
#[derive(Clone, Debug)]
pub(crate) struct Quantization {
    method: Method,
    ignored: IgnoredModules,
}

impl Quantization {
    /// Reads `quantization_config`, which may be that of the text model.
    pub(crate) fn of(config: &Map<String, Value>) -> Option<Self> {
        let own = |config: &Map<String, Value>| {
            config.get("quantization_config").and_then(Value::as_object).cloned()
        };
        let q = own(config).or_else(|| own(config.get("text_config")?.as_object()?))?;
        let number = |key: &str, default: u64| match q.get(key).and_then(Value::as_i64) {
            // -1 is one group for a whole row.
            Some(number) => u64::try_from(number).unwrap_or(0),
            None => default,
        };
        let method = match q.get("quant_method").and_then(Value::as_str).unwrap_or_default() {
            "fp8" | "fbgemm_fp8" if q.get("weight_block_size").is_some_and(Value::is_array) => {
                let size = |at: usize| q.get("weight_block_size")?.get(at)?.as_u64();
                Method::Fp8 { block: [size(0).unwrap_or(128), size(1).unwrap_or(128)] }
            }
            "gptq" => Method::Gptq { bits: number("bits", 4), group: number("group_size", 128) },
            "awq" => Method::Awq { bits: number("bits", 4), group: number("group_size", 128) },
            "mxfp4" => Method::Mxfp4,
            "compressed-tensors" => {
                let group = q
                    .get("config_groups")
                    .and_then(Value::as_object)
                    .and_then(|groups| groups.values().next());
                let weights = group.and_then(|group| group.get("weights"));
                let field = |key: &str| weights.and_then(|weights| weights.get(key)?.as_u64());
                let (bits, size) = (field("num_bits").unwrap_or(8), field("group_size").unwrap_or(0));
                let of_group = group.and_then(|group| group.get("format")).and_then(Value::as_str);
                match of_group.or_else(|| q.get("format")?.as_str()).unwrap_or_default() {
                    "pack-quantized" => Method::Packed { bits, group: size },
                    "nvfp4-pack-quantized" => Method::Nvfp4,
                    "float-quantized" | "int-quantized" | "naive-quantized" => {
                        match weights.and_then(|weights| weights.get("strategy")?.as_str()) {
                            Some("tensor") => Method::Scaled { group: None },
                            Some("group") => Method::Scaled { group: Some(size) },
                            Some("block") => Method::Other,
                            _ => Method::Scaled { group: Some(0) },
                        }
                    }
                    _ => Method::Other,
                }
            }
            _ => Method::Other,
        };
        let lists = ["modules_to_not_convert", "ignore", "llm_int8_skip_modules"];
        let ignored = lists.iter().filter_map(|key| q.get(*key)?.as_array()).flatten();
        Some(match IgnoredModules::new(ignored.filter_map(Value::as_str)) {
            Some(ignored) => Self { method, ignored },
            None => Self { method: Method::Other, ignored: IgnoredModules::default() },
        })
    }

    /// Returns the method if its scales and codes have no names in memory, where all experts of a layer are one tensor.
    pub(crate) fn method_without_stacks(&self) -> Option<&'static str> {
        match self.method {
            Method::Gptq { .. } => Some("GPTQ"),
            Method::Awq { .. } => Some("AWQ"),
            Method::Packed { .. } | Method::Nvfp4 | Method::Scaled { .. } => Some("compressed-tensors"),
            Method::Fp8 { .. } | Method::Mxfp4 | Method::Other => None,
        }
    }

    /// Returns true if the companions of the weights are not known.
    pub(crate) fn is_open(&self) -> bool {
        self.method == Method::Other
    }

    /// Changes the linear layers, and adds what stands beside them.
    pub(crate) fn add(&self, entries: &mut Vec<TensorPattern>) {
        if self.method == Method::Other {
            return;
        }
        let mut changed = Vec::with_capacity(entries.len());
        for entry in entries.drain(..) {
            match entry.kind {
                Kind::Linear => self.linear(entry, &mut changed),
                Kind::Stacked => self.stacked(entry, &mut changed),
                Kind::Other => changed.push(entry),
            }
        }
        *entries = changed;
    }

    /// Splits an entry into the tensors of modules that are ignored and those that are quantized.
    fn linear(&self, entry: TensorPattern, changed: &mut Vec<TensorPattern>) {
        let (Some(module), &[out, input]) = (entry.name.strip_suffix(".weight"), entry.shape.as_slice())
        else {
            return changed.push(entry);
        };
        let module = module.to_owned();
        let is_head = matches!(module.rsplit('.').next(), Some("lm_head" | "embed_out" | "proj_out"));
        // Rows of fewer codes than a word are not packed.
        let is_narrow = matches!(self.method, Method::Gptq { bits, .. } | Method::Awq { bits, .. } if out.saturating_mul(bits) < 32);
        if is_head || is_narrow || self.method == Method::Mxfp4 {
            return changed.push(entry);
        }
        for (kept, part) in self.ignored.split(&entry, &module) {
            if kept {
                changed.push(part);
                continue;
            }
            let ceil = |size: u64, by: u64| size.div_ceil(by.max(1));
            let groups = |group: u64| if group == 0 || group > input { 1 } else { ceil(input, group) };
            let packed = |bits: u64, size: u64| ceil(size.saturating_mul(bits), 32);
            let mut add = |name: &str, shape: Vec<u64>, is_required: bool| {
                let name = format!("{module}.{name}");
                changed.push(TensorPattern { name, shape, kind: Kind::Other, is_required, ..part.clone() });
            };
            match self.method {
                Method::Fp8 { block: [rows, columns] } => {
                    add("weight", vec![out, input], true);
                    // Some writers leave gates of one row as they are.
                    add("weight_scale_inv", vec![ceil(out, rows), ceil(input, columns)], out > 1);
                }
                Method::Gptq { bits, group } => {
                    add("qweight", vec![packed(bits, input), out], true);
                    add("qzeros", vec![groups(group), packed(bits, out)], true);
                    add("scales", vec![groups(group), out], true);
                    add("g_idx", vec![input], false);
                }
                Method::Awq { bits, group } => {
                    add("qweight", vec![input, packed(bits, out)], true);
                    add("qzeros", vec![groups(group), packed(bits, out)], true);
                    add("scales", vec![groups(group), out], true);
                }
                Method::Packed { bits, group } => {
                    add("weight_packed", vec![out, packed(bits, input)], true);
                    add("weight_scale", vec![out, groups(group)], true);
                    add("weight_shape", vec![2], true);
                }
                Method::Nvfp4 => {
                    add("weight_packed", vec![out, ceil(input, 2)], true);
                    add("weight_scale", vec![out, ceil(input, 16)], true);
                    add("weight_global_scale", vec![1], true);
                }
                Method::Scaled { group } => {
                    add("weight", vec![out, input], true);
                    add("weight_scale", group.map_or(vec![1], |group| vec![out, groups(group)]), true);
                }
                Method::Mxfp4 | Method::Other => {}
            }
        }
    }

    fn stacked(&self, entry: TensorPattern, changed: &mut Vec<TensorPattern>) {
        let &[experts, rows, columns] = entry.shape.as_slice() else { return changed.push(entry) };
        match self.method {
            Method::Mxfp4 if !self.ignored.split(&entry, &entry.name).iter().any(|(ignored, _)| *ignored) => {
                let blocks = columns_of_blocks(rows);
                let name = |end: &str| format!("{}_{end}", entry.name);
                let (shape, scales) = (vec![experts, columns, blocks, 16], vec![experts, columns, blocks]);
                changed.push(TensorPattern { name: name("blocks"), shape, ..entry.clone() });
                changed.push(TensorPattern { name: name("scales"), shape: scales, ..entry });
            }
            Method::Fp8 { block } => {
                let [height, width] = block.map(|size| size.max(1));
                // Gate and up matrices are quantized separately, although they are one tensor.
                let scales = if entry.name.ends_with("gate_up_proj") {
                    rows.div_ceil(2).div_ceil(height).saturating_mul(2)
                } else {
                    rows.div_ceil(height)
                };
                let shape = vec![experts, scales, columns.div_ceil(width)];
                changed.push(TensorPattern {
                    name: format!("{}_scale_inv", entry.name),
                    shape,
                    ..entry.clone()
                });
                changed.push(entry);
            }
            _ => changed.push(entry),
        }
    }
}

/// Returns the number of blocks of 32 values.
fn columns_of_blocks(values: u64) -> u64 {
    values.div_ceil(32)
}

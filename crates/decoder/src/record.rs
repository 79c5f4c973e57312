//! A decoder as text, which a module carries so that its decoder can be rebuilt without the documents of the checkpoint.

use serde::{Deserialize, Serialize};
use tensor::Tensor;

use crate::architecture::Architecture;
use crate::block::Block;
use crate::choose::{architecture, by_name};
use crate::facts::{Biases, Facts, Rotated, Windows};
use crate::layout::Layout;
use crate::rope::Rope;
use crate::sizes::Decoder;
use crate::{Error, Result};

/// Everything that the forward needs besides the tensors.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    architecture: String,
    dim: u64,
    n_layers: u64,
    n_heads: u64,
    n_kv_heads: u64,
    head_dim: u64,
    rotated: u64,
    hidden: u64,
    vocab: u64,
    norm_eps: f64,
    ropes: Vec<Rope>,
    /// `None` means that all layers have the first.
    rope_of_layer: Option<Vec<Option<usize>>>,
    windows: Windows,
    biases: Biases,
    block: Block,
}

impl Decoder {
    /// All that the forward needs besides the tensors, as JSON on one line.
    pub fn record(&self) -> String {
        let record = Record {
            architecture: self.architecture().name.to_owned(),
            dim: self.dim(),
            n_layers: self.n_layers(),
            n_heads: self.n_heads(),
            n_kv_heads: self.n_kv_heads(),
            head_dim: self.head_dim(),
            rotated: self.rotated(),
            hidden: self.hidden(),
            vocab: self.vocab(),
            norm_eps: self.norm_eps(),
            ropes: self.ropes().to_vec(),
            rope_of_layer: self.rope_of_layer.clone(),
            windows: self.windows().clone(),
            biases: self.biases(),
            block: self.block().clone(),
        };
        serde_json::to_string(&record).unwrap_or_default()
    }

    /// The decoder that [`record`](Self::record) wrote, over these tensors.
    ///
    /// # Errors
    /// When the text is not a record, no architecture has its name, the tensors have other names, or the facts
    /// contradict each other or the tensors.
    pub fn from_record(text: &str, tensors: &[(String, Tensor)]) -> Result<Self> {
        let record: Record =
            serde_json::from_str(text).map_err(|error| Error::Document { file: "the record", error })?;
        let Some(architecture) = architecture(|known| known.name == record.architecture) else {
            return Err(Error::UnknownArchitecture { name: record.architecture });
        };
        let layout = architecture.layout(tensors)?;
        let mut ropes = record.ropes.into_iter();
        let Some(rope) = ropes.next() else {
            return Err(Error::MissingKey { file: "the record", key: "ropes".to_owned() });
        };
        let facts = Facts {
            dim: Some(record.dim),
            n_layers: Some(record.n_layers),
            n_heads: Some(record.n_heads),
            n_kv_heads: Some(record.n_kv_heads),
            head_dim: Some(record.head_dim),
            hidden: Some(record.hidden),
            vocab: Some(record.vocab),
            norm_eps: record.norm_eps,
            rope,
            tied: true,
            has_document: false,
            heads_given: false,
            windows: record.windows,
            biases: record.biases,
            block: record.block,
            rotated: Rotated::Count(record.rotated),
            more_ropes: ropes.collect(),
            rope_of_layer: record.rope_of_layer,
            notes: Vec::new(),
        };
        Self::new(architecture, layout, facts, &by_name(tensors))
    }
}

impl Architecture {
    /// The layout that these tensors have.
    ///
    /// # Errors
    /// When they have none of the architecture's.
    pub(crate) fn layout(&self, tensors: &[(String, Tensor)]) -> Result<&'static Layout> {
        let mut missing = None;
        for layout in self.layouts {
            match layout.missing_from(tensors) {
                None => return Ok(layout),
                name => missing = name,
            }
        }
        Err(Error::NotThisArchitecture { architecture: self.name, name: missing.unwrap_or_default() })
    }
}

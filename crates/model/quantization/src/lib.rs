//! Recognises the quantized weights of a model, and computes the numbers that they stand for, whenever they are read.
//!
//! Each method is a row of the table in `scheme.rs`. Its file finds codes with their companions (scales, zero points,
//! indices, maxima), checks their shapes, and describes the arithmetic as a kernel: `(value − zero) · scale`, rounded as the
//! method's own library does on a CPU. The numbers are a [`Compute`](tensor::Compute), so that a model of any size takes a
//! few megabytes of memory.
//!
//! ```
//! use quantization::{QuantizationDocuments, recognise};
//! use tensor::{Dtype, Storage, Tensor, Tensors};
//!
//! let codes = Tensor::new(Dtype::Float8E4M3Fn, vec![1, 2], vec![2, 1], 0, Storage::owned(vec![0x38, 0x40]))?;
//! let scale = Storage::owned(0.5_f32.to_le_bytes().to_vec());
//! let scale = Tensor::new(Dtype::Float32, vec![1, 1], vec![1, 1], 0, scale)?;
//! let tensors = [("w.weight", codes), ("w.weight_scale_inv", scale)];
//! let tensors: Tensors = tensors.map(|(name, tensor)| (name.to_owned(), tensor)).into();
//!
//! let model = recognise(&QuantizationDocuments::default(), &tensors)?.expect("it has scales");
//! assert_eq!(model.tensors[0].scheme, "FP8, a scale for each tensor");
//! let (tensors, _) = model.dequantize(&tensors, |_| Dtype::Float32)?;
//! assert_eq!(tensors.names().collect::<Vec<_>>(), ["w.weight"]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod affine_rows;
mod auto_round;
mod awq;
mod bitnet;
mod bitsandbytes;
mod block_scaled;
mod code_values;
mod codes;
mod columns;
mod comfy;
mod compressed_tensors;
mod config;
mod dequantized;
mod error;
mod float8;
mod gguf;
mod gptq;
mod hqq;
mod hqq_description;
mod mlx;
mod mlx_names;
mod modelopt;
mod mxfp4;
mod nibble_rows;
mod operand;
mod packed;
mod pytorch;
mod quantized_model;
mod quanto;
mod row_part;
mod scales;
mod scheme;
mod stacked;
mod survey;
mod torchao;
mod torchao_mx;
mod torchao_nf4;

pub use byte_source::{Error, Result};
pub use codes::Codes;
pub use config::{
    COMFY_KEY, MODELOPT_KEY, QUANTIZATION_DOCUMENTS, QuantizationDocuments, config_with_dtype, is_mlx_config,
};
pub use error::Problem;
pub use quantized_model::{QuantizedModel, QuantizedTensor};
pub use scheme::{described_layer, is_possible, method, not_quantized, recognise};

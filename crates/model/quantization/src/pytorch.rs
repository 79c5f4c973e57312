//! PyTorch's own quantized tensors: integers with a scale and a zero point for each tensor, or for each index of the first
//! dimension.
//!
//! Facts: `torch.Tensor.dequantize` of PyTorch 2.15 on a CPU: `(integer − zero point) · scale` in float32.

use std::sync::Arc;

use tensor::{CompoundKind, CompoundTensor, Dtype, Tensors};

use crate::block_scaled::{BlockScaled, BlockShape, CodeRows};
use crate::code_values::dtype_values;
use crate::dequantized::Matrices;
use crate::packed::CodeOrder;
use crate::scales::ScaleGrid;
use crate::survey::{Draft, Recognised, Survey};
use crate::{Error, Result};

/// Adds all quantized tensors.
///
/// # Errors
/// When the scheme of a tensor is another one, or its parts have other shapes.
pub(crate) fn recognise(survey: &mut Survey<'_>) -> Result<()> {
    let compounds: Vec<CompoundTensor> = survey.tensors.compounds().to_vec();
    compounds.iter().try_for_each(|compound| add(survey, compound))
}

/// Returns true if a list has quantized tensors.
pub(crate) fn is_present(tensors: &Tensors) -> bool {
    tensors.compounds().iter().any(|compound| matches!(compound.kind, CompoundKind::Quantized { .. }))
}

fn add(survey: &mut Survey<'_>, compound: &CompoundTensor) -> Result<()> {
    let CompoundKind::Quantized { scheme, axis } = &compound.kind else { return Ok(()) };
    let content = |problem: String| Error::Content { tensor: compound.name.clone(), problem };
    let codes = match compound.dtype {
        Dtype::QInt8 => Dtype::Int8,
        Dtype::QUInt8 => Dtype::UInt8,
        dtype => return Err(content(format!("its dtype is {dtype}, expected qint8 or quint8"))),
    };
    let is_of_channels = matches!(scheme.as_str(), "per_channel_affine" | "per_channel_affine_float_qparams");
    if !(is_of_channels || scheme == "per_tensor_affine") {
        let expected = "per_tensor_affine, per_channel_affine or per_channel_affine_float_qparams";
        return Err(content(format!("its scheme is {scheme}, expected {expected}")));
    }
    let grid =
        ChannelGrid::new(&compound.shape, *axis).ok_or_else(|| content("it has no elements".to_owned()))?;
    let part = |part: &str| format!("{}.{part}", compound.name);
    let mut draft = Draft::new(&compound.name);
    let operand = survey.operand(&mut draft, &part("int_repr"))?;
    for name in ["scale", "zero_point"] {
        let tensor = survey.companion(&compound.name, &part(name))?;
        if tensor.numel() != grid.channels {
            let (found, expected) = (tensor.shape().to_vec(), format!("[{}]", grid.channels));
            return Err(Error::Shape { tensor: part(name), found, expected });
        }
    }
    let scales = survey.operand(&mut draft, &part("scale"))?;
    let zeros = survey.operand(&mut draft, &part("zero_point"))?;
    let plain = |operand| ScaleGrid { is_shared: true, ..ScaleGrid::plain(operand, grid.size) };
    let values = dtype_values(codes);
    let kernel = BlockScaled {
        codes: CodeRows { operand, bits: 8, order: CodeOrder::LowFirst, pitch: grid.matrices.cols, values },
        scales: plain(scales),
        zeros: Some(plain(zeros)),
        block: grid.block,
        matrices: grid.matrices,
        groups: None,
        factor: 1.0,
    };
    let recognised = Recognised {
        scheme: format!("{}, {scheme}", compound.dtype),
        shape: compound.shape.clone(),
        library_dtype: Dtype::Float32,
        default_dtype: Dtype::Float32,
        kernel: Arc::new(kernel),
        matrices: grid.matrices,
    };
    survey.add(draft, recognised);
    Ok(())
}

/// Scales of the whole tensor, or of the indices of a dimension.
struct ChannelGrid {
    channels: u64,
    /// Rows and columns of the scales.
    size: (u64, u64),
    block: BlockShape,
    matrices: Matrices,
}

impl ChannelGrid {
    /// Returns the grid for scales along `axis`; `None` if the tensor has no elements.
    fn new(shape: &[u64], axis: Option<u64>) -> Option<Self> {
        let elements = Matrices::from_shape(shape)?.elements;
        let channels = match axis {
            None => 1,
            Some(axis) => *shape.get(usize::try_from(axis).ok()?)?,
        };
        let after = axis.map_or(0, |axis| usize::try_from(axis).map_or(0, |axis| axis.saturating_add(1)));
        let inner: u64 = shape.iter().skip(after).product();
        let matrices = |rows, cols| Matrices { rows, cols, elements };
        let rows = elements.checked_div(inner)?;
        Some(if channels == 1 || inner > 1 {
            let rows = if channels == 1 { rows } else { channels };
            let block = BlockShape { rows: rows.checked_div(channels)?, cols: inner };
            Self { channels, size: (channels, 1), block, matrices: matrices(rows, inner) }
        } else {
            let rows = elements.checked_div(channels)?;
            let block = BlockShape { rows, cols: 1 };
            Self { channels, size: (1, channels), block, matrices: matrices(rows, channels) }
        })
    }
}

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
    let is_affine = matches!(scheme.as_str(), "per_tensor_affine" | "per_channel_affine");
    if !is_affine || axis.is_some_and(|axis| axis != 0) {
        let axis = axis.map(|axis| format!(" along dimension {axis}")).unwrap_or_default();
        let expected = "per_tensor_affine, or per_channel_affine along dimension 0";
        return Err(content(format!("its scheme is {scheme}{axis}, expected {expected}")));
    }
    let first = compound.shape.first().copied().unwrap_or(1);
    let elements = Matrices::from_shape(&compound.shape).map(|it| it.elements).filter(|it| *it > 0);
    let elements = elements.ok_or_else(|| content("it has no elements".to_owned()))?;
    let matrices = Matrices { rows: first, cols: elements.checked_div(first).unwrap_or(1), elements };
    let part = |part: &str| format!("{}.{part}", compound.name);
    let mut draft = Draft::new(&compound.name);
    let operand = survey.operand(&mut draft, &part("int_repr"))?;
    let channels = if axis.is_some() { first } else { 1 };
    for name in ["scale", "zero_point"] {
        let tensor = survey.companion(&compound.name, &part(name))?;
        if tensor.numel() != channels {
            let (found, expected) = (tensor.shape().to_vec(), format!("[{channels}]"));
            return Err(Error::Shape { tensor: part(name), found, expected });
        }
    }
    let scales = survey.operand(&mut draft, &part("scale"))?;
    let zeros = survey.operand(&mut draft, &part("zero_point"))?;
    let values = dtype_values(codes);
    let rows = if axis.is_some() { 1 } else { first };
    let kernel = BlockScaled {
        codes: CodeRows { operand, bits: 8, order: CodeOrder::LowFirst, pitch: matrices.cols, values },
        scales: ScaleGrid::plain(scales, (channels, 1)),
        zeros: Some(ScaleGrid::plain(zeros, (channels, 1))),
        block: BlockShape { rows, cols: matrices.cols },
        matrices,
        groups: None,
        factor: 1.0,
    };
    let recognised = Recognised {
        scheme: format!("{}, {scheme}", compound.dtype),
        shape: compound.shape.clone(),
        library_dtype: Dtype::Float32,
        default_dtype: Dtype::Float32,
        kernel: Arc::new(kernel),
        matrices,
    };
    survey.add(draft, recognised);
    Ok(())
}

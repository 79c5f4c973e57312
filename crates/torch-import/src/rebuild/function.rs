//! The functions and classes whose recorded calls make tensors.
//!
//! Facts: `torch/_utils.py` and `torch/_tensor.py` of PyTorch 2.15; `fastai/torch_core.py` of fastai 2.0.0 to 2.8.12.

use pickle_vm::{Heap, Instance, ObjectId};
use tensor::Dtype;

/// A function or class whose recorded call creates a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RebuildFunction {
    /// `_rebuild_tensor(storage, offset, size, stride)`
    Tensor,
    /// `_rebuild_tensor_v2(storage, offset, size, stride, requires_grad, hooks[, metadata])`
    TensorV2,
    /// `_rebuild_tensor_v3(storage, offset, size, stride, requires_grad, hooks, dtype[, metadata])`
    TensorV3,
    /// `_rebuild_parameter(data, requires_grad, hooks)`, `Parameter(data, requires_grad)` and similar classes
    Wrapper,
    /// `_rebuild_parameter_with_state(data, requires_grad, hooks, state)`, which sets attributes
    ParameterWithState,
    /// `_rebuild_device_tensor_from_cpu_tensor(data, dtype, device, requires_grad)` and similar functions
    FromDevice,
    /// `_rebuild_from_type(func, type, args, dict)`, which replaces `__dict__`; fastai has a copy
    FromType,
    /// `_rebuild_from_type_v2(func, type, args, state)`, which sets attributes
    FromTypeV2,
    /// `_rebuild_sparse_tensor(layout, data)`, with the parts in `data`
    Sparse,
    /// `_rebuild_qtensor(storage, offset, size, stride, quantizer, requires_grad, hooks)`
    Quantized,
    /// fastai's `_fa_rebuild_tensor(class, …)`: `class(_rebuild_tensor_v2(…))`
    FastaiTensor,
    /// fastai's `_fa_rebuild_qtensor(class, …)`: `class(_rebuild_qtensor(…))`
    FastaiQuantized,
    /// `_rebuild_nested_tensor(values, sizes, strides, offsets)`
    Nested,
    /// `_rebuild_njt({'values': …, 'offsets': …, 'lengths': …, …})`
    Jagged,
    /// `_rebuild_meta_tensor_no_storage(dtype, size, stride, requires_grad)`
    Meta,
    /// `UninitializedParameter(requires_grad)` and `UninitializedBuffer`, of a module that was never called
    Uninitialized,
    /// `_rebuild_wrapper_subclass(class, dtype, size, stride, offset, layout, device, requires_grad)`
    WrapperSubclass,
    /// A tensor class whose state is `(storage, offset, size, stride)`, before PyTorch 0.2
    SetState,
    /// `torch.storage._load_from_bytes(bytes)`: a storage in a pickle that is not a checkpoint
    LoadedStorage,
    /// `numpy…_reconstruct(ndarray, (0,), b'b')`, with the array's contents in its state
    NumpyArray,
    /// `numpy…_frombuffer(buffer, dtype, shape, order)`
    NumpyBuffer,
    /// Any other rebuild function of PyTorch, not supported
    UnsupportedRebuild,
}

impl RebuildFunction {
    /// Returns the function `module.name` if its call creates a tensor.
    pub(crate) fn from_names(module: &str, name: &str) -> Option<Self> {
        Some(match (module, name) {
            ("torch._utils", "_rebuild_tensor") => Self::Tensor,
            ("torch._utils", "_rebuild_tensor_v2") => Self::TensorV2,
            ("torch._utils", "_rebuild_tensor_v3") => Self::TensorV3,
            ("torch._utils", "_rebuild_parameter")
            | ("torch.nn.parameter", "Parameter" | "Buffer")
            | ("torch.autograd.variable", "Variable") => Self::Wrapper,
            ("torch.nn.parameter", "UninitializedParameter" | "UninitializedBuffer") => Self::Uninitialized,
            ("torch._utils", "_rebuild_parameter_with_state") => Self::ParameterWithState,
            (
                "torch._utils",
                "_rebuild_device_tensor_from_numpy"
                | "_rebuild_device_tensor_from_cpu_tensor"
                | "_rebuild_xla_tensor",
            ) => Self::FromDevice,
            ("torch._tensor" | "torch.tensor" | "fastai.torch_core", "_rebuild_from_type") => Self::FromType,
            ("torch._tensor" | "torch.tensor", "_rebuild_from_type_v2") => Self::FromTypeV2,
            ("torch.storage", "_load_from_bytes") => Self::LoadedStorage,
            ("torch._utils", "_rebuild_sparse_tensor") => Self::Sparse,
            ("torch._utils", "_rebuild_qtensor") => Self::Quantized,
            ("fastai.torch_core" | "fastai2.torch_core", "_fa_rebuild_tensor") => Self::FastaiTensor,
            ("fastai.torch_core" | "fastai2.torch_core", "_fa_rebuild_qtensor") => Self::FastaiQuantized,
            ("torch._utils", "_rebuild_nested_tensor") => Self::Nested,
            ("torch.nested._internal.nested_tensor", "_rebuild_njt") => Self::Jagged,
            ("torch._utils", "_rebuild_meta_tensor_no_storage") => Self::Meta,
            ("torch._utils", "_rebuild_wrapper_subclass") => Self::WrapperSubclass,
            ("torch" | "torch.cuda" | "torch.tensor", class) if tensor_class_dtype(class).is_some() => {
                Self::SetState
            }
            ("numpy.core.multiarray" | "numpy._core.multiarray", "_reconstruct") => Self::NumpyArray,
            ("numpy.core.numeric" | "numpy._core.numeric", "_frombuffer") => Self::NumpyBuffer,
            (module, name) if module.starts_with("torch") && name.starts_with("_rebuild") => {
                Self::UnsupportedRebuild
            }
            _ => return None,
        })
    }

    /// Returns the function that an instance calls, if the call creates a tensor.
    pub(crate) fn called_by(heap: &Heap<'_>, instance: &Instance) -> Option<Self> {
        let (module, name) = heap.global(instance.callable)?;
        Self::from_names(module, name)
    }

    /// Returns true if the fourth argument holds the attributes of the tensor.
    pub(crate) fn has_attributes(self) -> bool {
        matches!(self, Self::ParameterWithState | Self::FromType | Self::FromTypeV2)
    }

    /// Returns true if the call creates a tensor rather than wrapping one.
    pub(crate) fn creates_tensor(self) -> bool {
        !matches!(
            self,
            Self::Wrapper
                | Self::ParameterWithState
                | Self::FromDevice
                | Self::FromType
                | Self::FromTypeV2
                | Self::LoadedStorage
                | Self::UnsupportedRebuild
        )
    }
}

/// The functions that the calls of a pickle name, each looked up once: a pickle calls the same few for all of its tensors.
pub(crate) struct CalledFunctions<'h> {
    heap: &'h Heap<'h>,
    known: Vec<(ObjectId, Option<RebuildFunction>)>,
}

impl<'h> CalledFunctions<'h> {
    /// Maximum number of functions that are remembered; a longer search would take longer than the comparison of names.
    const KNOWN_MAX: usize = 4;

    pub(crate) fn new(heap: &'h Heap<'h>) -> Self {
        Self { heap, known: Vec::new() }
    }

    /// Returns the function that an instance of the heap calls, if the call creates a tensor.
    pub(crate) fn called_by(&mut self, instance: &Instance) -> Option<RebuildFunction> {
        let callable = instance.callable;
        if let Some((_, function)) = self.known.iter().find(|(known, _)| *known == callable) {
            return *function;
        }
        let function = RebuildFunction::called_by(self.heap, instance);
        if self.known.len() < Self::KNOWN_MAX {
            self.known.push((callable, function));
        }
        function
    }
}

/// Returns the dtype of a tensor class such as `FloatTensor`.
pub(super) fn tensor_class_dtype(name: &str) -> Option<Dtype> {
    Dtype::from_storage_class(&format!("{}Storage", name.strip_suffix("Tensor")?))
}

/// Counts the tensors that a pickle creates; a parameter and the tensor that it wraps count once.
pub fn count_tensors(heap: &Heap<'_>) -> u64 {
    let makes_one = |id: &ObjectId| {
        let function = heap.instance(*id).and_then(|instance| RebuildFunction::called_by(heap, instance));
        function.is_some_and(RebuildFunction::creates_tensor)
    };
    heap.ids().filter(makes_one).count() as u64
}

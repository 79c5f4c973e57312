//! Classifies the operators and classes that TorchScript code uses by risk.
//!
//! Facts: the schemas that PyTorch 2.15 registers (`torch._C._jit_get_all_schemas()`): of PyTorch's own operators, only
//! those in [`DANGEROUS_OPERATORS`] take the name of a file or call back into Python. For torchvision and torchaudio, their
//! registrations in C++.

use crate::Risk;

/// Namespaces of operators and classes that are part of PyTorch.
const PYTORCH_NAMESPACES: &str = "_native _quantized aten cuda inductor inductor_prims metal metal_prepacked mkl mkldnn mkldnn_prepacked \
                   onednn onnx prepacked prim prims profiler quantization quantized rngprims rnn sparse static_runtime \
                   vulkan vulkan_prepacked xnnpack";

/// Operators that read or write files or call into Python, and classes that open files and connections.
const DANGEROUS_OPERATORS: &[(&str, &str)] = &[
    ("aten", "from_file save"),
    ("prim", "IgnoredPythonOp PythonOp"),
    ("debugprims", "load_tensor"),
    ("dist_c10d", "FileStore HashStore PrefixStore ProcessGroup Store TCPStore"),
    ("image", "read_file write_file"),
    ("video_reader", "probe_video_from_file read_video_from_file"),
    (
        "torchaudio",
        "sox_effects_apply_effects_file sox_io_get_info sox_io_load_audio_file sox_io_save_audio_file",
    ),
];

/// Returns the risk of running an operator, or of creating an object of a class.
pub(crate) fn operator_risk(namespace: &str, name: &str) -> Risk {
    let has = |words: &str, word: &str| words.split(' ').any(|other| other == word);
    let listed = DANGEROUS_OPERATORS.iter().find(|(listed, _)| *listed == namespace);
    if listed.is_some_and(|(_, names)| has(names, name)) {
        Risk::Dangerous
    } else if has(PYTORCH_NAMESPACES, namespace) {
        Risk::Known
    } else {
        Risk::Unknown
    }
}

/// Returns true if a method of this name reads or writes a file, for any receiver: the file operators of `aten` are methods, too.
pub(super) fn is_file_method(name: &[u8]) -> bool {
    matches!(name, b"from_file" | b"save")
}

//! Small checkpoints, for the tests of several files.

use test_support::{safetensors, stored_zip};

/// A float32 tensor of two elements in a pickle.
pub(crate) const TENSOR: &str = "ctorch._utils\n_rebuild_tensor_v2\n((Vstorage\nctorch\nFloatStorage\nV0\nVcpu\nI2\ntQ\
                                 I0\n(I2\nt(I1\ntI00\nccollections\nOrderedDict\n)RtR";

/// A checkpoint with this pickle, as `torch.save` writes it.
pub(crate) fn torch_file(pickle: &[u8]) -> Vec<u8> {
    stored_zip([
        ("x/data.pkl", pickle),
        ("x/byteorder", b"little"),
        ("x/data/0", &[0; 8]),
        ("x/version", b"3\n"),
    ])
}

/// A safetensors file with a float32 tensor of each shape.
pub(crate) fn float_safetensors(tensors: &[(&str, &[usize])]) -> Vec<u8> {
    let bytes = |shape: &[usize]| 1.5_f32.to_le_bytes().repeat(shape.iter().product());
    safetensors(tensors.iter().map(|(name, shape)| (name, "F32", shape, bytes(shape))))
}

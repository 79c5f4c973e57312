//! PyTorch checkpoints as named tensors over mapped storages.

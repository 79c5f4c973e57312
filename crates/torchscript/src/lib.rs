//! TorchScript archives written by hand: named tensors in, a runnable model.pt out, no libtorch.

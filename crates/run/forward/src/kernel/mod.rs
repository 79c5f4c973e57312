//! Matrix products: activations times a matrix of weights, transposed, as PyTorch's `torch.nn.functional.linear`
//! defines them.
//!
//! Weights are read in place, in any dtype, and sums are f32 (f64 in [`linear_f64`]). The result of a product does not
//! depend on the number of threads.

#[cfg(target_arch = "x86_64")]
mod bf16;
mod block_rows;
mod column_major;
mod dispatch;
mod few_inputs;
mod many_inputs;
mod matrix;
mod pool;
mod product;
mod row;

pub(crate) use dispatch::Kernel;
#[cfg(test)]
pub(crate) use matrix::Encoding;
pub(crate) use matrix::Matrix;
pub(crate) use pool::Pool;
pub(crate) use product::{KernelNumber, Product};

/// Returns the name of the instructions that products use on this CPU.
pub(crate) fn name() -> &'static str {
    Kernel::best().name()
}

/// Computes products in f32 as one batch of work: threads take parts of any of them.
pub(crate) fn linear(pool: &Pool, products: Vec<Product<'_, f32>>) {
    Kernel::best().linear(pool, products);
}

/// Computes products in f64 as one batch of work.
pub(crate) fn linear_f64(pool: &Pool, products: Vec<Product<'_, f64>>) {
    Kernel::best().linear_f64(pool, products);
}

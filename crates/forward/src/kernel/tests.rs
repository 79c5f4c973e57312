//! Products against sums in f64.

use tensor::{Dtype, Storage, Tensor};

use super::{Matrix, Pool, linear, linear_f64};

fn matrix(dtype: Dtype, rows: u64, cols: u64, bytes: Vec<u8>) -> Matrix {
    let tensor = Tensor::new(dtype, vec![rows, cols], vec![cols, 1], 0, Storage::owned(bytes)).unwrap();
    Matrix::new(&tensor).unwrap()
}

#[test]
fn small_products() {
    let pool = Pool::new(Some(2)).unwrap();
    let x = [1.0, 2.0, -1.0, 0.5_f32];
    let bytes = |w: [f32; 6]| w.iter().flat_map(|w| w.to_bits().to_le_bytes()).collect::<Vec<_>>();
    let w = matrix(Dtype::Float32, 3, 2, bytes([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]));
    let mut y = [0.0; 6];
    linear(&pool, &w, &x, 2, Some(&[0.0, 0.0, 100.0]), &mut y);
    assert_eq!(y, [5.0, 11.0, 117.0, 0.0, -1.0, 98.0]);
    let mut y = [0.0; 6];
    linear_f64(&pool, &w, &x.map(f64::from), 2, None, &mut y);
    assert_eq!(y, [5.0, 11.0, 17.0, 0.0, -1.0, -2.0]);
}

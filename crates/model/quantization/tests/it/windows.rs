//! Parts of the numbers, read in any order.

use tensor::Dtype;

use crate::models::{bytes, models, quantized};

#[test]
fn elements_are_the_same_whichever_part_is_read() {
    for path in models() {
        let (model, _) = quantized(&path);
        let dtypes = [Dtype::Float32, Dtype::BFloat16];
        for (quantized, dtype) in model.tensors.iter().flat_map(|it| dtypes.map(|dtype| (it, dtype))) {
            let whole = quantized.tensor(dtype).expect("small");
            let (all, size) = (bytes(&whole), usize::try_from(dtype.size()).expect("small"));
            let elements: Vec<&[u8]> = all.chunks(size).collect();
            let [.., rows, cols] = *whole.shape() else { continue };
            let last = whole.shape().len() - 1;
            // A transposed view is read element by element or row by row.
            let turned = bytes(&whole.transpose(last - 1, last).expect("two dimensions"));
            let (rows, cols) = (usize::try_from(rows).expect("small"), usize::try_from(cols).expect("small"));
            for (index, element) in turned.chunks(size).enumerate() {
                let (matrix, index) = (index / (rows * cols), index % (rows * cols));
                let place = matrix * rows * cols + (index % rows) * cols + index / rows;
                assert_eq!(elements[place], element, "{} {} {index}", path.display(), quantized.name);
            }
        }
    }
}

#[test]
fn scales_count_as_stored_bits() {
    let bits = |name: &str| {
        let path = models().into_iter().find(|path| path.ends_with(name)).expect("it exists");
        quantized(&path).0.tensors[0].bits()
    };
    // 8 bits, and a float32 for each 128 × 128.
    assert!((bits("fp8_block") - 8.0 - 32.0 / 16384.0).abs() < 1e-9);
    assert!((bits("mxfp4") - 4.25).abs() < 1e-9);
}

//! Tensors are printed as NumPy prints arrays: each expected text is what NumPy 2.4 prints.

use byte_source::ProgressReporter;
use open::{NpyFile, array_text};
use tensor::{Dtype, Tensor};
use test_support::{tensor, zeros};

/// Prints numbers that are given in little-endian bytes.
fn printed<const N: usize>(dtype: Dtype, shape: &[u64], numbers: &[[u8; N]]) -> String {
    array_text(&tensor(dtype, shape, numbers.concat())).expect("these are numbers")
}

fn doubles(shape: &[u64], numbers: &[f64]) -> String {
    printed(Dtype::Float64, shape, &numbers.iter().map(|number| number.to_le_bytes()).collect::<Vec<_>>())
}

fn complexes(shape: &[u64], numbers: &[(f64, f64)]) -> String {
    let parts = |(re, im): &(f64, f64)| [re.to_le_bytes(), im.to_le_bytes()];
    printed(Dtype::Complex128, shape, &numbers.iter().flat_map(parts).collect::<Vec<_>>())
}

fn halves(shape: &[u64], codes: &[u16]) -> String {
    printed(Dtype::Float16, shape, &codes.iter().map(|code| code.to_le_bytes()).collect::<Vec<_>>())
}

fn shorts(shape: &[u64], numbers: impl Iterator<Item = i16>) -> String {
    printed(Dtype::Int16, shape, &numbers.map(i16::to_le_bytes).collect::<Vec<_>>())
}

#[test]
fn floats_are_aligned_and_shortened() {
    const INF: f64 = f64::INFINITY;
    assert_eq!(doubles(&[4], &[1.5, -INF, f64::NAN, INF]), "[ 1.5 -inf  nan  inf]");
    assert_eq!(doubles(&[2], &[0.5, INF]), "[0.5 inf]");
    assert_eq!(doubles(&[2], &[150.0, 1.5]), "[150.    1.5]");
    assert_eq!(doubles(&[2], &[0.123_456_789_012_345, 1.0 / 3.0]), "[0.12345679 0.33333333]");
    let exponents = "[ 1.00000000e+20 -2.50000000e-07  1.23456789e+08]";
    assert_eq!(doubles(&[3], &[1e20, -2.5e-7, 123_456_789.125]), exponents);
    assert_eq!(doubles(&[2], &[1e-300, 1.0]), "[1.e-300 1.e+000]");
    let singles = [0.1_f32, 16_777_216.0, 1e-3].map(f32::to_le_bytes);
    let expected = "[1.0000000e-01 1.6777216e+07 1.0000000e-03]";
    assert_eq!(printed(Dtype::Float32, &[3], &singles), expected);
    // 0.1, 65504 and the smallest number below zero, then 0.1, 1.5 and 1000.
    assert_eq!(halves(&[3], &[0x2e66, 0x7bff, 0x8001]), "[ 1.00e-01  6.55e+04 -5.96e-08]");
    assert_eq!(halves(&[3], &[0x2e66, 0x3e00, 0x63d0]), "[1.0e-01 1.5e+00 1.0e+03]");
    // The numbers after 0.1 and 1 need four digits.
    assert_eq!(halves(&[3], &[0x2e68, 0x3c01, 0x3e00]), "[0.1001 1.001  1.5   ]");
}

#[test]
fn a_number_alone_is_shown_as_python_shows_it() {
    let alone =
        [1e16, 123_456.0, 1e-5, f64::NAN, f64::NEG_INFINITY, -0.0].map(|number| doubles(&[], &[number]));
    assert_eq!(alone, ["1e+16", "123456.0", "1e-05", "nan", "-inf", "-0.0"]);
    assert_eq!(halves(&[], &[0x2e66]), "0.1");
    assert_eq!(printed(Dtype::Bool, &[], &[[1]]), "True");
    assert_eq!(shorts(&[], std::iter::once(-3)), "-3");
    let alone = [(1.0, 2.0), (0.0, 2.0), (0.5, -3.0), (1.0, f64::NAN), (-0.0, 1.0)];
    let alone = alone.map(|number| complexes(&[], &[number]));
    assert_eq!(alone, ["(1+2j)", "2j", "(0.5-3j)", "(1+nanj)", "(-0+1j)"]);
    assert_eq!(complexes(&[], &[(1.0, -f64::NAN)]), "(1+nanj)");
}

#[test]
fn other_numbers_are_aligned() {
    let numbers = [(1.0, 2.0), (-0.5, -3.0), (f64::NAN, f64::NEG_INFINITY)];
    assert_eq!(complexes(&[3], &numbers), "[ 1.  +2.j -0.5 -3.j  nan-infj]");
    assert_eq!(printed(Dtype::Bool, &[2, 2], &[[1], [0], [0], [1]]), "[[ True False]\n [False  True]]");
    let unsigned = [1_u16, 60_000].map(u16::to_le_bytes);
    assert_eq!(printed(Dtype::UInt16, &[2], &unsigned), "[    1 60000]");
}

#[test]
fn rows_and_dimensions_are_nested_and_long_ones_cut() {
    assert_eq!(shorts(&[2, 2, 2], 0..8), "[[[0 1]\n  [2 3]]\n\n [[4 5]\n  [6 7]]]");
    assert_eq!(shorts(&[5, 1], 0..5), "[[0]\n [1]\n [2]\n [3]\n [4]]");
    assert_eq!(shorts(&[1001], 0..1001), "[   0    1    2 ...  998  999 1000]");
    let rows = "[[   0    1    2 ...  997  998  999]\n [1000 1001 1002 ... 1997 1998 1999]]";
    assert_eq!(shorts(&[2, 1000], 0..2000), rows);
    let lines = "[100 101 102 103 104 105 106 107 108 109 110 111 112 113 114 115 116 117\n \
                 118 119 120 121 122 123 124 125 126 127 128 129]";
    assert_eq!(shorts(&[30], 100..130), lines);
    assert_eq!(array_text(&zeros(Dtype::Int8, &[3, 0])).expect("it is empty"), "[]");
    assert_eq!(array_text(&zeros(Dtype::Int8, &[1; 64])).expect("as NumPy").len(), 64 + 1 + 64);
    let error = array_text(&zeros(Dtype::Int8, &[1; 65])).expect_err("NumPy has no such arrays");
    assert_eq!(error.to_string(), "it has 65 dimensions, and NumPy arrays have at most 64");
}

#[test]
fn a_dtype_that_numpy_lacks_is_written_as_another_one() {
    for (dtype, written) in [
        (Dtype::BFloat16, Dtype::Float32),
        (Dtype::Complex32, Dtype::Complex64),
        (Dtype::QUInt8, Dtype::UInt8),
        (Dtype::Float64, Dtype::Float64),
        (Dtype::Bool, Dtype::Bool),
    ] {
        assert_eq!(NpyFile::new(&zeros(dtype, &[1])).expect("it has numbers").dtype(), written);
    }
    let widened: Tensor = tensor(Dtype::BFloat16, &[2], [0x3f80_u16, 0xbf00].map(u16::to_le_bytes).concat());
    assert_eq!(array_text(&widened).expect("it is widened"), "[ 1.  -0.5]");
}

/// The expected bytes are those of `numpy.save` 2.4.
#[test]
fn files_are_those_of_numpy() {
    for (dtype, shape, header) in [
        (Dtype::Float32, &[2, 3][..], "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }"),
        (Dtype::Bool, &[5], "{'descr': '|b1', 'fortran_order': False, 'shape': (5,), }"),
        (Dtype::Complex128, &[], "{'descr': '<c16', 'fortran_order': False, 'shape': (), }"),
        (Dtype::BFloat16, &[0, 1], "{'descr': '<f4', 'fortran_order': False, 'shape': (0, 1), }"),
    ] {
        let npy = NpyFile::new(&zeros(dtype, shape)).expect("numpy has it");
        let mut bytes = Vec::new();
        npy.write(&mut bytes, &Into::into, &ProgressReporter::unobserved()).expect("memory takes it");
        assert_eq!(bytes.len() as u64, npy.nbytes());
        let expected = format!("{header:<117}\n");
        let expected = [b"\x93NUMPY\x01\x00\x76\x00", expected.as_bytes()].concat();
        assert_eq!(bytes.split_at(128), (&expected[..], &vec![0; bytes.len() - 128][..]));
    }
}

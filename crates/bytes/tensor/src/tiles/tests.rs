//! Tests of joined tensors, against `torch.cat` and against the tensor that was cut.

use byte_source::Blob;

use super::*;
use crate::ByteOrder;

fn part(shape: [u64; 2], stride: [u64; 2], from: i16) -> Tensor {
    let numel = usize::try_from(shape.iter().product::<u64>()).expect("small");
    let storage = Storage::owned((from..).take(numel).flat_map(i16::to_le_bytes).collect());
    Tensor::new(Dtype::Int16, shape.to_vec(), stride.to_vec(), 0, storage).expect("inside its storage")
}

fn values(tensor: &Tensor) -> Vec<i16> {
    let mut out: Vec<u8> = Vec::new();
    tensor.gathered().write_to(&mut out).expect("memory can be read");
    out.chunks(2).map(|pair| i16::from_le_bytes([pair[0], pair[1]])).collect()
}

#[test]
fn parts_come_out_as_torch_cat_lays_them() {
    let rows = Tensor::concat(0, &[part([1, 3], [3, 1], 0), part([2, 3], [3, 1], 3)]).expect("alike");
    assert_eq!(rows.shape(), [3, 3]);
    assert_eq!(values(&rows), (0..9).collect::<Vec<_>>());
    let columns =
        Tensor::concat(1, &[part([2, 1], [1, 1], 0), part([2, 0], [1, 1], 0), part([2, 2], [2, 1], 10)]);
    let columns = columns.expect("alike");
    assert_eq!(columns.shape(), [2, 3]);
    assert_eq!(values(&columns), [0, 10, 11, 1, 12, 13]);
}

#[test]
fn a_part_without_elements_may_start_past_the_end_of_its_storage() {
    let storage = Storage::owned(vec![0; 4]);
    let empty = Tensor::new(Dtype::Int16, vec![0, 3], vec![3, 1], 7, storage).expect("it reads nothing");
    for parts in [[part([1, 3], [3, 1], 0), empty.clone()], [empty.clone(), part([1, 3], [1, 1], 0)]] {
        let rows = Tensor::concat(0, &parts).expect("alike");
        assert_eq!(values(&rows), [0, 1, 2]);
    }
    let columns = Tensor::concat(1, &[empty.clone(), part([0, 2], [2, 1], 0)]).expect("alike");
    assert_eq!((columns.shape(), values(&columns)), ([0, 5].as_slice(), Vec::new()));
}

#[test]
fn transposed_and_big_endian_parts_come_out_too() {
    let both = |dim| {
        values(&Tensor::concat(dim, &[part([2, 2], [1, 2], 0), part([2, 2], [2, 1], 10)]).expect("alike"))
    };
    assert_eq!(both(0), [0, 2, 1, 3, 10, 11, 12, 13]);
    assert_eq!(both(1), [0, 2, 10, 11, 1, 3, 12, 13]);
    let big = Storage::owned((0..4_i16).flat_map(i16::to_be_bytes).collect());
    let big = big.with_byte_order(ByteOrder::Big, 2);
    let big = Tensor::new(Dtype::Int16, vec![2, 2], vec![2, 1], 0, big).expect("inside");
    let joined = Tensor::concat(1, &[big, part([2, 1], [1, 1], 10)]).expect("alike");
    assert_eq!(values(&joined), [0, 1, 10, 2, 3, 11]);
    // A view of the joined storage.
    let storage = joined.storage().clone();
    let view = Tensor::new(Dtype::Int16, vec![3], vec![2], 1, storage).expect("inside");
    assert_eq!(values(&view), [1, 2, 11]);
}

#[test]
fn many_windows_are_one_tensor() {
    let part = |value: u8| {
        let storage = Storage::owned(vec![value; 3 << 20]);
        Tensor::new(Dtype::UInt8, vec![3, 1 << 20], vec![1 << 20, 1], 0, storage).expect("inside")
    };
    let joined = Tensor::concat(1, &[part(1), part(2)]).expect("alike");
    let mut out: Vec<u8> = Vec::new();
    joined.gathered().write_to(&mut out).expect("memory can be read");
    let halves: Vec<u8> = out.chunks(1 << 20).map(|half| half[0]).collect();
    assert_eq!(halves, [1, 2, 1, 2, 1, 2]);
    assert!(out.chunks(1 << 20).all(|half| half.iter().all(|byte| *byte == half[0])));
}

#[test]
fn unlike_parts_are_rejected() {
    let error =
        |dim, parts: &[Tensor]| Tensor::concat(dim, parts).map(|_| ()).expect_err("unlike").to_string();
    assert_eq!(
        error(0, &[part([1, 3], [3, 1], 0), part([1, 2], [2, 1], 0)]),
        "shape [1, 2] cannot follow shape [1, 3] along dimension 0"
    );
    assert!(error(2, &[part([1, 3], [3, 1], 0)]).contains("along dimension 2"));
    assert!(Tensor::concat(0, &[]).is_err());
}

/// Cuts a tensor of consecutive numbers at random places, again and again, and joins the tiles.
#[test]
fn any_tiles_are_put_together() {
    let mut seed = 7_u64;
    let mut next = |most: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % most
    };
    for _ in 0..300 {
        let shape: Vec<u64> = (0..next(5)).map(|_| 1 + next(6)).collect();
        let numel: u64 = shape.iter().product();
        let numbers: Vec<u8> =
            (0..numel).flat_map(|n| u16::try_from(n).expect("small").to_le_bytes()).collect();
        let whole = Tensor::new(
            Dtype::Int16,
            shape.clone(),
            contiguous_strides(&shape),
            0,
            Storage::owned(numbers.clone()),
        )
        .expect("inside");
        let mut boxes = vec![(vec![0; shape.len()], shape.clone())];
        for _ in 0..next(6) {
            if shape.is_empty() {
                break;
            }
            let number = usize::try_from(next(boxes.len() as u64)).expect("small");
            let dim = usize::try_from(next(shape.len() as u64)).expect("small");
            let (start, size) = boxes.swap_remove(number);
            let cut = next(size[dim] + 1);
            let (mut left, mut right, mut later) = (size.clone(), size, start.clone());
            left[dim] = cut;
            right[dim] -= cut;
            later[dim] += cut;
            boxes.extend([(start, left), (later, right)]);
        }
        let tiles = boxes.into_iter().map(|(start, size)| {
            let offset = start.iter().zip(whole.stride()).map(|(at, stride)| at * stride).sum();
            let offset = if size.contains(&0) { 0 } else { offset };
            let view = Tensor::new(
                Dtype::Int16,
                size.clone(),
                whole.stride().to_vec(),
                offset,
                whole.storage().clone(),
            );
            let view = view.expect("inside");
            // Half of the tiles have storages of their own.
            let mut bytes: Vec<u8> = Vec::new();
            view.gathered().write_to(&mut bytes).expect("memory can be read");
            let own =
                Tensor::new(Dtype::Int16, size.clone(), contiguous_strides(&size), 0, Storage::owned(bytes));
            let tensor = if next(2) == 0 { view } else { own.expect("inside") };
            Tile { tensor, start }
        });
        let tiles: Vec<Tile> = tiles.collect();
        let joined = Tensor::tiled(Dtype::Int16, &shape, tiles.clone()).expect("they cover it");
        let mut out: Vec<u8> = Vec::new();
        joined.gathered().write_to(&mut out).expect("memory can be read");
        assert_eq!(out, numbers, "{shape:?} {tiles:?}");
        // Any range, also from the middle of an element.
        let start = next(numbers.len() as u64);
        let len = next(numbers.len() as u64 - start + 1);
        let mut part = vec![0; usize::try_from(len).expect("small")];
        joined.storage().read(start, &mut part).expect("inside");
        let start = usize::try_from(start).expect("small");
        assert_eq!(part, numbers[start..start + part.len()], "{shape:?}");
    }
}

#[test]
fn tiles_that_do_not_cover_a_tensor_once_are_rejected() {
    let tile = |start: [u64; 2], shape: [u64; 2]| Tile {
        tensor: part(shape, [shape[1], 1], 0),
        start: start.to_vec(),
    };
    let error = |tiles: &[Tile]| {
        Tensor::tiled(Dtype::Int16, &[2, 3], tiles.to_vec())
            .map(|_| ())
            .expect_err("not a tensor")
            .to_string()
    };
    assert_eq!(error(&[tile([0, 0], [2, 2])]), "the tiles of shape [2, 3] have 4 elements, expected 6");
    assert_eq!(
        error(&[tile([0, 0], [2, 2]), tile([1, 1], [1, 2])]),
        "the tiles at [0, 0] and [1, 1] overlap"
    );
    assert_eq!(error(&[tile([0, 2], [2, 2])]), "a tile of shape [2, 2] at [0, 2] is not inside shape [2, 3]");
    assert_eq!(
        error(&[Tile { start: vec![u64::MAX, 0], ..tile([0, 0], [1, 1]) }]),
        "a tile of shape [1, 1] at [18446744073709551615, 0] is not inside shape [2, 3]"
    );
}

//! A source that is not in memory is read in few ranges.

use std::ops::Range;

use byte_source::Source;
use test_support::RemoteSource;

fn bytes() -> Vec<u8> {
    (0..1_000_000_u32).map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()[3]).collect()
}

#[test]
fn ranges_that_are_near_each_other_are_read_together() {
    let all = bytes();
    let source = RemoteSource::new("x", all.clone());
    let ranges =
        [900_000..900_010, 0..10, 20..20, 5..30, 70_000..70_001, 999_999..1_000_000, 400_000..400_002];
    let found = source.read_ranges(&ranges).expect("they are inside");
    for (range, found) in ranges.iter().zip(&found) {
        let expected =
            usize::try_from(range.start).expect("small")..usize::try_from(range.end).expect("small");
        assert_eq!(found[..], all[expected], "{range:?}");
    }
    // 30 + 65,536 is less than 70,000.
    assert_eq!(
        source.take_ranges(),
        [0..30, 70_000..70_001, 400_000..400_002, 900_000..900_010, 999_999..1_000_000]
    );
    source.read_ranges(&[10..20, 999_999..1_000_001]).expect_err("past the end");
    assert!(source.read_ranges(&[]).expect("nothing").is_empty());
    source.read_ranges(&[Range { start: 7, end: 3 }]).expect_err("it ends before it starts");
}

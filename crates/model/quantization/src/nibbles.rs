//! Codes of four bits looked up in tables of encoded numbers of two bytes, with the vectors of the processor if it has them.

#![expect(
    clippy::inline_always,
    reason = "a function for vectors is only compiled for them within its caller"
)]

use std::ops::Range;

/// Number of codes of four bits.
pub(crate) const NIBBLES: usize = 16;
/// Encoded number of two bytes.
pub(crate) type Number = [u8; 2];
/// Encoded number for each code of four bits.
pub(crate) type NibbleTable = [Number; NIBBLES];
/// Bytes of codes that are looked up in one table.
pub(crate) const RUN_BYTES: usize = 16;
/// Numbers of a run of codes, the low half of each byte first.
pub(crate) type Run = [Number; 32];
/// Runs that are transposed together.
pub(crate) const RUNS: usize = 8;

/// Part of a row of encoded numbers.
pub(crate) struct RowPart<'o> {
    pub(crate) row: usize,
    /// Column of the first number.
    col: usize,
    numbers: &'o mut [Number],
}

impl<'o> RowPart<'o> {
    /// Splits consecutive numbers, the first one at `row` and `col`, into the parts of their rows.
    pub(crate) fn split((row, col): (usize, usize), cols: usize, numbers: &'o mut [u8]) -> Vec<Self> {
        let (mut left, _) = numbers.as_chunks_mut();
        let (mut parts, mut row, mut col) = (Vec::new(), row, col);
        while !left.is_empty() && col < cols {
            let count = cols.saturating_sub(col).min(left.len());
            let (numbers, later) = std::mem::take(&mut left).split_at_mut_checked(count).unwrap_or_default();
            parts.push(Self { row, col, numbers });
            (left, row, col) = (later, row.saturating_add(1), 0);
        }
        parts
    }

    /// Returns the numbers of all `LEN` columns from the column `first` on; `None` if the part does not have them all.
    #[inline(always)]
    pub(crate) fn whole_columns<const LEN: usize>(&mut self, first: usize) -> Option<&mut [Number; LEN]> {
        let start = first.checked_sub(self.col)?;
        self.numbers.get_mut(start..)?.first_chunk_mut()
    }

    /// Returns the numbers of some of the columns, and the first one of these columns.
    #[inline(always)]
    pub(crate) fn columns(&mut self, columns: &Range<usize>) -> (usize, &mut [Number]) {
        let end = self.col.saturating_add(self.numbers.len()).min(columns.end);
        let first = self.col.max(columns.start);
        let part = first.saturating_sub(self.col)..end.saturating_sub(self.col);
        (first, self.numbers.get_mut(part).unwrap_or_default())
    }
}

/// Copies numbers to `out`, from the one at `skipped` on. A whole array is copied without a call.
#[inline(always)]
pub(crate) fn copy_from<const LEN: usize>(numbers: &[Number; LEN], skipped: usize, out: &mut [Number]) {
    if skipped == 0
        && let Ok(whole) = <&mut [Number; LEN]>::try_from(&mut *out)
    {
        *whole = *numbers;
    } else if let Some(part) = numbers.get(skipped..skipped.saturating_add(out.len())) {
        out.copy_from_slice(part);
    }
}

/// Instructions for runs of codes.
pub(crate) trait Instructions: Copy {
    /// Looks up two runs of codes, each in its table.
    fn look_up(self, tables: [&NibbleTable; 2], codes: [[u8; RUN_BYTES]; 2]) -> [Run; 2];

    /// Returns the numbers of eight runs at each place of a run.
    fn transpose(self, runs: &[Run; RUNS]) -> [[Number; RUNS]; 32];
}

/// Work with runs of codes, which is compiled for each kind of processor. Its `run` must be inlined.
pub(crate) trait Work {
    fn run<I: Instructions>(self, instructions: I);
}

/// Does the work with the vectors of this processor.
pub(crate) fn with_vectors(work: impl Work) {
    #[cfg(target_arch = "x86_64")]
    if let Some(vectors) = pulp::x86::V3::try_new() {
        return vectors.vectorize(x86::Vectorized { vectors, work });
    }
    work.run(Portable);
}

/// Instructions of any processor.
#[derive(Clone, Copy)]
struct Portable;

impl Instructions for Portable {
    #[inline(always)]
    fn look_up(self, tables: [&NibbleTable; 2], codes: [[u8; RUN_BYTES]; 2]) -> [Run; 2] {
        let mut runs = [[[0; 2]; 32]; 2];
        for ((run, table), codes) in runs.iter_mut().zip(tables).zip(codes) {
            let find = |code: u8| table.get(usize::from(code & 15)).copied().unwrap_or_default();
            for (pair, byte) in run.as_chunks_mut::<2>().0.iter_mut().zip(codes) {
                *pair = [find(byte), find(byte >> 4)];
            }
        }
        runs
    }

    #[inline(always)]
    fn transpose(self, runs: &[Run; RUNS]) -> [[Number; RUNS]; 32] {
        std::array::from_fn(|place| runs.map(|run| run.get(place).copied().unwrap_or_default()))
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::__m256i;

    use pulp::cast;
    use pulp::x86::V3;

    use super::{Instructions, NibbleTable, Number, RUN_BYTES, RUNS, Run, Work};

    /// Work that is compiled for AVX2.
    pub(super) struct Vectorized<W> {
        pub(super) vectors: V3,
        pub(super) work: W,
    }

    impl<W: Work> pulp::NullaryFnOnce for Vectorized<W> {
        type Output = ();

        #[inline(always)]
        fn call(self) {
            self.work.run(self.vectors);
        }
    }

    /// Returns the first bytes of all numbers of a table, and then their second bytes.
    #[inline(always)]
    fn split(vectors: V3, table: &NibbleTable) -> __m256i {
        const HALVES: [[u8; 16]; 2] = [[0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15]; 2];
        let halves = vectors.avx2._mm256_shuffle_epi8(cast(*table), cast(HALVES));
        vectors.avx2._mm256_permute4x64_epi64::<0b11_01_10_00>(halves)
    }

    impl Instructions for V3 {
        #[inline(always)]
        fn look_up(self, [first, second]: [&NibbleTable; 2], codes: [[u8; RUN_BYTES]; 2]) -> [Run; 2] {
            let avx2 = self.avx2;
            let (first, second) = (split(self, first), split(self, second));
            let low_bytes = avx2._mm256_permute2x128_si256::<0x20>(first, second);
            let high_bytes = avx2._mm256_permute2x128_si256::<0x31>(first, second);
            let codes: __m256i = cast(codes);
            let mask = self.avx._mm256_set1_epi8(15);
            let even = avx2._mm256_and_si256(codes, mask);
            let odd = avx2._mm256_and_si256(avx2._mm256_srli_epi16::<4>(codes), mask);
            let find = |codes| {
                let low = avx2._mm256_shuffle_epi8(low_bytes, codes);
                let high = avx2._mm256_shuffle_epi8(high_bytes, codes);
                (avx2._mm256_unpacklo_epi8(low, high), avx2._mm256_unpackhi_epi8(low, high))
            };
            let (even, odd) = (find(even), find(odd));
            // Each half of a vector has eight numbers of one run. The halves are joined in vectors, because a vector that is
            // loaded must wait if it was stored in halves.
            let runs = [(even.0, odd.0), (even.1, odd.1)].map(|(even, odd)| {
                let early = avx2._mm256_unpacklo_epi16(even, odd);
                let late = avx2._mm256_unpackhi_epi16(even, odd);
                let first = avx2._mm256_permute2x128_si256::<0x20>(early, late);
                (first, avx2._mm256_permute2x128_si256::<0x31>(early, late))
            });
            let [(first, second), (first_end, second_end)] = runs;
            [cast([first, first_end]), cast([second, second_end])]
        }

        #[inline(always)]
        fn transpose(self, runs: &[Run; RUNS]) -> [[Number; RUNS]; 32] {
            let avx2 = self.avx2;
            let halves: [[__m256i; 2]; RUNS] = runs.map(cast);
            let mut transposed = [[[0; 2]; RUNS]; 32];
            for (half, out) in transposed.as_chunks_mut::<16>().0.iter_mut().enumerate().take(2) {
                let [r0, r1, r2, r3, r4, r5, r6, r7] =
                    halves.map(|[first, second]| if half == 0 { first } else { second });
                let pairs = |a, b| (avx2._mm256_unpacklo_epi16(a, b), avx2._mm256_unpackhi_epi16(a, b));
                let fours = |a, b| (avx2._mm256_unpacklo_epi32(a, b), avx2._mm256_unpackhi_epi32(a, b));
                let eights = |a, b| [avx2._mm256_unpacklo_epi64(a, b), avx2._mm256_unpackhi_epi64(a, b)];
                let ((ab, ab_high), (cd, cd_high)) = (pairs(r0, r1), pairs(r2, r3));
                let ((ef, ef_high), (gh, gh_high)) = (pairs(r4, r5), pairs(r6, r7));
                let ((p0, p1), (p2, p3)) = (fours(ab, cd), fours(ab_high, cd_high));
                let ((q0, q1), (q2, q3)) = (fours(ef, gh), fours(ef_high, gh_high));
                let places = [eights(p0, q0), eights(p1, q1), eights(p2, q2), eights(p3, q3)];
                // A vector has the numbers at one place, and at the one eight places later.
                let places: [[[Number; RUNS]; 2]; 8] = cast(places);
                let (early, late) = out.split_at_mut(8);
                for ((early, late), [place, later]) in early.iter_mut().zip(late).zip(places) {
                    (*early, *late) = (place, later);
                }
            }
            transposed
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs that were looked up, and transposed.
    #[derive(Debug, Default, PartialEq)]
    struct Found {
        runs: Vec<Run>,
        transposed: Vec<[Number; RUNS]>,
    }

    struct Lookups<'f> {
        tables: &'f [NibbleTable; RUNS],
        codes: &'f [[u8; RUN_BYTES]; RUNS],
        found: &'f mut Found,
    }

    impl Work for Lookups<'_> {
        #[inline(always)]
        fn run<I: Instructions>(self, instructions: I) {
            let pairs = self.tables.as_chunks::<2>().0.iter().zip(self.codes.as_chunks::<2>().0);
            self.found.runs = pairs
                .flat_map(|([first, second], codes)| instructions.look_up([first, second], *codes))
                .collect();
            let runs = self.found.runs.as_slice().try_into().expect("as many as there are tables");
            self.found.transposed = instructions.transpose(runs).to_vec();
        }
    }

    #[test]
    fn vectors_find_the_same_numbers() {
        let mut seed = 7_u32;
        let mut byte = || {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            seed.to_be_bytes()[0]
        };
        for _ in 0..100 {
            let tables: [NibbleTable; RUNS] =
                std::array::from_fn(|_| std::array::from_fn(|_| [byte(), byte()]));
            let codes: [[u8; RUN_BYTES]; RUNS] = std::array::from_fn(|_| std::array::from_fn(|_| byte()));
            let (mut slow, mut fast) = (Found::default(), Found::default());
            Lookups { tables: &tables, codes: &codes, found: &mut slow }.run(Portable);
            with_vectors(Lookups { tables: &tables, codes: &codes, found: &mut fast });
            assert_eq!(fast, slow);
            for (place, column) in slow.transposed.iter().enumerate() {
                let code = |run: usize| usize::from(codes[run][place / 2] >> (4 * (place % 2)) & 15);
                assert_eq!(*column, std::array::from_fn(|run| tables[run][code(run)]), "place {place}");
            }
        }
    }
}

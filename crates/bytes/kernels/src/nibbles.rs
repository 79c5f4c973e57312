//! Codes of four bits looked up in tables of encoded numbers of two bytes.

use crate::simd::{Instructions, Portable};

/// Number of codes of four bits.
pub const NIBBLES: usize = 16;
/// Encoded number of two bytes.
pub type EncodedNumber = [u8; 2];
/// Encoded number for each code of four bits.
pub type NibbleTable = [EncodedNumber; NIBBLES];
/// Bytes of codes that are looked up in one table.
pub const RUN_BYTES: usize = 16;
/// Numbers of a run of codes, the low half of each byte first.
pub type CodeRun = [EncodedNumber; 32];
/// Runs that are transposed together.
pub const RUNS: usize = 8;

/// Operations on runs of codes.
pub trait NibbleLookup: Instructions {
    /// Looks up two runs of codes, each in its table.
    fn look_up(self, tables: [&NibbleTable; 2], codes: [[u8; RUN_BYTES]; 2]) -> [CodeRun; 2];

    /// Returns the numbers of eight runs at each place of a run.
    fn transpose_runs(self, runs: &[CodeRun; RUNS]) -> [[EncodedNumber; RUNS]; 32];
}

/// Loops over runs of codes.
pub trait NibbleKernel {
    /// Runs the loops. Implementations and the functions they call are `#[inline(always)]`.
    fn run<S: NibbleLookup>(self, simd: S);
}

impl NibbleLookup for Portable {
    #[inline(always)]
    fn look_up(self, tables: [&NibbleTable; 2], codes: [[u8; RUN_BYTES]; 2]) -> [CodeRun; 2] {
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
    fn transpose_runs(self, runs: &[CodeRun; RUNS]) -> [[EncodedNumber; RUNS]; 32] {
        std::array::from_fn(|place| runs.map(|run| run.get(place).copied().unwrap_or_default()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_nibbles;

    /// Runs that were looked up, and transposed.
    #[derive(Debug, Default, PartialEq)]
    struct Found {
        runs: Vec<CodeRun>,
        transposed: Vec<[EncodedNumber; RUNS]>,
    }

    struct Lookups<'f> {
        tables: &'f [NibbleTable; RUNS],
        codes: &'f [[u8; RUN_BYTES]; RUNS],
        found: &'f mut Found,
    }

    impl NibbleKernel for Lookups<'_> {
        #[inline(always)]
        fn run<S: NibbleLookup>(self, simd: S) {
            let pairs = self.tables.as_chunks::<2>().0.iter().zip(self.codes.as_chunks::<2>().0);
            self.found.runs =
                pairs.flat_map(|([first, second], codes)| simd.look_up([first, second], *codes)).collect();
            let runs = self.found.runs.as_slice().try_into().expect("as many as there are tables");
            self.found.transposed = simd.transpose_runs(runs).to_vec();
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
            run_nibbles(Lookups { tables: &tables, codes: &codes, found: &mut fast });
            assert_eq!(fast, slow);
            #[cfg(target_arch = "x86_64")]
            if let Some(simd) = crate::x86::Ssse3::detect() {
                Lookups { tables: &tables, codes: &codes, found: &mut fast }.run(simd);
                assert_eq!(fast, slow);
            }
            for (place, column) in slow.transposed.iter().enumerate() {
                let code = |run: usize| usize::from(codes[run][place / 2] >> (4 * (place % 2)) & 15);
                assert_eq!(*column, std::array::from_fn(|run| tables[run][code(run)]), "place {place}");
            }
        }
    }
}

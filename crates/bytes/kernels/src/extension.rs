//! Extensions of instruction sets that the kernels use.
//!
//! Facts: Rust's `std::arch` names them. SHA extensions are not among them: `byte-source` is below this crate.

use std::sync::OnceLock;

/// Environment variable with the names of extensions that are not used, such as `avx512,avx2`. It is for tests and benchmarks,
/// which compare the kernels on one machine.
pub const WITHOUT: &str = "TORCH2CARTON_WITHOUT";

/// Extension of an instruction set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extension {
    /// Vectors of 16 bytes, SSSE3.
    Ssse3,
    /// AVX2, FMA, F16C, BMI1 and BMI2.
    Avx2,
    /// AVX-512 F, BW, DQ and VL.
    Avx512,
    /// bfloat16 products of AVX-512.
    Avx512Bf16,
    /// Tiles with bfloat16 products.
    AmxBf16,
}

impl Extension {
    /// All extensions.
    pub const ALL: [Self; 5] = [Self::Ssse3, Self::Avx2, Self::Avx512, Self::Avx512Bf16, Self::AmxBf16];

    /// Returns the name, as [`WITHOUT`] has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ssse3 => "ssse3",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
            Self::Avx512Bf16 => "avx512-bf16",
            Self::AmxBf16 => "amx-bf16",
        }
    }

    /// Returns true if the processor has it and [`WITHOUT`] does not name it.
    pub fn is_used(self) -> bool {
        static USED: OnceLock<[bool; Extension::ALL.len()]> = OnceLock::new();
        let used = USED.get_or_init(|| {
            let unused = std::env::var(WITHOUT).unwrap_or_default();
            Self::ALL.map(|extension| {
                extension.is_available() && !unused.split(',').any(|name| name.trim() == extension.name())
            })
        });
        Self::ALL.iter().zip(used).any(|(extension, used)| *extension == self && *used)
    }

    #[cfg(target_arch = "x86_64")]
    fn is_available(self) -> bool {
        match self {
            Self::Ssse3 => is_x86_feature_detected!("ssse3"),
            Self::Avx2 => {
                is_x86_feature_detected!("avx2")
                    && is_x86_feature_detected!("fma")
                    && is_x86_feature_detected!("f16c")
                    && is_x86_feature_detected!("bmi1")
                    && is_x86_feature_detected!("bmi2")
            }
            Self::Avx512 => {
                is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
            }
            Self::Avx512Bf16 => is_x86_feature_detected!("avx512bf16"),
            Self::AmxBf16 => crate::x86::has_permitted_amx_bf16(),
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn is_available(self) -> bool {
        false
    }
}

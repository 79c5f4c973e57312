//! `TORCH2CARTON_WITHOUT`: without the processor's extensions, outputs are the same byte for byte.

use std::path::Path;
use std::process::Command;

use crate::carton_tools::{ok, scratch};
use crate::casts::floats;
use crate::dequantize::models;

/// All extensions, and those that make the difference between two machines.
const WITHOUT: [&str; 3] = ["sha", "avx512,avx512-bf16,amx-bf16", "sha,avx2,avx512,avx512-bf16,amx-bf16"];

fn program(root: &Path, without: &str, args: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_torch2carton"));
    let output = command.args(args).current_dir(root).env("TORCH2CARTON_WITHOUT", without).output();
    let output = output.expect("the program was built for this test");
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}

#[test]
fn outputs_do_not_depend_on_extensions() {
    let scratch = scratch();
    let root = scratch.path();
    let numbers: Vec<f32> = (0..5000_u16).map(|i| (f32::from(i) - 2500.0).powi(5) * 1e-9).collect();
    floats(&root.join("in.safetensors"), &[("a", &numbers), ("b", &numbers[..77])]);
    let models: Vec<_> = models().map(|model| model.to_str().expect("UTF-8").to_owned()).collect();
    let mut conversions = vec![
        (vec!["in.safetensors"], "out.carton"),
        (vec!["in.safetensors", "--dtype", "float16"], "out.carton"),
        (vec!["in.safetensors", "--dtype", "bfloat16"], "out.safetensors"),
    ];
    conversions.extend(models.iter().map(|model| (vec![model.as_str(), "--dequantize"], "out.safetensors")));
    for (args, out) in conversions {
        let converted = |without: &str| {
            program(root, without, &[&args[..], &["-o", out, "--quiet", "--force"]].concat());
            std::fs::read(root.join(out)).expect("it was written")
        };
        let expected = converted("");
        for without in WITHOUT {
            assert!(converted(without) == expected, "without {without}: {args:?}");
        }
    }
}

/// Processors without SHA extensions, on which SHA-256 is computed with AVX, SSSE3 and neither of them.
#[cfg(target_arch = "x86_64")]
#[test]
fn hashes_are_those_of_other_processors() {
    let scratch = scratch();
    let root = scratch.path();
    let numbers = vec![0.5; 5000];
    floats(&root.join("in.safetensors"), &[("a", &numbers)]);
    ok(root, &["in.safetensors", "-o", "out.carton"]);
    for processor in ["SandyBridge", "Nehalem", "qemu64"] {
        let mut command = Command::new("qemu-x86_64-static");
        command.args(["-cpu", processor, env!("CARGO_BIN_EXE_torch2carton"), "verify", "out.carton"]);
        // Without the emulator there is nothing to compare.
        let Ok(output) = command.current_dir(root).output() else { return };
        assert!(output.status.success(), "{processor}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn the_version_says_what_is_used() {
    let scratch = scratch();
    let text = program(scratch.path(), "sha,avx2", &["--version", "--verbose"]);
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some(concat!("torch2carton ", env!("CARGO_PKG_VERSION"))));
    assert_eq!(lines.next(), Some("SHA-256     ring"));
    assert!(lines.last().expect("extensions").starts_with("not used    avx2"), "{text}");
    assert_eq!(ok(scratch.path(), &["-VV"]).lines().count(), 4);
}

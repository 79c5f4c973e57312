//! `TORCH2CARTON_WITHOUT`: without the processor's extensions, outputs are the same byte for byte.

use std::path::Path;
use std::process::Command;

use crate::carton_tools::{ok, scratch, write};
use crate::casts::floats;
use crate::dequantize::models;
use crate::self_tests::llama;

/// All extensions, and those that make the difference between two machines.
const WITHOUT: [&str; 4] = [
    "sha",
    "avx512,avx512-bf16,amx-bf16",
    "sha,avx2,avx512,avx512-bf16,amx-bf16",
    "ssse3,avx2,avx512,avx512-bf16,amx-bf16",
];

fn program(root: &Path, without: &str, args: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_torch2carton"));
    let output = command.args(args).current_dir(root).env("TORCH2CARTON_WITHOUT", without).output();
    let output = output.expect("the program was built for this test");
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// Writes a LLaMA, and a model in three dtypes with an adapter and a fine-tuned copy, and returns what to make of each. Their numbers are of all
/// magnitudes, and some are not finite.
fn write_models(root: &Path) -> Vec<(String, Vec<&'static str>)> {
    llama(root);
    let mut state = 5_u32;
    let mut number = |is_factor: bool| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let kind = if is_factor { (state >> 24).max(3) } else { state >> 24 };
        match kind {
            0 => f32::INFINITY,
            1 => f32::NEG_INFINITY,
            2 => -f32::NAN,
            3 => f32::from_bits(state & 0x007f_ffff),
            4 if !is_factor => f32::from_bits(state >> 1),
            _ => f32::from(u16::try_from(state >> 16).unwrap_or_default()) / 32768.0 - 1.0,
        }
    };
    let mut write_floats = |path: &str, tensors: &[(&str, [usize; 2])]| {
        let tensors = tensors.iter().map(|(name, shape)| {
            let numbers =
                (0..shape.iter().product()).flat_map(|_| number(name.contains("lora")).to_le_bytes());
            (name, "F32", shape, numbers.collect::<Vec<_>>())
        });
        write(root.join(path), test_support::safetensors(tensors));
    };
    write_floats("float32.safetensors", &[("q.weight", [70, 133]), ("k.weight", [33, 64])]);
    write_floats("tuned.safetensors", &[("q.weight", [70, 133]), ("k.weight", [33, 64])]);
    let low_rank =
        [("q.lora_A", [9, 133]), ("q.lora_B", [70, 9]), ("k.lora_A", [9, 64]), ("k.lora_B", [33, 9])];
    let names = low_rank.map(|(name, shape)| (format!("base_model.model.{name}.weight"), shape));
    let low_rank: Vec<_> = names.iter().map(|(name, shape)| (name.as_str(), *shape)).collect();
    write_floats("lora/adapter_model.safetensors", &low_rank);
    write(root.join("lora/adapter_config.json"), r#"{"peft_type":"LORA","r":9,"lora_alpha":7}"#);
    let mut models = Vec::new();
    for dtype in ["float32", "bfloat16", "float16", "float64"] {
        for (name, from) in [(dtype.to_owned(), "float32"), (format!("tuned-{dtype}"), "tuned")] {
            let (from, out) = (format!("{from}.safetensors"), format!("{name}.safetensors"));
            if from != out {
                ok(root, &[&from, "--dtype", dtype, "-o", &out, "-q"]);
            }
        }
        models.push((format!("{dtype}.safetensors"), vec!["--merge", "lora=0.3"]));
    }
    models.push(("float32.safetensors".to_owned(), vec!["--add", "tuned.safetensors=0.3"]));
    models.push(("bfloat16.safetensors".to_owned(), vec!["--average", "tuned-bfloat16.safetensors"]));
    models.push(("float16.safetensors".to_owned(), vec!["--add", "tuned-float16.safetensors=-1.7"]));
    models
}

#[test]
fn outputs_do_not_depend_on_extensions() {
    let scratch = scratch();
    let root = scratch.path();
    let numbers: Vec<f32> = (0..5000_u16).map(|i| (f32::from(i) - 2500.0).powi(5) * 1e-9).collect();
    floats(&root.join("in.safetensors"), &[("a", &numbers), ("b", &numbers[..77])]);
    let merged = write_models(root);
    let models: Vec<_> = models().map(|model| model.to_str().expect("UTF-8").to_owned()).collect();
    let mut conversions = vec![
        (vec!["in.safetensors"], "out.carton"),
        (vec!["in.safetensors", "--dtype", "float16"], "out.carton"),
        (vec!["in.safetensors", "--dtype", "bfloat16"], "out.safetensors"),
    ];
    for (base, flags) in &merged {
        conversions.push(([&[base.as_str()][..], flags].concat(), "out.safetensors"));
    }
    conversions.push((vec!["llama", "--self-test", "--dtype", "float32"], "out.carton"));
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

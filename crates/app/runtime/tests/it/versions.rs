//! Cartons of all versions of the code run: what an earlier version wrote computes the same.
//!
//! Facts: the archives in `torchscript/tests/written`, which versions of this program wrote from the same tensors.

use std::path::Path;

use runtime::{Runnable, RunnableOptions};
use tensor::{Dtype, Storage, Tensor};

/// The outputs of a carton around a stored archive.
fn outputs(archive: &str, inputs: &[(String, Tensor)]) -> Vec<(String, Tensor)> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let written =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../formats/torchscript/tests/written").join(archive);
    std::fs::create_dir(folder.path().join("model")).expect("a temporary folder");
    std::fs::copy(written, folder.path().join("model/model.pt")).expect("it is stored");
    let config = "spec_version = 1\n\n[runner]\nrunner_name = \"torchscript\"\n\
                  required_framework_version = \"=2.0\"\nrunner_compat_version = 1\n";
    std::fs::write(folder.path().join("carton.toml"), config).expect("a temporary folder");
    let carton = Runnable::open(folder.path(), &RunnableOptions::default(), &());
    let carton = carton.unwrap_or_else(|error| panic!("{archive}: {error}"));
    carton.infer(inputs, None).unwrap_or_else(|error| panic!("{archive}: {error}"))
}

fn bytes(tensor: &Tensor) -> Vec<u8> {
    let mut bytes = Vec::new();
    byte_source::Blob::write_to(tensor.storage(), &mut bytes).expect("memory takes it");
    bytes
}

#[test]
fn decoders_of_all_versions_return_the_same_logits() {
    let ids = Storage::owned((0..8_i64).flat_map(i64::to_le_bytes).collect());
    let tokens = Tensor::new(Dtype::Int64, vec![1, 8], vec![8, 1], 0, ids).expect("eight ids");
    let inputs = [("tokens".to_owned(), tokens)];
    let logits = |archive: &str| {
        let outputs = outputs(archive, &inputs);
        let [(name, logits)] = outputs.as_slice() else { panic!("{archive}: {outputs:?}") };
        assert_eq!((name.as_str(), logits.shape()), ("logits", [1, 8, 32].as_slice()), "{archive}");
        bytes(logits)
    };
    let expected = logits("fourth_numbered.pt");
    assert!(expected.chunks(4).any(|logit| logit != &expected[..4]), "all logits are equal");
    for archive in ["first.pt", "second.pt", "third.pt", "fourth.pt"] {
        assert_eq!(logits(archive), expected, "{archive}");
    }
}

#[test]
fn weights_of_all_versions_are_returned() {
    let returned = |archive: &str| {
        let outputs = outputs(archive, &[]);
        outputs.into_iter().map(|(name, tensor)| (name, bytes(&tensor))).collect::<Vec<_>>()
    };
    let expected = returned("weights_second.pt");
    assert_eq!(expected.len(), 5);
    assert_eq!(returned("weights.pt"), expected);
    assert_eq!(returned("weights_second_raises.pt"), expected);
    assert_eq!(returned("float4.pt"), returned("float4_second.pt"));
}

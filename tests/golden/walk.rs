//! The walk through the first tensor of a LLaMA checkpoint, opcode by opcode: stack, metastack and memo
//! after each step. `llama_8b_first.pkl` has the names and shapes of Llama 3.1 8B; `llama_first.pth` has
//! storages, which the trace names by record, dtype and place in the file.

use crate::program::{torch2carton, transcript};

/// PROTO up to the BINPUT after the first tensor's REDUCE.
const FIRST_TENSOR: &str = "41";

#[test]
fn the_first_tensor() {
    let walk = torch2carton(["trace", "--full", "--limit", FIRST_TENSOR, "checkpoints/llama_8b_first.pkl"]);
    insta::assert_snapshot!(transcript(&walk));
}

#[test]
fn a_storage_is_named_by_its_record() {
    let walk = torch2carton(["trace", "--lines", "checkpoints/llama_first.pth"]);
    insta::assert_snapshot!(transcript(&walk));
}

#[test]
fn the_whole_pickle_is_counted() {
    let summary = torch2carton(["trace", "--summary", "checkpoints/llama_tiny/consolidated.00.pth"]);
    insta::assert_snapshot!(transcript(&summary));
}

#[test]
fn legacy_checkpoints_and_tars_are_traced_at_their_root() {
    for name in ["legacy", "legacy_protocol_5", "legacy_views", "tar"] {
        let walk = torch2carton(["trace", "--lines", &format!("checkpoints/{name}.pth")]);
        insta::assert_snapshot!(format!("walk-{name}"), transcript(&walk));
    }
}

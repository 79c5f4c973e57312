//! Traces of small pickles that together hold every opcode; `pickles/generate.py` made them with CPython, with
//! the listing of pickletools next to each.

use std::collections::BTreeSet;
use std::fs;

use pickle_vm::{Opcode, Reader};

use crate::program::{folder, inputs, snapshot_name, torch2carton, transcript};

#[test]
fn steps_of_pickles() {
    for input in inputs("pickles", "pkl") {
        let trace = torch2carton(["trace", "--full", &input]);
        insta::assert_snapshot!(snapshot_name("trace", &input), transcript(&trace));
    }
}

#[test]
fn json_of_pickles() {
    for input in ["pickles/state_dict_2.pkl", "pickles/texts_4.pkl", "pickles/scalars_0.pkl"] {
        let trace = torch2carton(["trace", "--json", input]);
        insta::assert_snapshot!(snapshot_name("json", input), transcript(&trace));
    }
}

#[test]
fn listings_equal_those_of_pickletools() {
    for input in inputs("pickles", "pkl") {
        let listing = torch2carton(["trace", "--dis", &input]);
        let expected = folder().join(&input).with_extension("dis");
        let expected = fs::read_to_string(expected).expect("generate.py wrote it");
        assert_eq!(transcript(&listing), expected, "{input}");
    }
}

#[test]
fn every_opcode_is_in_a_pickle() {
    let mut seen = BTreeSet::new();
    for input in inputs("pickles", "pkl") {
        let bytes = fs::read(folder().join(&input)).expect("it is checked in");
        for instruction in Reader::new(&bytes) {
            seen.insert(instruction.expect("these pickles are whole").opcode);
        }
    }
    let missing: Vec<_> = Opcode::ALL.iter().filter(|&opcode| !seen.contains(opcode)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

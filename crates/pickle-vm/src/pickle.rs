//! Entry points that read a whole pickle from its bytes.

use crate::error::{Error, ErrorKind, Result};
use crate::heap::Pickle;
use crate::limits::PickleLimits;
use crate::machine::Machine;
use crate::reader::Reader;

/// Reads the pickle at the start of `bytes`, with the default [`PickleLimits`].
///
/// # Errors
///
/// Returns an error with the offset of the fault if the pickle is malformed.
pub fn load(bytes: &[u8]) -> Result<Pickle<'_>> {
    load_with(bytes, &PickleLimits::default())
}

/// Reads the pickle at the start of `bytes`, with the given [`PickleLimits`].
///
/// # Errors
///
/// Returns an error with the offset of the fault if the pickle is malformed or exceeds a limit.
pub fn load_with<'p>(bytes: &'p [u8], limits: &PickleLimits) -> Result<Pickle<'p>> {
    let mut reader = Reader::new(bytes);
    let mut machine = Machine::new(*limits);
    while let Some(instruction) = reader.next() {
        if let Some(root) = machine.step(instruction?)? {
            return Ok(machine.finish(root, reader.offset()));
        }
    }
    Err(Error { kind: ErrorKind::NoStop, offset: reader.offset(), opcode: None })
}

#[cfg(test)]
mod tests {
    use crate::object::Construction;

    use super::*;

    fn error(bytes: &[u8]) -> String {
        load(bytes).expect_err("these bytes are not a pickle").to_string()
    }

    #[test]
    fn a_list_can_contain_itself_through_the_memo() {
        let pickle = load(b"\x80\x02]q\x00h\x00\x85q\x01a.").expect("CPython reads it");
        let list = pickle.heap.items(pickle.root).expect("the root is a list");
        let tuple = pickle.heap.items(list[0]).expect("its item is a tuple");
        assert_eq!(tuple, [pickle.root]);
        assert_eq!((pickle.len, pickle.opcodes, pickle.memo_len), (12, 8, 2));
    }

    #[test]
    fn calls_are_recorded_with_later_changes_to_their_result() {
        let bytes = b"\x80\x02ccollections\nOrderedDict\n)RK\x01K\x02sK\x03a}b.";
        let pickle = load(bytes).expect("every opcode suits its operands");
        let instance = pickle.heap.instance(pickle.root).expect("the root is an instance");
        assert_eq!(pickle.heap.global(instance.callable), Some(("collections", "OrderedDict")));
        assert_eq!(pickle.heap.items(instance.args), Some(&[][..]));
        assert_eq!(instance.construction, Construction::Reduce);
        let [(key, value)] = instance.items() else { panic!("SETITEM set one item") };
        assert_eq!((pickle.heap.int(*key), pickle.heap.int(*value)), (Some(1), Some(2)));
        assert_eq!(pickle.heap.int(instance.appends()[0]), Some(3));
        assert_eq!(pickle.heap.entries(instance.state()[0]), Some(&[][..]));
        assert_eq!(pickle.heap.offset(instance.callable), 2);
    }

    #[test]
    fn build_on_a_global_is_recorded() {
        let pickle = load(b"cm\nf\n}b.").expect("functions have attributes");
        let recorded = pickle.heap.recorded_changes(pickle.root).expect("BUILD was recorded");
        assert_eq!(recorded.state().len(), 1);
    }

    #[test]
    fn a_bytearray_records_what_changes_it() {
        // CPython 3.11 returns `bytearray(b'zbcx')`.
        let pickle = load(b"\x96\x03\0\0\0\0\0\0\0abcKxaK\0Kzs.").expect("CPython reads it");
        let recorded = pickle.heap.recorded_changes(pickle.root).expect("its changes are recorded");
        assert_eq!((recorded.appends().len(), recorded.items().len()), (1, 1));
        assert_eq!(pickle.heap.bytes(pickle.root), None);
        assert_eq!(pickle.heap.last_change(pickle.root), Some(19));
        // A bytearray has no `add` and no attributes.
        let error = |bytes| load(bytes).expect_err("CPython refuses it").to_string();
        assert_eq!(
            error(b"\x96\0\0\0\0\0\0\0\0(N\x90."),
            "expected set, found bytearray at offset 0xb (ADDITEMS)"
        );
        assert_eq!(
            error(b"\x96\0\0\0\0\0\0\0\0}b."),
            "expected instance, found bytearray at offset 0xa (BUILD)"
        );
    }

    #[test]
    fn the_last_change_of_an_object_has_an_offset() {
        let changed = |bytes: &[u8], at: usize| {
            let pickle = load(bytes).expect("CPython's machine can build this");
            let id = pickle.heap.ids().nth(at).expect("the object was made");
            (pickle.heap.last_change(id), pickle.heap.changed_objects().count())
        };
        assert_eq!(changed(b"]Na0N.", 0), (Some(2), 0));
        assert_eq!(changed(b"](NNe0N.", 0), (Some(4), 0));
        assert_eq!(changed(b"](e0N.", 0), (None, 0), "nothing was added");
        assert_eq!(changed(b"(NNl.", 1), (None, 0), "LIST makes it with its items");
        assert_eq!(changed(b"(NNd.", 1), (None, 0));
        assert_eq!(changed(b"}NNsNNs.", 0), (Some(6), 0));
        assert_eq!(changed(b"\x8f(N\x90.", 0), (Some(3), 0));
        assert_eq!(changed(b"NQNb.", 1), (Some(3), 1));
        assert_eq!(changed(b"cm\nn\nNb.", 0), (Some(6), 1));
        assert_eq!(changed(b"N)RNaNb.", 2), (Some(6), 1));
        // Keyword arguments are part of the call.
        assert_eq!(changed(b"N)}\x92.", 3), (None, 0));
        assert_eq!(changed(b"N)}\x92Na.", 3), (Some(5), 1));
    }

    #[test]
    fn each_state_has_the_offset_of_its_build() {
        let pickle = load(b"N)R}b]b}K\x01K\x02sb.").expect("the class may have a `__setstate__`");
        let recorded = pickle.heap.recorded_changes(pickle.root).expect("BUILD was recorded");
        let offsets: Vec<u64> = recorded.states_with_offsets().map(|(_, offset)| offset).collect();
        assert_eq!(offsets, [4, 6, 13]);
        let (last, offset) = recorded.states_with_offsets().last().expect("three states");
        assert!(!pickle.heap.changed_after(last, offset));
        assert!(pickle.heap.changed_after(last, 6));
    }

    #[test]
    fn opcodes_cannot_reach_below_the_mark() {
        assert_eq!(error(b"K\x01(R."), "stack underflow at offset 0x3 (REDUCE)");
        assert_eq!(error(b"]K\x01(a."), "stack underflow at offset 0x4 (APPEND)");
        assert_eq!(error(b"(."), "stack underflow at offset 0x1 (STOP)");
        assert_eq!(error(b"t."), "no mark on the stack at offset 0x0 (TUPLE)");
        // POP of an empty frame pops its mark, as in CPython.
        assert!(load(b"N(0.").is_ok());
    }

    #[test]
    fn errors_name_operands_of_the_wrong_type() {
        assert_eq!(error(b"}NR."), "expected tuple, found None at offset 0x2 (REDUCE)");
        assert_eq!(error(b"]K\x01K\x02s."), "expected dict, found list at offset 0x5 (SETITEM)");
        assert_eq!(error(b"}K\x01a."), "expected list, found dict at offset 0x3 (APPEND)");
        assert_eq!(error(b"](K\x01\x90."), "expected set, found list at offset 0x4 (ADDITEMS)");
        assert_eq!(error(b"]}b."), "expected instance, found list at offset 0x2 (BUILD)");
        assert_eq!(error(b"}(K\x01u."), "odd number of items at offset 0x4 (SETITEMS)");
        assert_eq!(error(b"K\x01K\x02\x93."), "expected str, found int at offset 0x4 (STACK_GLOBAL)");
        assert_eq!(error(b"\x80\x06."), "unsupported protocol 6 at offset 0x0 (PROTO)");
        assert_eq!(error(b"\x82\x00."), "extension code 0 is not positive at offset 0x0 (EXT1)");
        assert_eq!(error(b"h\x07."), "memo key 7 has never been stored into at offset 0x0 (BINGET)");
    }

    #[test]
    fn errors_name_the_exceeded_limit() {
        let limits = PickleLimits { opcodes: 2, ..PickleLimits::default() };
        let error = load_with(b"NNN.", &limits).expect_err("four opcodes are more than two");
        assert_eq!(error.to_string(), "more than 2 opcodes at offset 0x2 (NONE)");
        let limits = PickleLimits { objects: 1, ..PickleLimits::default() };
        let error = load_with(b"]].", &limits).expect_err("two lists are more than one object");
        assert_eq!(error.to_string(), "more than 1 objects at offset 0x1 (EMPTY_LIST)");
    }

    #[test]
    fn a_chain_of_pickles_is_read_one_by_one() {
        let chain = b"K\x01.K\x02.";
        let first = load(chain).expect("the first pickle");
        let second = load(&chain[3..]).expect("the second pickle");
        assert_eq!(first.len, 3);
        assert_eq!(second.heap.int(second.root), Some(2));
    }
}

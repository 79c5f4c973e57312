//! What listings and printed values show, and where they are cut short.

use std::cell::Cell;

use pickle_vm::trace::{self, ListingOptions, TraceView};
use pickle_vm::{Heap, ObjectId, load};

/// The listing of a pickle, and whether it was read to its end.
fn listed(pickle: &[u8], options: &ListingOptions<'_>) -> (String, bool) {
    let mut out = Vec::new();
    let is_read = trace::write(pickle, options, &mut out).is_ok_and(|pickle| pickle.is_some());
    (String::from_utf8(out).expect("a listing is text"), is_read)
}

fn steps(pickle: &[u8]) -> String {
    listed(pickle, &ListingOptions::default()).0
}

/// The last line that starts with this word.
fn last<'l>(listing: &'l str, word: &str) -> &'l str {
    let mut lines = listing.lines().rev().map(str::trim_start);
    lines.find_map(|line| line.strip_prefix(word)).expect("there is one").trim_start()
}

fn shown(pickle: &[u8]) -> String {
    let pickle = load(pickle).expect("it is well-formed");
    pickle.heap.display(pickle.root).to_string()
}

/// LONG1 of this many bytes.
fn long(len: u8) -> Vec<u8> {
    [b"\x80\x02\x8a", &[len][..], &vec![1; usize::from(len)], b"."].concat()
}

#[test]
fn the_instruction_at_fault_is_listed_for_people() {
    let fault = b"N\x85R.";
    let (people, is_read) = listed(fault, &ListingOptions::default());
    assert!(!is_read && people.ends_with("REDUCE\n"), "{people}");
    let (json, _) = listed(fault, &ListingOptions { view: TraceView::Json, ..ListingOptions::default() });
    assert!(json.lines().count() == 2 && json.ends_with("}\n"), "{json}");
    let limit = ListingOptions { limit: Some(1), ..ListingOptions::default() };
    assert!(listed(fault, &limit).0.ends_with("… stopped after 1 opcodes\n"));
}

#[test]
fn the_memo_shows_the_last_four_entries() {
    let five = b"(K\x01q\0K\x02q\x01K\x03q\x02K\x04q\x03K\x05q\x04t.";
    assert_eq!(last(&steps(five), "memo"), "{… 1 more, 1: 2, 2: 3, 3: 4, 4: 5}");
    let again = b"(K\x01q\0K\x02q\x01K\x03q\x02K\x04q\x03K\x05q\x01t.";
    assert_eq!(last(&steps(again), "memo"), "{0: 1, 2: 3, 3: 4, 1: 5}");
    let one = b"K\x01q\0.";
    assert_eq!(last(&steps(one), "memo"), "{0: 1}");
}

#[test]
fn the_stack_shows_its_last_six_objects() {
    assert!(steps(b"(K\x01K\x02K\x03K\x04K\x05K\x06K\x07K\x08t.").contains("[… 2 more, 3, 4, 5, 6, 7, 8]"));
    assert!(steps(b"(K\x01K\x02K\x03K\x04K\x05K\x06t.").contains("[1, 2, 3, 4, 5, 6]"));
}

#[test]
fn the_values_of_a_step_share_one_bound() {
    // Lists of ten lists of ten …, of which two are on the stack and all in the memo.
    let mut pickle = b"\x80\x02](NNNNNNNNNNeq\0".to_vec();
    for level in 1..5 {
        pickle.extend([b"0](".to_vec(), [b'h', level - 1].repeat(10), vec![b'e', b'q', level]].concat());
    }
    pickle.extend(b"h\x04\x86.");
    let (listing, _) = listed(&pickle, &ListingOptions { full: true, ..ListingOptions::default() });
    let longest = listing.split("\n0x").map(|step| step.matches("None").count()).max();
    assert!(longest.is_some_and(|parts| (5000..12_000).contains(&parts)), "{longest:?}");
}

#[test]
fn the_description_of_an_object_is_that_of_its_state() {
    let annotate = |heap: &Heap<'_>, id: ObjectId| {
        Some(format!("an object with {} states", heap.instance(id)?.state().len()))
    };
    let options = ListingOptions { annotate: Some(&annotate), ..ListingOptions::default() };
    let (listing, _) = listed(b"cm\nn\n)R}b.", &options);
    assert!(listing.contains("[an object with 0 states]"), "{listing}");
    assert_eq!(last(&listing, "stack"), "[]");
    assert!(listing.contains("[an object with 1 states]"), "{listing}");
}

#[test]
fn each_object_has_its_own_description() {
    let pickle = [b"(", &b"cm\nn\n)R".repeat(300)[..], b"t."].concat();
    let calls = Cell::new(0);
    let annotate = |heap: &Heap<'_>, id: ObjectId| {
        heap.instance(id)?;
        calls.set(calls.get() + 1);
        Some(format!("#{}#", id.index()))
    };
    let options = ListingOptions { annotate: Some(&annotate), ..ListingOptions::default() };
    let (listing, _) = listed(&pickle, &options);
    let loaded = load(&pickle).expect("it is well-formed");
    for id in loaded.heap.ids().filter(|id| loaded.heap.instance(*id).is_some()) {
        assert!(listing.contains(&format!("#{}#", id.index())), "{}", id.index());
    }
    // It is remembered while the object is on the stack.
    calls.set(0);
    listed(b"cm\nn\n)RN0N0N0.", &options);
    assert_eq!(calls.get(), 1);
}

#[test]
fn long_arguments_are_cut_short() {
    let argument = |pickle: &[u8]| {
        listed(pickle, &ListingOptions { view: TraceView::Lines, ..ListingOptions::default() }).0
    };
    assert!(!argument(&long(60)).contains("<integer of"));
    assert!(
        argument(&long(61)).contains("LONG1            <integer of 61 bytes>"),
        "{}",
        argument(&long(61))
    );
    assert!(!shown(&long(60)).contains("<integer of"));
    assert_eq!(shown(&long(61)), "<integer of 61 bytes>");
    let bytes = |len: u8| [b"\x80\x03C", &[len][..], &vec![b'a'; usize::from(len)], b"."].concat();
    assert_eq!(shown(&bytes(60)), format!("b'{}'", "a".repeat(60)));
    assert_eq!(shown(&bytes(61)), format!("b'{}'…", "a".repeat(60)));
    // A value that is asked for by itself is longer.
    let pickle = bytes(200);
    let loaded = load(&pickle).expect("it is well-formed");
    assert_eq!(loaded.heap.display(loaded.root).long().to_string(), format!("b'{}'", "a".repeat(200)));
}

#[test]
fn what_is_next_to_a_value_does_not_count_as_around_it() {
    let globals = shown(b"(cm\na\ncm\nb\ncm\nc\ncm\nd\n](K\x01et.");
    assert_eq!(globals, "(m.a, m.b, m.c, m.d, [1])");
    let array = b"\x96\x01\0\0\0\0\0\0\0a";
    let arrays = shown(&[b"(", &array.repeat(4)[..], b"](K\x01et."].concat());
    assert_eq!(arrays, "(bytearray(b'a'), bytearray(b'a'), bytearray(b'a'), bytearray(b'a'), [1])");
    let persistent = shown(&[b"N", &b"Q".repeat(9)[..], b"."].concat());
    assert_eq!(persistent, "persistent persistent persistent ...");
}

#[test]
fn json_has_numbers_and_text_that_json_can_express() {
    let json = |pickle: &[u8]| {
        listed(pickle, &ListingOptions { view: TraceView::Json, ..ListingOptions::default() }).0
    };
    assert!(json(b"G\x7f\xf0\0\0\0\0\0\0.").contains("\"arg\":\"inf\","));
    assert!(json(b"G\x3f\xf0\0\0\0\0\0\0.").contains("\"arg\":1.0,"));
    assert!(json(b"X\x03\0\0\0a\rb.").contains("\"arg\":\"a\\rb\","));
}

#[test]
fn a_long_text_is_written_in_its_place() {
    let text = "a".repeat(40_000);
    let pickle = [b"NX", &40_000_u32.to_le_bytes()[..], text.as_bytes(), b"\x86."].concat();
    let (listing, _) =
        listed(&pickle, &ListingOptions { full: true, view: TraceView::Lines, ..ListingOptions::default() });
    let at = listing.find("NONE").expect("it is listed");
    assert!(listing[at..].contains(&format!("'{text}'")));
    let (listing, _) =
        listed(&pickle, &ListingOptions { view: TraceView::Json, ..ListingOptions::default() });
    assert!(listing.contains(&format!(",\"arg\":\"{text}\",")));
}

#[test]
fn a_value_that_contains_itself_is_shown_once() {
    let array = b"\x96\x01\0\0\0\0\0\0\0aq\0h\0a.";
    assert_eq!(shown(array), "bytearray(b'a') + [bytearray(b'a')]");
    assert_eq!(shown(b"cm\nn\nq\0h\0\x85b."), "m.n with state (m.n,)");
}

#[test]
fn debug_shows_what_people_need() {
    assert!(
        format!("{:?}", ListingOptions::default())
            .starts_with("Options { view: Steps, full: false, limit: None")
    );
    let pickle = load(b"]K\x01a.").expect("it is well-formed");
    assert_eq!(format!("{:?}", pickle.heap.display(pickle.root)), "[1]");
}

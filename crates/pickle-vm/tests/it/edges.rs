//! Small pickles, each for one rule of an object, the memo or a limit.

use std::borrow::Cow;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use pickle_vm::{
    ByteString, Construction, ErrorKind, Machine, Object, Pickle, PickleLimit, PickleLimits, Text, Writer,
    load, load_with, trace,
};

fn loaded(bytes: &[u8]) -> Pickle<'_> {
    load(bytes).expect("it is well-formed")
}

#[test]
fn python_2_wrote_text_as_bytes() {
    let (two, three) = (loaded(b"U\x02ab."), loaded(b"C\x02ab."));
    for pickle in [two, three] {
        assert_eq!(pickle.heap.text(pickle.root).as_deref(), Some("ab"));
        assert_eq!(pickle.heap.bytes(pickle.root), Some(&b"ab"[..]));
    }
    let global = loaded(b"U\x01aU\x01b\x93.");
    assert_eq!(global.heap.global(global.root), Some(("a", "b")));
}

#[test]
fn the_bytes_of_a_bytearray_are_known_until_it_changes() {
    let array = loaded(b"\x96\x02\0\0\0\0\0\0\0ab.");
    assert_eq!(array.heap.bytes(array.root), Some(&b"ab"[..]));
    let changed = loaded(b"\x96\x02\0\0\0\0\0\0\0abK\x01a.");
    assert_eq!(changed.heap.bytes(changed.root), None);
}

#[test]
fn a_change_is_not_after_itself() {
    let list = loaded(b"]K\x01a.");
    assert_eq!(list.heap.last_change(list.root), Some(3));
    assert!(list.heap.changed_after(list.root, 2) && !list.heap.changed_after(list.root, 3));
    assert!(!list.heap.is_empty() && Machine::new(PickleLimits::default()).heap().is_empty());
}

#[test]
fn a_memo_key_that_looks_like_true_is_1() {
    let none = loaded(b"Np01\n0g1\n.");
    assert!(none.heap.is_none(none.root));
}

#[test]
fn empty_tuples_and_small_ints_exist_once() {
    for (pickle, is_one) in [
        (&b"(t(t\x86."[..], true),
        (b")(t\x86.", true),
        (b"K\x05K\x05\x86.", true),
        (b"K\xffK\xff\x86.", true),
        (b"M\0\x01M\0\x01\x86.", false),
        (b"(Nt(Nt\x86.", false),
    ] {
        let pair = loaded(pickle);
        let Some(&[left, right]) = pair.heap.items(pair.root) else { panic!("a pair") };
        assert_eq!(left == right, is_one, "{}", pickle.escape_ascii());
    }
}

#[test]
fn arguments_may_be_of_a_class_that_is_not_known() {
    assert!(load(b"cm\nn\nPa\nR.").is_ok() && load(b"cm\nn\ncm\nn\n)RR.").is_ok());
    assert!(load(b"cm\nn\n]R.").is_err());
}

#[test]
fn bytes_and_readonly_buffers_are_readonly_already() {
    assert!(load(b"\x97\x98\x98.").is_ok() && load(b"C\x01a\x98.").is_ok() && load(b"N\x98.").is_err());
}

#[test]
fn nothing_can_be_added_to_anything() {
    assert!(load(b"N(u.").is_ok() && load(b"N(e.").is_ok());
    assert!(load(b"N(NNu.").is_err() && load(b"N(Ne.").is_err());
    assert!(load(b"\x8f(K\x01\x90.").is_ok() && load(b"\x8fK\x01a.").is_err(), "a set has no `append`");
}

#[test]
fn keyword_arguments_are_kept() {
    let instance = loaded(b"cm\nn\n)}\x92.");
    let Object::Instance(call) = instance.heap.get(instance.root) else { panic!("a call") };
    let kwargs = call.kwargs().expect("NEWOBJ_EX has them");
    assert!(matches!(instance.heap.get(kwargs), Object::Dict(_)));
    assert_eq!(call.construction.to_string(), "NEWOBJ_EX");
    assert_eq!([Construction::NewObj, Construction::Reduce].map(|how| how.to_string()), ["NEWOBJ", "REDUCE"]);
}

#[test]
fn limits_are_the_most_that_is_read() {
    let exceeds = |bytes: &[u8], limits: PickleLimits| match load_with(bytes, &limits) {
        Ok(_) => None,
        Err(error) => match error.kind {
            ErrorKind::LimitExceeded { limit, .. } => Some(limit),
            other => panic!("{other}"),
        },
    };
    let memo = |memo| PickleLimits { memo, ..PickleLimits::default() };
    assert_eq!(exceeds(b"Nq\0q\0.", memo(1)), None);
    assert_eq!(exceeds(b"Nq\0q\x01.", memo(1)), Some(PickleLimit::Memo));
    assert_eq!(exceeds(b"Nq\0.", memo(0)), Some(PickleLimit::Memo));
    let memory = |memory| PickleLimits { memory, ..PickleLimits::default() };
    // Each list takes 28 bytes, and the memory is compared at the instructions 1024 and 2048.
    let lists = [b"]".repeat(2048), b".".to_vec()].concat();
    assert_eq!(exceeds(&lists, memory(28 * 2047)), Some(PickleLimit::Memory));
    assert_eq!(exceeds(&lists, memory(48 * 2048)), None);
    let text = |text| PickleLimits { text, ..PickleLimits::default() };
    for pickle in [&b"X\x03\0\0\0abc."[..], b"U\x03abc.", b"C\x03abc."] {
        assert_eq!(exceeds(pickle, text(3)), None);
        for most in [0, 2] {
            assert_eq!(exceeds(pickle, text(most)), Some(PickleLimit::Text));
        }
    }
}

#[test]
fn text_is_equal_if_its_bytes_are() {
    let (borrowed, owned) = (Text::from("é"), Text::from("é".to_owned()));
    let hash = |text: &Text<'_>| BuildHasherDefault::<DefaultHasher>::default().hash_one(text);
    assert_eq!((&borrowed, hash(&borrowed)), (&owned, hash(&owned)));
    assert_ne!(borrowed, Text::from("e"));
    assert_ne!(hash(&borrowed), hash(&Text::from("e")));
    assert_eq!(format!("{borrowed:?}"), "\"é\"");
    let bytes = |bytes: &'static [u8]| ByteString::from(bytes);
    let owned = ByteString::from(Cow::<[u8]>::Owned(b"a\n".to_vec()));
    let hash = |bytes: &ByteString<'_>| BuildHasherDefault::<DefaultHasher>::default().hash_one(bytes);
    assert_eq!((bytes(b"a\n"), hash(&bytes(b"a\n"))), (owned.clone(), hash(&owned)));
    assert_ne!(bytes(b"a"), bytes(b"b"));
    assert_ne!(hash(&bytes(b"a")), hash(&bytes(b"b")));
    assert_eq!(format!("{owned:?}"), "b\"a\\n\"");
}

#[test]
fn text_with_surrogates_is_otherwise_utf_8() {
    let points = |bytes: &[u8]| {
        let [borrowed, owned] = [Cow::Borrowed(bytes), Cow::Owned(bytes.to_vec())].map(Text::from_bytes);
        assert_eq!(borrowed, owned);
        borrowed.map(|text| text.code_points().collect::<Vec<_>>())
    };
    let surrogate = |before: &[u8]| [before, b"\xed\xb2\x80"].concat();
    for (bytes, expected) in [
        (&b"a"[..], 0x61),
        (b"\xc2\x80", 0x80),
        (b"\xdf\xbf", 0x7ff),
        (b"\xe0\xa0\x80", 0x800),
        (b"\xef\xbf\xbf", 0xffff),
        (b"\xf0\x90\x80\x80", 0x1_0000),
        (b"\xf4\x8f\xbf\xbf", 0x10_ffff),
    ] {
        assert_eq!(points(&surrogate(bytes)), Some(vec![expected, 0xdc80]));
    }
    for bad in [
        &b"\x80"[..],
        b"\xc1\xbf",
        b"\xe0\x9f\xbf",
        b"\xf0\x8f\xbf\xbf",
        b"\xf4\x90\x80\x80",
        b"\xc3a",
        b"\xff",
    ] {
        assert_eq!(points(&surrogate(bad)), None, "{bad:x?}");
    }
}

#[test]
fn a_state_has_the_offset_of_its_build() {
    let instance = loaded(b"cm\nn\n)RK\x01aK\x02aNbK\x03a}b.");
    let recorded = instance.heap.recorded_changes(instance.root).expect("it was changed");
    let offsets: Vec<u64> = recorded.states_with_offsets().map(|(_, offset)| offset).collect();
    assert_eq!((offsets, recorded.last_change()), (vec![14, 19], Some(19)));
}

#[test]
fn a_writer_is_never_empty() {
    assert!(!Writer::new().is_empty(), "it starts with its protocol");
}

/// The listing, and the error if it ends with one.
fn listed(pickle: &[u8]) -> (String, Option<ErrorKind>) {
    let mut out = Vec::new();
    let error = match trace::dis(pickle, &mut out) {
        Ok(()) => None,
        Err(trace::TraceError::Pickle(error)) => Some(error.kind),
        Err(error) => panic!("{error}"),
    };
    (String::from_utf8(out).expect("listings are UTF-8"), error)
}

#[test]
fn a_listing_knows_every_memo_key() {
    for (put, get) in
        [("p1\n", "g1\n"), ("p01\n", "g1\n"), ("p18446744073709551616\n", "g18446744073709551616\n")]
    {
        assert_eq!(listed(format!("N{put}0{get}.").as_bytes()).1, None, "{put}");
    }
    for (key, number) in [
        ("7", 7),
        ("01", 1),
        ("-2", -2),
        ("18446744073709551616", i64::MAX),
        ("-18446744073709551616", i64::MIN),
    ] {
        assert_eq!(listed(format!("g{key}\n.").as_bytes()).1, Some(ErrorKind::MemoMissing(number)), "{key}");
        let twice = format!("Np{key}\np{key}\n.");
        assert_eq!(listed(twice.as_bytes()).1, Some(ErrorKind::MemoRedefined(number)), "{key}");
    }
}

#[test]
fn a_long_listing_is_whole() {
    for len in [(1_usize << 15) - 1, 1 << 15, (1 << 15) + 1, 100_000] {
        let text = "a".repeat(len);
        let pickle =
            [&b"X"[..], &u32::try_from(len).expect("short").to_le_bytes(), text.as_bytes(), b"0N."].concat();
        let (listing, error) = listed(&pickle);
        assert_eq!((listing.matches('a').count() >= len, error), (true, None));
        let lines: Vec<&str> = listing.lines().collect();
        assert!(
            lines[0].starts_with("    0: X") && lines[2].contains("NONE") && lines[3].contains("STOP"),
            "{len}"
        );
    }
}

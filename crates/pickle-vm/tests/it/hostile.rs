//! Hostile pickles: each one fails with an error that names the fault, or is read at a cost proportional to its size.

#![expect(clippy::arithmetic_side_effects, reason = "an overflow is a failed test")]

use pickle_vm::trace::{self, ListingOptions, PickleSummary, TraceView};
use pickle_vm::{ArgKind, ErrorKind, Heap, Object, Opcode, PickleLimits, Reader, StackItem, load};

/// The opcode with a valid argument.
fn instruction(opcode: Opcode) -> Vec<u8> {
    let arg: &[u8] = match opcode.info().arg {
        ArgKind::None => b"",
        ArgKind::Uint1 => b"\x01",
        ArgKind::Uint2 => b"\x01\0",
        ArgKind::Int4 | ArgKind::Uint4 => b"\x01\0\0\0",
        ArgKind::Uint8 | ArgKind::Float8 => b"\0\0\0\0\0\0\0\0",
        ArgKind::StringNl => b"'a'\n",
        ArgKind::StringNlNoEscapePair => b"m\nn\n",
        ArgKind::StringNlNoEscape | ArgKind::UnicodeStringNl => b"a\n",
        ArgKind::String1 | ArgKind::Bytes1 | ArgKind::UnicodeString1 | ArgKind::Long1 => b"\x01a",
        ArgKind::String4 | ArgKind::Bytes4 | ArgKind::UnicodeString4 | ArgKind::Long4 => b"\x01\0\0\0a",
        ArgKind::Bytes8 | ArgKind::ByteArray8 | ArgKind::UnicodeString8 => b"\x01\0\0\0\0\0\0\0a",
        ArgKind::DecimalNlShort | ArgKind::DecimalNlLong | ArgKind::FloatNl => b"1\n",
    };
    [&[opcode.code()], arg].concat()
}

fn error(bytes: &[u8]) -> String {
    load(bytes).expect_err("this pickle is hostile").to_string()
}

#[test]
fn every_opcode_checks_its_frame() {
    for &opcode in Opcode::ALL {
        let before = opcode.info().before;
        let needs = match opcode {
            // They read the topmost object, which the table does not list.
            Opcode::Put | Opcode::BinPut | Opcode::LongBinPut => 1,
            // The mark counts as an item for POP.
            Opcode::Pop => continue,
            _ => before.iter().position(|&item| item == StackItem::Mark).unwrap_or(before.len()),
        };
        for has in 0..needs {
            let objects = b"N".repeat(has);
            // The objects that are missing are there, below a mark.
            for below in [&b""[..], b"NNNN("] {
                let marked = before.contains(&StackItem::Mark);
                let mark = if marked { &b"(NN"[..] } else { b"" };
                let pickle = [below, &objects, mark, &instruction(opcode), b"."].concat();
                let error = load(&pickle).expect_err("an operand is missing");
                assert_eq!(error.kind, ErrorKind::StackUnderflow, "{opcode} with {has} of {needs}");
                assert_eq!(error.opcode, Some(opcode));
            }
        }
        if before.contains(&StackItem::Mark) {
            let pickle = [b"NNNN", &instruction(opcode)[..], b"."].concat();
            assert_eq!(load(&pickle).expect_err("the mark is missing").kind, ErrorKind::NoMark, "{opcode}");
        }
    }
    assert_eq!(error(b"0."), "no mark on the stack at offset 0x0 (POP)");
    assert_eq!(error(b"(o."), "stack underflow at offset 0x1 (OBJ)");
}

#[test]
fn every_truncated_argument_is_an_error() {
    for &opcode in Opcode::ALL {
        let whole = instruction(opcode);
        assert!(matches!(Reader::new(&whole).next(), Some(Ok(found)) if found.opcode == opcode));
        for end in 1..whole.len() {
            let error = Reader::new(&whole[..end]).next().expect("an error").expect_err("it is cut short");
            assert!(
                matches!(error.kind, ErrorKind::Truncated { .. } | ErrorKind::NoNewline),
                "{opcode} cut to {end} bytes: {error}"
            );
        }
    }
}

#[test]
fn lengths_are_checked_before_anything_is_allocated() {
    for bytes in [
        &b"\x8d\xff\xff\xff\xff\xff\xff\xff\xffa"[..],
        b"\x8e\xff\xff\xff\xff\xff\xff\xff\x7fa",
        b"\x96\0\0\0\0\0\0\0\x80a",
        b"X\xff\xff\xff\xffa",
        b"B\xff\xff\xff\xffa",
        b"T\xff\xff\xff\x7fa",
        b"\x8b\xff\xff\xff\x7fa",
    ] {
        assert!(matches!(
            load(bytes).expect_err("it is longer than the pickle").kind,
            ErrorKind::Truncated { .. }
        ));
    }
    // FRAME's length is a hint.
    assert!(load(b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\xffN.").is_ok());
    assert!(load(b"Nr\xff\xff\xff\xff0j\xff\xff\xff\xff.").is_ok());
    assert!(load(b"Np9223372036854775807\n.").is_ok());
    assert_eq!(error(b"Np9223372036854775808\n."), "memo key is not in 0..2⁶³ at offset 0x1 (PUT)");
    assert_eq!(error(b"Np-1\n."), "memo key is not in 0..2⁶³ at offset 0x1 (PUT)");
    let digits = format!("L{}L\n.", "9".repeat(5_000_000));
    assert_eq!(error(digits.as_bytes()), "integer has more than 4300 digits at offset 0x0 (LONG)");
}

/// Uses a pickle that loads in every way.
fn use_up(bytes: &[u8]) {
    let pickle = load(bytes).expect("CPython's machine can build this");
    let copy = pickle.clone();
    assert!(copy.heap.display(copy.root).to_string().len() < 10_000);
    drop(copy);
    drop(pickle);
    PickleSummary::read(bytes, &PickleLimits::default()).expect("it was read before");
}

/// Runs every printer that prints each step.
fn trace_all(bytes: &[u8]) {
    let debug = format!("{:?}", load(bytes).expect("it can be read"));
    assert!(debug.len() < bytes.len() * 200 + 10_000);
    let limit = Some(300);
    trace::write(
        bytes,
        &ListingOptions { full: true, limit, ..ListingOptions::default() },
        &mut std::io::sink(),
    )
    .expect("it can be read");
    for view in [TraceView::Steps, TraceView::Lines, TraceView::Json] {
        trace::write(bytes, &ListingOptions { view, ..ListingOptions::default() }, &mut std::io::sink())
            .expect("it can be read");
    }
}

#[test]
fn nesting_of_any_depth_does_not_recurse() {
    let nested = |depth: usize| {
        [
            [b"]".repeat(depth), b"a".repeat(depth - 1), b".".to_vec()].concat(),
            [b")".to_vec(), b"\x85".repeat(depth), b".".to_vec()].concat(),
            [b"}N".repeat(depth), b"N".to_vec(), b"s".repeat(depth), b".".to_vec()].concat(),
            [b"N".to_vec(), b"Q".repeat(depth), b".".to_vec()].concat(),
            [b"N".to_vec(), b")R".repeat(depth), b".".to_vec()].concat(),
            [b"(".repeat(depth), b"N.".to_vec()].concat(),
            [b"cm\nn\n".to_vec(), b")R2b".repeat(depth), b".".to_vec()].concat(),
        ]
    };
    // A test's thread has a stack of 2 MB: ten bytes per level here.
    for pickle in nested(200_000) {
        use_up(&pickle);
    }
    let [lists, tuples, ..] = nested(1_000_000);
    use_up(&lists);
    use_up(&tuples);
    // Work that grew with the square of the depth would show here.
    for pickle in nested(5_000) {
        trace_all(&pickle);
        trace::dis(&pickle, &mut std::io::sink()).ok();
    }
}

#[test]
fn memo_bombs_print_one_short_line() {
    // Each list contains the previous one twice: two to the power of 200 items.
    let mut bomb = b"]q\x00".to_vec();
    for level in 1..=200_u8 {
        bomb.extend_from_slice(&[b']', b'q', level, b'(', b'h', level - 1, b'h', level - 1, b'e']);
    }
    bomb.push(b'.');
    use_up(&bomb);
    trace_all(&bomb);
    // A list that contains itself, and a global that is its own state.
    for pickle in [&b"]2a."[..], b"cm\nn\n2b."] {
        use_up(pickle);
        trace_all(pickle);
    }
    let pickle = load(b"]2a.").expect("lists may hold themselves");
    assert_eq!(pickle.heap.display(pickle.root).to_string(), "[[...]]");
}

fn listed(pickle: &[u8], options: &ListingOptions<'_>) -> usize {
    let mut out = Vec::new();
    trace::write(pickle, options, &mut out).expect("a pickle");
    String::from_utf8(out).expect("listings are UTF-8").len()
}

#[test]
fn listings_are_linear_in_the_pickle() {
    // Pickles of N and 2 N bytes, of which every step could print nearly everything.
    let stack = |n: usize| [b"N".repeat(n), b".".to_vec()].concat();
    let marks = |n: usize| [b"N(".repeat(n / 2), b"N.".to_vec()].concat();
    let memo = |n: usize| [b"\x80\x04N".to_vec(), b"\x94".repeat(n), b".".to_vec()].concat();
    let items = |n: usize| {
        [b"](".to_vec(), b"N".repeat(n / 2), b"e".to_vec(), b"2".repeat(n / 2), b".".to_vec()].concat()
    };
    let text = |n: usize| {
        let len = u32::try_from(n / 2).expect("small").to_le_bytes();
        [b"X", &len[..], &b"a".repeat(n / 2), &b"2".repeat(n / 2), b"."].concat()
    };
    let global = |n: usize| {
        [
            b"c".to_vec(),
            b"m".repeat(n / 4),
            b"\n".to_vec(),
            b"n".repeat(n / 4),
            b"\n".to_vec(),
            b"2".repeat(n / 2),
            b".".to_vec(),
        ]
        .concat()
    };
    // An annotator's text can hold what is in the pickle.
    let long = |_: &pickle_vm::Heap<'_>, _| Some("a".repeat(10_000));
    for view in [TraceView::Steps, TraceView::Lines, TraceView::Json] {
        for pickle in [&stack as &dyn Fn(usize) -> Vec<u8>, &marks, &memo, &items, &text, &global] {
            for options in [
                ListingOptions { view, ..ListingOptions::default() },
                ListingOptions { view, annotate: Some(&long), ..ListingOptions::default() },
            ] {
                let (once, twice) = (listed(&pickle(5_000), &options), listed(&pickle(10_000), &options));
                assert!(twice < once * 5 / 2, "{view:?}: {once} and {twice} bytes");
                assert!(twice < 3_000 * 10_000, "{view:?}: {twice} bytes");
            }
        }
    }
    let dis = |n: usize| {
        let mut out = Vec::new();
        trace::dis(&marks(n), &mut out).ok();
        out.len()
    };
    assert!(dis(10_000) < dis(5_000) * 5 / 2, "{} and {}", dis(5_000), dis(10_000));
}

#[test]
fn a_full_listing_is_cut_short_where_it_would_repeat_too_much() {
    let limits = PickleLimits { repeats_per_byte: 4, repeats_base: 100_000, ..PickleLimits::default() };
    let stack = [b"N".repeat(5_000), b".".to_vec()].concat();
    let text = [b"X\x00\x20\0\0".to_vec(), b"a".repeat(0x2000), b"2".repeat(1_000), b".".to_vec()].concat();
    for pickle in [&stack, &text] {
        for view in [TraceView::Steps, TraceView::Lines, TraceView::Json] {
            let full =
                listed(pickle, &ListingOptions { view, full: true, limits, ..ListingOptions::default() });
            let short = listed(pickle, &ListingOptions { view, ..ListingOptions::default() });
            assert!(
                full <= short + 4 * pickle.len() + 100_000 + 1_000,
                "{view:?}: {full} bytes, {short} in short"
            );
            // A listing that repeats little is whole.
            let few = [b"X\x00\x20\0\0".to_vec(), b"a".repeat(0x2000), b".".to_vec()].concat();
            let mut out = Vec::new();
            trace::write(
                &few,
                &ListingOptions { view, full: true, limits, ..ListingOptions::default() },
                &mut out,
            )
            .expect("a pickle");
            let whole = "a".repeat(0x2000);
            assert!(String::from_utf8(out).expect("UTF-8").contains(&whole));
        }
    }
    // The JSON stays JSON.
    let mut out = Vec::new();
    trace::write(
        &text,
        &ListingOptions { view: TraceView::Json, full: true, limits, ..ListingOptions::default() },
        &mut out,
    )
    .expect("a pickle");
    let lines = String::from_utf8(out).expect("UTF-8");
    assert!(
        lines
            .lines()
            .all(|line| line.starts_with("{\"schema_version\":1,\"offset\":") && line.ends_with("\"}"))
    );
}

/// Runs everything over bytes that may not be a pickle; it must return.
fn try_all(bytes: &[u8]) {
    let loaded = load(bytes);
    let options = ListingOptions { full: true, ..ListingOptions::default() };
    let mut out = Vec::new();
    let traced = trace::write(bytes, &options, &mut out);
    assert_eq!(loaded.is_ok(), traced.is_ok());
    trace::dis(bytes, &mut out).ok();
    trace::write(bytes, &ListingOptions { view: TraceView::Json, ..options }, &mut out).ok();
    let text = String::from_utf8(out).expect("listings are UTF-8");
    assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "a control character came through");
    if let Ok(pickle) = loaded {
        check(&pickle.heap);
    }
}

/// Checks that every id in the heap refers to an object.
fn check(heap: &Heap<'_>) {
    for id in heap.ids() {
        heap.items(id).unwrap_or_default().iter().for_each(|&item| assert!(item.index() < heap.len()));
        for &(key, value) in heap.entries(id).unwrap_or_default() {
            assert!(key.index() < heap.len() && value.index() < heap.len());
        }
        if let Object::Global(_) = heap.get(id) {
            heap.global(id).expect("a global has names");
        }
    }
}

#[test]
fn damage_anywhere_is_an_error_or_another_pickle() {
    let seeds: [&[u8]; 3] = [
        b"\x80\x02}q\x00(X\x01\x00\x00\x00aq\x01cm\nn\nq\x02)Rq\x03}b(K\x01K\x02uX\x01\x00\x00\x00bcb\nc\n((U\x01\xffGABCDEFGHtQNtRu.",
        b"(lp0\n(dp1\nS'a\\x41'\np2\nI01\nsaL-12345678901234567890L\naV\\u20ac\naF1e5\na(I1\nim\nn\na(cm\nc\nI2\noag1\na.",
        b"\x80\x05\x95\x40\x00\x00\x00\x00\x00\x00\x00]\x94(\x8f\x94(K\x01K\x02\x90(K\x03\x91\x94C\x02\x1b[\x96\x02\x00\x00\x00\x00\x00\x00\x00\x1b]\x97\x98\x8c\x01m\x8c\x01n\x93)}\x92\x82\x01\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\x7fe.",
    ];
    for seed in seeds {
        load(seed).expect("the seeds are pickles");
        try_all(seed);
        for at in 0..seed.len() {
            try_all(&seed[..at]);
            for byte in (0..=255_u8).filter(|&byte| (usize::from(byte) + at) % 9 == 0) {
                let mut damaged = seed.to_vec();
                damaged[at] = byte;
                try_all(&damaged);
            }
        }
    }
}

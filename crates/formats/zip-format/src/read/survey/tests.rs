//! Tests of surveys of truncated archives, and of several archives in a sequence.

use std::ops::Range;

use super::{CENTRAL, DESCRIPTOR, END, LOCAL, Survey};

/// Returns an archive of stored entries, with the offsets of the entries and of the directory.
fn archive(entries: &[(&str, &[u8])]) -> (Vec<u8>, Vec<usize>) {
    let (mut file, mut directory, mut starts) = (Vec::new(), Vec::new(), Vec::new());
    for (name, data) in entries {
        let fields = fields(name, data, 0);
        starts.push(file.len());
        let offset = u32::try_from(file.len()).expect("it is short").to_le_bytes();
        file.extend([LOCAL, &fields, name.as_bytes(), data].concat());
        directory.extend([CENTRAL, &[0; 2], &fields, &[0; 10], &offset, name.as_bytes()].concat());
    }
    starts.push(file.len());
    let count = u16::try_from(entries.len()).expect("they are few").to_le_bytes();
    let numbers = [directory.len(), file.len()].map(|number| u32::try_from(number).expect("it is short"));
    let numbers = numbers.map(u32::to_le_bytes).concat();
    file.extend([&directory, END, &[0; 4], &count, &count, &numbers, &[0; 2]].concat());
    (file, starts)
}

/// Returns the header fields from the version to the length of the extra field.
fn fields(name: &str, data: &[u8], flags: u16) -> Vec<u8> {
    let len = if flags & 8 == 0 { u32::try_from(data.len()).expect("it is short") } else { 0 };
    let name_len = u16::try_from(name.len()).expect("it is short").to_le_bytes();
    let (flags, len) = (flags.to_le_bytes(), len.to_le_bytes());
    [&[20, 0][..], &flags, &[0; 2], &[0; 4], &[0; 4], &len, &len, &name_len, &[0; 2]].concat()
}

/// Returns the entries of a truncated archive with the lengths of their data, and the text of its oddity.
fn interrupted(bytes: &[u8]) -> (Vec<(String, usize)>, String) {
    let survey = Survey::read(bytes);
    assert!(survey.ends_before_directory && !survey.is_incomplete);
    let [oddity] = survey.oddities.as_slice() else { panic!("{:?}", survey.oddities) };
    assert_eq!(oddity.kind, "cut");
    let entries = survey.entries.into_iter().map(|entry| {
        let len = usize::try_from(entry.stored_len()).expect("small");
        (entry.name, len)
    });
    (entries.collect(), oddity.text.clone())
}

#[test]
fn a_whole_archive_is_not_cut() {
    let (whole, _) = archive(&[("a", b"12345"), ("b", b"678")]);
    let survey = Survey::read(&whole);
    assert!(!survey.ends_before_directory && survey.oddities.is_empty(), "{:?}", survey.oddities);
    assert_eq!(survey.entries.len(), 2);
}

#[test]
fn an_archive_that_is_cut_anywhere_has_the_entries_that_are_there() {
    let (whole, starts) = archive(&[("a", b"12345"), ("b", b"678")]);
    let (b, directory) = (starts[1], starts[2]);
    for end in 31..whole.len() - 22 {
        let (entries, text) = interrupted(&whole[..end]);
        let of_a = end.min(b) - 31;
        let mut expected = vec![("a".to_owned(), of_a)];
        if end >= b + 31 {
            expected.push(("b".to_owned(), end.min(directory) - b - 31));
        }
        assert_eq!(entries, expected, "{end}");
        assert!(text.starts_with(&format!("it ends after {end} bytes, before the directory")), "{text}");
        let missing = if end < b { b - end } else { directory.saturating_sub(end) };
        let is_b = end >= b + 31;
        let missing = if !is_b && end >= b { 0 } else { missing };
        assert_eq!(text.contains(&format!("of which {missing} bytes are missing")), missing > 0, "{text}");
    }
    let nothing = interrupted(&whole[..10]);
    assert_eq!(nothing.0, []);
}

#[test]
fn data_without_a_length_extend_to_the_next_record() {
    let streamed = |name: &str, data: &[u8], descriptor: &[u8]| {
        [LOCAL, &fields(name, data, 8), name.as_bytes(), data, descriptor].concat()
    };
    let descriptor = [DESCRIPTOR, &[0; 12]].concat();
    let wide = [DESCRIPTOR, &[0; 20]].concat();
    let file = [
        streamed("a", b"123", &descriptor),
        streamed("b", b"4567", &wide),
        streamed("c", b"8", b""),
        streamed("d", b"90", b""),
    ]
    .concat();
    let (entries, text) = interrupted(&file);
    let expected = [("a", 3), ("b", 4), ("c", 1), ("d", 2)].map(|(name, len)| (name.to_owned(), len));
    assert_eq!(entries, expected);
    assert!(text.contains("`d` with 2 bytes, whose length is not known"), "{text}");
    // The file ends inside the directory.
    let (entries, _) = interrupted(&[&file[..], CENTRAL, &[0; 20]].concat());
    assert_eq!(entries, expected);
}

#[test]
fn archives_that_follow_one_another_are_a_sequence() {
    let (first, _) = archive(&[("a", b"12345")]);
    let (second, _) = archive(&[("b", b"678"), ("c", b"")]);
    let (empty, _) = archive(&[]);
    let (a, b) = (first.len(), second.len());
    assert_eq!(Survey::archive_ranges(&first), vec![Range { start: 0, end: a }]);
    assert_eq!(Survey::archive_ranges(&[&first[..], &second].concat()), [0..a, a..a + b]);
    let three = [&first[..], &empty, &second].concat();
    assert_eq!(Survey::archive_ranges(&three), [0..a, a..a + 22, a + 22..a + 22 + b]);
    for other in [
        Vec::new(),
        b"PK".to_vec(),
        first[1..].to_vec(),
        [b"x", &first[..]].concat(),
        [&first[..], b"x"].concat(),
        [&first[..], b"x", &second].concat(),
        [&first[..a - 1], &second].concat(),
        // Only the last archive is complete.
        [&second[..b - 3], &first[..]].concat(),
    ] {
        assert_eq!(Survey::archive_ranges(&other), [], "{}", other.escape_ascii());
    }
}

#[test]
fn a_directory_where_offsets_from_the_first_byte_lead_is_hidden() {
    let hidden = |parts: &[&[u8]]| {
        let whole = parts.concat();
        let ranges = Survey::archive_ranges(&whole);
        assert_eq!(ranges.len(), parts.len());
        Survey::has_hidden_directory(&whole, &ranges)
    };
    let (short, starts) = archive(&[("a", b"12345")]);
    let mut data = [0; 200];
    assert!(!hidden(&[&archive(&[("a", &data)]).0, &short]));
    assert!(
        !hidden(&[&short, &archive(&[("b", &data)]).0, &short]),
        "the first and the last are equally long"
    );
    // 31 bytes are before the data.
    data[starts[1] - 31..][..4].copy_from_slice(CENTRAL);
    assert!(hidden(&[&archive(&[("a", &data)]).0, &short]));
}

//! What a survey finds in archives that the strict reader rejects.

use byte_source::{Cancelled, Observer};
use zip_format::{Error, Survey};

use super::archive::{End, Entry, Header, ONE, Wide, archive};

/// The kinds of what is odd about an archive, and the names of its entries.
fn surveyed(bytes: &[u8]) -> (Vec<&'static str>, Vec<String>) {
    let survey = Survey::read(bytes);
    let kinds = survey.oddities.iter().map(|oddity| oddity.kind).collect();
    (kinds, survey.entries.into_iter().map(|entry| entry.name).collect())
}

/// Observer that stops the work at once.
struct Stop;

impl Observer for Stop {
    fn is_cancelled(&self) -> bool {
        true
    }
}

#[test]
fn an_observer_stops_a_survey() {
    let whole = archive(&[Entry::new("a")], &ONE);
    for bytes in [&whole[..], &whole[..whole.len() - 22]] {
        assert!(matches!(Survey::read_with_observer(bytes, &Stop), Err(Cancelled)));
    }
}

#[test]
fn a_long_gap_is_searched_to_its_end() {
    let hidden = &archive(&[Entry::new("hidden")], &ONE)[..36];
    // The search takes parts of 16 MiB, one of which ends in the signature of the local header, or next to it.
    for len in [(16 << 20) - 1, 16 << 20, (16 << 20) + 1] {
        let gap = [&vec![b'x'; len][..], hidden].concat();
        let bytes = two(Entry::new("a").followed_by(&gap), Entry::new("b"));
        let names = surveyed(&bytes).1;
        assert!(names.contains(&"hidden".to_owned()), "{len}: {names:?}");
    }
}

fn two(first: Entry, second: Entry) -> Vec<u8> {
    archive(&[first, second], &End { here: 2, ..ONE })
}

#[test]
fn the_last_bytes_of_an_archive_say_whether_it_is_one() {
    let whole = archive(&[Entry::new("a")], &ONE);
    assert!(Survey::ends_as_zip(&whole) && Survey::has_directory(&whole));
    let longer = [&whole[..], b"x"].concat();
    assert!(!Survey::ends_as_zip(&longer) && Survey::has_directory(&longer));
    assert!(!Survey::has_directory(&whole[..whole.len() - 22]));
    assert!(!Survey::has_directory(b"PK\x05\x06"));
}

#[test]
fn an_entry_that_is_not_listed_has_the_data_that_its_header_says() {
    for (packed, flags, len) in [(0, 0, 0), (2, 0, 2), (2, 8, 2), (0, 8, 5)] {
        let change = |header: &mut Header| (header.packed, header.flags) = (packed, flags);
        let mut hidden = Entry::new("hidden").with(change);
        hidden.data = b"12345";
        let hidden = archive(&[hidden], &ONE)[..41].to_vec();
        let bytes = two(Entry::new("a").followed_by(&hidden), Entry::new("b"));
        let survey = Survey::read(&bytes);
        let found = survey.entries.iter().find(|entry| entry.name == "hidden").expect("it is there");
        assert_eq!(found.stored_len(), len);
    }
}

#[test]
fn a_survey_finds_what_is_between_the_entries() {
    let [a, b] = ["a", "b"].map(Entry::new);
    let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(surveyed(&two(a.clone(), b.clone())), (vec![], names(&["a", "b"])));
    // Twelve or twenty bytes can be a descriptor without a signature, and sixteen or twenty-four one with it.
    for (after, is_odd) in [
        (&[7; 12][..], false),
        (&[7; 20], false),
        (&[7; 16], true),
        (&[7; 24], true),
        (&[7; 5], true),
        (b"PK\x07\x08012345678901", false),
        (b"PK\x07\x080123456789012345678901", true),
        (b"PK\x07\x0801234567890123456789", false),
    ] {
        let (kinds, _) = surveyed(&two(a.clone().followed_by(after), b.clone()));
        assert_eq!(kinds, if is_odd { vec!["gap"] } else { vec![] }, "{}", after.escape_ascii());
    }
    // An entry that only its local header names.
    let hidden = archive(&[Entry::new("hidden")], &ONE)[..39].to_vec();
    let (kinds, found) = surveyed(&two(a.followed_by(&hidden), b));
    assert_eq!((kinds, found), (vec!["gap", "unlisted"], names(&["a", "b", "hidden"])));
}

#[test]
fn a_survey_finds_what_is_around_an_archive() {
    let whole = archive(&[Entry::new("a")], &ONE);
    let longer = [&whole[..whole.len() - 2], b"\x03\0xyz"].concat();
    assert_eq!(surveyed(&longer).0, ["comment"]);
    let trailing = Survey::read(&[&whole[..], b"xyz"].concat()).oddities;
    assert!(trailing.iter().any(|oddity| oddity.text.starts_with("3 bytes follow")), "{trailing:?}");
    let wide = Wide { disk: 0, directory_disk: 0, here: 1, end_disk: 0, disks: 1 };
    assert_eq!(surveyed(&archive(&[Entry::new("a")], &End { wide: Some(wide), ..ONE })).0, [""; 0]);
    // Offsets that count from the archive's start, and from the file's.
    for before in [2, 12] {
        let mut moved = [&vec![b'x'; before][..], &whole].concat();
        let (kinds, names) = surveyed(&moved);
        assert_eq!((kinds, names.as_slice()), (vec!["prepended", "prepended"], &["a".to_owned()][..]));
        let line = before + 34 + 42;
        let end = moved.len() - 6;
        moved[line] = u8::try_from(before).expect("it is small");
        moved[end] = u8::try_from(before + 34).expect("it is small");
        assert_eq!(surveyed(&moved).0, ["prepended"]);
    }
    // A header where the directory starts is past the end of the entries.
    let mut past = whole;
    past[34 + 42] = 34;
    let oddities = Survey::read(&past).oddities;
    let error = Error::PastEnd { name: "a".to_owned(), end: 34, limit: 34 }.to_string();
    assert!(oddities.iter().any(|oddity| oddity.text == error), "{oddities:?}");
}

#[test]
fn a_survey_compares_the_entries() {
    let [a, b] = ["a", "b"].map(Entry::new);
    assert_eq!(surveyed(&two(a.clone(), a.clone())).0, ["duplicate"]);
    let long = a.clone().with(|header| (header.packed, header.len) = (5, 5));
    assert_eq!(surveyed(&two(long, b.clone())).0, ["overlap"]);
    let link = |target: &'static [u8]| {
        let unix = |header: &mut Header| (header.made_by, header.external) = (3 << 8, 0o120_777 << 16);
        let len = u32::try_from(target.len()).expect("it is short");
        let link = Entry { data: target, ..Entry::new("d/link") };
        let link = link.with(|header| (header.packed, header.len) = (len, len)).with_central(unix);
        surveyed(&two(link, a.clone())).0
    };
    assert_eq!(
        (link(b"../a"), link(b"../gone"), link(b"../../a"), link(b"/a")),
        (vec![], vec!["link"], vec!["link"], vec!["link"])
    );
}

#[test]
fn an_interrupted_entry_says_what_is_missing() {
    let text = |entry: Entry, len: usize| {
        let bytes = archive(&[entry], &ONE)[..len].to_vec();
        let oddities = Survey::read(&bytes).oddities;
        assert_eq!(oddities.len(), 1, "{oddities:?}");
        oddities[0].text.clone()
    };
    let empty = Entry { data: b"", ..Entry::new("a") }.with(|header| (header.packed, header.len) = (0, 0));
    assert!(text(empty, 31).contains("`a` with 0 bytes: "));
    let known = Entry::new("a").with(|header| header.flags = 8);
    assert!(text(known, 33).contains("`a` with 2 bytes, of which 1 bytes are missing"));
    assert!(text(Entry::streamed(b""), 33).contains("`a` with 2 bytes, whose length is not known"));
}

#[test]
fn a_sequence_has_at_most_a_million_archives() {
    let empty = archive(&[], &End { here: 0, ..ONE });
    assert_eq!(empty.len(), 22);
    assert_eq!(Survey::archive_ranges(&empty.repeat(1 << 20)).len(), 1 << 20);
    assert_eq!(Survey::archive_ranges(&empty.repeat((1 << 20) + 1)).len(), 0);
}

//! Archives made byte by byte, each with one thing that ordinary programs do not write.
//!
//! Facts: PKWARE's APPNOTE.TXT 6.3.10, sections 4.3 to 4.5; Info-ZIP's `proginfo/extrafld.txt`.

use std::io::Write;
use std::path::Path;

use mapped::MappedFile;
use tempfile::NamedTempFile;
use zip_index::{Error, Flaw, Index, Survey, flaws};

/// The fields of a local header and of a line of the directory, which has more of them.
#[derive(Clone)]
struct Header {
    made_by: u16,
    version: u16,
    flags: u16,
    time: u32,
    crc: u32,
    packed: u32,
    len: u32,
    disk: u16,
    internal: u16,
    external: u32,
    name: &'static str,
    extra: Vec<u8>,
}

/// One entry: its two headers, its data, and what follows them.
#[derive(Clone)]
struct Entry {
    local: Header,
    central: Header,
    data: &'static [u8],
    after: Vec<u8>,
}

impl Entry {
    /// A stored entry of three bytes.
    fn new(name: &'static str) -> Self {
        let header = Header {
            made_by: 0,
            version: 20,
            flags: 0,
            time: 7,
            crc: 0x1122_3344,
            packed: 3,
            len: 3,
            disk: 0,
            internal: 0,
            external: 0,
            name,
            extra: Vec::new(),
        };
        Self { local: header.clone(), central: header, data: b"123", after: Vec::new() }
    }

    /// The same change in both headers.
    fn with(mut self, change: impl Fn(&mut Header)) -> Self {
        change(&mut self.local);
        change(&mut self.central);
        self
    }

    fn with_local(mut self, change: impl Fn(&mut Header)) -> Self {
        change(&mut self.local);
        self
    }

    fn with_central(mut self, change: impl Fn(&mut Header)) -> Self {
        change(&mut self.central);
        self
    }

    fn followed_by(mut self, after: &[u8]) -> Self {
        self.after = after.to_vec();
        self
    }

    /// An entry whose checksum and sizes follow its data.
    fn streamed(descriptor: &[u8]) -> Self {
        let entry = Self::new("a").with(|header| header.flags = 8);
        let zeros = |header: &mut Header| (header.crc, header.packed, header.len) = (0, 0, 0);
        entry.with_local(zeros).followed_by(descriptor)
    }
}

/// What the end records say.
struct End {
    disk: u16,
    directory_disk: u16,
    here: u16,
    wide: Option<Wide>,
}

/// The zip64 records: two disks and the entries here in the end record, the disk and the number of disks in the locator.
struct Wide {
    disk: u32,
    directory_disk: u32,
    here: u64,
    end_disk: u32,
    disks: u32,
}

const ONE: End = End { disk: 0, directory_disk: 0, here: 1, wide: None };

fn archive(entries: &[Entry], end: &End) -> Vec<u8> {
    let (mut file, mut directory) = (Vec::new(), Vec::new());
    for Entry { local, central, data, after } in entries {
        let offset = u32::try_from(file.len()).expect("it is short");
        file.extend([&b"PK\x03\x04"[..], &fields(local), &lengths(local)].concat());
        file.extend([local.name.as_bytes(), &local.extra, data, after].concat());
        directory.extend([&b"PK\x01\x02"[..], &central.made_by.to_le_bytes(), &fields(central)].concat());
        directory.extend([&lengths(central)[..], &[0; 2], &central.disk.to_le_bytes()].concat());
        directory.extend([&central.internal.to_le_bytes()[..], &central.external.to_le_bytes()].concat());
        directory.extend([&offset.to_le_bytes()[..], central.name.as_bytes(), &central.extra].concat());
    }
    let (start, len, count) = (file.len() as u64, directory.len() as u64, entries.len() as u64);
    file.extend(directory);
    if let Some(wide) = &end.wide {
        let at = file.len() as u64;
        file.extend([&b"PK\x06\x06"[..], &44_u64.to_le_bytes(), &[45, 0, 45, 0]].concat());
        file.extend([wide.disk.to_le_bytes(), wide.directory_disk.to_le_bytes()].concat());
        file.extend([wide.here, count, len, start].map(u64::to_le_bytes).concat());
        file.extend([&b"PK\x06\x07"[..], &wide.end_disk.to_le_bytes(), &at.to_le_bytes()].concat());
        file.extend(wide.disks.to_le_bytes());
    }
    let count = u16::try_from(count).expect("they are few");
    file.extend(b"PK\x05\x06");
    file.extend([end.disk, end.directory_disk, end.here, count].map(u16::to_le_bytes).concat());
    file.extend([len, start].map(|n| u32::try_from(n).expect("it is short").to_le_bytes()).concat());
    file.extend([0; 2]);
    file
}

/// The fields that both kinds of header have, from the version to the size.
fn fields(header: &Header) -> Vec<u8> {
    let Header { version, flags, time, crc, packed, len, .. } = header;
    let short = [version.to_le_bytes(), flags.to_le_bytes(), [0; 2]].concat();
    [short, [time, crc, packed, len].map(|field| field.to_le_bytes()).concat()].concat()
}

fn lengths(header: &Header) -> Vec<u8> {
    [header.name.len(), header.extra.len()]
        .map(|len| u16::try_from(len).expect("short").to_le_bytes())
        .concat()
}

fn extra(id: u16, data: &[u8]) -> Vec<u8> {
    let len = u16::try_from(data.len()).expect("it is short");
    [&id.to_le_bytes()[..], &len.to_le_bytes(), data].concat()
}

fn mapped(bytes: &[u8]) -> MappedFile {
    let mut file = NamedTempFile::new().expect("a temporary file can be made");
    file.write_all(bytes).expect("it can be written");
    MappedFile::from_file(file.as_file(), Path::new("a.zip")).expect("it can be mapped")
}

fn flaws_of(entries: &[Entry], end: &End) -> Vec<Flaw> {
    flaws(&mapped(&archive(entries, end))).expect("all records are there")
}

/// The only flaw of an archive with this entry.
#[track_caller]
fn flaw(entry: Entry) -> Flaw {
    let mut found = flaws_of(&[entry], &ONE);
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

fn error(entries: &[Entry], end: &End) -> Option<Error> {
    Index::read(&mapped(&archive(entries, end))).err()
}

#[test]
fn what_programs_write_has_no_flaw() {
    let plain = || Entry::new("a");
    let unix =
        |mode: u32| move |header: &mut Header| (header.made_by, header.external) = (3 << 8, mode << 16);
    let entries = [
        plain(),
        plain().with(|header| header.flags = 0x806),
        Entry::new("é").with(|header| header.flags = 0x800),
        plain().with(|header| (header.version, header.internal) = (63, 1)),
        plain().with(|header| header.external = 0x31),
        plain().with(unix(0o100_644)),
        plain().with(unix(0o120_777)),
        plain().with(|header| (header.made_by, header.external) = (19 << 8, 0o120_777 << 16)),
        Entry::new("a/").with(unix(0o040_755)),
        plain().with(|header| header.extra = extra(0x4246, b"ZZZ")),
        plain().with(|header| {
            header.extra = [extra(1, &[0; 8]), extra(1, &[0; 16]), extra(1, &[0; 24])].concat();
        }),
    ];
    for entry in entries {
        assert_eq!(flaws_of(std::slice::from_ref(&entry), &ONE), [], "{}", entry.local.name);
    }
    for id in [0x000a, 0x5455, 0x7855, 0x7875, 0xd935, 0xa11e] {
        assert_eq!(flaws_of(&[plain().with(|header| header.extra = extra(id, b"12"))], &ONE), []);
    }
}

#[test]
fn fields_that_differ_between_the_headers_are_flaws() {
    let local = |what, local, central| Flaw::Local { name: "a".to_owned(), what, local, central };
    let entry = || Entry::new("a");
    assert_eq!(flaw(entry().with_local(|header| header.version = 10)), local("the version needed", 10, 20));
    assert_eq!(flaw(entry().with_local(|header| header.flags = 2)), local("the flags", 2, 0));
    assert_eq!(flaw(entry().with_local(|header| header.time = 8)), local("the time", 8, 7));
    assert_eq!(flaw(entry().with_local(|header| header.crc = 8)), local("the CRC-32", 8, 0x1122_3344));
    assert_eq!(flaw(entry().with_local(|header| header.packed = 4)), local("the compressed size", 4, 3));
    assert_eq!(flaw(entry().with_local(|header| header.len = 4)), local("the size", 4, 3));
    // With a descriptor the three are zero, or right as without one.
    let descriptor = [0x44, 0x33, 0x22, 0x11, 3, 0, 0, 0, 3, 0, 0, 0];
    let known = || entry().with(|header| header.flags = 8).followed_by(&descriptor);
    assert_eq!(flaws_of(&[known()], &ONE), []);
    assert_eq!(flaw(known().with_local(|header| header.crc = 0)), local("the CRC-32", 0, 0x1122_3344));
    let two = known().with_local(|header| (header.crc, header.len) = (0, 0));
    assert_eq!(flaw(two), local("the compressed size", 3, 3));
}

#[test]
fn fields_with_undefined_values_are_flaws() {
    let field = |entry: Entry| match flaw(entry) {
        Flaw::Field { what, found, .. } => (what, found),
        other => panic!("{other:?}"),
    };
    let with = |change: fn(&mut Header)| field(Entry::new("a").with(change));
    assert_eq!(with(|header| header.flags = 0x10), ("the flags", 0x10));
    assert_eq!(field(Entry::new("é")), ("the flags", 0));
    assert_eq!(field(Entry::new("é").with(|header| header.flags = 2)), ("the flags", 2));
    assert_eq!(with(|header| header.version = 64), ("the version needed", 64));
    assert_eq!(with(|header| header.disk = 1), ("the disk", 1));
    assert_eq!(with(|header| header.internal = 2), ("the internal attributes", 2));
    for (made_by, external) in [
        (0, 0x40),
        (0, 0x8000),
        (3 << 8, 0o104_644 << 16),
        (19 << 8, 0o101_644 << 16),
        // A folder whose name is a file's, a link where there are none, a pipe.
        (3 << 8, 0o040_755 << 16),
        (0, 0o120_777 << 16),
        (3 << 8, 0o010_644 << 16),
    ] {
        let entry = Entry::new("a").with(|header| (header.made_by, header.external) = (made_by, external));
        assert_eq!(field(entry), ("the external attributes", external.into()), "{external:x}");
    }
    // Elsewhere these three bits mean nothing.
    let entry = Entry::new("a").with(|header| header.external = 0o104_644 << 16);
    assert_eq!(flaws_of(&[entry], &ONE), []);
}

#[test]
fn extra_fields_that_no_program_writes_are_flaws() {
    let name = || "a".to_owned();
    let entry = |extra: &[u8]| Entry::new("a").with_central(|header| header.extra = extra.to_vec());
    let place = "the directory";
    assert_eq!(flaw(entry(b"\x46\x42\x09\0Z")), Flaw::ExtraCut { name: name(), place });
    assert_eq!(flaw(entry(b"\x46")), Flaw::ExtraCut { name: name(), place });
    assert_eq!(flaw(entry(&extra(0x4246, b"ZYZ"))), Flaw::Padding { name: name(), place });
    assert_eq!(flaw(entry(&extra(0x1234, b""))), Flaw::Extra { name: name(), place, id: 0x1234 });
    assert_eq!(flaw(entry(&extra(1, &[0; 9]))), Flaw::Extra { name: name(), place, id: 1 });
    let place = "its local header";
    let local = Entry::new("a").with_local(|header| header.extra = extra(0x1234, b""));
    assert_eq!(flaw(local), Flaw::Extra { name: name(), place, id: 0x1234 });
}

#[test]
fn a_descriptor_has_one_of_four_forms() {
    let (crc, narrow, wide) = ([0x44, 0x33, 0x22, 0x11], 3_u32.to_le_bytes(), 3_u64.to_le_bytes());
    let right = [[&crc[..], &narrow, &narrow].concat(), [&crc[..], &wide, &wide].concat()];
    for descriptor in &right {
        let signed = [b"PK\x07\x08", &descriptor[..]].concat();
        for descriptor in [descriptor, &signed] {
            assert_eq!(flaws_of(&[Entry::streamed(descriptor)], &ONE), [], "{descriptor:x?}");
            let mut wrong = descriptor.clone();
            let last = wrong.len() - 1;
            wrong[last] = 1;
            let long = [descriptor, &b"\0"[..]].concat();
            for wrong in [wrong, long, descriptor[..last].to_vec()] {
                let name = "a".to_owned();
                let expected = Flaw::Descriptor { name, crc: 0x1122_3344, packed: 3, len: 3 };
                assert_eq!(flaw(Entry::streamed(&wrong)), expected, "{wrong:x?}");
            }
        }
    }
}

#[test]
fn bytes_between_entries_are_flaws() {
    let gap = flaws_of(&[Entry::new("a").followed_by(b"xy"), Entry::new("b")], &End { here: 2, ..ONE });
    assert_eq!(gap, [Flaw::Gap { after: Some("a".to_owned()), offset: 34, len: 2 }]);
    let last = flaw(Entry::new("a").followed_by(b"xy"));
    assert_eq!(last, Flaw::Gap { after: Some("a".to_owned()), offset: 34, len: 2 });
    // The archive's offsets count from its own start, so they are made two greater.
    let mut later = [b"xy", &archive(&[Entry::new("a")], &ONE)[..]].concat();
    let (line, end) = (2 + 34 + 42, later.len() - 6);
    (later[line], later[end]) = (2, 36);
    let found = flaws(&mapped(&later)).expect("all records are there");
    assert_eq!(found, [Flaw::Gap { after: None, offset: 0, len: 2 }]);
}

#[test]
fn an_archive_on_several_disks_is_rejected_or_flawed() {
    let wide = |change: fn(&mut Wide)| {
        let mut wide = Wide { disk: 0, directory_disk: 0, here: 1, end_disk: 0, disks: 1 };
        change(&mut wide);
        End { wide: Some(wide), ..ONE }
    };
    let entry = || [Entry::new("a")];
    assert_eq!((error(&entry(), &ONE), flaws_of(&entry(), &ONE)), (None, Vec::new()));
    let usual = wide(|_| ());
    assert_eq!((error(&entry(), &usual), flaws_of(&entry(), &usual)), (None, Vec::new()));
    for end in [
        End { here: 0, ..ONE },
        End { here: 0, ..wide(|_| ()) },
        End { disk: 1, ..wide(|_| ()) },
        End { directory_disk: 1, ..wide(|_| ()) },
        wide(|wide| wide.disk = 1),
        wide(|wide| wide.directory_disk = 1),
        wide(|wide| (wide.disk, wide.directory_disk) = (1, 1)),
        wide(|wide| wide.here = 0),
        wide(|wide| wide.end_disk = 1),
        wide(|wide| wide.disks = 0),
    ] {
        assert_eq!((error(&entry(), &end), flaws_of(&entry(), &end)), (None, vec![Flaw::Disks]));
    }
    for end in [End { disk: 1, ..ONE }, End { directory_disk: 1, ..ONE }, wide(|wide| wide.disks = 2)] {
        assert!(matches!(error(&entry(), &end), Some(Error::Disks)));
    }
}

#[test]
fn an_entry_that_only_one_header_calls_encrypted_is_rejected() {
    for flag in [1, 1 << 6, 1 << 13] {
        let central = Entry::new("a").with_central(|header| header.flags = flag);
        let local = Entry::new("a").with_local(|header| header.flags = flag);
        for entry in [central, local] {
            assert!(matches!(error(&[entry], &ONE), Some(Error::Encrypted { .. })), "{flag:x}");
        }
    }
}

#[test]
fn two_entries_of_one_name_are_rejected_without_a_third() {
    let two = [Entry::new("a"), Entry::new("a")];
    let found = error(&two, &End { here: 2, ..ONE });
    assert!(matches!(found, Some(Error::Duplicate { first: 0, second: 34, .. })), "{found:?}");
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
fn errors_and_flaws_name_their_entry() {
    let name = || "a".to_owned();
    let error = Error::Overlap { first: name(), second: "b".to_owned(), offset: 1 };
    assert_eq!((error.entry(), Error::Disks.entry()), (Some("a"), None));
    let gap = |after| Flaw::Gap { after, offset: 0, len: 1 };
    assert_eq!(gap(Some(name())).entry(), Some("a"));
    assert_eq!((gap(None).entry(), Flaw::Disks.entry()), (None, None));
    assert_eq!(Flaw::Padding { name: name(), place: "the directory" }.entry(), Some("a"));
}

#[test]
fn entries_that_readers_see_differently_are_rejected() {
    let with = |change: fn(&mut Header)| error(&[Entry::new("a").with(change)], &ONE);
    assert!(matches!(with(|header| header.flags = 1 << 5), Some(Error::Patch { .. })));
    let other_name = |name: &[u8]| extra(0x7075, &[&[1, 0, 0, 0, 0][..], name].concat());
    assert_eq!(with(|header| header.extra = extra(1, &[0; 8])), None);
    let twice = with(|header| header.extra = [extra(1, &[0; 8]), extra(1, &[0; 8])].concat());
    assert!(matches!(twice, Some(Error::TwoZip64 { .. })));
    for (name, is_same) in [(b"a", true), (b"b", false)] {
        let entry = Entry::new("a").with(|header| header.extra = other_name(name));
        let found = error(&[entry], &ONE);
        assert_eq!(matches!(found, Some(Error::TwoNames { .. })), !is_same, "{found:?}");
    }
}

#[test]
fn wide_sizes_are_in_the_extra_field() {
    let wide = |fields: &[u64]| {
        let fields = fields.iter().flat_map(|field| field.to_le_bytes()).collect::<Vec<_>>();
        Entry::new("a").with(|header| {
            (header.len, header.packed) = (u32::MAX, u32::MAX);
            header.extra = [extra(0x5455, b"1"), extra(1, &fields)].concat();
        })
    };
    let index = Index::read(&mapped(&archive(&[wide(&[3, 3])], &ONE))).expect("the sizes are right");
    let [entry] = index.entries.as_slice() else { panic!("one entry") };
    assert_eq!((entry.len, entry.data.len()), (3, 3));
    assert!(error(&[wide(&[3])], &ONE).is_some(), "one of two sizes is missing");
    // Sizes that are not full are those of the header.
    let both = Entry::new("a").with(|header| header.extra = extra(1, &[7; 16]));
    assert_eq!(error(&[both], &ONE), None);
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
        assert_eq!(found.data.len(), len);
    }
}

/// The kinds of what is odd about an archive, and the names of its entries.
fn surveyed(bytes: &[u8]) -> (Vec<&'static str>, Vec<String>) {
    let survey = Survey::read(bytes);
    let kinds = survey.oddities.iter().map(|oddity| oddity.kind).collect();
    (kinds, survey.entries.into_iter().map(|entry| entry.name).collect())
}

fn two(first: Entry, second: Entry) -> Vec<u8> {
    archive(&[first, second], &End { here: 2, ..ONE })
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
    assert_eq!(Survey::sequence(&empty.repeat(1 << 20)).len(), 1 << 20);
    assert_eq!(Survey::sequence(&empty.repeat((1 << 20) + 1)).len(), 0);
}

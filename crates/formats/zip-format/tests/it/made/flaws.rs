//! Flaws that readers ignore.

use zip_format::{Error, Flaw, flaws};

use super::archive::{End, Entry, Header, ONE, Wide, archive, error, extra, flaws_of, mapped};

/// The only flaw of an archive with this entry.
#[track_caller]
fn flaw(entry: Entry) -> Flaw {
    let mut found = flaws_of(&[entry], &ONE);
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
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
    assert_eq!(gap, [Flaw::StrayBytes { after: Some("a".to_owned()), offset: 34, len: 2 }]);
    let last = flaw(Entry::new("a").followed_by(b"xy"));
    assert_eq!(last, Flaw::StrayBytes { after: Some("a".to_owned()), offset: 34, len: 2 });
    // The archive's offsets count from its own start, so they are made two greater.
    let mut later = [b"xy", &archive(&[Entry::new("a")], &ONE)[..]].concat();
    let (line, end) = (2 + 34 + 42, later.len() - 6);
    (later[line], later[end]) = (2, 36);
    let found = flaws(&mapped(&later)).expect("all records are there");
    assert_eq!(found, [Flaw::StrayBytes { after: None, offset: 0, len: 2 }]);
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
        assert!(matches!(error(&entry(), &end), Some(Error::MultipleDisks)));
    }
}

#[test]
fn errors_and_flaws_name_their_entry() {
    let name = || "a".to_owned();
    let error = Error::Overlap { first: name(), second: "b".to_owned(), offset: 1 };
    assert_eq!((error.entry(), Error::MultipleDisks.entry()), (Some("a"), None));
    let gap = |after| Flaw::StrayBytes { after, offset: 0, len: 1 };
    assert_eq!(gap(Some(name())).entry(), Some("a"));
    assert_eq!((gap(None).entry(), Flaw::Disks.entry()), (None, None));
    assert_eq!(Flaw::Padding { name: name(), place: "the directory" }.entry(), Some("a"));
}

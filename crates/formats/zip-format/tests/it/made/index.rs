//! What the strict reader accepts and rejects.

use zip_format::{Error, ZipIndex};

use super::archive::{End, Entry, Header, ONE, archive, error, extra, mapped};

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
fn entries_that_readers_see_differently_are_rejected() {
    let with = |change: fn(&mut Header)| error(&[Entry::new("a").with(change)], &ONE);
    assert!(matches!(with(|header| header.flags = 1 << 5), Some(Error::Patch { .. })));
    let other_name = |name: &[u8]| extra(0x7075, &[&[1, 0, 0, 0, 0][..], name].concat());
    assert_eq!(with(|header| header.extra = extra(1, &[0; 8])), None);
    let twice = with(|header| header.extra = [extra(1, &[0; 8]), extra(1, &[0; 8])].concat());
    assert!(matches!(twice, Some(Error::DuplicateZip64 { .. })));
    for (name, is_same) in [(b"a", true), (b"b", false)] {
        let entry = Entry::new("a").with(|header| header.extra = other_name(name));
        let found = error(&[entry], &ONE);
        assert_eq!(matches!(found, Some(Error::SecondName { .. })), !is_same, "{found:?}");
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
    let index = ZipIndex::read(&mapped(&archive(&[wide(&[3, 3])], &ONE))).expect("the sizes are right");
    let [entry] = index.entries.as_slice() else { panic!("one entry") };
    assert_eq!((entry.len, entry.stored_len()), (3, 3));
    assert!(error(&[wide(&[3])], &ONE).is_some(), "one of two sizes is missing");
    // Sizes that are not full are those of the header.
    let both = Entry::new("a").with(|header| header.extra = extra(1, &[7; 16]));
    assert_eq!(error(&[both], &ONE), None);
}

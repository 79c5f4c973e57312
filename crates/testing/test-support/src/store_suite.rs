//! The behaviour that every store has, as far as it says that it can.

use std::io::{self, Write};

use byte_source::{Location, Replaced, Stat};

/// Files of the folder that [`check_store`] looks at: a path relative to it, and the bytes.
pub const STORE_FILES: [(&str, &[u8]); 3] =
    [("a.bin", b"first"), ("b/c.bin", b"second"), ("b/d/e.bin", b"third")];

/// What a store says that it can do, besides opening files.
#[derive(Clone, Copy, Debug, Default)]
pub struct StoreClaims {
    /// It lists folders.
    pub lists: bool,
    /// It creates files.
    pub creates: bool,
}

/// Checks a store in which `folder` has the [`STORE_FILES`] and nothing else.
///
/// # Panics
/// When the store behaves in another way than the documentation of [`Store`](byte_source::Store) says.
pub fn check_store(folder: &Location, claims: StoreClaims) {
    for (path, bytes) in STORE_FILES {
        let file = folder.join(path);
        let Ok(Some(Stat::File(stat))) = file.stat() else { panic!("{path}: {:?}", file.stat()) };
        assert!(stat.len.is_none_or(|len| len == bytes.len() as u64), "{path}: {stat:?}");
        assert!(file.is_file() && !file.is_folder(), "{path}");
        let source = file.open().expect("it is there");
        assert_eq!((source.path(), source.len()), (file.path(), bytes.len() as u64), "{path}");
        let rest = bytes.get(1..).expect("it is longer");
        assert_eq!(source.read_range(1..source.len()).expect("inside"), rest, "{path}");
        let past = source.len().saturating_add(1);
        assert!(source.read_range(0..past).is_err(), "{path}: past the end");
    }
    let paths = STORE_FILES.map(|(path, _)| folder.path().join(path));
    let opened = folder.store().open(&paths).expect("they are there");
    assert!(opened.iter().map(|source| source.path()).eq(&paths), "files are opened in order");
    assert!(folder.store().open(&[]).expect("nothing is asked for").is_empty());
    let missing = folder.join("missing.bin");
    assert_eq!(missing.stat().expect("nothing is there"), None);
    missing.open().map(|_| ()).expect_err("nothing is there");

    let listed = folder.list();
    if claims.lists {
        let top = listed.expect("it has listings");
        assert_eq!(
            (top.listing.files.as_slice(), top.listing.folders.as_slice()),
            (&["a.bin".to_owned()][..], &["b".to_owned()][..])
        );
        assert!(top.listing.has_file("a.bin") && !top.listing.has_file("b") && top.listing.has_folder("b"));
        let below = top.below("b").expect("it is a folder");
        assert_eq!(
            (below.listing.files, below.listing.folders),
            (vec!["c.bin".to_owned()], vec!["d".to_owned()])
        );
        assert_eq!(folder.files_below().expect("it has listings"), STORE_FILES.map(|(path, _)| path));
        assert!(folder.is_folder() && folder.join("b").is_folder() && !folder.join("a").is_folder());
        assert_eq!(folder.join("b").folder_name(), "b");
    } else {
        assert_eq!(listed.map(|_| ()).map_err(|error| error.kind()), Err(io::ErrorKind::Unsupported));
    }

    let created = folder.store().create(missing.path(), 3);
    if claims.creates {
        check_uploads(&missing);
    } else {
        assert_eq!(created.map(|_| ()).map_err(|error| error.kind()), Err(io::ErrorKind::Unsupported));
    }
}

/// Checks what may be replaced by uploads. Nothing is at `file` before and after it.
fn check_uploads(file: &Location) {
    let send = |bytes: &[u8], replaced: &Replaced| {
        let mut upload = file.store().create(file.path(), bytes.len() as u64)?;
        upload.write_all(bytes)?;
        let before = file.stat()?;
        upload.complete(replaced)?;
        io::Result::Ok(before)
    };
    let read = || {
        let source = file.open()?;
        Result::<_, byte_source::Error>::Ok(source.read_range(0..source.len())?.to_vec())
    };
    drop(file.store().create(file.path(), 3).expect("it creates files"));
    assert_eq!(file.stat().expect("nothing is there"), None, "an upload that is dropped leaves nothing");
    assert_eq!(
        send(b"one", &Replaced::Nothing).expect("nothing is there"),
        None,
        "it is seen when it is complete"
    );
    assert_eq!(read().expect("it was sent"), b"one");
    let refused = send(b"two", &Replaced::Nothing).map_err(|error| error.kind());
    assert_eq!(refused, Err(io::ErrorKind::AlreadyExists));
    let Ok(Some(Stat::File(first))) = file.stat() else { panic!("it was sent") };
    assert!(first.is_own);
    send(b"three", &Replaced::Version(first.clone())).expect("it is the version");
    let refused = send(b"four", &Replaced::Version(first)).map_err(|error| error.kind());
    assert_eq!(refused.map(|_| ()), Err(io::ErrorKind::AlreadyExists));
    assert_eq!(read().expect("it was sent"), b"three");
    send(b"five", &Replaced::Anything).expect("anything is replaced");
    assert_eq!(read().expect("it was sent"), b"five");
}

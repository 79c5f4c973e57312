//! The stores of this crate behave as every store does.

use std::path::Path;
use std::sync::Arc;

use byte_source::{BufferSource, Location, MemoryStore, Source, Stores};
use test_support::{STORE_FILES, StoreClaims, check_store};

#[test]
fn a_local_folder_is_a_store() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (path, bytes) in STORE_FILES {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a temporary folder");
        std::fs::write(path, bytes).expect("a temporary folder");
    }
    let location = Location::from(folder.path());
    assert!(location.is_local());
    check_store(&location, StoreClaims { lists: true, creates: false });
}

#[cfg(unix)]
#[test]
fn a_local_listing_follows_links() {
    use std::os::unix::fs::symlink;
    let folder = tempfile::tempdir().expect("a temporary folder");
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("file"), "x").expect("a temporary folder");
    std::fs::create_dir(at("folder")).expect("a temporary folder");
    for (target, link) in [("file", "to-file"), ("folder", "to-folder"), ("nothing", "to-nothing")] {
        symlink(target, at(link)).expect("a temporary folder");
    }
    let listing = Location::from(folder.path()).list().expect("it is there").listing;
    assert_eq!(listing.files, ["file", "to-file"]);
    assert_eq!(listing.folders, ["folder", "to-folder"]);
    assert_eq!(listing.links, ["to-file", "to-folder"]);
    assert_eq!(listing.dangling_links, ["to-nothing"]);
}

#[test]
fn memory_is_a_store() {
    let source = |(path, bytes): (&str, &[u8])| {
        Arc::new(BufferSource::new(Path::new("far://m").join(path), bytes.to_vec())) as Arc<dyn Source>
    };
    let store: MemoryStore = STORE_FILES.map(source).into_iter().collect();
    let location = Location::new(Arc::new(store), "far://m");
    assert!(!location.is_local());
    check_store(&location, StoreClaims { lists: true, creates: true });
}

#[test]
fn a_source_has_nothing_next_to_it() {
    let source: Arc<dyn Source> = Arc::new(BufferSource::new("a/x.bin", "bytes"));
    let location = Location::from(source);
    assert!(location.is_file() && !location.is_local());
    assert_eq!(location.open().expect("it is open").len(), 5);
    assert_eq!(location.join("y").stat().expect("nothing is there"), None);
    let listed = location.parent().list().map(|_| ()).expect_err("there are no listings");
    assert_eq!(listed.kind(), std::io::ErrorKind::Unsupported);
}

#[test]
fn a_text_is_a_local_path_unless_a_store_has_it() {
    let stores = Stores::with_addresses(|text| {
        let is_far = text.starts_with("far://");
        Ok(is_far.then(|| Location::new(Arc::new(MemoryStore::default()), text)))
    });
    for (text, is_local) in [("a/b.pth", true), ("far://m/b.pth", false)] {
        let location = stores.locate(Path::new(text)).expect("nothing is opened");
        assert_eq!((location.path(), location.is_local()), (Path::new(text), is_local));
    }
    assert!(Stores::default().locate(Path::new("far://m")).expect("a path").is_local());
}

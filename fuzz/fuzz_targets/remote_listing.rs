//! A listing of a remote folder is read or refused. What is read has a commit, and paths below the folder alone.

#![no_main]

use std::path::{Component, Path};

use libfuzzer_sys::fuzz_target;
use remote_source::listing::{HubListing, index_files};

fn is_below(path: &str) -> bool {
    Path::new(path).components().all(|part| matches!(part, Component::Normal(_)))
}

fuzz_target!(|bytes: &[u8]| {
    if let Ok(listing) = HubListing::from_json(bytes) {
        assert!(listing.commit.len() >= 40 && listing.commit.chars().all(|c| c.is_ascii_hexdigit()));
        assert!(listing.files.keys().all(|path| is_below(path)));
        let below = listing.below("a");
        assert!(below.files.keys().all(|path| is_below(path)));
    }
    if let Ok(files) = index_files(bytes) {
        assert!(files.iter().all(|name| is_below(name) && !name.contains('/')));
    }
});

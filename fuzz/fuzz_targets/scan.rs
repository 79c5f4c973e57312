//! A scan ends for any bytes, and names every global that the pickle machine sees, whether the pickle is alone or in an
//! archive, a tensor's storage or another pickle's byte string.

#![no_main]

use std::collections::BTreeSet;

use pickle_vm::{Writer, load};
use torch_import::{Risk, Scan, ScanDepth};
use torch2carton_fuzz::{archive, input::source};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let alone = scan(bytes);
    let Ok(pickle) = load(bytes) else { return };
    // Of a file in another format, a pickle may be a part that nothing loads.
    let is_pickle = alone.as_ref().is_some_and(|scan| scan.format == "pickle");
    let named: BTreeSet<(String, String)> = pickle
        .heap
        .ids()
        .filter_map(|id| pickle.heap.global(id))
        .map(|(module, name)| (module.to_owned(), name.to_owned()))
        .collect();
    let exact = &bytes[..pickle.len as usize];
    if is_pickle {
        assert_names(alone.as_ref(), &named);
    }
    assert_names(scan(&archive::zip(&[("a/data.pkl", exact), ("a/version", b"3\n")])).as_ref(), &named);
    assert_names(scan(&archive::zip(&[("a/data.pkl", b"N."), ("a/other", exact)])).as_ref(), &named);
    assert_names(scan(&loads(exact)).as_ref(), &named);
});

fn scan(bytes: &[u8]) -> Option<Scan> {
    let input = source(bytes);
    Scan::source(&input, ScanDepth::Checksums, &()).ok()
}

/// A pickle that gives these bytes to `torch.storage._load_from_bytes`.
fn loads(bytes: &[u8]) -> Vec<u8> {
    let mut writer = Writer::new();
    writer.global("torch.storage", "_load_from_bytes").expect("the names have no line breaks");
    let mut pickle = writer.finish();
    pickle.pop();
    pickle.push(b'B');
    pickle.extend((bytes.len() as u32).to_le_bytes());
    pickle.extend(bytes);
    pickle.extend(b"\x85R.");
    pickle
}

/// Every global is reported, or it is one that a scan knows to be harmless, or the scan says that it is incomplete.
fn assert_names(scan: Option<&Scan>, named: &BTreeSet<(String, String)>) {
    let Some(scan) = scan else { return };
    if !scan.missed.is_empty() || scan.pickles.iter().any(|pickle| pickle.error.is_some()) {
        return;
    }
    let uses = || scan.pickles.iter().flat_map(|pickle| &pickle.uses);
    for (module, name) in named {
        assert!(
            uses().any(|found| found.global.module == *module && found.global.name == *name),
            "{module}.{name} is not in {scan:?}"
        );
    }
    let dangerous = uses().filter(|found| found.risk == Risk::Dangerous);
    assert!(dangerous.count() <= uses().count());
}

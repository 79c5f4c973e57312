//! Scans of folders that `torch.package` reads like its archives.

use std::fs;

use inspect::{ScanOptions, ScanSummary, scan};

const PICKLE: &[u8] = b"\x80\x02ccollections\nOrderedDict\n)R.";

/// Scans a folder with a pickle, a Python module, and another file.
fn summary(other: &str) -> ScanSummary {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (name, bytes) in [("p/model/a.pkl", PICKLE), ("p/collections.py", b"x = 1\n"), (other, b"os\n")] {
        let file = folder.path().join(name);
        fs::create_dir_all(file.parent().expect("it is in a folder")).expect("it can be made");
        fs::write(file, bytes).expect("it can be written");
    }
    scan(&ScanOptions::new([folder.path()]), &(), &mut |_| Ok(())).expect("nothing stops it")
}

#[test]
fn an_unpacked_package_brings_modules_of_any_name() {
    let found = summary("p/data/extern_modules");
    assert_eq!((found.clean, found.unknown, found.incomplete), (1, 0, 0));
    let found = summary("q/.data/extern_modules");
    assert_eq!((found.clean, found.unknown, found.incomplete), (1, 0, 0));
    for name in ["p/.data/extern_modules", "p/.DATA/EXTERN_MODULES"] {
        let found = summary(name);
        assert_eq!((found.clean, found.unknown, found.incomplete), (0, 1, 1), "{name}");
    }
}

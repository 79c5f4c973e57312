//! Compares the parts that the metadata of `torch.distributed.checkpoint` name with the archives in the files of parts.
//!
//! Facts: `FileSystemReader` of `filesystem.py` and `load_bytes` of `default_planner.py` of PyTorch 2.15. It unpickles any bytes of any
//! file that `.metadata` names; only those of whole archives were scanned as it reads them.

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;
use std::path::{Component, Path};

use byte_source::{Location, format_things};
use torch_import::{Finding, NamedRange, Scan};
use zip_format::Survey;

/// Adds to the scan of a metadata file what is wrong with the parts that it names.
pub(super) fn check_parts(file: &Location, scan: &mut Scan) {
    let name = file.path().file_name().unwrap_or_default().to_string_lossy();
    if !name.ends_with(".metadata") {
        return;
    }
    let mut files: BTreeMap<&str, Vec<&NamedRange>> = BTreeMap::new();
    for part in &scan.named_ranges {
        files.entry(&part.file).or_default().push(part);
    }
    let (mut findings, mut missed) = (Vec::new(), Vec::new());
    for (name, parts) in files {
        let shown = name.escape_debug();
        let mut components = Path::new(name).components();
        if !matches!((components.next(), components.next()), (Some(Component::Normal(_)), None)) {
            let text = format!("the parts in `{shown}`, which is not a file next to the metadata");
            findings.push(Finding { kind: "parts", text });
            continue;
        }
        let place = file.parent().join(Path::new(name));
        if !place.is_file() {
            continue;
        }
        let archives = archives(&place).filter(|_| !parts.iter().any(|part| part.is_transformed));
        let Some(archives) = archives else {
            missed.push(format!("the places of the parts in `{shown}` were not compared with its archives"));
            continue;
        };
        let is_archive = |part: &&NamedRange| part.range.as_ref().is_some_and(|it| archives.contains(it));
        let others: Vec<&NamedRange> = parts.into_iter().filter(|part| !is_archive(part)).collect();
        if let Some(first) = others.first() {
            let (is, are) = if others.len() == 1 { ("is", "an archive") } else { ("are", "archives") };
            let at = first.range.as_ref().map_or_else(String::new, |range| {
                format!(", the first at the bytes {} to {}", range.start, range.end)
            });
            let parts = format_things(others.len(), "part");
            let text = format!(
                "{parts} in `{shown}`{at}, {is} not {are} of the file, so PyTorch unpickles other bytes than were scanned"
            );
            findings.push(Finding { kind: "parts", text });
        }
    }
    scan.findings.extend(findings);
    scan.missed.extend(missed);
}

/// Returns the ranges of the archives in a file of parts; `None` if it cannot be read, or only by requests.
fn archives(file: &Location) -> Option<HashSet<Range<u64>>> {
    let source = file.open().ok().filter(|source| !source.has_latency())?;
    let bytes = source.share(0..source.len()).ok()?;
    let ranges = Survey::archive_ranges(&bytes);
    Some(ranges.into_iter().map(|range| range.start as u64..range.end as u64).collect())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use test_support::stored_zip;

    use super::*;

    #[test]
    fn parts_are_archives_of_files_next_to_the_metadata() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let [first, second] = [b"a", b"b"].map(|name| stored_zip([("archive/data.pkl", name)]));
        fs::write(folder.path().join("__0_0.distcp"), [&first[..], &second].concat()).expect("a file");
        let (a, b) = (first.len() as u64, second.len() as u64);
        let found = |name: &str, file: &str, ranges: &[Option<Range<u64>>]| {
            let named = |range: &Option<Range<u64>>| NamedRange {
                file: file.to_owned(),
                range: range.clone(),
                is_transformed: false,
            };
            let named_ranges = ranges.iter().map(named);
            let mut scan = Scan { named_ranges: named_ranges.collect(), ..Scan::default() };
            check_parts(&Location::from(&folder.path().join(name)), &mut scan);
            assert!(scan.missed.is_empty());
            scan.findings.into_iter().map(|finding| finding.text).collect::<Vec<_>>()
        };
        let good = [Some(0..a), Some(a..a.saturating_add(b)), Some(0..a)];
        assert!(found(".metadata", "__0_0.distcp", &good).is_empty());
        assert!(found(".metadata", "absent.distcp", &good).is_empty());
        assert!(found("other.pkl", "__0_0.distcp", &[None]).is_empty());
        assert_eq!(
            found("__1.metadata", "__0_0.distcp", &[Some(3..a), None, Some(0..a)]),
            [format!(
                "2 parts in `__0_0.distcp`, the first at the bytes 3 to {a}, are not archives of the file, so PyTorch unpickles other bytes than were scanned"
            )]
        );
        let part = NamedRange { file: "__0_0.distcp".to_owned(), range: Some(0..3), is_transformed: true };
        let mut scan = Scan { named_ranges: vec![part], ..Scan::default() };
        check_parts(&Location::from(&folder.path().join(".metadata")), &mut scan);
        assert_eq!((scan.findings.len(), scan.missed.len()), (0, 1), "compressed parts are not compared");
        for file in ["../x", "/x", "", "a/b"] {
            assert_eq!(found(".metadata", file, &[None]).len(), 1, "{file}");
        }
    }
}

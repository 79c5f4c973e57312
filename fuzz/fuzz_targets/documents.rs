//! A scan of a document ends for any bytes, and finds a callable wherever `serde_json` reads one, in the document, in a zip archive
//! and in base64.

#![no_main]

use serde_json::Value;
use torch_import::{DocumentKind, Scan, ScanDepth};
use torch2carton_fuzz::{archive, input::source};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((kind, text)) = bytes.split_first() else { return };
    let (kind, name) = match kind % 3 {
        0 => (DocumentKind::Json, "a.json"),
        1 => (DocumentKind::Yaml, "a.yaml"),
        _ => (DocumentKind::Template, "a.jinja"),
    };
    let is_near = |name: &str| name.len() == 1;
    let (alone, references) = Scan::document(&source(text), kind, &is_near, &()).expect("it is in memory");
    assert!(references.len() <= 1 << 10);
    let zip = archive::zip(&[(name, text)]);
    let packed = Scan::source(&source(&zip), ScanDepth::Everything, &()).ok();
    if kind == DocumentKind::Json
        && let Ok(value) = serde_json::from_slice::<Value>(text)
        && names_callable(&value)
    {
        assert!(is_dangerous(&alone) && packed.is_none_or(|scan| is_dangerous(&scan)), "{value}");
    }
});

fn is_dangerous(scan: &Scan) -> bool {
    scan.uses().any(|(_, found)| found.risk == torch_import::Risk::Dangerous) || scan.omitted.total() > 0
}

/// Whether `_target_` is `os.system` anywhere. Values of `serde_json` have at most 128 levels.
fn names_callable(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.iter().any(names_callable),
        Value::Object(members) => {
            members.get("_target_").is_some_and(|target| target == "os.system")
                || members.values().any(names_callable)
        }
        _ => false,
    }
}

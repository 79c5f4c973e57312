//! A safetensors file is accepted if the official reader accepts it, with the same tensors and metadata, and refused if it
//! refuses it, except for what `is_exception` lists.

#![no_main]

use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::{Corpus, fuzz_target};
use safetensors::SafeTensors;
use safetensors_format::{EntryError, Error, Header};

fuzz_target!(|bytes: &[u8]| -> Corpus {
    // A header of more than 2^40 bytes is not one that a fuzzer writes.
    if bytes.get(5..9) == Some(b"\0\0\0{") {
        check(bytes);
    } else if let Ok(bytes) = file(&mut Unstructured::new(bytes)) {
        check(&bytes);
    } else {
        return Corpus::Reject;
    }
    Corpus::Keep
});

fn check(bytes: &[u8]) {
    let (ours, theirs) = (Header::read(bytes), SafeTensors::deserialize(bytes));
    let (ours, theirs) = match (ours, theirs) {
        (Ok(ours), Ok(theirs)) => (ours, theirs),
        (Err(_), Err(_)) => return,
        (Err(error), Ok(_)) => {
            assert!(is_exception(&error), "only the official reader accepts it: {error}");
            return;
        }
        (Ok(header), Err(error)) => panic!("only the official reader refuses it: {error}; {header:?}"),
    };
    assert_eq!(ours.tensors.len(), theirs.len());
    for (name, view) in &ours.tensors {
        let other = theirs.tensor(name).expect("both have the tensor");
        assert_eq!(byte_source::slice_range(bytes, &view.range), Some(other.data()), "{name}");
        let mut shape: Vec<usize> = view.shape.iter().map(|size| *size as usize).collect();
        if other.dtype() == safetensors::Dtype::F4 {
            // The format counts single values, PyTorch pairs.
            *shape.last_mut().expect("it has a dimension") *= 2;
        }
        assert_eq!(shape, other.shape(), "{name}");
        let bits =
            view.dtype.size() as usize * 8 / if other.dtype() == safetensors::Dtype::F4 { 2 } else { 1 };
        assert_eq!(bits, other.dtype().bitsize(), "{name}");
    }
    let (_, theirs) = SafeTensors::read_metadata(bytes).expect("it was read before");
    let mut metadata: Vec<_> = theirs.metadata().iter().flatten().collect();
    metadata.sort();
    let mut found: Vec<_> = ours.metadata.iter().map(|(key, value)| (key, value)).collect();
    found.sort();
    found.dedup_by_key(|(key, _)| *key);
    assert_eq!(metadata.len(), found.len());
}

/// What the official reader accepts and we do not.
fn is_exception(error: &Error) -> bool {
    match error {
        // PyTorch has neither these dtypes nor these sizes; it has pairs of F4 only in the last dimension.
        Error::Entry { reason, .. } => {
            matches!(
                reason,
                EntryError::Dtype { .. } | EntryError::Dimension { .. } | EntryError::HalfByte { .. }
            )
        }
        // Two tensors or two texts of the metadata of one name: the official reader keeps the last one.
        Error::Json(error) => error.to_string().contains("appears twice"),
        _ => false,
    }
}

/// A file whose entries mostly fit each other.
fn file(u: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    let dtypes = ["F32", "BF16", "U8", "BOOL", "C64", "F4", "F8_E8M0", "F6_E2M3", "I64", "X"];
    let mut header = String::from("{");
    let (mut end, mut count) = (0_u64, 0);
    while !u.is_empty() && count < 6 {
        let separator = if count > 0 { "," } else { "" };
        count += 1;
        if u.ratio(1, 8)? {
            let metadata =
                u.choose(&["null", "{}", r#"{"a":"b"}"#, r#"{"a":"b","a":"c"}"#, r#"{"a":1}"#, "[]"])?;
            header += &format!(r#"{separator}"__metadata__":{metadata}"#);
            continue;
        }
        let name = u.choose(&["a", "b", "", "\\u0061", "a.b", "\\n", "é"])?;
        let dtype = u.choose(&dtypes)?;
        let mut shape = Vec::new();
        for _ in 0..u.int_in_range(0..=3)? {
            shape.push(if u.ratio(1, 16)? { u.arbitrary()? } else { u.int_in_range(0..=4_u64)? });
        }
        let bits = match *dtype {
            "F32" => 32_u64,
            "BF16" => 16,
            "C64" | "I64" => 64,
            "F4" => 4,
            "F6_E2M3" => 6,
            _ => 8,
        };
        let len = shape.iter().fold(bits, |product, size| product.wrapping_mul(*size)) / 8;
        let start = if u.ratio(1, 16)? { u.int_in_range(0..=9)? } else { end };
        let stop = if u.ratio(1, 16)? { u.arbitrary()? } else { start.wrapping_add(len) };
        header += &format!(
            r#"{separator}"{name}":{{"dtype":"{dtype}","shape":{shape:?},"data_offsets":[{start},{stop}]}}"#
        );
        end = stop;
    }
    header += *u.choose(&["}", "} ", "", "}x", ",}"])?;
    let data = end.min(1 << 12) as usize + usize::from(u.ratio(1, 16)?);
    Ok([&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &vec![7; data]].concat())
}

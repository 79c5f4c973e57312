//! Sizes in bytes as texts such as `5GB`.

use serde::{Deserialize, Deserializer, de};

/// Parses a number of bytes: `5GB` has decimal units, as in Hugging Face's libraries, `5GiB` binary ones.
///
/// # Errors
/// When the text is not a size, or is 0.
pub fn parse_size(text: &str) -> Result<u64, &'static str> {
    const UNITS: &[(&str, u64)] = &[
        ("", 1),
        ("B", 1),
        ("KB", 1_000),
        ("MB", 1_000_000),
        ("GB", 1_000_000_000),
        ("TB", 1_000_000_000_000),
        ("KIB", 1 << 10),
        ("MIB", 1 << 20),
        ("GIB", 1 << 30),
        ("TIB", 1 << 40),
    ];
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim().to_ascii_uppercase();
    let unit = UNITS.iter().find(|(name, _)| *name == unit).map(|(_, size)| *size);
    let bytes = number.parse::<u64>().ok().zip(unit).and_then(|(number, unit)| number.checked_mul(unit));
    bytes.filter(|bytes| *bytes > 0).ok_or("expected a size such as 5GB, 500MB or 2GiB")
}

/// Reads a size from a number or a text.
///
/// # Errors
/// When it is not a size, or is 0.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "expected a number of bytes, or a text such as 5GB")]
    enum Size {
        Bytes(u64),
        Text(String),
    }
    match Option::deserialize(deserializer)? {
        None => Ok(None),
        Some(Size::Bytes(0)) => Err(de::Error::custom("expected a size above 0")),
        Some(Size::Bytes(bytes)) => Ok(Some(bytes)),
        Some(Size::Text(text)) => parse_size(&text).map(Some).map_err(de::Error::custom),
    }
}

//! Numbers as people read them: with units, separators and plurals.

/// Formats a number of things, such as `1 tensor` or `2 tensors`.
pub fn format_things(n: usize, thing: &str) -> String {
    format!("{n} {thing}{}", if n == 1 { "" } else { "s" })
}

/// Formats a number of bytes with a decimal unit, such as `16.1 GB`.
pub fn format_bytes(bytes: u64) -> String {
    format_scaled(bytes, &[" B", " kB", " MB", " GB", " TB", " PB", " EB"], 1)
}

/// Formats a count in the units of the field, such as `8.03 B`.
pub fn format_count(n: u64) -> String {
    format_scaled(n, &["", " K", " M", " B", " T", " Q"], 2)
}

#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
fn format_scaled(n: u64, units: &[&str], digits: usize) -> String {
    let mut value = n as f64;
    let mut units = units.iter();
    let mut unit = units.next().copied().unwrap_or_default();
    if n < 1000 {
        return format!("{n}{unit}");
    }
    // Above this limit, one decimal digit would round to 1000.0.
    while value >= 999.95 {
        let Some(next) = units.next() else { break };
        value /= 1000.0;
        unit = next;
    }
    format!("{value:.digits$}{unit}")
}

/// Formats a number with thousands separators, such as `1,372`.
pub fn group_thousands(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && digits.len().saturating_sub(index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_separated() {
        assert_eq!(group_thousands(686), "686");
        assert_eq!(group_thousands(1372), "1,372");
        assert_eq!(group_thousands(1_234_567), "1,234,567");
    }

    #[test]
    fn numbers_have_units() {
        assert_eq!(format_bytes(0), "0 B");
        assert_eq!(format_bytes(999), "999 B");
        assert_eq!(format_bytes(999_999), "1.0 MB");
        assert_eq!(format_bytes(140_300_000_000), "140.3 GB");
        assert_eq!(format_count(8_030_261_248), "8.03 B");
        assert_eq!(format_count(291), "291");
        assert_eq!(format_bytes(u64::MAX), "18.4 EB");
    }
}

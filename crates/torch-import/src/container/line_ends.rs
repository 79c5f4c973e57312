//! Recognises files whose line ends a program has changed, which damages what is not a text.

use byte_source::{ErrorKind, Source};

use crate::{Error, Problem};

/// Number of bytes at the start of a file that are looked at.
const LOOKED_AT: u64 = 1 << 20;
/// Smallest number of line feeds that do not all follow a carriage return by chance.
const FEW: usize = 3;
/// Smallest number of line feeds among which a file has a carriage return, unless its line ends were changed.
const MANY: usize = 16;

/// Adds to an error of a damaged file that its line ends were changed, if they look like that.
pub(crate) fn explain(error: Error, source: &dyn Source) -> Error {
    if matches!(error.kind(), ErrorKind::Io | ErrorKind::Cancelled | ErrorKind::Input) {
        return error;
    }
    let start = source.read_range(0..source.len().min(LOOKED_AT));
    match start.ok().and_then(|start| change(&start)) {
        Some(how) => Problem::LineEnds { reason: Box::new(error), how }.into(),
        None => error,
    }
}

/// Returns how the line ends in the bytes of a binary file were changed.
fn change(bytes: &[u8]) -> Option<&'static str> {
    let count = |wanted: u8| bytes.iter().map(|byte| usize::from(*byte == wanted)).sum::<usize>();
    let (feeds, returns) = (count(b'\n'), count(b'\r'));
    let pairs = bytes.windows(2).filter(|pair| pair == b"\r\n").count();
    if feeds >= FEW && pairs == feeds {
        Some("each line feed in it follows a carriage return")
    } else {
        (feeds >= MANY && returns == 0).then_some("it has line feeds and no carriage return")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_line_ends_are_recognised() {
        let bytes: Vec<u8> = (0..=255_u8).cycle().take(1 << 14).collect();
        assert_eq!(change(&bytes), None);
        let text = |from: &str, to: &str| {
            let text: String = bytes.iter().map(|byte| char::from(*byte)).collect();
            text.replace(from, to).chars().map(|c| c as u8).collect::<Vec<u8>>()
        };
        assert_eq!(change(&text("\n", "\r\n")), Some("each line feed in it follows a carriage return"));
        assert_eq!(change(&text("\r", "\n")), Some("it has line feeds and no carriage return"));
        assert_eq!(change(b"\n\n\n"), None);
        assert_eq!(change(b"a\r\n\r\nb\r\n"), Some("each line feed in it follows a carriage return"));
        assert_eq!(change(b"a\r\n\r\nb"), None);
    }
}

//! Reads the chat templates in the metadata of a GGUF file.
//!
//! Facts: `docs/gguf.md` of ggml. `llama-cpp-python` renders `tokenizer.chat_template` with Jinja; before version 0.2.72, without a
//! sandbox.

use super::judge::Judge;

const TEXT: u32 = 8;
const ARRAY: u32 = 9;

/// Reads the metadata.
///
/// # Errors
/// The reason for which it was not read to its end.
pub(super) fn read(bytes: &[u8], judge: &mut Judge<'_>) -> Result<(), String> {
    let Some(rest) = bytes.strip_prefix(b"GGUF") else { return Ok(()) };
    let mut reader = Reader { rest };
    reader.entries(judge).ok_or_else(|| "its metadata ends early or has another form".to_owned())
}

struct Reader<'b> {
    rest: &'b [u8],
}

impl<'b> Reader<'b> {
    fn entries(&mut self, judge: &mut Judge<'_>) -> Option<()> {
        let version = self.number32()?;
        if !(2..=3).contains(&version) {
            return None;
        }
        let _tensors = self.number64()?;
        for _ in 0..self.number64()? {
            let key = self.text()?;
            match self.number32()? {
                TEXT => {
                    let text = self.text()?;
                    if key.starts_with(b"tokenizer.chat_template") {
                        judge.template(&String::from_utf8_lossy(text));
                    }
                }
                ARRAY => {
                    let kind = self.number32()?;
                    let count = self.number64()?;
                    if kind == TEXT {
                        for _ in 0..count {
                            self.text()?;
                        }
                    } else {
                        self.take(count.checked_mul(size_of_kind(kind)?)?)?;
                    }
                }
                kind => {
                    self.take(size_of_kind(kind)?)?;
                }
            }
        }
        Some(())
    }

    fn take(&mut self, len: u64) -> Option<&'b [u8]> {
        let (taken, rest) = self.rest.split_at_checked(usize::try_from(len).ok()?)?;
        self.rest = rest;
        Some(taken)
    }

    fn text(&mut self) -> Option<&'b [u8]> {
        let len = self.number64()?;
        self.take(len)
    }

    fn number32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    fn number64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }
}

/// Returns the length of a number or truth value in bytes; `None` for other kinds.
fn size_of_kind(kind: u32) -> Option<u64> {
    match kind {
        0 | 1 | 7 => Some(1),
        2 | 3 => Some(2),
        4..=6 => Some(4),
        10..=12 => Some(8),
        _ => None,
    }
}

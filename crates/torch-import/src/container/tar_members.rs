//! Finds the members of a tar archive, as Python's `tarfile` does.
//!
//! `torch.load` tries `tarfile` on each file that does not start as a zip archive. It needs no magic, only a header whose numbers can
//! be read and whose checksum fits, and stops silently at what is not a header. What the writers of checkpoints never make, and where
//! readers differ, is an oddity.
//!
//! Facts: `TarInfo.frombuf`, `_proc_member` and `nti` in `Lib/tarfile.py` of CPython 3.11 to 3.13.

use std::collections::HashSet;
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;

use super::tar_paths::{LinkTarget, TarPaths};
use crate::{Error, Problem};

const BLOCK: usize = 512;
const MEMBERS_MAX: usize = 1 << 16;
/// Bytes that are read at once of what follows the end of an archive.
const END_WINDOW: usize = 64 << 10;
/// Largest length in bytes of an extension header, whose texts are names.
const EXTENSION_MAX: u64 = 1 << 20;
/// Largest number of oddities that are listed.
const ODDITIES_MAX: usize = 16;
/// Fields of numbers, by their offsets in a header: mode, owner, group, size, time, checksum, and the numbers of a device.
const NUMBERS: [Range<usize>; 8] =
    [100..108, 108..116, 116..124, SIZE, 136..148, CHECKSUM, 329..337, 337..345];
const SIZE: Range<usize> = 124..136;
const CHECKSUM: Range<usize> = 148..156;
/// Keys of extension headers, or their starts, that say nothing about which bytes are whose.
const HARMLESS_KEYS: [&str; 9] =
    ["mtime", "atime", "ctime", "uid", "gid", "uname", "gname", "comment", "SCHILY."];

/// The regular files of an archive.
#[derive(Debug, Default)]
pub(crate) struct TarMembers {
    /// Names and byte ranges.
    pub(crate) members: Vec<(String, Range<usize>)>,
    /// What no writer of checkpoints makes, or what readers disagree about.
    pub(crate) oddities: Vec<String>,
    /// Reason for which what follows the members was not read.
    pub(crate) error: Option<Error>,
    /// True if each member is a file with a header of its own, and there are no others.
    has_only_files: bool,
}

/// What extension headers say about the next member.
#[derive(Default)]
struct ExtendedFields {
    name: Option<String>,
    link: Option<String>,
    size: Option<u64>,
}

impl TarMembers {
    /// Reads the headers of an archive of `len` bytes.
    pub(crate) fn read(reader: impl Read + Seek, len: u64) -> Self {
        let mut found = Self { has_only_files: true, ..Self::default() };
        found.error = found.read_headers(reader, len).err();
        let is_checkpoint = ["pickle", "storages", "tensors"].iter().any(|name| found.find(name).is_some());
        if is_checkpoint && !found.has_only_files {
            found
                .add_oddity("a checkpoint of PyTorch 0.1 has links, folders or extension headers".to_owned());
        }
        found
    }

    /// Returns the range of a member in the root folder.
    pub(crate) fn find(&self, name: &str) -> Option<Range<usize>> {
        let mut members = self.members.iter();
        members.find(|(member, _)| without_dot_slash(member) == name).map(|(_, range)| range.clone())
    }

    fn read_headers(&mut self, mut reader: impl Read + Seek, len: u64) -> Result<(), Error> {
        let (mut at, mut names, mut paths) = (0_u64, HashSet::new(), TarPaths::default());
        let mut extended = ExtendedFields::default();
        while at < len {
            let mut block = [0; BLOCK];
            read_exactly(&mut reader, at, &mut block, len)?;
            if block == [0; BLOCK] {
                return self.read_end(reader, at, len);
            }
            let header = TarHeader(&block);
            if !is_header(&block) {
                return Err(damaged(format!("what is at byte {at} is not the header of a member")));
            }
            header.oddity().into_iter().for_each(|oddity| self.add_oddity(format!("{oddity} at byte {at}")));
            let start = at.saturating_add(BLOCK as u64);
            let kind = header.kind();
            let is_extension = matches!(kind, b'L' | b'K' | b'x' | b'g');
            let fields = if is_extension { ExtendedFields::default() } else { std::mem::take(&mut extended) };
            let size = match (header.number(SIZE), fields.size) {
                (Some(size), None) => size,
                (Some(size), Some(long)) => {
                    if size != 0 && size != long {
                        self.add_oddity(format!(
                            "an extension header changes the size of the member at byte {at}"
                        ));
                    }
                    long
                }
                (None, _) => {
                    return Err(damaged(format!("the size of the member at byte {at} is not a number")));
                }
            };
            let name = fields.name.unwrap_or_else(|| header.name());
            let link = fields.link.unwrap_or_else(|| text_until_nul(header.field(157..257)));
            let end = start.checked_add(size);
            let Some(end) = end.filter(|end| *end <= len) else {
                let missing = end.map_or(u64::MAX, |end| end.saturating_sub(len));
                return Err(Problem::TruncatedFile {
                    reason: format!(
                        "it ends within member `{}` and {missing} bytes are missing",
                        name.escape_debug()
                    ),
                }
                .into());
            };
            at = end.next_multiple_of(BLOCK as u64);
            self.has_only_files &= matches!(kind, b'0' | 0);
            let target = LinkTarget { path: &link, is_symbolic: kind == b'2' };
            let target = Some(&target).filter(|_| matches!(kind, b'1' | b'2'));
            if let Some(oddity) = paths.add(&name, target).filter(|_| !is_extension) {
                self.add_oddity(format!("member `{}` {oddity}", name.escape_debug()));
            }
            match kind {
                b'0' | 0 if !name.ends_with('/') => {
                    let position = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
                    if self.members.len() >= MEMBERS_MAX {
                        return Err(damaged(format!("more than {MEMBERS_MAX} members")));
                    }
                    if !names.insert(without_dot_slash(&name).to_owned()) {
                        return Err(damaged(format!("member `{}` appears twice", name.escape_debug())));
                    }
                    self.members.push((name, position(start)..position(end)));
                }
                // A folder, also as before POSIX.
                b'0' | 0 | b'5' => {
                    self.has_only_files = false;
                    if size != 0 {
                        self.add_oddity(format!("the folder `{}` has bytes", name.escape_debug()));
                    }
                }
                b'1' | b'2' => {
                    if size != 0 {
                        self.add_oddity(format!("the link `{}` has bytes", name.escape_debug()));
                    }
                }
                _ if is_extension => {
                    if size > EXTENSION_MAX {
                        return Err(damaged(format!("an extension header has {size} bytes")));
                    }
                    let mut text = vec![0; usize::try_from(size).unwrap_or_default()];
                    read_exactly(&mut reader, start, &mut text, len)?;
                    match kind {
                        b'L' => extended.name = Some(text_until_nul(&text)),
                        b'K' => extended.link = Some(text_until_nul(&text)),
                        _ => self.read_extension(&text, kind == b'g', start, &mut extended),
                    }
                }
                kind => self.add_oddity(format!(
                    "member `{}` is of the kind `{}`, which readers treat differently",
                    name.escape_debug(),
                    kind.escape_ascii()
                )),
            }
        }
        Ok(())
    }

    /// Reads what follows the end of the archive: zeros.
    fn read_end(&mut self, mut reader: impl Read + Seek, end: u64, len: u64) -> Result<(), Error> {
        let mut at = end;
        let mut window = vec![0; END_WINDOW];
        while at < len {
            let rest = usize::try_from(len.saturating_sub(at)).unwrap_or(END_WINDOW).min(END_WINDOW);
            let Some(part) = window.get_mut(..rest) else { break };
            read_exactly(&mut reader, at, part, len)?;
            if part.iter().any(|byte| *byte != 0) {
                self.add_oddity(format!("bytes follow the end of the archive, which is at byte {end}"));
                break;
            }
            at = at.saturating_add(END_WINDOW as u64);
        }
        Ok(())
    }

    /// Reads an extension header of POSIX.
    fn read_extension(&mut self, text: &[u8], is_global: bool, at: u64, fields: &mut ExtendedFields) {
        let mut rest = text;
        while !rest.is_empty() {
            let Some((key, value, after)) = extension_record(rest) else {
                self.add_oddity(format!("the extension header at byte {at} has what is not a record"));
                break;
            };
            rest = after;
            let is_harmless = HARMLESS_KEYS
                .iter()
                .any(|known| key == *known || (known.ends_with('.') && key.starts_with(known)));
            match key {
                _ if is_harmless => {}
                "path" if !is_global => fields.name = Some(value.to_owned()),
                "linkpath" if !is_global => fields.link = Some(value.to_owned()),
                "size" if !is_global && value.bytes().all(|byte| byte.is_ascii_digit()) => {
                    fields.size = value.parse().ok();
                }
                _ => self.add_oddity(format!(
                    "the {}extension header at byte {at} sets `{}`",
                    if is_global { "global " } else { "" },
                    key.escape_debug()
                )),
            }
        }
    }

    fn add_oddity(&mut self, text: String) {
        if self.oddities.len() < ODDITIES_MAX && !self.oddities.contains(&text) {
            self.oddities.push(text);
        }
    }
}

/// Returns a name without the `./` that `tar c .` writes.
pub(crate) fn without_dot_slash(name: &str) -> &str {
    name.strip_prefix("./").unwrap_or(name)
}

/// Returns true if Python's `tarfile` takes the start of a file for the header of a member.
pub(crate) fn is_header(start: &[u8]) -> bool {
    let Some(block) = start.first_chunk::<BLOCK>() else { return false };
    let Some(sum) = block.get(CHECKSUM).and_then(lenient_number) else { return false };
    let numbers_are_read =
        || NUMBERS.into_iter().all(|field| block.get(field).is_some_and(is_lenient_number));
    checksums(block).contains(&sum) && numbers_are_read()
}

/// Returns the sums of a header's bytes as unsigned and as signed numbers, with blanks for the checksum.
fn checksums(block: &[u8; BLOCK]) -> [i64; 2] {
    let (mut unsigned, mut signed) = (256_i64, 256_i64);
    for (at, byte) in block.iter().enumerate() {
        if !CHECKSUM.contains(&at) {
            unsigned = unsigned.saturating_add(i64::from(*byte));
            signed = signed.saturating_add(i64::from(byte.cast_signed()));
        }
    }
    [unsigned, signed]
}

/// Returns the text of a numeric field as Python's `int` sees it: up to a NUL, without blanks.
fn field_text(field: &[u8]) -> &[u8] {
    let text = field.split(|byte| *byte == 0).next().unwrap_or_default();
    let is_blank = |byte: &u8| matches!(byte, b'\t'..=b'\r' | 0x1c..=b' ');
    let start = text.iter().position(|byte| !is_blank(byte)).unwrap_or(text.len());
    let end = text.iter().rposition(|byte| !is_blank(byte)).map_or(start, |last| last.saturating_add(1));
    text.get(start..end).unwrap_or_default()
}

/// Returns true if Python may read a numeric field.
fn is_lenient_number(field: &[u8]) -> bool {
    let is_part = |byte: &u8| matches!(byte, b'0'..=b'7' | b'_' | b'+' | b'-' | b'o' | b'O');
    matches!(field.first(), Some(0x80 | 0xff)) || field_text(field).iter().all(is_part)
}

/// Returns the number of a field in any of the notations that Python's `nti` reads.
fn lenient_number(field: &[u8]) -> Option<i64> {
    if let [0x80 | 0xff, digits @ ..] = field {
        let number = digits
            .iter()
            .try_fold(0_i64, |number, byte| number.checked_mul(256)?.checked_add(i64::from(*byte)))?;
        let is_negative = field.first() == Some(&0xff);
        return if is_negative { number.checked_sub(1 << 56) } else { Some(number) };
    }
    let text = std::str::from_utf8(field_text(field)).ok()?;
    let (digits, is_negative) = match text.strip_prefix('-') {
        Some(digits) => (digits, true),
        None => (text.strip_prefix('+').unwrap_or(text), false),
    };
    let digits = digits.strip_prefix("0o").or_else(|| digits.strip_prefix("0O")).unwrap_or(digits);
    let digits = digits.replace('_', "");
    let number = if digits.is_empty() { 0 } else { i64::from_str_radix(&digits, 8).ok()? };
    Some(if is_negative { number.saturating_neg() } else { number })
}

/// A header that Python reads.
struct TarHeader<'b>(&'b [u8; BLOCK]);

impl TarHeader<'_> {
    fn field(&self, range: Range<usize>) -> &[u8] {
        self.0.get(range).unwrap_or_default()
    }

    fn kind(&self) -> u8 {
        self.0.get(156).copied().unwrap_or_default()
    }

    fn name(&self) -> String {
        let name = text_until_nul(self.field(0..100));
        let prefix = text_until_nul(self.field(345..500));
        let has_prefix = !prefix.is_empty() && !matches!(self.kind(), b'L' | b'K' | b'S');
        if has_prefix { format!("{prefix}/{name}") } else { name }
    }

    /// Returns the number of a field that every reader reads alike: octal digits between blanks and up to a NUL, or the
    /// bytes of a large number.
    fn number(&self, field: Range<usize>) -> Option<u64> {
        let field = self.field(field);
        if field.first() == Some(&0x80) {
            return u64::try_from(lenient_number(field)?).ok();
        }
        let end = field.iter().position(|byte| *byte == 0).unwrap_or(field.len());
        let (text, rest) = field.split_at_checked(end)?;
        let text = text.trim_ascii_start();
        let text = text.strip_suffix(b" ").unwrap_or(text);
        let is_plain = text.iter().all(|byte| matches!(byte, b'0'..=b'7'))
            && rest.iter().all(|byte| matches!(byte, 0 | b' '));
        let text = std::str::from_utf8(text).ok().filter(|_| is_plain)?;
        if text.is_empty() { Some(0) } else { u64::from_str_radix(text, 8).ok() }
    }

    /// Returns what readers disagree about.
    fn oddity(&self) -> Option<&'static str> {
        let magic = self.field(257..265);
        let is_gnu = magic == b"ustar  \0";
        if !is_gnu && magic != b"ustar\x0000" {
            return Some("a header has no signature of a tar archive");
        }
        if is_gnu && self.field(345..500).iter().any(|byte| *byte != 0) {
            return Some("a header of GNU tar has a prefix");
        }
        let sum = self.number(CHECKSUM).and_then(|sum| i64::try_from(sum).ok());
        if sum != Some(checksums(self.0)[0]) {
            return Some("a header has a checksum that only some readers accept");
        }
        let numbers = || NUMBERS.into_iter().all(|field| self.number(field).is_some());
        (!numbers()).then_some("a header has a number that only some readers accept")
    }
}

fn text_until_nul(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned()
}

/// Splits the first record off an extension header: `LENGTH KEY=VALUE` and the end of a line.
fn extension_record(text: &[u8]) -> Option<(&str, &str, &[u8])> {
    let digits = text.iter().position(|byte| *byte == b' ')?;
    let number = std::str::from_utf8(text.get(..digits)?).ok()?;
    let is_plain = !number.starts_with('0') && number.bytes().all(|byte| byte.is_ascii_digit());
    let len: usize = number.parse().ok().filter(|_| is_plain)?;
    let record = text.get(digits.checked_add(1)?..len)?.strip_suffix(b"\n")?;
    let (key, value) = std::str::from_utf8(record).ok()?.split_once('=')?;
    Some((key, value, text.get(len..)?))
}

fn read_exactly(reader: &mut (impl Read + Seek), at: u64, bytes: &mut [u8], len: u64) -> Result<(), Error> {
    let end = at.checked_add(bytes.len() as u64);
    if end.is_none_or(|end| end > len) {
        return Err(Problem::TruncatedFile {
            reason: "it ends within a header of the tar archive".to_owned(),
        }
        .into());
    }
    let mut read = || {
        reader.seek(SeekFrom::Start(at))?;
        reader.read_exact(bytes)
    };
    read().map_err(|error| damaged(error.to_string()))
}

fn damaged(reason: String) -> Error {
    Problem::Tar(reason).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header of a member `pickle` without bytes, with `fields` set before the checksum is computed.
    fn header(fields: &[(usize, &[u8])]) -> [u8; BLOCK] {
        let mut block = [0; BLOCK];
        let mut set = |at: usize, bytes: &[u8]| block[at..][..bytes.len()].copy_from_slice(bytes);
        for (at, bytes) in [
            (0, &b"pickle"[..]),
            (100, b"0000644\0"),
            (124, b"00000000000\0"),
            (156, b"0"),
            (257, b"ustar\x0000"),
        ] {
            set(at, bytes);
        }
        for (at, bytes) in fields {
            set(*at, bytes);
        }
        let sum = checksums(&block)[0];
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        block
    }

    fn read(blocks: &[&[u8]]) -> TarMembers {
        let bytes = [blocks.concat(), vec![0; 1024]].concat();
        TarMembers::read(std::io::Cursor::new(&bytes), bytes.len() as u64)
    }

    #[test]
    fn a_header_needs_no_magic() {
        let plain = header(&[]);
        assert!(is_header(&plain) && read(&[&plain]).oddities.is_empty());
        let bare = header(&[(257, &[0; 8])]);
        assert!(is_header(&bare) && !read(&[&bare]).oddities.is_empty());
        let mut signed = header(&[(0, b"\x80\x02N."), (257, &[0; 8])]);
        let sum = checksums(&signed)[1];
        signed[148..156].copy_from_slice(format!("0o{sum:o}\0\0").as_bytes());
        assert!(is_header(&signed) && !read(&[&signed]).oddities.is_empty());
        signed[150] ^= 1;
        assert!(!is_header(&signed) && !is_header(&[0; BLOCK]) && !is_header(&plain[..511]));
    }

    #[test]
    fn what_readers_treat_differently_is_an_oddity() {
        let file = header(&[]);
        let odd = |blocks: &[&[u8]]| !read(blocks).oddities.is_empty();
        for kind in [b"1", b"2", b"5", b"7", b"S", b"Z"] {
            let other = header(&[(0, b"other\0"), (156, kind)]);
            assert!(odd(&[&other, &file]), "{}", kind.escape_ascii());
        }
        let extended = |kind: &[u8], text: &[u8]| {
            let size = format!("{:011o}\0", text.len());
            let header = header(&[(0, b"x\0"), (156, kind), (124, size.as_bytes())]);
            let text = [text, &vec![0; 512 - text.len()]].concat();
            [header.to_vec(), text].concat()
        };
        let other = header(&[(0, b"other.bin")]);
        for (kind, text, expected) in [
            (&b"g"[..], &b"9 size=9\n"[..], true),
            (b"g", b"15 path=abcdef\n", true),
            (b"g", b"13 comment=a\n", false),
            (b"x", b"11 mtime=1\n", false),
            (b"x", b"10 path=a\n", false),
            (b"x", b"21 GNU.sparse.map=0,\n", true),
            (b"x", b"011 mtime=1\n", true),
            (b"x", b"12 mtime=1\n", true),
        ] {
            assert_eq!(odd(&[&extended(kind, text), &other]), expected, "{}", text.escape_ascii());
        }
        assert!(odd(&[&extended(b"x", b"11 mtime=1\n"), &file]), "a checkpoint of PyTorch 0.1 has none");
        let found = read(&[&extended(b"x", b"13 path=name\n"), &other, &extended(b"L", b"long"), &file]);
        let names: Vec<&str> = found.members.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!((names, found.oddities), (vec!["name", "long"], Vec::new()));
    }

    #[test]
    fn bytes_after_the_end_are_an_oddity() {
        let found = read(&[&header(&[]), &[0; 512], &header(&[(0, b"tensors")])]);
        assert_eq!((found.members.len(), found.oddities.len()), (1, 1));
    }
}

//! Recognises the format of a file by its content.

use std::sync::Arc;

use byte_source::{Checks, Observer, Prefetched, Source, share_start};
use bytes::Bytes;

use super::contents::ContainerContents;
use super::format::ContainerFormat;
use super::formats::{self, PICKLE, legacy, tar, zip};
use super::{inflate, tar_members};
use crate::{Error, Problem, Result};

/// Bytes read at the start and at the end of a source of which each read is a request. A zip archive of PyTorch has its pickle at
/// the start, and its central directory, about 100 bytes per tensor, at the end.
const HEAD: u64 = 64 << 10;
const TAIL: u64 = 128 << 10;

/// A file format that is recognised but not read.
struct UnreadableFormat {
    recognises: fn(&[u8]) -> bool,
    what: &'static str,
    /// Advice for the user.
    hint: &'static str,
    /// True if the text may be the answer of a server instead of the file, so that its first line is worth reading.
    is_answer: bool,
}

/// Hint for a file without tensors.
const NOT_WEIGHTS_HINT: &str = "pass the file that `torch.save` or safetensors wrote";

/// The letters `ggml`, `ggmf`, `ggjt` and `ggla` as little-endian numbers, with which models and adapters start.
const BEFORE_GGUF: &[&[u8; 4]] = &[b"lmgg", b"fmgg", b"tjgg", b"algg"];

const UNREADABLE_FORMATS: &[UnreadableFormat] = &[
    UnreadableFormat {
        recognises: |bytes| bytes.starts_with(b"version https://git-lfs"),
        what: "a Git LFS pointer",
        hint: "the weights are not here yet; fetch them with `git lfs pull`",
        is_answer: false,
    },
    UnreadableFormat {
        recognises: |bytes| bytes.trim_ascii_start().starts_with(b"<"),
        what: "an HTML or XML page",
        hint: "the download gave a page instead of the file; download it again",
        is_answer: true,
    },
    UnreadableFormat {
        recognises: |bytes| bytes.trim_ascii_start().starts_with(b"{"),
        what: "a JSON file",
        hint: "pass the checkpoint next to it, or download it again if this is the answer of a server",
        is_answer: true,
    },
    UnreadableFormat {
        recognises: |bytes| bytes.starts_with(b"\x93NUMPY"),
        what: "a NumPy array",
        hint: "save it with PyTorch: `torch.save({'array': torch.from_numpy(numpy.load(PATH))}, 'array.pt')`",
        is_answer: false,
    },
    UnreadableFormat {
        recognises: |bytes| BEFORE_GGUF.iter().any(|magic| bytes.starts_with(*magic)),
        what: "a model of ggml from before GGUF",
        hint: "take a GGUF file of the model, or the PyTorch or safetensors checkpoint that it was made from",
        is_answer: false,
    },
    UnreadableFormat {
        recognises: |bytes| bytes.starts_with(b"\x89PNG\r\n\x1a\n"),
        what: "a PNG image",
        hint: NOT_WEIGHTS_HINT,
        is_answer: false,
    },
    UnreadableFormat {
        recognises: |bytes| bytes.starts_with(b"\xff\xd8\xff"),
        what: "a JPEG image",
        hint: NOT_WEIGHTS_HINT,
        is_answer: false,
    },
    UnreadableFormat {
        recognises: |bytes| bytes.starts_with(b"%PDF-"),
        what: "a PDF document",
        hint: NOT_WEIGHTS_HINT,
        is_answer: false,
    },
    UnreadableFormat {
        recognises: |bytes| bytes.starts_with(b"\x7fELF"),
        what: "a program or a shared library",
        hint: NOT_WEIGHTS_HINT,
        is_answer: false,
    },
    UnreadableFormat {
        recognises: is_hdf5,
        what: "an HDF5 file",
        hint: "Keras and PyTables write these; load it in Python and save its arrays with `torch.save`",
        is_answer: false,
    },
    UnreadableFormat {
        recognises: |bytes| bytes.starts_with(b"7z\xbc\xaf\x27\x1c"),
        what: "a 7z archive",
        hint: "unpack it first (`7z x`), then pass the checkpoint in it",
        is_answer: false,
    },
    UnreadableFormat {
        recognises: |bytes| bytes.starts_with(b"Rar!\x1a\x07"),
        what: "a RAR archive",
        hint: "unpack it first (`unrar x`), then pass the checkpoint in it",
        is_answer: false,
    },
    UnreadableFormat {
        recognises: |bytes| bytes.starts_with(b"\x1f\x8b"),
        what: "a gzip file",
        hint: "unpack it first (`gunzip`, or `tar xf` for an archive), then pass the checkpoint in it",
        is_answer: false,
    },
    UnreadableFormat {
        recognises: |bytes| bytes.starts_with(b"BZh"),
        what: "a bzip2 file",
        hint: "unpack it first (`bunzip2`, or `tar xf` for an archive), then pass the checkpoint in it",
        is_answer: false,
    },
    UnreadableFormat {
        recognises: |bytes| bytes.starts_with(b"\xfd7zXZ\0"),
        what: "an xz file",
        hint: "unpack it first (`unxz`, or `tar xf` for an archive), then pass the checkpoint in it",
        is_answer: false,
    },
    UnreadableFormat {
        recognises: |bytes| bytes.starts_with(b"\x28\xb5\x2f\xfd"),
        what: "a zstd file",
        hint: "unpack it first (`unzstd`, or `tar xf` for an archive), then pass the checkpoint in it",
        is_answer: false,
    },
    UnreadableFormat {
        recognises: is_flax,
        what: "a Flax checkpoint (msgpack)",
        hint: "load it in Python with `transformers`' `from_flax=True` and save it with `save_pretrained`",
        is_answer: false,
    },
    UnreadableFormat {
        recognises: is_onnx,
        what: "an ONNX model",
        hint: "take the PyTorch checkpoint that it was exported from",
        is_answer: false,
    },
];

/// Returns the source with its first bytes prefetched, and its last unless a header at the start describes the tensors.
fn prefetch(source: Arc<dyn Source>) -> Result<Arc<dyn Source>> {
    let kept = prefetch_start(source)?;
    let has_header = header_format(kept.prefetched_start()).is_some();
    Ok(Arc::new(if has_header { kept } else { prefetch_end(kept)? }))
}

/// Prefetches the first and last bytes of a source.
pub(crate) fn prefetch_edges(source: Arc<dyn Source>) -> Result<Prefetched> {
    prefetch_end(prefetch_start(source)?)
}

/// Prefetches the first bytes of a source.
pub(crate) fn prefetch_start(source: Arc<dyn Source>) -> Result<Prefetched> {
    let head = 0..source.len().min(HEAD);
    Prefetched::new(source, std::slice::from_ref(&head))
}

/// Prefetches the last bytes of a source, too.
pub(crate) fn prefetch_end(kept: Prefetched) -> Result<Prefetched> {
    let len = kept.len();
    kept.and(len.saturating_sub(TAIL).max(len.min(HEAD))..len)
}

/// Returns the bytes at the start of a source by which its format is recognised: all that are in memory.
pub(crate) fn read_head(source: &dyn Source) -> Result<Bytes> {
    share_start(source, 0..source.len(), HEAD)
}

/// Opens `file` with the reader of its format. A file of another format than a bare pickle is refused by its first bytes.
///
/// # Errors
/// When the file is damaged, or has another format, which the error names if it is known.
pub(super) fn open(
    file: Arc<dyn Source>,
    checks: Checks,
    observer: &dyn Observer,
) -> Result<ContainerContents> {
    let file = if file.has_latency() { prefetch(file)? } else { file };
    // A small read costs less than touching a page of a map.
    let start = file.read_range(0..file.len().min(4))?;
    let head = if zip::recognises(&start) { start } else { read_head(&*file)? };
    let format = if let Some(format) = formats::recognise(&head) {
        format
    } else {
        reject_unreadable_formats(&head)?;
        if !file.is_mappable() {
            return open(inflate::mappable(file)?, checks, observer);
        }
        // A bare pickle has the weakest signature.
        if !PICKLE.recognises(&head) {
            return Err(unknown_format_error(&head));
        }
        PICKLE
    };
    if matches!(format.name(), "pickle" | "legacy") && tar_members::is_header(&head) {
        let reason = "it starts with a pickle, and PyTorch would read the tar archive";
        return Err(Problem::Tar(reason.to_owned()).into());
    }
    let contents = format.open(file, checks, observer)?;
    // The archive of an exported program says so itself.
    let name = if contents.format.is_empty() { format.name() } else { contents.format };
    Ok(ContainerContents { format: name, ..contents })
}

/// Returns the format of a file whose header names its tensors, so that it has no pickle.
pub(crate) fn header_format(head: &[u8]) -> Option<&'static dyn ContainerFormat> {
    let has_pickle = [zip::recognises, legacy::recognises, tar::recognises];
    if has_pickle.iter().any(|recognises| recognises(head)) { None } else { formats::recognise(head) }
}

pub(crate) fn unknown_format_error(bytes: &[u8]) -> Error {
    let hint = if is_text(bytes) {
        "it is a text, such as a failed download leaves; download it again"
    } else {
        "compare its size and SHA-256 with those of the original; if they are the same, another program reads it"
    };
    Problem::Format { what: "a file of an unknown kind", hint, first_line: first_line(bytes) }.into()
}

/// Rejects files that are known not to be checkpoints.
///
/// # Errors
/// When the file has a known other format, which the error names.
pub(crate) fn reject_unreadable_formats(bytes: &[u8]) -> Result<()> {
    if bytes.is_empty() {
        let (what, hint) = ("an empty file", "download or copy it again");
        return Err(Problem::Format { what, hint, first_line: String::new() }.into());
    }
    match UNREADABLE_FORMATS.iter().find(|other| (other.recognises)(bytes)) {
        Some(UnreadableFormat { what, hint, is_answer, .. }) => {
            let first_line = if *is_answer { first_line(bytes) } else { String::new() };
            Err(Problem::Format { what, hint, first_line }.into())
        }
        None => Ok(()),
    }
}

/// Returns true if the pickles of a file follow one another from its first byte, as in a bare pickle or a legacy
/// checkpoint.
pub(crate) fn starts_with_pickles(bytes: &[u8]) -> bool {
    !zip::recognises(bytes) && !tar::recognises(bytes) && header_format(bytes).is_none()
}

/// Recognises HDF5, before which a file may have anything else.
pub(crate) fn is_hdf5(bytes: &[u8]) -> bool {
    let mut starts = [0].into_iter().chain((9..usize::BITS).map(|bits| 1_usize << bits));
    let mut rests = starts.by_ref().map_while(|start| bytes.get(start..));
    rests.any(|rest| rest.starts_with(b"\x89HDF\r\n\x1a\n"))
}

/// Recognises a msgpack map (small, or with a 16-bit length) whose first key is a short text.
fn is_flax(bytes: &[u8]) -> bool {
    let ([0x81..=0x8f, key @ ..] | [0xde, _, _, key @ ..]) = bytes else { return false };
    let text = match key {
        [len @ 0xa1..=0xbf, text @ ..] => text.get(..usize::from(len & 0x1f)),
        [0xd9, len, text @ ..] => text.get(..usize::from(*len)),
        _ => None,
    };
    text.is_some_and(|text| text.iter().all(u8::is_ascii_graphic))
}

/// Recognises a protocol buffer whose first field is `ir_version`, a small number, and whose second is the text
/// `producer_name` or the graph.
fn is_onnx(bytes: &[u8]) -> bool {
    matches!(bytes, [0x08, 0x01..=0x20, 0x12, len, name @ ..]
        if name.get(..usize::from(*len)).is_some_and(|name| name.iter().all(u8::is_ascii_graphic)))
        || matches!(bytes, [0x08, 0x01..=0x20, 0x3a, ..])
}

/// Maximum number of bytes at the start of a file that decide whether it is a text.
const TEXT_PEEK: usize = 512;

/// Returns true if the start of a file is ASCII text.
pub(crate) fn is_text(bytes: &[u8]) -> bool {
    let start = bytes.get(..bytes.len().min(TEXT_PEEK)).unwrap_or_default();
    start.iter().all(|byte| byte.is_ascii_graphic() || byte.is_ascii_whitespace())
}

/// Returns the title of an HTML page, or the first line of a text that is not blank, quoted and shortened; empty for other
/// files.
fn first_line(bytes: &[u8]) -> String {
    /// Maximum number of characters of the line.
    const SHOWN: usize = 100;
    let start = bytes.get(..bytes.len().min(TEXT_PEEK)).unwrap_or_default();
    let text = String::from_utf8_lossy(start);
    let is_binary = |c: char| c == char::REPLACEMENT_CHARACTER || (c.is_control() && !c.is_whitespace());
    // The last character may be cut.
    let text = text.trim_end_matches(char::REPLACEMENT_CHARACTER);
    let title = text.split_once("<title>").and_then(|(_, rest)| rest.split_once("</title>"));
    let first = || text.lines().map(str::trim).find(|line| !line.is_empty());
    let Some(line) = title.map(|(title, _)| title.trim()).or_else(first) else { return String::new() };
    if text.contains(is_binary) {
        return String::new();
    }
    let shown: String = line.chars().take(SHOWN).collect();
    let more = if line.chars().count() > SHOWN { "…" } else { "" };
    format!("`{}{more}`", shown.replace('`', "'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_files_are_recognised_by_their_first_bytes() {
        let what = |bytes: &[u8]| match reject_unreadable_formats(bytes) {
            Err(error) => match error.downcast() {
                Ok(Problem::Format { what, .. }) => what,
                other => panic!("{other:?}"),
            },
            _ => "",
        };
        assert_eq!(what(b"\n <!DOCTYPE html>"), "an HTML or XML page");
        assert_eq!(what(b"\x82\xa6params\x81"), "a Flax checkpoint (msgpack)");
        assert_eq!(what(b"\x08\x08\x12\x07pytorch\x1a\x05"), "an ONNX model");
        assert_eq!(what(b"\x80\x04\x95"), "");
        assert_eq!(what(b"}q\x00."), "");
    }

    #[test]
    fn pickles_are_distinguished_from_text() {
        for pickle in [&b"\x80\x02N."[..], b"}q\x00.", b"(dp0\nS'a'\np1\nI1\ns.", b"I1\n.", b"\x80\x09"] {
            assert!(PICKLE.recognises(pickle), "{pickle:?}");
        }
        for other in [&b"hello\n"[..], b"Not found", b"import torch\n", b"\0\0\0\0", b"NNNNNN\xff", b""] {
            assert!(!PICKLE.recognises(other), "{other:?}");
        }
    }

    #[test]
    fn legacy_files_are_recognised_in_every_protocol() {
        let digits = b"L119547037146038801333356L\n.";
        let long1 = b"\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.";
        assert!(legacy::recognises(digits));
        assert!(!legacy::recognises(&[&b"L"[..], &vec![b'0'; 100_000], &digits[1..]].concat()));
        assert!(legacy::recognises(&[&b"\x80\x03"[..], long1].concat()));
        assert!(legacy::recognises(&[&b"\x80\x05\x95\x0d\0\0\0\0\0\0\0"[..], long1].concat()));
        assert!(!legacy::recognises(b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x18."));
    }
}

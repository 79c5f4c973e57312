//! Judges files that no reader here recognises: which of them no loader of models runs, and why the others are reported.
//!
//! Everything is reported but texts, which the readers of documents look at, and the kinds below, of which every reader makes pictures,
//! sounds, numbers or names. The kinds of code have names of their own, so that a report says what was found.
//!
//! Facts: the signatures in the specifications of the formats; `PyTorch`'s and `TensorFlow`'s loaders of the models.

use super::compressed::detect_compression;
use super::text_encoding::decode_text;
use super::zip_detection;
use crate::container::{sniff, tar_members};

/// Bytes at the start of a file by which its kind is recognised.
pub const KIND_PEEK: usize = 512;

/// Extensions of files that the loaders of other programs run, and that are not read here: models of `TensorFlow`, Keras and
/// `TorchServe`, engines of `TensorRT`, gin's configurations, which import and call, and what Julia and R deserialize.
const EXTENSIONS: &str =
    "bson cpb engine gin h5 hdf5 jls keras mar pb plan rda rdata rds t7 tflite torchscript trt";
/// Name of a graph of `TensorFlow` as text, whose operators write files.
const TEXT_GRAPH: &str = "saved_model.pbtxt";

/// Kinds of code, and models whose loaders run some, by their first bytes and their place.
const CODE: [(usize, &[u8], &str); 23] = [
    (0, b"\x7fELF", "a program or a library"),
    (0, b"MZ", "a program or a library"),
    (0, b"\xfe\xed\xfa\xce", "a program or a library"),
    (0, b"\xfe\xed\xfa\xcf", "a program or a library"),
    (0, b"\xce\xfa\xed\xfe", "a program or a library"),
    (0, b"\xcf\xfa\xed\xfe", "a program or a library"),
    (0, b"\xca\xfe\xba\xbe", "a program or a library"),
    (0, b"!<arch>\n", "a library"),
    (0, b"\0asm", "a module of WebAssembly"),
    (0, b"BC\xc0\xde", "bitcode of LLVM"),
    (0, b"\xde\xc0\x17\x0b", "bitcode of LLVM"),
    (0, b"dex\n", "bytecode of Android"),
    (0, b"\x1bLua", "bytecode of Lua"),
    (0, b"\x1bLJ", "bytecode of Lua"),
    (0, b"\x50\xed\x55\xba", "code for a GPU"),
    (0, b"ftrt", "an engine of TensorRT, which may have code"),
    (0, b"ptrt", "an engine of TensorRT, which may have code"),
    (4, b"TFL3", "a model of TensorFlow Lite, whose operators may write files"),
    (4, b"ORTM", "a model of ONNX Runtime, which may name libraries"),
    (4, b"ET12", "a program of ExecuTorch, which may have compiled code"),
    (0, b"SQLite format 3\0", "a database, in which programs may keep pickles"),
    // LMDB, whose readers do not look at the number of the page before it.
    (16, b"\xde\xc0\xef\xbe", "a database, in which programs may keep pickles"),
    (0, b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "a document, which may have macros"),
];

/// Kinds of which a reader makes nothing but pictures, sounds, pages, numbers, or what git keeps. Other formats have no signature and may
/// begin like them, such as protocol buffers and what `marshal` writes, so the name must be one of [`HARMLESS_NAMES`], too.
const HARMLESS: [(usize, &[u8]); 31] = [
    (0, b"\x89PNG\r\n\x1a\n"),
    (0, b"\xff\xd8\xff"),
    (0, b"GIF8"),
    (0, b"BM"),
    (0, b"II*\0"),
    (0, b"MM\0*"),
    (0, b"RIFF"),
    (0, b"\0\0\x01\0"),
    (0, b"8BPS"),
    (0, b"%PDF-"),
    (0, b"fLaC"),
    (0, b"OggS"),
    (0, b"ID3"),
    (0, b"\xff\xfb"),
    (4, b"ftyp"),
    (0, b"\x1a\x45\xdf\xa3"),
    (0, b"\0\x01\0\0\0"),
    (0, b"OTTO"),
    (0, b"ttcf"),
    (0, b"wOFF"),
    (0, b"wOF2"),
    // The index of git, its packs, and their indexes.
    (0, b"DIRC"),
    (0, b"PACK"),
    (0, b"\xfftOc"),
    (0, b"RIDX"),
    (0, b"MIDX"),
    (0, b"BITM"),
    (0, b"CGPH"),
    (0, b"MTME"),
    // The attributes that macOS adds to a folder and to a file.
    (0, b"\0\0\0\x01Bud1"),
    (0, b"\0\x05\x16\x07"),
];

/// Extensions of harmless kinds.
const HARMLESS_NAMES: &str = "3gp ai avi avif bitmap bmp cur dng ds_store flac gif graph heic ico idx jfif jpeg jpg m4a m4v mkv mov mp3 mp4 mtimes oga ogg ogv opus otf pack pdf png psd rev \
                              tif tiff ttc ttf wav webm webp woff woff2";
/// Files of git without an extension.
const GIT_NAMES: [&str; 3] = ["index", "commit-graph", "multi-pack-index"];
/// Digits of the shortest hash by which caches name files.
const HASH_DIGITS: usize = 32;

/// Kind of a binary file without a signature that is known.
pub const UNKNOWN_KIND: &str = "a binary file of an unknown kind";

/// Returns true for the name of a file that another loader may run and that is not read here.
pub fn is_foreign_model(name: &str) -> bool {
    let name = name.rsplit(['/', '\\']).next().unwrap_or_default().to_ascii_lowercase();
    let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
    name == TEXT_GRAPH || EXTENSIONS.split(' ').any(|known| known == extension)
}

/// Returns the kind of a file that no reader here recognises, if it has to be reported; `None` for texts, and for kinds of which no
/// reader runs anything. `start` are its first [`KIND_PEEK`] bytes or more.
pub fn unread_kind(name: &str, start: &[u8]) -> Option<&'static str> {
    let has = |at: usize, magic: &[u8]| start.get(at..).is_some_and(|rest| rest.starts_with(magic));
    if is_text(start) {
        return None;
    }
    if let Some((_, _, kind)) = CODE.iter().find(|(at, magic, _)| has(*at, magic)) {
        return Some(kind);
    }
    if is_bytecode(start) {
        return Some("bytecode of Python");
    }
    // What is in these was scanned, or reported.
    let is_scanned = detect_compression(start).is_some()
        || zip_detection::is_archive(start)
        || sniff::is_hdf5(start)
        || tar_members::is_header(start);
    let is_harmless = is_scanned
        || has_harmless_name(name) && HARMLESS.iter().any(|(at, magic)| has(*at, magic))
        || is_sentencepiece(start)
        || holds_numbers(name);
    (!is_harmless).then_some(UNKNOWN_KIND)
}

/// Returns true for the name of a picture, a sound, a page, or a file of git or macOS, and for a hash in the place of a name.
fn has_harmless_name(name: &str) -> bool {
    let name = name.rsplit(['/', '\\']).next().unwrap_or_default();
    match name.rsplit_once('.') {
        Some((_, extension)) => {
            name.starts_with("._")
                || HARMLESS_NAMES.split(' ').any(|known| extension.eq_ignore_ascii_case(known))
        }
        None => {
            GIT_NAMES.contains(&name)
                || name.len() >= HASH_DIGITS && name.bytes().all(|byte| byte.is_ascii_hexdigit())
        }
    }
}

/// Returns true for an object of git: its kind and its length. Python's unpicklers stop at each kind, at `commit` because no module has a
/// name with a null byte.
pub(super) fn is_git_object(bytes: &[u8]) -> bool {
    let mut parts = bytes.split(|byte| *byte == 0).next().unwrap_or_default().splitn(2, |byte| *byte == b' ');
    let is_kind = matches!(parts.next(), Some(b"blob" | b"commit" | b"tag" | b"tree"));
    let is_len = |len: &[u8]| len.len() < 20 && len.iter().all(u8::is_ascii_digit);
    is_kind && bytes.contains(&0) && parts.next().is_some_and(is_len)
}

/// Returns true for the header of a `.pyc` file: the number of a version, and a line end.
fn is_bytecode(start: &[u8]) -> bool {
    matches!(*start, [low, high, b'\r', b'\n', ..] if (2000..4000).contains(&u16::from_le_bytes([low, high])) || high >= 0xf0)
}

/// Returns true for a model of `SentencePiece`: its first field is a piece, which begins with its text, and a number follows.
fn is_sentencepiece(start: &[u8]) -> bool {
    let [0x0a, len, 0x0a, text, rest @ ..] = start else { return false };
    len > text && matches!(rest.get(usize::from(*text)), Some(0x15))
}

/// Returns true for the names of numbers that a model in another file describes: of ONNX, of checkpoints of `TensorFlow`, and of
/// what `TensorBoard` shows.
fn holds_numbers(name: &str) -> bool {
    let name = name.rsplit(['/', '\\']).next().unwrap_or_default();
    let is_shard = name.rsplit_once(".data-").is_some_and(|(_, end)| {
        end.split_once("-of-").is_some_and(|(shard, count)| {
            [shard, count].iter().all(|it| it.len() == 5 && it.bytes().all(|byte| byte.is_ascii_digit()))
        })
    });
    is_shard
        || name.contains(".onnx_data")
        || name.ends_with(".onnx.data")
        || name.starts_with("events.out.tfevents.")
}

/// Returns true for a text in any encoding: its start has no control characters, and the rest no zeros. `start` may be all of it.
pub(super) fn is_text(start: &[u8]) -> bool {
    let (start, rest) = start.split_at_checked(KIND_PEEK).unwrap_or((start, &[]));
    let is_wide = matches!(start, [0xff, 0xfe, ..] | [0xfe, 0xff, ..]);
    if is_wide {
        let text = String::from_utf8_lossy(&decode_text(start)).into_owned();
        // The start may end inside of a character.
        let text = text.strip_suffix(char::REPLACEMENT_CHARACTER).unwrap_or(&text);
        let is_other = |c: char| {
            c == char::REPLACEMENT_CHARACTER || c.is_ascii_control() && !matches!(c, '\t'..='\r' | '\x1b')
        };
        return !text.contains(is_other);
    }
    start.iter().all(|byte| matches!(byte, b'\t'..=b'\r' | 0x1b | 0x20..=0x7e | 0x80..)) && !rest.contains(&0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_neither_text_nor_harmless_is_reported() {
        let kind = |name: &str, start: &[u8]| unread_kind(name, start).unwrap_or("");
        for (name, start, expected) in [
            ("ops.so", &b"\x7fELF\x02\x01"[..], "a program or a library"),
            ("README.md", b"\x7fELF\x02\x01", "a program or a library"),
            ("a", b"\xa7\x0d\r\n\0\0\0\0", "bytecode of Python"),
            ("a.dat", b"\0\x01\x02", UNKNOWN_KIND),
            ("a.bin", b"text\0", UNKNOWN_KIND),
            (
                "model.tflite",
                b"\x1c\0\0\0TFL3",
                "a model of TensorFlow Lite, whose operators may write files",
            ),
            ("README.md", "# Größe\r\n".as_bytes(), ""),
            ("latin.txt", b"Gr\xf6\xdfe\n", ""),
            ("wide.txt", b"\xff\xfea\0", ""),
            ("empty", b"", ""),
            ("a.png", b"\x89PNG\r\n\x1a\n\0\0", ""),
            ("a.tar.gz", b"\x1f\x8b\x08\0\0", ""),
            ("tokenizer.model", b"\x0a\x0e\x0a\x05<unk>\x15\0\0\0\0\x18\x02", ""),
            ("model.onnx_data", b"\0\0\0", ""),
            ("model.ckpt.data-00000-of-00001", b"\0\0\0", ""),
            ("model.ckpt.data-0000-of-00001", b"\0\0\0", UNKNOWN_KIND),
            (".git/index", b"DIRC\0\0\0\x02", ""),
            ("blobs/0123456789abcdef0123456789abcdef01234567", b"\x89PNG\r\n\x1a\n\0\0", ""),
            ("._model.pkl", b"\0\x05\x16\x07", ""),
            ("a.pdmodel", b"BM\0\0", UNKNOWN_KIND),
            ("__model__", b"BM\0\0", UNKNOWN_KIND),
            (
                "a.png",
                b"\x89PNG\r\n\x1a\n\0\0\x08\0\0\0\0\0\xde\xc0\xef\xbe",
                "a database, in which programs may keep pickles",
            ),
            ("a.dat", b"\xff\xfe\0\x01\0\0a\0", UNKNOWN_KIND),
        ] {
            assert_eq!(kind(name, start), expected, "{name}");
        }
        for name in ["a/Saved_Model.pbtxt", "model.PB", "x.engine", "model.t7"] {
            assert!(is_foreign_model(name), "{name}");
        }
        assert!(!is_foreign_model("pb") && !is_foreign_model("config.pbtxt"));
    }
}

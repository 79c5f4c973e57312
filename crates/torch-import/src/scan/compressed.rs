//! Files that were compressed after they were saved, by joblib, pandas or the user.
//!
//! Facts: RFC 1950 and 1952, the zstd format (RFC 8878); the prefixes in `joblib/compressor.py` of joblib 1.5, and `ZF`
//! in `numpy_pickle_compat.py` of the same version.

use std::io::{self, Read, Write};
use std::path::Path;

use byte_source::{MappedFile, WINDOW};
use flate2::bufread::ZlibDecoder;
use flate2::read::MultiGzDecoder;

use crate::container::inflate::RecordBytes;

type OpenDecoder = fn(&[u8]) -> io::Result<Box<dyn Read + '_>>;

/// A compression format, with its decoder if there is one.
#[derive(Clone, Copy, Debug)]
pub(super) struct CompressionFormat {
    /// Name of the format, as in the member `format` of a scan.
    pub(super) name: &'static str,
    recognises: fn(&[u8]) -> bool,
    unpack: Option<OpenDecoder>,
}

/// Compression formats by their first bytes. Formats with a decoder here do not start with an opcode, so their files
/// are not also pickles.
const COMPRESSION_FORMATS: &[CompressionFormat] = &[
    CompressionFormat {
        name: "gzip",
        recognises: |bytes| bytes.starts_with(b"\x1f\x8b"),
        unpack: Some(|bytes| Ok(Box::new(MultiGzDecoder::new(bytes)))),
    },
    CompressionFormat {
        name: "zlib",
        recognises: is_zlib,
        unpack: Some(|bytes| Ok(Box::new(WholeZlib(ZlibDecoder::new(bytes))))),
    },
    CompressionFormat {
        name: "zlib",
        recognises: is_zfile,
        unpack: Some(|bytes| {
            Ok(Box::new(WholeZlib(ZlibDecoder::new(bytes.get(ZF_HEADER..).unwrap_or_default()))))
        }),
    },
    CompressionFormat {
        name: "zstd",
        recognises: |bytes| bytes.starts_with(b"\x28\xb5\x2f\xfd"),
        unpack: Some(|bytes| Ok(Box::new(zstd_decoder(bytes)?))),
    },
    // A frame that readers skip comes first. It may begin like a pickle.
    CompressionFormat {
        name: "zstd",
        recognises: |bytes| matches!(bytes, [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..]),
        unpack: None,
    },
    CompressionFormat { name: "bzip2", recognises: |bytes| bytes.starts_with(b"BZh"), unpack: None },
    CompressionFormat { name: "xz", recognises: |bytes| bytes.starts_with(b"\xfd7zXZ"), unpack: None },
    CompressionFormat { name: "lzma", recognises: |bytes| bytes.starts_with(b"\x5d\0"), unpack: None },
    CompressionFormat { name: "lzip", recognises: |bytes| bytes.starts_with(b"LZIP"), unpack: None },
    CompressionFormat {
        name: "lz4",
        recognises: |bytes| bytes.starts_with(b"\x04\x22\x4d\x18"),
        unpack: None,
    },
    CompressionFormat { name: "compress", recognises: |bytes| bytes.starts_with(b"\x1f\x9d"), unpack: None },
    CompressionFormat {
        name: "7z",
        recognises: |bytes| bytes.starts_with(b"7z\xbc\xaf\x27\x1c"),
        unpack: None,
    },
    CompressionFormat { name: "rar", recognises: |bytes| bytes.starts_with(b"Rar!\x1a\x07"), unpack: None },
];

/// Length in bytes of `ZF` and a hexadecimal length in 19 characters.
const ZF_HEADER: usize = 21;

/// Returns the compression format of `bytes`; `None` if they are not compressed.
pub(super) fn detect_compression(bytes: &[u8]) -> Option<&'static CompressionFormat> {
    COMPRESSION_FORMATS.iter().find(|packed| (packed.recognises)(bytes))
}

/// The decompressed bytes of a file.
pub(super) struct Decompressed {
    pub(super) content: RecordBytes,
    /// Reason why the content is incomplete.
    pub(super) incomplete_reason: Option<String>,
}

/// Length in bytes above which content is decompressed into an unlinked temporary file.
const DECOMPRESSED_IN_MEMORY_MAX: usize = 16 << 20;

impl CompressionFormat {
    /// Returns true if this crate has a decoder for the format.
    pub(super) fn has_decoder(&self) -> bool {
        self.unpack.is_some()
    }

    /// Returns true if bytes that have the format's signature also decompress, or have a longer signature than numbers have
    /// by chance. `bytes` are the whole content, or at least its first `cut` bytes.
    pub(super) fn is_certain(&self, bytes: &[u8], cut: u64) -> bool {
        /// Signature of the first block of a bzip2 file, after its size.
        const BZIP2_BLOCK: &[u8] = b"1AY&SY";
        let Some(unpack) = self.unpack else {
            return match self.name {
                "bzip2" => bytes.get(4..).is_some_and(|rest| rest.starts_with(BZIP2_BLOCK)),
                name => !matches!(name, "lzma" | "compress"),
            };
        };
        let mut out = Vec::new();
        let read = unpack(bytes).and_then(|reader| reader.take(cut).read_to_end(&mut out));
        let is_cut =
            |error: io::Error| error.kind() == io::ErrorKind::UnexpectedEof && bytes.len() as u64 >= cut;
        !out.is_empty() && read.map_or_else(is_cut, |_| true)
    }

    /// Decompresses at most `most` bytes, or one more to detect the excess. Returns the part before damage too.
    pub(super) fn decompress_up_to(&self, bytes: &[u8], most: u64) -> Decompressed {
        let Some(unpack) = self.unpack else {
            let cut = "it cannot be decompressed here; decompress it and scan that".to_owned();
            return Decompressed { content: Vec::new().into(), incomplete_reason: Some(cut) };
        };
        let mut out = SpillBuffer { memory: Vec::new(), file: None, len: 0 };
        let copied = unpack(bytes).and_then(|reader| out.copy(&mut reader.take(most.saturating_add(1))));
        let cut = match copied {
            Err(error) => Some(format!("it cannot be decompressed to its end: {error}")),
            Ok(()) if out.len > most => {
                Some(format!("it decompresses to more than {most} bytes; decompress it and scan that"))
            }
            Ok(()) => None,
        };
        match out.content() {
            Ok(content) => Decompressed { content, incomplete_reason: cut },
            Err(error) => {
                Decompressed { content: Vec::new().into(), incomplete_reason: Some(error.to_string()) }
            }
        }
    }
}

/// A stream of zlib after which nothing follows: programs may read a second one.
struct WholeZlib<'p>(ZlibDecoder<&'p [u8]>);

impl Read for WholeZlib<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let read = self.0.read(out)?;
        if read == 0 && !out.is_empty() && !self.0.get_ref().is_empty() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "bytes follow the end of the stream"));
        }
        Ok(read)
    }
}

struct SpillBuffer {
    memory: Vec<u8>,
    file: Option<std::fs::File>,
    len: u64,
}

impl SpillBuffer {
    fn copy(&mut self, from: &mut dyn Read) -> io::Result<()> {
        let mut window = vec![0; WINDOW];
        loop {
            let count = from.read(&mut window)?;
            let read = window.get(..count).unwrap_or_default();
            if read.is_empty() {
                return Ok(());
            }
            self.len = self.len.saturating_add(count as u64);
            self.memory.extend_from_slice(read);
            if self.memory.len() > DECOMPRESSED_IN_MEMORY_MAX {
                self.spill()?;
            }
        }
    }

    fn spill(&mut self) -> io::Result<()> {
        let mut file = match self.file.take() {
            Some(file) => file,
            None => tempfile::tempfile()?,
        };
        file.write_all(&self.memory)?;
        self.memory.clear();
        self.file = Some(file);
        Ok(())
    }

    fn content(mut self) -> Result<RecordBytes, byte_source::Error> {
        if self.file.is_none() {
            return Ok(self.memory.into());
        }
        let path = Path::new("a temporary file");
        self.spill().map_err(|reason| byte_source::FileError::Read { path: path.to_owned(), reason })?;
        match self.file {
            Some(file) => RecordBytes::mapped(MappedFile::from_file(&file, path)?),
            None => Ok(Vec::new().into()),
        }
    }
}

/// Returns true for the header of joblib's first compressed files: a length that `int` reads with the base 16.
fn is_zfile(bytes: &[u8]) -> bool {
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b" \t\n\r_+-".contains(byte);
    bytes.starts_with(b"ZF") && bytes.get(2..ZF_HEADER).is_some_and(|len| len.iter().all(is_part))
}

/// Recognises a zlib header: two bytes that are a multiple of 31 and name Deflate with a window of 32 KiB or less.
fn is_zlib(bytes: &[u8]) -> bool {
    let [cmf, flags, ..] = *bytes else { return false };
    cmf & 0x0f == 8 && cmf >> 4 <= 7 && u16::from_be_bytes([cmf, flags]).is_multiple_of(31) && flags & 0x20 == 0
        // Python writes `\x78`, which is not an opcode.
        && cmf == 0x78
}

fn zstd_decoder(bytes: &[u8]) -> io::Result<zstd::Decoder<'_, &[u8]>> {
    let mut decoder = zstd::Decoder::with_buffer(bytes)?;
    // 128 MiB, which `zstd --long` needs. A larger window takes memory on the word of the header alone.
    decoder.window_log_max(27)?;
    Ok(decoder)
}

#[cfg(test)]
mod tests {
    use flate2::Compression;

    use super::*;

    #[test]
    fn no_more_is_decompressed_than_is_allowed() {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), Compression::fast());
        gzip.write_all(&[b'0'; 5000]).expect("memory takes it");
        let gzip = gzip.finish().expect("memory takes it");
        let packed = detect_compression(&gzip).expect("it starts like gzip");
        let whole = packed.decompress_up_to(&gzip, 5000);
        assert_eq!((whole.content.len(), whole.incomplete_reason), (5000, None));
        let cut = packed.decompress_up_to(&gzip, 4999);
        assert_eq!(cut.content.len(), 5000);
        let expected = "it decompresses to more than 4999 bytes; decompress it and scan that";
        assert_eq!(cut.incomplete_reason.as_deref(), Some(expected));
    }

    #[test]
    fn what_joblib_and_pandas_decompress_is_recognised() {
        let name = |bytes: &[u8]| detect_compression(bytes).map(|format| format.name);
        assert_eq!(name(b"]\0\x10\0\0\xff"), Some("lzma"), "a dictionary of 4 KiB");
        assert_eq!(name(b"]."), None);
        assert_eq!(name(b"\x50\x2a\x4d\x18\x03\0\0\0abc"), Some("zstd"));
    }

    #[test]
    fn more_than_fits_in_memory_is_in_a_file() {
        let bytes: Vec<u8> = (0..DECOMPRESSED_IN_MEMORY_MAX + 3 * WINDOW)
            .map(|at| u8::try_from(at % 251).unwrap_or(0))
            .collect();
        for len in [DECOMPRESSED_IN_MEMORY_MAX, DECOMPRESSED_IN_MEMORY_MAX + 1, bytes.len()] {
            let mut out = SpillBuffer { memory: Vec::new(), file: None, len: 0 };
            out.copy(&mut &bytes[..len]).expect("memory can be read");
            assert_eq!((out.len, out.file.is_some()), (len as u64, len > DECOMPRESSED_IN_MEMORY_MAX));
            assert!(out.memory.len() <= DECOMPRESSED_IN_MEMORY_MAX);
            let content = out.content().expect("the file can be mapped");
            assert_eq!((content.len(), &content[..]), (len, &bytes[..len]), "{len}");
        }
    }

    #[test]
    fn a_zlib_header_is_what_python_writes() {
        for level in [b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda"] {
            assert!(is_zlib(level));
        }
        // Another window, another method, a wrong check, and a dictionary.
        for other in [b"\x68\x81", b"\x88\x1c", b"\x79\x18", b"\x78\x9d", b"\x78\x20", b"\x78\xbb"] {
            assert!(!is_zlib(other), "{other:x?}");
        }
        assert!(!is_zlib(b"\x78"));
    }
}

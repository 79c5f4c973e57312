//! A checkpoint of any number of small tensors, as `torch.save` writes it.

#[path = "../../../crates/pickle-vm/tests/it/common/checkpoint.rs"]
mod checkpoint;

use std::error::Error;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use byte_source::{Sink, Window};
use zip_format::{EntryContent, NewZipEntry, ZipWriter};

/// Elements along each side of a matrix.
const SIDE: u8 = 4;
const BYTES: usize = 2 * SIDE as usize * SIDE as usize;

/// Writes a state dict of `count` bfloat16 matrices to `path`.
pub(crate) fn save(path: &Path, count: u32) -> Result<(), Box<dyn Error>> {
    struct Out(BufWriter<File>);
    impl Sink for Out {
        fn write(&mut self, window: Window) -> Result<(), byte_source::Error> {
            Ok(self.0.write_all(&window)?)
        }
    }
    let mut out = Out(BufWriter::new(File::create(path)?));
    let mut zip = ZipWriter::new(&mut out);
    let mut add = |name: &str, bytes: &[u8]| {
        zip.add(&NewZipEntry { name, alignment: 64, content: EntryContent::Bytes(bytes) })
    };
    add("model/data.pkl", &checkpoint::checkpoint(count, SIDE)?)?;
    add("model/byteorder", b"little")?;
    for key in 0..count {
        add(&format!("model/data/{key}"), &[0; BYTES])?;
    }
    add("model/version", b"3\n")?;
    zip.finish()?;
    out.0.flush()?;
    Ok(())
}

//! Bytes as a file in memory, because the readers map files. Source: memfd_create(2).

use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::PathBuf;

use mapped::MappedFile;
use rustix::fs::{MemfdFlags, memfd_create};

/// A file that is in memory only.
#[derive(Debug)]
pub struct Memory(File);

impl Memory {
    /// A file of these bytes.
    pub fn new(bytes: &[u8]) -> Self {
        let file = memfd_create("input", MemfdFlags::CLOEXEC).expect("Linux has files in memory");
        let mut file = File::from(file);
        file.write_all(bytes).expect("a fuzzer's inputs are small");
        Self(file)
    }

    /// A path that opens the file, until this value is dropped.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.0.as_raw_fd()))
    }

    /// The file, mapped.
    pub fn map(&self) -> MappedFile {
        MappedFile::from_file(&self.0, "input".as_ref()).expect("a file in memory can be mapped")
    }
}

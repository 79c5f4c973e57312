//! Writing of a large file past the page cache.
//!
//! Facts: `open(2)` on `O_DIRECT`, `fcntl(2)`, `statfs(2)`. A filesystem may refuse it, or ask for more alignment than a page.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl, fstatfs};

/// Writes a file from its start to its end past the page cache. The copy into the cache takes one core as long as all other
/// work of a conversion, and it pushes out what other programs read. Here, the disk reads blocks of memory while the caller goes on.
#[derive(Debug)]
pub(crate) struct DirectWriter {
    file: File,
    /// Block that is being filled.
    block: Block,
    /// Where the block belongs in the file.
    offset: u64,
    full: SyncSender<(u64, Block)>,
    empty: Receiver<io::Result<Block>>,
}

impl DirectWriter {
    /// Number of threads that write, so that the disk has a block to write while another one is on its way.
    const THREADS: usize = 2;
    /// Number of blocks: those that are written, the one that is being filled, and those that wait. Work on tensors comes in bursts,
    /// and with only one block that waits, the work and the disk stop in turns.
    const BLOCKS: usize = Self::THREADS + 6;

    /// Starts to write `file`, which is empty. `None` if the system cannot, or if the filesystem may not be on a local disk: one in
    /// memory has no disk, and one over a network may need the bytes in order.
    pub(crate) fn start(file: &File) -> Option<Self> {
        // Magic numbers of ext2 to ext4, of XFS, and of overlayfs, in which containers run.
        if !matches!(fstatfs(file).ok()?.f_type, 0xEF53 | 0x5846_5342 | 0x794C_7630) {
            return None;
        }
        set_direct(file, true).ok()?;
        let started = Self::start_threads(file);
        if started.is_err() {
            set_direct(file, false).ok()?;
        }
        started.ok()
    }

    fn start_threads(file: &File) -> io::Result<Self> {
        let (full, blocks) = sync_channel(Self::BLOCKS);
        let (emptied, empty) = channel();
        let blocks = Arc::new(Mutex::new(blocks));
        for _ in 0..Self::THREADS {
            let (file, blocks, emptied) = (file.try_clone()?, Arc::clone(&blocks), emptied.clone());
            let work = move || write_blocks(&file, &blocks, &emptied);
            thread::Builder::new().name("write".to_owned()).spawn(work)?;
        }
        for _ in 1..Self::BLOCKS {
            emptied.send(Ok(Block::new())).map_err(io::Error::other)?;
        }
        Ok(Self { file: file.try_clone()?, block: Block::new(), offset: 0, full, empty })
    }

    /// Writes what remains, without a sync.
    pub(crate) fn finish(self) -> io::Result<()> {
        let Self { file, block, offset, full, empty } = self;
        drop(full);
        empty.into_iter().try_for_each(|written| written.map(drop))?;
        // A file seldom ends where a page does.
        set_direct(&file, false)?;
        file.write_all_at(block.filled(), offset)
    }
}

impl Write for DirectWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.block.room().is_empty() {
            let empty = self.empty.recv().map_err(io::Error::other)??;
            let full = std::mem::replace(&mut self.block, empty);
            self.full.send((self.offset, full)).map_err(io::Error::other)?;
            self.offset = self.offset.saturating_add(Block::LEN as u64);
        }
        self.block.push(bytes)
    }

    /// Does nothing: a block is written when it is full or the [last one](DirectWriter::finish).
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes blocks to their places in `file` until no more are sent, and returns each one empty.
fn write_blocks(file: &File, blocks: &Mutex<Receiver<(u64, Block)>>, emptied: &Sender<io::Result<Block>>) {
    let next = || blocks.lock().unwrap_or_else(PoisonError::into_inner).recv();
    while let Ok((offset, mut block)) = next() {
        let written = write_block(file, block.filled(), offset);
        block.len = 0;
        if emptied.send(written.map(|()| block)).is_err() {
            return;
        }
    }
}

fn write_block(file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    file.write_all_at(bytes, offset).or_else(|error| {
        // Some filesystems refuse it only now, and the rest of a block that was written in part has no page to start at.
        if error.kind() != io::ErrorKind::InvalidInput {
            return Err(error);
        }
        set_direct(file, false)?;
        file.write_all_at(bytes, offset)
    })
}

/// Turns direct writes on or off for all handles of the open file.
fn set_direct(file: &File, is_direct: bool) -> io::Result<()> {
    let mut flags = fcntl_getfl(file)?;
    flags.set(OFlags::DIRECT, is_direct);
    Ok(fcntl_setfl(file, flags)?)
}

/// Buffer that starts at a page of memory, as direct writes demand.
#[derive(Debug)]
struct Block {
    bytes: Vec<u8>,
    /// Index of the first byte of the page.
    start: usize,
    /// Number of bytes that are filled.
    len: usize,
}

impl Block {
    /// Bytes of a full block. Half of it is slower.
    const LEN: usize = 1 << 20;
    /// Bytes of a page, or of several.
    const PAGE: usize = 4096;

    fn new() -> Self {
        let bytes = vec![0; Self::LEN.saturating_add(Self::PAGE)];
        let start = bytes.as_ptr().align_offset(Self::PAGE);
        Self { bytes, start, len: 0 }
    }

    /// Adds as many bytes as there is room for, and returns their number.
    fn push(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.room().write(bytes)?;
        self.len = self.len.saturating_add(count);
        Ok(count)
    }

    fn room(&mut self) -> &mut [u8] {
        let (filled, end) = (self.start.saturating_add(self.len), self.start.saturating_add(Self::LEN));
        self.bytes.get_mut(filled..end).unwrap_or_default()
    }

    fn filled(&self) -> &[u8] {
        let end = self.start.saturating_add(self.len);
        self.bytes.get(self.start..end).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use tempfile::NamedTempFile;

    use super::*;

    fn content(len: usize) -> Vec<u8> {
        (0_u8..251).cycle().take(len).collect()
    }

    /// Returns an empty file next to the program of the tests, because the folder of temporary files may be in memory.
    fn empty_file() -> NamedTempFile {
        let program = std::env::current_exe().expect("it is known");
        NamedTempFile::new_in(program.parent().expect("a folder")).expect("it can be written")
    }

    #[test]
    fn what_is_written_is_in_the_file() {
        let full = Block::LEN;
        for len in [0, 1, Block::PAGE, full - 1, full, full + 1, 9 * full + 5] {
            let file = empty_file();
            let Some(mut writer) = DirectWriter::start(file.as_file()) else { return };
            for piece in content(len).chunks(full / 3 + 1) {
                writer.write_all(piece).expect("it can be written");
            }
            writer.finish().expect("it can be written");
            assert!(std::fs::read(file.path()).expect("it exists") == content(len), "{len} bytes");
        }
    }

    #[test]
    fn bytes_that_start_in_the_middle_of_a_page_are_written_too() {
        let file = empty_file();
        if set_direct(file.as_file(), true).is_ok() {
            write_block(file.as_file(), &content(5), 1).expect("it can be written");
            assert_eq!(std::fs::read(file.path()).expect("it exists"), [0, 0, 1, 2, 3, 4]);
        }
    }

    #[test]
    fn a_write_that_fails_is_an_error() {
        for blocks in [1, 9] {
            let file = empty_file();
            let read_only = File::open(file.path()).expect("it exists");
            let Some(mut writer) = DirectWriter::start(&read_only) else { return };
            let written = (0..blocks).try_for_each(|_| writer.write_all(&content(Block::LEN)));
            let error = written.and_then(|()| writer.finish()).expect_err("it cannot be written");
            assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::BADF.raw_os_error()));
        }
    }
}

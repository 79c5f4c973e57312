//! The threads that share a product.

use rayon::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::{Error, Result};

/// Threads that wait for work.
#[derive(Debug)]
pub(crate) struct Pool {
    threads: ThreadPool,
}

impl Pool {
    /// A pool of this many threads, or of as many as the machine runs at once.
    ///
    /// # Errors
    /// When the system does not start the threads.
    pub(crate) fn new(threads: Option<usize>) -> Result<Self> {
        let available = || std::thread::available_parallelism().map_or(1, usize::from);
        let count = threads.unwrap_or_else(available).max(1);
        let built = ThreadPoolBuilder::new()
            .num_threads(count)
            .thread_name(|number| format!("forward-{number}"))
            .build();
        let threads = built.map_err(|error| Error::Threads { threads: count, reason: error.to_string() })?;
        Ok(Self { threads })
    }

    /// The number of threads.
    pub(crate) fn threads(&self) -> usize {
        self.threads.current_num_threads()
    }

    /// Runs `work` on a thread of the pool. Work that uses the pool many times runs faster inside of this, because handing
    /// each part to the pool from outside wakes a thread.
    pub(crate) fn run<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        self.threads.install(work)
    }

    /// Calls `work` with the number and the elements of each chunk of `size` elements, on all threads.
    pub(crate) fn chunks<T: Send>(
        &self,
        elements: &mut [T],
        size: usize,
        work: impl Fn(usize, &mut [T]) + Send + Sync,
    ) {
        self.run(|| {
            let chunks = elements.par_chunks_mut(size.max(1));
            chunks.enumerate().for_each(|(number, chunk)| work(number, chunk));
        });
    }
}

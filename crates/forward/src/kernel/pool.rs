//! The threads that share a product.

use std::sync::Mutex;

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

    /// Runs `work` on a thread of the pool. Work that uses the pool many times runs faster inside `run`, because handing
    /// each part to the pool from outside wakes a thread.
    pub(crate) fn run<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        self.threads.install(work)
    }

    /// Calls `work` with each job, on all threads. A thread that has finished one takes another.
    pub(crate) fn for_each<J: Send>(&self, jobs: Vec<J>, work: impl Fn(J) + Send + Sync) {
        if jobs.len() < 2 || self.threads() == 1 {
            return jobs.into_iter().for_each(work);
        }
        let (count, jobs) = (jobs.len(), Mutex::new(jobs.into_iter()));
        self.repeat(count, &|| {
            let job = jobs.lock().ok().and_then(|mut jobs| jobs.next());
            job.into_iter().for_each(&work);
        });
    }

    /// Calls `work` `count` times, on all threads. It is not generic, so that rayon is not compiled again for each kind of work.
    fn repeat(&self, count: usize, work: &(dyn Fn() + Sync)) {
        self.run(|| (0..count).into_par_iter().with_max_len(1).for_each(|_| work()));
    }
}

/// Cuts rows of `width` elements into columns of `size`, from left to right: the first element's position in its row, and the
/// part of each row.
pub(crate) fn columns<T>(elements: &mut [T], width: usize, size: usize) -> Vec<(usize, Vec<&mut [T]>)> {
    let (width, size) = (width.max(1), size.max(1));
    let rows = elements.len().checked_div(width).unwrap_or(0);
    let starts = (0..width).step_by(size);
    let mut columns: Vec<_> = starts.map(|start| (start, Vec::with_capacity(rows))).collect();
    for row in elements.chunks_exact_mut(width) {
        for ((_, column), part) in columns.iter_mut().zip(row.chunks_mut(size)) {
            column.push(part);
        }
    }
    columns
}

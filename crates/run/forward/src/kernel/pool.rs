//! Thread pool that shares the work of products.
//!
//! A forward pass has many short pieces of shared work. Waking a sleeping thread takes as long as some of them, so the
//! threads stay awake during a pass.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use rayon::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder, Yield};

use crate::{Problem, Result};

#[derive(Debug)]
pub(crate) struct Pool {
    threads: Arc<ThreadPool>,
    /// For each thread, true while it runs the work of a call of [`Pool::run`].
    leading_threads: Arc<[AtomicBool]>,
    /// True if there is a processor for each thread.
    fits_processors: bool,
    /// True if the result of a row must not depend on how many rows a product has.
    computes_rows_alike: bool,
}

/// Number of times a thread without work looks for some before it yields its processor.
const POLLS_MAX: u32 = 64;

impl Pool {
    /// Creates a pool of this many threads, or of as many as the machine runs at once. They run portable code if this thread does.
    ///
    /// # Errors
    /// When the system does not start the threads.
    pub(crate) fn new(threads: Option<usize>) -> Result<Self> {
        let available = byte_source::core_share();
        let count = threads.unwrap_or(available).max(1);
        let is_portable = kernels::uses_portable_code();
        let built = ThreadPoolBuilder::new()
            .num_threads(count)
            .thread_name(|number| format!("forward-{number}"))
            .start_handler(move |_| kernels::set_portable_code(is_portable))
            .build();
        let threads =
            built.map_err(|error| Problem::Threads { threads: count, reason: error.to_string() })?;
        let leads = (0..threads.current_num_threads()).map(|_| AtomicBool::new(false)).collect();
        let (threads, fits_processors) = (Arc::new(threads), count <= available);
        Ok(Self { threads, leading_threads: leads, fits_processors, computes_rows_alike: false })
    }

    /// Returns a pool of the same threads whose products give a row the same result, bit for bit, for any number of rows.
    pub(crate) fn rows_alike(&self) -> Self {
        let (threads, leading_threads) = (self.threads.clone(), self.leading_threads.clone());
        Self { threads, leading_threads, fits_processors: self.fits_processors, computes_rows_alike: true }
    }

    pub(crate) fn computes_rows_alike(&self) -> bool {
        self.computes_rows_alike
    }

    pub(crate) fn threads(&self) -> usize {
        self.threads.current_num_threads()
    }

    /// Runs `work` on a thread of the pool, and keeps the other threads awake meanwhile. Work that uses the pool many
    /// times runs faster inside of this call, because handing each part to the pool from outside wakes a thread.
    pub(crate) fn run<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        self.threads.install(|| {
            let _awake = AwakeGuard::new(self);
            work()
        })
    }

    /// Calls `work` with each job, on all threads. A thread that has finished a job takes another.
    pub(crate) fn for_each<I>(&self, jobs: I, work: impl Fn(I::Item) + Send + Sync)
    where
        I: IntoIterator<IntoIter: Send, Item: Send>,
    {
        let jobs = jobs.into_iter();
        if self.threads() == 1 || jobs.size_hint().1.is_some_and(|most| most < 2) {
            return jobs.for_each(work);
        }
        let jobs = Mutex::new(jobs.fuse());
        let next = || jobs.lock().ok().and_then(|mut jobs| jobs.next());
        self.run_on_all(&|| {
            while let Some(job) = next() {
                work(job);
            }
        });
    }

    /// Calls `work` on all threads. The method is not generic, so that rayon is not compiled again for each kind of
    /// work.
    fn run_on_all(&self, work: &(dyn Fn() + Sync)) {
        let busy = AtomicUsize::new(0);
        let each = || {
            busy.fetch_add(1, Ordering::Relaxed);
            work();
            busy.fetch_sub(1, Ordering::Release);
            // The other threads finish in less time than falling asleep and waking up takes.
            for _ in 0..POLLS_MAX {
                if busy.load(Ordering::Acquire) == 0 {
                    break;
                }
                (0..POLLS_MAX).for_each(|_| std::hint::spin_loop());
            }
        };
        let threads = 0..self.threads();
        self.threads.install(|| threads.into_par_iter().with_max_len(1).for_each(|_| each()));
    }
}

/// Guard that keeps the threads of a pool awake until it is dropped.
struct AwakeGuard {
    is_over: Arc<AtomicBool>,
    leads: Arc<[AtomicBool]>,
    /// Number of the thread that created the guard, and its value in `leads` before.
    leader: Option<(usize, bool)>,
}

impl AwakeGuard {
    /// Creates the guard, on a thread of the pool.
    fn new(pool: &Pool) -> Self {
        let (is_over, leads) = (Arc::new(AtomicBool::new(false)), Arc::clone(&pool.leading_threads));
        let leader = pool.threads.current_thread_index().and_then(|number| {
            let led = leads.get(number)?.swap(true, Ordering::Relaxed);
            Some((number, led))
        });
        // If there are fewer processors than threads, a thread that is awake without work would be in the way.
        let count = if pool.fits_processors { pool.threads() } else { 1 };
        for _ in 1..count {
            let (is_over, leads) = (Arc::clone(&is_over), Arc::clone(&leads));
            pool.threads.spawn(move || stay_awake(&is_over, &leads));
        }
        Self { is_over, leads, leader }
    }
}

impl Drop for AwakeGuard {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some((number, led)) = self.leader
            && let Some(leads) = self.leads.get(number)
        {
            leads.store(led, Ordering::Relaxed);
        }
    }
}

/// Runs the pool's work as it comes, until the pass is over. A thread that leads a pass returns at once, because its
/// pass would have to wait for this one, and two passes would wait for each other.
fn stay_awake(is_over: &AtomicBool, leads: &[AtomicBool]) {
    let leads = rayon::current_thread_index().and_then(|number| leads.get(number));
    if leads.is_none_or(|leads| leads.load(Ordering::Relaxed)) {
        return;
    }
    let mut looks = 0_u32;
    while !is_over.load(Ordering::Relaxed) {
        looks = match rayon::yield_now() {
            Some(Yield::Executed) => 0,
            _ => looks.saturating_add(1),
        };
        if looks > POLLS_MAX {
            std::thread::yield_now();
        } else {
            std::hint::spin_loop();
        }
    }
}

/// Cuts rows of `width` elements into columns of `size` elements, from left to right. Returns for each column the
/// position of its first element in a row, and its part of each row.
pub(crate) fn split_columns<T>(elements: &mut [T], width: usize, size: usize) -> Vec<(usize, Vec<&mut [T]>)> {
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::{AwakeGuard, Pool};

    #[test]
    fn a_thread_leads_until_the_pass_is_over() {
        let pool = Pool::new(Some(2)).expect("two threads");
        let leaders = || pool.leading_threads.iter().filter(|leads| leads.load(Ordering::Relaxed)).count();
        let (during, nested, after) = pool.threads.install(|| {
            let guard = AwakeGuard::new(&pool);
            let during = leaders();
            drop(AwakeGuard::new(&pool));
            let nested = leaders();
            drop(guard);
            (during, nested, leaders())
        });
        assert_eq!((during, nested, after), (1, 1, 0));
    }
}

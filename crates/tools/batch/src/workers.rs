//! Threads that take the jobs of a batch one after the other, and share the cores and the memory.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};

use byte_source::{Cancelled, Notice, Observer, ProgressUpdate};

use crate::memory::MemoryBudget;

/// Job of a batch, which runs on one thread.
pub trait Job: Send {
    /// Result of the job.
    type Done: Send;

    /// Returns the path of the input, whose size tells how much memory the job takes.
    fn input(&self) -> &Path;

    /// Does the work.
    ///
    /// # Errors
    /// When `observer` stops it. A failure is a part of the result.
    fn run(self, observer: &dyn Observer) -> Result<Self::Done, Cancelled>;
}

/// Resources that the jobs of a batch share.
#[derive(Clone, Copy, Debug)]
pub struct JobLimits {
    /// Number of jobs that run at the same time, and share the cores.
    pub jobs: NonZeroUsize,
    /// Memory in bytes that the jobs take together, as far as it can be estimated; `None` for no limit.
    pub memory: Option<u64>,
}

/// Order in which the results of jobs arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultOrder {
    /// Each result arrives when its job ends.
    AsJobsEnd,
    /// A result waits for those of all earlier jobs.
    OfJobs,
}

/// Runs jobs. `next_job` returns the jobs in order, one thread at a time calls it, and it is called only when a thread is free.
/// `done` receives the results on the caller's thread.
///
/// # Errors
/// Returns the first error of `next_job` or `done`, or that `observer` stopped a job. After it no further job starts, and
/// running ones are cancelled.
pub fn run_jobs<J: Job, E: From<Cancelled> + Send>(
    limits: JobLimits,
    order: ResultOrder,
    observer: &dyn Observer,
    mut next_job: impl FnMut() -> Result<Option<J>, E> + Send,
    mut done: impl FnMut(J::Done) -> Result<(), E>,
) -> Result<(), E> {
    let threads = limits.jobs.get();
    let budget = limits.memory.map(MemoryBudget::new);
    let run = |job: J, observer: &dyn Observer| {
        let share = budget.as_ref().map(|budget| budget.reserve(job.input(), threads, observer)).transpose();
        share.and_then(|_share| job.run(observer))
    };
    let is_stopped = AtomicBool::new(false);
    // After an error no further job is taken, until the error has arrived.
    let is_over = AtomicBool::new(false);
    let mut taken = 0_u64;
    let source = Mutex::new(|| {
        if is_stopped.load(Ordering::Relaxed) || is_over.load(Ordering::Relaxed) {
            return None;
        }
        let job = next_job().transpose();
        is_over.fetch_or(!matches!(job, Some(Ok(_))), Ordering::Relaxed);
        let place = taken;
        taken = taken.saturating_add(1);
        job.map(|job| (place, job))
    });
    let share = NonZeroUsize::new(byte_source::core_share() / limits.jobs).unwrap_or(NonZeroUsize::MIN);
    std::thread::scope(|scope| {
        // A thread waits with its result, so that results cannot pile up.
        let (results, received) = mpsc::sync_channel(threads);
        for _ in 0..threads {
            let (results, source, run) = (results.clone(), &source, &run);
            let (is_stopped, is_over) = (&is_stopped, &is_over);
            scope.spawn(move || {
                byte_source::set_core_share(share);
                let observer = StoppableObserver { observer, is_stopped };
                let take = || source.lock().unwrap_or_else(PoisonError::into_inner)();
                while let Some((place, job)) = take() {
                    let result = job.and_then(|job| Ok(run(job, &observer)?));
                    is_over.fetch_or(result.is_err(), Ordering::Relaxed);
                    if results.send((place, result)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(results);
        let (mut waiting, mut next) = (BTreeMap::new(), 0_u64);
        let ended = received.iter().try_for_each(|(place, result)| {
            if order == ResultOrder::AsJobsEnd {
                return done(result?);
            }
            waiting.insert(place, result?);
            while let Some(result) = waiting.remove(&next) {
                next = next.saturating_add(1);
                done(result)?;
            }
            Ok(())
        });
        is_stopped.store(true, Ordering::Relaxed);
        // Threads that wait with a result end.
        drop(received);
        ended
    })
}

/// Observer that also stops when the batch has ended.
struct StoppableObserver<'o> {
    observer: &'o dyn Observer,
    is_stopped: &'o AtomicBool,
}

impl Observer for StoppableObserver<'_> {
    fn progress(&self, step: ProgressUpdate<'_>) {
        self.observer.progress(step);
    }

    fn note(&self, note: &dyn Notice) {
        self.observer.note(note);
    }

    fn is_cancelled(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed) || self.observer.is_cancelled()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Error, Problem};

    struct Numbered(u64);

    impl Job for Numbered {
        type Done = u64;

        fn input(&self) -> &Path {
            Path::new("missing")
        }

        fn run(self, observer: &dyn Observer) -> Result<u64, Cancelled> {
            observer.check().map(|()| self.0)
        }
    }

    fn limits(jobs: usize) -> JobLimits {
        JobLimits { jobs: NonZeroUsize::new(jobs).expect("not zero"), memory: None }
    }

    #[test]
    fn each_job_runs_once() {
        for order in [ResultOrder::AsJobsEnd, ResultOrder::OfJobs] {
            let mut numbers = 0..1000;
            let mut seen = Vec::new();
            let next_job = || Ok::<_, Error>(numbers.next().map(Numbered));
            run_jobs(limits(3), order, &(), next_job, |number| {
                seen.push(number);
                Ok(())
            })
            .expect("no result is refused");
            if order == ResultOrder::AsJobsEnd {
                seen.sort_unstable();
            }
            assert!(seen.into_iter().eq(0..1000), "{order:?}");
        }
    }

    #[test]
    fn an_error_ends_endless_jobs() {
        let mut left = 10;
        let ended = run_jobs(
            limits(2),
            ResultOrder::OfJobs,
            &(),
            || Ok(Some(Numbered(0))),
            |_| {
                left -= 1;
                if left == 0 { Err(Error::from(std::io::ErrorKind::BrokenPipe)) } else { Ok(()) }
            },
        );
        let ended = ended.expect_err("the last result is not taken");
        assert_eq!(ended.io_kind(), Some(std::io::ErrorKind::BrokenPipe));
        let next_job = || {
            let problem = Problem::Index(std::io::ErrorKind::Other.into());
            Err::<Option<Numbered>, _>(Error::from(problem))
        };
        let ended = run_jobs(limits(2), ResultOrder::AsJobsEnd, &(), next_job, |_| Ok(()));
        assert_eq!(ended.expect_err("there is no job").code(), "batch::Index");
    }
}

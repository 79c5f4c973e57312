//! Jobs of a batch, which several threads take one after the other.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};

use byte_source::{Notice, Observer, ProgressUpdate};

/// Runs jobs on `threads` threads, which share the cores. `next_job` returns the jobs in order, one thread at a time calls it,
/// and it is called only when a thread is free. `done` receives each result on the caller's thread as soon as the job ends.
///
/// # Errors
/// Returns the first error of `done`, after which no further job starts, and running ones are cancelled.
pub fn run_jobs<J: Send, R: Send, E>(
    threads: NonZeroUsize,
    observer: &dyn Observer,
    next_job: impl FnMut() -> Option<J> + Send,
    run: impl Fn(J, &dyn Observer) -> R + Sync,
    mut done: impl FnMut(R) -> Result<(), E>,
) -> Result<(), E> {
    let is_stopped = AtomicBool::new(false);
    let source = Mutex::new(next_job);
    let share = NonZeroUsize::new(byte_source::core_share() / threads).unwrap_or(NonZeroUsize::MIN);
    std::thread::scope(|scope| {
        // A thread waits with its result, so that results cannot pile up.
        let (results, received) = mpsc::sync_channel(threads.get());
        for _ in 0..threads.get() {
            let (results, source, is_stopped, run) = (results.clone(), &source, &is_stopped, &run);
            scope.spawn(move || {
                byte_source::set_core_share(share);
                let observer = StoppableObserver { observer, is_stopped };
                let take = || {
                    let mut next_job = source.lock().unwrap_or_else(PoisonError::into_inner);
                    if is_stopped.load(Ordering::Relaxed) { None } else { next_job() }
                };
                while let Some(job) = take() {
                    if results.send(run(job, &observer)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(results);
        let ended = received.iter().try_for_each(&mut done);
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

    #[test]
    fn each_job_runs_once() {
        let mut numbers = 0..1000_u32;
        let mut seen = Vec::new();
        let threads = NonZeroUsize::new(3).expect("not zero");
        let run = |number: u32, _: &dyn Observer| number;
        let done = |number| {
            seen.push(number);
            Ok::<(), ()>(())
        };
        run_jobs(threads, &(), move || numbers.next(), run, done).expect("no result is refused");
        seen.sort_unstable();
        assert!(seen.into_iter().eq(0..1000));
    }

    #[test]
    fn an_error_ends_endless_jobs() {
        let threads = NonZeroUsize::new(2).expect("not zero");
        let mut left = 10;
        let done = |()| {
            left -= 1;
            if left == 0 { Err("enough") } else { Ok(()) }
        };
        assert_eq!(run_jobs(threads, &(), || Some(()), |(), _| (), done), Err("enough"));
    }
}

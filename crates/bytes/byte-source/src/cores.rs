//! Number of threads that a piece of work may use, and work on many items with that many threads.
//!
//! This is the only place that asks for the number of cores. Computed tensors are the exception: they nest, so they run on
//! rayon's pool, which has one thread for each core and which all jobs share.

use std::cell::Cell;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

thread_local! {
    /// Maximum number of threads that work of this thread uses; `None` for one per core.
    static CORE_SHARE: Cell<Option<NonZeroUsize>> = const { Cell::new(None) };
}

/// Returns the number of threads that work of the calling thread should use: as many as the machine runs at once, or fewer
/// after [`set_core_share`].
pub fn core_share() -> usize {
    // Asked once: Linux reads three files for the answer, which takes a fifth of the time to open a small checkpoint.
    static ALL: OnceLock<NonZeroUsize> = OnceLock::new();
    let all = || *ALL.get_or_init(|| std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN));
    CORE_SHARE.get().unwrap_or_else(all).get()
}

/// Sets the number of threads that work of the calling thread uses, such as for one of several jobs that share the cores.
pub fn set_core_share(threads: NonZeroUsize) {
    CORE_SHARE.set(Some(threads));
}

/// Calls `work` for each number below `count`, in ascending order, on as many threads as [`core_share`] returns. Each
/// thread keeps a state, which `new_state` creates.
///
/// # Errors
/// Returns the error of the lowest number that failed. No further number is started after an error.
pub fn on_all_cores<S, E: Send>(
    count: u64,
    new_state: impl Fn() -> S + Sync,
    work: impl Fn(&mut S, u64) -> Result<(), E> + Sync,
) -> Result<(), E> {
    let (next, has_failed) = (AtomicU64::new(0), AtomicBool::new(false));
    let failed: Mutex<Option<(u64, E)>> = Mutex::new(None);
    let run = || {
        let mut state = new_state();
        while !has_failed.load(Ordering::Relaxed) {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count {
                break;
            }
            if let Err(error) = work(&mut state, number) {
                has_failed.store(true, Ordering::Relaxed);
                let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
                if failed.as_ref().is_none_or(|(first, _)| number < *first) {
                    *failed = Some((number, error));
                }
            }
        }
    };
    let cores = core_share();
    let threads = usize::try_from(count).unwrap_or(cores).min(cores);
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(run);
        }
        run();
    });
    failed.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), |(_, error)| Err(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_is_worked_on_once() {
        let seen: Vec<AtomicU64> = (0..1000).map(|_| AtomicU64::new(0)).collect();
        let work = |(): &mut (), number: u64| -> Result<(), ()> {
            seen[usize::try_from(number).expect("small")].fetch_add(1, Ordering::Relaxed);
            Ok(())
        };
        on_all_cores(1000, || (), work).expect("no item fails");
        assert!(seen.iter().all(|count| count.load(Ordering::Relaxed) == 1));
        on_all_cores(0, || (), work).expect("there is nothing to do");
    }

    #[test]
    fn a_thread_with_a_share_uses_no_more_threads() {
        let threads_of = |count: usize| {
            let seen = Mutex::new(std::collections::HashSet::new());
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    set_core_share(NonZeroUsize::new(count).expect("not zero"));
                    let work = |(): &mut (), _| -> Result<(), ()> {
                        seen.lock().expect("no panic").insert(std::thread::current().id());
                        std::thread::sleep(std::time::Duration::from_micros(100));
                        Ok(())
                    };
                    on_all_cores(100, || (), work).expect("no item fails");
                });
            });
            seen.into_inner().expect("no panic").len()
        };
        assert_eq!(threads_of(1), 1);
        assert!((1..=3).contains(&threads_of(3)));
    }

    #[test]
    fn the_first_error_is_returned() {
        let work = |done: &mut u64, number: u64| {
            *done = done.wrapping_add(1);
            if number % 7 == 3 { Err(number) } else { Ok(()) }
        };
        assert_eq!(on_all_cores(2, || 0, work), Ok(()));
        assert_eq!(on_all_cores(1000, || 0, work), Err(3));
    }

    #[test]
    fn of_two_failures_the_one_of_the_lower_number_is_returned() {
        /// Tells when the thread that has it has ended its work.
        struct Ended(std::sync::mpsc::Sender<()>);
        impl Drop for Ended {
            fn drop(&mut self) {
                let _ = self.0.send(());
            }
        }
        let (sender, receiver) = std::sync::mpsc::channel();
        let receiver = Mutex::new(receiver);
        let work = |_: &mut Ended, number: u64| {
            if number == 0 {
                let other_ended = receiver.lock().expect("no panic").recv();
                other_ended.expect("the thread of the other number ends after its error");
            }
            Err(number)
        };
        let result = std::thread::scope(|scope| {
            let caller = scope.spawn(|| {
                set_core_share(NonZeroUsize::new(2).expect("not zero"));
                on_all_cores(2, || Ended(sender.clone()), work)
            });
            caller.join().expect("no panic")
        });
        assert_eq!(result, Err(0));
    }
}

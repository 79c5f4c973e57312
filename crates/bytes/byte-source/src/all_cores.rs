//! Work on many items with one thread per core.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Calls `work` for each number below `count`, in ascending order, on as many threads as the machine runs at once. Each
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
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
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
    fn the_first_error_is_returned() {
        let work = |done: &mut u64, number: u64| {
            *done = done.wrapping_add(1);
            if number % 7 == 3 { Err(number) } else { Ok(()) }
        };
        assert_eq!(on_all_cores(2, || 0, work), Ok(()));
        assert_eq!(on_all_cores(1000, || 0, work), Err(3));
    }
}

//! Metrics of the process: its memory, processor time, open files and start.
//!
//! Facts: the names that Prometheus' client libraries use for them; proc(5).

#[derive(Clone, Copy, Debug)]
pub(crate) struct ProcessMetrics {
    /// User and system time in seconds.
    pub(crate) cpu_seconds: f64,
    pub(crate) resident_bytes: u64,
    pub(crate) virtual_bytes: u64,
    pub(crate) threads: u64,
    /// Start of the process in seconds since 1970.
    pub(crate) start_seconds: f64,
    /// Number of open file descriptors, if it can be read.
    pub(crate) open_files: Option<u64>,
    /// Largest number of open file descriptors; `None` without a limit.
    pub(crate) max_files: Option<u64>,
}

impl ProcessMetrics {
    /// Reads the metrics from `/proc`; `None` where there is none, such as in an empty root folder.
    #[cfg(target_os = "linux")]
    pub(crate) fn read() -> Option<Self> {
        use procfs::process::{LimitValue, Process};

        let process = Process::myself().ok()?;
        let stat = process.stat().ok()?;
        let max_files = match process.limits().ok()?.max_open_files.soft_limit {
            LimitValue::Value(limit) => Some(limit),
            LimitValue::Unlimited => None,
        };
        let seconds = |ticks: u64| seconds_of_ticks(ticks, procfs::ticks_per_second());
        let boot = std::time::Duration::from_secs(procfs::boot_time_secs().ok()?);
        Some(Self {
            cpu_seconds: seconds(stat.utime.saturating_add(stat.stime)),
            resident_bytes: stat.rss.saturating_mul(procfs::page_size()),
            virtual_bytes: stat.vsize,
            threads: u64::try_from(stat.num_threads).unwrap_or(0),
            start_seconds: boot.as_secs_f64() + seconds(stat.starttime),
            open_files: process.fd_count().ok().and_then(|count| u64::try_from(count).ok()),
            max_files,
        })
    }

    /// Returns `None`: other systems have no `/proc`.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn read() -> Option<Self> {
        None
    }
}

#[cfg(target_os = "linux")]
fn seconds_of_ticks(ticks: u64, per_second: u64) -> f64 {
    let ticks = std::time::Duration::from_secs(ticks);
    ticks.as_secs_f64() / std::time::Duration::from_secs(per_second.max(1)).as_secs_f64()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_parts_of_seconds() {
        assert!((seconds_of_ticks(250, 100) - 2.5).abs() < 1e-9);
        assert!((seconds_of_ticks(3, 0) - 3.0).abs() < 1e-9);
    }
}

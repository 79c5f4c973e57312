//! Histogram of durations with the buckets of the Prometheus metrics.

use std::time::Duration;

/// Upper bounds of the buckets, in microseconds. A bucket above all of them counts the rest.
pub(crate) const BOUNDS_US: [u64; 15] = [
    500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000,
    5_000_000, 10_000_000, 60_000_000,
];

/// Number of events, their total duration, and how many took at most as long as each bound.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DurationHistogram {
    pub(crate) count: u64,
    pub(crate) total: Duration,
    /// Events between a bound and the one below it.
    buckets: [u64; BOUNDS_US.len()],
}

impl DurationHistogram {
    pub(crate) fn add(&mut self, time: Duration) {
        self.count = self.count.saturating_add(1);
        self.total = self.total.saturating_add(time);
        let bucket = BOUNDS_US.iter().position(|bound| time <= Duration::from_micros(*bound));
        if let Some(count) = bucket.and_then(|bucket| self.buckets.get_mut(bucket)) {
            *count = count.saturating_add(1);
        }
    }

    /// Returns each bound in seconds with the number of events that took at most that long.
    pub(crate) fn cumulative(&self) -> impl Iterator<Item = (f64, u64)> {
        let counts = self.buckets.into_iter().scan(0_u64, |sum, count| {
            *sum = sum.saturating_add(count);
            Some(*sum)
        });
        BOUNDS_US.iter().map(|bound| Duration::from_micros(*bound).as_secs_f64()).zip(counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_counts_in_its_bucket_and_all_above() {
        let mut histogram = DurationHistogram::default();
        for micros in [0, 500, 501, 1_000, 59_000_000, 60_000_000, 60_000_001] {
            histogram.add(Duration::from_micros(micros));
        }
        let found: Vec<(f64, u64)> = histogram.cumulative().collect();
        assert_eq!(found.first(), Some(&(0.0005, 2)));
        assert_eq!(found.get(1), Some(&(0.001, 4)));
        assert_eq!(found.get(13), Some(&(10.0, 4)));
        assert_eq!(found.last(), Some(&(60.0, 6)));
        assert_eq!(histogram.count, 7, "the last one is above all bounds");
        assert_eq!(histogram.total, Duration::from_micros(179_002_002));
    }
}

//! Requests in progress, compared with arrival rate and duration (Little's law).

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use prometheus_client::metrics::gauge::Gauge;

/// Gauge of the ratio L / λW.
pub(crate) type FlowRatioGauge = Gauge<f64, AtomicU64>;

/// Monitors the requests of a tenant or to a destination, and publishes how well they satisfy L = λW.
pub(crate) struct FlowMonitor {
    flow: Mutex<Flow>,
    ratio: FlowRatioGauge,
}

impl FlowMonitor {
    /// Creates a monitor that publishes the ratio in `ratio`.
    pub(crate) fn new(ratio: FlowRatioGauge) -> Self {
        ratio.set(1.0);
        Self { flow: Mutex::new(Flow::new(Instant::now())), ratio }
    }

    /// Counts the start of a request. Returns the number in progress, including the new one.
    pub(crate) fn began(&self, now: Instant) -> i64 {
        let mut flow = self.flow.lock();
        flow.step(now, 1);
        flow.in_flight
    }

    /// Counts the end of a request with its duration.
    pub(crate) fn ended(&self, now: Instant, took: Duration) {
        let mut flow = self.flow.lock();
        flow.step(now, -1);
        flow.took += took;
    }

    /// Publishes the ratio L / λW of the last minute. The caller must call this function every [`SAMPLE_EVERY`].
    pub(crate) fn sample(&self, now: Instant) {
        let ratio = self.flow.lock().ratio(now);
        self.ratio.set(ratio);
    }
}

impl fmt::Debug for FlowMonitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FlowMonitor")
    }
}

/// Requests in progress over time.
struct Flow {
    in_flight: i64,
    at: Instant,
    /// Number of requests in progress, integrated over time, in request-seconds.
    area: f64,
    /// Total duration of the requests that ended.
    took: Duration,
    /// `area` and `took` (seconds) of the last samples, oldest first.
    samples: VecDeque<(f64, f64)>,
}

/// Interval between two samples.
pub(crate) const SAMPLE_EVERY: Duration = Duration::from_secs(5);
/// Number of samples in the last minute.
const SAMPLES: usize = 12;
/// Smoothing of the ratio, in request-seconds. It is added to numerator and denominator, so that a few requests do not change the
/// ratio.
const SMOOTH_S: f64 = 1.0;

impl Flow {
    fn new(now: Instant) -> Self {
        Self { in_flight: 0, at: now, area: 0.0, took: Duration::ZERO, samples: [(0.0, 0.0)].into() }
    }

    fn step(&mut self, now: Instant, change: i64) {
        self.area += self.in_flight as f64 * now.saturating_duration_since(self.at).as_secs_f64();
        self.at = self.at.max(now);
        self.in_flight += change;
    }

    /// Returns L / λW of the last minute: the average number of requests in progress, divided by arrival rate times duration.
    /// Both are computed as sums over the same period, so the length of the period cancels out.
    fn ratio(&mut self, now: Instant) -> f64 {
        self.step(now, 0);
        let sample = (self.area, self.took.as_secs_f64());
        let (area, took) = self.samples.front().copied().unwrap_or_default();
        let ratio = (sample.0 - area + SMOOTH_S) / (sample.1 - took + SMOOTH_S);
        self.samples.push_back(sample);
        if self.samples.len() > SAMPLES {
            self.samples.pop_front();
        }
        ratio
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn littles_law_ratio_is_one_until_requests_get_stuck() {
        let second = Duration::from_secs(1);
        let began = Instant::now();
        let mut flow = Flow::new(began);
        let mut at = began;
        for _ in 0..60 {
            // Ten requests per second, half a second each.
            for _ in 0..10 {
                flow.step(at, 1);
            }
            flow.step(at + second / 2, -10);
            flow.took += second / 2 * 10;
            at += second;
            if (at - began).as_secs().is_multiple_of(SAMPLE_EVERY.as_secs()) {
                assert!((flow.ratio(at) - 1.0).abs() < 0.001);
            }
        }
        for _ in 0..100 {
            flow.step(at, 1);
        }
        for _ in 0..12 {
            at += SAMPLE_EVERY;
            flow.ratio(at);
        }
        assert!(flow.ratio(at) > 100.0, "a hundred wait and none is answered");
        flow.step(at, -100);
        for _ in 0..13 {
            at += SAMPLE_EVERY;
            flow.ratio(at);
        }
        assert!((flow.ratio(at) - 1.0).abs() < 0.001, "a minute later it is over");
    }
}

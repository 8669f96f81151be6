//! Rate limits: token buckets that adapt to throttling responses.
//!
//! Pure functions: every time is an argument, in microseconds of a monotonic clock. [`Bucket`] is the generic cell rate algorithm.
//! [`Pacer`] combines two of them for one operation, and a learned rate that the server accepts.

use std::collections::VecDeque;
use std::time::Duration;

const SECOND_US: i64 = 1_000_000;
const MINUTE_US: i64 = 60 * SECOND_US;

/// Delay of a throttling response, microseconds, above which the quota is assumed to be per minute: a quota per second recovers
/// within a second.
const MINUTELY_FROM_US: i64 = 5 * SECOND_US;
/// Delay after a throttling response without a requested delay, microseconds: the time in which a quota per second recovers.
const QUIET_US: i64 = SECOND_US;
/// Longest accepted `Retry-After`, microseconds. Quotas per minute request one minute. Callers' deadlines end long before a delay
/// of an hour.
const QUIET_MAX_US: i64 = 15 * MINUTE_US;
/// Learned rate as a fraction of the requests accepted in the last second (or minute) before a throttling response. If the server's
/// bucket holds one second's worth, it has accepted at most twice its rate, so one half would suffice. The rest allows for network
/// jitter.
const LEARNED_PART: f64 = 0.45;
/// Time for which a learned rate is unchanged, microseconds; then it grows by a tenth per minute. Long compared with one run, so
/// that a run is throttled only once; short enough to notice a raised quota.
const LEARNED_HOLDS_US: i64 = 10 * MINUTE_US;
/// Lowest learned rate per minute: some progress is needed to detect improvements.
const LEARNED_MIN_PER_MINUTE: f64 = 6.0;
/// Maximum remembered request times, 8 bytes each; more than the highest quota allows in a minute.
const SENT_RETAINED_MAX: usize = 8_192;

/// A rate limit: requests per time, and the size of a burst.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    interval_us: i64,
    burst: u32,
}

impl Rate {
    /// Returns a rate of `count` per second, evenly spaced; zero is treated as one.
    #[must_use]
    pub fn per_second(count: u32) -> Self {
        Self { interval_us: (SECOND_US / i64::from(count.max(1))).max(1), burst: 1 }
    }

    /// Returns a rate of `count` per minute, evenly spaced; zero is treated as one.
    #[must_use]
    pub fn per_minute(count: u32) -> Self {
        Self { interval_us: (MINUTE_US / i64::from(count.max(1))).max(1), burst: 1 }
    }

    /// Returns the same rate with a burst of `burst` requests after an idle period; zero is treated as one. Any window may have
    /// `burst` more requests than the rate.
    #[must_use]
    pub fn with_burst(self, burst: u32) -> Self {
        Self { burst: burst.max(1), ..self }
    }

    /// Returns the time in which an empty bucket becomes full.
    #[must_use]
    pub fn refill_time(self) -> Duration {
        Duration::from_micros(self.interval_us.unsigned_abs().saturating_mul(u64::from(self.burst)))
    }

    /// Returns the requests per minute.
    #[must_use]
    pub fn requests_per_minute(self) -> f64 {
        MINUTE_US as f64 / self.interval_us as f64
    }

    fn from_learned_per_minute(count: f64) -> Self {
        Self { interval_us: ((MINUTE_US as f64 / count.max(LEARNED_MIN_PER_MINUTE)) as i64).max(1), burst: 1 }
    }

    /// Returns the lower of two rates.
    fn min(self, other: Option<Self>) -> Self {
        other.filter(|other| other.interval_us > self.interval_us).unwrap_or(self)
    }
}

/// State of a token bucket: the time at which it is full again, in microseconds.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Bucket {
    full_at_us: i64,
}

impl Bucket {
    /// Takes one token; `Err` is the time until one is available, microseconds.
    ///
    /// # Errors
    /// The wait, never zero.
    pub fn take(&mut self, now_us: i64, rate: Rate) -> Result<(), i64> {
        match self.wait(now_us, rate) {
            0 => {
                let ahead = self.ahead(now_us, rate);
                self.full_at_us = now_us.saturating_add(ahead).saturating_add(rate.interval_us);
                Ok(())
            }
            wait => Err(wait),
        }
    }

    /// Returns an unused token. A full bucket stays full.
    pub fn give_back(&mut self, rate: Rate) {
        self.full_at_us = self.full_at_us.saturating_sub(rate.interval_us);
    }

    /// Returns the time until a token is available, microseconds; zero when one is.
    #[must_use]
    pub fn wait(&self, now_us: i64, rate: Rate) -> i64 {
        (self.ahead(now_us, rate) - burst_allowance(rate)).max(0)
    }

    fn ahead(&self, now_us: i64, rate: Rate) -> i64 {
        let ahead = self.full_at_us.saturating_sub(now_us).max(0);
        // More than the bucket can hold: the clock was set back.
        if ahead > burst_allowance(rate).saturating_add(rate.interval_us) { 0 } else { ahead }
    }
}

fn burst_allowance(rate: Rate) -> i64 {
    rate.interval_us.saturating_mul(i64::from(rate.burst) - 1)
}

/// Rate limit of an operation. A request must satisfy the limit per second and the limit per minute.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pace {
    /// Limit per second; `None`: no limit.
    pub per_second: Option<Rate>,
    /// Limit per minute; `None`: no limit.
    pub per_minute: Option<Rate>,
}

/// Permission to send one request, with data needed to learn from its response.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[must_use = "tell the pacer how the request was answered"]
pub struct SendPermit {
    sent_us: i64,
}

/// Metrics of a pacer: requests, throttling responses and the learned rate.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PacerCounts {
    /// Number of requests sent.
    pub sent: u64,
    /// Number of throttling responses.
    pub throttled: u64,
    /// Number of times the rate was learned. Throttling responses to requests sent before the last time do not count.
    pub adapted: u64,
    /// Number of throttling responses to requests sent after the rate was first learned.
    pub throttled_after_adapting: u64,
    /// The learned rate per minute; `None` if none was learned.
    pub learned_per_minute: Option<f64>,
}

/// A rate limiter for one operation of one server. Requests are granted in call order; the caller manages the queue.
#[derive(Debug, Default)]
pub struct Pacer {
    pace: Pace,
    second: Bucket,
    minute: Bucket,
    learned: Bucket,
    learned_rate: Option<LearnedRate>,
    quiet_until_us: i64,
    sent: VecDeque<i64>,
    counts: PacerCounts,
}

#[derive(Clone, Copy, Debug)]
struct LearnedRate {
    per_minute: f64,
    at_us: i64,
}

impl LearnedRate {
    /// Returns the current learned rate: after some time without throttling it grows by a tenth per minute.
    fn rate(self, now_us: i64) -> Rate {
        let over = (now_us - self.at_us - LEARNED_HOLDS_US).max(0) as f64 / MINUTE_US as f64;
        // At most a day: by then the rate exceeds every real quota.
        Rate::from_learned_per_minute(self.per_minute * 1.1_f64.powf(over.min(1_440.0)))
    }
}

impl Pacer {
    /// Creates a pacer with the limit `pace`; throttling responses may lower it.
    #[must_use]
    pub fn new(pace: Pace) -> Self {
        Self { pace, ..Self::default() }
    }

    /// Returns the time until a request may be sent, microseconds; zero when one may be sent now.
    #[must_use]
    pub fn wait(&self, now_us: i64) -> i64 {
        let quiet = (self.quiet_until_us - now_us).max(0);
        let second = self.pace.per_second.map_or(0, |rate| self.second.wait(now_us, rate));
        let minute = self.pace.per_minute.map_or(0, |rate| self.minute.wait(now_us, rate));
        let learned = self.learned_rate.map_or(0, |learned| self.learned.wait(now_us, learned.rate(now_us)));
        quiet.max(second).max(minute).max(learned)
    }

    /// Requests permission to send now; `Err` is the time until then, microseconds.
    ///
    /// # Errors
    /// The wait, never zero.
    pub fn try_acquire(&mut self, now_us: i64) -> Result<SendPermit, i64> {
        let wait = self.wait(now_us);
        if wait > 0 {
            return Err(wait);
        }
        // Cannot fail: each bucket was just checked.
        if let Some(rate) = self.pace.per_second {
            let _ = self.second.take(now_us, rate);
        }
        if let Some(rate) = self.pace.per_minute {
            let _ = self.minute.take(now_us, rate);
        }
        if let Some(learned) = self.learned_rate {
            let _ = self.learned.take(now_us, learned.rate(now_us));
        }
        if self.sent.len() >= SENT_RETAINED_MAX {
            self.sent.pop_front();
        }
        self.sent.push_back(now_us);
        self.counts.sent += 1;
        Ok(SendPermit { sent_us: now_us })
    }

    /// Records that the server throttled the request of `send_permit`, and the requested delay `retry_after` (RFC 9110 section 10.2.3),
    /// if any.
    ///
    /// Responses to requests sent before the rate was last learned do not change it: one shortage rejects all requests in flight.
    pub fn throttled(&mut self, now_us: i64, send_permit: SendPermit, retry_after: Option<Duration>) {
        self.counts.throttled += 1;
        let quiet = retry_after.map(|wait| i64::try_from(wait.as_micros()).unwrap_or(i64::MAX));
        let quiet = quiet.unwrap_or(QUIET_US).min(QUIET_MAX_US);
        self.quiet_until_us = self.quiet_until_us.max(now_us.saturating_add(quiet));
        self.sent.retain(|&sent| sent != send_permit.sent_us);
        if let Some(learned) = self.learned_rate {
            if send_permit.sent_us <= learned.at_us {
                return;
            }
            self.counts.throttled_after_adapting += 1;
        }
        self.counts.adapted += 1;
        let per_minute = self.measured_rate(send_permit.sent_us, quiet > MINUTELY_FROM_US);
        self.learned_rate = Some(LearnedRate { per_minute, at_us: now_us });
        // The pause compensates for requests sent at the old rate.
        self.learned = Bucket::default();
    }

    /// Returns the learned rate per minute, from the requests accepted before the one sent at `sent_us`.
    fn measured_rate(&self, sent_us: i64, is_minutely: bool) -> f64 {
        let (window, windows_per_minute) = if is_minutely { (MINUTE_US, 1.0) } else { (SECOND_US, 60.0) };
        let accepted = self.sent.iter().filter(|&&sent| sent <= sent_us && sent > sent_us - window).count();
        let measured = (accepted as f64 * windows_per_minute * LEARNED_PART).max(LEARNED_MIN_PER_MINUTE);
        // Each adaptation at least halves the learned rate, independent of the measured rate.
        let before = self.learned_rate.map_or(f64::INFINITY, |learned| learned.per_minute / 2.0);
        measured.min(before).max(LEARNED_MIN_PER_MINUTE)
    }

    /// Returns counters and the learned rate.
    #[must_use]
    pub fn pacer_counts(&self, now_us: i64) -> PacerCounts {
        let learned_per_minute = self.learned_rate.map(|learned| {
            let own = [self.pace.per_second, self.pace.per_minute];
            own.into_iter().fold(learned.rate(now_us), Rate::min).requests_per_minute()
        });
        PacerCounts { learned_per_minute, ..self.counts }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn bucket_allows_a_burst_and_then_the_rate() {
        let rate = Rate::per_minute(6).with_burst(3);
        let mut bucket = Bucket::default();
        let now = 1_000 * MINUTE_US;
        for _ in 0..3 {
            assert_eq!(bucket.take(now, rate), Ok(()));
        }
        assert_eq!(bucket.take(now, rate), Err(10_000_000));
        assert_eq!(bucket.take(now + 9_999_999, rate), Err(1));
        assert_eq!(bucket.take(now + 10_000_000, rate), Ok(()));
        assert_eq!(bucket.take(now + 10_000_000, rate), Err(10_000_000));
        // The bucket is full after a minute, and does not grow further.
        let accepted = (0..10).filter(|_| bucket.take(now + 10 * MINUTE_US, rate).is_ok()).count();
        assert_eq!(accepted, 3);
    }

    #[test]
    fn returned_token_is_reused_and_full_bucket_does_not_overflow() {
        let rate = Rate::per_minute(6).with_burst(3);
        assert_eq!(rate.refill_time(), Duration::from_secs(30));
        let (mut bucket, now) = (Bucket::default(), 1_000 * MINUTE_US);
        for _ in 0..10 {
            assert_eq!(bucket.take(now, rate), Ok(()));
            bucket.give_back(rate);
        }
        (0..5).for_each(|_| bucket.give_back(rate));
        assert_eq!((0..10).filter(|_| bucket.take(now, rate).is_ok()).count(), 3);
    }

    #[test]
    fn clock_set_back_does_not_block_the_bucket() {
        let mut bucket = Bucket::default();
        let rate = Rate::per_minute(1);
        assert_eq!(bucket.take(1_000_000 * MINUTE_US, rate), Ok(()));
        assert_eq!(bucket.take(MINUTE_US, rate), Ok(()));
    }

    /// A server with a maximum number of requests in any window: the strictest interpretation of a quota.
    struct Server {
        most: usize,
        window_us: i64,
        says: Option<Duration>,
        accepted: Vec<i64>,
    }

    impl Server {
        fn takes(&mut self, now_us: i64) -> bool {
            self.accepted.retain(|at| *at > now_us - self.window_us);
            let takes = self.accepted.len() < self.most;
            if takes {
                self.accepted.push(now_us);
            }
            takes
        }
    }

    /// Sends requests as fast as the pacer allows, for `for_us`; responses arrive after `delay_us`. Returns the number of accepted
    /// requests and the pacer's metrics.
    fn run(pacer: &mut Pacer, server: &mut Server, for_us: i64, delay_us: i64) -> (u64, PacerCounts) {
        let (mut now, mut accepted, mut answers) = (0, 0, VecDeque::new());
        while now < for_us {
            while let Some(&(at, send_permit, took)) = answers.front() {
                if at > now {
                    break;
                }
                answers.pop_front();
                if took {
                    accepted += 1;
                } else {
                    pacer.throttled(now, send_permit, server.says);
                }
            }
            match pacer.try_acquire(now) {
                Ok(send_permit) => answers.push_back((now + delay_us, send_permit, server.takes(now))),
                Err(wait) => {
                    let answer = answers.front().map_or(i64::MAX, |(at, ..)| *at);
                    now = (now + wait).min(answer.max(now + 1));
                }
            }
        }
        (accepted, pacer.pacer_counts(now))
    }

    #[test]
    fn pacer_learns_the_quota_from_one_adaptation() {
        // Configured rate per second, quota per window, window, the server's Retry-After, maximum number of adaptations.
        for (configured, most, window_s, says) in [
            (10, 5, 1, None),
            (10, 1, 1, None),
            (50, 10, 1, Some(1)),
            (10, 9, 1, Some(2)),
            (32, 300, 60, Some(60)),
            (100, 60, 60, Some(60)),
        ] {
            let pace = Pace { per_second: Some(Rate::per_second(configured)), per_minute: None };
            let says: Option<u64> = says;
            let mut server = Server {
                most,
                window_us: window_s * SECOND_US,
                says: says.map(Duration::from_secs),
                accepted: Vec::new(),
            };
            let mut pacer = Pacer::new(pace);
            let (accepted, pacer_counts) = run(&mut pacer, &mut server, 9 * MINUTE_US, 150_000);
            let case = format!("{configured}/s against {most} in {window_s} s: {pacer_counts:?}");
            assert!(pacer_counts.throttled > 0, "{case}");
            assert_eq!((pacer_counts.adapted, pacer_counts.throttled_after_adapting), (1, 0), "{case}");
            // At least a third of the quota must be used.
            let allowed = 9 * 60 / window_s * most as i64;
            assert!(accepted as i64 * 3 > allowed, "{accepted} of {allowed}: {case}");
        }
    }

    #[test]
    fn pacer_within_the_quota_is_never_throttled() {
        for (configured, most) in [(9, 10), (4, 5), (1, 1)] {
            let pace = Pace { per_second: Some(Rate::per_second(configured)), per_minute: None };
            let mut server = Server { most, window_us: SECOND_US, says: None, accepted: Vec::new() };
            let (accepted, pacer_counts) = run(&mut Pacer::new(pace), &mut server, MINUTE_US, 80_000);
            assert_eq!(pacer_counts.throttled, 0, "{configured} of {most}");
            assert!(accepted >= u64::from(configured) * 59);
        }
    }

    #[test]
    fn learned_rate_rises_back_to_the_configured_rate() {
        let mut pacer = Pacer::new(Pace { per_second: Some(Rate::per_second(10)), per_minute: None });
        let send_permit = pacer.try_acquire(0).unwrap();
        pacer.throttled(1, send_permit, None);
        let at =
            |minutes: i64, pacer: &Pacer| pacer.pacer_counts(minutes * MINUTE_US).learned_per_minute.unwrap();
        let learned = at(1, &pacer);
        assert_eq!(at(10, &pacer), learned);
        assert!(at(20, &pacer) > learned * 2.0, "{} of {learned}", at(20, &pacer));
        assert_eq!(at(2_000, &pacer), 600.0, "never past what is configured");
    }

    #[test]
    fn retry_after_is_obeyed_up_to_15_minutes() {
        for (retry_after, quiet) in [(2, 2), (60, 60), (86_400, 900)] {
            let mut pacer = Pacer::default();
            let send_permit = pacer.try_acquire(0).unwrap();
            pacer.throttled(0, send_permit, Some(Duration::from_secs(retry_after)));
            assert_eq!(pacer.try_acquire(0), Err(quiet * SECOND_US), "asked for {retry_after} s");
        }
    }

    proptest! {
        #[test]
        fn rate_and_burst_bound_every_one_second_window(
            count in 1_u32..50, burst in 1_u32..20, steps in proptest::collection::vec(0_i64..400_000, 1..300),
        ) {
            let rate = Rate::per_second(count).with_burst(burst);
            let (mut bucket, mut now, mut accepted) = (Bucket::default(), 0, Vec::new());
            for step in steps {
                now += step;
                if bucket.take(now, rate).is_ok() {
                    accepted.push(now);
                }
            }
            for (index, from) in accepted.iter().enumerate() {
                let within = accepted[index..].iter().take_while(|at| **at < from + SECOND_US).count();
                prop_assert!(within <= (count + burst) as usize, "{within} within a second");
            }
        }

        #[test]
        fn pacer_admits_the_caller_after_the_returned_wait(
            per_second in 1_u32..40, per_minute in 1_u32..600, throttles in proptest::collection::vec(any::<bool>(), 1..80),
        ) {
            let pace = Pace {
                per_second: Some(Rate::per_second(per_second)),
                per_minute: Some(Rate::per_minute(per_minute).with_burst(5)),
            };
            let (mut pacer, mut now) = (Pacer::new(pace), 0);
            for throttle in throttles {
                let send_permit = match pacer.try_acquire(now) {
                    Ok(send_permit) => send_permit,
                    Err(wait) => {
                        prop_assert!(wait > 0);
                        now += wait;
                        pacer.try_acquire(now).map_err(|more| TestCaseError::fail(format!("{more} µs more")))?
                    }
                };
                if throttle {
                    pacer.throttled(now, send_permit, None);
                }
            }
        }
    }
}

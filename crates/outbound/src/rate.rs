//! How often: token buckets, and what throttling answers teach about them.
//!
//! Pure: every time is given, in microseconds of a clock that only moves forward. [`Bucket`] is the generic cell rate
//! algorithm; [`Pacer`] is two of them over one operation, with a memory of what its server would not take.

use std::collections::VecDeque;
use std::time::Duration;

const SECOND_US: i64 = 1_000_000;
const MINUTE_US: i64 = 60 * SECOND_US;

/// A throttling answer that asks for more patience than this, microseconds, speaks of a quota by the minute: one by
/// the second is whole again after a second.
const MINUTELY_FROM_US: i64 = 5 * SECOND_US;
/// How long to be quiet after a throttling answer that does not say, microseconds: what a quota by the second needs
/// to be whole again.
const QUIET_US: i64 = SECOND_US;
/// Longest a `Retry-After` is obeyed, microseconds. Quotas by the minute ask for one minute; who asks for an hour means
/// to be left alone, and callers' deadlines end such calls long before.
const QUIET_MAX_US: i64 = 15 * MINUTE_US;
/// Of the answers taken within the last second (or minute) before a throttle, the part that is allowed from then on.
/// A server's bucket that holds as much as it gains in a second has given at most twice its rate by then, so a half
/// would just do; the rest is for jitter on the way.
const LEARNED_PART: f64 = 0.45;
/// How long what was learned holds unchanged, microseconds; then a tenth is added a minute. Long against one run, so
/// that a run is throttled once; short against a quota that was raised.
const LEARNED_HOLDS_US: i64 = 10 * MINUTE_US;
/// Fewest a minute that learning leaves: progress is what shows that things are better.
const LEARNED_MIN_PER_MINUTE: f64 = 6.0;
/// Sent requests remembered to learn from, 8 bytes each; more than the fastest quota allows in a minute is not worth
/// remembering.
const SENT_KEPT_MAX: usize = 8_192;

/// So many in a time, and so many of them at once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    apart_us: i64,
    burst: u32,
}

impl Rate {
    /// `count` a second, evenly apart; zero is taken as one.
    #[must_use]
    pub fn per_second(count: u32) -> Self {
        Self { apart_us: (SECOND_US / i64::from(count.max(1))).max(1), burst: 1 }
    }

    /// `count` a minute, evenly apart; zero is taken as one.
    #[must_use]
    pub fn per_minute(count: u32) -> Self {
        Self { apart_us: (MINUTE_US / i64::from(count.max(1))).max(1), burst: 1 }
    }

    /// The same, `burst` of them at once when none came before; zero is taken as one. Within any window, `burst` more
    /// may come than the rate says.
    #[must_use]
    pub fn with_burst(self, burst: u32) -> Self {
        Self { burst: burst.max(1), ..self }
    }

    /// After how long an empty bucket is full.
    #[must_use]
    pub fn refill_time(self) -> Duration {
        Duration::from_micros(self.apart_us.unsigned_abs().saturating_mul(u64::from(self.burst)))
    }

    /// Requests a minute.
    #[must_use]
    pub fn a_minute(self) -> f64 {
        MINUTE_US as f64 / self.apart_us as f64
    }

    fn of_a_minute(count: f64) -> Self {
        Self { apart_us: ((MINUTE_US as f64 / count.max(LEARNED_MIN_PER_MINUTE)) as i64).max(1), burst: 1 }
    }

    /// The slower of the two.
    fn min(self, other: Option<Self>) -> Self {
        other.filter(|other| other.apart_us > self.apart_us).unwrap_or(self)
    }
}

/// How full a bucket is: the moment at which it will have run empty, microseconds.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Bucket {
    empty_at_us: i64,
}

impl Bucket {
    /// Takes one token; `Err` is how long until there is one, microseconds.
    ///
    /// # Errors
    /// The wait, never zero.
    pub fn take(&mut self, now_us: i64, rate: Rate) -> Result<(), i64> {
        match self.wait(now_us, rate) {
            0 => {
                let ahead = self.ahead(now_us, rate);
                self.empty_at_us = now_us.saturating_add(ahead).saturating_add(rate.apart_us);
                Ok(())
            }
            wait => Err(wait),
        }
    }

    /// Returns a token that was not used. A full bucket stays full.
    pub fn give_back(&mut self, rate: Rate) {
        self.empty_at_us = self.empty_at_us.saturating_sub(rate.apart_us);
    }

    /// How long until there is a token, microseconds; zero when there is one.
    #[must_use]
    pub fn wait(&self, now_us: i64, rate: Rate) -> i64 {
        (self.ahead(now_us, rate) - allowance(rate)).max(0)
    }

    fn ahead(&self, now_us: i64, rate: Rate) -> i64 {
        let ahead = self.empty_at_us.saturating_sub(now_us).max(0);
        // More than the bucket can hold: the clock was set back.
        if ahead > allowance(rate).saturating_add(rate.apart_us) { 0 } else { ahead }
    }
}

fn allowance(rate: Rate) -> i64 {
    rate.apart_us.saturating_mul(i64::from(rate.burst) - 1)
}

/// How often an operation may be asked for: both rates hold.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pace {
    /// Within seconds; `None`: as often as there is room.
    pub per_second: Option<Rate>,
    /// Within minutes; `None`: no such quota.
    pub per_minute: Option<Rate>,
}

/// Leave to send one request, with what is needed to learn from its answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[must_use = "tell the pacer how the request was answered"]
pub struct Leave {
    sent_us: i64,
}

/// What a pacer has met and learned, for a dashboard.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Paced {
    /// Requests let through.
    pub sent: u64,
    /// Throttling answers.
    pub throttled: u64,
    /// Times the rate was learned again: throttling answers to what had been sent before are no news.
    pub adapted: u64,
    /// Throttling answers to requests sent after the first of those times.
    pub throttled_after_adapting: u64,
    /// Requests a minute that what was learned allows; `None` while nothing was.
    pub learned_per_minute: Option<f64>,
}

/// Paces one operation of one server. Asks are answered in the order of the calls; the caller queues.
#[derive(Debug, Default)]
pub struct Pacer {
    pace: Pace,
    second: Bucket,
    minute: Bucket,
    learned: Bucket,
    learned_rate: Option<Learned>,
    quiet_until_us: i64,
    sent: VecDeque<i64>,
    counts: Paced,
}

#[derive(Clone, Copy, Debug)]
struct Learned {
    per_minute: f64,
    at_us: i64,
}

impl Learned {
    /// What it allows now: after a while without throttles a tenth more a minute.
    fn rate(self, now_us: i64) -> Rate {
        let over = (now_us - self.at_us - LEARNED_HOLDS_US).max(0) as f64 / MINUTE_US as f64;
        // A day at most: by then it is past any quota there is.
        Rate::of_a_minute(self.per_minute * 1.1_f64.powf(over.min(1_440.0)))
    }
}

impl Pacer {
    /// A pacer that keeps to `pace` until it learns that less is allowed.
    #[must_use]
    pub fn new(pace: Pace) -> Self {
        Self { pace, ..Self::default() }
    }

    /// How long until a request may be sent, microseconds; zero when one may.
    #[must_use]
    pub fn wait(&self, now_us: i64) -> i64 {
        let quiet = (self.quiet_until_us - now_us).max(0);
        let second = self.pace.per_second.map_or(0, |rate| self.second.wait(now_us, rate));
        let minute = self.pace.per_minute.map_or(0, |rate| self.minute.wait(now_us, rate));
        let learned = self.learned_rate.map_or(0, |learned| self.learned.wait(now_us, learned.rate(now_us)));
        quiet.max(second).max(minute).max(learned)
    }

    /// Leave to send a request now; `Err` is how long until there is, microseconds.
    ///
    /// # Errors
    /// The wait, never zero.
    pub fn ask(&mut self, now_us: i64) -> Result<Leave, i64> {
        let wait = self.wait(now_us);
        if wait > 0 {
            return Err(wait);
        }
        // None of these can fail: each was just asked.
        if let Some(rate) = self.pace.per_second {
            let _ = self.second.take(now_us, rate);
        }
        if let Some(rate) = self.pace.per_minute {
            let _ = self.minute.take(now_us, rate);
        }
        if let Some(learned) = self.learned_rate {
            let _ = self.learned.take(now_us, learned.rate(now_us));
        }
        if self.sent.len() >= SENT_KEPT_MAX {
            self.sent.pop_front();
        }
        self.sent.push_back(now_us);
        self.counts.sent += 1;
        Ok(Leave { sent_us: now_us })
    }

    /// The server would not take the request that `leave` was for, and asked to be left alone for `retry_after`
    /// (RFC 9110 section 10.2.3) if it said so.
    ///
    /// What was sent before the last lesson teaches nothing new: one shortage refuses all that is in flight.
    pub fn throttled(&mut self, now_us: i64, leave: Leave, retry_after: Option<Duration>) {
        self.counts.throttled += 1;
        let quiet = retry_after.map(|wait| i64::try_from(wait.as_micros()).unwrap_or(i64::MAX));
        let quiet = quiet.unwrap_or(QUIET_US).min(QUIET_MAX_US);
        self.quiet_until_us = self.quiet_until_us.max(now_us.saturating_add(quiet));
        self.sent.retain(|&sent| sent != leave.sent_us);
        if let Some(learned) = self.learned_rate {
            if leave.sent_us <= learned.at_us {
                return;
            }
            self.counts.throttled_after_adapting += 1;
        }
        self.counts.adapted += 1;
        let per_minute = self.lesson(leave.sent_us, quiet > MINUTELY_FROM_US);
        self.learned_rate = Some(Learned { per_minute, at_us: now_us });
        // What was let through under the old rate is paid for by the quiet.
        self.learned = Bucket::default();
    }

    /// Requests a minute that are safe, by what was taken before the one sent at `sent_us` was not.
    fn lesson(&self, sent_us: i64, by_the_minute: bool) -> f64 {
        let (window, windows_a_minute) = if by_the_minute { (MINUTE_US, 1.0) } else { (SECOND_US, 60.0) };
        let taken = self.sent.iter().filter(|&&sent| sent <= sent_us && sent > sent_us - window).count();
        let measured = (taken as f64 * windows_a_minute * LEARNED_PART).max(LEARNED_MIN_PER_MINUTE);
        // The second lesson is at least as hard as the first, whatever was measured meanwhile.
        let before = self.learned_rate.map_or(f64::INFINITY, |learned| learned.per_minute / 2.0);
        measured.min(before).max(LEARNED_MIN_PER_MINUTE)
    }

    /// Counters and the learnt rate.
    #[must_use]
    pub fn paced(&self, now_us: i64) -> Paced {
        let learned_per_minute = self.learned_rate.map(|learned| {
            let own = [self.pace.per_second, self.pace.per_minute];
            own.into_iter().fold(learned.rate(now_us), Rate::min).a_minute()
        });
        Paced { learned_per_minute, ..self.counts }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_burst_then_the_rate() {
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
        // Full again after a minute, and no fuller.
        let taken = (0..10).filter(|_| bucket.take(now + 10 * MINUTE_US, rate).is_ok()).count();
        assert_eq!(taken, 3);
    }

    #[test]
    fn a_token_that_is_given_back_can_be_taken_again_and_a_full_bucket_stays_full() {
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
    fn a_clock_set_back_costs_no_more_than_the_bucket_is_deep() {
        let mut bucket = Bucket::default();
        let rate = Rate::per_minute(1);
        assert_eq!(bucket.take(1_000_000 * MINUTE_US, rate), Ok(()));
        assert_eq!(bucket.take(MINUTE_US, rate), Ok(()));
    }

    /// A server that takes at most so many in any window of so long: the strictest reading of a quota.
    struct Server {
        most: usize,
        window_us: i64,
        says: Option<Duration>,
        taken: Vec<i64>,
    }

    impl Server {
        fn takes(&mut self, now_us: i64) -> bool {
            self.taken.retain(|at| *at > now_us - self.window_us);
            let takes = self.taken.len() < self.most;
            if takes {
                self.taken.push(now_us);
            }
            takes
        }
    }

    /// Sends as often as the pacer lets it, for so long; answers come after `delay_us`. How many were taken and the
    /// pacer's counts.
    fn run(pacer: &mut Pacer, server: &mut Server, for_us: i64, delay_us: i64) -> (u64, Paced) {
        let (mut now, mut taken, mut answers) = (0, 0, VecDeque::new());
        while now < for_us {
            while let Some(&(at, leave, took)) = answers.front() {
                if at > now {
                    break;
                }
                answers.pop_front();
                if took {
                    taken += 1;
                } else {
                    pacer.throttled(now, leave, server.says);
                }
            }
            match pacer.ask(now) {
                Ok(leave) => answers.push_back((now + delay_us, leave, server.takes(now))),
                Err(wait) => {
                    let answer = answers.front().map_or(i64::MAX, |(at, ..)| *at);
                    now = (now + wait).min(answer.max(now + 1));
                }
            }
        }
        (taken, pacer.paced(now))
    }

    #[test]
    fn one_lesson_is_enough() {
        // Configured a second, allowed a window, the window, what the server says, most lessons.
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
                taken: Vec::new(),
            };
            let mut pacer = Pacer::new(pace);
            let (taken, paced) = run(&mut pacer, &mut server, 9 * MINUTE_US, 150_000);
            let case = format!("{configured}/s against {most} in {window_s} s: {paced:?}");
            assert!(paced.throttled > 0, "{case}");
            assert_eq!((paced.adapted, paced.throttled_after_adapting), (1, 0), "{case}");
            // A third of what is allowed at least: caution is not paralysis.
            let allowed = 9 * 60 / window_s * most as i64;
            assert!(taken as i64 * 3 > allowed, "{taken} of {allowed}: {case}");
        }
    }

    #[test]
    fn a_quota_that_is_kept_is_never_met() {
        for (configured, most) in [(9, 10), (4, 5), (1, 1)] {
            let pace = Pace { per_second: Some(Rate::per_second(configured)), per_minute: None };
            let mut server = Server { most, window_us: SECOND_US, says: None, taken: Vec::new() };
            let (taken, paced) = run(&mut Pacer::new(pace), &mut server, MINUTE_US, 80_000);
            assert_eq!(paced.throttled, 0, "{configured} of {most}");
            assert!(taken >= u64::from(configured) * 59);
        }
    }

    #[test]
    fn what_was_learned_is_doubted_after_a_while() {
        let mut pacer = Pacer::new(Pace { per_second: Some(Rate::per_second(10)), per_minute: None });
        let leave = pacer.ask(0).unwrap();
        pacer.throttled(1, leave, None);
        let at = |minutes: i64, pacer: &Pacer| pacer.paced(minutes * MINUTE_US).learned_per_minute.unwrap();
        let learned = at(1, &pacer);
        assert_eq!(at(10, &pacer), learned);
        assert!(at(20, &pacer) > learned * 2.0, "{} of {learned}", at(20, &pacer));
        assert_eq!(at(2_000, &pacer), 600.0, "never past what is configured");
    }

    #[test]
    fn retry_after_is_obeyed_up_to_a_quarter_of_an_hour() {
        for (asked, quiet) in [(2, 2), (60, 60), (86_400, 900)] {
            let mut pacer = Pacer::default();
            let leave = pacer.ask(0).unwrap();
            pacer.throttled(0, leave, Some(Duration::from_secs(asked)));
            assert_eq!(pacer.ask(0), Err(quiet * SECOND_US), "asked for {asked} s");
        }
    }

    proptest! {
        #[test]
        fn a_rate_holds_in_every_window(
            count in 1_u32..50, burst in 1_u32..20, steps in proptest::collection::vec(0_i64..400_000, 1..300),
        ) {
            let rate = Rate::per_second(count).with_burst(burst);
            let (mut bucket, mut now, mut taken) = (Bucket::default(), 0, Vec::new());
            for step in steps {
                now += step;
                if bucket.take(now, rate).is_ok() {
                    taken.push(now);
                }
            }
            for (index, from) in taken.iter().enumerate() {
                let within = taken[index..].iter().take_while(|at| **at < from + SECOND_US).count();
                prop_assert!(within <= (count + burst) as usize, "{within} within a second");
            }
        }

        #[test]
        fn waiting_as_told_is_always_enough(
            per_second in 1_u32..40, per_minute in 1_u32..600, throttles in proptest::collection::vec(any::<bool>(), 1..80),
        ) {
            let pace = Pace {
                per_second: Some(Rate::per_second(per_second)),
                per_minute: Some(Rate::per_minute(per_minute).with_burst(5)),
            };
            let (mut pacer, mut now) = (Pacer::new(pace), 0);
            for throttle in throttles {
                let leave = match pacer.ask(now) {
                    Ok(leave) => leave,
                    Err(wait) => {
                        prop_assert!(wait > 0);
                        now += wait;
                        pacer.ask(now).map_err(|more| TestCaseError::fail(format!("{more} µs more")))?
                    }
                };
                if throttle {
                    pacer.throttled(now, leave, None);
                }
            }
        }
    }
}

//! Time of renewal: a pure function of a certificate's lifetime, its rule and the issuer's suggestion.
//!
//! The issuer's window (ARI, RFC 9773) has priority. Otherwise renewal happens after a fraction of the actual lifetime, so the same
//! rule suits lifetimes from six hours to one year. A hash of the certificate's id spreads the renewals of certificates that were
//! issued together. Maintenance windows delay the renewal, but never past the expiry.

use std::fmt;

use jiff::civil::{Time, Weekday};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};
use serde::{Deserialize, Serialize};
use store::time_limits;
use uuid::Uuid;

/// Default fraction of the lifetime after which a certificate is renewed. One third remains, as is commonly recommended.
pub const FRACTION_DEFAULT: f64 = 2.0 / 3.0;

/// Maximum spread of the renewals of certificates that were issued together, as a fraction of the lifetime.
pub const SPREAD_FRACTION: f64 = 0.05;

/// Maximum lead, as a fraction of the lifetime. A lead of 30 days on a lifetime of 30 days would renew endlessly.
pub const LEAD_FRACTION_MAX: f64 = 0.75;

/// Number of days in which the next maintenance window is searched: a weekly window opens within eight days.
const WINDOW_DAYS_MAX: i64 = 9;

pub(crate) const SECOND_US: i64 = 1_000_000;

/// Validity period of a certificate.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Life {
    /// Start of validity, in µs since 1970.
    pub not_before_us: i64,
    /// End of validity, in µs since 1970.
    pub not_after_us: i64,
}

impl Life {
    fn length_us(self) -> i64 {
        self.not_after_us.saturating_sub(self.not_before_us).max(0)
    }
}

/// Renewal window that an issuer suggests (RFC 9773 section 4.2).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SuggestedRenewalWindow {
    /// Start of the window, in µs since 1970.
    pub start_us: i64,
    /// End of the window, in µs since 1970.
    pub end_us: i64,
}

/// Time before expiry at which a certificate is renewed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lead {
    /// Number of days before expiry.
    Days(u32),
    /// Number of hours before expiry.
    Hours(u32),
    /// Time before expiry as a fraction of the lifetime, 0 to 1.
    Fraction(f64),
}

impl Lead {
    /// Returns the lead for a lifetime of `life_us`, both in µs: at least [`time_limits::min_lead_us`], at most [`LEAD_FRACTION_MAX`] of
    /// the lifetime.
    pub(crate) fn within_us(self, life_us: i64) -> i64 {
        let configured = match self {
            Self::Days(days) => i64::from(days) * 86_400 * SECOND_US,
            Self::Hours(hours) => i64::from(hours) * 3_600 * SECOND_US,
            Self::Fraction(fraction) => fraction_of(life_us, fraction.clamp(0.0, 1.0)),
        };
        let least = time_limits::min_lead_us(life_us);
        configured.clamp(least, fraction_of(life_us, LEAD_FRACTION_MAX).max(least))
    }
}

/// Renewal settings of a policy or a certificate: lead before expiry, maintenance windows, and the use of ARI.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RenewalRule {
    /// Whether the scheduler renews automatically.
    pub auto_renew: bool,
    /// Time before expiry at which a certificate is renewed. Default: one third of the lifetime.
    pub renew_before: Lead,
    /// Whether the issuer's suggestion (ARI) has priority over `renew_before`.
    pub obey_issuer: bool,
    /// Maintenance windows in which renewals may start. Empty: at any time.
    pub windows: Vec<MaintenanceWindow>,
}

impl Default for RenewalRule {
    fn default() -> Self {
        Self {
            auto_renew: true,
            renew_before: Lead::Fraction(1.0 - FRACTION_DEFAULT),
            obey_issuer: true,
            windows: Vec::new(),
        }
    }
}

/// Weekly period in which changes are allowed.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MaintenanceWindow {
    /// Days on which the window opens. Empty: every day.
    #[serde(default)]
    pub days: Vec<Day>,
    /// Time of opening, `HH:MM` in `time_zone`.
    pub from: String,
    /// Time of closing, `HH:MM` in `time_zone`. A time that is not after `from` is on the next day.
    pub to: String,
    /// Name in the IANA time zone database.
    #[serde(default = "utc")]
    pub time_zone: String,
}

fn utc() -> String {
    "UTC".to_owned()
}

/// Day of the week on which a maintenance window opens.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "the days name themselves")]
pub enum Day {
    Monday,
    Tuesday,
    Wednesday,
    Thursday,
    Friday,
    Saturday,
    Sunday,
}

impl Day {
    fn weekday(self) -> Weekday {
        match self {
            Self::Monday => Weekday::Monday,
            Self::Tuesday => Weekday::Tuesday,
            Self::Wednesday => Weekday::Wednesday,
            Self::Thursday => Weekday::Thursday,
            Self::Friday => Weekday::Friday,
            Self::Saturday => Weekday::Saturday,
            Self::Sunday => Weekday::Sunday,
        }
    }
}

/// Reason why the renewal rule is invalid.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum BadRule {
    /// The time zone does not exist, or this machine has no time zone database.
    #[error("unknown time zone {0:?}: use an IANA name such as Europe/Berlin, or UTC")]
    TimeZone(String),
    /// The text is not a time of day.
    #[error("{0:?} is not a time of day: write HH:MM")]
    TimeOfDay(String),
    /// The fraction is not between 0 and 1.
    #[error("a fraction of the lifetime must be between 0 and 1")]
    Fraction,
    /// There are more than [`WINDOWS_MAX`] maintenance windows.
    #[error("a policy may have at most {WINDOWS_MAX} maintenance windows")]
    TooManyWindows,
}

/// Maximum maintenance windows of a policy: one for each hour of a week.
pub const WINDOWS_MAX: usize = 168;

/// Reason for the time of a renewal, such as a window that the issuer suggested.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RenewalReason {
    /// The time is in the renewal window that the issuer suggested.
    Issuer,
    /// The time results from the rule's lead before expiry.
    Lead,
    /// The time from the issuer's window or the rule's lead, moved to the next maintenance window.
    Window,
    /// The time from the issuer's window or the rule's lead, because no maintenance window opens early enough before expiry.
    NoWindowInTime,
}

/// Time of a renewal, and the reason for it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Due {
    /// Time of the renewal, in µs since 1970.
    pub at_us: i64,
    /// Reason for this time, such as a window that the issuer suggested.
    pub because: RenewalReason,
}

/// Returns the time at which the certificate `id` is renewed automatically. `None` if the rule turns automatic renewal off.
///
/// `id` only spreads renewals: the same id, lifetime and rule give the same time.
#[must_use]
pub fn due(
    id: Uuid,
    life: Life,
    rule: &RenewalRule,
    suggested: Option<SuggestedRenewalWindow>,
) -> Option<Due> {
    if !rule.auto_renew {
        return None;
    }
    let suggested = suggested.filter(|window| rule.obey_issuer && window.end_us > window.start_us);
    let wanted = match suggested {
        // A time chosen by hash is as good as a random time (RFC 9773 section 4.2), and does not change between calls.
        Some(window) => Due {
            at_us: window.start_us + fraction_of(window.end_us - window.start_us, position(id)),
            because: RenewalReason::Issuer,
        },
        None => Due { at_us: renewal_due_by_lead(id, life, rule.renew_before), because: RenewalReason::Lead },
    };
    Some(move_into_window(wanted, life, &rule.windows))
}

fn renewal_due_by_lead(id: Uuid, life: Life, lead: Lead) -> i64 {
    let length = life.length_us();
    let spread = fraction_of(fraction_of(length, SPREAD_FRACTION), position(id));
    life.not_after_us - lead.within_us(length) - spread
}

/// Returns the fraction `part` (0 to 1) of `whole`.
fn fraction_of(whole: i64, part: f64) -> i64 {
    (whole as f64 * part) as i64
}

/// Maps an id evenly to a number between 0 and 1, for every version of UUID.
fn position(id: Uuid) -> f64 {
    // FNV-1a, then a finalizer so that consecutive UUIDv7 do not get similar results.
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in id.as_bytes() {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^= hash >> 33;
    (hash >> 11) as f64 / (1_u64 << 53) as f64
}

fn move_into_window(wanted: Due, life: Life, windows: &[MaintenanceWindow]) -> Due {
    if windows.is_empty() {
        return wanted;
    }
    let margin = time_limits::window_margin_us(life.length_us());
    match next_open(windows, wanted.at_us) {
        Some(open) if open == wanted.at_us => wanted,
        Some(open) if open <= life.not_after_us - margin => {
            Due { at_us: open, because: RenewalReason::Window }
        }
        _ => Due { because: RenewalReason::NoWindowInTime, ..wanted },
    }
}

/// Returns the first time, not before `at_us`, at which a maintenance window is open. `None` if no window opens within a week.
#[must_use]
pub fn next_open(windows: &[MaintenanceWindow], at_us: i64) -> Option<i64> {
    windows.iter().filter_map(|window| window.next_open(at_us)).min()
}

impl MaintenanceWindow {
    fn next_open(&self, at_us: i64) -> Option<i64> {
        let zone = zone(&self.time_zone).ok()?;
        let (from, to) = (parse_time_of_day(&self.from).ok()?, parse_time_of_day(&self.to).ok()?);
        let now = Timestamp::from_microsecond(at_us).ok()?.to_zoned(zone.clone());
        // Starts with yesterday, because its window may extend past midnight.
        for ahead in -1..WINDOW_DAYS_MAX {
            let date = now.date().checked_add(ahead.days()).ok()?;
            if !self.opens_on(date.weekday()) {
                continue;
            }
            let ends_on = if to > from { date } else { date.tomorrow().ok()? };
            // A local time that a clock change skips or repeats is resolved as in RFC 5545.
            let opens = date.to_datetime(from).to_zoned(zone.clone()).ok()?.timestamp().as_microsecond();
            let closes = ends_on.to_datetime(to).to_zoned(zone.clone()).ok()?.timestamp().as_microsecond();
            if at_us < closes {
                return Some(opens.max(at_us));
            }
        }
        None
    }

    fn opens_on(&self, weekday: Weekday) -> bool {
        self.days.is_empty() || self.days.iter().any(|day| day.weekday() == weekday)
    }
}

fn zone(name: &str) -> Result<TimeZone, BadRule> {
    if name == "UTC" {
        return Ok(TimeZone::UTC);
    }
    TimeZone::get(name).map_err(|_| BadRule::TimeZone(name.to_owned()))
}

fn parse_time_of_day(text: &str) -> Result<Time, BadRule> {
    let bad = || BadRule::TimeOfDay(text.to_owned());
    let (hour, minute) = text.split_once(':').ok_or_else(bad)?;
    let number = |digits: &str| -> Result<i8, BadRule> {
        let fits = digits.len() == 2 && digits.bytes().all(|byte| byte.is_ascii_digit());
        if fits { digits.parse().map_err(|_| bad()) } else { Err(bad()) }
    };
    Time::new(number(hour)?, number(minute)?, 0, 0).map_err(|_| bad())
}

impl RenewalRule {
    /// Validates the rule on this machine.
    ///
    /// # Errors
    /// [`BadRule`] says what to correct.
    pub fn check(&self) -> Result<(), BadRule> {
        if let Lead::Fraction(fraction) = self.renew_before
            && !(0.0..=1.0).contains(&fraction)
        {
            return Err(BadRule::Fraction);
        }
        if self.windows.len() > WINDOWS_MAX {
            return Err(BadRule::TooManyWindows);
        }
        for window in &self.windows {
            zone(&window.time_zone)?;
            parse_time_of_day(&window.from)?;
            parse_time_of_day(&window.to)?;
        }
        Ok(())
    }
}

impl fmt::Display for RenewalReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Issuer => "the issuer suggests it",
            Self::Lead => "the policy's lead time before expiry",
            Self::Window => "the next maintenance window",
            Self::NoWindowInTime => "no maintenance window opens before expiry",
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HOUR: i64 = 3_600 * SECOND_US;
    const DAY: i64 = 24 * HOUR;
    /// Saturday 2026-11-21 00:00 UTC.
    const START: i64 = 1_795_219_200 * SECOND_US;

    fn life(length: i64) -> Life {
        Life { not_before_us: START, not_after_us: START + length }
    }

    fn at(id: u128, life: Life, rule: &RenewalRule) -> i64 {
        due(Uuid::from_u128(id), life, rule, None).unwrap().at_us
    }

    fn nights(zone: &str, days: &[Day]) -> RenewalRule {
        let window = MaintenanceWindow {
            days: days.to_vec(),
            from: "22:00".to_owned(),
            to: "02:00".to_owned(),
            time_zone: zone.to_owned(),
        };
        RenewalRule { windows: vec![window], ..RenewalRule::default() }
    }

    #[test]
    fn renewal_is_due_with_a_third_of_the_lifetime_left() {
        for length in [6 * HOUR, 6 * DAY, 47 * DAY, 365 * DAY] {
            for id in 0..100 {
                let part = (at(id, life(length), &RenewalRule::default()) - START) as f64 / length as f64;
                assert!((0.6166..=0.6667).contains(&part), "{length}: {part}");
            }
        }
    }

    #[test]
    fn fixed_renewal_lead_is_bounded_by_the_lifetime() {
        let days = |days| RenewalRule { renew_before: Lead::Days(days), ..RenewalRule::default() };
        let left = |length: i64, rule: &RenewalRule| START + length - at(7, life(length), rule);
        assert!((30 * DAY..=30 * DAY + 365 * DAY / 20).contains(&left(365 * DAY, &days(30))));
        // A lead of 30 days on a 6-day certificate: limited to three quarters of the lifetime, plus the spread.
        assert!(left(6 * DAY, &days(30)) <= 6 * DAY * 4 / 5);
        // A lead of zero still renews some minutes before expiry.
        assert!(left(DAY, &days(0)) >= time_limits::min_lead_us(DAY));
        // A certificate with a lifetime of ten minutes is renewed in the middle.
        let short = left(10 * 60 * SECOND_US, &days(0));
        assert!((300 * SECOND_US..=330 * SECOND_US).contains(&short), "{short}");
    }

    #[test]
    fn renewals_of_a_batch_are_spread_evenly() {
        let length = 90 * DAY;
        let rule = RenewalRule::default();
        let latest = START + fraction_of(length, FRACTION_DEFAULT);
        let mut tenths = [0; 10];
        for number in 0..10_000_u128 {
            // Consecutive ids, such as UUIDv7 values created in the same millisecond.
            let early = latest - at((0x0193_0000_0000_7000_8000_u128 << 48) + number, life(length), &rule);
            let tenth = early * 10 / (fraction_of(length, SPREAD_FRACTION) + 2 * SECOND_US);
            tenths[usize::try_from(tenth).unwrap()] += 1;
        }
        assert!(tenths.iter().all(|count| (800..1_200).contains(count)), "{tenths:?}");
    }

    #[test]
    fn issuer_renewal_window_takes_precedence_unless_disabled() {
        let window = SuggestedRenewalWindow { start_us: START + DAY, end_us: START + 3 * DAY };
        let rule = RenewalRule::default();
        for id in 0..50 {
            let due = due(Uuid::from_u128(id), life(90 * DAY), &rule, Some(window)).unwrap();
            assert_eq!(due.because, RenewalReason::Issuer);
            assert!((window.start_us..window.end_us).contains(&due.at_us));
        }
        let own = RenewalRule { obey_issuer: false, ..rule.clone() };
        let id = Uuid::from_u128(1);
        assert_eq!(due(id, life(90 * DAY), &own, Some(window)), due(id, life(90 * DAY), &rule, None));
        // A window that ends before it starts (RFC 9773 section 4.2) is ignored.
        let mad = SuggestedRenewalWindow { start_us: window.end_us, end_us: window.start_us };
        assert_eq!(due(id, life(90 * DAY), &rule, Some(mad)).unwrap().because, RenewalReason::Lead);
    }

    #[test]
    fn nothing_is_due_without_auto_renewal() {
        let rule = RenewalRule { auto_renew: false, ..RenewalRule::default() };
        assert_eq!(due(Uuid::nil(), life(DAY), &rule, None), None);
    }

    #[test]
    fn renewal_is_scheduled_within_a_maintenance_window() {
        let rule = nights("UTC", &[Day::Saturday]);
        let open = next_open(&rule.windows, START).unwrap();
        assert_eq!(open, START + 22 * HOUR);
        // The window is still open after midnight, although it is then Sunday.
        assert_eq!(next_open(&rule.windows, START + 25 * HOUR), Some(START + 25 * HOUR));
        assert_eq!(next_open(&rule.windows, START + 26 * HOUR), Some(START + 7 * DAY + 22 * HOUR));
        let due = due(Uuid::from_u128(3), life(90 * DAY), &rule, None).unwrap();
        assert_eq!(due.because, RenewalReason::Window);
        assert_eq!((due.at_us - START - 22 * HOUR) % (7 * DAY), 0);
    }

    #[test]
    fn maintenance_windows_follow_their_time_zone() {
        // 22:00 in Berlin is 21:00 UTC in winter and 20:00 in summer.
        let berlin = nights("Europe/Berlin", &[]);
        assert_eq!(next_open(&berlin.windows, START + 12 * HOUR), Some(START + 21 * HOUR));
        let summer = START + 220 * DAY;
        assert_eq!(next_open(&berlin.windows, summer + 12 * HOUR), Some(summer + 20 * HOUR));
    }

    #[test]
    fn maintenance_window_after_expiry_is_ignored() {
        // A lifetime of six hours from Saturday noon: the window of next Friday would be too late.
        let rule = nights("UTC", &[Day::Friday]);
        let short = Life { not_before_us: START + 12 * HOUR, not_after_us: START + 18 * HOUR };
        let due = due(Uuid::from_u128(5), short, &rule, None).unwrap();
        assert_eq!(due.because, RenewalReason::NoWindowInTime);
        assert!(due.at_us < short.not_after_us);
    }

    #[test]
    fn invalid_renewal_rules_are_rejected() {
        let window = |from: &str, zone: &str| RenewalRule {
            windows: vec![MaintenanceWindow {
                days: vec![],
                from: from.to_owned(),
                to: "04:00".to_owned(),
                time_zone: zone.to_owned(),
            }],
            ..RenewalRule::default()
        };
        assert!(window("22:00", "Europe/Berlin").check().is_ok());
        assert_eq!(window("22", "UTC").check(), Err(BadRule::TimeOfDay("22".to_owned())));
        assert_eq!(window("24:00", "UTC").check(), Err(BadRule::TimeOfDay("24:00".to_owned())));
        assert_eq!(window("22:00", "Mars/Sea").check(), Err(BadRule::TimeZone("Mars/Sea".to_owned())));
        let much = RenewalRule { renew_before: Lead::Fraction(1.5), ..RenewalRule::default() };
        assert_eq!(much.check(), Err(BadRule::Fraction));
    }

    proptest! {
        #[test]
        fn renewal_time_lies_within_the_lifetime(
            id: u128,
            length in 60 * SECOND_US..10_000 * DAY,
            lead in prop_oneof![
                (0_u32..5_000).prop_map(Lead::Days),
                (0_u32..5_000).prop_map(Lead::Hours),
                (0.0..=1.0_f64).prop_map(Lead::Fraction),
            ],
            with_windows: bool,
        ) {
            let mut rule = if with_windows { nights("UTC", &[Day::Monday]) } else { RenewalRule::default() };
            rule.renew_before = lead;
            let life = life(length);
            let at = at(id, life, &rule);
            prop_assert!(life.not_before_us < at && at < life.not_after_us);
        }
    }
}

//! Judges whether a series has drifted. Pure functions of the measurements and of the open alerts.

use telemetry::sketch::Sketch;
use uuid::Uuid;

use super::series::Series;
use super::slot::{DAY_US, HOUR_US};

/// A quarter of an hour in µs: a window that is long enough to ignore a short peak, and short enough to act.
const QUARTER_US: i64 = HOUR_US / 4;

/// Minimum runs in the window to judge the current duration.
const RUNS_MIN: u64 = 3;
/// Minimum runs in the baseline.
const RUNS_BASE_MIN: u64 = 12;
/// Minimum calls to judge an error rate. With a hundred calls, two errors exceed one percent and one error does not.
const CALLS_MIN: u64 = 100;
/// Minimum probes in the baseline of the failure rate.
const PROBES_BASE_MIN: u64 = 1_000;
/// Minimum samples of a node's connection pool in the window: samples of five minutes.
const POOL_MIN: u64 = 20;
/// Minimum samples of a node's task count in the window: samples of half an hour.
const TASKS_MIN: u64 = 120;
/// Minimum samples of task counts in the baseline: samples of one node over twelve hours.
const TASKS_BASE_MIN: u64 = 2_880;
/// Minimum length of the baseline, µs, so that a night is not compared with an afternoon.
const BASE_SPAN_MIN_US: i64 = DAY_US;

/// Measurements of a series in one time slot, by one node.
#[derive(Clone, Debug, PartialEq)]
pub struct SlotMeasurements {
    /// Start of the slot, µs since 1970-01-01 UTC.
    pub from_us: i64,
    /// The node that measured.
    pub node: Uuid,
    /// Sketch of the values.
    pub sketch: Sketch,
}

/// Measurements of a series in the last seven days.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SeriesHistory {
    /// Time of the first measurement, µs since 1970-01-01 UTC.
    pub began_us: Option<i64>,
    /// Sketch of the values older than a day.
    pub older: Sketch,
    /// Measurements of the last day, oldest first.
    pub recent: Vec<SlotMeasurements>,
}

/// Count, mean and percentiles of the measurements in a quantile sketch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SketchSummary {
    /// Number of values.
    pub count: u64,
    /// Mean of the values.
    pub mean: f64,
    /// Median of the values.
    pub p50: f64,
    /// 95th percentile of the values.
    pub p95: f64,
    /// 99th percentile of the values.
    pub p99: f64,
}

impl SketchSummary {
    /// Returns the summary; `None` for an empty sketch.
    #[must_use]
    pub fn of(sketch: &Sketch) -> Option<Self> {
        let quantile = |q| sketch.quantile(q);
        let (mean, p50, p95, p99) = (sketch.mean()?, quantile(0.5)?, quantile(0.95)?, quantile(0.99)?);
        Some(Self { count: sketch.count(), mean, p50, p95, p99 })
    }
}

/// Verdict about a series: not judged, too few measurements, steady, or drifting.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// The series has no rule: its values are only displayed.
    Shown,
    /// There are too few measurements.
    Learning,
    /// The series does not drift.
    Steady,
    /// The series drifts; an alert is open.
    Drifting,
}

impl Verdict {
    /// Returns the stable name for outputs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Shown => "shown",
            Self::Learning => "learning",
            Self::Steady => "steady",
            Self::Drifting => "drifting",
        }
    }
}

/// A series compared with its baseline.
#[derive(Clone, Debug, PartialEq)]
pub struct Judgement {
    /// The series that was judged.
    pub series: Series,
    /// Summary of the window: the last hour, unless the rule sets another.
    pub last: Option<SketchSummary>,
    /// Summary of the baseline, the days before the window.
    pub base: Option<SketchSummary>,
    /// The judged value: a median or a fraction. Also set if there are too few measurements for a verdict.
    pub value: Option<f64>,
    /// The value of the baseline that corresponds to `value`.
    pub base_value: Option<f64>,
    /// Verdict of the comparison with the baseline.
    pub verdict: Verdict,
}

impl Judgement {
    /// Returns the ratio of the value to the baseline's; `None` if there is no baseline or it is zero.
    #[must_use]
    pub fn ratio(&self) -> Option<f64> {
        let base = self.base_value.filter(|base| *base > 0.0)?;
        Some(self.value? / base)
    }
}

/// The time window of the measurements that are judged.
#[derive(Clone, Copy)]
struct Window {
    /// Minimum length of the window, µs.
    length_min_us: i64,
    /// Number of values that the window should contain. The window extends into the past until it contains this number, but at most
    /// a day.
    values: u64,
}

/// Rule by which a series is judged.
struct Rule {
    window: Window,
    /// Minimum values in the window; for each node, if nodes are judged separately.
    values_min: u64,
    /// Whether each node is judged separately, and the highest value is used.
    by_node: bool,
    /// Minimum values in the baseline, for rules that compare with it.
    base_values_min: Option<u64>,
    /// Returns the judged value of a sketch.
    value: fn(&Sketch) -> Option<f64>,
    /// Returns the deviation of a value from the baseline. Rules that do not compare with the baseline get an empty sketch. A
    /// drift begins above `begin_threshold` and ends at `end_threshold`.
    deviation: fn(f64, &Sketch) -> f64,
    begin_threshold: f64,
    end_threshold: f64,
    /// Quantile of the baseline. A value up to this quantile is no drift, because such values are frequent.
    usual_quantile: Option<f64>,
}

fn median(sketch: &Sketch) -> Option<f64> {
    sketch.quantile(0.5)
}

fn ratio_to_median(value: f64, base: &Sketch) -> f64 {
    match median(base) {
        Some(base) if base > 0.0 => value / base,
        _ => 0.0,
    }
}

impl Rule {
    fn of(series: Series) -> Option<Self> {
        Some(match series {
            // A quarter slower. Scans of one size may belong to several watches, so three slow runs in a row are not enough if slow
            // runs are frequent.
            Series::ScanDuration(_) | Series::ListDuration(_) => Self {
                window: Window { length_min_us: HOUR_US, values: RUNS_MIN },
                values_min: RUNS_MIN,
                by_node: false,
                base_values_min: Some(RUNS_BASE_MIN),
                value: median,
                deviation: ratio_to_median,
                begin_threshold: 1.25,
                end_threshold: 1.15,
                usual_quantile: Some(0.75),
            },
            // A network always has some dead endpoints; only an increase counts. The window is a whole day, so that it covers many
            // scans.
            Series::ProviderErrors(super::CallTarget::Endpoints) => Self {
                window: Window { length_min_us: DAY_US, values: CALLS_MIN },
                values_min: CALLS_MIN,
                by_node: false,
                base_values_min: Some(PROBES_BASE_MIN),
                value: Sketch::mean,
                deviation: |value, base| value - base.mean().unwrap_or(value),
                begin_threshold: 0.01,
                end_threshold: 0.005,
                usual_quantile: None,
            },
            Series::ProviderErrors(super::CallTarget::Cloud(_)) => Self {
                window: Window { length_min_us: HOUR_US, values: CALLS_MIN },
                values_min: CALLS_MIN,
                by_node: false,
                base_values_min: None,
                value: Sketch::mean,
                deviation: |value, _| value,
                begin_threshold: 0.01,
                end_threshold: 0.005,
                usual_quantile: None,
            },
            Series::DatabasePool => Self {
                window: Window { length_min_us: QUARTER_US, values: 0 },
                values_min: POOL_MIN,
                by_node: true,
                base_values_min: None,
                value: median,
                deviation: |value, _| value,
                begin_threshold: 0.8,
                end_threshold: 0.7,
                usual_quantile: None,
            },
            // Five times the baseline, for most of an hour. A node in a long scan has one task per probe, often for a long time.
            Series::Tasks => Self {
                window: Window { length_min_us: HOUR_US, values: 0 },
                values_min: TASKS_MIN,
                by_node: true,
                base_values_min: Some(TASKS_BASE_MIN),
                value: median,
                deviation: ratio_to_median,
                begin_threshold: 5.0,
                end_threshold: 3.0,
                usual_quantile: Some(0.95),
            },
            Series::WriterBatch | Series::WriterFlush => return None,
        })
    }
}

/// The open alert about a series.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum OpenDriftAlert {
    /// No alert.
    Nothing,
    /// An alert about a drift.
    Drift,
}

/// Judges a series at `now_us`. `reported` is its open alert.
#[must_use]
pub fn judge(series: Series, past: &SeriesHistory, reported: OpenDriftAlert, now_us: i64) -> Judgement {
    let rule = Rule::of(series);
    let window = rule.as_ref().map_or(Window { length_min_us: HOUR_US, values: 0 }, |rule| rule.window);
    let (before, now) = past.recent.split_at(window_start(window, &past.recent, now_us));
    let (last, mut base) = (sum(now), past.older.clone());
    before.iter().for_each(|slot| base.merge(&slot.sketch));
    let mut judgement = Judgement {
        series,
        last: SketchSummary::of(&last),
        base: SketchSummary::of(&base),
        value: median(&last),
        base_value: median(&base),
        verdict: Verdict::Shown,
    };
    let Some(rule) = rule else { return judgement };
    let value = if rule.by_node { worst(&rule, now) } else { value_if_enough(&rule, &last) };
    // The value is displayed even if there are too few measurements.
    judgement.value = value.or_else(|| (rule.value)(&last));
    judgement.base_value = (rule.value)(&base);
    let old = past.began_us.is_some_and(|began| began <= now_us.saturating_sub(BASE_SPAN_MIN_US));
    let known = rule.base_values_min.is_none_or(|values_min| old && base.count() >= values_min);
    judgement.verdict = match value.filter(|_| known) {
        Some(value) if rule.has_drifted(value, &base, reported) => Verdict::Drifting,
        Some(_) => Verdict::Steady,
        None => Verdict::Learning,
    };
    judgement
}

impl Rule {
    /// Returns whether the value has drifted. The threshold that ends a drift is below the threshold that begins it (hysteresis). A
    /// value between the two therefore does not begin and end alerts repeatedly.
    fn has_drifted(&self, value: f64, base: &Sketch, reported: OpenDriftAlert) -> bool {
        let deviation = (self.deviation)(value, base);
        if reported == OpenDriftAlert::Drift {
            return deviation > self.end_threshold;
        }
        let usual_quantile = self.usual_quantile.and_then(|part| base.quantile(part));
        deviation > self.begin_threshold && usual_quantile.is_none_or(|usual_quantile| value > usual_quantile)
    }
}

/// Returns the index of the first piece in the window.
fn window_start(window: Window, slots: &[SlotMeasurements], now_us: i64) -> usize {
    let at_least = slots.partition_point(|slot| slot.from_us < now_us.saturating_sub(window.length_min_us));
    let mut values = sum(&slots[at_least..]).count();
    let (mut begin, day) = (at_least, now_us.saturating_sub(DAY_US));
    while values < window.values && begin > 0 && slots[begin - 1].from_us >= day {
        begin -= 1;
        values = values.saturating_add(slots[begin].sketch.count());
    }
    begin
}

fn sum(slots: &[SlotMeasurements]) -> Sketch {
    let mut sum = Sketch::default();
    slots.iter().for_each(|slot| sum.merge(&slot.sketch));
    sum
}

fn value_if_enough(rule: &Rule, sketch: &Sketch) -> Option<f64> {
    (rule.value)(sketch).filter(|_| sketch.count() >= rule.values_min)
}

/// Returns the highest value of all nodes with enough measurements.
fn worst(rule: &Rule, slots: &[SlotMeasurements]) -> Option<f64> {
    let mut nodes = std::collections::BTreeMap::<Uuid, Sketch>::new();
    for slot in slots {
        nodes.entry(slot.node).or_default().merge(&slot.sketch);
    }
    nodes.values().filter_map(|sketch| value_if_enough(rule, sketch)).max_by(f64::total_cmp)
}

#[cfg(test)]
mod tests {
    use super::super::series::{CallTarget, FleetSize};
    use super::super::slot::SLOT_US;
    use super::*;
    use clouds::Provider;

    const NOW: i64 = 1_795_219_200_000_000;
    const WEEK_US: i64 = 7 * DAY_US;

    fn scans() -> Series {
        Series::ScanDuration(FleetSize::of(1_800).unwrap())
    }

    fn clouds() -> Series {
        Series::ProviderErrors(CallTarget::Cloud(Provider::Aws))
    }

    /// Measurements of one node in time slots, by age.
    struct Measurements(Vec<SlotMeasurements>);

    impl Measurements {
        fn nothing() -> Self {
            Self(Vec::new())
        }

        /// Adds `count` values to each slot of length `every_us`, from `from_us` to `until_us` before now.
        fn then(self, [from_us, until_us]: [i64; 2], every_us: i64, count: u64, value: f64) -> Self {
            self.of_node(1, [from_us, until_us], every_us, &[(value, count)])
        }

        fn of_node(
            mut self,
            node: u128,
            [from_us, until_us]: [i64; 2],
            every_us: i64,
            values: &[(f64, u64)],
        ) -> Self {
            let mut age = from_us;
            while age > until_us {
                let mut sketch = Sketch::default();
                values.iter().for_each(|(value, times)| sketch.record_many(*value, *times));
                self.0.push(SlotMeasurements { from_us: NOW - age, node: Uuid::from_u128(node), sketch });
                age -= every_us;
            }
            self
        }

        fn past(mut self) -> SeriesHistory {
            self.0.sort_by_key(|slot| slot.from_us);
            let mut past = SeriesHistory {
                began_us: self.0.first().map(|slot| slot.from_us),
                ..SeriesHistory::default()
            };
            for slot in self.0 {
                if slot.from_us < NOW - DAY_US {
                    past.older.merge(&slot.sketch);
                } else {
                    past.recent.push(slot);
                }
            }
            past
        }

        fn verdict(self, series: Series, reported: OpenDriftAlert) -> Verdict {
            judge(series, &self.past(), reported, NOW).verdict
        }
    }

    /// Returns a week of hourly runs of 87 s, followed by three runs that take `part` times as long.
    fn a_week_and_then(part: f64) -> Measurements {
        let week = [WEEK_US, 3 * HOUR_US];
        Measurements::nothing().then(week, HOUR_US, 1, 87.0).then([3 * HOUR_US, 0], HOUR_US, 1, 87.0 * part)
    }

    #[test]
    fn slowdown_above_25_percent_is_reported_as_drift() {
        for (part, wanted) in [
            (0.5, Verdict::Steady),
            (1.0, Verdict::Steady),
            (1.24, Verdict::Steady),
            (1.26, Verdict::Drifting),
            (3.0, Verdict::Drifting),
        ] {
            assert_eq!(a_week_and_then(part).verdict(scans(), OpenDriftAlert::Nothing), wanted, "{part}");
        }
    }

    #[test]
    fn reported_drift_ends_below_15_percent_slowdown() {
        for (part, wanted) in [
            (1.24, Verdict::Drifting),
            (1.16, Verdict::Drifting),
            (1.14, Verdict::Steady),
            (1.0, Verdict::Steady),
        ] {
            assert_eq!(a_week_and_then(part).verdict(scans(), OpenDriftAlert::Drift), wanted, "{part}");
        }
    }

    #[test]
    fn too_few_measurements_yield_the_learning_verdict() {
        let too_little = [
            Measurements::nothing(),
            // Two runs in the last day: too few.
            Measurements::nothing().then([WEEK_US, DAY_US], HOUR_US, 1, 87.0).then(
                [2 * HOUR_US, 0],
                HOUR_US,
                1,
                870.0,
            ),
            // Eleven runs in the baseline: too few.
            Measurements::nothing().then([WEEK_US, WEEK_US - 11 * HOUR_US], HOUR_US, 1, 87.0).then(
                [3 * HOUR_US, 0],
                HOUR_US,
                1,
                870.0,
            ),
            // Many runs, but all of them within the last day.
            Measurements::nothing().then([20 * HOUR_US, 3 * HOUR_US], HOUR_US, 9, 87.0).then(
                [3 * HOUR_US, 0],
                HOUR_US,
                1,
                870.0,
            ),
        ];
        for measurements in too_little {
            let past = measurements.past();
            for reported in [OpenDriftAlert::Nothing, OpenDriftAlert::Drift] {
                assert_eq!(judge(scans(), &past, reported, NOW).verdict, Verdict::Learning, "{past:?}");
            }
        }
    }

    #[test]
    fn slow_runs_of_a_bimodal_baseline_are_not_drift() {
        let week = [WEEK_US, 3 * HOUR_US];
        let both = Measurements::nothing().of_node(1, week, HOUR_US, &[(1.0, 5), (60.0, 4)]);
        assert_eq!(
            both.then([3 * HOUR_US, 0], HOUR_US, 1, 60.0).verdict(scans(), OpenDriftAlert::Nothing),
            Verdict::Steady
        );
    }

    #[test]
    fn baseline_excludes_the_current_window() {
        let judgement = judge(scans(), &a_week_and_then(2.0).past(), OpenDriftAlert::Nothing, NOW);
        let (last, base) = (judgement.last.unwrap(), judgement.base.unwrap());
        assert_eq!((last.count, base.count), (3, 7 * 24 - 3));
        assert!((base.p99 / 87.0 - 1.0).abs() < 0.003, "{base:?}");
        assert!((judgement.ratio().unwrap() - 2.0).abs() < 0.01, "{judgement:?}");
    }

    #[test]
    fn cloud_error_rate_above_one_percent_is_drift() {
        let calls = |errors: u64, of: u64| {
            let values = [(0.0, of - errors), (1.0, errors)];
            Measurements::nothing().of_node(1, [SLOT_US, 0], SLOT_US, &values)
        };
        assert_eq!(calls(9, 99).verdict(clouds(), OpenDriftAlert::Nothing), Verdict::Learning);
        assert_eq!(calls(10, 1_000).verdict(clouds(), OpenDriftAlert::Nothing), Verdict::Steady);
        assert_eq!(calls(11, 1_000).verdict(clouds(), OpenDriftAlert::Nothing), Verdict::Drifting);
        assert_eq!(calls(6, 1_000).verdict(clouds(), OpenDriftAlert::Drift), Verdict::Drifting);
        assert_eq!(calls(5, 1_000).verdict(clouds(), OpenDriftAlert::Drift), Verdict::Steady);
        // One listing per night: the window extends to a day.
        let night =
            Measurements::nothing().of_node(1, [9 * HOUR_US, 8 * HOUR_US], HOUR_US, &[(0.0, 90), (1.0, 10)]);
        assert_eq!(night.verdict(clouds(), OpenDriftAlert::Nothing), Verdict::Drifting);
    }

    #[test]
    fn endpoint_failure_rate_is_compared_with_its_baseline() {
        let of = |today: u64, reported| {
            let week =
                Measurements::nothing().of_node(1, [WEEK_US, DAY_US], HOUR_US, &[(0.0, 950), (1.0, 50)]);
            let day = [DAY_US, 0];
            let measurements = week.of_node(1, day, HOUR_US, &[(0.0, 1_000 - today), (1.0, today)]);
            measurements.verdict(Series::ProviderErrors(CallTarget::Endpoints), reported)
        };
        assert_eq!(of(50, OpenDriftAlert::Nothing), Verdict::Steady);
        assert_eq!(of(59, OpenDriftAlert::Nothing), Verdict::Steady);
        assert_eq!(of(61, OpenDriftAlert::Nothing), Verdict::Drifting);
        assert_eq!(of(56, OpenDriftAlert::Drift), Verdict::Drifting);
        assert_eq!(of(54, OpenDriftAlert::Drift), Verdict::Steady);
    }

    #[test]
    fn exhausted_database_pool_of_one_node_is_drift() {
        let pool = |busy: f64, samples: u64| {
            let quarter = [3 * SLOT_US, 0];
            let idle = Measurements::nothing().then(quarter, SLOT_US, 20, 0.1);
            let values = [(busy, samples), (0.0, 1)];
            idle.of_node(2, quarter, SLOT_US, &values).verdict(Series::DatabasePool, OpenDriftAlert::Nothing)
        };
        assert_eq!(pool(0.75, 19), Verdict::Steady);
        assert_eq!(pool(0.875, 19), Verdict::Drifting);
        // Six samples are too few to judge the node, and the other node is steady.
        assert_eq!(pool(1.0, 1), Verdict::Steady);
    }

    #[test]
    fn five_times_the_usual_tasks_for_an_hour_is_drift() {
        let tasks = |count: f64, since_us: i64, reported| {
            let week = Measurements::nothing().then([WEEK_US, since_us], SLOT_US, 20, 40.0);
            week.then([since_us, 0], SLOT_US, 20, count).verdict(Series::Tasks, reported)
        };
        assert_eq!(tasks(190.0, HOUR_US, OpenDriftAlert::Nothing), Verdict::Steady);
        assert_eq!(tasks(210.0, HOUR_US, OpenDriftAlert::Nothing), Verdict::Drifting);
        assert_eq!(
            tasks(2_000.0, HOUR_US / 3, OpenDriftAlert::Nothing),
            Verdict::Steady,
            "a scan of twenty minutes"
        );
        assert_eq!(tasks(150.0, HOUR_US, OpenDriftAlert::Drift), Verdict::Drifting);
        assert_eq!(tasks(110.0, HOUR_US, OpenDriftAlert::Drift), Verdict::Steady);
    }

    #[test]
    fn series_without_a_rule_is_only_shown() {
        let measurements = Measurements::nothing().then([WEEK_US, 0], HOUR_US, 10, 500.0);
        let judgement = judge(Series::WriterBatch, &measurements.past(), OpenDriftAlert::Nothing, NOW);
        assert_eq!(judgement.verdict, Verdict::Shown);
        assert!(judgement.ratio().is_some_and(|ratio| (ratio - 1.0).abs() < 0.01), "{judgement:?}");
    }
}

//! Whether a series is what it was: a function of what was measured, and of whether people know already.

use telemetry::sketch::Sketch;
use uuid::Uuid;

use super::series::Series;
use super::slot::{DAY_US, HOUR_US};

/// A quarter of an hour: long enough that one busy moment is no trouble, short enough to act on.
const QUARTER_US: i64 = HOUR_US / 4;

/// Fewest runs that say how long scans take now.
const RUNS_MIN: u64 = 3;
/// Fewest runs that say how long they took before.
const RUNS_BASE_MIN: u64 = 12;
/// Fewest calls: of a hundred, two errors are more than a hundredth and one is not.
const CALLS_MIN: u64 = 100;
/// Fewest looks that say which part of them failed before.
const LOOKS_BASE_MIN: u64 = 1_000;
/// Fewest samples of a node's pool, of sixty: five minutes.
const POOL_MIN: u64 = 20;
/// Fewest samples of a node's tasks, of 240: half an hour.
const TASKS_MIN: u64 = 120;
/// Fewest samples of tasks before: twelve hours of one node.
const TASKS_BASE_MIN: u64 = 2_880;
/// A baseline reaches back so far at least, so that a night is not judged by an afternoon, µs.
const BASE_SPAN_MIN_US: i64 = DAY_US;

/// What was measured of a series in a stretch of time.
#[derive(Clone, Debug, PartialEq)]
pub struct Piece {
    /// When the stretch begins, µs.
    pub from_us: i64,
    /// The node that measured it.
    pub node: Uuid,
    /// The values.
    pub sketch: Sketch,
}

/// What was measured of a series in seven days.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Past {
    /// Start, µs.
    pub began_us: Option<i64>,
    /// Values older than a day.
    pub older: Sketch,
    /// The last day, oldest first.
    pub recent: Vec<Piece>,
}

/// A sketch in figures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figures {
    /// Values.
    pub count: u64,
    /// Their mean.
    pub mean: f64,
    /// Half of them are at most this.
    pub p50: f64,
    /// 95 % are.
    pub p95: f64,
    /// 99 % are.
    pub p99: f64,
}

impl Figures {
    /// None of none.
    #[must_use]
    pub fn of(sketch: &Sketch) -> Option<Self> {
        let quantile = |q| sketch.quantile(q);
        let (mean, p50, p95, p99) = (sketch.mean()?, quantile(0.5)?, quantile(0.95)?, quantile(0.99)?);
        Some(Self { count: sketch.count(), mean, p50, p95, p99 })
    }
}

/// Whether a series changed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// There is no rule for it: it is shown.
    Shown,
    /// There is too little to tell.
    Learning,
    /// The series is steady.
    Steady,
    /// The series drifts; an alert is open.
    Drifting,
}

impl Verdict {
    /// The stable word for outputs.
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

/// The judgement of a series against its past.
#[derive(Clone, Debug, PartialEq)]
pub struct Judgement {
    /// Which.
    pub series: Series,
    /// Of its window: the last hour, unless its rule says otherwise.
    pub last: Option<Figures>,
    /// Of the days before it.
    pub base: Option<Figures>,
    /// What is judged: a median, or a part; where there is too little to judge by, what there is.
    pub value: Option<f64>,
    /// The same of the days before.
    pub base_value: Option<f64>,
    /// Whether the series changed.
    pub verdict: Verdict,
}

impl Judgement {
    /// The value beside that of the days before; none without it, or when that was zero.
    #[must_use]
    pub fn ratio(&self) -> Option<f64> {
        let base = self.base_value.filter(|base| *base > 0.0)?;
        Some(self.value? / base)
    }
}

/// The samples that count as the present.
#[derive(Clone, Copy)]
struct Window {
    /// Minimum period of the past, µs.
    least_us: i64,
    /// As far back as it takes for so many values, within a day.
    values: u64,
}

/// How a series is judged.
struct Rule {
    window: Window,
    /// Fewest values of the window, of one node where nodes are judged.
    least: u64,
    /// Whether each node is judged, and the worst counts.
    by_node: bool,
    /// Fewest values of the days before, where they count.
    least_base: Option<u64>,
    /// The value of a sketch.
    value: fn(&Sketch) -> Option<f64>,
    /// How far off a value is, given the days before (an empty sketch where they do not count), and how far is too far:
    /// where a drift begins, and where it is over.
    off: fn(f64, &Sketch) -> f64,
    begins_past: f64,
    over_at: f64,
    /// Values of the days before that this part of them is at most are no drift: what is often so is not new.
    usual: Option<f64>,
}

fn median(sketch: &Sketch) -> Option<f64> {
    sketch.quantile(0.5)
}

fn times_the_median(value: f64, base: &Sketch) -> f64 {
    match median(base) {
        Some(base) if base > 0.0 => value / base,
        _ => 0.0,
    }
}

impl Rule {
    fn of(series: Series) -> Option<Self> {
        Some(match series {
            // A quarter slower. Scans of one size may be of several watches: of what takes long now and then, three
            // runs in a row say nothing.
            Series::ScanDuration(_) | Series::ListDuration(_) => Self {
                window: Window { least_us: HOUR_US, values: RUNS_MIN },
                least: RUNS_MIN,
                by_node: false,
                least_base: Some(RUNS_BASE_MIN),
                value: median,
                off: times_the_median,
                begins_past: 1.25,
                over_at: 1.15,
                usual: Some(0.75),
            },
            // An estate has its part of the dead: more than that counts. A whole day, for it is of many scans.
            Series::ProviderErrors(super::CallTarget::Endpoints) => Self {
                window: Window { least_us: DAY_US, values: CALLS_MIN },
                least: CALLS_MIN,
                by_node: false,
                least_base: Some(LOOKS_BASE_MIN),
                value: Sketch::mean,
                off: |value, base| value - base.mean().unwrap_or(value),
                begins_past: 0.01,
                over_at: 0.005,
                usual: None,
            },
            Series::ProviderErrors(super::CallTarget::Cloud(_)) => Self {
                window: Window { least_us: HOUR_US, values: CALLS_MIN },
                least: CALLS_MIN,
                by_node: false,
                least_base: None,
                value: Sketch::mean,
                off: |value, _| value,
                begins_past: 0.01,
                over_at: 0.005,
                usual: None,
            },
            Series::DatabasePool => Self {
                window: Window { least_us: QUARTER_US, values: 0 },
                least: POOL_MIN,
                by_node: true,
                least_base: None,
                value: median,
                off: |value, _| value,
                begins_past: 0.8,
                over_at: 0.7,
                usual: None,
            },
            // Five times, for most of an hour. A node that scans for long has a task a look, and often has had.
            Series::Tasks => Self {
                window: Window { least_us: HOUR_US, values: 0 },
                least: TASKS_MIN,
                by_node: true,
                least_base: Some(TASKS_BASE_MIN),
                value: median,
                off: times_the_median,
                begins_past: 5.0,
                over_at: 3.0,
                usual: Some(0.95),
            },
            Series::WriterBatch | Series::WriterFlush => return None,
        })
    }
}

/// The open alert about a series.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Reported {
    /// Nothing.
    Nothing,
    /// The series drifts.
    Drift,
}

/// Judges a series at `now_us`; `reported`: what people were told that is not over.
#[must_use]
pub fn judge(series: Series, past: &Past, reported: Reported, now_us: i64) -> Judgement {
    let rule = Rule::of(series);
    let window = rule.as_ref().map_or(Window { least_us: HOUR_US, values: 0 }, |rule| rule.window);
    let (before, now) = past.recent.split_at(begin_of(window, &past.recent, now_us));
    let (last, mut base) = (sum(now), past.older.clone());
    before.iter().for_each(|piece| base.merge(&piece.sketch));
    let mut judgement = Judgement {
        series,
        last: Figures::of(&last),
        base: Figures::of(&base),
        value: median(&last),
        base_value: median(&base),
        verdict: Verdict::Shown,
    };
    let Some(rule) = rule else { return judgement };
    let value = if rule.by_node { worst(&rule, now) } else { enough(&rule, &last) };
    // What is too little to judge by is shown all the same.
    judgement.value = value.or_else(|| (rule.value)(&last));
    judgement.base_value = (rule.value)(&base);
    let old = past.began_us.is_some_and(|began| began <= now_us.saturating_sub(BASE_SPAN_MIN_US));
    let known = rule.least_base.is_none_or(|least| old && base.count() >= least);
    judgement.verdict = match value.filter(|_| known) {
        Some(value) if rule.is_off(value, &base, reported) => Verdict::Drifting,
        Some(_) => Verdict::Steady,
        None => Verdict::Learning,
    };
    judgement
}

impl Rule {
    /// Begins past one mark and is over at another below it, so that what lies between does not begin and end all day.
    fn is_off(&self, value: f64, base: &Sketch, reported: Reported) -> bool {
        let off = (self.off)(value, base);
        if reported == Reported::Drift {
            return off > self.over_at;
        }
        let usual = self.usual.and_then(|part| base.quantile(part));
        off > self.begins_past && usual.is_none_or(|usual| value > usual)
    }
}

/// The first piece of the window.
fn begin_of(window: Window, pieces: &[Piece], now_us: i64) -> usize {
    let at_least = pieces.partition_point(|piece| piece.from_us < now_us.saturating_sub(window.least_us));
    let mut values = sum(&pieces[at_least..]).count();
    let (mut begin, day) = (at_least, now_us.saturating_sub(DAY_US));
    while values < window.values && begin > 0 && pieces[begin - 1].from_us >= day {
        begin -= 1;
        values = values.saturating_add(pieces[begin].sketch.count());
    }
    begin
}

fn sum(pieces: &[Piece]) -> Sketch {
    let mut sum = Sketch::default();
    pieces.iter().for_each(|piece| sum.merge(&piece.sketch));
    sum
}

fn enough(rule: &Rule, sketch: &Sketch) -> Option<f64> {
    (rule.value)(sketch).filter(|_| sketch.count() >= rule.least)
}

/// The highest value of a node that has enough.
fn worst(rule: &Rule, pieces: &[Piece]) -> Option<f64> {
    let mut nodes = std::collections::BTreeMap::<Uuid, Sketch>::new();
    for piece in pieces {
        nodes.entry(piece.node).or_default().merge(&piece.sketch);
    }
    nodes.values().filter_map(|sketch| enough(rule, sketch)).max_by(f64::total_cmp)
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

    /// Stretches of one node, by age and what was measured in each.
    struct Measurements(Vec<Piece>);

    impl Measurements {
        fn nothing() -> Self {
            Self(Vec::new())
        }

        /// `count` values in each stretch of `every_us`, from `from_us` ago until `until_us` ago.
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
                self.0.push(Piece { from_us: NOW - age, node: Uuid::from_u128(node), sketch });
                age -= every_us;
            }
            self
        }

        fn past(mut self) -> Past {
            self.0.sort_by_key(|piece| piece.from_us);
            let mut past = Past { began_us: self.0.first().map(|piece| piece.from_us), ..Past::default() };
            for piece in self.0 {
                if piece.from_us < NOW - DAY_US {
                    past.older.merge(&piece.sketch);
                } else {
                    past.recent.push(piece);
                }
            }
            past
        }

        fn verdict(self, series: Series, reported: Reported) -> Verdict {
            judge(series, &self.past(), reported, NOW).verdict
        }
    }

    /// Runs of 87 s each hour for a week, then three that took so much of it.
    fn a_week_and_then(part: f64) -> Measurements {
        let week = [WEEK_US, 3 * HOUR_US];
        Measurements::nothing().then(week, HOUR_US, 1, 87.0).then([3 * HOUR_US, 0], HOUR_US, 1, 87.0 * part)
    }

    #[test]
    fn a_quarter_slower_is_told_and_a_little_less_is_not() {
        for (part, wanted) in [
            (0.5, Verdict::Steady),
            (1.0, Verdict::Steady),
            (1.24, Verdict::Steady),
            (1.26, Verdict::Drifting),
            (3.0, Verdict::Drifting),
        ] {
            assert_eq!(a_week_and_then(part).verdict(scans(), Reported::Nothing), wanted, "{part}");
        }
    }

    #[test]
    fn a_drift_is_over_below_the_mark_where_it_began() {
        for (part, wanted) in [
            (1.24, Verdict::Drifting),
            (1.16, Verdict::Drifting),
            (1.14, Verdict::Steady),
            (1.0, Verdict::Steady),
        ] {
            assert_eq!(a_week_and_then(part).verdict(scans(), Reported::Drift), wanted, "{part}");
        }
    }

    #[test]
    fn too_little_says_nothing_and_ends_what_began() {
        let too_little = [
            Measurements::nothing(),
            // Two runs in the last day.
            Measurements::nothing().then([WEEK_US, DAY_US], HOUR_US, 1, 87.0).then(
                [2 * HOUR_US, 0],
                HOUR_US,
                1,
                870.0,
            ),
            // Eleven before them.
            Measurements::nothing().then([WEEK_US, WEEK_US - 11 * HOUR_US], HOUR_US, 1, 87.0).then(
                [3 * HOUR_US, 0],
                HOUR_US,
                1,
                870.0,
            ),
            // Many, and all of today.
            Measurements::nothing().then([20 * HOUR_US, 3 * HOUR_US], HOUR_US, 9, 87.0).then(
                [3 * HOUR_US, 0],
                HOUR_US,
                1,
                870.0,
            ),
        ];
        for told in too_little {
            let past = told.past();
            for reported in [Reported::Nothing, Reported::Drift] {
                assert_eq!(judge(scans(), &past, reported, NOW).verdict, Verdict::Learning, "{past:?}");
            }
        }
    }

    #[test]
    fn the_slow_half_of_two_watches_is_no_drift() {
        let week = [WEEK_US, 3 * HOUR_US];
        let both = Measurements::nothing().of_node(1, week, HOUR_US, &[(1.0, 5), (60.0, 4)]);
        assert_eq!(
            both.then([3 * HOUR_US, 0], HOUR_US, 1, 60.0).verdict(scans(), Reported::Nothing),
            Verdict::Steady
        );
    }

    #[test]
    fn the_window_is_left_out_of_the_days_before() {
        let judgement = judge(scans(), &a_week_and_then(2.0).past(), Reported::Nothing, NOW);
        let (last, base) = (judgement.last.unwrap(), judgement.base.unwrap());
        assert_eq!((last.count, base.count), (3, 7 * 24 - 3));
        assert!((base.p99 / 87.0 - 1.0).abs() < 0.003, "{base:?}");
        assert!((judgement.ratio().unwrap() - 2.0).abs() < 0.01, "{judgement:?}");
    }

    #[test]
    fn a_cloud_has_a_hundredth_of_errors_at_most() {
        let calls = |errors: u64, of: u64| {
            let values = [(0.0, of - errors), (1.0, errors)];
            Measurements::nothing().of_node(1, [SLOT_US, 0], SLOT_US, &values)
        };
        assert_eq!(calls(9, 99).verdict(clouds(), Reported::Nothing), Verdict::Learning);
        assert_eq!(calls(10, 1_000).verdict(clouds(), Reported::Nothing), Verdict::Steady);
        assert_eq!(calls(11, 1_000).verdict(clouds(), Reported::Nothing), Verdict::Drifting);
        assert_eq!(calls(6, 1_000).verdict(clouds(), Reported::Drift), Verdict::Drifting);
        assert_eq!(calls(5, 1_000).verdict(clouds(), Reported::Drift), Verdict::Steady);
        // A listing a night is enough of the day.
        let night =
            Measurements::nothing().of_node(1, [9 * HOUR_US, 8 * HOUR_US], HOUR_US, &[(0.0, 90), (1.0, 10)]);
        assert_eq!(night.verdict(clouds(), Reported::Nothing), Verdict::Drifting);
    }

    #[test]
    fn endpoints_have_their_usual_part_of_the_dead() {
        let of = |today: u64, reported| {
            let week =
                Measurements::nothing().of_node(1, [WEEK_US, DAY_US], HOUR_US, &[(0.0, 950), (1.0, 50)]);
            let day = [DAY_US, 0];
            let told = week.of_node(1, day, HOUR_US, &[(0.0, 1_000 - today), (1.0, today)]);
            told.verdict(Series::ProviderErrors(CallTarget::Endpoints), reported)
        };
        assert_eq!(of(50, Reported::Nothing), Verdict::Steady);
        assert_eq!(of(59, Reported::Nothing), Verdict::Steady);
        assert_eq!(of(61, Reported::Nothing), Verdict::Drifting);
        assert_eq!(of(56, Reported::Drift), Verdict::Drifting);
        assert_eq!(of(54, Reported::Drift), Verdict::Steady);
    }

    #[test]
    fn one_node_out_of_connections_is_enough() {
        let pool = |busy: f64, samples: u64| {
            let quarter = [3 * SLOT_US, 0];
            let idle = Measurements::nothing().then(quarter, SLOT_US, 20, 0.1);
            let values = [(busy, samples), (0.0, 1)];
            idle.of_node(2, quarter, SLOT_US, &values).verdict(Series::DatabasePool, Reported::Nothing)
        };
        assert_eq!(pool(0.75, 19), Verdict::Steady);
        assert_eq!(pool(0.875, 19), Verdict::Drifting);
        // Six samples of it are not enough to judge the node by, and the other is well.
        assert_eq!(pool(1.0, 1), Verdict::Steady);
    }

    #[test]
    fn five_times_the_tasks_for_most_of_an_hour_is_a_leak() {
        let tasks = |count: f64, since_us: i64, reported| {
            let week = Measurements::nothing().then([WEEK_US, since_us], SLOT_US, 20, 40.0);
            week.then([since_us, 0], SLOT_US, 20, count).verdict(Series::Tasks, reported)
        };
        assert_eq!(tasks(190.0, HOUR_US, Reported::Nothing), Verdict::Steady);
        assert_eq!(tasks(210.0, HOUR_US, Reported::Nothing), Verdict::Drifting);
        assert_eq!(
            tasks(2_000.0, HOUR_US / 3, Reported::Nothing),
            Verdict::Steady,
            "a scan of twenty minutes"
        );
        assert_eq!(tasks(150.0, HOUR_US, Reported::Drift), Verdict::Drifting);
        assert_eq!(tasks(110.0, HOUR_US, Reported::Drift), Verdict::Steady);
    }

    #[test]
    fn what_has_no_rule_is_shown() {
        let told = Measurements::nothing().then([WEEK_US, 0], HOUR_US, 10, 500.0);
        let judgement = judge(Series::WriterBatch, &told.past(), Reported::Nothing, NOW);
        assert_eq!(judgement.verdict, Verdict::Shown);
        assert!(judgement.ratio().is_some_and(|ratio| (ratio - 1.0).abs() < 0.01), "{judgement:?}");
    }
}

//! The HTML report: one self-contained page, without script or network access.

use std::collections::BTreeMap;
use std::io::{self, Write};

use askama::Template;
use cli::units::{count, day, elapsed, minute, relative_time};
use scan::{EstateFinding, Observation};
use x509::Rule;

use super::row::{Row, UrgentRows, rank_name};
use super::tally::{WEEKS_MAX, rate};
use super::{Report, ScanSummary, Sink, Tally};

/// Maximum rows of the table of endpoints, because a longer page opens slowly on a phone. The page shows the number of omitted
/// rows; CSV has all rows.
const ROWS_MAX: usize = 2_000;
/// Maximum number of endpoints named under each finding.
const EXAMPLES_MAX: usize = 20;
/// Maximum number of estate findings shown.
const ESTATE_MAX: usize = 50;
/// Maximum bars of a chart. The rest is one additional bar, "others".
const BARS_MAX: usize = 5;

/// An HTML report: collects the content of the page, in bounded memory.
pub(crate) struct HtmlReport {
    sink: Sink,
    started_at_us: i64,
    worst: UrgentRows,
    groups: BTreeMap<&'static str, Group>,
}

/// A finding and the endpoints that have it.
struct Group {
    rule: &'static Rule,
    endpoints: u64,
    examples: Vec<FindingExample>,
}

struct FindingExample {
    endpoint: String,
    evidence: String,
}

impl HtmlReport {
    pub(crate) fn new(sink: Sink, started_at_us: i64) -> Self {
        Self { sink, started_at_us, worst: UrgentRows::new(ROWS_MAX), groups: BTreeMap::new() }
    }
}

impl Report for HtmlReport {
    fn observe(&mut self, observation: &Observation) -> io::Result<()> {
        self.worst.observe(observation);
        for finding in &observation.findings {
            let group = self.groups.entry(finding.rule.code).or_insert_with(|| Group {
                rule: finding.rule,
                endpoints: 0,
                examples: Vec::new(),
            });
            group.endpoints += 1;
            if group.examples.len() < EXAMPLES_MAX {
                group.examples.push(FindingExample {
                    endpoint: observation.label(),
                    evidence: finding.evidence.clone(),
                });
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn close(
        self: Box<Self>,
        tally: &Tally,
        estate: &[EstateFinding],
        closing: &ScanSummary,
    ) -> io::Result<()> {
        let Self { mut sink, started_at_us, worst, groups } = *self;
        let now_s = started_at_us.div_euclid(1_000_000);
        let mut groups: Vec<_> = groups.into_values().collect();
        groups.sort_by_key(|g| (std::cmp::Reverse(g.rule.severity), std::cmp::Reverse(g.endpoints)));
        let seen = worst.seen();
        let rows: Vec<_> = worst.into_rows().into_iter().map(|row| Line::of(row, now_s)).collect();
        let page = Page {
            version: env!("CARGO_PKG_VERSION"),
            started: minute(now_s),
            elapsed: elapsed(closing.elapsed),
            rate: count(rate(tally.endpoints, closing.elapsed).round() as u64),
            interrupted: closing.interrupted,
            invalid_targets: closing.invalid_targets,
            endpoints: count(tally.endpoints),
            tiles: tiles(tally),
            severity: severity_bar(tally),
            timeline: Timeline::of(tally, now_s),
            charts: charts(tally),
            groups: groups.into_iter().map(Section::of).collect(),
            estate_more: estate.len().saturating_sub(ESTATE_MAX),
            estate: estate.iter().take(ESTATE_MAX).collect(),
            failures: failures(tally),
            hidden: count(seen.saturating_sub(rows.len() as u64)),
            rows,
            empty: seen == 0,
        };
        page.write_into(&mut sink).map_err(io::Error::other)?;
        sink.write_all(b"\n")?;
        sink.flush()
    }
}

#[derive(Template)]
#[template(path = "report.html")]
struct Page<'a> {
    version: &'static str,
    started: String,
    elapsed: String,
    rate: String,
    interrupted: bool,
    invalid_targets: u64,
    endpoints: String,
    tiles: Vec<Tile>,
    severity: Vec<Slice>,
    timeline: Timeline,
    charts: Vec<Chart>,
    groups: Vec<Section>,
    estate: Vec<&'a EstateFinding>,
    estate_more: usize,
    failures: Vec<(&'static str, String)>,
    rows: Vec<Line>,
    /// Number of omitted rows, as text; "0" for none.
    hidden: String,
    empty: bool,
}

struct Tile {
    /// CSS class of the colour.
    class: &'static str,
    number: String,
    label: &'static str,
}

fn tiles(tally: &Tally) -> Vec<Tile> {
    let expired = tally.weeks.get(&-1).copied().unwrap_or(0);
    let soon: u64 = tally.weeks.range(0..4).map(|(_, number)| number).sum();
    let tile = |class, number, label| Tile { class, number: count(number), label };
    let of = |rank: usize| tally.by_rank[rank];
    vec![
        tile("critical", of(6), "critical"),
        tile("high", of(5), "high"),
        tile("medium", of(4), "medium"),
        tile("low", of(3) + of(1), "low or info"),
        tile("ok", of(0), "nothing found"),
        tile("silent", of(2), "no answer"),
        tile("critical", expired, "expired"),
        tile("medium", soon, "expire in 28 days"),
    ]
}

/// A segment of the severity bar.
struct Slice {
    class: &'static str,
    label: &'static str,
    number: String,
    x: String,
    width: String,
}

/// Width of the severity bar in view box units.
const BAR_UNITS: f64 = 1_000.0;

fn severity_bar(tally: &Tally) -> Vec<Slice> {
    let total = tally.endpoints.max(1) as f64;
    let mut x = 0.0;
    (0..tally.by_rank.len())
        .rev()
        .filter(|rank| tally.by_rank[*rank] > 0)
        .map(|rank| {
            let width = tally.by_rank[rank] as f64 / total * BAR_UNITS;
            let slice = Slice {
                class: class(rank as u8),
                label: rank_name(rank as u8),
                number: count(tally.by_rank[rank]),
                x: format!("{x:.1}"),
                width: format!("{width:.1}"),
            };
            x += width;
            slice
        })
        .collect()
}

/// Returns the CSS class of a rank.
fn class(rank: u8) -> &'static str {
    match rank_name(rank) {
        "no answer" => "silent",
        name => name,
    }
}

/// Number of leaves by the week in which they expire.
struct Timeline {
    bars: Vec<Bar>,
    ticks: Vec<Tick>,
    /// Label of the maximum of the scale.
    top: String,
    /// Label of half of the scale.
    half: String,
}

struct Bar {
    x: String,
    y: String,
    height: String,
    class: &'static str,
    title: String,
    /// Number of leaves of this bar, shown above the bar; empty if the text would overlap its neighbours.
    number: String,
    number_x: String,
    number_y: String,
}

struct Tick {
    x: String,
    label: String,
}

impl Timeline {
    /// Left margin in view box units. The template's view box is 1,000 by 220.
    const LEFT: f64 = 44.0;
    const STEP: f64 = 17.3;
    const BASE: f64 = 180.0;
    const HEIGHT: f64 = 160.0;

    fn of(tally: &Tally, now_s: i64) -> Self {
        let top = round_axis_max(tally.weeks.values().copied().max().unwrap_or(0));
        let x = |week: i64| Self::LEFT + (week + 1) as f64 * Self::STEP;
        let bars = (-1..=WEEKS_MAX)
            .filter_map(|week| {
                let number = *tally.weeks.get(&week)?;
                let height = (number as f64 / top as f64 * Self::HEIGHT).max(1.5);
                Some(Bar {
                    x: format!("{:.1}", x(week)),
                    y: format!("{:.1}", Self::BASE - height),
                    height: format!("{height:.1}"),
                    class: week_class(week),
                    title: format!("{}: {}", week_title(week, now_s), count(number)),
                    number: if number < 1_000 { number.to_string() } else { String::new() },
                    number_x: format!("{:.1}", x(week) + 6.5),
                    number_y: format!("{:.1}", Self::BASE - height - 4.0),
                })
            })
            .collect();
        Self { bars, ticks: Self::ticks(now_s), top: count(top), half: format_half(top) }
    }

    fn ticks(now_s: i64) -> Vec<Tick> {
        let x = |week: i64| format!("{:.1}", Self::LEFT + (week + 1) as f64 * Self::STEP + 6.5);
        let mut ticks = vec![Tick { x: x(-1), label: "expired".into() }];
        // Label every eighth week, so that labels do not overlap at any width.
        for week in (4..WEEKS_MAX - 4).step_by(8) {
            ticks.push(Tick { x: x(week), label: day(now_s + week * 7 * 86_400) });
        }
        ticks.push(Tick { x: x(WEEKS_MAX), label: "later".into() });
        ticks
    }
}

fn week_class(week: i64) -> &'static str {
    match week {
        ..0 => "critical",
        0 => "high",
        1..4 => "medium",
        4..13 => "low",
        _ => "ok",
    }
}

fn week_title(week: i64, now_s: i64) -> String {
    match week {
        ..0 => "expired".into(),
        WEEKS_MAX.. => format!("after {}", day(now_s + WEEKS_MAX * 7 * 86_400)),
        _ => format!("week from {}", day(now_s + week * 7 * 86_400)),
    }
}

/// Returns the next number of the form 1, 2, 4, 5 or 10 times a power of ten.
fn round_axis_max(most: u64) -> u64 {
    let mut power = 1;
    loop {
        for step in [1, 2, 4, 5, 10] {
            if most <= step * power {
                return step * power;
            }
        }
        power *= 10;
    }
}

fn format_half(top: u64) -> String {
    if top.is_multiple_of(2) { count(top / 2) } else { format!("{:.1}", top as f64 / 2.0) }
}

/// A chart of horizontal bars.
struct Chart {
    title: &'static str,
    height: usize,
    bars: Vec<ChartBar>,
}

struct ChartBar {
    label: String,
    number: String,
    text_y: usize,
    bar_y: usize,
    width: String,
}

fn charts(tally: &Tally) -> Vec<Chart> {
    vec![
        chart("Issuers", tally.issuers.top(BARS_MAX)),
        chart("Keys", tally.keys.top(BARS_MAX)),
        chart("Protocols", tally.versions.top(BARS_MAX)),
    ]
    .into_iter()
    .filter(|chart| !chart.bars.is_empty())
    .collect()
}

fn chart(title: &'static str, counts: Vec<(String, u64)>) -> Chart {
    /// Height of a bar, in view box units.
    const STRIP: usize = 38;
    const WIDEST: f64 = 340.0;
    let most = counts.iter().map(|(_, number)| *number).max().unwrap_or(1).max(1) as f64;
    let bars: Vec<_> = counts
        .into_iter()
        .enumerate()
        .map(|(at, (label, number))| ChartBar {
            label: cli::terminal::shorten(&label, 40).into_owned(),
            number: count(number),
            text_y: at * STRIP + 14,
            bar_y: at * STRIP + 20,
            width: format!("{:.1}", (number as f64 / most * WIDEST).max(2.0)),
        })
        .collect();
    Chart { title, height: bars.len() * STRIP + 2, bars }
}

/// A section of the report about one rule: the rule, and example endpoints with this finding.
struct Section {
    class: &'static str,
    code: &'static str,
    title: &'static str,
    source: &'static str,
    advice: &'static str,
    endpoints: String,
    examples: Vec<FindingExample>,
    more: u64,
}

impl Section {
    fn of(group: Group) -> Self {
        Self {
            class: group.rule.severity.name(),
            code: group.rule.code,
            title: group.rule.title,
            source: group.rule.source,
            advice: group.rule.advice,
            endpoints: cli::units::counted(group.endpoints, "endpoint"),
            more: group.endpoints.saturating_sub(group.examples.len() as u64),
            examples: group.examples,
        }
    }
}

fn failures(tally: &Tally) -> Vec<(&'static str, String)> {
    let mut failures: Vec<_> = tally
        .by_outcome
        .iter()
        .filter(|(code, _)| **code != "answered")
        .map(|(code, number)| (*code, *number))
        .collect();
    failures.sort_by_key(|(_, number)| std::cmp::Reverse(*number));
    failures.into_iter().map(|(code, number)| (code, count(number))).collect()
}

/// A row of the table of endpoints.
struct Line {
    class: &'static str,
    state: &'static str,
    rank: u8,
    endpoint: String,
    address: String,
    subject: String,
    /// Seconds since 1970, for sorting; empty when there is no certificate.
    expires_s: String,
    expires: String,
    left: String,
    issuer: String,
    key: String,
    tls: String,
    verdicts: String,
    remark: String,
}

impl Line {
    fn of(row: Row, now_s: i64) -> Self {
        Self {
            class: class(row.rank()),
            state: row.state(),
            rank: row.rank(),
            verdicts: row.verdicts(),
            expires_s: row.not_after.map(|at| at.to_string()).unwrap_or_default(),
            expires: row.not_after.map(day).unwrap_or_default(),
            left: row.not_after.map(|at| relative_time(at - now_s)).unwrap_or_default(),
            endpoint: row.endpoint,
            address: row.address,
            subject: row.subject,
            issuer: row.issuer,
            key: row.key,
            tls: row.tls,
            remark: row.remark,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chart_scale_ends_at_a_round_number() {
        for (most, top) in [(0, 1), (1, 1), (3, 4), (5, 5), (7, 10), (11, 20), (41, 50), (180_000, 200_000)] {
            assert_eq!(round_axis_max(most), top, "{most}");
        }
    }
}

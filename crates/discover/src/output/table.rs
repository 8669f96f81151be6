//! The table: the worst endpoints first, then findings about several endpoints, then the summary.

use std::io::{self, Write};

use cli::terminal::{Paint, clean, shorten, table};
use cli::units::{count, counted, day, elapsed, relative_time};
use scan::{EstateFinding, Observation};

use super::row::{Row, UrgentRows, rank_name};
use super::tally::rate;
use super::{Report, ReportStyle, ScanSummary, Sink, Tally};

/// Maximum number of estate findings written in full. Further findings are counted; the other formats have all of them.
const ESTATE_MAX: usize = 10;
/// Maximum characters of an issuer's name in its column.
const ISSUER_CHARS_MAX: usize = 28;
/// Maximum characters of an endpoint in its column.
const ENDPOINT_CHARS_MAX: usize = 56;
/// Minimum width of a terminal that shows the columns address and issuer, which are the least important ones.
const WIDE_COLUMNS: u16 = 120;

/// A report for a terminal: collects the most urgent rows and prints them at the end.
pub(crate) struct TableReport {
    sink: Sink,
    style: ReportStyle,
    worst: UrgentRows,
    started_at_s: i64,
}

impl TableReport {
    pub(crate) fn new(sink: Sink, style: ReportStyle, started_at_us: i64) -> Self {
        let limit = if style.rows == 0 { usize::MAX } else { style.rows };
        let started_at_s = started_at_us.div_euclid(1_000_000);
        Self { sink, style, worst: UrgentRows::new(limit), started_at_s }
    }
}

impl Report for TableReport {
    fn observe(&mut self, observation: &Observation) -> io::Result<()> {
        self.worst.observe(observation);
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
        let Self { mut sink, style, worst, started_at_s } = *self;
        let seen = worst.seen();
        let rows = worst.into_rows();
        if !rows.is_empty() {
            write_rows(&mut sink, &rows, style, started_at_s)?;
        }
        let hidden = seen.saturating_sub(rows.len() as u64);
        if hidden > 0 {
            let note = format!("… and {} less urgent: --limit 0 shows all", count(hidden));
            writeln!(sink, " {}", style.paint.faint(&note))?;
        }
        write_estate(&mut sink, estate, style.paint)?;
        if !style.quiet {
            write_summary(&mut sink, tally, closing, style.paint)?;
        }
        sink.flush()
    }
}

fn write_rows(out: &mut Sink, rows: &[Row], style: ReportStyle, now_s: i64) -> io::Result<()> {
    let wide = style.width.is_none_or(|width| width >= WIDE_COLUMNS);
    let head: &[&str] = if wide {
        &["SEVERITY", "ENDPOINT", "ADDRESS", "EXPIRES", "ISSUER", "KEY", "TLS", "FINDINGS"]
    } else {
        &["SEVERITY", "ENDPOINT", "EXPIRES", "KEY", "FINDINGS"]
    };
    let mut shown = table(head, style.paint, style.width);
    for row in rows {
        let state = row.state();
        let mut cells = vec![
            style.paint.cell(state, state),
            style.paint.cell("", &shorten(&clean(&row.endpoint), ENDPOINT_CHARS_MAX)),
        ];
        if wide {
            cells.push(style.paint.cell("faint", &row.address));
        }
        cells.push(style.paint.cell(expiry_style(row, now_s), &expires(row.not_after, now_s)));
        if wide {
            cells.push(style.paint.cell("", &shorten(&clean(&row.issuer), ISSUER_CHARS_MAX)));
        }
        cells.push(style.paint.cell("", &row.key));
        if wide {
            cells.push(style.paint.cell("", row.tls.trim_start_matches("TLS ")));
        }
        cells.push(style.paint.cell(state, &row.verdicts()));
        shown.add_row(cells);
    }
    writeln!(out, "{}", shown.trim_fmt())
}

/// Returns the style of an expiry date, by its urgency.
fn expiry_style(row: &Row, now_s: i64) -> &'static str {
    match row.not_after.map(|at| at - now_s) {
        Some(left) if left < 0 => "critical",
        Some(left) if left < 7 * 86_400 => "high",
        Some(left) if left < 30 * 86_400 => "medium",
        _ => "",
    }
}

/// Formats an expiry time: `in 12 d` if it is near, otherwise the date.
pub(crate) fn expires(not_after: Option<i64>, now_s: i64) -> String {
    /// Maximum distance of an expiry that is shown as a number of days: 100 days. Later ones are shown as a date.
    const NEAR_S: i64 = 100 * 86_400;
    match not_after {
        None => "-".into(),
        Some(at) if (at - now_s).abs() < NEAR_S => relative_time(at - now_s),
        Some(at) => day(at),
    }
}

fn write_estate(out: &mut Sink, estate: &[EstateFinding], paint: Paint) -> io::Result<()> {
    if estate.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n {}", paint.bold("ACROSS ENDPOINTS"))?;
    for shared in estate.iter().take(ESTATE_MAX) {
        let rule = shared.finding.rule;
        let severity = rule.severity.name();
        writeln!(
            out,
            " {}  {}: {}",
            paint.state(severity, &format!("{severity:<8}")),
            rule.code,
            clean(&shared.finding.evidence),
        )?;
        let named = shared.endpoints.iter().take(3).map(|e| clean(e)).collect::<Vec<_>>();
        let rest = shared.count.saturating_sub(named.len());
        let more = if rest > 0 { format!(" and {} more", count(rest as u64)) } else { String::new() };
        writeln!(out, "           {}", paint.faint(&format!("{}{more}", named.join(", "))))?;
    }
    if estate.len() > ESTATE_MAX {
        let rest = count((estate.len() - ESTATE_MAX) as u64);
        writeln!(out, " {}", paint.faint(&format!("… and {rest} more: --output json shows all")))?;
    }
    Ok(())
}

fn write_summary(out: &mut Sink, tally: &Tally, closing: &ScanSummary, paint: Paint) -> io::Result<()> {
    let line = |name: &str, text: String| format!(" {}  {text}", paint.faint(&format!("{name:<10}")));
    writeln!(out)?;
    let interrupted = if closing.interrupted { ", interrupted: results so far" } else { "" };
    let speed = rate(tally.endpoints, closing.elapsed);
    writeln!(
        out,
        "{}",
        line(
            "scanned",
            format!(
                "{} in {} ({}/s), {} answered{interrupted}",
                counted(tally.endpoints, "endpoint"),
                elapsed(closing.elapsed),
                count(speed.round() as u64),
                count(tally.answered),
            )
        )
    )?;
    writeln!(out, "{}", line("worst", ranks(tally, paint)))?;
    let mut failures: Vec<_> = tally.by_outcome.iter().filter(|(code, _)| **code != "answered").collect();
    failures.sort_by_key(|(_, number)| std::cmp::Reverse(**number));
    if !failures.is_empty() {
        let list: Vec<_> =
            failures.iter().map(|(code, number)| format!("{} {code}", count(**number))).collect();
        writeln!(out, "{}", line("no answer", list.join(", ")))?;
    }
    for note in notes(closing) {
        writeln!(out, "{}", line("note", note))?;
    }
    match (&closing.stored, &closing.store_error) {
        (_, Some(error)) => writeln!(out, "{}", line("not stored", paint.state("high", error))),
        (Some(stored), None) => writeln!(
            out,
            "{}",
            line(
                "stored",
                format!(
                    "{}, {}, {}, in {}",
                    counted(stored.observations, "observation"),
                    counted(stored.new_certificates, "new certificate"),
                    counted(stored.changed, "change"),
                    stored.inventory,
                )
            )
        ),
        (None, None) => writeln!(out, "{}", line("stored", format!("nothing ({})", closing.not_stored))),
    }
}

fn ranks(tally: &Tally, paint: Paint) -> String {
    let shown: Vec<_> = (0..tally.by_rank.len())
        .rev()
        .filter(|rank| tally.by_rank[*rank] > 0)
        .map(|rank| {
            let name = rank_name(rank as u8);
            paint.state(name, &format!("{} {name}", count(tally.by_rank[rank])))
        })
        .collect();
    if shown.is_empty() { "no endpoint found".into() } else { shown.join(", ") }
}

fn notes(closing: &ScanSummary) -> Vec<String> {
    let mut notes = Vec::new();
    if closing.invalid_targets > 0 {
        notes.push(format!("{} left out: not readable", counted(closing.invalid_targets, "target")));
    }
    if closing.repeated_targets > 0 {
        notes.push(format!(
            "{} given more than once, scanned once",
            counted(closing.repeated_targets, "target")
        ));
    }
    if closing.skipped > 0 {
        notes.push(format!("{} observed before the interruption, not scanned again", count(closing.skipped)));
    }
    if closing.estate_overflowed {
        notes.push("too many certificates to compare them all with each other".into());
    }
    notes
}

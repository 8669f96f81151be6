//! The view of `bulla key top` as text, and the terminal that it is shown on.

use std::io::{self, Write};

use cli::terminal::{Paint, clean, table};
use cli::units::counted;
use comfy_table::{Cell, CellAlignment, Table};

use super::figures::{CostClassRates, Destination, OpcodeRates, Site, Tenant, View};
use super::services::HINT;

/// Maximum rows of a table of tenants or sites on the screen. The JSON document has all rows.
const ROWS_MAX: usize = 20;
/// Rows and columns of a terminal that does not report its size.
const DEFAULT_SIZE: (u16, u16) = (24, 100);
/// Utilisation of workers above which queues grow.
const BUSY: f64 = 0.8;

/// Formats the whole view of `bulla key top`.
pub(super) fn text(view: &View, paint: Paint, width: Option<u16>) -> String {
    let mut parts = vec![summary(view, paint)];
    let mut add = |rows: usize, shown: Table, missing: usize| {
        if rows > 0 {
            let more = if missing > 0 { format!("\n … and {missing} more") } else { String::new() };
            parts.push(format!("{}{more}", shown.trim_fmt()));
        }
    };
    add(view.opcodes.len(), opcodes(&view.opcodes, paint, width), 0);
    add(view.classes.len(), classes(&view.classes, paint, width), 0);
    add(
        view.tenants.len(),
        tenants(&view.tenants, paint, width),
        view.tenants.len().saturating_sub(ROWS_MAX),
    );
    add(view.sites.len(), sites(&view.sites, paint, width), view.sites.len().saturating_sub(ROWS_MAX));
    let missing = view.destinations.len().saturating_sub(ROWS_MAX);
    add(view.destinations.len(), destinations(&view.destinations, paint, width), missing);
    parts.join("\n\n")
}

fn summary(view: &View, paint: Paint) -> String {
    let mut lines = vec![format!(
        "{} requests/s   {} errors/s   {} refused/s   {} in flight",
        paint.bold(&rate(view.requests_per_s)),
        highlight_if_positive(paint, view.errors_per_s, &rate(view.errors_per_s)),
        highlight_if_positive(paint, view.refused_per_s, &rate(view.refused_per_s)),
        view.in_flight,
    )];
    let broken = if view.broken_key_files > 0.0 {
        highlight_if_positive(paint, 1.0, &format!(", {} broken files", view.broken_key_files))
    } else {
        String::new()
    };
    lines.push(format!(
        "{}, {}{broken}, {} of {} connections, {} of {} requests to external keys",
        counted(view.services as u64, "service"),
        counted(view.keys as u64, "key"),
        view.connections,
        view.connections_max,
        view.elsewhere,
        view.elsewhere_max,
    ));
    if view.retried_per_s + view.hedged_per_s + view.out_of_budget_per_s > 0.0 {
        lines.push(format!(
            "second attempts: {}/s retried, {}/s hedged, {}/s not sent because the retry budget was exhausted",
            rate(view.retried_per_s),
            rate(view.hedged_per_s),
            rate(view.out_of_budget_per_s)
        ));
    }
    for away in &view.away {
        let warning = format!("{} is unreachable: {}", clean(&away.url), clean(&away.why));
        lines.push(paint.state("critical", &warning));
    }
    if !view.away.is_empty() {
        lines.push(paint.faint(&format!("hint: {HINT}")));
    }
    lines.join("\n")
}

fn opcodes(all: &[OpcodeRates], paint: Paint, width: Option<u16>) -> Table {
    let mut shown = new(
        &["OPERATION", "REQUESTS/S", "ERRORS/S", "REFUSED/S", "IN FLIGHT", "WAITING", "P50 MS", "P99 MS"],
        paint,
        width,
    );
    for one in all {
        shown.add_row([
            name(&one.opcode),
            figure(rate(one.requests_per_s)),
            figure(rate(one.errors_per_s)),
            figure(rate(one.refused_per_s)),
            figure(one.in_flight.to_string()),
            figure(one.queued.to_string()),
            figure(maybe(one.p50_ms)),
            figure(maybe(one.p99_ms)),
        ]);
    }
    shown
}

fn classes(all: &[CostClassRates], paint: Paint, width: Option<u16>) -> Table {
    let head = [
        "CLASS",
        "BUSY",
        "WORKERS",
        "SIGNING",
        "WAITING",
        "DONE/S",
        "REFUSED/S",
        "LATE/S",
        "SIGN MS",
        "WAIT MS",
    ];
    let mut shown = new(&head, paint, width);
    for one in all {
        let busy = format!("{:.0} %", one.busy * 100.0);
        let busy = if one.busy > BUSY { paint.cell("medium", &busy) } else { Cell::new(busy) };
        shown.add_row([
            name(&one.cost),
            busy.set_alignment(CellAlignment::Right),
            figure(format!("{}/{}", one.working, one.running_max)),
            figure(one.running.to_string()),
            figure(format!("{}/{}", one.waiting, one.waiting_max)),
            figure(rate(one.done_per_s)),
            figure(rate(one.refused_per_s)),
            figure(rate(one.late_per_s)),
            figure(maybe(one.sign_ms)),
            figure(maybe(one.wait_ms)),
        ]);
    }
    shown
}

fn tenants(all: &[Tenant], paint: Paint, width: Option<u16>) -> Table {
    let head = ["TENANT", "REQUESTS/S", "REFUSED/S", "IN FLIGHT", "MEAN MS", "λW", "L/λW, 1 MIN"];
    let mut shown = new(&head, paint, width);
    for one in all.iter().take(ROWS_MAX) {
        shown.add_row([
            name(&one.tenant),
            figure(rate(one.requests_per_s)),
            figure(rate(one.refused_per_s)),
            figure(format!("{}/{}", one.in_flight, one.in_flight_max)),
            figure(maybe(one.mean_ms)),
            figure(rate(one.expected_in_flight)),
            figure(maybe(one.littles_law_ratio)),
        ]);
    }
    shown
}

fn sites(all: &[Site], paint: Paint, width: Option<u16>) -> Table {
    let head = [
        "SITE",
        "UP",
        "RTT MS",
        "REQUESTS/S",
        "ERRORS/S",
        "IN FLIGHT",
        "RETRIED/S",
        "HEDGED/S",
        "P50 MS",
        "P99 MS",
        "L/λW, 1 MIN",
    ];
    let mut shown = new(&head, paint, width);
    for one in all.iter().take(ROWS_MAX) {
        let up = one.nodes_up.to_string();
        let up = if one.nodes_up > 0.0 { Cell::new(up) } else { paint.cell("high", &up) };
        shown.add_row([
            name(&one.site),
            up.set_alignment(CellAlignment::Right),
            figure(maybe(one.round_trip_ms)),
            figure(rate(one.requests_per_s)),
            figure(rate(one.errors_per_s)),
            figure(format!("{}/{}", one.in_flight, one.in_flight_max)),
            figure(rate(one.retried_per_s)),
            figure(rate(one.hedged_per_s)),
            figure(maybe(one.p50_ms)),
            figure(maybe(one.p99_ms)),
            figure(maybe(one.littles_law_ratio)),
        ]);
    }
    shown
}

fn destinations(all: &[Destination], paint: Paint, width: Option<u16>) -> Table {
    let head = [
        "DESTINATION",
        "CALLS",
        "REQUESTS/S",
        "ERRORS/S",
        "REFUSED/S",
        "IN FLIGHT",
        "P50 MS",
        "P99 MS",
        "L/λW, 1 MIN",
    ];
    let mut shown = new(&head, paint, width);
    for one in all.iter().take(ROWS_MAX) {
        shown.add_row([
            name(&one.destination),
            // Requests above the maximum wait in the queue.
            figure(format!("{}/{}", one.in_flight.min(one.calls_max), one.calls_max)),
            figure(rate(one.requests_per_s)),
            figure(rate(one.errors_per_s)),
            figure(rate(one.refused_per_s)),
            figure(format!("{}/{}", one.in_flight, one.in_flight_max)),
            figure(maybe(one.p50_ms)),
            figure(maybe(one.p99_ms)),
            figure(maybe(one.littles_law_ratio)),
        ]);
    }
    shown
}

fn new(head: &[&str], paint: Paint, width: Option<u16>) -> Table {
    table(head, paint, width)
}

fn name(text: &str) -> Cell {
    Cell::new(clean(text))
}

fn figure(text: String) -> Cell {
    Cell::new(text).set_alignment(CellAlignment::Right)
}

fn highlight_if_positive(paint: Paint, value: f64, text: &str) -> String {
    if value > 0.0 { paint.state("high", text) } else { text.to_owned() }
}

/// Formats a rate: with one decimal below 10, and without decimals from 10 on.
fn rate(value: f64) -> String {
    if value >= 10.0 || value == 0.0 { format!("{value:.0}") } else { format!("{value:.1}") }
}

fn maybe(value: Option<f64>) -> String {
    match value {
        None => "-".to_owned(),
        Some(value) if value >= 100.0 => format!("{value:.0}"),
        Some(value) if value >= 1.0 => format!("{value:.1}"),
        Some(value) => format!("{value:.3}"),
    }
}

/// The terminal in full-screen mode. The previous content is restored on drop.
pub(super) struct Screen;

impl Screen {
    pub(super) fn take() -> io::Result<Self> {
        // Switch to the alternate screen and hide the cursor.
        write(b"\x1b[?1049h\x1b[?25l\x1b[H\x1b[2J")?;
        Ok(Self)
    }

    /// Shows lines from the top, cut to the size of the terminal.
    pub(super) fn show(&self, text: &str) -> io::Result<()> {
        // Some terminals do not report their size.
        let size = console::Term::stdout().size_checked().filter(|(rows, columns)| *rows > 0 && *columns > 0);
        let (rows, columns) = size.unwrap_or(DEFAULT_SIZE);
        write(frame(text, usize::from(rows), usize::from(columns)).as_bytes())
    }
}

/// Overwrites each line and clears the rest. Unchanged content does not flicker.
fn frame(text: &str, rows: usize, columns: usize) -> String {
    let lines: Vec<_> =
        text.lines().take(rows).map(|line| console::truncate_str(line, columns, "…")).collect();
    format!("\x1b[H{}\x1b[K\x1b[J", lines.join("\x1b[K\r\n"))
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A closed terminal need not be restored.
        let _ = write(b"\x1b[?25h\x1b[?1049l");
    }
}

fn write(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes)?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_durations_are_rounded_to_significant_digits() {
        for (value, text) in [(0.0, "0"), (0.5, "0.5"), (9.96, "10.0"), (12.4, "12"), (45_000.0, "45000")] {
            assert_eq!(rate(value), text);
        }
        for (value, text) in
            [(None, "-"), (Some(0.032), "0.032"), (Some(12.55), "12.6"), (Some(1_234.5), "1234")]
        {
            assert_eq!(maybe(value), text);
        }
    }

    /// Two workers with one batch each are shown as 2 of 2 workers, not as 16 of 2.
    #[test]
    fn class_table_shows_workers_and_signatures_in_separate_columns() {
        let medium = CostClassRates {
            cost: "medium".to_owned(),
            busy: 1.0,
            running: 16.0,
            working: 2.0,
            running_max: 2.0,
            waiting: 30.0,
            waiting_max: 2_048.0,
            done_per_s: 12_000.0,
            refused_per_s: 0.0,
            late_per_s: 0.0,
            sign_ms: Some(0.16),
            wait_ms: Some(2.5),
        };
        let shown = classes(&[medium], Paint(false), None).trim_fmt();
        let rows: Vec<Vec<&str>> = shown.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[0][..5], ["CLASS", "BUSY", "WORKERS", "SIGNING", "WAITING"]);
        assert_eq!(rows[1][..6], ["medium", "100", "%", "2/2", "16", "30/2048"]);
    }

    /// Of twenty requests to a token with eight sessions, eight are shown as calls, and twelve as waiting.
    #[test]
    fn destination_table_caps_active_calls_at_the_maximum() {
        let token = Destination {
            destination: "pkcs11:web".to_owned(),
            requests_per_s: 5.0,
            errors_per_s: 0.0,
            refused_per_s: 0.0,
            in_flight: 20.0,
            in_flight_max: 4_096.0,
            calls_max: 8.0,
            p50_ms: Some(12.0),
            p99_ms: None,
            littles_law_ratio: Some(1.0),
        };
        let shown = destinations(&[token], Paint(false), None).trim_fmt();
        let row: Vec<&str> = shown.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(row[..6], ["pkcs11:web", "8/8", "5.0", "0", "0", "20/4096"]);
    }

    #[test]
    fn monitor_frame_is_cut_to_the_terminal_size() {
        assert_eq!(frame("a\nb\nc", 2, 9), "\x1b[Ha\x1b[K\r\nb\x1b[K\x1b[J");
        assert_eq!(frame("abcd", 2, 3), "\x1b[Hab…\x1b[K\x1b[J");
    }
}

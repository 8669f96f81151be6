//! A scan's counts for Prometheus' textfile collector.

use std::fmt::Write as _;
use std::path::Path;

use cli::exit::{Exit, Outcome, Problem};

use crate::output::{ScanSummary, Tally};
use crate::rules;

/// Writes the counts to `path` atomically, as the collector requires.
pub(crate) fn write(path: &Path, tally: &Tally, closing: &ScanSummary) -> Outcome<()> {
    let failed = |error: std::io::Error| {
        Problem::new(Exit::Machine, format_args!("cannot write {}: {error}", path.display()))
            .hint("choose a --metrics-file in a folder that you may write to")
    };
    let mut partial = path.as_os_str().to_owned();
    partial.push(".partial");
    std::fs::write(&partial, text(tally, closing)).map_err(failed)?;
    std::fs::rename(&partial, path).map_err(failed)
}

fn text(tally: &Tally, closing: &ScanSummary) -> String {
    let mut out = String::new();
    let finished_at_us = closing.started_at_us.saturating_add(closing.elapsed.as_micros() as i64);
    gauge(&mut out, "bulla_scan_endpoints", "Endpoints scanned.", tally.endpoints);
    gauge(&mut out, "bulla_scan_answered_endpoints", "Endpoints that sent a certificate.", tally.answered);
    gauge(
        &mut out,
        "bulla_scan_invalid_targets",
        "Targets that could not be parsed.",
        closing.invalid_targets,
    );
    gauge(
        &mut out,
        "bulla_scan_interrupted",
        "1 if the scan was interrupted, else 0.",
        u8::from(closing.interrupted),
    );
    gauge(&mut out, "bulla_scan_duration_seconds", "Duration of the scan.", closing.elapsed.as_secs_f64());
    gauge(
        &mut out,
        "bulla_scan_finished_timestamp_seconds",
        "End of the scan, Unix time.",
        finished_at_us as f64 / 1e6,
    );
    head(&mut out, "bulla_scan_outcome_endpoints", "Endpoints by scan outcome.");
    for (outcome, number) in &tally.by_outcome {
        let _ = writeln!(out, "bulla_scan_outcome_endpoints{{outcome=\"{outcome}\"}} {number}");
    }
    head(&mut out, "bulla_scan_finding_endpoints", "Findings by rule.");
    for rule in rules::all() {
        let number = tally.by_rule.get(rule.code).copied().unwrap_or(0);
        let _ = writeln!(
            out,
            "bulla_scan_finding_endpoints{{code=\"{}\",severity=\"{}\"}} {number}",
            rule.code, rule.severity
        );
    }
    out
}

fn head(out: &mut String, name: &str, help: &str) {
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} gauge");
}

fn gauge(out: &mut String, name: &str, help: &str, value: impl std::fmt::Display) {
    head(out, name, help);
    let _ = writeln!(out, "{name} {value}");
}

//! Rows of the listings of `bulla inventory`: table cells for people, CSV and JSON for programs.

use cli::printer::Listed;
use cli::terminal::{Paint, clean, shorten};
use cli::units::{self, count, now_us, relative_time};
use comfy_table::Cell;
use events::ProbeOutcome;
use serde_json::{Value, json};
use store::{
    ChangeRow, EndpointKey, InventoryRow, IssuerRow, LeafFacts, ObservationRow, PrunedObservations, ScanRow,
};
use x509::{Fingerprint, Severity};

use crate::endpoint::label;
use crate::output::row::{rank, rank_name};

/// Digits of a fingerprint in tables, enough to distinguish certificates.
const FINGERPRINT_DIGITS: usize = 12;
/// Maximum characters of an issuer's name in its column.
const ISSUER_CHARS_MAX: usize = 40;

/// Formats a time, in microseconds since 1970, as an RFC 3339 string; `null` if there is no time.
pub(crate) fn time(at_us: Option<i64>) -> Value {
    json!(at_us.map(units::rfc3339_us))
}

fn format_time(at_us: Option<i64>) -> String {
    at_us.map(units::rfc3339_us).unwrap_or_default()
}

fn hex(sha256: &[u8; 32]) -> String {
    Fingerprint::from_bytes(*sha256).to_string()
}

fn short(sha256: Option<&[u8; 32]>) -> String {
    sha256.map(|sha256| hex(sha256)[..FINGERPRINT_DIGITS].to_owned()).unwrap_or_else(|| "-".into())
}

/// Parses stored JSON. Text that is not JSON becomes a JSON string.
pub(crate) fn stored_json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| json!(text))
}

fn codes(findings: &str) -> Vec<String> {
    let Value::Array(findings) = stored_json(findings) else { return Vec::new() };
    findings.iter().filter_map(|finding| Some(finding.get("code")?.as_str()?.to_owned())).collect()
}

pub(crate) fn key_json(key: &EndpointKey) -> Value {
    let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    json!({
        "endpoint": label(key),
        "host": key.host,
        "port": key.port,
        "protocol": key.protocol,
        "server_name": some(&key.server_name),
        "by_address": some(&key.address),
    })
}

fn merged(mut into: Value, more: Value) -> Value {
    if let (Value::Object(into), Value::Object(more)) = (&mut into, more) {
        into.extend(more);
    }
    into
}

/// Returns the common name of an RFC 4514 name, or the whole name.
fn short_issuer(issuer: &str) -> &str {
    issuer.split(", ").find_map(|part| part.strip_prefix("CN=")).unwrap_or(issuer)
}

/// A row of `bulla inventory list`: the current state of an endpoint.
pub(crate) struct Endpoint(pub(crate) InventoryRow);

impl Endpoint {
    fn state(&self) -> &'static str {
        rank_name(rank(self.0.severity, self.0.answering))
    }

    fn findings(&self) -> Vec<String> {
        self.0.last.as_ref().map(|last| codes(&last.findings)).unwrap_or_default()
    }
}

pub(crate) fn leaf_json(leaf: &LeafFacts) -> Value {
    json!({
        "fingerprint_sha256": hex(&leaf.sha256),
        "subject": leaf.subject,
        "issuer": leaf.issuer,
        "serial": leaf.serial,
        "not_before": units::rfc3339(leaf.not_before_us.div_euclid(1_000_000)),
        "not_after": units::rfc3339(leaf.not_after_us.div_euclid(1_000_000)),
        "key_algorithm": leaf.key_algorithm,
        "key_bits": leaf.key_bits,
    })
}

impl Listed for Endpoint {
    const TABLE: &'static [&'static str] =
        &["SEVERITY", "ENDPOINT", "EXPIRES", "ISSUER", "CERTIFICATE", "SEEN", "FINDINGS"];
    const CSV: &'static [&'static str] = &[
        "endpoint",
        "host",
        "port",
        "protocol",
        "server_name",
        "address",
        "outcome",
        "answering",
        "severity",
        "findings",
        "first_seen",
        "last_observed",
        "last_answered",
        "last_changed",
        "fingerprint_sha256",
        "subject",
        "issuer",
        "serial",
        "not_before",
        "not_after",
        "key_algorithm",
        "key_bits",
    ];

    fn cells(&self, paint: Paint) -> Vec<Cell> {
        let row = &self.0;
        let (state, now_us) = (self.state(), now_us());
        let leaf = row.leaf.as_ref();
        let mut verdicts = self.findings().join(", ");
        if !row.answering {
            let gap = if verdicts.is_empty() { "" } else { ", " };
            verdicts = format!("{}{gap}{verdicts}", row.outcome);
        }
        let now_s = now_us.div_euclid(1_000_000);
        let expires = crate::output::expires(leaf.map(|leaf| leaf.not_after_us.div_euclid(1_000_000)), now_s);
        vec![
            paint.cell(state, state),
            paint.cell("", &clean(&label(&row.endpoint))),
            paint.cell(if leaf.is_some_and(|l| l.not_after_us < now_us) { "critical" } else { "" }, &expires),
            paint.cell("", &shorten(&clean(leaf.map_or("-", |l| short_issuer(&l.issuer))), ISSUER_CHARS_MAX)),
            paint.cell("faint", &short(leaf.map(|leaf| &leaf.sha256))),
            paint.cell("faint", &relative_time((row.last_observed_us - now_us).div_euclid(1_000_000))),
            paint.cell(state, &verdicts),
        ]
    }

    fn fields(&self) -> Vec<String> {
        let row = &self.0;
        let key = &row.endpoint;
        let mut fields = vec![
            label(key),
            key.host.clone(),
            key.port.to_string(),
            key.protocol.clone(),
            key.server_name.clone(),
            key.address.clone(),
            row.outcome.to_string(),
            row.answering.to_string(),
            row.severity.map(|s| s.name().to_owned()).unwrap_or_default(),
            self.findings().join(" "),
            format_time(Some(row.first_seen_us)),
            format_time(Some(row.last_observed_us)),
            format_time(row.last_answered_us),
            format_time(Some(row.last_changed_us)),
        ];
        match &row.leaf {
            Some(leaf) => fields.extend([
                hex(&leaf.sha256),
                leaf.subject.clone(),
                leaf.issuer.clone(),
                leaf.serial.clone(),
                units::rfc3339(leaf.not_before_us.div_euclid(1_000_000)),
                units::rfc3339(leaf.not_after_us.div_euclid(1_000_000)),
                leaf.key_algorithm.clone(),
                leaf.key_bits.to_string(),
            ]),
            None => fields.resize(Self::CSV.len(), String::new()),
        }
        fields
    }

    fn json(&self) -> Value {
        let row = &self.0;
        let facts = json!({
            "outcome": row.outcome,
            "answering": row.answering,
            "severity": row.severity,
            "first_seen": time(Some(row.first_seen_us)),
            "last_observed": time(Some(row.last_observed_us)),
            "last_answered": time(row.last_answered_us),
            "last_changed": time(Some(row.last_changed_us)),
            "certificate": row.leaf.as_ref().map(leaf_json),
            "last": row.last.as_ref().map(|last| json!({
                "scan": last.scan,
                "address": last.address,
                "tls_version": last.tls_version.map(scan::tls::names::version),
                "cipher_suite": last.cipher_suite.map(scan::tls::names::cipher_suite),
                "trust": last.trust,
                "findings": stored_json(&last.findings),
                "detail": stored_json(&last.detail),
            })),
        });
        merged(key_json(&row.endpoint), facts)
    }
}

/// A row of `bulla inventory issuers`.
pub(crate) struct Issuer(pub(crate) IssuerRow);

impl Listed for Issuer {
    const TABLE: &'static [&'static str] = &["ENDPOINTS", "CERTIFICATES", "NEXT EXPIRY", "ISSUER"];
    const CSV: &'static [&'static str] = &["issuer", "certificates", "endpoints", "soonest_not_after"];

    fn cells(&self, paint: Paint) -> Vec<Cell> {
        let now_us = now_us();
        let soonest = self.0.soonest_not_after_us;
        let expires =
            crate::output::expires(soonest.map(|at| at.div_euclid(1_000_000)), now_us.div_euclid(1_000_000));
        vec![
            paint.cell("", &count(self.0.endpoints)),
            paint.cell("", &count(self.0.certificates)),
            paint.cell(if soonest.is_some_and(|at| at < now_us) { "critical" } else { "" }, &expires),
            paint.cell("", &clean(&self.0.issuer)),
        ]
    }

    fn fields(&self) -> Vec<String> {
        let row = &self.0;
        vec![
            row.issuer.clone(),
            row.certificates.to_string(),
            row.endpoints.to_string(),
            format_time(row.soonest_not_after_us),
        ]
    }

    fn json(&self) -> Value {
        json!({
            "issuer": self.0.issuer,
            "certificates": self.0.certificates,
            "endpoints": self.0.endpoints,
            "soonest_not_after": time(self.0.soonest_not_after_us),
        })
    }
}

/// A row of `bulla inventory scans`.
pub(crate) struct Scan(pub(crate) ScanRow);

impl Listed for Scan {
    const TABLE: &'static [&'static str] =
        &["STARTED", "STATE", "ENDPOINTS", "ANSWERED", "CHANGES", "NEW CERTIFICATES", "SCAN"];
    const CSV: &'static [&'static str] = &[
        "scan",
        "started_at",
        "finished_at",
        "state",
        "observations",
        "answered",
        "changes",
        "new_certificates",
        "pruned_at",
    ];

    fn cells(&self, paint: Paint) -> Vec<Cell> {
        let row = &self.0;
        let state = row.state.name();
        let pruned = if row.pruned_at_us.is_some() { ", pruned" } else { "" };
        vec![
            paint.cell("", &units::minute(row.started_at_us.div_euclid(1_000_000))),
            paint.cell(if state == "finished" { "ok" } else { "medium" }, &format!("{state}{pruned}")),
            paint.cell("", &count(row.observations)),
            paint.cell("", &count(row.answered)),
            paint.cell("", &count(row.changes)),
            paint.cell("", &count(row.new_certificates)),
            paint.cell("faint", &row.id.to_string()),
        ]
    }

    fn fields(&self) -> Vec<String> {
        let row = &self.0;
        vec![
            row.id.to_string(),
            format_time(Some(row.started_at_us)),
            format_time(row.finished_at_us),
            row.state.name().to_owned(),
            row.observations.to_string(),
            row.answered.to_string(),
            row.changes.to_string(),
            row.new_certificates.to_string(),
            format_time(row.pruned_at_us),
        ]
    }

    fn json(&self) -> Value {
        let row = &self.0;
        json!({
            "scan": row.id,
            "started_at": time(Some(row.started_at_us)),
            "finished_at": time(row.finished_at_us),
            "state": row.state.name(),
            "observations": row.observations,
            "answered": row.answered,
            "changes": row.changes,
            "new_certificates": row.new_certificates,
            "spec": stored_json(&row.spec),
            "summary": row.summary.as_deref().map(stored_json),
            "pruned_at": time(row.pruned_at_us),
        })
    }
}

/// A row of `bulla inventory diff`: one change between scans.
pub(crate) struct Change(pub(crate) ChangeRow);

impl Listed for Change {
    const TABLE: &'static [&'static str] = &["CHANGE", "ENDPOINT", "WHEN", "BEFORE", "NOW", "SEVERITY"];
    const CSV: &'static [&'static str] = &[
        "change",
        "endpoint",
        "host",
        "port",
        "protocol",
        "server_name",
        "address",
        "observed_at",
        "old_sha256",
        "new_sha256",
        "old_outcome",
        "new_outcome",
        "severity",
    ];

    fn cells(&self, paint: Paint) -> Vec<Cell> {
        let row = &self.0;
        let kind = row.kind.name();
        let colour = match kind {
            "gone" => "high",
            "certificate-changed" | "outcome-changed" => "medium",
            "new" | "returned" => "ok",
            _ => "faint",
        };
        let side = |sha256: Option<&[u8; 32]>, outcome: Option<ProbeOutcome>| match (sha256, outcome) {
            (Some(sha256), Some(outcome)) if outcome != ProbeOutcome::Answered => {
                format!("{}, {outcome}", short(Some(sha256)))
            }
            (Some(sha256), _) => short(Some(sha256)),
            (None, outcome) => outcome.map_or("-", ProbeOutcome::name).to_owned(),
        };
        let state = row.severity.map_or("", Severity::name);
        vec![
            paint.cell(colour, kind),
            paint.cell("", &clean(&label(&row.endpoint))),
            paint.cell("faint", &units::minute(row.observed_at_us.div_euclid(1_000_000))),
            paint.cell("", &side(row.old_sha256.as_ref(), row.old_outcome)),
            paint.cell("", &side(row.new_sha256.as_ref(), row.new_outcome)),
            paint.cell(state, state),
        ]
    }

    fn fields(&self) -> Vec<String> {
        let row = &self.0;
        let key = &row.endpoint;
        let hash = |sha256: &Option<[u8; 32]>| sha256.as_ref().map(hex).unwrap_or_default();
        vec![
            row.kind.name().to_owned(),
            label(key),
            key.host.clone(),
            key.port.to_string(),
            key.protocol.clone(),
            key.server_name.clone(),
            key.address.clone(),
            format_time(Some(row.observed_at_us)),
            hash(&row.old_sha256),
            hash(&row.new_sha256),
            row.old_outcome.map_or("", ProbeOutcome::name).to_owned(),
            row.new_outcome.map_or("", ProbeOutcome::name).to_owned(),
            row.severity.map(|s| s.name().to_owned()).unwrap_or_default(),
        ]
    }

    fn json(&self) -> Value {
        let row = &self.0;
        let facts = json!({
            "change": row.kind.name(),
            "observed_at": time(Some(row.observed_at_us)),
            "old_sha256": row.old_sha256.as_ref().map(hex),
            "new_sha256": row.new_sha256.as_ref().map(hex),
            "old_outcome": row.old_outcome,
            "new_outcome": row.new_outcome,
            "severity": row.severity,
        });
        merged(key_json(&row.endpoint), facts)
    }
}

/// A row of `bulla inventory history`.
pub(crate) struct HistoryRow {
    pub(crate) endpoint: EndpointKey,
    pub(crate) entry: Entry,
}

/// An observation, or the remaining data of pruned observations with the same certificate.
pub(crate) enum Entry {
    Observation(ObservationRow),
    Pruned(PrunedObservations),
}

impl Listed for HistoryRow {
    const TABLE: &'static [&'static str] =
        &["SEEN", "ENDPOINT", "ADDRESS", "OUTCOME", "TLS", "CERTIFICATE", "CHANGE", "FINDINGS"];
    const CSV: &'static [&'static str] = &[
        "endpoint",
        "scan",
        "observed_at",
        "outcome",
        "address",
        "tls_version",
        "cipher_suite",
        "leaf_sha256",
        "trust",
        "severity",
        "findings",
        "change",
        "first_seen",
        "observations",
        "pruned_at",
    ];

    fn cells(&self, paint: Paint) -> Vec<Cell> {
        let row = match &self.entry {
            Entry::Observation(row) => row,
            Entry::Pruned(pruned) => return self.pruned_cells(pruned, paint),
        };
        let state = rank_name(rank(row.severity, row.answered));
        vec![
            paint.cell("", &units::minute(row.observed_at_us.div_euclid(1_000_000))),
            paint.cell("", &clean(&label(&self.endpoint))),
            paint.cell("faint", &row.address.map(|a| a.to_string()).unwrap_or_default()),
            paint.cell(if row.answered { "" } else { "no answer" }, row.outcome.name()),
            paint.cell(
                "",
                &row.tls_version.map(|v| scan::tls::names::version(v).into_owned()).unwrap_or_default(),
            ),
            paint.cell("faint", &short(row.leaf_sha256.as_ref())),
            paint.cell("medium", row.change.map_or("", store::ChangeKind::name)),
            paint.cell(state, &codes(&row.findings).join(", ")),
        ]
    }

    fn fields(&self) -> Vec<String> {
        let row = match &self.entry {
            Entry::Observation(row) => row,
            Entry::Pruned(pruned) => return self.pruned_fields(pruned),
        };
        let mut fields = vec![
            label(&self.endpoint),
            row.scan.to_string(),
            format_time(Some(row.observed_at_us)),
            row.outcome.to_string(),
            row.address.map(|a| a.to_string()).unwrap_or_default(),
            row.tls_version.map(|v| scan::tls::names::version(v).into_owned()).unwrap_or_default(),
            row.cipher_suite.map(|c| scan::tls::names::cipher_suite(c).into_owned()).unwrap_or_default(),
            row.leaf_sha256.as_ref().map(hex).unwrap_or_default(),
            row.trust.clone(),
            row.severity.map(|s| s.name().to_owned()).unwrap_or_default(),
            codes(&row.findings).join(" "),
            row.change.map_or("", store::ChangeKind::name).to_owned(),
        ];
        fields.resize(Self::CSV.len(), String::new());
        fields
    }

    fn json(&self) -> Value {
        let row = match &self.entry {
            Entry::Observation(row) => row,
            Entry::Pruned(pruned) => return self.pruned_json(pruned),
        };
        let facts = json!({
            "scan": row.scan,
            "observed_at": time(Some(row.observed_at_us)),
            "outcome": row.outcome,
            "answered": row.answered,
            "address": row.address,
            "tls_version": row.tls_version.map(scan::tls::names::version),
            "cipher_suite": row.cipher_suite.map(scan::tls::names::cipher_suite),
            "leaf_sha256": row.leaf_sha256.as_ref().map(hex),
            "trust": row.trust,
            "severity": row.severity,
            "findings": stored_json(&row.findings),
            "detail": stored_json(&row.detail),
            "change": row.change.map(store::ChangeKind::name),
        });
        merged(key_json(&self.endpoint), facts)
    }
}

impl HistoryRow {
    fn pruned_cells(&self, row: &PrunedObservations, paint: Paint) -> Vec<Cell> {
        let minute = |at_us: i64| units::minute(at_us.div_euclid(1_000_000));
        let what = format!(
            "{} since {}, pruned on {}",
            units::counted(row.observations, "observation"),
            minute(row.first_seen_us),
            units::day(row.pruned_at_us.div_euclid(1_000_000))
        );
        vec![
            paint.cell("", &minute(row.last_seen_us)),
            paint.cell("", &clean(&label(&self.endpoint))),
            paint.cell("", ""),
            paint.cell("", ""),
            paint.cell("", ""),
            paint.cell("faint", &short(row.leaf_sha256.as_ref())),
            paint.cell("faint", "pruned"),
            paint.cell("faint", &what),
        ]
    }

    fn pruned_fields(&self, row: &PrunedObservations) -> Vec<String> {
        let fields: [String; 15] = [
            label(&self.endpoint),
            String::new(),
            format_time(Some(row.last_seen_us)),
            String::new(),
            String::new(),
            String::new(),
            String::new(),
            row.leaf_sha256.as_ref().map(hex).unwrap_or_default(),
            String::new(),
            String::new(),
            String::new(),
            "pruned".to_owned(),
            format_time(Some(row.first_seen_us)),
            row.observations.to_string(),
            format_time(Some(row.pruned_at_us)),
        ];
        fields.into()
    }

    fn pruned_json(&self, row: &PrunedObservations) -> Value {
        let facts = json!({
            "change": "pruned",
            "observed_at": time(Some(row.last_seen_us)),
            "leaf_sha256": row.leaf_sha256.as_ref().map(hex),
            "first_seen": time(Some(row.first_seen_us)),
            "observations": row.observations,
            "pruned_at": time(Some(row.pruned_at_us)),
        });
        merged(key_json(&self.endpoint), facts)
    }
}

//! `bulla inventory show`: everything about one certificate or one host.

use std::fmt::Write as _;

use cli::exit::{Exit, Outcome, Problem};
use cli::printer::Listed;
use cli::terminal::{Colour, Paint, clean};
use cli::units::{count, minute, now_us, relative_time, rfc3339};
use serde_json::{Value, json};
use store::{CertificateRow, InventoryRow, Store};

use super::pages::inventory_error;
use super::rows::{Endpoint, key_json, stored_json, time};
use crate::database;
use crate::endpoint::{host_and_port, label};
use crate::output::row::{rank, rank_name};

/// Minimum number of digits of a fingerprint. A host name that consists of hexadecimal digits is looked up with its port.
const FINGERPRINT_DIGITS_MIN: usize = 8;
/// Maximum number of endpoints listed for a certificate or host. Further ones are only counted; `list` shows all.
const ENDPOINTS_MAX: usize = 20;
/// Maximum number of names shown of a certificate. JSON has all.
const NAMES_MAX: usize = 20;

/// Shows a certificate or a host.
pub(crate) async fn run(store: &Store, what: &str, json: bool, colour: Colour) -> Outcome<()> {
    let paint = Paint(colour.applies_to_stdout());
    let text = match fingerprint_digits(what) {
        Some(digits) => certificate(store, &digits, json, paint).await?,
        None => host(store, what, json, paint).await?,
    };
    cli::exit::print(&text)
}

/// Returns the digits of a word that may be a fingerprint or its beginning.
pub(super) fn fingerprint_digits(what: &str) -> Option<String> {
    let digits: String = what.chars().filter(|c| *c != ':').collect();
    let hexadecimal = digits.len() >= FINGERPRINT_DIGITS_MIN && digits.chars().all(|c| c.is_ascii_hexdigit());
    hexadecimal.then_some(digits)
}

async fn certificate(store: &Store, digits: &str, as_json: bool, paint: Paint) -> Outcome<String> {
    let found =
        store::Inventory::of(store).certificate(digits).await.map_err(|error| inventory_error(&error))?;
    let row = found.ok_or_else(|| unknown(digits))?;
    let endpoints = store::Inventory::of(store)
        .endpoints_of_certificate(&row.sha256, None, ENDPOINTS_MAX)
        .await
        .map_err(|error| inventory_error(&error))?;
    if as_json {
        let mut value = certificate_json(&row);
        value["first_seen"] = time(Some(row.first_seen_us));
        value["last_seen"] = time(Some(row.last_seen_us));
        value["endpoints"] = endpoints.rows.iter().map(|row| key_json(&row.endpoint)).collect();
        value["more_endpoints"] = json!(endpoints.next.is_some());
        return Ok(pretty(&value));
    }
    let mut out = String::new();
    certificate_text(&mut out, &row, paint);
    field(&mut out, paint, "first seen", &seen(row.first_seen_us));
    field(&mut out, paint, "last seen", &seen(row.last_seen_us));
    let more = if endpoints.next.is_some() { " (the first of more)" } else { "" };
    let _ = writeln!(out, "\n {}{more}", paint.bold("SERVED BY"));
    for row in &endpoints.rows {
        let _ = writeln!(out, " {}", clean(&label(&row.endpoint)));
    }
    Ok(out.trim_end().to_owned())
}

async fn host(store: &Store, what: &str, as_json: bool, paint: Paint) -> Outcome<String> {
    let (host, port) = host_and_port(what);
    let page = store::Inventory::of(store)
        .endpoints_of_host(&host, port, None, ENDPOINTS_MAX)
        .await
        .map_err(|error| inventory_error(&error))?;
    if page.rows.is_empty() {
        return Err(unknown(what));
    }
    let (mut values, mut out) = (Vec::new(), String::new());
    for row in page.rows {
        let chain = match row.chain {
            Some(chain) => {
                store::Inventory::of(store).chain(chain).await.map_err(|error| database::problem(&error))?
            }
            None => Vec::new(),
        };
        if as_json {
            let chain: Vec<_> = chain.iter().map(certificate_json).collect();
            let mut value = Endpoint(row).json();
            value["chain"] = json!(chain);
            values.push(value);
        } else {
            endpoint_text(&mut out, &row, &chain, paint);
        }
    }
    if as_json {
        return Ok(pretty(&json!({ "endpoints": values, "more_endpoints": page.next.is_some() })));
    }
    if page.next.is_some() {
        let _ = writeln!(out, "and more: `bulla inventory list --host {host}`");
    }
    Ok(out.trim_end().to_owned())
}

fn endpoint_text(out: &mut String, row: &InventoryRow, chain: &[CertificateRow], paint: Paint) {
    let state = rank_name(rank(row.severity, row.answering));
    let _ = writeln!(out, " {}  {}", paint.bold(&clean(&label(&row.endpoint))), paint.state(state, state));
    if !row.answering {
        field(out, paint, "outcome", row.outcome.name());
    }
    field(out, paint, "last look", &seen(row.last_observed_us));
    if let (Some(at_us), false) = (row.last_answered_us, row.answering) {
        field(out, paint, "last answer", &seen(at_us));
    }
    field(out, paint, "first seen", &seen(row.first_seen_us));
    field(out, paint, "changed", &seen(row.last_changed_us));
    if let Some(last) = &row.last {
        if let Some(address) = last.address {
            field(out, paint, "address", &address.to_string());
        }
        if let Some(version) = last.tls_version {
            let suite = last.cipher_suite.map(scan::tls::names::cipher_suite).unwrap_or_default();
            field(out, paint, "tls", &format!("{} {suite}", scan::tls::names::version(version)));
        }
        field(out, paint, "chain", &last.trust);
        findings_text(out, &last.findings, paint);
    }
    for certificate in chain {
        out.push('\n');
        certificate_text(out, certificate, paint);
    }
    out.push('\n');
}

fn findings_text(out: &mut String, findings: &str, paint: Paint) {
    let Value::Array(findings) = stored_json(findings) else { return };
    for finding in &findings {
        let text = |name: &str| finding.get(name).and_then(Value::as_str).unwrap_or_default();
        let word = text("severity");
        let line = format!("{}: {}", text("code"), clean(text("evidence")));
        let _ = writeln!(out, "   {} {line}", paint.state(word, &format!("{word:<12}")));
    }
}

fn certificate_text(out: &mut String, row: &CertificateRow, paint: Paint) {
    let now_s = now_us().div_euclid(1_000_000);
    let end_s = row.not_after_us.div_euclid(1_000_000);
    let _ = writeln!(out, " {}", paint.bold(&clean(&row.subject)));
    field(out, paint, "issuer", &row.issuer);
    field(out, paint, "sha256", &x509::Fingerprint::from_bytes(row.sha256).to_string());
    field(out, paint, "spki sha256", &x509::SpkiHash::from_bytes(row.spki_sha256).to_string());
    field(out, paint, "serial", &row.serial);
    field(out, paint, "valid from", &rfc3339(row.not_before_us.div_euclid(1_000_000)));
    field(out, paint, "valid until", &format!("{} ({})", rfc3339(end_s), relative_time(end_s - now_s)));
    field(out, paint, "key", &format!("{}, {} bits", row.key_algorithm, row.key_bits));
    if !row.names.is_empty() {
        let mut names = row.names.iter().take(NAMES_MAX).cloned().collect::<Vec<_>>().join(", ");
        if row.names.len() > NAMES_MAX {
            let _ = write!(names, " and {} more", count((row.names.len() - NAMES_MAX) as u64));
        }
        field(out, paint, "names", &names);
    }
}

fn certificate_json(row: &CertificateRow) -> Value {
    // Fields without a column are read from the certificate itself.
    match x509::Certificate::parse(&row.der) {
        Ok(certificate) => json!(crate::output::record::CertificateView::of(&certificate)),
        Err(_) => json!({
            "fingerprint_sha256": x509::Fingerprint::from_bytes(row.sha256),
            "subject": row.subject,
            "issuer": row.issuer,
            "serial": row.serial,
        }),
    }
}

fn field(out: &mut String, paint: Paint, name: &str, value: &str) {
    let _ = writeln!(out, "   {} {}", paint.faint(&format!("{name:<12}")), clean(value));
}

fn seen(at_us: i64) -> String {
    let at_s = at_us.div_euclid(1_000_000);
    format!("{} UTC ({})", minute(at_s), relative_time(at_s - now_us().div_euclid(1_000_000)))
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}

/// Returns the problem for a host or a certificate that is not in the inventory.
pub(super) fn unknown(what: &str) -> Problem {
    Problem::new(Exit::Incomplete, format_args!("the inventory has no entry for {what:?}"))
        .hint("`bulla inventory list --host TEXT` searches; `bulla scan` adds")
}

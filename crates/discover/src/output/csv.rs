//! A scan as comma-separated values: one record per endpoint.

use std::io;

use api::csv::Csv;
use cli::units;
use scan::{EstateFinding, Observation};

use super::record::seconds_left;
use super::{Report, ScanSummary, Sink, Tally};
use scan::tls::names;

/// The columns, in an order that never changes. New columns are added at the end.
pub(crate) const HEADER: &[&str] = &[
    "endpoint",
    "host",
    "port",
    "protocol",
    "server_name",
    "address",
    "observed_at",
    "outcome",
    "detail",
    "severity",
    "findings",
    "trust",
    "subject",
    "names",
    "issuer",
    "serial",
    "not_before",
    "not_after",
    "days_left",
    "key_algorithm",
    "key_bits",
    "signature_algorithm",
    "fingerprint_sha256",
    "spki_sha256",
    "chain_certificates",
    "tls_version",
    "cipher_suite",
    "attempts",
    "dns_us",
    "dial_us",
    "handshake_us",
    "total_us",
];

/// Maximum number of names written per certificate. Further names are counted. Spreadsheets reject cells over 32,767 characters,
/// and a name has at most 253.
const NAMES_MAX: usize = 100;

/// A CSV report: writes one record per endpoint as soon as its result arrives.
pub(crate) struct CsvReport {
    csv: Csv<Sink>,
    begun: bool,
}

impl CsvReport {
    pub(crate) fn new(sink: Sink) -> Self {
        Self { csv: Csv::new(sink), begun: false }
    }

    fn begin(&mut self) -> io::Result<()> {
        if !self.begun {
            self.begun = true;
            self.csv.record(HEADER.iter().copied())?;
        }
        Ok(())
    }

    fn leaf(&mut self, observation: &Observation) -> io::Result<()> {
        let csv = &mut self.csv;
        let Some(leaf) = observation.leaf() else {
            /// Number of columns from `subject` to `spki_sha256`.
            const LEAF_COLUMNS: usize = 12;
            return (0..LEAF_COLUMNS).try_for_each(|_| csv.text(""));
        };
        let mut names = leaf.names();
        let more = names.len().saturating_sub(NAMES_MAX);
        names.truncate(NAMES_MAX);
        if more > 0 {
            names.push(format!("and {more} more"));
        }
        csv.text(&leaf.subject.text)?;
        csv.text(&names.join(" "))?;
        csv.text(&leaf.issuer.text)?;
        csv.text(&leaf.serial.to_string())?;
        csv.text(&units::rfc3339(leaf.not_before.0))?;
        csv.text(&units::rfc3339(leaf.not_after.0))?;
        csv.number(Some(seconds_left(leaf.not_after, observation.at()).div_euclid(86_400)))?;
        csv.text(&leaf.public_key.algorithm.name())?;
        csv.number(Some(leaf.public_key.bits))?;
        csv.text(&leaf.signature.name())?;
        csv.text(&leaf.fingerprint.to_string())?;
        csv.text(&leaf.public_key.spki_sha256.to_string())
    }
}

impl Report for CsvReport {
    fn observe(&mut self, observation: &Observation) -> io::Result<()> {
        self.begin()?;
        let target = &*observation.target;
        let codes: Vec<_> = observation.findings.iter().map(|f| f.rule.code).collect();
        let csv = &mut self.csv;
        csv.text(&observation.label())?;
        csv.text(target.host_text())?;
        csv.number(Some(target.port))?;
        csv.text(target.protocol.name())?;
        csv.text(target.sni().unwrap_or_default())?;
        csv.text(&observation.address.map(|a| a.to_string()).unwrap_or_default())?;
        csv.text(&units::rfc3339_us(observation.at_us))?;
        csv.text(observation.outcome.name())?;
        csv.text(observation.detail.as_deref().unwrap_or_default())?;
        csv.text(observation.severity().map_or("", x509::Severity::name))?;
        csv.text(&codes.join(" "))?;
        csv.text(observation.trust.as_ref().map_or("", |trust| trust.verdict))?;
        self.leaf(observation)?;
        let session = observation.session.as_deref();
        let timing = &observation.timing;
        let csv = &mut self.csv;
        csv.number(Some(u32::try_from(observation.chain.len()).unwrap_or(u32::MAX)))?;
        csv.text(&session.and_then(|s| s.version).map(names::version).unwrap_or_default())?;
        csv.text(&session.and_then(|s| s.cipher).map(names::cipher_suite).unwrap_or_default())?;
        csv.number(Some(observation.attempts))?;
        csv.number(timing.dns_us)?;
        csv.number(timing.dial_us)?;
        csv.number(timing.handshake_us)?;
        csv.number(Some(timing.total_us))?;
        csv.end()
    }

    fn flush(&mut self) -> io::Result<()> {
        self.csv.flush()
    }

    fn close(mut self: Box<Self>, _: &Tally, _: &[EstateFinding], _: &ScanSummary) -> io::Result<()> {
        self.begin()?;
        self.csv.flush()
    }
}

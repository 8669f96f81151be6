//! Comma-separated values (RFC 4180), safe to open in a spreadsheet.

use std::io::{self, Write};

use scan::{EstateFinding, Observation};

use super::record::seconds_left;
use super::{Closing, Report, Sink, Tally};
use crate::units;
use scan::tls::names;

/// The columns, in an order that never changes: new ones come last.
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

/// Names written of one certificate; the rest is counted. Spreadsheets refuse cells over 32,767
/// characters, and a name has 253 at most.
const NAMES_MAX: usize = 100;

/// Writes records field by field.
pub(crate) struct Csv<W: Write> {
    out: W,
    first: bool,
}

impl<W: Write> Csv<W> {
    pub(crate) fn new(out: W) -> Self {
        Self { out, first: true }
    }

    fn separate(&mut self) -> io::Result<()> {
        if self.first {
            self.first = false;
            return Ok(());
        }
        self.out.write_all(b",")
    }

    /// Text, which strangers may have chosen: one that a spreadsheet would run as a formula is
    /// given a leading apostrophe.
    pub(crate) fn text(&mut self, text: &str) -> io::Result<()> {
        self.separate()?;
        let guard = text.starts_with(['=', '+', '-', '@', '\t', '\r']);
        if !guard && !text.contains([',', '"', '\r', '\n']) {
            return self.out.write_all(text.as_bytes());
        }
        let apostrophe = if guard { "'" } else { "" };
        write!(self.out, "\"{apostrophe}{}\"", text.replace('"', "\"\""))
    }

    /// A number, or nothing.
    pub(crate) fn number(&mut self, number: Option<impl Into<i64>>) -> io::Result<()> {
        self.separate()?;
        match number {
            Some(number) => write!(self.out, "{}", number.into()),
            None => Ok(()),
        }
    }

    /// Ends the record.
    pub(crate) fn end(&mut self) -> io::Result<()> {
        self.first = true;
        self.out.write_all(b"\r\n")
    }

    /// A record of texts.
    pub(crate) fn record<'t>(&mut self, fields: impl IntoIterator<Item = &'t str>) -> io::Result<()> {
        for field in fields {
            self.text(field)?;
        }
        self.end()
    }

    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// A record an endpoint, as results come.
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
            /// Columns from `subject` to `spki_sha256`.
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
        csv.text(observation.outcome.code())?;
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

    fn close(mut self: Box<Self>, _: &Tally, _: &[EstateFinding], _: &Closing) -> io::Result<()> {
        self.begin()?;
        self.csv.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(fields: &[&str]) -> String {
        let mut out = Vec::new();
        Csv::new(&mut out).record(fields.iter().copied()).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn fields_are_quoted_as_rfc_4180_wants() {
        assert_eq!(line(&["a", "b c", ""]), "a,b c,\r\n");
        assert_eq!(
            line(&["a,b", "say \"hi\"", "two\nlines"]),
            "\"a,b\",\"say \"\"hi\"\"\",\"two\nlines\"\r\n"
        );
    }

    #[test]
    fn a_spreadsheet_runs_no_name_as_a_formula() {
        for evil in ["=cmd|' /C calc'!A0", "+1", "-1", "@SUM(A1)", "\tx", "\rx"] {
            assert!(line(&[evil]).starts_with("\"'"), "{evil:?}");
        }
        let mut out = Vec::new();
        Csv::new(&mut out).number(Some(-12)).unwrap();
        assert_eq!(out, b"-12", "our own negative numbers stay numbers");
    }
}

//! Runs the test cases of x509-limbo (github.com/C2SP/x509-limbo) and prints where Bulla's result differs:
//! `cargo run -p x509 --example limbo -- limbo.json`. Exits with 1 if a difference has no documented reason.

use std::process::ExitCode;
use std::sync::Arc;

use serde_json::Value;
use x509::lint::{LintContext, lint};
use x509::verify::{TrustStore, verify_chain};
use x509::{Certificate, HostName, NameMatch, ReferenceName, Severity, UnixTime, matches_name, pem};

/// Intended differences: a prefix of the case's name, and the reason.
const REASONS: &[(&str, &str)] = &[
    ("pathlen::max-chain-depth", OPTION),
    ("rfc5280::aki::cross-signed-root-missing-aki", ANCHOR),
    ("rfc5280::aki::critical-aki", PROFILE),
    ("rfc5280::aki::", FINDING),
    ("rfc5280::nc::permitted-dns-match-noncritical", PROFILE),
    ("rfc5280::nc::invalid-dnsname-leading-period", PERIOD),
    ("rfc5280::nc::", FINDING),
    ("rfc5280::pc::ica-noncritical-pc", PROFILE),
    ("rfc5280::san::noncritical-with-empty-subject", PROFILE),
    ("rfc5280::san::underscore-dns", FINDING),
    ("rfc5280::serial::", FINDING),
    ("rfc5280::ski::critical-ski", PROFILE),
    ("rfc5280::ski::root-missing-ski", ANCHOR),
    ("rfc5280::ski::intermediate-missing-ski", FINDING),
    ("rfc5280::ca-empty-subject", FINDING),
    ("rfc5280::root-non-critical-basic-constraints", ANCHOR),
    ("rfc5280::leaf-ku-keycertsign", FINDING),
    ("rfc5280::ee-critical-aia-invalid", PROFILE),
    ("rfc5280::duplicate-extensions", FINDING),
    ("webpki::aki::root-", ANCHOR),
    ("webpki::cn::", COMMON_NAME),
    ("webpki::eku::root-has-eku", ANCHOR),
    ("webpki::eku::", PROFILE),
    ("webpki::nc::intermediate-permitted-excluded-subtrees", PROFILE),
    ("webpki::san::public-suffix", SUFFIXES),
    ("webpki::san::san-critical", PROFILE),
    ("webpki::malformed-aia", FINDING),
    ("webpki::forbidden-weak-rsa-key-in-root", ANCHOR),
    ("webpki::forbidden-rsa-not-divisible-by-8-in-root", ANCHOR),
    ("webpki::forbidden-", FINDING),
    ("webpki::ee-basicconstraints-ca", FINDING),
    ("webpki::ca-as-leaf", FINDING),
];

const OPTION: &str = "it tests a client's option that Bulla does not have";
const FINDING: &str = "it is a finding of its own, and no reason to distrust the path";
const ANCHOR: &str = "an anchor is trusted for being known: its form is not judged";
const PROFILE: &str = "it binds the authority that issues and changes nothing for who relies on it";
const COMMON_NAME: &str = "common names are never matched, so what they hold harms nobody";
const PERIOD: &str = "constraints with a leading period are common and mean hosts below";
const SUFFIXES: &str = "it takes the public suffix list, which is data of the day";

fn main() -> ExitCode {
    let Some(path) = std::env::args().nth(1) else {
        eprintln!("hint: give the path of limbo.json");
        return ExitCode::from(2);
    };
    let cases: Value = match std::fs::read(&path).map(|bytes| serde_json::from_slice(&bytes)) {
        Ok(Ok(cases)) => cases,
        Ok(Err(error)) => return refuse(&format!("{path} is no JSON: {error}")),
        Err(error) => return refuse(&format!("cannot read {path}: {error}")),
    };
    let mut tally = Tally::default();
    for case in cases["testcases"].as_array().into_iter().flatten() {
        tally.judge(case);
    }
    tally.print()
}

fn refuse(why: &str) -> ExitCode {
    eprintln!("{why}");
    ExitCode::from(2)
}

#[derive(Default)]
struct Tally {
    agreed: usize,
    skipped: usize,
    explained: Vec<String>,
    unexplained: Vec<String>,
}

impl Tally {
    fn judge(&mut self, case: &Value) {
        let id = case["id"].as_str().unwrap_or_default();
        // Cases about revocation and client certificates are skipped: this crate does not check them.
        let crls = case["crls"].as_array().is_some_and(|crls| !crls.is_empty());
        if case["validation_kind"] != "SERVER" || crls {
            self.skipped += 1;
            return;
        }
        let outcome = outcome(case);
        let wanted = case["expected_result"] == "SUCCESS";
        if outcome.is_ok() == wanted {
            self.agreed += 1;
            return;
        }
        let is_reported = outcome.as_ref().is_ok_and(|findings| !findings.is_empty());
        let ours = match outcome {
            Ok(findings) if findings.is_empty() => "accepted".to_owned(),
            Ok(findings) => format!("accepted, with findings {findings}"),
            Err(why) => format!("refused: {why}"),
        };
        let reason = REASONS.iter().find(|(prefix, _)| id.starts_with(prefix));
        // The reason "a finding says so" requires that there is a finding.
        match reason.filter(|(_, reason)| *reason != FINDING || is_reported) {
            Some((_, reason)) => {
                self.explained.push(format!("{id}\n    {ours}\n    because {reason}"));
            }
            None => self.unexplained.push(format!("{id}\n    {ours}")),
        }
    }

    fn print(self) -> ExitCode {
        for difference in self.explained.iter().chain(&self.unexplained) {
            println!("{difference}");
        }
        let (explained, unexplained) = (self.explained.len(), self.unexplained.len());
        println!("agreed {}, skipped {}", self.agreed, self.skipped);
        println!("differed {} with a reason, {unexplained} without", explained);
        ExitCode::from(u8::from(unexplained > 0))
    }
}

/// Returns the result for a client that follows the verdict: the codes of findings of severity Medium and above if it accepts the
/// chain, the reason if it rejects the chain.
fn outcome(case: &Value) -> Result<String, String> {
    let leaf = read(&case["peer_certificate"])?;
    let sent: Vec<_> = list(&case["untrusted_intermediates"]).filter_map(|c| read(c).ok()).collect();
    let store: TrustStore = list(&case["trusted_certs"]).filter_map(|c| read(c).ok()).collect();
    let now = case["validation_time"].as_str().and_then(time).unwrap_or(UnixTime(1_780_272_000));
    let verdict = verify_chain(&leaf, &sent, &store, now, &());
    if !verdict.is_trusted() {
        return Err(verdict.to_string());
    }
    if now < leaf.not_before || now > leaf.not_after {
        return Err("the leaf is not valid now".to_owned());
    }
    let wanted = case["expected_peer_name"]["value"].as_str();
    if let Some(name) = wanted.and_then(reference)
        && matches_name(&leaf, &name) != NameMatch::SubjectAlternativeName
    {
        return Err(format!("not for {name}"));
    }
    let context = LintContext { publicly_trusted: true, ..LintContext::for_private_leaf(now) };
    let mut codes: Vec<&str> = lint(&leaf, &context).iter().map(|f| f.rule.code).collect();
    for above in &sent {
        let findings = lint(above, &LintContext { leaf: false, ..context });
        codes.extend(findings.iter().filter(|f| f.rule.severity > Severity::Info).map(|f| f.rule.code));
    }
    Ok(codes.join(", "))
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn read(value: &Value) -> Result<Arc<Certificate>, String> {
    let text = value.as_str().unwrap_or_default();
    let (_, der) = pem::certificates(text.as_bytes()).next().ok_or("no PEM")?;
    Certificate::parse(&der).map(Arc::new).map_err(|error| error.to_string())
}

fn reference(name: &str) -> Option<ReferenceName> {
    let address = name.parse().ok().map(ReferenceName::Ip);
    address.or_else(|| HostName::parse(name).ok().map(ReferenceName::Host))
}

/// Parses RFC 3339 with `Z` or `+00:00`, as in the cases.
fn time(text: &str) -> Option<UnixTime> {
    let number = |range: std::ops::Range<usize>| text.get(range)?.parse().ok();
    UnixTime::from_civil(
        number(0..4)?,
        number(5..7)?,
        number(8..10)?,
        number(11..13)?,
        number(14..16)?,
        number(17..19)?,
    )
}

//! Lint rules about the names in a certificate.

use std::net::IpAddr;

use super::context::LintContext;
use super::findings::Findings;
use super::rules::{
    COMMON_NAME_NOT_IN_SAN, COMMON_NAME_ONLY, COMMON_NAME_TOO_LONG, INTERNAL_NAME, NO_SAN,
    SAN_ADDRESS_AS_DNS, SAN_BAD_ADDRESS, SAN_INVALID, SAN_UNDERSCORE, WILDCARD, WILDCARD_BAD,
};
use crate::{Certificate, GeneralName, HostName, Rule};

/// Maximum names shown as evidence for a rule. A certificate may have thousands.
const SHOWN_MAX: usize = 5;

pub(super) fn check(certificate: &Certificate, context: &LintContext, findings: &mut Findings<'_>) {
    common_names(certificate, context, findings);
    let mut hosts = 0;
    let mut invalid_names = InvalidNames::default();
    for name in &certificate.subject_alt_names {
        match name {
            GeneralName::Dns(name) => {
                hosts += 1;
                check_dns_name(name, context, &mut invalid_names);
            }
            GeneralName::Ip(address) => {
                hosts += 1;
                if context.publicly_trusted && is_internal_address(*address) {
                    invalid_names.add(&INTERNAL_NAME, &address.to_string());
                }
            }
            GeneralName::BadIp(text) => invalid_names.add(&SAN_BAD_ADDRESS, text),
            _ => {}
        }
    }
    if hosts == 0 {
        let rule = if context.publicly_trusted { &NO_SAN } else { &COMMON_NAME_ONLY };
        findings.add(rule, format!("subject {}", certificate.subject.text));
    }
    invalid_names.report(findings);
}

/// Names, by the rule that they break.
#[derive(Default)]
struct InvalidNames(Vec<(&'static Rule, Vec<String>, usize)>);

impl InvalidNames {
    fn add(&mut self, rule: &'static Rule, name: &str) {
        let known = self.0.iter().position(|(r, ..)| r.code == rule.code);
        let index = known.unwrap_or_else(|| {
            self.0.push((rule, Vec::new(), 0));
            self.0.len() - 1
        });
        let (_, shown, count) = &mut self.0[index];
        *count += 1;
        if shown.len() < SHOWN_MAX {
            shown.push(printable(name));
        }
    }

    fn report(self, findings: &mut Findings<'_>) {
        for (rule, shown, count) in self.0 {
            let names = shown.join(", ");
            match count - shown.len() {
                0 => findings.add(rule, names),
                more => findings.add(rule, format!("{names} and {more} more")),
            }
        }
    }
}

/// Quotes a name that could control a terminal or look like several names.
fn printable(name: &str) -> String {
    let plain = |c: char| c.is_ascii_graphic() && !matches!(c, ',' | '"');
    if !name.is_empty() && name.chars().all(plain) { name.to_owned() } else { format!("{name:?}") }
}

fn check_dns_name(name: &str, context: &LintContext, invalid_names: &mut InvalidNames) {
    if name.contains('*') {
        match name.strip_prefix("*.") {
            Some(parent) if !parent.contains('*') && parent.contains('.') => {
                invalid_names.add(&WILDCARD, name);
                host(name, parent, context, invalid_names);
            }
            _ => invalid_names.add(&WILDCARD_BAD, name),
        }
    } else {
        host(name, name, context, invalid_names);
    }
}

/// Checks a host name. `host` is `name` without its wildcard.
fn host(name: &str, host: &str, context: &LintContext, invalid_names: &mut InvalidNames) {
    if host.parse::<IpAddr>().is_ok() {
        invalid_names.add(&SAN_ADDRESS_AS_DNS, name);
    } else if host.ends_with('.') || HostName::check(host).is_err() {
        invalid_names.add(&SAN_INVALID, name);
    } else if context.publicly_trusted && host.contains('_') {
        invalid_names.add(&SAN_UNDERSCORE, name);
    } else if context.publicly_trusted && is_internal_name(host) {
        invalid_names.add(&INTERNAL_NAME, name);
    }
}

fn common_names(certificate: &Certificate, context: &LintContext, findings: &mut Findings<'_>) {
    const CHARACTERS_MAX: usize = 64;
    for name in &certificate.subject.common_names {
        let length = name.chars().count();
        if length > CHARACTERS_MAX {
            findings.add(&COMMON_NAME_TOO_LONG, format!("{length} characters"));
        }
        let sans = &certificate.subject_alt_names;
        if context.publicly_trusted
            && !sans.is_empty()
            && is_host_like(name)
            && !sans.iter().any(|san| is_same(san, name))
        {
            findings.add(&COMMON_NAME_NOT_IN_SAN, printable(name));
        }
    }
}

/// Returns whether the text looks like a host name, and not like the name of a product or person.
fn is_host_like(name: &str) -> bool {
    let host = name.strip_prefix("*.").unwrap_or(name);
    name.parse::<IpAddr>().is_ok() || (host.contains('.') && HostName::check(host).is_ok())
}

fn is_same(san: &GeneralName, name: &str) -> bool {
    match san {
        GeneralName::Dns(dns) => dns.eq_ignore_ascii_case(name),
        GeneralName::Ip(address) => name.parse() == Ok(*address),
        _ => false,
    }
}

/// Returns whether a name cannot be in the public DNS: a single label, or a name in a domain for private use (RFC 6762 appendix G,
/// RFC 8375, ICANN's `.internal`).
fn is_internal_name(host: &str) -> bool {
    const PRIVATE: [&str; 9] =
        ["local", "internal", "lan", "corp", "home", "intranet", "private", "localdomain", "localhost"];
    let last = host.rsplit('.').next().unwrap_or(host);
    !host.contains('.') || PRIVATE.iter().any(|name| last.eq_ignore_ascii_case(name))
}

fn is_internal_address(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_private() || v4.is_loopback() || v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_loopback() || v6.is_unique_local() || v6.is_unicast_link_local(),
    }
}

//! Collects the findings of one certificate while its rules are checked.

use crate::{Certificate, Finding, Rule};

pub(super) struct Findings<'a> {
    pub(super) certificate: &'a Certificate,
    pub(super) found: Vec<Finding>,
}

impl Findings<'_> {
    pub(super) fn add(&mut self, rule: &'static Rule, evidence: impl Into<String>) {
        let certificate = Some(self.certificate.fingerprint);
        self.found.push(Finding { rule, evidence: evidence.into(), certificate });
    }
}

//! Findings about several endpoints together: shared keys, shared certificates, addresses with different certificates.

use std::collections::HashMap;

use serde::Serialize;
use x509::{Finding, Fingerprint, SpkiHash};

use crate::observation::Observation;
use crate::rules;

/// Default maximum of endpoints listed in a finding; its count includes all.
pub const ENDPOINTS_NAMED_MAX: usize = 20;
/// Maximum certificates (and as many keys and names) that are compared; about 300 bytes each. If there are more,
/// [`Estate::overflowed`] returns true.
pub const COMPARED_MAX: usize = 500_000;

/// A finding about several endpoints.
#[derive(Clone, Debug, Serialize)]
pub struct EstateFinding {
    /// Violated rule, with its evidence.
    #[serde(flatten)]
    pub finding: Finding,
    /// The first affected endpoints. [`Estate::with_named_max`] sets their maximum number.
    pub endpoints: Vec<String>,
    /// Number of affected endpoints.
    pub count: usize,
}

/// Certificates, keys and addresses of all endpoints, for findings about several endpoints. Memory grows with the number of
/// distinct certificates.
#[derive(Debug)]
pub struct Estate {
    named_max: usize,
    certificates: HashMap<Fingerprint, CertificateUse>,
    keys: HashMap<SpkiHash, KeyUse>,
    names: HashMap<String, NameUse>,
    overflowed: bool,
}

/// The hosts that show a certificate. Nearly always this is a single host with one endpoint, so the fields are optimized for this
/// case.
#[derive(Debug)]
struct CertificateUse {
    host: Box<str>,
    several_hosts: bool,
    endpoints: Vec<Box<str>>,
    count: usize,
}

impl CertificateUse {
    fn new(host: &str) -> Self {
        Self { host: host.into(), several_hosts: false, endpoints: Vec::with_capacity(1), count: 0 }
    }

    fn add(&mut self, host: &str, endpoint: String, named_max: usize) {
        self.count += 1;
        self.several_hosts |= *self.host != *host;
        if self.endpoints.len() < named_max {
            self.endpoints.push(endpoint.into());
        }
    }
}

/// The certificates at the addresses of a name: nearly always a single certificate.
#[derive(Debug)]
struct NameUse {
    certificates: Vec<Fingerprint>,
    /// Endpoints to list. The first endpoint of each certificate is listed before others.
    endpoints: Vec<Box<str>>,
    count: usize,
}

impl NameUse {
    fn new() -> Self {
        Self { certificates: Vec::with_capacity(1), endpoints: Vec::with_capacity(1), count: 0 }
    }

    fn add(&mut self, leaf: Fingerprint, endpoint: &str, named_max: usize) {
        self.count += 1;
        let position = self.certificates.len().min(self.endpoints.len());
        if !self.certificates.contains(&leaf) {
            self.certificates.push(leaf);
            self.endpoints.insert(position, endpoint.into());
        } else {
            self.endpoints.push(endpoint.into());
        }
        self.endpoints.truncate(named_max);
    }
}

/// The certificates with a key: nearly always a single one.
#[derive(Debug)]
struct KeyUse {
    first: Fingerprint,
    further: Vec<Fingerprint>,
}

impl KeyUse {
    fn certificates(&self) -> impl Iterator<Item = Fingerprint> {
        std::iter::once(self.first).chain(self.further.iter().copied())
    }
}

impl Default for Estate {
    fn default() -> Self {
        Self::with_named_max(ENDPOINTS_NAMED_MAX)
    }
}

impl Estate {
    /// Creates an estate that lists up to `named_max` endpoints in each finding.
    #[must_use]
    pub fn with_named_max(named_max: usize) -> Self {
        Self {
            named_max,
            certificates: HashMap::new(),
            keys: HashMap::new(),
            names: HashMap::new(),
            overflowed: false,
        }
    }

    /// Adds the leaf certificate of an observation to the comparison. Ignores observations without a leaf.
    pub fn observe(&mut self, observation: &Observation) {
        let Some(leaf) = observation.leaf() else { return };
        let endpoint = observation.label();
        let host = observation.target.expected_name();
        self.compare_addresses(observation, leaf.fingerprint, &endpoint);
        let known = self.certificates.contains_key(&leaf.fingerprint);
        if !known {
            if self.certificates.len() >= COMPARED_MAX {
                self.overflowed = true;
                return;
            }
            self.keys
                .entry(leaf.public_key.spki_sha256)
                .and_modify(|used| used.further.push(leaf.fingerprint))
                .or_insert_with(|| KeyUse { first: leaf.fingerprint, further: Vec::new() });
        }
        self.certificates.entry(leaf.fingerprint).or_insert_with(|| CertificateUse::new(host)).add(
            host,
            endpoint,
            self.named_max,
        );
    }

    fn compare_addresses(&mut self, observation: &Observation, leaf: Fingerprint, endpoint: &str) {
        if !observation.by_address {
            return;
        }
        let has_room = self.names.len() < COMPARED_MAX;
        self.overflowed |= !has_room;
        let name = observation.target.identity();
        match self.names.get_mut(&name) {
            Some(seen) => seen.add(leaf, endpoint, self.named_max),
            None if has_room => {
                self.names.entry(name).or_insert_with(NameUse::new).add(leaf, endpoint, self.named_max)
            }
            None => {}
        }
    }

    /// Returns whether some certificates were not compared ([`COMPARED_MAX`]).
    #[must_use]
    pub fn overflowed(&self) -> bool {
        self.overflowed
    }

    /// Returns the findings. Within each rule, the findings with the most endpoints are first.
    #[must_use]
    pub fn finish(self) -> Vec<EstateFinding> {
        let mut findings = self.differing_addresses();
        findings.extend(self.shared_keys());
        findings.extend(self.shared_certificates());
        findings
    }

    fn differing_addresses(&self) -> Vec<EstateFinding> {
        let mut findings: Vec<_> = self
            .names
            .iter()
            .filter(|(_, seen)| seen.certificates.len() > 1)
            .map(|(name, seen)| EstateFinding {
                finding: Finding {
                    rule: &rules::DIFFERS,
                    evidence: format!(
                        "{name}: {} certificates behind {} addresses",
                        seen.certificates.len(),
                        seen.count
                    ),
                    certificate: None,
                },
                endpoints: seen.endpoints.iter().map(|endpoint| endpoint.to_string()).collect(),
                count: seen.count,
            })
            .collect();
        sort(&mut findings);
        findings
    }

    fn shared_keys(&self) -> Vec<EstateFinding> {
        let mut findings: Vec<_> = self
            .keys
            .iter()
            .filter(|(_, used)| !used.further.is_empty())
            .map(|(key, used)| {
                let uses: Vec<_> = used.certificates().filter_map(|c| self.certificates.get(&c)).collect();
                EstateFinding {
                    finding: Finding {
                        rule: &rules::SHARED_KEY,
                        evidence: format!("key {key} is used by {} certificates", used.further.len() + 1),
                        certificate: Some(used.first),
                    },
                    endpoints: uses
                        .iter()
                        .flat_map(|s| s.endpoints.iter().map(|endpoint| endpoint.to_string()))
                        .take(self.named_max)
                        .collect(),
                    count: uses.iter().map(|s| s.count).sum(),
                }
            })
            .collect();
        sort(&mut findings);
        findings
    }

    fn shared_certificates(&self) -> Vec<EstateFinding> {
        let mut findings: Vec<_> = self
            .certificates
            .iter()
            .filter(|(_, uses)| uses.several_hosts)
            .map(|(certificate, uses)| EstateFinding {
                finding: Finding {
                    rule: &rules::SHARED_CERTIFICATE,
                    evidence: format!("served by {} endpoints", uses.count),
                    certificate: Some(*certificate),
                },
                endpoints: uses.endpoints.iter().map(ToString::to_string).collect(),
                count: uses.count,
            })
            .collect();
        sort(&mut findings);
        findings
    }
}

fn sort(findings: &mut [EstateFinding]) {
    findings.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.finding.evidence.cmp(&b.finding.evidence)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_at_many_addresses_are_counted_and_each_is_listed_first() {
        let [common, rare] = [[1; 32], [2; 32]].map(Fingerprint::from_bytes);
        let mut seen = NameUse::new();
        for number in 0..30 {
            seen.add(common, &format!("common-{number}"), 20);
        }
        seen.add(rare, "rare", 20);
        assert_eq!((seen.certificates.len(), seen.count, seen.endpoints.len()), (2, 31, 20));
        assert_eq!((&*seen.endpoints[0], &*seen.endpoints[1]), ("common-0", "rare"));
        seen.add(Fingerprint::from_bytes([3; 32]), "third", 1);
        assert_eq!((seen.certificates.len(), seen.endpoints.len()), (3, 1));
    }
}

//! A CA that revokes certificates, and a server for its CRLs and OCSP responses.

use std::sync::Arc;
use std::time::Duration;

use fleet::revocation::{RevocationServer, RevokingAuthority, TestCrlSpec, TestLeafSpec};
use outbound::http::Client;
use outbound::resolve::Resolver;
use scan::ScanOptions;
use scan::revocation::{RevocationChecker, RevocationOptions};
use x509::crl::{Reason, Revoked};
use x509::{Certificate, SerialNumber, UnixTime};

use crate::limits::options;

pub(crate) const SERIAL: &[u8] = &[0x4a, 0xbc, 1];
pub(crate) const REVOKED_AT: UnixTime = UnixTime(1_780_000_000);

pub(crate) fn checker(options: RevocationOptions) -> RevocationChecker {
    let resolver = Resolver::with_upstreams(Vec::new());
    RevocationChecker::new(Client::new(&resolver, &outbound::http::Options::default()).unwrap(), options)
}

pub(crate) fn entry(serial: &[u8], reason: Option<Reason>) -> Revoked {
    Revoked { serial: SerialNumber::from_content(serial), at: REVOKED_AT, reason, invalidity_date: None }
}

/// A CA and a server for its CRLs and OCSP responses.
pub(crate) struct RevokingSite {
    pub(crate) ca: Arc<RevokingAuthority>,
    pub(crate) issuer: Arc<Certificate>,
    pub(crate) server: RevocationServer,
    pub(crate) checker: RevocationChecker,
}

impl RevokingSite {
    pub(crate) async fn new() -> Self {
        Self::with(RevocationOptions::default()).await
    }

    pub(crate) async fn with(options: RevocationOptions) -> Self {
        let ca = Arc::new(RevokingAuthority::new(1).unwrap());
        let issuer = Arc::new(ca.certificate().clone());
        let server = RevocationServer::start(Duration::ZERO).await.unwrap();
        Self { ca, issuer, server, checker: checker(options) }
    }

    /// Returns a certificate that names the CRL at `path`.
    pub(crate) fn leaf(&self, serial: &[u8], path: &str) -> Certificate {
        self.leaf_of(TestLeafSpec {
            serial: Some(serial.to_vec()),
            crl_urls: vec![self.server.url(path)],
            ..TestLeafSpec::default()
        })
    }

    pub(crate) fn leaf_of(&self, order: TestLeafSpec) -> Certificate {
        Certificate::parse(&self.ca.issue(&order).unwrap()).unwrap()
    }

    pub(crate) fn publish(&self, path: &str, order: &TestCrlSpec) {
        self.server.put_bytes(path, self.ca.crl(order).unwrap());
    }
}

pub(crate) fn with_checker(checker: &RevocationChecker) -> ScanOptions {
    ScanOptions { revocation: Some(checker.clone()), ..options() }
}

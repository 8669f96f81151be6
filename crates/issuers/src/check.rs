//! Verification of issued certificates against the order. Pure; the caller passes the time.

use std::collections::BTreeSet;
use std::sync::Arc;

use x509::csr::CertificateRequest;
use x509::verify::{Distrust, MemorySignatureCache, TrustStore, Verdict, verify_chain};
use x509::{Certificate, GeneralName, UnixTime};

use crate::config::{NameRule, VerifyConfig};
use crate::delivery::DeliveredChain;
use crate::error::IssuerError;
use crate::order::Order;

/// Maximum number of certificates in a delivery. Real chains have up to five.
const CHAIN_MAX: usize = 12;
/// Maximum seconds that an issuer's clock may be ahead. Some issuers do not backdate.
const CLOCK_SKEW: i64 = 300;
/// Maximum number of signatures cached within one check.
const SIGNATURES: usize = 64;

/// Verification of issued certificates against their orders.
#[derive(Debug)]
pub struct Check {
    roots: Option<TrustStore>,
    names: NameRule,
}

impl Check {
    /// Creates a check from its configuration.
    ///
    /// # Errors
    /// [`IssuerError::Misconfigured`] when the roots contain no certificate.
    pub fn new(config: &VerifyConfig) -> Result<Self, IssuerError> {
        let roots = config.roots.as_deref().map(trust_store).transpose()?;
        Ok(Self { roots, names: config.names })
    }

    /// Verifies a chain and returns it in order: leaf first, each signed by the next, without roots and unrelated certificates.
    ///
    /// # Errors
    /// [`IssuerError::Lying`] with the difference.
    pub fn delivery(
        &self,
        order: &Order,
        chain: &[Vec<u8>],
        now: UnixTime,
    ) -> Result<DeliveredChain, IssuerError> {
        self.judge(order, chain, now).map_err(|reason| IssuerError::Lying { reason })
    }

    fn judge(&self, order: &Order, chain: &[Vec<u8>], now: UnixTime) -> Result<DeliveredChain, String> {
        if chain.is_empty() || chain.len() > CHAIN_MAX {
            return Err(format!("{} certificates; a chain must have 1 to {CHAIN_MAX}", chain.len()));
        }
        let parse = |der: &Vec<u8>| Certificate::parse(der).map(Arc::new);
        let all: Vec<_> =
            chain.iter().map(parse).collect::<Result<_, _>>().map_err(|error| error.to_string())?;
        let (leaf, above) = all.split_first().ok_or("no certificate")?;
        self.leaf(leaf, order, now)?;
        let path = self.path(leaf, above, now)?;
        let keep = path.iter().filter(|certificate| !is_root(certificate));
        Ok(DeliveredChain { chain: keep.map(|certificate| certificate.der.to_vec()).collect() })
    }

    fn leaf(&self, leaf: &Certificate, order: &Order, now: UnixTime) -> Result<(), String> {
        let requested = CertificateRequest::parse(&order.csr_der)
            .map_err(|error| format!("the CSR cannot be parsed: {error}"))?;
        if leaf.public_key.spki != requested.public_key.spki {
            return Err("the certificate has another public key than the CSR".to_owned());
        }
        if let Some(fault) = leaf.faults.first() {
            return Err(format!("the certificate breaks the rules: {fault}"));
        }
        if leaf.precertificate {
            return Err("a precertificate, which must never be served".to_owned());
        }
        if leaf.is_ca() {
            return Err("a certificate of a certification authority".to_owned());
        }
        if now < leaf.not_before.plus(-CLOCK_SKEW) {
            return Err(format!("the certificate is not valid before {}, it is {now}", leaf.not_before));
        }
        if now >= leaf.not_after {
            return Err(format!("the certificate expired at {}, it is {now}", leaf.not_after));
        }
        self.names(leaf, &order.names)
    }

    fn names(&self, leaf: &Certificate, requested: &[GeneralName]) -> Result<(), String> {
        let requested: BTreeSet<String> = requested.iter().map(key_of).collect();
        let mut issued: BTreeSet<String> = leaf.subject_alt_names.iter().map(key_of).collect();
        if let Some(missing) = requested.difference(&issued).next() {
            return Err(format!("the certificate does not contain the name {missing}"));
        }
        // A common name that is a host name counts as a name of the certificate, because old clients use it.
        issued.extend(leaf.subject.common_names.iter().filter_map(|name| host_comparison_key(name)));
        if self.names == NameRule::Exact
            && let Some(strange) = issued.difference(&requested).next()
        {
            return Err(format!("the certificate also contains {strange}, which was not requested"));
        }
        Ok(())
    }

    /// Builds the path from the leaf to a trusted root. Without configured roots, the path ends at the top certificate of the
    /// delivery.
    fn path(
        &self,
        leaf: &Arc<Certificate>,
        above: &[Arc<Certificate>],
        now: UnixTime,
    ) -> Result<Vec<Arc<Certificate>>, String> {
        let tops;
        let store = match &self.roots {
            Some(roots) => roots,
            None => {
                tops = top_certificates(above);
                &tops
            }
        };
        if store.is_empty() {
            return Err(
                "the issuer's certificate is missing from the chain; name the issuer's roots in verify.roots"
                    .to_owned(),
            );
        }
        let cache = MemorySignatureCache::bounded(SIGNATURES);
        match verify_chain(leaf, above, store, now, &cache) {
            Verdict::Trusted { path } => Ok(path),
            // Client certificates are accepted: the profile decides about the key usage.
            Verdict::Untrusted { reason: Distrust::NotForServers { .. } } => Ok(linked(leaf, above)),
            verdict => Err(format!("the chain is invalid: {verdict}")),
        }
    }
}

/// Returns the top certificates: those that no other certificate of the delivery has signed.
fn top_certificates(above: &[Arc<Certificate>]) -> TrustStore {
    let is_top = |certificate: &&Arc<Certificate>| {
        is_root(certificate) || !above.iter().any(|other| other.subject.matches(&certificate.issuer))
    };
    above.iter().filter(is_top).cloned().collect()
}

/// Orders certificates from the leaf upwards by names and signatures.
fn linked(leaf: &Arc<Certificate>, above: &[Arc<Certificate>]) -> Vec<Arc<Certificate>> {
    let mut path = vec![Arc::clone(leaf)];
    while let Some(last) = path.last().filter(|last| path.len() <= above.len() && !is_root(last)) {
        let signs = |other: &&Arc<Certificate>| {
            other.subject.matches(&last.issuer) && last.signed_by(&other.public_key).is_ok()
        };
        let Some(next) = above.iter().find(signs).cloned() else { break };
        path.push(next);
    }
    path
}

fn is_root(certificate: &Certificate) -> bool {
    certificate.is_self_issued() && certificate.signed_by(&certificate.public_key).is_ok()
}

/// Returns the comparison key of a name: DNS names without case, all names with their kind.
fn key_of(name: &GeneralName) -> String {
    match name {
        GeneralName::Dns(name) => name.to_ascii_lowercase(),
        GeneralName::Ip(address) => address.to_string(),
        GeneralName::Email(mailbox) => format!("email:{mailbox}"),
        GeneralName::Uri(uri) => format!("uri:{uri}"),
        other => format!("{other:?}"),
    }
}

/// Returns the comparison key of a common name that is an address or a host name with a dot.
fn host_comparison_key(name: &str) -> Option<String> {
    if let Ok(address) = name.parse::<std::net::IpAddr>() {
        return Some(address.to_string());
    }
    let host = name.strip_prefix("*.").unwrap_or(name);
    (host.contains('.') && x509::HostName::parse(host).is_ok()).then(|| name.to_ascii_lowercase())
}

/// Parses PEM certificates as trusted roots.
pub(crate) fn trust_store(pem: &str) -> Result<TrustStore, IssuerError> {
    let mut roots = TrustStore::new();
    for (_, der) in x509::pem::certificates(pem.as_bytes()) {
        roots.add_der(&der).map_err(|error| {
            IssuerError::misconfigured(format!("a root certificate cannot be parsed: {error}"))
        })?;
    }
    if roots.is_empty() {
        return Err(IssuerError::misconfigured("the roots contain no PEM certificate"));
    }
    Ok(roots)
}

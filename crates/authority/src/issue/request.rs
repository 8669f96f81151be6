//! Issuance requests and results.

use std::sync::Arc;

use aws_lc_rs::digest::{Context, SHA256};
use uuid::Uuid;
use x509::build::Extension;
use x509::{DistinguishedName, Fingerprint, GeneralName, SerialNumber, UnixTime};

use crate::tables::{Once, Source};
use crate::teams::Standing;

/// Longest idempotency key, bytes.
pub const IDEMPOTENCY_KEY_MAX: usize = 255;

/// A certificate asked for. Anyone who asks has shown that the subject holds the private key, and that the requester may
/// ask for this profile and, where the protocol validates names, for these names.
#[derive(Clone, Debug)]
pub struct IssueRequest {
    /// The same key with the same request answers the same certificate; up to [`IDEMPOTENCY_KEY_MAX`] bytes.
    pub idempotency_key: Option<String>,
    /// The profile's name.
    pub profile: String,
    /// The CA, if another than the profile's.
    pub ca: Option<Uuid>,
    /// The subject's key, DER SubjectPublicKeyInfo.
    pub spki: Vec<u8>,
    /// The subject alternative names, in order; a repeated one counts once.
    pub names: Vec<GeneralName>,
    /// The requested subject; the profile decides which attributes are used.
    pub subject: Option<DistinguishedName>,
    /// The first second; now, a little backdated, unless given.
    pub not_before: Option<UnixTime>,
    /// The life, seconds; the profile's default unless given.
    pub lifetime_seconds: Option<i64>,
    /// Whether the must-staple extension is requested.
    pub must_staple: bool,
    /// The protocol of the request.
    pub source: Source,
    /// For whom, as the audit log names them: `user:alice`, `acme:ACCOUNT`.
    pub requester: String,
    /// Additional extensions; the profile must permit them.
    pub extensions: Vec<Extension>,
    /// The approval, if there is one.
    pub consent: Option<ConsentRef>,
    /// For whom, as far as teams are concerned. The server itself reaches everything, callers nothing of a team unless it is said.
    pub standing: Standing,
}

/// The approval that a certificate is issued under. A signer process reads it from the database itself.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ConsentRef {
    /// Of a run of a managed certificate: the id of the run.
    Run(String),
    /// Of an enrolment over EST or SCEP.
    Enrolment(Uuid),
}

impl IssueRequest {
    /// A request for these names with defaults for all else.
    #[must_use]
    pub fn new(
        profile: &str,
        spki: Vec<u8>,
        names: Vec<GeneralName>,
        source: Source,
        requester: &str,
    ) -> Self {
        Self {
            idempotency_key: None,
            profile: profile.to_owned(),
            ca: None,
            spki,
            names,
            subject: None,
            not_before: None,
            lifetime_seconds: None,
            must_staple: false,
            source,
            requester: requester.to_owned(),
            extensions: Vec::new(),
            consent: None,
            standing: match source {
                Source::System | Source::Lifecycle | Source::Credential => Standing::Everything,
                Source::Api | Source::Acme | Source::Est | Source::Scep => Standing::Nobody,
            },
        }
    }

    /// The key and the request under it, hashed; `None` without a key. The requester does not count: work that another
    /// takes over stays the same work.
    pub(super) fn once(&self) -> Option<Once> {
        let key = self.idempotency_key.as_ref()?;
        let key_sha256 = hash(&[self.source.name().as_bytes(), key.as_bytes()]);
        let names: Vec<String> = self.names.iter().map(|name| format!("{name:?}")).collect();
        let numbers = format!("{:?} {:?} {}", self.not_before, self.lifetime_seconds, self.must_staple);
        let ca = self.ca.map(|ca| ca.to_string()).unwrap_or_default();
        let mut fields: Vec<&[u8]> =
            vec![self.profile.as_bytes(), ca.as_bytes(), &self.spki, numbers.as_bytes()];
        fields.push(self.subject.as_ref().map_or(&[][..], |subject| &subject.der));
        fields.extend(names.iter().map(String::as_bytes));
        for extension in &self.extensions {
            let critical: &[u8] = if extension.critical { b"critical" } else { b"" };
            fields.extend([extension.oid.as_bytes(), critical, &extension.value]);
        }
        Some(Once { key_sha256, request_sha256: hash(&fields) })
    }
}

/// SHA-256 over fields, each with its length before it.
fn hash(fields: &[&[u8]]) -> [u8; 32] {
    let mut context = Context::new(&SHA256);
    for field in fields {
        context.update(&(field.len() as u64).to_be_bytes());
        context.update(field);
    }
    let mut out = [0; 32];
    out.copy_from_slice(context.finish().as_ref());
    out
}

/// A certificate issued, and stored before anybody was told.
#[derive(Clone, Debug)]
pub struct Issued {
    /// Its id outside.
    pub id: Uuid,
    /// Its serial number.
    pub serial: SerialNumber,
    /// SHA-256 of its DER.
    pub fingerprint: Fingerprint,
    /// The certificate.
    pub der: Arc<[u8]>,
    /// Issuers above it, the direct one first, without the root.
    pub chain: Arc<[Arc<[u8]>]>,
    /// First second.
    pub not_before: UnixTime,
    /// Last second.
    pub not_after: UnixTime,
    /// The CA that signed.
    pub ca: Uuid,
    /// By which profile.
    pub profile: String,
    /// Whether it had been issued before, under the same idempotency key.
    pub repeated: bool,
}

impl Issued {
    /// The certificate and its chain in PEM, leaf first, as servers want it.
    #[must_use]
    pub fn chain_pem(&self) -> String {
        let all = std::iter::once(&self.der).chain(self.chain.iter());
        all.map(|der| x509::pem::encode("CERTIFICATE", der)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_known_by_all_that_matters() {
        let base = IssueRequest {
            idempotency_key: Some("k".to_owned()),
            ..IssueRequest::new(
                "web",
                vec![1],
                vec![GeneralName::Dns("a.example".into())],
                Source::Api,
                "user:a",
            )
        };
        let same = IssueRequest { requester: "user:b".to_owned(), ..base.clone() };
        assert_eq!(base.once(), same.once());
        let other_key = IssueRequest { source: Source::Acme, ..base.clone() };
        assert_ne!(base.once().unwrap().key_sha256, other_key.once().unwrap().key_sha256);
        let others = [
            IssueRequest { profile: "web2".to_owned(), ..base.clone() },
            IssueRequest { ca: Some(Uuid::nil()), ..base.clone() },
            IssueRequest { spki: vec![2], ..base.clone() },
            IssueRequest { names: Vec::new(), ..base.clone() },
            IssueRequest { names: vec![GeneralName::Uri("a.example".into())], ..base.clone() },
            IssueRequest { subject: Some(DistinguishedName::from_text("CN=a").unwrap()), ..base.clone() },
            IssueRequest { not_before: Some(UnixTime(0)), ..base.clone() },
            IssueRequest { lifetime_seconds: Some(1), ..base.clone() },
            IssueRequest { must_staple: true, ..base.clone() },
            IssueRequest { extensions: vec![Extension::custom("1.2.3", vec![5])], ..base.clone() },
        ];
        for other in others {
            assert_ne!(
                base.once().unwrap().request_sha256,
                other.once().unwrap().request_sha256,
                "{other:?}"
            );
        }
        assert_eq!(IssueRequest { idempotency_key: None, ..base }.once(), None);
    }
}

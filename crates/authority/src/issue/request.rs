//! Issuance requests and results.

use std::sync::Arc;

use aws_lc_rs::digest::{Context, SHA256};
use uuid::Uuid;
use x509::build::Extension;
use x509::{DistinguishedName, Fingerprint, GeneralName, SerialNumber, UnixTime};

use crate::tables::{IdempotencyHashes, Source};
use crate::teams::OwnershipRights;

/// Maximum length of an idempotency key in bytes.
pub const IDEMPOTENCY_KEY_MAX: usize = 255;

/// A request to issue a certificate. The caller must first verify that the subject has the private key and that the requester may
/// use this profile. If the protocol validates names, the caller must also verify the names.
#[derive(Clone, Debug)]
pub struct IssueRequest {
    /// Idempotency key. The same key with the same request returns the same certificate. At most [`IDEMPOTENCY_KEY_MAX`] bytes.
    pub idempotency_key: Option<String>,
    /// Name of the profile whose rules apply.
    pub profile: String,
    /// Identifier of the CA; `None` for the CA of the profile.
    pub ca: Option<Uuid>,
    /// Public key of the subject: SubjectPublicKeyInfo in DER.
    pub spki: Vec<u8>,
    /// Subject alternative names in order. Duplicates count once.
    pub names: Vec<GeneralName>,
    /// The requested subject; the profile decides which attributes are used.
    pub subject: Option<DistinguishedName>,
    /// Start of validity; slightly before the current time when `None`.
    pub not_before: Option<UnixTime>,
    /// Lifetime in seconds; the default of the profile when `None`.
    pub lifetime_seconds: Option<i64>,
    /// Whether the must-staple extension is requested.
    pub must_staple: bool,
    /// Protocol or subsystem from which the request came.
    pub source: Source,
    /// Name of the requester in the audit log, such as `user:alice` or `acme:ACCOUNT`.
    pub requester: String,
    /// Additional extensions; the profile must permit them.
    pub extensions: Vec<Extension>,
    /// Approval under which the certificate is issued, if there is one.
    pub consent: Option<ApprovalRef>,
    /// Team on whose behalf the request is made, or another right to use names that teams own. [`IssueRequest::new`] allows names
    /// of every team only for requests of the server itself. For other sources, the names of a team are rejected unless the caller
    /// sets this field.
    pub rights: OwnershipRights,
}

/// The approval under which a certificate is issued. A signer process reads the approval itself from the database.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ApprovalRef {
    /// Approval of a run of a managed certificate: identifier of the run.
    Run(String),
    /// Approval of an EST or SCEP enrolment: identifier of the enrolment.
    Enrolment(Uuid),
}

impl IssueRequest {
    /// Creates a request for these names with default values for all other fields.
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
            rights: match source {
                Source::System | Source::Lifecycle | Source::Credential => OwnershipRights::Everything,
                Source::Api | Source::Acme | Source::Est | Source::Scep => OwnershipRights::Nobody,
            },
        }
    }

    /// Returns the hashes of the idempotency key and of the request; `None` without a key. The requester is not included, so that
    /// another requester can take over the work.
    pub(super) fn idempotency(&self) -> Option<IdempotencyHashes> {
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
        Some(IdempotencyHashes { key_sha256, request_sha256: hash(&fields) })
    }
}

/// Returns the SHA-256 of the fields, each preceded by its length.
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

/// An issued and stored certificate.
#[derive(Clone, Debug)]
pub struct Issued {
    /// Public identifier of the certificate.
    pub id: Uuid,
    /// Serial number, unique among the certificates of this CA.
    pub serial: SerialNumber,
    /// SHA-256 of the certificate in DER.
    pub fingerprint: Fingerprint,
    /// The certificate in DER.
    pub der: Arc<[u8]>,
    /// CA certificates of the chain, direct issuer first, without the root.
    pub chain: Arc<[Arc<[u8]>]>,
    /// First second of validity.
    pub not_before: UnixTime,
    /// Last second of validity.
    pub not_after: UnixTime,
    /// Id of the CA that signed the certificate.
    pub ca: Uuid,
    /// Profile with which the certificate was issued.
    pub profile: String,
    /// Whether the certificate was issued earlier, for the same idempotency key.
    pub repeated: bool,
}

impl Issued {
    /// Returns the certificate and its chain in PEM, leaf first, as servers expect it.
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
    fn idempotency_key_covers_the_relevant_request_fields() {
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
        assert_eq!(base.idempotency(), same.idempotency());
        let other_key = IssueRequest { source: Source::Acme, ..base.clone() };
        assert_ne!(base.idempotency().unwrap().key_sha256, other_key.idempotency().unwrap().key_sha256);
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
                base.idempotency().unwrap().request_sha256,
                other.idempotency().unwrap().request_sha256,
                "{other:?}"
            );
        }
        assert_eq!(IssueRequest { idempotency_key: None, ..base }.idempotency(), None);
    }
}

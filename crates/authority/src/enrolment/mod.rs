//! Common parts of EST and SCEP: authorization, renewal with the current certificate, approval and issuance.

mod consent;
mod error;
mod password;
mod request;

use std::collections::HashSet;
use std::sync::Arc;

use store::StoreError;
use x509::crl::Reason;
use x509::csr::{CertificateRequest, names_of};
use x509::{Certificate, GeneralName, UnixTime};

pub(crate) use consent::issuance_plan;
pub use consent::{DecideError, Decision};
pub(crate) use error::EnrolmentError;
pub use password::{EnrolmentPassword, EnrolmentUser, FixedPasswords, PasswordError};
pub(crate) use request::{Enrolment, RequestedCertificate, key};

use crate::Authority;
use crate::issue::{ApprovalRef, IssueRequest, Issued, IssuedRecord, IssuedRef, Source};
use crate::principal::Principal;
use crate::profile::Profile;
use crate::tables::EnrolmentState;
use crate::teams::OwnershipRights;
use consent::Waiting;

/// Maximum size of a request body in bytes. A CSR with 2,000 names has about 50,000 bytes in DER, and a third more in base64.
pub(crate) const BODY_MAX: usize = 64 * 1024;
/// Maximum number of earlier certificates for the same request that are skipped because they are old or revoked: see [`issue`].
const REPEATS_MAX: usize = 16;

/// The result of an enrolment.
#[derive(Debug)]
pub(crate) enum Enrolled {
    /// The issued certificate.
    Issued(Box<Issued>),
    /// The enrolment waits for approval.
    Waiting,
}

/// Logs the reason of a failure, and returns the error text for unauthenticated clients.
pub(crate) fn unavailable(protocol: &str, reason: &str) -> &'static str {
    tracing::error!("cannot answer a request over {protocol}: {reason}");
    "service unavailable: try again later"
}

/// Issues a certificate, after an approval if the profile requires one. A repeated request returns the same certificate.
pub(crate) async fn enrol(
    authority: &Authority,
    mut enrolment: Enrolment,
) -> Result<Enrolled, EnrolmentError> {
    if enrolment.profile.requires_approval {
        // Reject an invalid request before a person spends time on its approval.
        authority.check(&issue_request(&enrolment)).await?;
        let Some(waiting) = consent::of(authority, &enrolment).await? else { return Ok(Enrolled::Waiting) };
        let spki = enrolment.requested.spki.take();
        return issue_approved(authority, enrolment.source, &enrolment.profile, waiting, spki).await;
    }
    issue(authority, &enrolment).await.map(|issued| Enrolled::Issued(Box::new(issued)))
}

/// Issues the approved request exactly once, even if the client repeats it with other content.
async fn issue_approved(
    authority: &Authority,
    source: Source,
    profile: &Arc<Profile>,
    waiting: Waiting,
    spki: Option<Vec<u8>>,
) -> Result<Enrolled, EnrolmentError> {
    match waiting.state {
        EnrolmentState::Open => return Ok(Enrolled::Waiting),
        EnrolmentState::Rejected => return Err(EnrolmentError::Rejected(waiting.note)),
        EnrolmentState::Approved => {}
    }
    let Some(ca) = consent::approved_ca(authority, &waiting).await? else { return Ok(Enrolled::Waiting) };
    let consent = ApprovalRef::Enrolment(waiting.id);
    let enrolment = Enrolment {
        source,
        profile: Arc::clone(profile),
        requester: Principal::from_actor(&waiting.requester),
        // The team was checked before the approval. The profile still limits what may be issued.
        rights: OwnershipRights::Everything,
        key: key(&[b"consent", waiting.id.as_bytes()]),
        requested: RequestedCertificate { request: waiting.request, spki },
    };
    let mut request = issue_request(&enrolment);
    request.idempotency_key = Some(enrolment.key);
    request.consent = Some(consent);
    request.ca = Some(ca);
    Ok(Enrolled::Issued(Box::new(authority.issue(request).await?)))
}

/// Continues an enrolment that is identified only by its key (SCEP polling).
pub(crate) async fn resume(
    authority: &Authority,
    source: Source,
    profile: &Arc<Profile>,
    key: &str,
    subject: &[u8],
) -> Result<Option<Enrolled>, EnrolmentError> {
    let Some(waiting) = consent::find_by_key(authority, source, key).await? else { return Ok(None) };
    if waiting.profile != profile.name || *waiting.request.subject.der != *subject {
        return Ok(None);
    }
    issue_approved(authority, source, profile, waiting, None).await.map(Some)
}

/// Issues the certificate of a request, idempotently. A client that missed the response and repeats the same bytes receives the
/// same certificate. If that certificate is past half of its lifetime or revoked, the client receives a new one.
async fn issue(authority: &Authority, enrolment: &Enrolment) -> Result<Issued, EnrolmentError> {
    let mut request = issue_request(enrolment);
    for _ in 0..REPEATS_MAX {
        let issued = authority.issue(request.clone()).await?;
        if !issued.repeated || is_still_usable(authority, &issued).await? {
            return Ok(issued);
        }
        request.idempotency_key =
            request.idempotency_key.map(|before| key(&[before.as_bytes(), issued.fingerprint.as_bytes()]));
    }
    Err(EnrolmentError::Refused("this request was sent too often: create a new one".to_owned()))
}

async fn is_still_usable(authority: &Authority, issued: &Issued) -> Result<bool, StoreError> {
    let life = issued.not_after.since(issued.not_before);
    if authority.clock().now_seconds() > issued.not_before.0.saturating_add(life / 2) {
        return Ok(false);
    }
    let record = authority.issued(&IssuedRef::Id(issued.id)).await?;
    Ok(record.is_some_and(|record| !is_revoked(&record)))
}

fn issue_request(enrolment: &Enrolment) -> IssueRequest {
    let request = &enrolment.requested.request;
    let spki = enrolment.requested.spki.clone().unwrap_or_else(|| request.public_key.spki.to_vec());
    let names = request.names();
    let mut issue = IssueRequest::new(
        &enrolment.profile.name,
        spki,
        names,
        enrolment.source,
        enrolment.requester.actor(),
    );
    // The server generates a different key each time, so a repeated request cannot return the same certificate.
    issue.idempotency_key = enrolment.requested.spki.is_none().then(|| enrolment.key.clone());
    issue.subject = (!request.subject.is_empty()).then(|| request.subject.clone());
    issue.must_staple = request.must_staple;
    issue.rights = enrolment.rights.clone();
    // The profile decides which other extensions of a CSR are used (usages, constraints, key identifiers).
    let passes = |oid: &str| enrolment.profile.requested_extensions.iter().any(|passing| passing == oid);
    issue.extensions =
        request.extensions.iter().filter(|extension| passes(&extension.oid)).cloned().collect();
    issue
}

/// A certificate of this CA whose private key the client has.
#[derive(Debug)]
pub(crate) struct CurrentCertificate {
    pub(crate) certificate: Certificate,
    pub(crate) record: IssuedRecord,
}

/// Returns the certificate if it was issued by this server, is valid and not revoked.
pub(crate) async fn current_certificate(
    authority: &Authority,
    der: &[u8],
) -> Result<CurrentCertificate, EnrolmentError> {
    let refused = |reason: &str| EnrolmentError::Refused(reason.to_owned());
    let certificate = Certificate::parse(der).map_err(|error| EnrolmentError::Refused(error.to_string()))?;
    let record = authority.issued(&IssuedRef::Fingerprint(certificate.fingerprint)).await?;
    let record = record.ok_or_else(|| refused("the certificate to renew was not issued by this CA"))?;
    if is_revoked(&record) {
        return Err(refused("the certificate to renew is revoked"));
    }
    let now = UnixTime(authority.clock().now_seconds());
    if now < certificate.not_before || certificate.not_after < now {
        return Err(refused("the certificate to renew is expired or not yet valid: enrol again"));
    }
    Ok(CurrentCertificate { certificate, record })
}

impl CurrentCertificate {
    /// Returns the team of the certificate. Its holder renews it on behalf of this team.
    pub(crate) fn rights(&self) -> OwnershipRights {
        OwnershipRights::CertificateHolder { issued_at_us: self.record.issued_at_us }
    }
}

/// Returns whether the certificate is revoked. A certificate released from hold is not.
fn is_revoked(record: &IssuedRecord) -> bool {
    record.revocation.is_some_and(|facts| facts.reason != Reason::RemoveFromCrl)
}

/// Returns the reason why `request` is not a renewal of `current_certificate` under `profile` (RFC 7030 section 4.2.2): subject and names must be
/// unchanged. An empty subject counts as unchanged.
pub(crate) fn renewal_refusal(
    current_certificate: &CurrentCertificate,
    request: &CertificateRequest,
    profile: &str,
) -> Option<String> {
    if current_certificate.record.profile != profile {
        return Some(format!(
            "the certificate to renew has the profile {:?}",
            current_certificate.record.profile
        ));
    }
    if !request.subject.is_empty() && !request.subject.matches(&current_certificate.certificate.subject) {
        return Some(format!(
            "a renewal must keep the subject {}",
            current_certificate.certificate.subject.text
        ));
    }
    let before = names(&current_certificate.certificate);
    let requested: HashSet<GeneralName> = request.names().into_iter().collect();
    if requested != before {
        let mut before: Vec<String> = before.iter().map(ToString::to_string).collect();
        before.sort();
        return Some(format!("a renewal must keep the names {}", before.join(", ")));
    }
    None
}

/// Returns the names of a certificate, in the same way as [`CertificateRequest::names`] for a CSR.
pub(crate) fn names(certificate: &Certificate) -> HashSet<GeneralName> {
    names_of(&certificate.subject, &certificate.subject_alt_names).into_iter().collect()
}

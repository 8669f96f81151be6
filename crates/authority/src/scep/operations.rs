//! PKIOperation: the requests in SCEP messages (RFC 8894 sections 3.3 and 4.3 to 4.5).

use std::sync::Arc;
use std::time::{Duration, Instant};

use aws_lc_rs::rand;
use http::StatusCode;
use keys::Signer;
use x509::cms::{ContentCipher, Digest, certs_only};
use x509::csr::CertificateRequest;
use x509::{Certificate, KeyAlgorithm, SerialNumber};
use zeroize::Zeroizing;

use super::message::{self, FailInfo, Failure, Incoming, MessageType, Outgoing, Reply};
use super::recipient::Recipient;
use super::{Refusal, Scep, cipher, refuse};
use crate::crl::CrlPart;
use crate::enrolment::{
    self, CurrentCertificate, Enrolled, Enrolment, EnrolmentError, EnrolmentUser, RequestedCertificate,
};
use crate::issue::{IssuedRef, Source};
use crate::principal::Principal;
use crate::profile::Profile;
use crate::teams::OverQuota;
use crate::tree::Ca;

/// Timeout of a signature with the SCEP key. The key is in this process, but the machine may be under load.
const SIGN_FOR: Duration = Duration::from_secs(10);

/// The result of a message that could be parsed.
enum Outcome {
    /// Certificates or CRLs for the client, as a certs-only message.
    Found(Vec<u8>),
    Pending,
}

/// An error. If the same message may succeed later, the client gets an HTTP status, otherwise a SCEP reply.
enum OperationError {
    Failure(Failure),
    Unavailable(String),
    /// The team has used its daily quota of certificates.
    Limited(OverQuota),
}

impl From<Failure> for OperationError {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure)
    }
}

impl From<EnrolmentError> for OperationError {
    fn from(error: EnrolmentError) -> Self {
        match error {
            EnrolmentError::Unavailable(reason) => Self::Unavailable(reason),
            EnrolmentError::Limited(over) => Self::Limited(over),
            refused => Self::Failure(Failure::new(FailInfo::Request, refused.to_string())),
        }
    }
}

impl From<store::StoreError> for OperationError {
    fn from(error: store::StoreError) -> Self {
        Self::Unavailable(error.to_string())
    }
}

fn fail<T>(info: FailInfo, text: impl Into<String>) -> Result<T, OperationError> {
    Err(Failure::new(info, text).into())
}

struct DecryptedMessage {
    incoming: Incoming,
    content: Zeroizing<Vec<u8>>,
}

impl Scep {
    /// Handles a message and returns the signed reply.
    pub(super) async fn operate(&self, profile: &Arc<Profile>, message: &[u8]) -> Result<Vec<u8>, Refusal> {
        let incoming = match Incoming::read(message) {
            Ok(incoming) => incoming,
            Err(reason) => return refuse(StatusCode::BAD_REQUEST, reason),
        };
        let ca = self.ca(profile).await?;
        let recipient = self.recipient(&ca).await?;
        if incoming.digest == Digest::Sha1 && !self.inner.options.allow_sha1 {
            let failure = Failure::new(FailInfo::Algorithm, "SHA-1 is not accepted: use SHA-256");
            return self.reply(&incoming, Reply::Failure(failure), &recipient).await;
        }
        let (incoming, outcome) = match open(incoming, &recipient).await? {
            (incoming, Ok((content, cipher))) => {
                let opened = DecryptedMessage { incoming, content };
                let outcome = self.perform(profile, &ca, &opened).await;
                (opened.incoming, outcome.map(|outcome| (outcome, cipher)))
            }
            (incoming, Err(failure)) => (incoming, Err(failure.into())),
        };
        let reply = match outcome {
            Ok((Outcome::Pending, _)) => Reply::Pending,
            Ok((Outcome::Found(content), cipher)) => match cipher::seal(&incoming.signer, cipher, &content) {
                Some(envelope) => Reply::Success(envelope),
                None => Reply::Failure(Failure::new(
                    FailInfo::Algorithm,
                    "the response cannot be encrypted to this key",
                )),
            },
            Err(OperationError::Failure(failure)) => Reply::Failure(failure),
            Err(OperationError::Unavailable(reason)) => {
                return refuse(StatusCode::SERVICE_UNAVAILABLE, reason);
            }
            Err(OperationError::Limited(over)) => {
                return refuse(StatusCode::TOO_MANY_REQUESTS, over.to_string());
            }
        };
        self.reply(&incoming, reply, &recipient).await
    }

    /// Builds and signs a reply.
    async fn reply(&self, to: &Incoming, reply: Reply, by: &Recipient) -> Result<Vec<u8>, Refusal> {
        if let Reply::Failure(failure) = &reply {
            tracing::info!(transaction = to.transaction, info = ?failure.info, "a SCEP request failed: {}", failure.text);
        }
        let mut nonce = [0; 16];
        if rand::fill(&mut nonce).is_err() {
            return refuse(StatusCode::SERVICE_UNAVAILABLE, "the operating system returned no random bytes");
        }
        let outgoing = Outgoing::new(to, reply, &nonce);
        match by.key.sign(&outgoing.attributes, Instant::now() + SIGN_FOR).await {
            Ok(signature) => Ok(outgoing.signed(&by.certificate, &signature)),
            Err(error) => refuse(StatusCode::SERVICE_UNAVAILABLE, error.to_string()),
        }
    }

    async fn perform(
        &self,
        profile: &Arc<Profile>,
        ca: &Arc<Ca>,
        opened: &DecryptedMessage,
    ) -> Result<Outcome, OperationError> {
        match opened.incoming.kind {
            Some(MessageType::Request) => self.request(profile, opened, false).await,
            Some(MessageType::RenewalRequest) => self.request(profile, opened, true).await,
            Some(MessageType::Poll) => self.poll(profile, opened).await,
            Some(MessageType::GetCertificate) => self.certificate(opened).await,
            Some(MessageType::GetCrl) => self.list(ca, opened).await,
            None => fail(FailInfo::Request, "this message type is not supported"),
        }
    }

    /// Handles PKCSReq and RenewalReq.
    async fn request(
        &self,
        profile: &Arc<Profile>,
        opened: &DecryptedMessage,
        renewal: bool,
    ) -> Result<Outcome, OperationError> {
        // Content that is not a CSR gets the same error as content that could not be decrypted.
        let Ok(request) = CertificateRequest::parse(&opened.content) else {
            return Err(decryption_failure().into());
        };
        if let Err(error) = request.verify() {
            return fail(
                FailInfo::MessageCheck,
                format!("the request has no valid proof of possession: {error}"),
            );
        }
        let signer = &opened.incoming.signer;
        // Some clients renew with PKCSReq, signed with their present certificate and without a password.
        let by_password = !renewal && (request.challenge_password.is_some() || signer.is_self_issued());
        let (requester, rights) = if by_password {
            let user = self.authenticate_by_challenge(profile, opened, &request).await?;
            (Principal::from_password_owner(&user.actor), user.rights)
        } else {
            let current_certificate = self.certificate_to_renew(profile, opened, &request).await?;
            let actor = format!("certificate:{}", current_certificate.certificate.fingerprint);
            let rights = current_certificate.rights();
            (Principal::from_actor(&actor).with_certificate(&current_certificate.certificate), rights)
        };
        let client_scope = self.client_scope(signer).await?;
        let mut parts = vec![profile.name.as_bytes(), &client_scope, opened.incoming.transaction.as_bytes()];
        // A poll contains only the transaction identifier, which must therefore be unique if approval is required. Without
        // approval, several requests may have the same identifier, because many clients derive it from their key.
        if !profile.requires_approval {
            parts.push(request.tbs());
        }
        let key = enrolment::key(&parts);
        let profile = Arc::clone(profile);
        let requested = RequestedCertificate { request, spki: None };
        let enrolment = Enrolment { source: Source::Scep, profile, requester, rights, key, requested };
        Ok(outcome(enrolment::enrol(&self.inner.authority, enrolment).await?))
    }

    /// Authenticates the client by its challenge password. The message must be signed with the key to certify (section 2.3).
    async fn authenticate_by_challenge(
        &self,
        profile: &Profile,
        opened: &DecryptedMessage,
        request: &CertificateRequest,
    ) -> Result<EnrolmentUser, OperationError> {
        if !same_key(&opened.incoming.signer, request) {
            return fail(
                FailInfo::Request,
                "the message must be signed with the key of the certificate request",
            );
        }
        let Some(passwords) = &self.inner.passwords else {
            return fail(FailInfo::Request, "this server accepts only renewals");
        };
        let given = request.challenge_password.as_deref().unwrap_or_default();
        match passwords.challenge(&profile.name, given, request).await {
            Ok(Some(user)) => Ok(user),
            Ok(None) => fail(FailInfo::Request, "the challenge password is missing or wrong"),
            Err(error) => Err(OperationError::Unavailable(error.to_string())),
        }
    }

    /// Returns the certificate to renew, which signed the message. The names must be unchanged.
    async fn certificate_to_renew(
        &self,
        profile: &Profile,
        opened: &DecryptedMessage,
        request: &CertificateRequest,
    ) -> Result<CurrentCertificate, OperationError> {
        let current_certificate =
            enrolment::current_certificate(&self.inner.authority, &opened.incoming.signer.der).await?;
        match enrolment::renewal_refusal(&current_certificate, request, &profile.name) {
            Some(reason) => fail(FailInfo::Request, reason),
            None => Ok(current_certificate),
        }
    }

    /// Returns the scope in which the transaction identifiers of a client are unique: the signer's certificate if this server
    /// issued it, otherwise the signer's key. A renewal with the same key is therefore a separate transaction.
    async fn client_scope(&self, signer: &Certificate) -> Result<[u8; 32], OperationError> {
        let known = self.inner.authority.issued(&IssuedRef::Fingerprint(signer.fingerprint)).await?;
        Ok(match known {
            Some(_) => *signer.fingerprint.as_bytes(),
            None => *signer.public_key.spki_sha256.as_bytes(),
        })
    }

    /// Handles CertPoll.
    async fn poll(
        &self,
        profile: &Arc<Profile>,
        opened: &DecryptedMessage,
    ) -> Result<Outcome, OperationError> {
        let Ok((_, subject)) = message::issuer_and_subject(&opened.content) else {
            return Err(decryption_failure().into());
        };
        let authority = &self.inner.authority;
        let client_scope = self.client_scope(&opened.incoming.signer).await?;
        let key =
            enrolment::key(&[profile.name.as_bytes(), &client_scope, opened.incoming.transaction.as_bytes()]);
        match enrolment::resume(authority, Source::Scep, profile, &key, &subject).await? {
            Some(enrolled) => Ok(outcome(enrolled)),
            None => fail(FailInfo::CertificateId, "no such request is pending: send the request again"),
        }
    }

    /// Handles GetCert.
    async fn certificate(&self, opened: &DecryptedMessage) -> Result<Outcome, OperationError> {
        let Ok((issuer, serial)) = message::issuer_and_serial(&opened.content) else {
            return Err(decryption_failure().into());
        };
        for ca in self.named(&issuer).await? {
            let which = IssuedRef::Serial(ca.id, serial.clone());
            if let Some(record) = self.inner.authority.issued(&which).await? {
                return Ok(Outcome::Found(certs_only(&[&record.der], &[])));
            }
        }
        fail(FailInfo::CertificateId, "this server did not issue such a certificate")
    }

    /// Handles GetCRL. Returns the CRL that covers the given certificate; for an unknown one, the full CRL of the CA.
    async fn list(&self, ca: &Arc<Ca>, opened: &DecryptedMessage) -> Result<Outcome, OperationError> {
        let Ok((issuer, serial)) = message::issuer_and_serial(&opened.content) else {
            return Err(decryption_failure().into());
        };
        let named = self.named(&issuer).await?;
        let Some(ca) = named.iter().find(|named| named.id == ca.id).or(named.first()) else {
            return fail(FailInfo::CertificateId, "the issuer is not a CA of this server");
        };
        let crl_part = self.crl_part(ca, serial).await?;
        match self.inner.authority.crl(ca.id, crl_part).await {
            Ok(Some(list)) => Ok(Outcome::Found(certs_only(&[], &[&list.der]))),
            Ok(None) => fail(FailInfo::CertificateId, "this CA publishes no CRL"),
            Err(error) => Err(OperationError::Unavailable(error.to_string())),
        }
    }

    /// Returns the CRL part that lists a certificate after its revocation.
    async fn crl_part(&self, ca: &Ca, serial: SerialNumber) -> Result<CrlPart, OperationError> {
        let record = self.inner.authority.issued(&IssuedRef::Serial(ca.id, serial)).await?;
        let shard = record.and_then(|record| u32::try_from(record.shard).ok());
        Ok(shard.filter(|shard| *shard > 0).map_or(CrlPart::Full, CrlPart::Shard))
    }

    /// Returns the CAs with this subject (DER `Name`).
    async fn named(&self, name: &[u8]) -> Result<Vec<Arc<Ca>>, OperationError> {
        let all = self.inner.authority.cas().await;
        let all = all.map_err(|error| OperationError::Unavailable(error.to_string()))?;
        Ok(all.into_iter().filter(|ca| *ca.certificate.subject.der == *name).collect())
    }
}

/// The decrypted content of a message, and its cipher.
type Content = (Zeroizing<Vec<u8>>, ContentCipher);

/// Verifies the signature and decrypts the message, outside the threads that serve connections.
async fn open(
    incoming: Incoming,
    recipient: &Arc<Recipient>,
) -> Result<(Incoming, Result<Content, Failure>), Refusal> {
    let recipient = Arc::clone(recipient);
    let work = move || {
        let content = opened(&incoming, &recipient);
        (incoming, content)
    };
    match tokio::task::spawn_blocking(work).await {
        Ok(opened) => Ok(opened),
        Err(_) => refuse(StatusCode::SERVICE_UNAVAILABLE, "cannot decrypt the message"),
    }
}

/// Verifies the signature of a message and returns the decrypted content.
fn opened(
    incoming: &Incoming,
    recipient: &Recipient,
) -> Result<(Zeroizing<Vec<u8>>, ContentCipher), Failure> {
    if incoming.signer.public_key.algorithm != KeyAlgorithm::Rsa || incoming.signer.public_key.bits < 2_048 {
        return Err(Failure::new(FailInfo::Algorithm, "SCEP needs an RSA key of 2,048 bits or more"));
    }
    if let Err(error) = incoming.verify() {
        return Err(Failure::new(FailInfo::MessageCheck, error.to_string()));
    }
    let envelope = incoming.envelope();
    let envelope = envelope
        .map_err(|error| Failure::new(FailInfo::Algorithm, format!("invalid encrypted content: {error}")))?;
    if !message::is_cipher_allowed(envelope.cipher) {
        return Err(Failure::new(FailInfo::Algorithm, "DES is not accepted: use AES"));
    }
    let content =
        cipher::open(&recipient.key, &recipient.certificate, &envelope).map_err(|_| decryption_failure())?;
    Ok((content, envelope.cipher))
}

/// Returns the failure for encrypted content that cannot be read. It is the same for every cause: see [`cipher::Sealed`].
fn decryption_failure() -> Failure {
    Failure::new(
        FailInfo::MessageCheck,
        "the encrypted content cannot be decrypted, or does not match the message type",
    )
}

fn same_key(signer: &Certificate, request: &CertificateRequest) -> bool {
    signer.public_key.spki == request.public_key.spki
}

fn outcome(enrolled: Enrolled) -> Outcome {
    match enrolled {
        Enrolled::Issued(issued) => {
            // The new certificate comes first, because clients use the first one. Section 3.4 leaves the rest of the chain to the
            // server.
            let all: Vec<&[u8]> =
                std::iter::once(&issued.der).chain(issued.chain.iter()).map(|der| &der[..]).collect();
            Outcome::Found(certs_only(&all, &[]))
        }
        Enrolled::Waiting => Outcome::Pending,
    }
}

//! Properties of a server's certificate that a mirrored leaf copies.

use x509::{Certificate, DistinguishedName, Fingerprint, GeneralName, HostOrIp, UnixTime, name};

use super::validity::VALIDITY_MIN;

/// Maximum total bytes of a certificate's subject and names, with a header for each name; enough for about 500 names. Every
/// handshake sends the subject and names.
const LIKENESS_BYTES_MAX: usize = 16 << 10;
/// Bytes of a name's header in DER.
const NAME_HEADER: usize = 2;

/// Subject, names and validity of a certificate. Extensions about its key are not copied, because the leaf has another key.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct MirrorTemplate {
    certificate: Fingerprint,
    first: HostOrIp,
    pub(super) subject: DistinguishedName,
    pub(super) names: Vec<GeneralName>,
    pub(super) not_before: UnixTime,
    pub(super) not_after: UnixTime,
}

/// Reason why a certificate cannot be mirrored.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum MirrorTemplateError {
    /// The bytes are not a valid certificate.
    #[error("cannot parse the server's certificate: {0}")]
    Unreadable(#[from] x509::ParseError),
    /// The certificate does not contain the host name, so clients would reject its copy.
    #[error("the server's certificate is for another name")]
    OtherName,
    /// The subject and names are too large for every handshake.
    #[error(
        "the subject and names of the server's certificate have {0} bytes; at most {LIKENESS_BYTES_MAX} are mirrored"
    )]
    TooLong(usize),
    /// The certificate has expired, expires within a minute, or is not valid yet.
    #[error("the server's certificate expires within a minute, has expired or is not yet valid")]
    Ends,
}

impl MirrorTemplate {
    /// Reads a server's certificate (DER) for `name` at the time `now`. The caller must have verified the certificate.
    ///
    /// # Errors
    /// [`MirrorTemplateError`]
    pub fn of(der: &[u8], name: &HostOrIp, now: UnixTime) -> Result<Self, MirrorTemplateError> {
        let certificate = Certificate::parse(der)?;
        let is_of_host = |name: &&GeneralName| {
            matches!(name, GeneralName::Dns(_) | GeneralName::Ip(_)) && name.is_writable()
        };
        let names: Vec<GeneralName> =
            certificate.subject_alt_names.iter().filter(is_of_host).cloned().collect();
        if !names.iter().any(|one| is_for(one, name)) {
            return Err(MirrorTemplateError::OtherName);
        }
        let subject = certificate.subject;
        let byte_size =
            names.iter().fold(subject.der.len(), |sum, name| sum + byte_size_of(name) + NAME_HEADER);
        if byte_size > LIKENESS_BYTES_MAX {
            return Err(MirrorTemplateError::TooLong(byte_size));
        }
        let (not_before, not_after) = (certificate.not_before, certificate.not_after);
        if now < not_before || not_after.since(now) < VALIDITY_MIN.as_secs() as i64 {
            return Err(MirrorTemplateError::Ends);
        }
        let first = names.iter().find_map(bare).unwrap_or_else(|| name.clone());
        Ok(Self { certificate: certificate.fingerprint, first, subject, names, not_before, not_after })
    }

    /// Returns the fingerprint of the mirrored certificate.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        self.certificate
    }

    /// Returns whether the certificate is valid for `name`.
    #[must_use]
    pub fn is_for(&self, name: &HostOrIp) -> bool {
        self.names.iter().any(|one| is_for(one, name))
    }

    /// Returns the first name of the certificate, without `*.`. All hosts of the certificate have the same first name, so they
    /// share a leaf.
    #[must_use]
    pub fn first_name(&self) -> &HostOrIp {
        &self.first
    }

    /// Returns the end of the certificate's validity.
    #[must_use]
    pub fn not_after(&self) -> UnixTime {
        self.not_after
    }

    /// Returns the memory size in bytes.
    #[must_use]
    pub fn byte_size(&self) -> usize {
        let names =
            self.names.iter().map(|name| size_of::<GeneralName>() + byte_size_of(name)).sum::<usize>();
        // The subject is stored as DER, as text, and in parts.
        size_of::<Self>() + names + 3 * self.subject.der.len()
    }
}

fn is_for(presented: &GeneralName, name: &HostOrIp) -> bool {
    match (presented, name) {
        (GeneralName::Dns(pattern), HostOrIp::Dns(host)) => name::pattern_matches(pattern, host),
        (GeneralName::Ip(address), HostOrIp::Ip(requested)) => address == requested,
        _ => false,
    }
}

fn byte_size_of(name: &GeneralName) -> usize {
    match name {
        GeneralName::Dns(text) => text.len(),
        _ => 16,
    }
}

fn bare(name: &GeneralName) -> Option<HostOrIp> {
    match name {
        GeneralName::Dns(pattern) => HostOrIp::parse(pattern.strip_prefix("*.").unwrap_or(pattern)).ok(),
        GeneralName::Ip(address) => Some(HostOrIp::Ip(*address)),
        _ => None,
    }
}

//! Certificate chains read from files, and their stapled OCSP responses. A file that contains a private key is rejected.

use std::path::Path;
use std::sync::Arc;
use std::{fmt, io};

use keyless::wire::Ski;
use keyless::{FileKind, FileProblem, Folder};
use keys::KeyType;
use s2n_tls::cert_chain;
use telemetry::spans::TraceParent;
use x509::ocsp::{Outcome, Status, parse_response};
use x509::{Certificate, HostName, SerialNumber, UnixTime};
use zeroize::Zeroizing;

/// Maximum size of a file in bytes: enough for ten of the largest certificates.
const FILE_MAX: u64 = 1 << 20;
/// Maximum certificates of a chain; real chains have two or three.
const CHAIN_MAX: usize = 10;
/// Maximum bytes of a stapled OCSP response: the terminator sends it in every handshake.
pub(super) const STAPLE_MAX: u64 = 16 << 10;

/// A certificate chain that can be presented to clients.
#[derive(Clone)]
pub struct CertificateFile {
    /// The file's name without its extension.
    pub name: String,
    /// Identifier of the key that signs for this chain.
    pub ski: Ski,
    /// Type of the key that signs for this chain.
    pub kind: KeyType,
    /// Host names of the certificate; `*.NAME` covers the names one label below.
    pub names: Vec<String>,
    /// Start of the validity.
    pub not_before: UnixTime,
    /// End of the validity.
    pub not_after: UnixTime,
    pub(super) spki: Arc<[u8]>,
    pub(super) pem: Vec<u8>,
    pub(super) leaf: Arc<Certificate>,
    /// The trace of the managed certificate; `None` if the file names no managed certificate.
    pub(super) trace: Option<TraceParent>,
    /// The issuer's certificate, for OCSP requests; `None` if the file does not contain it, or the certificate names no OCSP
    /// responder.
    pub(super) issuer: Option<Arc<Certificate>>,
    pub(super) staple: Option<Staple>,
    /// Reason why the OCSP response in the file beside the chain is not used; `None` if there is no error.
    pub(super) not_stapled: Option<String>,
}

/// An OCSP response, read from the file beside the chain or fetched.
#[derive(Clone)]
pub(super) struct Staple {
    pub(super) der: Arc<[u8]>,
    pub(super) serial: SerialNumber,
    /// End of the response's validity.
    pub(super) until: Option<UnixTime>,
}

impl fmt::Debug for CertificateFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CertificateFile")
            .field("name", &self.name)
            .field("ski", &self.ski)
            .finish_non_exhaustive()
    }
}

/// Reason why a certificate file does not contain a usable chain.
#[derive(Debug, thiserror::Error)]
pub enum BadCertificate {
    /// The file cannot be read.
    #[error("cannot read the file: {0}")]
    Io(#[from] io::Error),
    /// The file is larger than the limit.
    #[error("the file is too large for a certificate chain")]
    TooLong,
    /// The file contains no certificate.
    #[error("the file has no certificate")]
    Empty,
    /// The chain has more certificates than the maximum.
    #[error("the file has {0} certificates; at most {CHAIN_MAX} are allowed")]
    TooMany(usize),
    /// The file contains a private key. Private keys belong in the key service only.
    #[error(
        "the file has a private key: keep the key in the key service, and only certificates in this file"
    )]
    PrivateKey,
    /// The leaf certificate cannot be parsed.
    #[error("cannot parse the first certificate: {0}")]
    Leaf(x509::ParseError),
    /// The leaf's key is neither RSA nor ECDSA.
    #[error("only RSA and ECDSA keys are supported: the first certificate has {0}")]
    Kind(String),
    /// The certificate has no host name.
    #[error("the first certificate has no host name")]
    NoName,
    /// The TLS library rejects the chain.
    #[error("the TLS library rejects the certificate: {0}")]
    Library(#[from] s2n_tls::error::Error),
}

impl FileProblem for BadCertificate {
    fn may_heal(&self) -> bool {
        matches!(self, Self::Io(_))
    }
}

/// Beginning of the line with the ID of a managed certificate, before its chain.
const MANAGED: &[u8] = b"Managed certificate: ";

/// The folder of certificate chains.
pub(super) type CertificateFolder = Folder<Arc<CertificateFile>, BadCertificate>;

pub(super) fn folder(path: &Path) -> CertificateFolder {
    let read = |path: &Path| CertificateFile::read(path).map(Arc::new);
    Folder::of(path, FileKind { file_extension: "pem", companion: Some("ocsp"), secret: false, read })
}

impl CertificateFile {
    /// Reads a chain and the files beside it.
    ///
    /// # Errors
    /// [`BadCertificate`]
    pub fn read(path: &Path) -> Result<Self, BadCertificate> {
        let text = read_at_most(path, FILE_MAX)?;
        if x509::pem::blocks(&text).any(|(label, _)| label.ends_with("PRIVATE KEY")) {
            return Err(BadCertificate::PrivateKey);
        }
        let chain: Vec<Vec<u8>> = x509::pem::certificates(&text).map(|(_, der)| der).collect();
        let first = chain.first().ok_or(BadCertificate::Empty)?;
        if chain.len() > CHAIN_MAX {
            return Err(BadCertificate::TooMany(chain.len()));
        }
        let leaf = Certificate::parse(first).map_err(BadCertificate::Leaf)?;
        let kind = KeyType::of(&leaf.public_key).filter(|kind| {
            kind.rsa_bits().is_some() || matches!(kind, KeyType::P256 | KeyType::P384 | KeyType::P521)
        });
        let kind = kind.ok_or_else(|| BadCertificate::Kind(format!("{:?}", leaf.public_key.algorithm)))?;
        let names: Vec<String> = leaf.names().iter().filter_map(|name| host(name)).collect();
        if names.is_empty() {
            return Err(BadCertificate::NoName);
        }
        // Encode the certificates again, so that other text in the file is dropped.
        let pem =
            chain.iter().map(|der| x509::pem::encode("CERTIFICATE", der)).collect::<String>().into_bytes();
        cert_chain::Builder::new()?.load_public_pem(&pem)?;
        // A bad staple does not reject the chain: after a renewal, the old staple may still be in the folder.
        let (staple, not_stapled) = match Staple::read_beside(path, &leaf)? {
            Ok(staple) => (staple, None),
            Err(why) => (None, Some(why)),
        };
        Ok(Self {
            name: path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
            ski: Ski::of_spki(&leaf.public_key.spki),
            kind,
            names,
            not_before: leaf.not_before,
            not_after: leaf.not_after,
            spki: Arc::clone(&leaf.public_key.spki),
            pem,
            issuer: issuer_of(&leaf, chain.get(1)),
            leaf: Arc::new(leaf),
            trace: managed_id(&text).map(TraceParent::of_object),
            staple,
            not_stapled,
        })
    }

    /// Keeps the previous staple of the same certificate if the staple in the new file is unusable.
    pub(super) fn after(self: Arc<Self>, before: &[Arc<Self>]) -> Arc<Self> {
        let before = before.iter().find(|before| before.name == self.name);
        let staple = before.and_then(|before| before.staple.clone());
        match staple.filter(|staple| self.not_stapled.is_some() && staple.serial == self.leaf.serial) {
            Some(staple) => Arc::new(Self { staple: Some(staple), ..Self::clone(&self) }),
            None => self,
        }
    }

    /// Returns whether the certificate is valid at `now`.
    pub(super) fn is_valid(&self, now: UnixTime) -> bool {
        (self.not_before..=self.not_after).contains(&now)
    }
}

impl Staple {
    /// Reads the staple from `NAME.ocsp`. Returns `None` if there is no such file, or the reason why the response is unusable.
    ///
    /// # Errors
    /// Other read errors, which may be temporary.
    fn read_beside(path: &Path, leaf: &Certificate) -> Result<Result<Option<Self>, String>, BadCertificate> {
        match read_at_most(&path.with_extension("ocsp"), STAPLE_MAX) {
            Ok(der) => Ok(Self::of(&der, leaf).map(Some)),
            Err(BadCertificate::Io(error)) if error.kind() == io::ErrorKind::NotFound => Ok(Ok(None)),
            // Not temporary: the mode of the file must be changed first.
            Err(BadCertificate::Io(error)) if error.kind() == io::ErrorKind::PermissionDenied => {
                Ok(Err(error.to_string()))
            }
            Err(BadCertificate::TooLong) => {
                Ok(Err(format!("the OCSP response is longer than {STAPLE_MAX} bytes")))
            }
            Err(error) => Err(error),
        }
    }

    fn of(der: &[u8], leaf: &Certificate) -> Result<Self, String> {
        let response = parse_response(der).map_err(|error| error.to_string())?;
        if !matches!(response.status, Outcome::Status(Status::Good)) {
            return Err(format!("the OCSP response says the certificate is {response}"));
        }
        match response.serial {
            Some(serial) if serial == leaf.serial => {
                Ok(Self { der: der.into(), serial, until: response.next_update })
            }
            _ => Err("the OCSP response is for another certificate".to_owned()),
        }
    }

    pub(super) fn is_current(&self, now: UnixTime) -> bool {
        self.until.is_none_or(|until| now < until)
    }
}

/// Returns the ID of the managed certificate from the line `Managed certificate: UUID` before the chain.
fn managed_id(text: &[u8]) -> Option<u128> {
    let before = text.split(|byte| *byte == b'\n').take_while(|line| !line.starts_with(b"-----BEGIN"));
    let id =
        before.filter_map(|line| line.strip_prefix(MANAGED)).find_map(|id| std::str::from_utf8(id).ok())?;
    let digits: String = id.trim().chars().filter(|letter| *letter != '-').collect();
    u128::from_str_radix(&digits, 16).ok()
}

/// Returns the issuer of the leaf: the next certificate, if it signed the leaf and the leaf names an OCSP responder.
fn issuer_of(leaf: &Certificate, next: Option<&Vec<u8>>) -> Option<Arc<Certificate>> {
    let issuer = Certificate::parse(next.filter(|_| !leaf.ocsp_urls.is_empty())?).ok()?;
    leaf.signed_by(&issuer.public_key).is_ok().then(|| Arc::new(issuer))
}

pub(super) fn read_at_most(path: &Path, max: u64) -> Result<Zeroizing<Vec<u8>>, BadCertificate> {
    use io::Read;
    let mut bytes = Zeroizing::new(Vec::new());
    std::fs::File::open(path)?.take(max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max {
        return Err(BadCertificate::TooLong);
    }
    Ok(bytes)
}

/// Returns the host name in lower case. IP addresses are skipped: clients cannot send them in SNI (RFC 6066 section 3).
fn host(name: &str) -> Option<String> {
    let (star, rest) = match name.strip_prefix("*.") {
        Some(rest) => ("*.", rest),
        None => ("", name),
    };
    if rest.parse::<std::net::IpAddr>().is_ok() {
        return None;
    }
    HostName::parse(rest).ok().map(|rest| format!("{star}{rest}"))
}

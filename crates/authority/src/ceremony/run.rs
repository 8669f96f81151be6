//! Runs ceremonies: creates a root, or signs CSRs and a CRL with an existing root.

use std::io;
use std::path::{Path, PathBuf};

use keys::{KeyError, KeyType, PrivateKey, SignError, Signer};
use store::Clock;
use x509::crl::{CrlSpec, Revoked, Scope, tbs_crl};
use x509::csr::CertificateRequest;
use x509::{Certificate, UnixTime, build, pem};

use super::folder::Folder;
use super::plan::{CeremonyDetails, CeremonyPlan, PlannedCrl, PlannedIntermediate, Published, SigningPlan};
use super::transcript::{CertificateFacts, FORMAT, Kind, SignedFacts, Transcript};
use super::verify::read_bounded;
use super::{CRL_FILE, KEY_FILE, ROOT_FILE, SIGNATURE_FILE, TEXT_FILE, TRANSCRIPT_FILE};
use crate::tree::{
    BadCa, Body, Dates, Issuer, NewCa, NewCaError, PublicationUrls, certify, check_name, path_length_below,
};

/// Minimum length of a passphrase in characters.
const PASSPHRASE_MIN: usize = 12;
/// Maximum size of a CSR or key file in bytes.
const INPUT_MAX: u64 = 256 * 1024;

/// Reason why a ceremony failed. All results are computed before any file is written. Only [`CeremonyError::File`] may leave files
/// behind, but no transcript.
#[derive(Debug, thiserror::Error)]
pub enum CeremonyError {
    /// The plan is invalid.
    #[error("invalid plan: {0}")]
    Plan(String),
    /// The specification of a CA in the plan is invalid.
    #[error(transparent)]
    Bad(#[from] BadCa),
    /// The passphrase is too weak.
    #[error(
        "the passphrase has fewer than {PASSPHRASE_MIN} characters; it is the only protection of the root's key"
    )]
    WeakPassphrase,
    /// A file or directory cannot be read or written.
    #[error("{path}: {error}")]
    File {
        /// Path of the file or directory.
        path: PathBuf,
        /// The error of the operating system.
        error: io::Error,
    },
    /// A CSR cannot be signed.
    #[error("invalid request of {name}: {reason}")]
    Request {
        /// Name of the intermediate in the plan.
        name: String,
        /// Reason why the CSR cannot be signed.
        reason: String,
    },
    /// The directory contains no valid root.
    #[error("invalid root in {path}: {reason}")]
    Root {
        /// Path of the directory.
        path: PathBuf,
        /// Reason why the root is invalid.
        reason: String,
    },
    /// The key cannot be generated or decrypted.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// A certificate cannot be built.
    #[error(transparent)]
    Certificate(#[from] NewCaError),
    /// Signing with the key of the root failed.
    #[error(transparent)]
    Sign(#[from] SignError),
}

/// Creates a root in a new or empty directory. It writes the key (encrypted with the passphrase), the certificate, the CRL, the
/// certificates for the CSRs of the plan, and the transcript, signed by the root. Paths of CSRs are relative to `requests`. `tool`
/// is the program and its version. Needs no database and no network.
///
/// # Errors
/// [`CeremonyError`]
#[crate::boxed]
pub async fn create_root(
    plan: &CeremonyPlan,
    requests: &Path,
    folder: &Path,
    passphrase: &[u8],
    clock: &Clock,
    tool: &str,
) -> Result<Transcript, CeremonyError> {
    let common = plan.common();
    common.check().map_err(CeremonyError::Plan)?;
    let read = plan.root.read()?;
    if plan.root.key_provider.is_some() {
        return Err(CeremonyError::Plan(
            "key_provider is not allowed: a ceremony stores the key in its folder".to_owned(),
        ));
    }
    if std::str::from_utf8(passphrase).map_or(0, |text| text.chars().count()) < PASSPHRASE_MIN {
        return Err(CeremonyError::WeakPassphrase);
    }
    let began = now(clock);
    let wanted = CheckedRequest::read_all(common.intermediates, requests)?;
    let key = PrivateKey::generate(plan.root.key_type)?;
    let body = Body::of(&plan.root, &read, key.spki(), plan.root.path_length);
    let root = certify(body, &key, None, Dates::of(&plan.root, began)).await?.certificate;
    let session = Session { kind: Kind::CreateRoot, key: &key, root: &root, clock, tool, began };
    let made = session.make(&common, &wanted).await?;
    let parameters = serde_json::to_value(plan).map_err(|error| CeremonyError::Plan(error.to_string()))?;
    let mut out = begin(folder)?;
    write_key(&mut out, folder, &key, passphrase)?;
    session.finish(&common, parameters, made, out, folder)
}

/// Signs the CSRs of the plan and a CRL with a root that [`create_root`] has created. `root_folder` contains its certificate and
/// key. Writes to a new or empty directory.
///
/// # Errors
/// [`CeremonyError`]
#[allow(clippy::too_many_arguments, reason = "each is another thing, and all are needed")]
#[crate::boxed]
pub async fn sign(
    plan: &SigningPlan,
    requests: &Path,
    root_folder: &Path,
    folder: &Path,
    passphrase: &[u8],
    clock: &Clock,
    tool: &str,
) -> Result<Transcript, CeremonyError> {
    let common = plan.common();
    common.check().map_err(CeremonyError::Plan)?;
    let began = now(clock);
    let (root, key) = open_root(root_folder, passphrase, began)?;
    let wanted = CheckedRequest::read_all(common.intermediates, requests)?;
    let session = Session { kind: Kind::Sign, key: &key, root: &root, clock, tool, began };
    let made = session.make(&common, &wanted).await?;
    let parameters = serde_json::to_value(plan).map_err(|error| CeremonyError::Plan(error.to_string()))?;
    session.finish(&common, parameters, made, begin(folder)?, folder)
}

fn now(clock: &Clock) -> UnixTime {
    UnixTime(clock.now_seconds())
}

fn at(path: &Path) -> impl Fn(io::Error) -> CeremonyError {
    let path = path.to_owned();
    move |error| CeremonyError::File { path: path.clone(), error }
}

fn begin(folder: &Path) -> Result<Folder, CeremonyError> {
    Folder::begin(folder).map_err(at(folder))
}

/// Writes the key and decrypts the written file again, to ensure that the key is usable.
fn write_key(
    out: &mut Folder,
    folder: &Path,
    key: &PrivateKey,
    passphrase: &[u8],
) -> Result<(), CeremonyError> {
    let text = key.to_encrypted_pem(passphrase)?;
    out.write(KEY_FILE, text.as_bytes(), true).map_err(at(folder))?;
    let written = out.read(KEY_FILE).map_err(at(folder))?;
    let read_back = PrivateKey::from_encrypted_pem(&String::from_utf8_lossy(&written), passphrase)?;
    if read_back.spki() == key.spki() {
        Ok(())
    } else {
        Err(CeremonyError::Root {
            path: folder.to_owned(),
            reason: "the key that was written differs from the key that was generated".to_owned(),
        })
    }
}

fn open_root(
    folder: &Path,
    passphrase: &[u8],
    now: UnixTime,
) -> Result<(std::sync::Arc<Certificate>, PrivateKey), CeremonyError> {
    let bad = |reason: String| CeremonyError::Root { path: folder.to_owned(), reason };
    let text = |name: &str| {
        let path = folder.join(name);
        read_bounded(&path, INPUT_MAX).map_err(at(&path))
    };
    let (certificate, key) = (text(ROOT_FILE)?, text(KEY_FILE)?);
    let der = pem::certificates(&certificate)
        .next()
        .ok_or_else(|| bad(format!("{ROOT_FILE} has no certificate")))?
        .1;
    let root = Certificate::parse(&der).map_err(|error| bad(error.to_string()))?;
    let key = PrivateKey::from_encrypted_pem(&String::from_utf8_lossy(&key), passphrase)?;
    if key.spki() != &*root.public_key.spki {
        return Err(bad(format!("{KEY_FILE} does not match the certificate in {ROOT_FILE}")));
    }
    if now < root.not_before || now > root.not_after {
        return Err(bad(format!(
            "the root is valid from {} until {}, but not now",
            root.not_before, root.not_after
        )));
    }
    Ok((std::sync::Arc::new(root), key))
}

/// A parsed and checked CSR of the plan.
struct CheckedRequest {
    new: NewCa,
    request: CertificateRequest,
    subject_of_request: bool,
    file: String,
}

impl CheckedRequest {
    fn read_all(planned: &[PlannedIntermediate], requests: &Path) -> Result<Vec<Self>, CeremonyError> {
        let wanted: Vec<Self> =
            planned.iter().map(|one| Self::read(one, requests)).collect::<Result<_, _>>()?;
        let mut files: Vec<String> = wanted.iter().map(|one| one.file.to_lowercase()).collect();
        files.sort();
        if let Some(pair) = files.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(CeremonyError::Plan(format!("two intermediates have the name {:?}", pair[0])));
        }
        Ok(wanted)
    }

    fn read(planned: &PlannedIntermediate, requests: &Path) -> Result<Self, CeremonyError> {
        check_name(&planned.name)?;
        let bad = |reason: String| CeremonyError::Request { name: planned.name.clone(), reason };
        let path = requests.join(&planned.request);
        let bytes = read_bounded(&path, INPUT_MAX).map_err(at(&path))?;
        let request = CertificateRequest::from_pem_or_der(&bytes).map_err(|error| bad(error.to_string()))?;
        request
            .verify()
            .map_err(|error| bad(format!("the request has no valid proof of possession: {error}")))?;
        let kind = KeyType::of(&request.public_key);
        let kind = kind.ok_or_else(|| bad("the key type or size is not supported".to_owned()))?;
        let new = NewCa {
            key_type: kind,
            lifetime_seconds: planned.lifetime_seconds,
            path_length: Some(planned.path_length),
            name_limits: planned.name_limits.clone(),
            policies: planned.policies.clone(),
            extended_key_usage: planned.extended_key_usage.clone(),
            ..NewCa::intermediate(&planned.name, planned.subject.as_deref().unwrap_or(&request.subject.text))
        };
        new.read().map_err(|error| bad(error.to_string()))?;
        let file = planned.name.replace(' ', "-");
        Ok(Self { new, request, subject_of_request: planned.subject.is_none(), file })
    }
}

/// A root that signs in a ceremony.
struct Session<'a> {
    kind: Kind,
    key: &'a PrivateKey,
    root: &'a Certificate,
    clock: &'a Clock,
    tool: &'a str,
    began: UnixTime,
}

/// Documents that the root has signed, before they are written.
struct SignedOutput {
    signed: Vec<SignedFacts>,
    files: Vec<(String, Vec<u8>)>,
}

impl Session<'_> {
    async fn make(
        &self,
        common: &CeremonyDetails<'_>,
        wanted: &[CheckedRequest],
    ) -> Result<SignedOutput, CeremonyError> {
        let root = pem::encode("CERTIFICATE", &self.root.der).into_bytes();
        let mut made = SignedOutput {
            signed: Vec::with_capacity(wanted.len()),
            files: vec![(ROOT_FILE.to_owned(), root)],
        };
        for one in wanted {
            self.sign_request(one, common.published, &mut made).await?;
        }
        if let Some(crl) = common.crl {
            made.files.push((CRL_FILE.to_owned(), self.sign_crl(crl)?));
        }
        Ok(made)
    }

    fn finish(
        &self,
        common: &CeremonyDetails<'_>,
        parameters: serde_json::Value,
        made: SignedOutput,
        mut out: Folder,
        folder: &Path,
    ) -> Result<Transcript, CeremonyError> {
        let failed = at(folder);
        for (name, content) in &made.files {
            out.write(name, content, false).map_err(&failed)?;
        }
        let transcript = Transcript {
            format: FORMAT.to_owned(),
            kind: self.kind,
            tool: self.tool.to_owned(),
            began: self.began.to_string(),
            ended: now(self.clock).to_string(),
            operators: common.operators.to_vec(),
            location: common.location.map(str::to_owned),
            notes: common.notes.map(str::to_owned),
            parameters,
            root: CertificateFacts::of(ROOT_FILE, self.root),
            signed: made.signed,
            files: out.files().to_vec(),
            signature_algorithm: self.key.algorithm().to_string(),
        };
        let json = serde_json::to_vec_pretty(&transcript);
        let json = json.map_err(|error| CeremonyError::Plan(error.to_string()))?;
        let signature = self.key.sign_now(&json)?;
        let written = out
            .write_without_recording(TRANSCRIPT_FILE, &json, false)
            .and_then(|()| out.write_without_recording(TEXT_FILE, transcript.to_text().as_bytes(), false))
            .and_then(|()| out.write_without_recording(SIGNATURE_FILE, &signature, false))
            .and_then(|()| out.sync());
        written.map_err(&failed)?;
        Ok(transcript)
    }

    async fn sign_request(
        &self,
        wanted: &CheckedRequest,
        published: &Published,
        made: &mut SignedOutput,
    ) -> Result<(), CeremonyError> {
        let one = |url: &Option<String>| url.iter().cloned().collect();
        let points = PublicationUrls {
            crl: one(&published.crl_url),
            ocsp: one(&published.ocsp_url),
            issuer: one(&published.issuer_url),
        };
        let issuer = Issuer { name: "the root", certificate: self.root, signer: self.key, points };
        let path_length = path_length_below(&issuer, wanted.new.path_length)?;
        let dates = Dates::of(&wanted.new, self.began).within(self.root, self.began)?;
        let mut read = wanted.new.read()?;
        if wanted.subject_of_request {
            // Copies the subject bytes of the CSR unchanged, as its creator expects.
            read.subject = wanted.request.subject.clone();
        }
        let spki = &wanted.request.public_key.spki;
        let body = Body::of(&wanted.new, &read, spki, path_length);
        let certificate = certify(body, self.key, Some(&issuer), dates).await?.certificate;
        let (request_file, file) = (format!("{}.csr.pem", wanted.file), format!("{}.pem", wanted.file));
        let request = pem::encode("CERTIFICATE REQUEST", &wanted.request.der).into_bytes();
        let text = pem::encode("CERTIFICATE", &certificate.der).into_bytes();
        made.signed.push(SignedFacts {
            certificate: CertificateFacts::of(&file, &certificate),
            request_file: request_file.clone(),
        });
        made.files.extend([(request_file, request), (file, text)]);
        Ok(())
    }

    fn sign_crl(&self, planned: &PlannedCrl) -> Result<Vec<u8>, CeremonyError> {
        let next = self.began.plus(planned.lifetime_seconds);
        if planned.lifetime_seconds < 1 || planned.number == 0 {
            return Err(CeremonyError::Plan("crl: lifetime_seconds and number must be above 0".to_owned()));
        }
        let revoked: Vec<Revoked> = planned
            .revoked
            .iter()
            .map(|one| {
                let at = one.at.parse::<jiff::Timestamp>();
                let at =
                    at.map_err(|_| CeremonyError::Plan(format!("{:?} is not an RFC 3339 time", one.at)))?;
                let at = UnixTime(at.as_second());
                Ok(Revoked {
                    serial: one.serial.clone(),
                    at,
                    reason: Some(one.reason),
                    invalidity_date: None,
                })
            })
            .collect::<Result<_, CeremonyError>>()?;
        let key_id = self.root.subject_key_id.clone();
        let tbs = tbs_crl(
            &CrlSpec {
                signature: self.key.algorithm(),
                issuer: &self.root.subject.der,
                this_update: self.began,
                next_update: next,
                number: planned.number,
                authority_key_id: &key_id.unwrap_or_else(|| build::key_id(self.key.spki()).to_vec()),
                base: None,
                distribution_point: None,
                scope: Scope::All,
                freshest: None,
            },
            &revoked,
        );
        Ok(build::signed(&tbs, &self.key.algorithm(), &self.key.sign_now(&tbs)?))
    }
}

//! Verification of the output directory of a ceremony.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use keys::KeyType;
use x509::{Certificate, Fingerprint, pem, verify_signature};

use super::transcript::{CertificateFacts, FORMAT, FileFacts, Transcript};
use super::{SIGNATURE_FILE, TEXT_FILE, TRANSCRIPT_FILE};

/// Maximum size in bytes of any file of a ceremony. A transcript with 1,000 CSRs has about 1 MB.
const FILE_MAX: u64 = 16 * 1024 * 1024;

/// The result of [`verify_transcript`]: the transcript, and the secret files that this copy of the directory lacks.
#[derive(Clone, Debug)]
pub struct Verified {
    /// The transcript that was verified against the root, the files and the certificates.
    pub transcript: Transcript,
    /// Secret files that are missing in this copy of the directory.
    pub absent: Vec<String>,
}

/// Reason why a transcript is not valid.
#[derive(Debug, thiserror::Error)]
pub enum TranscriptError {
    /// A file is missing or cannot be read.
    #[error("{path}: {error}")]
    File {
        /// Path of the file.
        path: PathBuf,
        /// The error of the operating system.
        error: io::Error,
    },
    /// The file is not a Bulla transcript.
    #[error("{TRANSCRIPT_FILE} is not a transcript that this version supports: {0}")]
    Malformed(String),
    /// The root is not the expected one.
    #[error("the SHA-256 fingerprint of the root is {found}, expected {expected}")]
    OtherRoot {
        /// Fingerprint of the root in the directory.
        found: Fingerprint,
        /// Fingerprint that the caller expects.
        expected: Fingerprint,
    },
    /// The signature does not match the transcript and the root.
    #[error(
        "{SIGNATURE_FILE} is not a signature of {TRANSCRIPT_FILE} by this root: one of the two files was changed"
    )]
    Signature,
    /// The file was changed.
    #[error("{0} was changed after the ceremony")]
    Changed(String),
    /// A certificate does not match the transcript or was not issued by this root.
    #[error("{file}: {reason}")]
    Certificate {
        /// Name of the certificate file.
        file: String,
        /// Description of the difference.
        reason: String,
    },
}

/// Verifies the output directory of a ceremony. The transcript must be signed by its root, every file must be unchanged (secret
/// ones may be missing), and every certificate must be issued by the root. Only the fingerprint identifies the root: pass the
/// fingerprint from the paper record as `expected`, or compare it yourself.
///
/// # Errors
/// [`TranscriptError`] describes the first fault.
pub fn verify_transcript(folder: &Path, expected: Option<&Fingerprint>) -> Result<Verified, TranscriptError> {
    let json = read(folder, TRANSCRIPT_FILE)?;
    let transcript: Transcript =
        serde_json::from_slice(&json).map_err(|error| TranscriptError::Malformed(error.to_string()))?;
    if transcript.format != FORMAT {
        return Err(TranscriptError::Malformed(format!("unknown format {:?}", transcript.format)));
    }
    let root = certificate(folder, &transcript.root)?;
    if let Some(expected) = expected.filter(|expected| **expected != root.fingerprint) {
        return Err(TranscriptError::OtherRoot { found: root.fingerprint, expected: *expected });
    }
    signed_by(&root, &root, &transcript.root.file)?;
    let kind = KeyType::of(&root.public_key).ok_or(TranscriptError::Signature)?;
    let signature = read(folder, SIGNATURE_FILE)?;
    verify_signature(&root.public_key, &kind.algorithm(), &json, &signature)
        .map_err(|_| TranscriptError::Signature)?;
    if read(folder, TEXT_FILE)? != transcript.to_text().as_bytes() {
        return Err(TranscriptError::Changed(TEXT_FILE.to_owned()));
    }
    let mut absent = Vec::new();
    for file in &transcript.files {
        if !unchanged(folder, file)? {
            absent.push(file.name.clone());
        }
    }
    for signed in &transcript.signed {
        let certificate = certificate(folder, &signed.certificate)?;
        signed_by(&certificate, &root, &signed.certificate.file)?;
    }
    Ok(Verified { transcript, absent })
}

/// Checks that a file is unchanged. Returns false if a secret file is missing, and an error for a changed file or any other missing
/// file.
fn unchanged(folder: &Path, file: &FileFacts) -> Result<bool, TranscriptError> {
    match read(folder, &file.name) {
        Ok(content) if Fingerprint::of(&content) == file.sha256 => Ok(true),
        Ok(_) => Err(TranscriptError::Changed(file.name.clone())),
        Err(TranscriptError::File { error, .. })
            if file.secret && error.kind() == io::ErrorKind::NotFound =>
        {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

fn certificate(folder: &Path, facts: &CertificateFacts) -> Result<Certificate, TranscriptError> {
    let bad =
        |reason: &str| TranscriptError::Certificate { file: facts.file.clone(), reason: reason.to_owned() };
    let text = read(folder, &facts.file)?;
    let der = pem::certificates(&text).next().ok_or_else(|| bad("the file has no certificate"))?.1;
    let certificate = Certificate::parse(&der).map_err(|error| bad(&error.to_string()))?;
    if CertificateFacts::of(&facts.file, &certificate) == *facts {
        Ok(certificate)
    } else {
        Err(bad("the certificate differs from the one in the transcript"))
    }
}

fn signed_by(certificate: &Certificate, root: &Certificate, file: &str) -> Result<(), TranscriptError> {
    let by_root =
        certificate.issuer.matches(&root.subject) && certificate.signed_by(&root.public_key).is_ok();
    let reason = "the certificate is not signed by the root".to_owned();
    if by_root { Ok(()) } else { Err(TranscriptError::Certificate { file: file.to_owned(), reason }) }
}

/// Reads a file by a name from the unverified transcript. Rejects names that lead out of the directory.
fn read(folder: &Path, name: &str) -> Result<Vec<u8>, TranscriptError> {
    let plain = Path::new(name).file_name().is_some_and(|plain| plain == name) && !name.contains('\0');
    if !plain {
        return Err(TranscriptError::Malformed(format!("{name:?} is not a file name in the folder")));
    }
    let path = folder.join(name);
    read_bounded(&path, FILE_MAX).map_err(|error| TranscriptError::File { path, error })
}

/// Reads a whole file of at most `max` bytes.
pub(crate) fn read_bounded(path: &Path, max: u64) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    File::open(path)?.take(max + 1).read_to_end(&mut content)?;
    if content.len() as u64 > max {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("larger than {max} bytes")));
    }
    Ok(content)
}

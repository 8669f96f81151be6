//! The transcript of a ceremony, as JSON and as text for people.

use std::fmt::{self, Write as _};

use serde::{Deserialize, Serialize};
use x509::{Certificate, Fingerprint, SerialNumber, SpkiHash};

/// Format of the transcript. The number changes with every incompatible change.
pub(crate) const FORMAT: &str = "bulla-ceremony/1";

/// The kind of a ceremony: creation of a root, or signatures with an existing root.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A new root was created. It signed the documents of the plan.
    CreateRoot,
    /// An existing root signed documents.
    Sign,
}

/// The record of a ceremony: participants, plan, signed certificates, and the hashes of all files.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Transcript {
    /// The constant `bulla-ceremony/1`.
    pub format: String,
    /// Whether the ceremony created a root, or signed documents with an existing root.
    pub kind: Kind,
    /// Name and version of the program that ran the ceremony.
    pub tool: String,
    /// Start time of the ceremony, RFC 3339.
    pub began: String,
    /// End time of the ceremony, RFC 3339.
    pub ended: String,
    /// Names of the participants.
    pub operators: Vec<String>,
    /// Place where the ceremony took place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub location: Option<String>,
    /// Notes from the ceremony plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notes: Option<String>,
    /// The ceremony plan as JSON, as it was read.
    pub parameters: serde_json::Value,
    /// Identity, key and validity of the root's certificate.
    pub root: CertificateFacts,
    /// Certificates that the root signed for the CSRs of the plan.
    pub signed: Vec<SignedFacts>,
    /// Every file in the directory except the files of the transcript itself.
    pub files: Vec<FileFacts>,
    /// Signature algorithm of the transcript.
    pub signature_algorithm: String,
}

/// Identity, key and validity of a certificate that a ceremony wrote to a file.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct CertificateFacts {
    /// Name of the file that contains the certificate.
    pub file: String,
    /// Subject of the certificate.
    pub subject: String,
    /// Serial number of the certificate.
    pub serial: SerialNumber,
    /// SHA-256 of the certificate in DER.
    pub fingerprint: Fingerprint,
    /// SHA-256 of the SubjectPublicKeyInfo.
    pub spki_sha256: SpkiHash,
    /// Algorithm of the subject's key.
    pub key_algorithm: String,
    /// First second of validity.
    pub not_before: String,
    /// Last second of validity.
    pub not_after: String,
}

/// A certificate that the root signed, and its CSR.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct SignedFacts {
    /// Identity, key and validity of the certificate.
    #[serde(flatten)]
    pub certificate: CertificateFacts,
    /// Name of the CSR file.
    pub request_file: String,
}

/// Name, length and hash of a file in the output directory of a ceremony.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct FileFacts {
    /// Name of the file in the directory.
    pub name: String,
    /// Length in bytes.
    pub octets: u64,
    /// SHA-256 of the content of the file.
    pub sha256: Fingerprint,
    /// Whether the file is secret. Copies of the directory may omit secret files.
    pub secret: bool,
}

impl CertificateFacts {
    pub(crate) fn of(file: &str, certificate: &Certificate) -> Self {
        Self {
            file: file.to_owned(),
            subject: certificate.subject.text.clone(),
            serial: certificate.serial.clone(),
            fingerprint: certificate.fingerprint,
            spki_sha256: certificate.public_key.spki_sha256,
            key_algorithm: certificate.public_key.algorithm.to_string(),
            not_before: certificate.not_before.to_string(),
            not_after: certificate.not_after.to_string(),
        }
    }

    fn show(&self, out: &mut String) -> fmt::Result {
        writeln!(out, "  File:         {}", self.file)?;
        writeln!(out, "  Subject:      {}", escape_line_breaks(&self.subject))?;
        writeln!(out, "  Serial:       {}", self.serial)?;
        writeln!(out, "  Key:          {}", escape_line_breaks(&self.key_algorithm))?;
        writeln!(out, "  Valid from:   {}", escape_line_breaks(&self.not_before))?;
        writeln!(out, "  Valid until:  {}", escape_line_breaks(&self.not_after))?;
        writeln!(out, "  SHA-256:      {}", self.fingerprint)?;
        writeln!(out, "  Key SHA-256:  {}", self.spki_sha256)
    }
}

impl Transcript {
    /// Formats the transcript for people, to be read aloud and signed on paper. The output is deterministic.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut out = String::new();
        // Writing to a String does not fail.
        let _ = self.show(&mut out);
        out
    }

    fn show(&self, out: &mut String) -> fmt::Result {
        let title = match self.kind {
            Kind::CreateRoot => "Ceremony: create a root certification authority",
            Kind::Sign => "Ceremony: sign with a root certification authority",
        };
        writeln!(out, "{title}\n{}\n", "=".repeat(title.len()))?;
        writeln!(out, "Program:   {}", escape_line_breaks(&self.tool))?;
        writeln!(out, "Began:     {}", escape_line_breaks(&self.began))?;
        writeln!(out, "Ended:     {}", escape_line_breaks(&self.ended))?;
        for operator in &self.operators {
            writeln!(out, "Operator:  {}", escape_line_breaks(operator))?;
        }
        for (name, text) in [("Place:     ", &self.location), ("Notes:     ", &self.notes)] {
            if let Some(text) = text {
                writeln!(out, "{name}{}", escape_line_breaks(text))?;
            }
        }
        writeln!(out, "\nRoot")?;
        self.root.show(out)?;
        for signed in &self.signed {
            writeln!(out, "\nSigned")?;
            signed.certificate.show(out)?;
            writeln!(out, "  Request:      {}", signed.request_file)?;
        }
        writeln!(out, "\nFiles (SHA-256)")?;
        for file in &self.files {
            let secret = if file.secret { "  (secret)" } else { "" };
            writeln!(out, "  {}  {}  {} bytes{secret}", file.sha256, file.name, file.octets)?;
        }
        writeln!(out, "\nParameters")?;
        writeln!(out, "{}", serde_json::to_string_pretty(&self.parameters).map_err(|_| fmt::Error)?)?;
        writeln!(
            out,
            "\ntranscript.json is signed by the root ({}). The signature is in transcript.sig.",
            escape_line_breaks(&self.signature_algorithm)
        )?;
        writeln!(out, "\nHandwritten signatures")?;
        for operator in &self.operators {
            writeln!(out, "\n  ______________________________  {}", escape_line_breaks(operator))?;
        }
        Ok(())
    }
}

/// Formats text so that its line breaks cannot imitate lines of the transcript.
fn escape_line_breaks(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

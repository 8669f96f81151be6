//! The transcript of a ceremony, for programs and for people.

use std::fmt::{self, Write as _};

use serde::{Deserialize, Serialize};
use x509::{Certificate, Fingerprint, SerialNumber, SpkiHash};

/// The form of the transcript; another number, another form.
pub(crate) const FORMAT: &str = "bulla-ceremony/1";

/// The kind of a ceremony.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A root was made.
    CreateRoot,
    /// A root made before signed.
    Sign,
}

/// The record of a ceremony.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Transcript {
    /// `bulla-ceremony/1`.
    pub format: String,
    /// Which ceremony.
    pub kind: Kind,
    /// The program and its version.
    pub tool: String,
    /// Start time, RFC 3339.
    pub began: String,
    /// End time.
    pub ended: String,
    /// The participants.
    pub operators: Vec<String>,
    /// The location.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub location: Option<String>,
    /// Notes of the plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notes: Option<String>,
    /// The plan, as it was read.
    pub parameters: serde_json::Value,
    /// The root.
    pub root: CertificateFacts,
    /// The signed certificates.
    pub signed: Vec<SignedFacts>,
    /// Every file in the folder but the transcript's own.
    pub files: Vec<FileFacts>,
    /// How the root signs the transcript.
    pub signature_algorithm: String,
}

/// Facts about a certificate.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct CertificateFacts {
    /// Its file.
    pub file: String,
    /// Its subject.
    pub subject: String,
    /// Its serial number.
    pub serial: SerialNumber,
    /// SHA-256 of its DER.
    pub fingerprint: Fingerprint,
    /// SHA-256 of its SubjectPublicKeyInfo.
    pub spki_sha256: SpkiHash,
    /// The kind of its key.
    pub key_algorithm: String,
    /// First second of its validity.
    pub not_before: String,
    /// Last second of its validity.
    pub not_after: String,
}

/// A certificate that the root signed, and its request.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct SignedFacts {
    /// The certificate.
    #[serde(flatten)]
    pub certificate: CertificateFacts,
    /// The request's file.
    pub request_file: String,
}

/// A file.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct FileFacts {
    /// Its name in the folder.
    pub name: String,
    /// Its length.
    pub octets: u64,
    /// The SHA-256 fingerprint.
    pub sha256: Fingerprint,
    /// It is kept apart, and copies of the folder do without it.
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
        writeln!(out, "  Subject:      {}", shown(&self.subject))?;
        writeln!(out, "  Serial:       {}", self.serial)?;
        writeln!(out, "  Key:          {}", shown(&self.key_algorithm))?;
        writeln!(out, "  Valid from:   {}", shown(&self.not_before))?;
        writeln!(out, "  Valid until:  {}", shown(&self.not_after))?;
        writeln!(out, "  SHA-256:      {}", self.fingerprint)?;
        writeln!(out, "  Key SHA-256:  {}", self.spki_sha256)
    }
}

impl Transcript {
    /// For people, to be read aloud and signed on paper. Made from the rest: the same transcript, the same text.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut out = String::new();
        // Writing into a String does not fail.
        let _ = self.show(&mut out);
        out
    }

    fn show(&self, out: &mut String) -> fmt::Result {
        let title = match self.kind {
            Kind::CreateRoot => "Ceremony: a root certification authority is made",
            Kind::Sign => "Ceremony: a root certification authority signs",
        };
        writeln!(out, "{title}\n{}\n", "=".repeat(title.len()))?;
        writeln!(out, "Program:   {}", shown(&self.tool))?;
        writeln!(out, "Began:     {}", shown(&self.began))?;
        writeln!(out, "Ended:     {}", shown(&self.ended))?;
        for operator in &self.operators {
            writeln!(out, "Operator:  {}", shown(operator))?;
        }
        for (name, text) in [("Place:     ", &self.location), ("Notes:     ", &self.notes)] {
            if let Some(text) = text {
                writeln!(out, "{name}{}", shown(text))?;
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
            writeln!(out, "  {}  {}  {} octets{secret}", file.sha256, file.name, file.octets)?;
        }
        writeln!(out, "\nParameters")?;
        writeln!(out, "{}", serde_json::to_string_pretty(&self.parameters).map_err(|_| fmt::Error)?)?;
        writeln!(
            out,
            "\nThe root signed transcript.json ({}): see transcript.sig.",
            shown(&self.signature_algorithm)
        )?;
        writeln!(out, "\nSignatures on paper")?;
        for operator in &self.operators {
            writeln!(out, "\n  ______________________________  {}", shown(operator))?;
        }
        Ok(())
    }
}

/// A text of several lines must not look like lines of ours.
fn shown(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

//! Offline ceremonies on a machine without database or network. They create a root, or sign CSRs and a CRL with an existing root.
//! The root signs a transcript of the output directory.

mod folder;
mod plan;
mod run;
mod transcript;
mod verify;

pub use plan::{CeremonyPlan, PlannedCrl, PlannedIntermediate, PlannedRevocation, Published, SigningPlan};
pub use run::{CeremonyError, create_root, sign};
pub use transcript::{CertificateFacts, FileFacts, Kind, SignedFacts, Transcript};
pub use verify::{TranscriptError, Verified, verify_transcript};

/// File with the certificate of the root.
pub const ROOT_FILE: &str = "root.pem";
/// File with the private key of the root, PKCS#8, encrypted with the passphrase.
pub const KEY_FILE: &str = "root.key.pem";
/// File with the CRL of the root, DER.
pub const CRL_FILE: &str = "root.crl";
/// File with the transcript, JSON.
pub const TRANSCRIPT_FILE: &str = "transcript.json";
/// File with the transcript as human-readable text.
pub const TEXT_FILE: &str = "transcript.txt";
/// File with the root's raw signature of [`TRANSCRIPT_FILE`], which `openssl dgst -verify` accepts.
pub const SIGNATURE_FILE: &str = "transcript.sig";

//! Offline ceremonies: a root made, requests and a revocation list signed by it, on a machine without database or
//! network, into a folder whose transcript the root itself signs.

mod folder;
mod plan;
mod run;
mod transcript;
mod verify;

pub use plan::{CeremonyPlan, PlannedCrl, PlannedIntermediate, PlannedRevocation, Published, SigningPlan};
pub use run::{CeremonyError, create_root, sign};
pub use transcript::{CertificateFacts, FileFacts, Kind, SignedFacts, Transcript};
pub use verify::{TranscriptError, Verified, verify_transcript};

/// The root's certificate.
pub const ROOT_FILE: &str = "root.pem";
/// The root's private key, PKCS#8 under the passphrase.
pub const KEY_FILE: &str = "root.key.pem";
/// The root's revocation list, DER.
pub const CRL_FILE: &str = "root.crl";
/// The transcript, JSON.
pub const TRANSCRIPT_FILE: &str = "transcript.json";
/// The same for people.
pub const TEXT_FILE: &str = "transcript.txt";
/// The root's signature over [`TRANSCRIPT_FILE`], raw: `openssl dgst -verify` reads it.
pub const SIGNATURE_FILE: &str = "transcript.sig";

//! Errors of TPM operations.

use std::io;

/// A TPM operation failed.
#[derive(Debug, thiserror::Error)]
pub enum TpmError {
    /// The address of the TPM is invalid.
    #[error("{0:?} is no TPM: give a device such as /dev/tpmrm0, unix:PATH or tcp:ADDRESS:PORT")]
    Address(String),
    /// The register does not exist.
    #[error("there is no PCR {0}: give 0 to 23")]
    Pcr(u8),
    /// The authorization value is too long.
    #[error("the authorisation value has {0} bytes; 32 is the most")]
    AuthLength(usize),
    /// The TPM cannot be reached.
    #[error("the TPM cannot be used")]
    Io(#[source] io::Error),
    /// The response violates the specification, or was changed on its way.
    #[error("the TPM's answer to {command} is wrong: {what}")]
    Response {
        /// Name of the command.
        command: &'static str,
        /// What is wrong with the response.
        what: &'static str,
    },
    /// The registers have other values than when the key was sealed.
    #[error("the PCRs differ from when the key was sealed: firmware, boot loader or kernel were changed")]
    Pcrs,
    /// The authorization value is not the one that the key was sealed with.
    #[error("the authorisation value is not the one that the key was sealed with")]
    Auth,
    /// The TPM is locked after too many wrong authorization values.
    #[error(
        "the TPM is locked after too many wrong authorisation values; wait, or clear it: tpm2_dictionarylockout -c"
    )]
    Lockout,
    /// The key was sealed by another TPM, or this TPM was cleared.
    #[error("the key was not sealed by this TPM, or the TPM was cleared since")]
    OtherTpm,
    /// The sealed bytes are not in the expected format.
    #[error("this is nothing that a TPM sealed")]
    Sealed,
    /// The TPM refused the command for another reason.
    #[error("the TPM refuses {command} (response code {code:#05x}; tpm2_rc_decode says what that means)")]
    Refused {
        /// Name of the command.
        command: &'static str,
        /// Response code of the TPM.
        code: u32,
    },
    /// The operating system returned no randomness, or the TPM's key is not a point on its curve.
    #[error("no session can be started: {0}")]
    Session(&'static str),
}

/// Flag of format-one codes. They have the error number in six bits; the other bits identify the parameter, handle or session.
const FORMAT_ONE: u32 = 0x80;
const AUTH_FAIL: u32 = 0x0E;
const POLICY_FAIL: u32 = 0x1D;
const INTEGRITY: u32 = 0x1F;
const BAD_AUTH: u32 = 0x22;
const LOCKOUT: u32 = 0x921;

impl TpmError {
    /// Returns the error for a response code.
    pub(super) fn of(command: &'static str, code: u32) -> Self {
        match code & 0x3F {
            _ if code == LOCKOUT => Self::Lockout,
            _ if code & FORMAT_ONE == 0 => Self::Refused { command, code },
            POLICY_FAIL => Self::Pcrs,
            AUTH_FAIL | BAD_AUTH => Self::Auth,
            INTEGRITY => Self::OtherTpm,
            _ => Self::Refused { command, code },
        }
    }

    pub(super) fn with_causes(&self) -> String {
        match self {
            Self::Io(error) => format!("{self}: {error}"),
            _ => self.to_string(),
        }
    }
}

impl From<io::Error> for TpmError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

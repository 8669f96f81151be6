//! Errors of TPM operations.

use std::io;

/// Reason why a TPM operation failed.
#[derive(Debug, thiserror::Error)]
pub enum TpmError {
    /// The address of the TPM is invalid.
    #[error("{0:?} is not a TPM: give a device such as /dev/tpmrm0, unix:PATH or tcp:ADDRESS:PORT")]
    Address(String),
    /// No platform configuration register has this number.
    #[error("unknown PCR {0}: give 0 to 23")]
    Pcr(u8),
    /// The authorization value is longer than 32 bytes; contains its length.
    #[error("the authorization value has {0} bytes; at most 32 are allowed")]
    AuthLength(usize),
    /// The TPM cannot be reached.
    #[error("cannot communicate with the TPM")]
    Io(#[source] io::Error),
    /// The response violates the specification, or was changed on its way.
    #[error("invalid TPM response to {command}: {what}")]
    Response {
        /// TPM command that returned the response, for example `Create`.
        command: &'static str,
        /// Description of the fault in the response.
        what: &'static str,
    },
    /// The registers have other values than when the key was sealed.
    #[error(
        "the PCR values changed since the key was sealed: the firmware, boot loader or kernel was changed"
    )]
    Pcrs,
    /// The authorization value is not the one that the key was sealed with.
    #[error("wrong authorization value for the sealed key")]
    Auth,
    /// The TPM is locked after too many wrong authorization values.
    #[error(
        "the TPM is locked after too many wrong authorization values; wait, or clear the lockout: tpm2_dictionarylockout -c"
    )]
    Lockout,
    /// The key was sealed by another TPM, or this TPM was cleared.
    #[error("the key was not sealed by this TPM, or the TPM was cleared since")]
    OtherTpm,
    /// The sealed bytes are not in the expected format.
    #[error("the value is not in the format of a value that a TPM sealed")]
    Sealed,
    /// The TPM refused the command for another reason.
    #[error("the TPM rejects {command} (response code {code:#05x}; decode it with tpm2_rc_decode)")]
    Refused {
        /// TPM command that was refused, for example `Create`.
        command: &'static str,
        /// Response code of the TPM.
        code: u32,
    },
    /// The operating system returned no randomness, or the TPM's key is not a point on its curve.
    #[error("cannot start a TPM session: {0}")]
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

    pub(super) fn message_with_causes(&self) -> String {
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

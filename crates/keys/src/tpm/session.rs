//! Sessions (Part 1, 19): authorization by HMAC, and encryption of one parameter.

use zeroize::Zeroizing;

use super::command::{CommandCode, Response, START_AUTH_SESSION, send, send_authorized};
use super::crypto::{HASH, Salt, hmac_sha256, kdf_a, sha256};
use super::error::TpmError;
use super::transport::Connection;
use super::wire::{Reader, Writer};
use crate::random::random;

/// Algorithm ids TPM_ALG_SHA256, TPM_ALG_XOR and TPM_ALG_NULL.
pub(super) const SHA256: u16 = 0x000B;
const XOR: u16 = 0x000A;
pub(super) const NULL: u16 = 0x0010;
/// TPM_RH_NULL.
const NO_HANDLE: u32 = 0x4000_0007;

/// Type of a session.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    /// Authorization by HMAC.
    Hmac = 0,
    /// Authorization by policy.
    Policy = 1,
    /// Computes a policy digest, and authorizes nothing.
    Trial = 3,
}

/// Whether the first parameter of the command or of the response is encrypted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Encrypted {
    Command = 0x20,
    Response = 0x40,
}

/// The storage root key: its handle, name and public point.
pub(super) struct Root {
    pub(super) handle: u32,
    pub(super) name: Vec<u8>,
    pub(super) x: Vec<u8>,
    pub(super) y: Vec<u8>,
}

/// A session with a salt that only the TPM can decrypt. It is valid for one command.
pub(super) struct Session {
    pub(super) handle: u32,
    key: Zeroizing<Vec<u8>>,
    nonce_tpm: Vec<u8>,
}

/// Starts a trial session, without a key, to compute a policy digest.
pub(super) fn start_trial(tpm: &mut Connection) -> Result<u32, TpmError> {
    let mut parameters = Writer::default();
    parameters.sized(&*random::<HASH>()).sized(&[]).u8(Kind::Trial as u8).u16(NULL).u16(SHA256);
    let answer = send(tpm, START_AUTH_SESSION, &[NO_HANDLE, NO_HANDLE], &parameters)?;
    answer.read(Reader::u32)
}

impl Session {
    pub(super) fn start(tpm: &mut Connection, root: &Root, kind: Kind) -> Result<Self, TpmError> {
        let salt = Salt::for_key(&root.x, &root.y)?;
        let mut point = Writer::default();
        point.sized(&salt.x).sized(&salt.y);
        let nonce = random::<HASH>();
        let mut parameters = Writer::default();
        parameters.sized(&*nonce).sized(point.as_slice()).u8(kind as u8).u16(XOR).u16(SHA256).u16(SHA256);
        let answer = send(tpm, START_AUTH_SESSION, &[root.handle, NO_HANDLE], &parameters)?;
        let (handle, nonce_tpm) = answer.read(|of| Some((of.u32()?, of.sized()?.to_vec())))?;
        let key = kdf_a(&*salt.secret, b"ATH", &nonce_tpm, &*nonce, HASH);
        Ok(Self { handle, key, nonce_tpm })
    }

    /// Sends a command for one object, authorized by this session, which ends with the command. `auth` is the object's
    /// authorization value. Returns the decrypted parameters of the response.
    pub(super) fn send(
        self,
        tpm: &mut Connection,
        code: CommandCode,
        (handle, name): (u32, &[u8]),
        (encrypted, auth): (Encrypted, &[u8]),
        mut parameters: Writer,
    ) -> Result<Zeroizing<Vec<u8>>, TpmError> {
        // Part 1, 17.6.4.2: trailing zeros of an authorization value are ignored.
        let auth = &auth[..auth.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)];
        let value = Zeroizing::new([&self.key[..], auth].concat());
        let nonce = random::<HASH>();
        if encrypted == Encrypted::Command {
            let first = first_parameter(parameters.as_mut_slice());
            let first = first.ok_or(TpmError::Session("the command has no parameter to encrypt"))?;
            mask(&value, &*nonce, &self.nonce_tpm, first);
        }
        let hash = sha256(&[&code.0.to_be_bytes(), name, parameters.as_slice()]);
        let attributes = encrypted as u8;
        let proof = hmac_sha256(&value, &[&hash, &*nonce, &self.nonce_tpm, &[attributes]]);
        let mut area = Writer::default();
        area.u32(self.handle).sized(&*nonce).u8(attributes).sized(&proof);
        let answer = send_authorized(tpm, code, &[handle], &area, &parameters)?;
        checked(&answer, code, &value, &*nonce, encrypted)
    }
}

/// Verifies the HMAC of a response, and returns its parameters.
fn checked(
    answer: &Response,
    code: CommandCode,
    value: &[u8],
    nonce: &[u8],
    encrypted: Encrypted,
) -> Result<Zeroizing<Vec<u8>>, TpmError> {
    let (parameters, nonce_tpm, attributes, proof) = answer.read(|of| {
        let size = of.u32()? as usize;
        Some((of.bytes(size)?, of.sized()?, of.u8()?, of.sized()?))
    })?;
    let hash = sha256(&[&0_u32.to_be_bytes(), &code.0.to_be_bytes(), parameters]);
    let expected = hmac_sha256(value, &[&hash, nonce_tpm, nonce, &[attributes]]);
    if aws_lc_rs::constant_time::verify_slices_are_equal(&expected, proof).is_err() {
        return Err(answer.response_error("the HMAC does not match: the response was changed on its way"));
    }
    let mut parameters = Zeroizing::new(parameters.to_vec());
    if encrypted == Encrypted::Response {
        let first = first_parameter(&mut parameters)
            .ok_or_else(|| answer.response_error("the response is too short"))?;
        mask(value, nonce_tpm, nonce, first);
    }
    Ok(parameters)
}

/// Returns the content of the TPM2B at the start of the parameters.
fn first_parameter(parameters: &mut [u8]) -> Option<&mut [u8]> {
    let (size, rest) = parameters.split_first_chunk_mut::<2>()?;
    rest.get_mut(..u16::from_be_bytes(*size).into())
}

/// Encrypts or decrypts by exclusive or with a derived mask (Part 1, 21.2).
fn mask(value: &[u8], newer: &[u8], older: &[u8], data: &mut [u8]) {
    let mask = kdf_a(value, b"XOR", newer, older, data.len());
    data.iter_mut().zip(mask.iter()).for_each(|(byte, mask)| *byte ^= mask);
}

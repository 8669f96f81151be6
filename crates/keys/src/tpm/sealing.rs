//! Sealing of a secret under the TPM's storage root key, and opening it.

use zeroize::Zeroizing;

use super::command::{
    CREATE, CREATE_PRIMARY, LOAD, POLICY_AUTH_VALUE, POLICY_GET_DIGEST, POLICY_PCR, UNSEAL, flush, send,
    send_open,
};
use super::error::TpmError;
use super::pcrs::Pcrs;
use super::session::{Encrypted, Kind, NULL, Root, SHA256, Session, start_trial};
use super::transport::Connection;
use super::wire::{Reader, Writer};

/// Conditions for opening a sealed key: the register values and the authorization value.
#[derive(Clone)]
pub(super) struct Policy {
    pub(super) pcrs: Pcrs,
    pub(super) auth: Zeroizing<Vec<u8>>,
}

/// TPM_RH_OWNER.
const OWNER: u32 = 0x4000_0001;
const ECC: u16 = 0x0023;
const KEYED_HASH: u16 = 0x0008;
const AES: u16 = 0x0006;
const CFB: u16 = 0x0043;
const P256: u16 = 0x0003;
/// TPMA_OBJECT of the storage root key: fixedTPM, fixedParent, sensitiveDataOrigin, userWithAuth, noDA, restricted, decrypt.
const ROOT_ATTRIBUTES: u32 = 0x0003_0472;
/// TPMA_OBJECT of the sealed object: fixedTPM and fixedParent. Without userWithAuth, only the policy opens it.
const SEALED_ATTRIBUTES: u32 = 0x12;
/// noDA: wrong authorization values do not lock the TPM. Set if the value is empty, because then there is nothing to guess.
const NO_LOCKOUT: u32 = 0x400;
/// Version of the sealed format.
const VERSION: u8 = 1;

/// Seals a secret. Returns the version, the registers, and the object's private and public parts.
pub(super) fn seal(tpm: &mut Connection, policy: &Policy, secret: &[u8]) -> Result<Vec<u8>, TpmError> {
    let root = root(tpm)?;
    let sealed = seal_under_root(tpm, &root, policy, secret);
    let flushed = flush(tpm, root.handle);
    let sealed = sealed?;
    flushed.map(|()| sealed)
}

fn seal_under_root(
    tpm: &mut Connection,
    root: &Root,
    policy: &Policy,
    secret: &[u8],
) -> Result<Vec<u8>, TpmError> {
    let digest = policy_digest(tpm, policy.pcrs)?;
    let mut sensitive = Writer::default();
    sensitive.sized(&policy.auth).sized(secret);
    let attributes = SEALED_ATTRIBUTES | if policy.auth.is_empty() { NO_LOCKOUT } else { 0 };
    let mut public = Writer::default();
    public.u16(KEYED_HASH).u16(SHA256).u32(attributes).sized(&digest).u16(NULL).sized(&[]);
    let mut parameters = Writer::default();
    // No outside information, and no creation PCRs.
    parameters.sized(sensitive.as_slice()).sized(public.as_slice()).sized(&[]).u32(0);
    let session = Session::start(tpm, root, Kind::Hmac)?;
    let object = (root.handle, &root.name[..]);
    let made = session.send(tpm, CREATE, object, (Encrypted::Command, &[]), parameters)?;
    let mut made = Reader::new(&made);
    let wrong = || TpmError::Response { command: CREATE.1, what: "the response is too short" };
    let (private, public) = made.sized().zip(made.sized()).ok_or_else(wrong)?;
    let mut sealed = Writer::default();
    sealed.u8(VERSION).u32(policy.pcrs.0).sized(private).sized(public);
    Ok(sealed.as_slice().to_vec())
}

/// Opens the output of [`seal`].
pub(super) fn unseal(
    tpm: &mut Connection,
    policy: &Policy,
    sealed: &[u8],
) -> Result<Zeroizing<Vec<u8>>, TpmError> {
    let mut of = Reader::new(sealed);
    let parts = || Some((of.u8()?, of.u32()?, of.sized()?, of.sized()?, of.rest()));
    let parts = { parts }();
    let Some((VERSION, pcrs, private, public, [])) = parts else { return Err(TpmError::Sealed) };
    let root = root(tpm)?;
    let opened = unseal_under_root(tpm, &root, (Pcrs(pcrs), &policy.auth), (private, public));
    let flushed = flush(tpm, root.handle);
    let opened = opened?;
    flushed.map(|()| opened)
}

fn unseal_under_root(
    tpm: &mut Connection,
    root: &Root,
    (pcrs, auth): (Pcrs, &[u8]),
    (private, public): (&[u8], &[u8]),
) -> Result<Zeroizing<Vec<u8>>, TpmError> {
    let mut parameters = Writer::default();
    parameters.sized(private).sized(public);
    let loaded = send_open(tpm, LOAD, &[root.handle], &parameters)?;
    let (handle, name) = loaded.read(|of| {
        let handle = of.u32()?;
        // Skips the size of the parameters.
        of.u32()?;
        Some((handle, of.sized()?.to_vec()))
    })?;
    let opened = unseal_loaded(tpm, root, (pcrs, auth), (handle, &name));
    let flushed = flush(tpm, handle);
    let opened = opened?;
    flushed.map(|()| opened)
}

fn unseal_loaded(
    tpm: &mut Connection,
    root: &Root,
    (pcrs, auth): (Pcrs, &[u8]),
    object: (u32, &[u8]),
) -> Result<Zeroizing<Vec<u8>>, TpmError> {
    let session = Session::start(tpm, root, Kind::Policy)?;
    let handle = session.handle;
    let opened = satisfy(tpm, handle, pcrs)
        .and_then(|()| session.send(tpm, UNSEAL, object, (Encrypted::Response, auth), Writer::default()));
    if opened.is_err() {
        // A session ends with the command that it authorized, unless that command failed.
        let _ = flush(tpm, handle);
    }
    let opened = opened?;
    let secret = Reader::new(&opened).sized().map(|secret| Zeroizing::new(secret.to_vec()));
    secret.ok_or(TpmError::Response { command: UNSEAL.1, what: "the response is too short" })
}

/// Computes the policy digest for the current values of the registers.
fn policy_digest(tpm: &mut Connection, pcrs: Pcrs) -> Result<Vec<u8>, TpmError> {
    let trial = start_trial(tpm)?;
    let digest = satisfy(tpm, trial, pcrs).and_then(|()| {
        let answer = send(tpm, POLICY_GET_DIGEST, &[trial], &Writer::default())?;
        answer.read(|of| of.sized().map(<[u8]>::to_vec))
    });
    let flushed = flush(tpm, trial);
    let digest = digest?;
    flushed.map(|()| digest)
}

fn satisfy(tpm: &mut Connection, session: u32, pcrs: Pcrs) -> Result<(), TpmError> {
    if pcrs != Pcrs::default() {
        let mut parameters = Writer::default();
        // An empty digest means the current register values. One selection, of 24 registers in three bytes.
        let [low, middle, high, _] = pcrs.0.to_le_bytes();
        parameters.sized(&[]).u32(1).u16(SHA256).u8(3).bytes(&[low, middle, high]);
        send(tpm, POLICY_PCR, &[session], &parameters)?;
    }
    send(tpm, POLICY_AUTH_VALUE, &[session], &Writer::default()).map(drop)
}

/// Creates the P-256 storage root key of the owner hierarchy. A TPM creates the same key each time, until it is cleared.
fn root(tpm: &mut Connection) -> Result<Root, TpmError> {
    let mut public = Writer::default();
    public.u16(ECC).u16(SHA256).u32(ROOT_ATTRIBUTES).sized(&[]).u16(AES).u16(128).u16(CFB);
    public.u16(NULL).u16(P256).u16(NULL).sized(&[]).sized(&[]);
    let mut parameters = Writer::default();
    // Empty authorization value and data, no outside information, and no creation PCRs.
    parameters.sized(&[0; 4]).sized(public.as_slice()).sized(&[]).u32(0);
    let answer = send_open(tpm, CREATE_PRIMARY, &[OWNER], &parameters)?;
    answer.read(|of| {
        let handle = of.u32()?;
        of.u32()?;
        let (mut public, _data, _hash) = (Reader::new(of.sized()?), of.sized()?, of.sized()?);
        // Skips the ticket: its tag, hierarchy and digest.
        let _ticket = (of.u16()?, of.u32()?, of.sized()?);
        let name = of.sized()?.to_vec();
        // Skips the template fields before the point.
        let _template = (public.bytes(8)?, public.sized()?, public.bytes(12)?);
        Some(Root { handle, name, x: public.sized()?.to_vec(), y: public.sized()?.to_vec() })
    })
}

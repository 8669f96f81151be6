//! Authenticator data: data that an authenticator signs together with the hash of the client data.

use crate::cbor::{self, Value};
use crate::error::Error;
use crate::public_key::PublicKey;
use crate::{AUTHENTICATOR_DATA_MAX, CREDENTIAL_ID_BYTES};

const USER_PRESENT: u8 = 1;
const USER_VERIFIED: u8 = 1 << 2;
const BACKUP_ELIGIBLE: u8 = 1 << 3;
const BACKED_UP: u8 = 1 << 4;
const HAS_CREDENTIAL: u8 = 1 << 6;
const HAS_EXTENSIONS: u8 = 1 << 7;

#[derive(Clone, Debug)]
pub(crate) struct AuthenticatorData<'a> {
    pub(crate) rp_id_hash: [u8; 32],
    flags: u8,
    pub(crate) sign_count: u32,
    pub(crate) credential: Option<AttestedCredential<'a>>,
}

/// The new credential of a registration.
#[derive(Clone, Debug)]
pub(crate) struct AttestedCredential<'a> {
    pub(crate) aaguid: [u8; 16],
    pub(crate) id: &'a [u8],
    /// The `COSE_Key`, as encoded.
    pub(crate) cose: &'a [u8],
    pub(crate) public_key: PublicKey,
}

impl<'a> AuthenticatorData<'a> {
    pub(crate) fn parse(input: &'a [u8]) -> Result<Self, Error> {
        if input.len() > AUTHENTICATOR_DATA_MAX {
            return Err(Error::Size);
        }
        let malformed = Error::AuthenticatorData;
        let (rp_id_hash, rest) = input.split_first_chunk::<32>().ok_or(malformed)?;
        let (&[flags], rest) = rest.split_first_chunk::<1>().ok_or(malformed)?;
        let (count, mut rest) = rest.split_first_chunk::<4>().ok_or(malformed)?;
        // A credential cannot be backed up without being eligible for backup.
        if flags & BACKED_UP != 0 && flags & BACKUP_ELIGIBLE == 0 {
            return Err(malformed);
        }
        let mut credential = None;
        if flags & HAS_CREDENTIAL != 0 {
            let (found, after) = attested(rest)?;
            (credential, rest) = (Some(found), after);
        }
        if flags & HAS_EXTENSIONS != 0 {
            let (extensions, after) = cbor::read(rest)?;
            if !matches!(extensions, Value::Map(_)) {
                return Err(malformed);
            }
            rest = after;
        }
        if !rest.is_empty() {
            return Err(malformed);
        }
        let sign_count = u32::from_be_bytes(*count);
        Ok(Self { rp_id_hash: *rp_id_hash, flags, sign_count, credential })
    }

    pub(crate) fn user_present(&self) -> bool {
        self.flags & USER_PRESENT != 0
    }

    pub(crate) fn user_verified(&self) -> bool {
        self.flags & USER_VERIFIED != 0
    }

    pub(crate) fn backup_eligible(&self) -> bool {
        self.flags & BACKUP_ELIGIBLE != 0
    }

    pub(crate) fn backed_up(&self) -> bool {
        self.flags & BACKED_UP != 0
    }
}

fn attested(input: &[u8]) -> Result<(AttestedCredential<'_>, &[u8]), Error> {
    let malformed = Error::AuthenticatorData;
    let (aaguid, rest) = input.split_first_chunk::<16>().ok_or(malformed)?;
    let (length, rest) = rest.split_first_chunk::<2>().ok_or(malformed)?;
    let length = usize::from(u16::from_be_bytes(*length));
    if !CREDENTIAL_ID_BYTES.contains(&length) {
        return Err(Error::Size);
    }
    let (id, rest) = rest.split_at_checked(length).ok_or(malformed)?;
    let (key, after) = cbor::read(rest)?;
    let cose = &rest[..rest.len() - after.len()];
    Ok((AttestedCredential { aaguid: *aaguid, id, cose, public_key: PublicKey::of(&key)? }, after))
}

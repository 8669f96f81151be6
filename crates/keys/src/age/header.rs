//! The header of an age file: its stanzas (one for each recipient) and its MAC.

use std::io::Read;

use aws_lc_rs::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::{hkdf, hmac};
use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{GeneralPurpose, GeneralPurposeConfig};
use secrecy::{ExposeSecret, SecretString};
use zeroize::Zeroizing;

use super::error::{AgeError, WORK_MAX};
use super::recipient::{Identity, Recipient};
use super::seal::{Opening, Seal};
use crate::random::random;

/// The first line of every age file, without the line break.
pub const AGE_LINE: &str = "age-encryption.org/v1";

/// Bytes of the file key. All other keys of a file are derived from it.
pub(super) const FILE_KEY: usize = 16;
const KEY: usize = 32;
const TAG: usize = 16;
const SALT: usize = 16;
/// Maximum bytes of a header: enough for a few hundred recipients.
const HEADER_MAX: usize = 64 * 1024;
/// Characters in a full line of a stanza's body. A shorter line ends the body.
const COLUMNS: usize = 64;

const X25519_LABEL: &[u8] = b"age-encryption.org/v1/X25519";
const SCRYPT_LABEL: &[u8] = b"age-encryption.org/v1/scrypt";

/// Base64 without padding. The unused bits of the last character must be zero.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_encode_padding(false)
        .with_decode_padding_mode(base64::engine::DecodePaddingMode::RequireNone),
);

type FileKey = Zeroizing<[u8; FILE_KEY]>;

/// A stanza of the header: the file key, encrypted for one recipient.
struct Stanza {
    arguments: Vec<String>,
    body: Vec<u8>,
}

pub(super) fn write(seal: &Seal, file_key: &[u8; FILE_KEY], work: u8) -> Result<String, AgeError> {
    let mut text = format!("{AGE_LINE}\n");
    match seal {
        Seal::Passphrase(passphrase) => {
            let salt = random::<SALT>();
            let key = derive_scrypt_key(passphrase, &*salt, work)?;
            let body = wrap(&key, file_key);
            put(&mut text, &["scrypt", &BASE64.encode(*salt), &work.to_string()], &body);
        }
        Seal::Recipients(all) => {
            if all.is_empty() {
                return Err(AgeError::BadKey("at least one recipient is required"));
            }
            for recipient in all {
                let ephemeral = Identity::generate();
                let share = ephemeral.recipient().0;
                let bad = AgeError::BadKey("the recipient is not a valid public key");
                let shared = ephemeral.agree(&recipient.0).ok_or(bad)?;
                let key = x25519_key(&shared, &share, recipient);
                put(&mut text, &["X25519", &BASE64.encode(share)], &wrap(&key, file_key));
            }
        }
    }
    text.push_str("---");
    let mac = hmac::sign(&mac_key(file_key), text.as_bytes());
    text.push_str(&format!(" {}\n", BASE64.encode(mac.as_ref())));
    Ok(text)
}

fn put(text: &mut String, arguments: &[&str], body: &[u8]) {
    text.push_str(&format!("-> {}\n", arguments.join(" ")));
    let body = BASE64.encode(body);
    let mut rest = body.as_str();
    while rest.len() >= COLUMNS {
        let (line, more) = rest.split_at(COLUMNS);
        text.push_str(line);
        text.push('\n');
        rest = more;
    }
    text.push_str(rest);
    text.push('\n');
}

/// Reads the header, and no byte after it.
pub(super) fn read(opening: &Opening, from: &mut impl Read) -> Result<FileKey, AgeError> {
    let mut lines = Lines { from, read: Vec::new() };
    if lines.next()? != AGE_LINE {
        return Err(AgeError::NotAge("unexpected first line"));
    }
    let mut stanzas = Vec::new();
    let mac = loop {
        let line = lines.next()?;
        if let Some(mac) = line.strip_prefix("--- ") {
            break BASE64.decode(mac).map_err(|_| AgeError::NotAge("the MAC is not base64"))?;
        }
        let arguments = line.strip_prefix("-> ").ok_or(AgeError::NotAge("unexpected line in the header"))?;
        let arguments: Vec<String> = arguments.split(' ').map(str::to_owned).collect();
        let mut body = String::new();
        loop {
            let line = lines.next()?;
            body.push_str(&line);
            match line.len() {
                COLUMNS => {}
                length if length < COLUMNS => break,
                _ => return Err(AgeError::NotAge("a header line is too long")),
            }
        }
        let body =
            BASE64.decode(&body).map_err(|_| AgeError::NotAge("a stanza of the header is not base64"))?;
        stanzas.push(Stanza { arguments, body });
    };
    let file_key = opened(opening, &stanzas)?;
    let signed =
        lines.read.len() - lines.read.iter().rev().skip(1).take_while(|byte| **byte != b'\n').count() - 1;
    let signed = &lines.read[..signed + "---".len()];
    hmac::verify(&mac_key(&file_key), signed, &mac).map_err(|_| AgeError::HeaderChanged)?;
    Ok(file_key)
}

fn opened(opening: &Opening, stanzas: &[Stanza]) -> Result<FileKey, AgeError> {
    let scrypt = stanzas.iter().find(|stanza| stanza.arguments[0] == "scrypt");
    match (opening, scrypt) {
        (Opening::Passphrase(passphrase), Some(stanza)) => {
            if stanzas.len() != 1 {
                return Err(AgeError::NotAge("the header has a passphrase and other recipients"));
            }
            unwrap_with_passphrase(passphrase, stanza)
        }
        (Opening::Passphrase(_), None) => Err(AgeError::NeedsKeys),
        (Opening::Identities(_), Some(_)) => Err(AgeError::NeedsPassphrase),
        (Opening::Identities(all), None) => {
            let pairs = stanzas.iter().flat_map(|stanza| all.iter().map(move |identity| (stanza, identity)));
            pairs
                .into_iter()
                .find_map(|(stanza, identity)| by_identity(identity, stanza))
                .ok_or(AgeError::NotForKeys)
        }
    }
}

fn unwrap_with_passphrase(passphrase: &SecretString, stanza: &Stanza) -> Result<FileKey, AgeError> {
    let bad = AgeError::NotAge("invalid passphrase stanza");
    let [_, salt, work] = stanza.arguments.as_slice() else { return Err(bad) };
    let salt = BASE64.decode(salt).ok().filter(|salt| salt.len() == SALT);
    let plain = !work.starts_with('0') && work.bytes().all(|byte| byte.is_ascii_digit());
    let work = work.parse::<u8>().ok().filter(|_| plain);
    let (Some(salt), Some(work)) = (salt, work) else { return Err(bad) };
    if work > WORK_MAX {
        return Err(AgeError::TooMuchWork(work));
    }
    let key = derive_scrypt_key(passphrase, &salt, work)?;
    unwrap(&key, &stanza.body).ok_or(AgeError::WrongPassphrase)
}

fn by_identity(identity: &Identity, stanza: &Stanza) -> Option<FileKey> {
    let [kind, share] = stanza.arguments.as_slice() else { return None };
    if kind != "X25519" {
        return None;
    }
    let share: [u8; KEY] = BASE64.decode(share).ok()?.try_into().ok()?;
    let shared = identity.agree(&share)?;
    unwrap(&x25519_key(&shared, &share, &identity.recipient()), &stanza.body)
}

fn x25519_key(shared: &[u8; KEY], share: &[u8; KEY], recipient: &Recipient) -> Zeroizing<[u8; KEY]> {
    derived(shared, &[share.as_slice(), &recipient.0].concat(), X25519_LABEL)
}

fn derive_scrypt_key(
    passphrase: &SecretString,
    salt: &[u8],
    work: u8,
) -> Result<Zeroizing<[u8; KEY]>, AgeError> {
    let params = scrypt::Params::new(work, 8, 1).map_err(|_| AgeError::TooMuchWork(work))?;
    let mut key = Zeroizing::new([0; KEY]);
    let salt = [SCRYPT_LABEL, salt].concat();
    scrypt::scrypt(passphrase.expose_secret().as_bytes(), &salt, &params, &mut *key)
        .map_err(|_| AgeError::TooMuchWork(work))?;
    Ok(key)
}

fn mac_key(file_key: &[u8; FILE_KEY]) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, &*derived(file_key, b"", b"header"))
}

/// Derives a key by HKDF-SHA-256 (RFC 5869).
pub(super) fn derived(secret: &[u8], salt: &[u8], info: &[u8]) -> Zeroizing<[u8; KEY]> {
    let mut key = Zeroizing::new([0; KEY]);
    let info = [info];
    let expanded = hkdf::Salt::new(hkdf::HKDF_SHA256, salt).extract(secret);
    let expanded = expanded.expand(&info, hkdf::HKDF_SHA256).expect("32 octets are within HKDF's length");
    expanded.fill(&mut *key).expect("32 octets are what was asked for");
    key
}

pub(super) fn cipher(key: &[u8; KEY]) -> LessSafeKey {
    LessSafeKey::new(UnboundKey::new(&CHACHA20_POLY1305, key).expect("32 octets are a key"))
}

/// Encrypts the file key. The nonce is zero, because each wrapping key is used once.
fn wrap(key: &[u8; KEY], file_key: &[u8; FILE_KEY]) -> Vec<u8> {
    let mut body = file_key.to_vec();
    let nonce = Nonce::assume_unique_for_key([0; 12]);
    cipher(key).seal_in_place_append_tag(nonce, Aad::empty(), &mut body).expect("ChaCha20-Poly1305 seals");
    body
}

fn unwrap(key: &[u8; KEY], body: &[u8]) -> Option<FileKey> {
    let mut room = Zeroizing::new(<[u8; FILE_KEY + TAG]>::try_from(body).ok()?);
    let nonce = Nonce::assume_unique_for_key([0; 12]);
    let opened = cipher(key).open_in_place(nonce, Aad::empty(), &mut *room).ok()?;
    <[u8; FILE_KEY]>::try_from(&*opened).ok().map(Zeroizing::new)
}

/// The lines of the header, read byte by byte, so that no byte of the content is consumed.
struct Lines<'a, R> {
    from: &'a mut R,
    read: Vec<u8>,
}

impl<R: Read> Lines<'_, R> {
    fn next(&mut self) -> Result<String, AgeError> {
        let begin = self.read.len();
        loop {
            let mut byte = [0];
            if self.from.read(&mut byte)? == 0 {
                return Err(AgeError::NotAge("the header is truncated"));
            }
            self.read.push(byte[0]);
            if self.read.len() > HEADER_MAX {
                return Err(AgeError::NotAge("the header is too long"));
            }
            if byte[0] == b'\n' {
                break;
            }
        }
        let line = &self.read[begin..self.read.len() - 1];
        let plain = line.iter().all(|byte| byte.is_ascii_graphic() || *byte == b' ');
        match std::str::from_utf8(line) {
            Ok(text) if plain => Ok(text.to_owned()),
            _ => Err(AgeError::NotAge("the header is not ASCII text")),
        }
    }
}

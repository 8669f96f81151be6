//! PKCS#8 encrypted under a passphrase: PBES2 (RFC 8018 section 6.2) with PBKDF2 and AES in CBC mode.

use std::num::NonZeroU32;

use aws_lc_rs::cipher::{
    AES_128, AES_192, AES_256, Algorithm, DecryptionContext, EncryptionContext, PaddedBlockDecryptingKey,
    PaddedBlockEncryptingKey, UnboundCipherKey,
};
use aws_lc_rs::iv::FixedLength;
use aws_lc_rs::{pbkdf2, rand};
use x509::der::{self, DerError, Reader, oid_text, tag};
use zeroize::Zeroizing;

use crate::KeyError;

/// PBKDF2 iterations for keys that this module encrypts. OWASP recommends this number for HMAC-SHA-256. The derivation takes 0.1 s
/// of CPU time.
const ROUNDS: NonZeroU32 = NonZeroU32::new(600_000).expect("not zero");
/// Maximum PBKDF2 iterations that are accepted, so that a file cannot cause minutes of work.
const ROUNDS_MAX: u32 = 20_000_000;
/// Bytes of salt that are written. RFC 8018 section 4.1 demands at least eight.
const SALT: usize = 16;
/// Bytes of an AES block.
const BLOCK: usize = 16;

const PBES2: &[u64] = &[1, 2, 840, 113_549, 1, 5, 13];
const PBKDF2: &[u64] = &[1, 2, 840, 113_549, 1, 5, 12];
const HMAC_SHA256: &[u64] = &[1, 2, 840, 113_549, 2, 9];
const AES_256_CBC: &[u64] = &[2, 16, 840, 1, 101, 3, 4, 1, 42];

/// Encrypts `pkcs8` as an EncryptedPrivateKeyInfo.
pub(crate) fn seal(pkcs8: &[u8], passphrase: &[u8]) -> Result<Vec<u8>, KeyError> {
    let failed = |_| KeyError::Unsound("the cryptographic library failed".to_owned());
    let (mut salt, mut iv) = ([0; SALT], [0; BLOCK]);
    rand::fill(&mut salt).map_err(failed)?;
    rand::fill(&mut iv).map_err(failed)?;
    let mut key = Zeroizing::new([0; 32]);
    pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, ROUNDS, &salt, passphrase, &mut *key);
    let unbound = UnboundCipherKey::new(&AES_256, &*key).map_err(failed)?;
    let cipher = PaddedBlockEncryptingKey::cbc_pkcs7(unbound).map_err(failed)?;
    // Reserves capacity for the padding, so that appending it does not copy the plaintext.
    let mut text = Zeroizing::new(Vec::with_capacity(pkcs8.len() + BLOCK));
    text.extend_from_slice(pkcs8);
    let context = EncryptionContext::Iv128(FixedLength::from(iv));
    cipher.less_safe_encrypt(&mut *text, context).map_err(failed)?;
    Ok(der::write(|w| {
        w.sequence(|w| {
            w.sequence(|w| {
                w.oid(PBES2).sequence(|w| {
                    w.sequence(|w| {
                        w.oid(PBKDF2).sequence(|w| {
                            w.octets(&salt).integer(i64::from(ROUNDS.get())).sequence(|w| {
                                w.oid(HMAC_SHA256).null();
                            });
                        });
                    });
                    w.sequence(|w| {
                        w.oid(AES_256_CBC).octets(&iv);
                    });
                });
            });
            w.octets(&text);
        });
    }))
}

/// Decrypts an EncryptedPrivateKeyInfo, and returns its PKCS#8.
pub(crate) fn open(der: &[u8], passphrase: &[u8]) -> Result<Zeroizing<Vec<u8>>, KeyError> {
    let parts = Parts::read(der).map_err(|error| KeyError::Malformed(error.to_string()))??;
    let mut key = Zeroizing::new(vec![0; parts.key_len]);
    pbkdf2::derive(parts.prf, parts.rounds, parts.salt, passphrase, &mut key);
    let wrong = |_| KeyError::WrongPassphrase;
    let unbound = UnboundCipherKey::new(parts.cipher, &key).map_err(wrong)?;
    let cipher = PaddedBlockDecryptingKey::cbc_pkcs7(unbound).map_err(wrong)?;
    let mut text = Zeroizing::new(parts.text.to_vec());
    let context = DecryptionContext::Iv128(FixedLength::from(parts.iv));
    let length = cipher.decrypt(&mut text, context).map_err(wrong)?.len();
    text.truncate(length);
    // One wrong passphrase in 256 decrypts to random bytes with valid padding.
    Reader::new(&text).sequence().map_err(|_| KeyError::WrongPassphrase)?;
    Ok(text)
}

struct Parts<'a> {
    prf: pbkdf2::Algorithm,
    rounds: NonZeroU32,
    salt: &'a [u8],
    cipher: &'static Algorithm,
    key_len: usize,
    iv: [u8; BLOCK],
    text: &'a [u8],
}

impl<'a> Parts<'a> {
    fn read(der: &'a [u8]) -> Result<Result<Self, KeyError>, DerError> {
        let mut info = Reader::new(der).sequence()?;
        let mut scheme = info.sequence()?;
        let name = oid_text(scheme.expect(tag::OID)?.content);
        if name != "1.2.840.113549.1.5.13" {
            return Ok(Err(KeyError::Unsupported(format!("the encryption {name} (not PBES2)"))));
        }
        let mut parameters = scheme.sequence()?;
        let (mut derivation, mut encryption) = (parameters.sequence()?, parameters.sequence()?);
        let name = oid_text(derivation.expect(tag::OID)?.content);
        if name != "1.2.840.113549.1.5.12" {
            return Ok(Err(KeyError::Unsupported(format!("the key derivation {name} (not PBKDF2)"))));
        }
        let mut derivation = derivation.sequence()?;
        let salt = derivation.expect(tag::OCTET_STRING)?.content;
        let rounds = derivation.expect(tag::INTEGER)?.integer()?;
        derivation.optional(tag::INTEGER)?;
        let prf = match derivation.optional(tag::SEQUENCE)? {
            Some(identifier) => oid_text(identifier.inside().expect(tag::OID)?.content),
            None => "1.2.840.113549.2.7".to_owned(),
        };
        let cipher = oid_text(encryption.expect(tag::OID)?.content);
        let iv = encryption.expect(tag::OCTET_STRING)?.content;
        let text = info.expect(tag::OCTET_STRING)?.content;
        Ok(Self::from_identifiers(salt, rounds, &prf, &cipher, iv, text))
    }

    fn from_identifiers(
        salt: &'a [u8],
        rounds: i64,
        prf: &str,
        cipher: &str,
        iv: &[u8],
        text: &'a [u8],
    ) -> Result<Self, KeyError> {
        let prf = match prf {
            "1.2.840.113549.2.7" => pbkdf2::PBKDF2_HMAC_SHA1,
            "1.2.840.113549.2.9" => pbkdf2::PBKDF2_HMAC_SHA256,
            "1.2.840.113549.2.10" => pbkdf2::PBKDF2_HMAC_SHA384,
            "1.2.840.113549.2.11" => pbkdf2::PBKDF2_HMAC_SHA512,
            other => return Err(KeyError::Unsupported(format!("the pseudo-random function {other}"))),
        };
        let (cipher, key_len): (&'static Algorithm, usize) = match cipher {
            "2.16.840.1.101.3.4.1.2" => (&AES_128, 16),
            "2.16.840.1.101.3.4.1.22" => (&AES_192, 24),
            "2.16.840.1.101.3.4.1.42" => (&AES_256, 32),
            other => return Err(KeyError::Unsupported(format!("the cipher {other}"))),
        };
        let rounds =
            u32::try_from(rounds).ok().filter(|rounds| *rounds <= ROUNDS_MAX).and_then(NonZeroU32::new);
        let rounds = rounds
            .ok_or_else(|| KeyError::Malformed(format!("the number of rounds is not 1 to {ROUNDS_MAX}")))?;
        let iv =
            iv.try_into().map_err(|_| KeyError::Malformed("the IV does not have 16 bytes".to_owned()))?;
        Ok(Self { prf, rounds, salt, cipher, key_len, iv, text })
    }
}

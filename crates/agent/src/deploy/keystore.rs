//! Key stores: PKCS#12 (RFC 7292) and Sun's JKS.

use aws_lc_rs::digest;
use enrollment::Material;
use keys::Secret;
use p12_keystore::{Certificate, KeyStore, KeyStoreEntry, Pkcs12ImportPolicy, PrivateKey, PrivateKeyChain};
use sha1::{Digest, Sha1};
use zeroize::Zeroizing;

/// Function that returns whether an existing file has the same content, for formats whose bytes differ each time (salts).
pub(crate) type ContentComparison = Box<dyn Fn(&[u8]) -> bool + Send + Sync>;

/// The key store could not be generated.
#[derive(Debug, thiserror::Error)]
#[error("the key store cannot be created: {0}")]
pub struct KeystoreError(String);

impl From<p12_keystore::error::Error> for KeystoreError {
    fn from(error: p12_keystore::error::Error) -> Self {
        Self(error.to_string())
    }
}

/// Generates a PKCS#12 file: PBES2 with AES-256 and an HMAC-SHA-256 MAC, 10,000 iterations each. Java uses the same parameters.
pub(super) fn pkcs12(
    material: &Material,
    alias: &str,
    password: &str,
) -> Result<Zeroizing<Vec<u8>>, KeystoreError> {
    let mut store = KeyStore::new();
    store.add_entry(alias, KeyStoreEntry::PrivateKeyChain(entry(material)?));
    Ok(Zeroizing::new(store.writer(password).write()?))
}

fn entry(material: &Material) -> Result<PrivateKeyChain, KeystoreError> {
    let key = PrivateKey::from_der(&material.key_der())?;
    let chain: Result<Vec<_>, _> = material.chain().iter().map(|der| Certificate::from_der(der)).collect();
    // Links the key to its certificate (RFC 7292 section 4.2); the value is the leaf's fingerprint.
    let local_key_id = material.fingerprint().as_bytes().to_vec();
    Ok(PrivateKeyChain::new(local_key_id, key, chain?))
}

/// Returns a function that checks whether a PKCS#12 file has the content to be written. The bytes differ each time because of the
/// salts.
pub(super) fn pkcs12_content_matcher(
    material: &Material,
    alias: &str,
    password: &Secret,
) -> ContentComparison {
    let (password, alias) = (password.clone(), alias.to_owned());
    let key = material.key_der();
    let chain = material.chain().to_vec();
    Box::new(move |found| {
        let read = KeyStore::from_pkcs12(found, password.expose(), Pkcs12ImportPolicy::Strict);
        let Ok(store) = read else { return false };
        let Some((found_alias, found)) = store.private_key_chain() else { return false };
        let certificates: Vec<&[u8]> = found.certs().iter().map(Certificate::as_der).collect();
        store.entries_len() == 1
            && found_alias == alias
            && found.key().as_der() == key.as_slice()
            && certificates == chain.iter().map(Vec::as_slice).collect::<Vec<_>>()
    })
}

/// Constant that is hashed between password and content for the integrity digest (`sun.security.provider.JavaKeyStore`).
const SEAL_SALT: &[u8] = b"Mighty Aphrodite";
const MAGIC: u32 = 0xfeed_feed;
const VERSION: u32 = 2;
const PRIVATE_KEY: u32 = 1;
const SALT: usize = 20;
/// Object identifier of `sun.security.provider.KeyProtector`.
const KEY_PROTECTOR: &str = "1.3.6.1.4.1.42.2.17.1.1";

/// Generates a file in Sun's JKS format. Salt and date are derived from the key and the certificate, so that the same certificate
/// produces the same file. Different keys still have different salts.
pub(super) fn jks(material: &Material, alias: &str, password: &str) -> Zeroizing<Vec<u8>> {
    let password: Zeroizing<Vec<u8>> =
        Zeroizing::new(password.encode_utf16().flat_map(u16::to_be_bytes).collect());
    let mut out = Zeroizing::new(Vec::new());
    for number in [MAGIC, VERSION, 1, PRIVATE_KEY] {
        out.extend(number.to_be_bytes());
    }
    // Java compares aliases of JKS entries in lower case.
    put_text(&mut out, &alias.to_lowercase());
    let made_ms = material.leaf().not_before.0.saturating_mul(1_000);
    out.extend(made_ms.to_be_bytes());
    put_block(&mut out, &protected(&material.key_der(), &password));
    out.extend((material.chain().len() as u32).to_be_bytes());
    for der in material.chain() {
        put_text(&mut out, "X.509");
        put_block(&mut out, der);
    }
    let seal = Sha1::new().chain_update(&*password).chain_update(SEAL_SALT).chain_update(&**out).finalize();
    out.extend(seal);
    out
}

/// Encrypts a key: XOR with a stream of SHA-1 (password, previous block), between the salt and a check value, in an
/// EncryptedPrivateKeyInfo (RFC 5208 section 6).
fn protected(key: &[u8], password: &[u8]) -> Vec<u8> {
    let hash = digest::digest(&digest::SHA256, key);
    let salt = &hash.as_ref()[..SALT];
    let mut sealed = salt.to_vec();
    let mut block: Vec<u8> = salt.to_vec();
    for chunk in key.chunks(SALT) {
        block = Sha1::new().chain_update(password).chain_update(&block).finalize().to_vec();
        sealed.extend(chunk.iter().zip(&block).map(|(a, b)| a ^ b));
    }
    sealed.extend(Sha1::new().chain_update(password).chain_update(key).finalize());
    x509::der::write(|out| {
        out.sequence(|info| {
            info.sequence(|algorithm| {
                algorithm.oid_text(KEY_PROTECTOR).null();
            });
            info.octets(&sealed);
        });
    })
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    // Java's modified UTF-8 differs from UTF-8 only for NUL and for characters beyond U+FFFF.
    out.extend((text.len() as u16).to_be_bytes());
    out.extend(text.as_bytes());
}

fn put_block(out: &mut Vec<u8>, block: &[u8]) {
    out.extend((block.len() as u32).to_be_bytes());
    out.extend(block);
}

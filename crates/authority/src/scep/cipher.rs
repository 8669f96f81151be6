//! Decryption of client messages, and encryption to clients.

use aws_lc_rs::cipher::{
    self, AES_128, AES_192, AES_256, DecryptionContext, PaddedBlockDecryptingKey, PaddedBlockEncryptingKey,
    UnboundCipherKey,
};
use aws_lc_rs::iv::FixedLength;
use aws_lc_rs::rand;
use aws_lc_rs::rsa::{Pkcs1PublicEncryptingKey, PublicEncryptingKey};
use keys::{OaepHash, PrivateKey};
use x509::Certificate;
use x509::cms::{ContentCipher, Digest, EnvelopedData, Identity, KeyTransport, Recipient};
use zeroize::Zeroizing;

/// Error for a message that cannot be decrypted. The error gives no reason: an attacker who can distinguish bad padding from a bad
/// key or bad content can decrypt messages of other clients (Bleichenbacher 1998, Vaudenay 2002).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct DecryptError;

/// Decrypts a message with the recipient's key. If the key transport fails, decryption continues with a random key (RFC 3218
/// section 2.3.2), so the result may be arbitrary bytes.
pub(super) fn open(
    key: &PrivateKey,
    of: &Certificate,
    message: &EnvelopedData,
) -> Result<Zeroizing<Vec<u8>>, DecryptError> {
    // A client may use an earlier certificate of the same key, whose recipient identifier differs.
    let named = message.recipients.iter().find(|recipient| recipient.id.names(of));
    let recipient = named.or(message.recipients.first()).ok_or(DecryptError)?;
    let mut content_key = Zeroizing::new(vec![0; message.cipher.key_length()]);
    rand::fill(&mut content_key).map_err(|_| DecryptError)?;
    let opened = match recipient.transport {
        KeyTransport::RsaPkcs1 => key.rsa_decrypt_pkcs1(&recipient.encrypted_key),
        KeyTransport::RsaOaep(hash) => key.rsa_decrypt_oaep(oaep(hash), &recipient.encrypted_key),
    };
    if let Ok(opened) = opened
        && opened.len() == content_key.len()
    {
        content_key = opened;
    }
    let iv: [u8; 16] = message.iv.as_slice().try_into().map_err(|_| DecryptError)?;
    let unbound = UnboundCipherKey::new(algorithm(message.cipher).ok_or(DecryptError)?, &content_key)
        .map_err(|_| DecryptError)?;
    let cipher = PaddedBlockDecryptingKey::cbc_pkcs7(unbound).map_err(|_| DecryptError)?;
    let mut content = Zeroizing::new(message.ciphertext.clone());
    let context = DecryptionContext::Iv128(FixedLength::from(iv));
    let length = cipher.decrypt(&mut content, context).map_err(|_| DecryptError)?.len();
    content.truncate(length);
    Ok(content)
}

/// Encrypts to the holder of an RSA certificate. Returns `None` if its key has another type or the library fails.
pub(super) fn seal(to: &Certificate, cipher: ContentCipher, content: &[u8]) -> Option<Vec<u8>> {
    let mut content_key = Zeroizing::new(vec![0; cipher.key_length()]);
    rand::fill(&mut content_key).ok()?;
    let unbound = UnboundCipherKey::new(algorithm(cipher)?, &content_key).ok()?;
    let encrypting = PaddedBlockEncryptingKey::cbc_pkcs7(unbound).ok()?;
    let mut ciphertext = content.to_vec();
    let context = encrypting.encrypt(&mut ciphertext).ok()?;
    let iv: &[u8] = (&context).try_into().ok()?;
    let public = PublicEncryptingKey::from_der(&to.public_key.spki).ok()?;
    let public = Pkcs1PublicEncryptingKey::new(public).ok()?;
    let mut encrypted_key = vec![0; public.ciphertext_size()];
    let length = public.encrypt(&content_key, &mut encrypted_key).ok()?.len();
    encrypted_key.truncate(length);
    let recipient = Recipient { id: Identity::of(to), transport: KeyTransport::RsaPkcs1, encrypted_key };
    let sealed = EnvelopedData { recipients: vec![recipient], cipher, iv: iv.to_vec(), ciphertext };
    Some(sealed.encode())
}

fn algorithm(cipher: ContentCipher) -> Option<&'static cipher::Algorithm> {
    match cipher {
        ContentCipher::Aes128 => Some(&AES_128),
        ContentCipher::Aes192 => Some(&AES_192),
        ContentCipher::Aes256 => Some(&AES_256),
        ContentCipher::DesEde3 => None,
    }
}

fn oaep(hash: Digest) -> OaepHash {
    match hash {
        Digest::Sha1 => OaepHash::Sha1,
        Digest::Sha256 => OaepHash::Sha256,
        Digest::Sha384 => OaepHash::Sha384,
        Digest::Sha512 => OaepHash::Sha512,
    }
}

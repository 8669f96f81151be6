//! The one way to use a private key, wherever it lives.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use futures_util::future::BoxFuture;
use x509::SignatureAlgorithm;
use zeroize::Zeroizing;

use crate::{KeyType, PrivateKey, Scheme, SignError};

/// When a signature is of no more use to anyone who asked.
pub type Deadline = Instant;

/// A key that can be used by many at once.
pub type KeyRef = Arc<dyn Signer>;

/// Where a key signs that is not in this process.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Destination<'a> {
    /// `KIND:WHICH`, as metrics write it: one of few, the same for all keys there.
    pub name: &'a str,
    /// How much it takes at once.
    pub at_once: AtOnce,
}

/// Calls that are made of a destination at once.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum AtOnce {
    /// For each of its keys.
    OfKey(usize),
    /// For all of them together.
    All(usize),
}

/// A private key that signs, wherever it lives: in this process, in a security module, elsewhere.
pub trait Signer: Send + Sync + fmt::Debug {
    /// Type of the key.
    fn key_type(&self) -> KeyType;

    /// The public half: a DER SubjectPublicKeyInfo (RFC 5280 section 4.1.2.7).
    fn spki(&self) -> &[u8];

    /// The signature algorithm of [`Self::sign`] as in certificates.
    fn algorithm(&self) -> SignatureAlgorithm {
        self.key_type().algorithm()
    }

    /// Signs the whole `message`; it is hashed inside as the algorithm wants. ECDSA signatures are
    /// DER (RFC 3279 section 2.2.3). Unless a key does it otherwise, it is hashed here and signed by
    /// [`Self::sign_digest`].
    ///
    /// # Errors
    /// [`SignError`]; never later than shortly after `deadline`.
    fn sign<'a>(
        &'a self,
        message: &'a [u8],
        deadline: Deadline,
    ) -> BoxFuture<'a, Result<Vec<u8>, SignError>> {
        Box::pin(async move {
            let (scheme, input) = Scheme::of_message(self.key_type(), message)?;
            self.sign_digest(scheme, &input, deadline).await
        })
    }

    /// Signs what was hashed elsewhere; `input` is a digest, for [`Scheme::Ed25519`] a whole message. Anyone who asks has
    /// checked [`Scheme::check`]; a key that signs whole messages alone fails.
    ///
    /// # Errors
    /// [`SignError`]; never later than shortly after `deadline`.
    fn sign_digest<'a>(
        &'a self,
        scheme: Scheme,
        input: &'a [u8],
        deadline: Deadline,
    ) -> BoxFuture<'a, Result<Vec<u8>, SignError>> {
        let _ = (scheme, input, deadline);
        Box::pin(std::future::ready(Err(SignError::Failed("it signs whole messages only".to_owned()))))
    }

    /// `c` to the private exponent, modulo the modulus, as long as the modulus: RSA without padding, for TLS's RSA key exchange
    /// (RFC 5246 section 7.4.7.1), whose padding the terminator takes off. `c` has the length of the modulus. Only keys of
    /// security modules do it: see SECURITY.md for why those of this process do not.
    ///
    /// # Errors
    /// [`SignError`]; never later than shortly after `deadline`.
    fn decrypt_raw<'a>(
        &'a self,
        c: &'a [u8],
        deadline: Deadline,
    ) -> BoxFuture<'a, Result<Zeroizing<Vec<u8>>, SignError>> {
        let _ = (c, deadline);
        Box::pin(std::future::ready(Err(SignError::Failed("it decrypts nothing".to_owned()))))
    }

    /// Where it signs, for figures; `None` for a key that is in this process, or that does not know.
    fn destination(&self) -> Option<Destination<'_>> {
        None
    }

    /// The key itself, where it is in this process: its signatures are work of a processor and wait for nobody.
    fn here(&self) -> Option<&PrivateKey> {
        None
    }
}

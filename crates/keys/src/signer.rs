//! The interface to private keys, local and remote.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use futures_util::future::BoxFuture;
use x509::SignatureAlgorithm;
use zeroize::Zeroizing;

use crate::{KeyType, PrivateKey, Scheme, SignError};

/// Time after which a signature is useless to the caller.
pub type Deadline = Instant;

/// A key that several callers can use concurrently.
pub type KeyRef = Arc<dyn Signer>;

/// Remote destination that signs with a key, such as a security module or a cloud's key service.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Destination<'a> {
    /// Name in metrics, `KIND:WHICH`. All keys of a destination share the name, so that there are few time series.
    pub name: &'a str,
    /// Limit of concurrent calls, for each key or for all keys of the destination together.
    pub at_once: CallLimit,
}

/// Limit of concurrent calls to a destination.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CallLimit {
    /// Maximum concurrent calls with each key of the destination.
    OfKey(usize),
    /// Maximum concurrent calls with all keys of the destination together.
    All(usize),
}

/// A private key that signs: in this process, in a hardware security module, or in a remote service.
pub trait Signer: Send + Sync + fmt::Debug {
    /// Returns the type of the key, which determines the supported schemes.
    fn key_type(&self) -> KeyType;

    /// Returns the public key: a DER SubjectPublicKeyInfo (RFC 5280 section 4.1.2.7).
    fn spki(&self) -> &[u8];

    /// Returns the signature algorithm of [`Self::sign`], as in certificates.
    fn algorithm(&self) -> SignatureAlgorithm {
        self.key_type().algorithm()
    }

    /// Signs the whole `message`, and hashes it as the algorithm demands. ECDSA signatures are DER (RFC 3279 section 2.2.3). The
    /// default implementation hashes the message and calls [`Self::sign_digest`].
    ///
    /// # Errors
    /// [`SignError`], at the latest shortly after `deadline`.
    fn sign<'a>(
        &'a self,
        message: &'a [u8],
        deadline: Deadline,
    ) -> BoxFuture<'a, Result<Vec<u8>, SignError>> {
        Box::pin(async move {
            let (scheme, input) = Scheme::for_message(self.key_type(), message)?;
            self.sign_digest(scheme, &input, deadline).await
        })
    }

    /// Signs a precomputed digest. For [`Scheme::Ed25519`], `input` is the whole message. The caller must first call
    /// [`Scheme::check`]. Fails for a key that only signs whole messages.
    ///
    /// # Errors
    /// [`SignError`], at the latest shortly after `deadline`.
    fn sign_digest<'a>(
        &'a self,
        scheme: Scheme,
        input: &'a [u8],
        deadline: Deadline,
    ) -> BoxFuture<'a, Result<Vec<u8>, SignError>> {
        let _ = (scheme, input, deadline);
        Box::pin(std::future::ready(Err(SignError::Failed("this key signs whole messages only".to_owned()))))
    }

    /// Computes RSA without padding: `c` to the power of the private exponent, modulo the modulus. Input and result have the length
    /// of the modulus.
    ///
    /// TLS's RSA key exchange (RFC 5246 section 7.4.7.1) uses it; the TLS terminator removes the padding. Only keys of hardware
    /// security modules support it: SECURITY.md explains why keys of this process do not.
    ///
    /// # Errors
    /// [`SignError`], at the latest shortly after `deadline`.
    fn decrypt_raw<'a>(
        &'a self,
        c: &'a [u8],
        deadline: Deadline,
    ) -> BoxFuture<'a, Result<Zeroizing<Vec<u8>>, SignError>> {
        let _ = (c, deadline);
        Box::pin(std::future::ready(Err(SignError::Failed("this key cannot decrypt".to_owned()))))
    }

    /// Returns the remote service that signs with this key (HSM or cloud key service), for metrics. `None` if the key is in this
    /// process, or the service is unknown.
    fn destination(&self) -> Option<Destination<'_>> {
        None
    }

    /// Returns the key itself if it is in this process. Its signatures need only CPU time and no remote call.
    fn in_process_key(&self) -> Option<&PrivateKey> {
        None
    }
}

//! Handshake signatures by the key service. They block only the connection that needs them.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use keys::{Hash, KeyRef, Scheme, SignError};
use parking_lot::Mutex;
use s2n_tls::callbacks::{ConnectionFuture, OperationType, PrivateKeyCallback, PrivateKeyOperation};
use s2n_tls::connection::Connection;
use s2n_tls::enums::{HashAlgorithm, SignatureAlgorithm};
use s2n_tls::error::Error;

use super::alert::INTERNAL_ERROR;
use super::greeting::HandshakeState;
use super::metrics::EdgeMetrics;

/// The remote key of a chain. It calls the key service for signatures.
#[derive(Debug)]
pub(super) struct RemoteKey(pub(super) KeyRef);

/// Requests signatures by the key of the chosen chain.
pub(super) struct RemoteSigning {
    timeout: Duration,
    metrics: EdgeMetrics,
}

impl RemoteSigning {
    pub(super) fn new(timeout: Duration, metrics: EdgeMetrics) -> Self {
        Self { timeout, metrics }
    }
}

impl PrivateKeyCallback for RemoteSigning {
    fn handle_operation(
        &self,
        connection: &mut Connection,
        operation: PrivateKeyOperation,
    ) -> Result<Option<Pin<Box<dyn ConnectionFuture>>>, Error> {
        let chain = connection.selected_cert();
        let key = chain.and_then(|chain| chain.application_context::<RemoteKey>().map(|key| key.0.clone()));
        let key = key.ok_or_else(|| Error::application("the certificate chain has no key".into()))?;
        let scheme = match operation.kind()? {
            OperationType::Sign(algorithm, hash) => scheme(*algorithm, *hash),
            _ => None,
        };
        let scheme =
            scheme.ok_or_else(|| Error::application("this type of signature is not supported".into()))?;
        let mut input = vec![0; operation.input_size()?];
        operation.input(&mut input)?;
        let deadline = Instant::now() + self.timeout;
        let signing = async move { key.sign_digest(scheme, &input, deadline).await };
        Ok(Some(Box::pin(Signing {
            operation: Some(operation),
            signing: Mutex::new(Box::pin(signing)),
            metrics: self.metrics.clone(),
        })))
    }
}

/// Returns the scheme for an algorithm; `None` if the key service does not support it.
fn scheme(algorithm: SignatureAlgorithm, hash: HashAlgorithm) -> Option<Scheme> {
    let hash = match hash {
        HashAlgorithm::SHA1 => Hash::Sha1,
        HashAlgorithm::SHA224 => Hash::Sha224,
        HashAlgorithm::SHA256 => Hash::Sha256,
        HashAlgorithm::SHA384 => Hash::Sha384,
        HashAlgorithm::SHA512 => Hash::Sha512,
        _ => return None,
    };
    match algorithm {
        SignatureAlgorithm::RSA_PKCS1 => Some(Scheme::RsaPkcs1(hash)),
        SignatureAlgorithm::RSA_PSS_RSAE | SignatureAlgorithm::RSA_PSS_PSS => Some(Scheme::RsaPss(hash)),
        SignatureAlgorithm::ECDSA => Some(Scheme::Ecdsa(hash)),
        _ => None,
    }
}

/// A signature in progress. Dropping it with its connection cancels the request.
struct Signing {
    operation: Option<PrivateKeyOperation>,
    /// The lock is never contended: the TLS library requires `Sync` futures, but polls them through `&mut`.
    signing: Mutex<BoxFuture<'static, Result<Vec<u8>, SignError>>>,
    metrics: EdgeMetrics,
}

impl ConnectionFuture for Signing {
    fn poll(
        mut self: Pin<&mut Self>,
        connection: &mut Connection,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), Error>> {
        let Poll::Ready(signed) = self.signing.get_mut().as_mut().poll(context) else { return Poll::Pending };
        self.metrics.signed(&signed);
        let operation = self.operation.take();
        Poll::Ready(match (signed, operation) {
            (Ok(signature), Some(operation)) => operation.set_output(connection, &signature),
            (Err(error), _) => {
                if let Some(HandshakeState { alert, .. }) = connection.application_context() {
                    alert.set(INTERNAL_ERROR);
                }
                Err(Error::application(Box::new(error)))
            }
            (Ok(_), None) => Err(Error::application("the signature was already used".into())),
        })
    }
}

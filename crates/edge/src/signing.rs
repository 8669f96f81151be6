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
use telemetry::spans::{self, Kind, Span, TraceParent};

use super::alert::INTERNAL_ERROR;
use super::greeting::HandshakeState;
use super::metrics::EdgeMetrics;

/// The remote key of a chain. It calls the key service for signatures.
#[derive(Debug)]
pub(super) struct RemoteKey {
    pub(super) key: KeyRef,
    /// The trace of the managed certificate; `None` if the file names no managed certificate.
    pub(super) trace: Option<TraceParent>,
}

/// Requests signatures from the key service, with the key of the chosen chain.
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
        let remote = chain.and_then(|chain| {
            chain.application_context::<RemoteKey>().map(|remote| (remote.key.clone(), remote.trace))
        });
        let (key, trace) =
            remote.ok_or_else(|| Error::application("the certificate chain has no key".into()))?;
        let scheme = match operation.kind()? {
            OperationType::Sign(algorithm, hash) => scheme(*algorithm, *hash),
            _ => None,
        };
        let scheme =
            scheme.ok_or_else(|| Error::application("this type of signature is not supported".into()))?;
        let mut input = vec![0; operation.input_size()?];
        operation.input(&mut input)?;
        let deadline = Instant::now() + self.timeout;
        let signing = traced(trace, async move { key.sign_digest(scheme, &input, deadline).await });
        Ok(Some(Box::pin(Signing {
            operation: Some(operation),
            signing: Mutex::new(Box::pin(signing)),
            metrics: self.metrics.clone(),
        })))
    }
}

/// Exports the signature of a sampled handshake as the first span of a trace, which links to the trace of its certificate. The spans
/// of the key service are below it.
async fn traced(
    certificate: Option<TraceParent>,
    signing: impl Future<Output = Result<Vec<u8>, SignError>>,
) -> Result<Vec<u8>, SignError> {
    if !spans::samples_new_trace() {
        return signing.await;
    }
    let trace = u128::from(spans::random_id()) << 64 | u128::from(spans::random_id());
    let (own, began_us) = (TraceParent::root(trace, spans::random_id()).sampled(), spans::now_us());
    let signed = spans::within(Some(own), signing).await;
    let mut span = Span::new(own, 0, "handshake signature", began_us, spans::now_us());
    span.kind = Kind::Client;
    span.links.extend(certificate);
    span.error = signed.as_ref().err().map(ToString::to_string);
    spans::emit(vec![span]);
    signed
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

//! A client of the native protocol.

use std::error::Error;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::Stream;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::{InvalidDnsNameError, ServerName};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::metadata::MetadataValue;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Code, Request, Status, Streaming, TimeoutExpired};
use x509::{Certificate, SpkiHash};

use super::proto::key_service_client::KeyServiceClient;
use super::proto::{self, SignReply, SignRequest, sign_reply};
use super::trace::{TRACEPARENT, TraceParent};

/// For TCP and TLS together.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// Between two signs of life that are asked for, and how long an answer may take: a connection that is dead is known
/// before the next request needs it.
const PING_EVERY: Duration = Duration::from_secs(20);
const PING_WITHIN: Duration = Duration::from_secs(5);
/// Bytes that the service may send ahead of one call, and of all: at 100 ms 40,000 RSA-2048 signatures a second of one
/// stream, and four such streams.
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 4 << 20;

/// Why a client cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The server's name is no DNS name or address.
    #[error("the server's name is invalid: {0}")]
    Name(#[from] InvalidDnsNameError),
}

/// Tenant, policy, deadline and trace of a request.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// When the answer is of no more use. Past it the call fails, and what had not begun is not done.
    pub deadline: Instant,
    /// The trace it belongs to.
    pub trace: Option<TraceParent>,
}

impl Terms {
    /// No trace.
    #[must_use]
    pub fn until(deadline: Instant) -> Self {
        Self { deadline, trace: None }
    }

    /// The same from now on.
    #[must_use]
    pub fn within(patience: Duration) -> Self {
        Self::until(Instant::now() + patience)
    }

    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = self.stream(message);
        request.set_timeout(self.deadline.saturating_duration_since(Instant::now()));
        request
    }

    /// Without a deadline: a stream's items have theirs.
    fn stream<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        let value = self.trace.and_then(|trace| MetadataValue::try_from(trace.to_string()).ok());
        if let Some(value) = value {
            request.metadata_mut().insert(TRACEPARENT, value);
        }
        request
    }
}

/// A client, to be made once and kept. Cheap to clone; the clones share one connection, which is made with the first call
/// and again after it broke. A call that is dropped is cancelled, here and there.
#[derive(Clone, Debug)]
pub struct Client {
    inner: KeyServiceClient<Channel>,
}

impl Client {
    /// For a service at `address` (host and port) that presents a certificate for `name`. `tls` says whom to believe and
    /// whom to present; what is said of protocols in it is replaced. Must be called on a runtime.
    ///
    /// # Errors
    /// [`ClientError`]
    pub fn tls(address: &str, name: &str, tls: &ClientConfig) -> Result<Self, ClientError> {
        Self::over_tls(address, name, tls, None)
    }

    /// The same, of a service whose certificate is for this public key.
    ///
    /// # Errors
    /// [`ClientError`]
    pub fn pinned(
        address: &str,
        name: &str,
        tls: &ClientConfig,
        spki_sha256: SpkiHash,
    ) -> Result<Self, ClientError> {
        Self::over_tls(address, name, tls, Some(spki_sha256))
    }

    fn over_tls(
        address: &str,
        name: &str,
        tls: &ClientConfig,
        pin: Option<SpkiHash>,
    ) -> Result<Self, ClientError> {
        let name = ServerName::try_from(name.to_owned())?;
        let mut tls = tls.clone();
        tls.alpn_protocols = vec![b"h2".to_vec()];
        let (connector, address) = (TlsConnector::from(Arc::new(tls)), address.to_owned());
        Ok(Self::over(move |_: Uri| {
            let (connector, name, address) = (connector.clone(), name.clone(), address.clone());
            async move {
                let stream = TcpStream::connect(address).await?;
                stream.set_nodelay(true)?;
                let stream = connector.connect(name, stream).await?;
                if pin.is_some_and(|pin| !presents(&stream, pin)) {
                    return Err(io::Error::other("it presents a certificate for another key than its own"));
                }
                Ok(TokioIo::new(stream))
            }
        }))
    }

    /// For a service at a Unix socket of this host. Must be called on a runtime.
    #[must_use]
    pub fn socket(path: PathBuf) -> Self {
        Self::over(move |_: Uri| {
            let path = path.clone();
            async move { Ok::<_, io::Error>(TokioIo::new(UnixStream::connect(path).await?)) }
        })
    }

    fn over<F, Fut, S>(connect: F) -> Self
    where
        F: FnMut(Uri) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = io::Result<S>> + Send + 'static,
        S: hyper::rt::Read + hyper::rt::Write + Send + Unpin + 'static,
    {
        // The connection is made elsewhere: the name is for its header fields alone.
        let endpoint = Endpoint::from_static("http://keys")
            .connect_timeout(CONNECT_WITHIN)
            .http2_keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PING_WITHIN)
            .keep_alive_while_idle(true)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW);
        let channel = endpoint.connect_with_connector_lazy(tower::service_fn(connect));
        Self { inner: KeyServiceClient::new(channel) }
    }

    /// One signature.
    ///
    /// # Errors
    /// As the protocol's definition lists them.
    #[crate::boxed]
    pub async fn sign(&self, request: SignRequest, terms: Terms) -> Result<Vec<u8>, Status> {
        let reply = self.inner.clone().sign(terms.request(request)).await.map_err(described)?;
        signature(reply.into_inner())
    }

    /// Up to [`BATCH_MAX`](crate::server::BATCH_MAX) signatures, each with its own outcome, in the order of the requests.
    ///
    /// # Errors
    /// When the call as a whole failed.
    #[crate::boxed]
    pub async fn sign_batch(
        &self,
        requests: Vec<SignRequest>,
        terms: Terms,
    ) -> Result<Vec<Result<Vec<u8>, Status>>, Status> {
        let batch = proto::SignBatchRequest { requests };
        let reply = self.inner.clone().sign_batch(terms.request(batch)).await.map_err(described)?;
        Ok(reply.into_inner().replies.into_iter().map(signature).collect())
    }

    /// Signatures as they are asked for; replies come in any order. Each request has its own deadline (`timeout_ms`);
    /// that of the terms is none of the stream's.
    ///
    /// # Errors
    /// When the stream cannot be begun.
    pub async fn sign_stream(
        &self,
        requests: impl Stream<Item = SignRequest> + Send + 'static,
        terms: Terms,
    ) -> Result<Streaming<SignReply>, Status> {
        let mut inner = self.inner.clone();
        let begun = inner.sign_stream(terms.stream(requests));
        let begun = tokio::time::timeout_at(terms.deadline.into(), begun).await;
        let begun = begun.map_err(|_| Status::deadline_exceeded("the stream was not begun in time"))?;
        Ok(begun.map_err(described)?.into_inner())
    }

    /// A page of the keys that this client may use.
    ///
    /// # Errors
    /// As the protocol's definition lists them.
    #[crate::boxed]
    pub async fn list_keys(
        &self,
        page: proto::ListKeysRequest,
        terms: Terms,
    ) -> Result<proto::ListKeysReply, Status> {
        Ok(self.inner.clone().list_keys(terms.request(page)).await.map_err(described)?.into_inner())
    }

    /// Whether the service answers.
    ///
    /// # Errors
    /// As the protocol's definition lists them.
    #[crate::boxed]
    pub async fn ping(&self, terms: Terms) -> Result<(), Status> {
        self.ping_for(proto::PingRequest::default(), terms).await?;
        Ok(())
    }

    /// Pings a node of the same site: sends which nodes are wanted, and receives which ones it reaches.
    pub(crate) async fn ping_for(
        &self,
        request: proto::PingRequest,
        terms: Terms,
    ) -> Result<proto::PingReply, Status> {
        Ok(self.inner.clone().ping(terms.request(request)).await.map_err(described)?.into_inner())
    }

    /// Seals a session ticket.
    ///
    /// # Errors
    /// As the protocol's definition lists them.
    #[crate::boxed]
    pub async fn seal(&self, clear: Vec<u8>, terms: Terms) -> Result<Vec<u8>, Status> {
        let request = terms.request(proto::SealRequest { clear });
        Ok(self.inner.clone().seal(request).await.map_err(described)?.into_inner().sealed)
    }

    /// Opens what was sealed.
    ///
    /// # Errors
    /// As the protocol's definition lists them.
    #[crate::boxed]
    pub async fn unseal(&self, sealed: Vec<u8>, terms: Terms) -> Result<Vec<u8>, Status> {
        let request = terms.request(proto::UnsealRequest { sealed });
        Ok(self.inner.clone().unseal(request).await.map_err(described)?.into_inner().clear)
    }
}

fn presents(stream: &TlsStream<TcpStream>, spki_sha256: SpkiHash) -> bool {
    let leaf = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
    let leaf = leaf.and_then(|leaf| Certificate::parse(leaf).ok());
    leaf.is_some_and(|leaf| leaf.public_key.spki_sha256 == spki_sha256)
}

/// A connection that failed while a call was begun is no answer of the service: it cannot be reached.
fn described(status: Status) -> Status {
    if is_in_chain::<TimeoutExpired>(&status) {
        return Status::deadline_exceeded("not in time: the deadline passed here, in the client");
    }
    let is_transport = is_in_chain::<tonic::transport::Error>(&status);
    if matches!(status.code(), Code::Unknown | Code::Cancelled) && is_transport {
        let why = status.source().map(telemetry::chain).unwrap_or_default();
        return Status::unavailable(format!("the key service cannot be reached: {why}"));
    }
    status
}

fn is_in_chain<E: Error + 'static>(status: &Status) -> bool {
    let mut cause = status.source();
    while let Some(error) = cause {
        if error.is::<E>() {
            return true;
        }
        cause = error.source();
    }
    false
}

/// Content of a reply.
///
/// # Errors
/// Why there is no signature.
pub fn signature(reply: SignReply) -> Result<Vec<u8>, Status> {
    match reply.outcome {
        Some(sign_reply::Outcome::Signature(signature)) => Ok(signature),
        Some(sign_reply::Outcome::Failure(failure)) => Err(Status::new(failure.code.into(), failure.message)),
        None => Err(Status::internal("the reply says nothing")),
    }
}

//! The client of the native protocol.

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
use telemetry::spans::{TRACEPARENT, TraceParent};

/// Timeout of TCP connection and TLS handshake together.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// Interval of keep-alive pings. They detect a dead connection before the next request needs it.
const PING_EVERY: Duration = Duration::from_secs(20);
/// Timeout of a keep-alive ping: gRPC's default. A shorter one closes connections of a busy process, which reads the response late.
const PING_WITHIN: Duration = Duration::from_secs(20);
/// Flow-control window for replies of one stream, in bytes: enough for 40,000 RSA-2048 signatures per second at 100 ms.
const STREAM_WINDOW: u32 = 1 << 20;
/// Flow-control window for replies of the connection, in bytes: enough for four such streams.
const CONNECTION_WINDOW: u32 = 4 << 20;

/// Reason why a client cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The server's name is neither a DNS name nor an IP address.
    #[error("invalid server name: {0}")]
    Name(#[from] InvalidDnsNameError),
}

/// Deadline and trace of a request.
#[derive(Clone, Copy, Debug)]
pub struct CallOptions {
    /// Deadline of the request. After the deadline the call fails, and work that has not begun is dropped.
    pub deadline: Instant,
    /// Trace that the request belongs to.
    pub trace: Option<TraceParent>,
}

impl CallOptions {
    /// Creates the terms of a request with a deadline and no trace.
    #[must_use]
    pub fn until(deadline: Instant) -> Self {
        Self { deadline, trace: None }
    }

    /// Creates the terms of a request with a deadline `timeout` from now, and no trace.
    #[must_use]
    pub fn within(timeout: Duration) -> Self {
        Self::until(Instant::now() + timeout)
    }

    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = self.stream(message);
        request.set_timeout(self.deadline.saturating_duration_since(Instant::now()));
        request
    }

    /// Wraps the message of a stream with the trace, but without a deadline: each item of a stream has its own deadline.
    fn stream<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        let value = self.trace.and_then(|trace| MetadataValue::try_from(trace.to_string()).ok());
        if let Some(value) = value {
            request.metadata_mut().insert(TRACEPARENT, value);
        }
        request
    }
}

/// A client of the native protocol. Clones share one connection, which is opened by the first call and reopened after a failure.
/// Dropping a call cancels it, also on the server.
#[derive(Clone, Debug)]
pub struct Client {
    inner: KeyServiceClient<Channel>,
}

impl Client {
    /// Creates a client of the service at `address` (host and port), which must present a certificate for `name`. `tls` sets roots
    /// and client certificate; its ALPN protocols are replaced. Must be called on a runtime.
    ///
    /// # Errors
    /// [`ClientError`]
    pub fn tls(address: &str, name: &str, tls: &ClientConfig) -> Result<Self, ClientError> {
        Self::over_tls(address, name, tls, None)
    }

    /// Like [`Self::tls`], but the service's certificate must have this public key.
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
                    return Err(io::Error::other(
                        "the server presented a certificate for a key other than its pinned key",
                    ));
                }
                Ok(TokioIo::new(stream))
            }
        }))
    }

    /// Creates a client of the service at a Unix socket of this host. Must be called on a runtime.
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
        // The name is only for header fields: the connection is opened by the connector.
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

    /// Requests one signature.
    ///
    /// # Errors
    /// See the protocol's definition.
    #[crate::boxed]
    pub async fn sign(&self, request: SignRequest, call_options: CallOptions) -> Result<Vec<u8>, Status> {
        let reply = self.inner.clone().sign(call_options.request(request)).await.map_err(grpc_status)?;
        signature(reply.into_inner())
    }

    /// Requests up to [`BATCH_MAX`](crate::server::BATCH_MAX) signatures. Each has its own result, in the order of the requests.
    ///
    /// # Errors
    /// The call as a whole failed.
    #[crate::boxed]
    pub async fn sign_batch(
        &self,
        requests: Vec<SignRequest>,
        call_options: CallOptions,
    ) -> Result<Vec<Result<Vec<u8>, Status>>, Status> {
        let batch = proto::SignBatchRequest { requests };
        let reply = self.inner.clone().sign_batch(call_options.request(batch)).await.map_err(grpc_status)?;
        Ok(reply.into_inner().replies.into_iter().map(signature).collect())
    }

    /// Requests signatures on a stream; replies come in any order. Each request has its own deadline (`timeout_ms`); the deadline
    /// of `call_options` is not used.
    ///
    /// # Errors
    /// The stream cannot be opened.
    pub async fn sign_stream(
        &self,
        requests: impl Stream<Item = SignRequest> + Send + 'static,
        call_options: CallOptions,
    ) -> Result<Streaming<SignReply>, Status> {
        let mut inner = self.inner.clone();
        let begun = inner.sign_stream(call_options.stream(requests));
        let begun = tokio::time::timeout_at(call_options.deadline.into(), begun).await;
        let begun = begun.map_err(|_| Status::deadline_exceeded("timeout while opening the stream"))?;
        Ok(begun.map_err(grpc_status)?.into_inner())
    }

    /// Returns a page of the keys that this client may use.
    ///
    /// # Errors
    /// See the protocol's definition.
    #[crate::boxed]
    pub async fn list_keys(
        &self,
        page: proto::ListKeysRequest,
        call_options: CallOptions,
    ) -> Result<proto::ListKeysReply, Status> {
        Ok(self.inner.clone().list_keys(call_options.request(page)).await.map_err(grpc_status)?.into_inner())
    }

    /// Checks that the service responds.
    ///
    /// # Errors
    /// See the protocol's definition.
    #[crate::boxed]
    pub async fn ping(&self, call_options: CallOptions) -> Result<(), Status> {
        self.ping_with_wanted_nodes(proto::PingRequest::default(), call_options).await?;
        Ok(())
    }

    /// Pings a node of the same site. The request lists the nodes that this node wants to reach; the reply lists the nodes that the
    /// pinged node can reach.
    pub(crate) async fn ping_with_wanted_nodes(
        &self,
        request: proto::PingRequest,
        call_options: CallOptions,
    ) -> Result<proto::PingReply, Status> {
        Ok(self.inner.clone().ping(call_options.request(request)).await.map_err(grpc_status)?.into_inner())
    }

    /// Seals a session ticket.
    ///
    /// # Errors
    /// See the protocol's definition.
    #[crate::boxed]
    pub async fn seal(&self, clear: Vec<u8>, call_options: CallOptions) -> Result<Vec<u8>, Status> {
        let request = call_options.request(proto::SealRequest { clear });
        Ok(self.inner.clone().seal(request).await.map_err(grpc_status)?.into_inner().sealed)
    }

    /// Opens sealed data.
    ///
    /// # Errors
    /// See the protocol's definition.
    #[crate::boxed]
    pub async fn unseal(&self, sealed: Vec<u8>, call_options: CallOptions) -> Result<Vec<u8>, Status> {
        let request = call_options.request(proto::UnsealRequest { sealed });
        Ok(self.inner.clone().unseal(request).await.map_err(grpc_status)?.into_inner().clear)
    }
}

fn presents(stream: &TlsStream<TcpStream>, spki_sha256: SpkiHash) -> bool {
    let leaf = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
    let leaf = leaf.and_then(|leaf| Certificate::parse(leaf).ok());
    leaf.is_some_and(|leaf| leaf.public_key.spki_sha256 == spki_sha256)
}

/// Maps client-side failures to gRPC codes: a passed deadline to `DeadlineExceeded`, and a lost connection to `Unavailable`.
fn grpc_status(status: Status) -> Status {
    if has_source::<TimeoutExpired>(&status) {
        return Status::deadline_exceeded("deadline exceeded in the client");
    }
    let is_transport = has_source::<tonic::transport::Error>(&status);
    if matches!(status.code(), Code::Unknown | Code::Cancelled) && is_transport {
        let why = status.source().map(telemetry::chain).unwrap_or_default();
        return Status::unavailable(format!("the key service cannot be reached: {why}"));
    }
    status
}

fn has_source<E: Error + 'static>(status: &Status) -> bool {
    let mut cause = status.source();
    while let Some(error) = cause {
        if error.is::<E>() {
            return true;
        }
        cause = error.source();
    }
    false
}

/// Returns the signature in a reply.
///
/// # Errors
/// The error in the reply.
pub fn signature(reply: SignReply) -> Result<Vec<u8>, Status> {
    match reply.outcome {
        Some(sign_reply::Outcome::Signature(signature)) => Ok(signature),
        Some(sign_reply::Outcome::Failure(failure)) => Err(Status::new(failure.code.into(), failure.message)),
        None => Err(Status::internal("the reply is empty")),
    }
}

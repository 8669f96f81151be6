//! The signer's side: the Unix socket, the users that may connect, and the orders.

use std::collections::BTreeSet;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use authority::ca_keys::{CaKey, CaKeys, NewCaKey, SigningOrder, SigningPurpose};
use authority::keystore::KeyStoreError;
use authority::signer_checks::CheckedCaKeys;
use inbound::{Acceptor, ConnectionHandler, ServiceTasks, Slot, Slots, WhenFull};
use keyless::server::BoundSocket;
use keys::SignError;
use tokio::net::{UnixListener, UnixStream, unix};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::frame;
use crate::message::{Bytes, Key, PurposeMessage, Request, Response, Row};
use crate::socket_access::SocketAccess;

/// Maximum number of concurrent connections: two servers on a host with all their requests.
const CONNECTIONS_MAX: usize = 64;
/// Timeout for receiving a message that has started, and for sending a response.
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum time to sign an order, even if the request allows more.
const ORDER_TIMEOUT: Duration = Duration::from_secs(60);
/// Time limit for orders in progress on shutdown.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);
/// Size in bytes from which a document counts as large. Only CRLs are so large. Only one large document is in memory at a time.
const LARGE_BYTES: usize = 1 << 20;

/// Options of a signer process: the path of its socket, and the users that may connect.
#[derive(Clone, Debug)]
pub struct SignerOptions {
    /// Path of the socket.
    pub path: PathBuf,
    /// Ids of the users whose processes may connect.
    pub users: BTreeSet<u32>,
    /// The users that the socket's mode admits.
    pub access: SocketAccess,
}

/// Reason why a signer does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The directory is accessible to other users.
    #[error("the signer's socket cannot be created in {}: {reason}", folder.display())]
    Folder {
        /// Path of the directory.
        folder: PathBuf,
        /// Reason of the rejection.
        reason: String,
    },
    /// The socket cannot be created.
    #[error("cannot listen on {}: {error}", path.display())]
    Bind {
        /// Path of the socket.
        path: PathBuf,
        /// The error of the operating system.
        error: io::Error,
    },
}

/// A running signer, which accepts connections on its socket until it is stopped.
#[derive(Debug)]
pub struct SignerServer {
    socket: BoundSocket,
    tasks: ServiceTasks,
}

impl SignerServer {
    /// Creates the socket, and serves until `stop` is cancelled.
    ///
    /// # Errors
    /// [`StartError`]
    #[crate::boxed]
    pub async fn start(
        options: SignerOptions,
        keys: Arc<CheckedCaKeys>,
        stop: CancellationToken,
    ) -> Result<Self, StartError> {
        let SignerOptions { path, users, access } = options;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new("."));
        if let Some(reason) = access.refusal(folder) {
            return Err(StartError::Folder { folder: folder.to_owned(), reason });
        }
        let failed = |error| StartError::Bind { path: path.clone(), error };
        let (socket, listener) = BoundSocket::at(&path).await.map_err(failed)?;
        let mode = std::fs::Permissions::from_mode(access.mode());
        std::fs::set_permissions(&path, mode).map_err(failed)?;
        let tasks = ServiceTasks::stopped_by(stop);
        let orders = Orders { keys, users, large: Semaphore::new(1), stopping: tasks.stopping() };
        let acceptor = Acceptor::new(&tasks, Slots::new(CONNECTIONS_MAX), WhenFull::Wait);
        acceptor.start::<UnixListener, _>(listener, Arc::new(orders));
        Ok(Self { socket, tasks })
    }

    /// Stops the signer after the orders in progress. Returns false when some were aborted.
    #[crate::boxed]
    pub async fn stop(self) -> bool {
        let drained = self.tasks.close(DRAIN_TIMEOUT).await;
        self.socket.remove();
        drained
    }
}

struct Orders {
    keys: Arc<CheckedCaKeys>,
    users: BTreeSet<u32>,
    large: Semaphore,
    stopping: CancellationToken,
}

impl ConnectionHandler<UnixListener> for Orders {
    async fn serve(self: Arc<Self>, stream: UnixStream, _: unix::SocketAddr, _: &mut Slot) {
        let _live = telemetry::tasks::guard("signer-connection");
        let user = match stream.peer_cred() {
            Ok(peer) => peer.uid(),
            Err(error) => {
                return tracing::warn!(%error, "the user of a client cannot be determined: connection closed");
            }
        };
        if !self.users.contains(&user) {
            return tracing::warn!(
                user,
                "a process of another user connected to the signer: connection closed"
            );
        }
        if let Err(error) = self.serve_requests(stream).await {
            tracing::debug!(%error, "a connection to the signer failed");
        }
    }
}

impl Orders {
    async fn serve_requests(&self, mut stream: UnixStream) -> io::Result<()> {
        loop {
            let next = self.stopping.run_until_cancelled(frame::lengths(&mut stream)).await;
            let Some(lengths) = next.transpose()?.flatten() else { return Ok(()) };
            let large = match lengths.body > LARGE_BYTES {
                true => Some(self.large.acquire().await.map_err(io::Error::other)?),
                false => None,
            };
            let message = with_timeout(frame::read::<Request>(&mut stream, lengths)).await?;
            let answer = self.answer(message).await;
            drop(large);
            with_timeout(frame::write(&mut stream, &answer, &[])).await?;
        }
    }

    async fn answer(&self, (request, body): (Request, Vec<u8>)) -> Response {
        match request {
            Request::Ready => self.keys.ready().await.map_or_else(Response::from, |()| Response::Ready),
            Request::Make { kind, provider, label } => {
                let Ok(kind) = kind.parse() else { return Response::Failed(format!("key type {kind:?}")) };
                let wanted = NewCaKey { kind, provider: provider.as_deref(), label: &label };
                match self.keys.make(wanted).await {
                    Ok(new) => {
                        tracing::info!(label, key = %new.row.id, "a CA key was created");
                        Response::Key(Row::of(&new.row))
                    }
                    Err(KeyStoreError::Provider { error, .. }) => error.into(),
                    Err(error) => Response::Failed(error.to_string()),
                }
            }
            Request::Sign { key, purpose, within_ms } => {
                let deadline = Instant::now() + Duration::from_millis(within_ms).min(ORDER_TIMEOUT);
                match self.sign(key, purpose, &body, deadline).await {
                    Ok(signature) => Response::Signature(Bytes::of(&signature)),
                    Err(error) => {
                        tracing::warn!(%error, "a signing request failed");
                        error.into()
                    }
                }
            }
        }
    }

    async fn sign(
        &self,
        key: Key,
        purpose: PurposeMessage,
        tbs: &[u8],
        deadline: Instant,
    ) -> Result<Vec<u8>, SignError> {
        let (ca, new) = match key {
            Key::Ca(id) => {
                let ca = self.keys.ca(id).await;
                (Some(ca.map_err(|error| SignError::Failed(error.to_string()))?), None)
            }
            Key::New(row) => (None, Some(row.read()?)),
        };
        let key = match (&ca, &new) {
            (Some(ca), _) => CaKey::Of(ca),
            (None, Some(new)) => CaKey::New(new),
            (None, None) => return Err(SignError::Failed("the request names no key".to_owned())),
        };
        let (request, subject_key);
        let purpose = match purpose {
            PurposeMessage::Certificate { request: message, planned_at } => {
                request = message.read()?;
                SigningPurpose::Certificate { request: &request, planned_at: x509::UnixTime(planned_at) }
            }
            PurposeMessage::Crl { shard } => SigningPurpose::Crl { shard },
            PurposeMessage::OcspResponder => SigningPurpose::OcspResponder,
            PurposeMessage::ScepRecipient => SigningPurpose::ScepRecipient,
            PurposeMessage::CaCertificate { subject_key: row } => {
                subject_key = row.map(|row| row.read()).transpose()?;
                SigningPurpose::CaCertificate { subject_key: subject_key.as_ref() }
            }
            PurposeMessage::CaRequest => SigningPurpose::CaRequest,
        };
        let order = SigningOrder { key, purpose, tbs };
        let signed = tokio::time::timeout_at(deadline.into(), self.keys.sign(order, deadline)).await;
        signed.map_err(|_| SignError::Late)?
    }
}

async fn with_timeout<T>(message: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let done = tokio::time::timeout(MESSAGE_TIMEOUT, message).await;
    done.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}

//! The control socket of a running proxy: a Unix socket that accepts only root and the user of the proxy. A connection carries one
//! request and its response, each a line of JSON.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream as BlockingStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use inbound::{Acceptor, ConnectionHandler, ServiceTasks, Slot, Slots, WhenFull};
use keyless::server::BoundSocket;
use proxy::holds::{HeldRequest, Holds};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream, unix};
use tokio_util::sync::CancellationToken;

/// Maximum concurrent connections to the proxy's control socket.
const CONNECTIONS_MAX: usize = 16;
/// Maximum bytes of a request on the control socket.
const REQUEST_BYTES_MAX: u64 = 64 << 10;
/// Maximum bytes of a response: the longest list of held requests.
const RESPONSE_BYTES_MAX: u64 = 16 << 20;
/// Timeout of a request and its response.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum bytes of the reason of a rejection.
pub(super) const REASON_BYTES_MAX: usize = 1_000;

/// A request to a running proxy: list, approve or reject held requests.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ControlRequest {
    /// List the held requests.
    Held,
    /// Approve a held request.
    Approve {
        id: String,
        /// Seconds in which equal requests are approved as well.
        for_s: Option<u64>,
    },
    /// Reject a held request.
    Reject { id: String, reason: Option<String> },
}

/// The response of the proxy to a [`ControlRequest`].
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ControlResponse {
    /// The requests that wait for approval.
    Held(Vec<HeldRequest>),
    /// The request is approved; `sent` requests are sent now.
    Approved { request: HeldRequest, sent: usize },
    /// The request is rejected.
    Rejected { request: HeldRequest },
    /// The request on the socket failed.
    Failed(String),
}

pub(super) struct ControlServer {
    socket: BoundSocket,
    tasks: ServiceTasks,
}

impl ControlServer {
    /// Listens at `path` until `stop`, for requests that list, approve or reject the held requests in `holds`.
    pub(super) async fn start(path: &Path, holds: Holds, stop: CancellationToken) -> io::Result<Self> {
        let (socket, listener) = BoundSocket::at(path).await?;
        let tasks = ServiceTasks::stopped_by(stop);
        let acceptor = Acceptor::new(&tasks, Slots::new(CONNECTIONS_MAX), WhenFull::Wait);
        acceptor.start::<UnixListener, _>(listener, Arc::new(Control(holds)));
        Ok(Self { socket, tasks })
    }

    /// Stops after the requests in progress.
    pub(super) async fn stop(self) {
        self.tasks.close(REQUEST_TIMEOUT).await;
        self.socket.remove();
    }
}

struct Control(Holds);

impl ConnectionHandler<UnixListener> for Control {
    async fn serve(self: Arc<Self>, stream: UnixStream, _: unix::SocketAddr, _: &mut Slot) {
        let _live = telemetry::tasks::guard("proxy-control");
        let peer = match stream.peer_cred() {
            Ok(peer) => peer.uid(),
            Err(error) => return tracing::warn!(%error, "the user of a control connection is unknown"),
        };
        // The mode of the socket has the same effect, but an administrator may have changed it.
        if ![0, rustix::process::geteuid().as_raw()].contains(&peer) {
            return tracing::warn!(user = peer, "closed a control connection of another user");
        }
        match tokio::time::timeout(REQUEST_TIMEOUT, self.respond(stream, peer)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "a control connection failed"),
            Err(_) => tracing::debug!("timeout of a control connection"),
        }
    }
}

impl Control {
    async fn respond(&self, stream: UnixStream, peer: u32) -> io::Result<()> {
        let (reader, mut writer) = stream.into_split();
        let mut line = String::new();
        tokio::io::BufReader::new(reader.take(REQUEST_BYTES_MAX)).read_line(&mut line).await?;
        let response = match serde_json::from_str(&line) {
            Ok(request) => self.response(request, &user_name(peer)),
            Err(error) => ControlResponse::Failed(format!("invalid request: {error}")),
        };
        let mut line = serde_json::to_vec(&response).map_err(io::Error::other)?;
        line.push(b'\n');
        writer.write_all(&line).await?;
        writer.shutdown().await
    }

    /// Carries out a request of the OS user `by`.
    fn response(&self, request: ControlRequest, by: &str) -> ControlResponse {
        match request {
            ControlRequest::Held => ControlResponse::Held(self.0.list()),
            ControlRequest::Approve { id, for_s } => {
                match self.0.approve(&id, for_s.map(Duration::from_secs), by) {
                    Ok((request, sent)) => ControlResponse::Approved { request, sent },
                    Err(error) => ControlResponse::Failed(error.to_string()),
                }
            }
            ControlRequest::Reject { reason: Some(reason), .. } if reason.len() > REASON_BYTES_MAX => {
                ControlResponse::Failed(format!("the reason is longer than {REASON_BYTES_MAX} bytes"))
            }
            ControlRequest::Reject { id, reason } => match self.0.reject(&id, reason, by) {
                Ok(request) => ControlResponse::Rejected { request },
                Err(error) => ControlResponse::Failed(error.to_string()),
            },
        }
    }
}

/// Returns the name of an OS user in `/etc/passwd`, and the user ID.
fn user_name(uid: u32) -> String {
    let text = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let name = text.lines().find_map(|line| {
        let mut columns = line.split(':');
        let name = columns.next()?;
        (columns.nth(1)?.parse() == Ok(uid)).then(|| name.to_owned())
    });
    name.map_or_else(|| format!("uid {uid}"), |name| format!("{name} (uid {uid})"))
}

/// Sends a request to the proxy at `path`, and returns its response.
pub(super) fn send(path: &Path, request: &ControlRequest) -> io::Result<ControlResponse> {
    let mut stream = BlockingStream::connect(path)?;
    stream.set_read_timeout(Some(REQUEST_TIMEOUT))?;
    stream.set_write_timeout(Some(REQUEST_TIMEOUT))?;
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    stream.write_all(&line)?;
    let mut answer = String::new();
    BufReader::new(stream.take(RESPONSE_BYTES_MAX)).read_line(&mut answer)?;
    if answer.is_empty() {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the proxy closed the connection"));
    }
    Ok(serde_json::from_str(&answer)?)
}

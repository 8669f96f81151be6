//! The store's API over the cache, for other programs on the same host: on a Unix socket, or on TCP with TLS.
//!
//! Anyone who may connect to the socket can read what the agent can read, so the socket's owner and mode are the access control. On
//! TCP a client logs in with the agent's own token.

mod answer;
mod caller;
mod disk;
mod interpolate;
mod tls;

use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use inbound::{Acceptor, ServiceTasks, Slots, WhenFull};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{UnixListener, UnixStream, unix};
use tokio_util::sync::CancellationToken;

use crate::Client;
use answer::Searches;
pub use tls::{TlsAgent, TlsAgentOptions};

/// Maximum concurrent connections. Further ones wait in the system's queue.
const CONNECTIONS_MAX: usize = 512;
/// Maximum concurrent requests on one HTTP/2 connection.
const STREAMS_MAX: u32 = 128;
/// Maximum bytes of a request head.
const HEAD_MAX: usize = 32 << 10;
/// Timeout for a request's head on HTTP/1.1 and for an idle connection; interval of pings on HTTP/2.
const HEAD_WITHIN: Duration = Duration::from_secs(60);
/// Timeout for requests in progress at shutdown.
const DRAIN: Duration = Duration::from_secs(5);
/// Permission bits that a socket's mode may have: read and write for owner and group.
const MODES: u32 = 0o660;

/// Options of an agent on a Unix socket.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AgentOptions {
    /// Path of the socket. A stale socket of an earlier agent is replaced.
    pub socket: PathBuf,
    /// Mode of the socket: 0600 for its owner (and root), 0660 also for its group.
    pub mode: u32,
}

/// The reason why an agent does not start.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// Another agent already listens on the socket.
    #[error("an agent already listens on {0}")]
    Running(PathBuf),
    /// The certificate, its key, or the agent's own token cannot be used.
    #[error("the agent cannot use TLS: {0}")]
    Tls(String),
    /// The path is not a socket, it belongs to another user, or others may write to its folder.
    #[error("cannot use {path} as the agent's socket: {why}")]
    UnusableSocket {
        /// The socket or its folder.
        path: PathBuf,
        /// Reason why the path cannot be used.
        why: &'static str,
    },
    /// An operation of the system failed.
    #[error("{path}: {source}")]
    Io {
        /// The file of the operation.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
}

/// An agent that listens on a Unix socket.
#[derive(Debug)]
pub struct Agent {
    listener: UnixListener,
    client: Client,
    options: AgentOptions,
    /// Inode of the socket, so that another agent's socket is not removed.
    inode: u64,
}

impl Agent {
    /// Binds the socket. Sends no request to the store yet.
    ///
    /// # Errors
    /// [`AgentError`].
    #[crate::boxed]
    pub async fn bind(client: Client, options: AgentOptions) -> Result<Self, AgentError> {
        let path = &options.socket;
        let unusable = |why| AgentError::UnusableSocket { path: path.clone(), why };
        if options.mode & !MODES != 0 || options.mode & 0o600 != 0o600 {
            return Err(unusable("its mode must be 0600 or 0660"));
        }
        check_folder(folder_of(path))?;
        if let Ok(found) = std::fs::symlink_metadata(path) {
            if !found.file_type().is_socket() {
                return Err(unusable("the path exists and is not a socket"));
            }
            if found.uid() != own_user() {
                return Err(unusable("another user owns it"));
            }
            if UnixStream::connect(path).await.is_ok() {
                return Err(AgentError::Running(path.clone()));
            }
        }
        let (listener, inode) =
            listen(&options).map_err(|source| AgentError::Io { path: path.clone(), source })?;
        Ok(Self { listener, client, options, inode })
    }

    /// Serves until `stop`. Requests in progress then get five seconds.
    pub async fn serve(self, stop: CancellationToken) {
        let router = answer::router(self.client.clone(), Searches::Parts, stop.clone());
        let (tasks, is_private) = (ServiceTasks::stopped_by(stop.clone()), self.is_private());
        let handler = move |stream: UnixStream, _: unix::SocketAddr| {
            let (router, stop) = (router.clone(), stop.clone());
            async move {
                if !is_private || is_of_owner(&stream) {
                    connection(stream, router, stop).await;
                }
            }
        };
        let slots = Slots::new(CONNECTIONS_MAX);
        Acceptor::new(&tasks, slots, WhenFull::Wait).run(&self.listener, Arc::new(handler)).await;
        if !tasks.close(DRAIN).await {
            tracing::warn!("closed connections that had not finished");
        }
        let same =
            std::fs::symlink_metadata(&self.options.socket).is_ok_and(|found| found.ino() == self.inode);
        if same && let Err(error) = std::fs::remove_file(&self.options.socket) {
            tracing::warn!(%error, "cannot remove the socket");
        }
    }

    /// Returns whether only the owner may use the socket.
    fn is_private(&self) -> bool {
        self.options.mode & 0o060 == 0
    }
}

/// Returns whether the client of a private socket is the socket's owner or root. The socket's mode also ensures this, but it may
/// have been changed.
fn is_of_owner(stream: &UnixStream) -> bool {
    let is_of_owner = stream.peer_cred().is_ok_and(|peer| [0, own_user()].contains(&peer.uid()));
    if !is_of_owner {
        tracing::warn!("refused a connection from a process of another user");
    }
    is_of_owner
}

fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Rejects a folder in which other users could replace the socket.
fn check_folder(folder: &Path) -> Result<(), AgentError> {
    const EVERYBODY: u32 = 0o002;
    const STICKY: u32 = 0o1000;
    let found =
        std::fs::metadata(folder).map_err(|source| AgentError::Io { path: folder.to_owned(), source })?;
    if found.mode() & EVERYBODY != 0 && found.mode() & STICKY == 0 {
        return Err(AgentError::UnusableSocket {
            path: folder.to_owned(),
            why: "every user may write to it",
        });
    }
    Ok(())
}

/// Binds a socket in its own folder, sets its mode, and moves it to its path. So no client can connect before the mode is set.
fn listen(options: &AgentOptions) -> io::Result<(UnixListener, u64)> {
    let path = &options.socket;
    let private = folder_of(path).join(format!(".bulla-agent-{}", std::process::id()));
    std::fs::DirBuilder::new().mode(0o700).create(&private)?;
    let made = private.join("s");
    let listened = UnixListener::bind(&made).and_then(|listener| {
        std::fs::set_permissions(&made, std::fs::Permissions::from_mode(options.mode))?;
        let inode = std::fs::symlink_metadata(&made)?.ino();
        std::fs::rename(&made, path)?;
        Ok((listener, inode))
    });
    if listened.is_err() {
        // The remaining temporary file is useless.
        let _ = std::fs::remove_file(&made);
    }
    std::fs::remove_dir(&private)?;
    listened
}

async fn connection<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    router: Router,
    stop: CancellationToken,
) {
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_WITHIN).max_buf_size(HEAD_MAX);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(HEAD_MAX as u32)
        .keep_alive_interval(HEAD_WITHIN)
        .keep_alive_timeout(HEAD_WITHIN);
    let serving = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    tokio::pin!(serving);
    let mut ending = false;
    loop {
        tokio::select! {
            ended = serving.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "a connection broke");
                }
                return;
            }
            () = stop.cancelled(), if !ending => {
                ending = true;
                serving.as_mut().graceful_shutdown();
            }
        }
    }
}

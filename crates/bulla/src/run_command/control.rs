//! The connection between the first process and the init process of the namespaces. It transfers the bound socket, the start
//! command and signals. It closes when either process ends.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use cli::exit::{Exit, Outcome, Problem};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use tokio::net::UnixListener;

/// The name of the socket in the folder of this run.
const NAME: &str = "control";
/// The byte that starts the command.
const START: u8 = 0;

/// The socket of the first process, to which the init process of the namespaces connects. It has a path, because abstract names
/// belong to a network namespace.
pub(super) struct ControlSocket {
    socket: UnixListener,
    path: PathBuf,
}

/// The first process's side of the connection.
pub(super) struct Link(UnixStream);

impl ControlSocket {
    pub(super) fn open(folder: &Path) -> Outcome<Self> {
        let path = folder.join(NAME);
        let socket = UnixListener::bind(&path).map_err(|error| failed(&error))?;
        Ok(Self { socket, path })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Waits for the init process and receives the socket that it has bound. No other process connects afterwards.
    pub(super) async fn link(self) -> Outcome<(Link, OwnedFd)> {
        let linked = async {
            let (stream, _) = self.socket.accept().await?;
            let stream = stream.into_std()?;
            stream.set_nonblocking(false)?;
            let taken =
                tokio::task::spawn_blocking(move || take(&stream).map(|socket| (Link(stream), socket)));
            taken.await.map_err(io::Error::other)?
        };
        let linked = linked.await.map_err(|error| failed(&error));
        let _ = std::fs::remove_file(&self.path);
        linked
    }
}

impl Link {
    pub(super) fn start_command(&mut self) -> Outcome<()> {
        self.0.write_all(&[START]).map_err(|error| failed(&error))
    }

    /// Requests the init process to send a signal to the command. Does nothing if the init process has ended.
    pub(super) fn forward(&mut self, signal: i32) {
        let _ = u8::try_from(signal).map(|signal| self.0.write_all(&[signal]));
    }
}

fn take(stream: &UnixStream) -> io::Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut received = RecvAncillaryBuffer::new(&mut space);
    let mut word = [0];
    recvmsg(stream, &mut [IoSliceMut::new(&mut word)], &mut received, RecvFlags::CMSG_CLOEXEC)?;
    let mut sockets = received.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(sockets) => Some(sockets),
        _ => None,
    });
    sockets.next().and_then(|mut sockets| sockets.next()).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// The init process's side of the connection.
pub(super) struct InitConnection(UnixStream);

impl InitConnection {
    /// Connects, sends the socket, and waits until the command may start.
    pub(super) fn connect(path: &Path, socket: &impl AsFd) -> Outcome<Self> {
        let connect = || -> io::Result<Self> {
            let mut stream = UnixStream::connect(path)?;
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut rights = SendAncillaryBuffer::new(&mut space);
            let sockets = [socket.as_fd()];
            rights.push(SendAncillaryMessage::ScmRights(&sockets));
            sendmsg(&stream, &[IoSlice::new(&[START])], &mut rights, SendFlags::empty())?;
            stream.read_exact(&mut [0])?;
            Ok(Self(stream))
        };
        connect().map_err(|error| failed(&error))
    }

    /// Returns the next signal for the command; `None` when the first process has ended.
    pub(super) fn next(&mut self) -> Option<i32> {
        let mut signal = [0];
        self.0.read_exact(&mut signal).ok().map(|()| signal[0].into())
    }
}

fn failed(error: &io::Error) -> Problem {
    Problem::new(
        Exit::Machine,
        format_args!("the connection between the processes of this run failed: {error}"),
    )
    .hint("see the previous message; the temporary folder (TMPDIR) must support Unix sockets")
}

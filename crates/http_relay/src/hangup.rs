//! Detects that a client has closed its connection, while nothing reads from the connection.

use std::future::pending;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Weak};

use tokio::io::Interest;
use tokio::net::TcpStream;

/// A second file descriptor of a connection. Drop it together with the connection: otherwise it keeps the connection open.
#[derive(Debug)]
pub struct HangupWatch(Arc<OwnedFd>);

/// A signal that the peer has closed the connection. Does not keep the connection open. The default never signals.
#[derive(Clone, Debug, Default)]
pub struct HangupSignal(Weak<OwnedFd>);

impl HangupWatch {
    /// Creates a watch of `stream`.
    ///
    /// # Errors
    /// The process has too many open files.
    pub fn of(stream: &TcpStream) -> io::Result<Self> {
        Ok(Self(Arc::new(stream.as_fd().try_clone_to_owned()?)))
    }

    /// Returns a signal of this connection.
    #[must_use]
    pub fn signal(&self) -> HangupSignal {
        HangupSignal(Arc::downgrade(&self.0))
    }
}

impl HangupSignal {
    /// Waits until the peer has closed the connection or its sending side. Reads nothing, so it also works while received bytes wait
    /// to be read.
    pub(crate) async fn closed(&self) {
        let Some(fd) = self.0.upgrade() else { return pending().await };
        let watched = fd.try_clone().and_then(|fd| TcpStream::from_std(std::net::TcpStream::from(fd)));
        drop(fd);
        let Ok(watched) = watched else { return pending().await };
        loop {
            let Ok(ready) = watched.ready(Interest::READABLE).await else { return pending().await };
            if ready.is_read_closed() {
                return;
            }
            // Bytes wait to be read. Clears the readiness: the next event is more bytes, or the end.
            let _ = watched.try_io(Interest::READABLE, || Err::<(), _>(io::ErrorKind::WouldBlock.into()));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn closed_connection_is_noticed_while_bytes_wait_to_be_read() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let watch = HangupWatch::of(&stream).unwrap();
        let signal = watch.signal();
        client.write_all(b"unread").await.unwrap();
        let early = tokio::time::timeout(Duration::from_millis(50), signal.closed()).await;
        assert!(early.is_err(), "the connection is open");
        drop(client);
        signal.closed().await;
        // A signal whose connection was dropped never completes.
        drop(watch);
        let late = tokio::time::timeout(Duration::from_millis(50), signal.closed()).await;
        assert!(late.is_err());
    }
}

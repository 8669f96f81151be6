//! One name server, its sockets, and who waits for which answer.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::{OnceCell, oneshot};
use tokio_util::sync::CancellationToken;

use super::ResolveError;
use super::answer::{HEADER, Question};

/// Sockets to one server, each on a random port: with the 16-bit identifier this leaves a forger
/// off the path to guess about 34 bits (RFC 5452).
const SOCKETS: usize = 8;
/// Octets of the largest datagram read; we ask for 1,232 (see `answer`), some servers do not listen.
const DATAGRAM_READ: usize = 4_096;
/// Tries to find an identifier nobody uses. With at most `QUERIES_MAX` under way the first is free.
const IDENTIFIER_TRIES: usize = 32;

/// A name server.
pub(super) struct Upstream {
    address: SocketAddr,
    sockets: OnceCell<Vec<Arc<Line>>>,
    next: AtomicUsize,
    stop: CancellationToken,
}

/// A socket and those who wait on it.
struct Line {
    socket: UdpSocket,
    waiting: Mutex<HashMap<u16, Waiter>>,
}

struct Waiter {
    question: Question,
    reply: oneshot::Sender<Vec<u8>>,
}

/// A question under way. Dropping it forgets the question.
pub(super) struct Waiting {
    line: Arc<Line>,
    identifier: u16,
    octets: Vec<u8>,
    reply: oneshot::Receiver<Vec<u8>>,
}

impl Upstream {
    pub(super) fn new(address: SocketAddr, stop: CancellationToken) -> Self {
        Self { address, sockets: OnceCell::new(), next: AtomicUsize::new(0), stop }
    }

    /// Sends the question; the answer is to be waited for.
    pub(super) async fn send(&self, question: &Question) -> Result<Waiting, ResolveError> {
        let lines = self
            .sockets
            .get_or_try_init(|| self.open())
            .await
            .map_err(|_| ResolveError::NoServer)?;
        let line = &lines[self.next.fetch_add(1, Relaxed) % lines.len()];
        let waiting = line.clone().wait(question).ok_or(ResolveError::NoServer)?;
        waiting.send_again().await;
        Ok(waiting)
    }

    async fn open(&self) -> io::Result<Vec<Arc<Line>>> {
        let mut lines = Vec::with_capacity(SOCKETS);
        let any: IpAddr = match self.address {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        for _ in 0..SOCKETS {
            // Port 0: the system picks one at random.
            let socket = UdpSocket::bind((any, 0)).await?;
            // Only datagrams from this server come through.
            socket.connect(self.address).await?;
            let line = Arc::new(Line { socket, waiting: Mutex::default() });
            let (reader, stop) = (line.clone(), self.stop.clone());
            let guard = telemetry::tasks::guard("dns-reader");
            tokio::spawn(async move {
                let _guard = guard;
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = reader.read() => {}
                }
            });
            lines.push(line);
        }
        Ok(lines)
    }

    /// Asks over TCP, for answers that do not fit a datagram (RFC 7766).
    pub(super) async fn over_tcp(&self, question: &Question) -> Result<Vec<u8>, ResolveError> {
        let exchange = async {
            let mut stream = TcpStream::connect(self.address).await?;
            let length = u16::try_from(question.octets.len()).map_err(io::Error::other)?;
            let mut message = length.to_be_bytes().to_vec();
            message.extend_from_slice(&question.octets);
            stream.write_all(&message).await?;
            let length = stream.read_u16().await?;
            let mut answer = vec![0; length.into()];
            stream.read_exact(&mut answer).await?;
            io::Result::Ok(answer)
        };
        let answer = exchange.await.map_err(|_| ResolveError::NoServer)?;
        // The identifier is zero here: the connection itself tells whose answer it is.
        if question.is_answered_by(&answer) {
            Ok(answer)
        } else {
            Err(ResolveError::Malformed("it answers another question"))
        }
    }
}

impl Line {
    fn wait(self: Arc<Self>, question: &Question) -> Option<Waiting> {
        let (sender, reply) = oneshot::channel();
        let mut waiting = self.waiting.lock();
        for _ in 0..IDENTIFIER_TRIES {
            let mut random = [0; 2];
            aws_lc_rs::rand::fill(&mut random).ok()?;
            let identifier = u16::from_be_bytes(random);
            if waiting.contains_key(&identifier) {
                continue;
            }
            waiting.insert(identifier, Waiter { question: question.clone(), reply: sender });
            drop(waiting);
            let mut octets = question.octets.clone();
            octets[..2].copy_from_slice(&random);
            return Some(Waiting { line: self, identifier, octets, reply });
        }
        None
    }

    /// Hands each datagram to whoever asked that question under that identifier.
    async fn read(&self) {
        let mut datagram = vec![0; DATAGRAM_READ];
        loop {
            match self.socket.recv(&mut datagram).await {
                Ok(length) => self.deliver(&datagram[..length]),
                // The server's host says that nobody listens there: whoever waits need not.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    self.waiting.lock().clear();
                }
                // Any other error belongs to one datagram. Give way, lest it repeat at once.
                Err(_) => tokio::task::yield_now().await,
            }
        }
    }

    fn deliver(&self, datagram: &[u8]) {
        if datagram.len() < HEADER {
            return;
        }
        let identifier = u16::from_be_bytes([datagram[0], datagram[1]]);
        let mut waiting = self.waiting.lock();
        let ours = waiting.get(&identifier).is_some_and(|w| w.question.is_answered_by(datagram));
        // Anything else is a forgery, or an answer nobody waits for any more.
        if ours && let Some(waiter) = waiting.remove(&identifier) {
            // The asker may have gone away.
            let _ = waiter.reply.send(datagram.to_vec());
        }
    }
}

impl Waiting {
    /// The answer's octets.
    pub(super) async fn answer(&mut self) -> Result<Vec<u8>, ResolveError> {
        (&mut self.reply).await.map_err(|_| ResolveError::NoServer)
    }

    /// Sends the question (again). A datagram that cannot be sent is as good as lost.
    pub(super) async fn send_again(&self) {
        let _ = self.line.socket.send(&self.octets).await;
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.line.waiting.lock().remove(&self.identifier);
    }
}

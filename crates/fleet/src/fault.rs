//! Servers that fail, each in its own way, and those too old to go further than their certificate.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use aws_lc_rs::rand;
use rustls::pki_types::CertificateDer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::FleetError;
use crate::kind::{Fault, Relic};

/// How long a server that says nothing holds the connection: longer than any scanner waits here.
const HELD: Duration = Duration::from_secs(60);
/// Bytes of a client's hello that are read before answering.
const HELLO_READ: usize = 4_096;
/// Handshake bytes an endless server sends at most, lest a broken scanner fill the disk with them.
const ENDLESS_MAX: usize = 64 << 20;
/// A record carries so many bytes at most (RFC 8446 section 5.1).
const RECORD_MAX: usize = 1 << 14;

const HANDSHAKE: u8 = 22;
const ALERT: u8 = 21;

/// Does to the client what `fault` says. Ends when the client goes away, or after a minute.
pub(crate) async fn misbehave(mut stream: TcpStream, fault: Fault) -> io::Result<()> {
    match fault {
        // Nobody listens there, or nobody accepts: no connection comes this far.
        Fault::Refused | Fault::BlackHole => Ok(()),
        Fault::ResetAtOnce => reset(stream),
        Fault::ResetAfterHello => {
            hear_hello(&mut stream).await?;
            reset(stream)
        }
        Fault::Stall => hold(&mut stream).await,
        Fault::StallAfterHello => {
            hear_hello(&mut stream).await?;
            stream.write_all(&record(HANDSHAKE, 0x0303, &server_hello(0x0303, 0xc02f)?)).await?;
            hold(&mut stream).await
        }
        Fault::HttpAnswer => {
            hear_hello(&mut stream).await?;
            let answer = b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/html\r\nConnection: close\r\n\r\n\
                <html><body>The plain HTTP request was sent to HTTPS port</body></html>";
            stream.write_all(answer).await?;
            close(&mut stream).await
        }
        Fault::SshBanner => {
            stream.write_all(b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n").await?;
            hold(&mut stream).await
        }
        Fault::Alert(description) => {
            hear_hello(&mut stream).await?;
            stream.write_all(&record(ALERT, 0x0303, &[2, description])).await?;
            close(&mut stream).await
        }
        Fault::CloseAtOnce => close(&mut stream).await,
        Fault::CloseAfterHello => {
            hear_hello(&mut stream).await?;
            stream.write_all(&record(HANDSHAKE, 0x0303, &server_hello(0x0303, 0xc02f)?)).await?;
            close(&mut stream).await
        }
        Fault::Drip => {
            hear_hello(&mut stream).await?;
            let hello = record(HANDSHAKE, 0x0303, &server_hello(0x0303, 0xc02f)?);
            for octet in hello {
                stream.write_all(&[octet]).await?;
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            Ok(())
        }
        Fault::Endless => {
            hear_hello(&mut stream).await?;
            stream.write_all(&record(HANDSHAKE, 0x0303, &server_hello(0x0303, 0xc02f)?)).await?;
            // HelloRequest messages, four bytes each: legal one by one, without end together.
            let flood = record(HANDSHAKE, 0x0303, &[0; RECORD_MAX]);
            for _ in 0..ENDLESS_MAX / RECORD_MAX {
                stream.write_all(&flood).await?;
            }
            Ok(())
        }
        Fault::Oversized => {
            hear_hello(&mut stream).await?;
            stream.write_all(&record(HANDSHAKE, 0x0303, &server_hello(0x0303, 0xc02f)?)).await?;
            // A Certificate message of 2^24 - 1 bytes, and as many of them as the client takes.
            let mut first = vec![11, 0xff, 0xff, 0xff];
            first.resize(RECORD_MAX, 0);
            stream.write_all(&record(HANDSHAKE, 0x0303, &first)).await?;
            let more = record(HANDSHAKE, 0x0303, &[0; RECORD_MAX]);
            for _ in 0..(1 << 24) / RECORD_MAX {
                stream.write_all(&more).await?;
            }
            Ok(())
        }
    }
}

/// A relic's whole part in clear: ServerHello, Certificate, for a Diffie-Hellman suite a
/// ServerKeyExchange that nobody signed properly, ServerHelloDone.
pub(crate) async fn answer_as_relic(
    mut stream: TcpStream,
    relic: Relic,
    chain: &[CertificateDer<'_>],
) -> io::Result<()> {
    hear_hello(&mut stream).await?;
    let mut certificates = Vec::new();
    for certificate in chain {
        certificates.extend_from_slice(&length24(certificate.len()));
        certificates.extend_from_slice(certificate);
    }
    let mut flight = server_hello(relic.version, relic.suite)?;
    flight.extend(message(11, &[&length24(certificates.len())[..], &certificates].concat()));
    if is_ephemeral(relic.suite) {
        flight.extend(message(12, &key_exchange()));
    }
    flight.extend(message(14, &[]));
    for part in flight.chunks(RECORD_MAX) {
        stream.write_all(&record(HANDSHAKE, relic.version, part)).await?;
    }
    hold(&mut stream).await
}

/// DHE-RSA and DHE-DSS suites with AES or 3DES (RFC 5246 appendix A.5).
fn is_ephemeral(suite: u16) -> bool {
    matches!(suite, 0x0013 | 0x0016 | 0x0032 | 0x0033 | 0x0038 | 0x0039)
}

/// ServerDHParams of 1,024 bits and a signature that is noise: clients that stop at the
/// certificate never get to it, and DSA is checked by no library here.
fn key_exchange() -> Vec<u8> {
    let parameter = [&[0, 128][..], &[0xb7; 128]].concat();
    let generator = [0, 1, 2];
    let signature = [&[0, 46, 0x30, 44, 2, 20][..], &[0x11; 20], &[2, 20], &[0x22; 20]].concat();
    [&parameter[..], &generator, &parameter, &signature].concat()
}

fn server_hello(version: u16, suite: u16) -> io::Result<Vec<u8>> {
    let mut random = [0; 32];
    rand::fill(&mut random).map_err(|_| io::Error::other("no randomness"))?;
    let mut body = version.to_be_bytes().to_vec();
    body.extend_from_slice(&random);
    // No session identifier: nothing to resume.
    body.push(0);
    body.extend_from_slice(&suite.to_be_bytes());
    body.push(0);
    Ok(message(2, &body))
}

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    [&[kind][..], &length24(body.len()), body].concat()
}

fn length24(length: usize) -> [u8; 3] {
    let [.., high, middle, low] = length.to_be_bytes();
    [high, middle, low]
}

fn record(kind: u8, version: u16, body: &[u8]) -> Vec<u8> {
    let length = (body.len() as u16).to_be_bytes();
    [&[kind][..], &version.to_be_bytes(), &length, body].concat()
}

async fn hear_hello(stream: &mut TcpStream) -> io::Result<()> {
    let mut hello = vec![0; HELLO_READ];
    match stream.read(&mut hello).await? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(()),
    }
}

/// Reads and says nothing, until the client leaves or a minute has passed.
async fn hold(stream: &mut TcpStream) -> io::Result<()> {
    let mut ignored = vec![0; HELLO_READ];
    let leaving = async {
        while stream.read(&mut ignored).await? > 0 {}
        io::Result::Ok(())
    };
    tokio::time::timeout(HELD, leaving).await.unwrap_or(Ok(()))
}

/// Ends our side only and reads on: a socket closed with bytes unread, be it the second segment of a
/// hello, would reset the connection.
async fn close(stream: &mut TcpStream) -> io::Result<()> {
    stream.shutdown().await?;
    hold(stream).await
}

/// A RST instead of a FIN.
fn reset(stream: TcpStream) -> io::Result<()> {
    socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO))
}

/// A port that swallows every SYN: its queue of waiting connections is full, and nobody empties it.
pub(crate) struct BlackHole {
    pub(crate) address: SocketAddr,
    _listener: socket2::Socket,
    /// Those that fill the queue, and the first that found no place.
    _waiting: Vec<socket2::Socket>,
}

impl BlackHole {
    /// Connections tried to fill a queue of backlog 0. Linux takes one more than the backlog, so that
    /// the second finds no place; the rest is for kernels that round up.
    const FILLERS_MAX: usize = 16;
    /// How long a connection stays in progress before its SYN counts as swallowed. Loopback answers
    /// within the call to connect; where a busy machine is slower, that SYN takes the last place itself.
    const SWALLOWED_AFTER: Duration = Duration::from_millis(5);

    /// Opens one at `address`, and sees that it swallows.
    pub(crate) fn open(address: Ipv4Addr) -> Result<Self, FleetError> {
        let tcp = || socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
        let listener = tcp()?;
        listener.bind(&SocketAddr::from((address, 0)).into())?;
        listener.listen(0)?;
        let bound = listener.local_addr()?;
        let address = bound.as_socket().ok_or_else(|| io::Error::other("no IPv4 address"))?;
        let mut waiting = Vec::new();
        while waiting.len() < Self::FILLERS_MAX {
            let filler = tcp()?;
            let connected = filler.connect_timeout(&bound, Self::SWALLOWED_AFTER);
            waiting.push(filler);
            match connected {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                    return Ok(Self { address, _listener: listener, _waiting: waiting });
                }
                Err(error) => return Err(error.into()),
            }
        }
        Err(FleetError::NoBlackHole { address, connections: waiting.len() })
    }
}

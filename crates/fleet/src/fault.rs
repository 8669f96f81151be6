//! Servers with faults, and servers so old that they are simulated only up to the certificate.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use aws_lc_rs::rand;
use rustls::pki_types::CertificateDer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::FleetError;
use crate::kind::{Fault, Relic};

/// Time for which a silent server keeps the connection open: longer than the timeouts of any scanner here.
const STALL_TIMEOUT: Duration = Duration::from_secs(60);
/// Bytes of the ClientHello that are read before a response.
const HELLO_READ: usize = 4_096;
/// Maximum handshake bytes that an endless server sends, to limit the damage by a broken scanner.
const ENDLESS_MAX: usize = 64 << 20;
/// Maximum bytes of a record (RFC 8446 section 5.1).
const RECORD_MAX: usize = 1 << 14;

const HANDSHAKE: u8 = 22;
const ALERT: u8 = 21;

/// Simulates `fault` on a connection. Ends when the client disconnects, or after a minute.
pub(crate) async fn simulate_fault(mut stream: TcpStream, fault: Fault) -> io::Result<()> {
    match fault {
        // These faults need no server: the connection is never accepted.
        Fault::Refused | Fault::BlackHole => Ok(()),
        Fault::ResetAtOnce => reset(stream),
        Fault::ResetAfterHello => {
            read_client_hello(&mut stream).await?;
            reset(stream)
        }
        Fault::Stall => hold(&mut stream).await,
        Fault::StallAfterHello => {
            read_client_hello(&mut stream).await?;
            stream.write_all(&record(HANDSHAKE, 0x0303, &server_hello(0x0303, 0xc02f)?)).await?;
            hold(&mut stream).await
        }
        Fault::HttpAnswer => {
            read_client_hello(&mut stream).await?;
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
            read_client_hello(&mut stream).await?;
            stream.write_all(&record(ALERT, 0x0303, &[2, description])).await?;
            close(&mut stream).await
        }
        Fault::CloseAtOnce => close(&mut stream).await,
        Fault::CloseAfterHello => {
            read_client_hello(&mut stream).await?;
            stream.write_all(&record(HANDSHAKE, 0x0303, &server_hello(0x0303, 0xc02f)?)).await?;
            close(&mut stream).await
        }
        Fault::Drip => {
            read_client_hello(&mut stream).await?;
            let hello = record(HANDSHAKE, 0x0303, &server_hello(0x0303, 0xc02f)?);
            for byte in hello {
                stream.write_all(&[byte]).await?;
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            Ok(())
        }
        Fault::Endless => {
            read_client_hello(&mut stream).await?;
            stream.write_all(&record(HANDSHAKE, 0x0303, &server_hello(0x0303, 0xc02f)?)).await?;
            // HelloRequest messages of four bytes: each is valid, but the sequence never ends.
            let flood = record(HANDSHAKE, 0x0303, &[0; RECORD_MAX]);
            for _ in 0..ENDLESS_MAX / RECORD_MAX {
                stream.write_all(&flood).await?;
            }
            Ok(())
        }
        Fault::Oversized => {
            read_client_hello(&mut stream).await?;
            stream.write_all(&record(HANDSHAKE, 0x0303, &server_hello(0x0303, 0xc02f)?)).await?;
            // A Certificate message of 2^24 - 1 bytes, sent for as long as the client reads.
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

/// Sends the plaintext part of an old server's handshake: ServerHello, Certificate, ServerKeyExchange with an invalid signature for
/// Diffie-Hellman suites, ServerHelloDone.
pub(crate) async fn answer_as_legacy_server(
    mut stream: TcpStream,
    relic: Relic,
    chain: &[CertificateDer<'_>],
) -> io::Result<()> {
    read_client_hello(&mut stream).await?;
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

/// Returns whether the suite is DHE-RSA or DHE-DSS with AES or 3DES (RFC 5246 appendix A.5).
fn is_ephemeral(suite: u16) -> bool {
    matches!(suite, 0x0013 | 0x0016 | 0x0032 | 0x0033 | 0x0038 | 0x0039)
}

/// Returns ServerDHParams of 1,024 bits with an invalid signature. Scanners that stop at the certificate do not verify it, and no
/// library here supports DSA.
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
    // No session identifier, so no resumption.
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

async fn read_client_hello(stream: &mut TcpStream) -> io::Result<()> {
    let mut hello = vec![0; HELLO_READ];
    match stream.read(&mut hello).await? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(()),
    }
}

/// Reads without responding, until the client disconnects or a minute has passed.
async fn hold(stream: &mut TcpStream) -> io::Result<()> {
    let mut ignored = vec![0; HELLO_READ];
    let leaving = async {
        while stream.read(&mut ignored).await? > 0 {}
        io::Result::Ok(())
    };
    tokio::time::timeout(STALL_TIMEOUT, leaving).await.unwrap_or(Ok(()))
}

/// Closes the sending side only and continues to read. Closing a socket with unread bytes, such as the second segment of a
/// ClientHello, would reset the connection.
async fn close(stream: &mut TcpStream) -> io::Result<()> {
    stream.shutdown().await?;
    hold(stream).await
}

/// Closes the connection with RST instead of FIN.
fn reset(stream: TcpStream) -> io::Result<()> {
    socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO))
}

/// A port that drops every SYN: its accept queue is full and never emptied.
pub(crate) struct BlackHole {
    pub(crate) address: SocketAddr,
    _listener: socket2::Socket,
    /// The connections that fill the queue, and the first one that did not fit.
    _waiting: Vec<socket2::Socket>,
}

impl BlackHole {
    /// Maximum connections opened to fill a queue of backlog 0. Linux accepts one more than the backlog, so the second does not
    /// fit; further ones are for kernels that round up.
    const FILLERS_MAX: usize = 16;
    /// Time after which a connection in progress counts as dropped. On loopback, connect normally finishes immediately. If it takes
    /// longer on a busy machine, its SYN fills the last slot of the queue.
    const DROPPED_AFTER: Duration = Duration::from_millis(5);

    /// Opens a black hole at `address`, and verifies that it drops connections.
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
            let connected = filler.connect_timeout(&bound, Self::DROPPED_AFTER);
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

//! TLS connections on which the attacks write raw bytes.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};

use crate::world::connect_from;

pub(super) struct Tls(pub(super) StreamOwned<ClientConnection, TcpStream>);

impl Tls {
    pub(super) fn connect(host: u8, port: u16, protocols: &[&[u8]]) -> io::Result<Self> {
        let mut config = testbed::accepts_any_certificate();
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        let name = ServerName::try_from("localhost").map_err(io::Error::other)?;
        let mut connection = ClientConnection::new(Arc::new(config), name).map_err(io::Error::other)?;
        let mut stream = connect_from(host, port)?;
        while connection.is_handshaking() {
            connection.complete_io(&mut stream)?;
        }
        Ok(Self(StreamOwned::new(connection, stream)))
    }

    pub(super) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes)?;
        self.0.flush()
    }

    /// Sends one request with `connection: close` and returns the status.
    pub(super) fn get(&mut self, path: &str) -> io::Result<u16> {
        self.send(format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").as_bytes())?;
        self.status()
    }

    /// Sends a request with a JSON body on a persistent connection and returns the status.
    pub(super) fn json(&mut self, token: &str, method: &str, path: &str, body: &str) -> io::Result<u16> {
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        self.send(head.as_bytes())?;
        // The server may reject the request before it has read the whole body.
        let sent = self.send(body.as_bytes());
        self.status().or_else(|error| sent.and(Err(error)))
    }

    /// Returns the status of the next response. Reads the body if its length is given.
    pub(super) fn status(&mut self) -> io::Result<u16> {
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") {
            self.0.read_exact(&mut byte)?;
            head.push(byte[0]);
        }
        let head = String::from_utf8_lossy(&head).to_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let mut body = vec![0; length.and_then(|length| length.trim().parse().ok()).unwrap_or(0)];
        self.0.read_exact(&mut body)?;
        head.split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok())
            .ok_or_else(|| io::Error::other("no status"))
    }

    /// Returns whether the server closes the connection, whatever it sends before.
    pub(super) fn is_closed(&mut self) -> bool {
        let mut buffer = [0; 4_096];
        loop {
            match self.0.read(&mut buffer) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) => {
                    return !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut);
                }
            }
        }
    }
}

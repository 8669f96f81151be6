//! An HTTP/1.1 upstream that records requests.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use super::upstream::serve;
use crate::world::{describe, stdout};

/// A running server.
#[derive(Clone)]
pub(super) struct RecordingServer {
    pub(super) address: String,
    recording: Recording,
}

#[derive(Clone, Default)]
struct Recording {
    heads: Arc<Mutex<Vec<String>>>,
    connections: Arc<AtomicUsize>,
    ended: Arc<AtomicUsize>,
}

impl RecordingServer {
    pub(super) fn start() -> Self {
        let recording = Recording::default();
        let of_all = recording.clone();
        let address = serve(move |stream| {
            of_all.connections.fetch_add(1, Relaxed);
            let ended = of_all.connection(stream);
            of_all.ended.fetch_add(1, Relaxed);
            ended
        });
        Self { address, recording }
    }

    /// Returns the request heads received so far.
    pub(super) fn received(&self) -> Vec<String> {
        self.recording.heads.lock().unwrap().clone()
    }

    /// Returns the number of connections that the server has closed.
    pub(super) fn ended(&self) -> usize {
        self.recording.ended.load(Relaxed)
    }

    /// Returns the number of connections accepted so far.
    pub(super) fn connections(&self) -> usize {
        self.recording.connections.load(Relaxed)
    }
}

impl Recording {
    fn connection(&self, mut stream: TcpStream) -> std::io::Result<()> {
        let mut reader = BufReader::new(stream.try_clone()?);
        while let Some(head) = read_head(&mut reader)? {
            self.heads.lock().unwrap().push(head.clone());
            let path = head.split(' ').nth(1).unwrap_or_default();
            match path {
                "/chat" => return echo(reader, stream, &head),
                "/silent" => {
                    reader.read_to_end(&mut Vec::new())?;
                    return Ok(());
                }
                "/broken" => return Ok(()),
                // Responds before it has read the body.
                "/refused" => {
                    stream.write_all(
                        b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno",
                    )?;
                    std::io::copy(&mut reader, &mut std::io::sink())?;
                    return Ok(());
                }
                "/changed" => {
                    stream.write_all(
                        b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
                    )?;
                    return Ok(());
                }
                _ => {}
            }
            let (bytes, trailers) = read_body(&mut reader, &head)?;
            match path {
                "/trailers" => stream.write_all(
                    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\nConnection: X-Hop\r\nX-Hop: 1\r\n\
                      Keep-Alive: timeout=5\r\n\r\n5\r\nhello\r\n0\r\nX-Sum: 42\r\n\r\n",
                )?,
                "/hints" => stream.write_all(
                    b"HTTP/1.1 103 Early Hints\r\nLink: </a>; rel=preload\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
                )?,
                _ => {
                    let text = format!("{head}{trailers}octets={bytes}\n");
                    write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{text}", text.len())?;
                }
            }
            // Closes without a notice, as servers do after their idle timeout.
            if path == "/close" {
                return Ok(());
            }
        }
        Ok(())
    }
}

fn read_head(reader: &mut impl BufRead) -> std::io::Result<Option<String>> {
    let (mut head, mut line) = (String::new(), String::new());
    while reader.read_line(&mut line)? > 0 {
        if line == "\r\n" {
            return Ok(Some(head));
        }
        head.push_str(&std::mem::take(&mut line));
    }
    Ok(None)
}

/// Returns the length of the body, and its trailer lines.
fn read_body(reader: &mut impl BufRead, head: &str) -> std::io::Result<(u64, String)> {
    let lower = head.to_ascii_lowercase();
    if lower.contains("transfer-encoding: chunked") {
        let mut bytes = 0;
        loop {
            let mut size = String::new();
            reader.read_line(&mut size)?;
            let size = u64::from_str_radix(size.trim(), 16).map_err(std::io::Error::other)?;
            if size == 0 {
                return Ok((bytes, read_head(reader)?.unwrap_or_default()));
            }
            bytes += std::io::copy(&mut reader.take(size), &mut std::io::sink())?;
            size_of_line(reader)?;
        }
    }
    let length = lower.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
    let bytes = std::io::copy(&mut reader.take(length.unwrap_or(0)), &mut std::io::sink())?;
    Ok((bytes, String::new()))
}

fn size_of_line(reader: &mut impl BufRead) -> std::io::Result<usize> {
    reader.read_line(&mut String::new())
}

/// Accepts a WebSocket upgrade (RFC 6455 section 4.2.2), then echoes all bytes.
fn echo(mut reader: impl Read, mut stream: TcpStream, head: &str) -> std::io::Result<()> {
    let key = head.lines().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        name.eq_ignore_ascii_case("sec-websocket-key").then(|| value.to_owned())
    });
    let accept = accept_of(&key.unwrap_or_default());
    write!(
        stream,
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: {accept}\r\n\r\n"
    )?;
    let mut some = [0; 1_024];
    loop {
        let count = reader.read(&mut some)?;
        if count == 0 {
            return Ok(());
        }
        stream.write_all(&some[..count])?;
    }
}

/// Returns the `Sec-WebSocket-Accept` value for `key` (RFC 6455 section 1.3).
fn accept_of(key: &str) -> String {
    let script = "printf %s258EAFA5-E914-47DA-95CA-C5AB0DC85B11 \"$0\" | openssl dgst -sha1 -binary | base64";
    let output = Command::new("sh").args(["-c", script, key]).output().unwrap();
    assert!(output.status.success(), "{}", describe(&output));
    stdout(&output).trim().to_owned()
}

//! Upstreams: one that says hello over HTTP/1.1 and HTTP/2, and one that echoes.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};

/// A response of [`hello`].
pub(super) const HELLO: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
/// The start of the HTTP/2 client preface (RFC 9113 section 3.4), which looks like a request.
const PREFACE: &str = "PRI * HTTP/2.0\r\n";

/// Serves until the test process ends. Returns the address.
pub(super) fn serve(serving: impl Fn(TcpStream) -> std::io::Result<()> + Clone + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let serving = serving.clone();
            // A client that disconnects is no test failure.
            std::thread::spawn(move || drop(serving(stream)));
        }
    });
    address
}

/// Starts an upstream that answers every HTTP/1.1 request with `text`.
pub(super) fn saying(text: &'static str) -> String {
    serve(move |mut stream| {
        let mut reader = BufReader::new(stream.try_clone()?);
        let mut line = String::new();
        while reader.read_line(&mut line)? > 0 {
            if line == "\r\n" {
                write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{text}", text.len())?;
            }
            line.clear();
        }
        Ok(())
    })
}

/// Starts an upstream that says hello.
pub(super) fn hello() -> String {
    serve(|mut stream| {
        let mut reader = BufReader::new(stream.try_clone()?);
        loop {
            let (mut head, mut line, mut close) = (String::new(), String::new(), false);
            while reader.read_line(&mut line)? > 0 && line != "\r\n" {
                if head.is_empty() {
                    head.clone_from(&line);
                }
                close |= line.eq_ignore_ascii_case("connection: close\r\n");
                line.clear();
            }
            if head == PREFACE {
                return hello_h2(reader, stream);
            }
            if line.is_empty() {
                return Ok(());
            }
            stream.write_all(HELLO.as_bytes())?;
            if close {
                return Ok(());
            }
        }
    })
}

/// Serves a connection as a minimal HTTP/2 server (RFC 9113 section 4) that answers every request with "hello 2".
fn hello_h2(mut reader: BufReader<TcpStream>, mut stream: TcpStream) -> std::io::Result<()> {
    const DATA: u8 = 0;
    const HEADERS: u8 = 1;
    const SETTINGS: u8 = 4;
    reader.read_exact(&mut [0; 6])?;
    stream.write_all(&[0, 0, 0, SETTINGS, 0, 0, 0, 0, 0])?;
    loop {
        let mut head = [0; 9];
        reader.read_exact(&mut head)?;
        let [l0, l1, l2, kind, flags, id @ ..] = head;
        let mut body = vec![0; u32::from_be_bytes([0, l0, l1, l2]) as usize];
        reader.read_exact(&mut body)?;
        match kind {
            SETTINGS if flags & 1 == 0 => stream.write_all(&[0, 0, 0, SETTINGS, 1, 0, 0, 0, 0])?,
            HEADERS => {
                // `:status: 200` is one byte in the HPACK static table.
                let headers = [&[0, 0, 1, HEADERS, 4][..], &id, &[0x88]].concat();
                let data = [&[0, 0, 7, DATA, 1][..], &id, b"hello 2"].concat();
                stream.write_all(&[headers, data].concat())?;
            }
            _ => {}
        }
    }
}

/// Starts an upstream that reads to the end, and then returns all it read.
pub(super) fn echo() -> String {
    serve(|mut stream| {
        let mut received = Vec::new();
        stream.read_to_end(&mut received)?;
        stream.write_all(&received)
    })
}

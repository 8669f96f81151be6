//! Upstreams: one that says hello over HTTP/1.1 and HTTP/2, one that says what it was told.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};

/// An answer of [`hello`].
pub(super) const HELLO: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
/// What an HTTP/2 client says first (RFC 9113 section 3.4), as far as it looks like a request.
const PREFACE: &str = "PRI * HTTP/2.0\r\n";

/// Serves until the test's process ends; its address.
pub(super) fn serve(serving: impl Fn(TcpStream) -> std::io::Result<()> + Clone + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let serving = serving.clone();
            // A client that hangs up is no fault of the test.
            std::thread::spawn(move || drop(serving(stream)));
        }
    });
    address
}

/// Answers every request by HTTP/1.1 with `text`.
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

/// Says hello.
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

/// The least of HTTP/2 (RFC 9113 section 4): every request is answered with "hello 2".
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
                // `:status: 200` is one byte of HPACK's table.
                let headers = [&[0, 0, 1, HEADERS, 4][..], &id, &[0x88]].concat();
                let data = [&[0, 0, 7, DATA, 1][..], &id, b"hello 2"].concat();
                stream.write_all(&[headers, data].concat())?;
            }
            _ => {}
        }
    }
}

/// Hears all there is, and then says it.
pub(super) fn echo() -> String {
    serve(|mut stream| {
        let mut heard = Vec::new();
        stream.read_to_end(&mut heard)?;
        stream.write_all(&heard)
    })
}

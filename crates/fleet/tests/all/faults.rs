//! Each fault, as seen by a bare socket.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::{address_of, of_kind, one_of_each};

/// Reached only if a server fails to answer.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Duration of the check for silence.
const SILENCE: Duration = Duration::from_millis(300);
/// A placeholder for a ClientHello: the faulty servers do not parse it.
const HELLO: &[u8] = b"\x16\x03\x01\x00\x04\x01\x00\x00\x00";

/// The client's view of a fault.
#[derive(Clone, Copy, Debug)]
enum Seen {
    /// Reset before any data.
    ResetAtOnce,
    ResetAfterHello,
    /// After the hello exactly these bytes (or a ServerHello), then the end of the stream.
    AfterHello(Answer),
    /// The end of the stream, without a hello.
    End,
    /// These bytes, without a hello.
    Greeting(&'static [u8]),
    /// No data, with or without a hello.
    Silence,
    /// A ServerHello, then no data.
    SilenceAfterServerHello,
    /// The first byte of a record of type 22.
    FirstByte,
    /// More handshake bytes than any real handshake.
    Flood,
}

#[derive(Clone, Copy, Debug)]
enum Answer {
    Bytes(&'static [u8]),
    Begins(&'static [u8]),
    ServerHello,
}

const FAULTS: &[(&str, Seen)] = &[
    ("reset", Seen::ResetAtOnce),
    ("reset-after-hello", Seen::ResetAfterHello),
    ("http", Seen::AfterHello(Answer::Begins(b"HTTP/1.1 400 Bad Request\r\n"))),
    ("alert-handshake-failure", Seen::AfterHello(Answer::Bytes(&[21, 3, 3, 0, 2, 2, 40]))),
    ("alert-unrecognized-name", Seen::AfterHello(Answer::Bytes(&[21, 3, 3, 0, 2, 2, 112]))),
    ("alert-internal-error", Seen::AfterHello(Answer::Bytes(&[21, 3, 3, 0, 2, 2, 80]))),
    ("closed-after-hello", Seen::AfterHello(Answer::ServerHello)),
    ("closed-at-once", Seen::End),
    ("ssh", Seen::Greeting(b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n")),
    ("stall", Seen::Silence),
    ("stall-after-hello", Seen::SilenceAfterServerHello),
    ("slow-drip", Seen::FirstByte),
    ("endless-handshake", Seen::Flood),
    ("oversized-message", Seen::Flood),
];

/// Reads one record. Returns its type and body.
fn record(stream: &mut TcpStream) -> (u8, Vec<u8>) {
    let mut head = [0; 5];
    stream.read_exact(&mut head).unwrap();
    let mut body = vec![0; usize::from(u16::from_be_bytes([head[3], head[4]]))];
    stream.read_exact(&mut body).unwrap();
    (head[0], body)
}

fn server_hello(stream: &mut TcpStream) {
    let (kind, body) = record(stream);
    assert_eq!((kind, body[0]), (22, 2), "a handshake record with a ServerHello");
}

fn assert_silent(stream: &mut TcpStream) {
    stream.set_read_timeout(Some(SILENCE)).unwrap();
    let received = stream.read(&mut [0; 64]).expect_err("nothing");
    assert!(matches!(received.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{received}");
}

/// Sends the hello in two segments, the second one after the answer has begun. Returns the rest of the stream, which must end
/// without a reset.
fn answer_to_hello_in_two(stream: &mut TcpStream) -> Vec<u8> {
    let (first, second) = HELLO.split_at(5);
    stream.write_all(first).unwrap();
    let mut answer = vec![0];
    stream.read_exact(&mut answer).unwrap();
    stream.write_all(second).unwrap();
    stream.read_to_end(&mut answer).expect("an end, not a reset");
    answer
}

fn assert_reset(mut stream: TcpStream) {
    let received = stream.read(&mut [0; 64]).expect_err("a reset");
    assert_eq!(received.kind(), ErrorKind::ConnectionReset);
}

fn check(mut stream: TcpStream, seen: Seen) {
    match seen {
        Seen::ResetAtOnce => assert_reset(stream),
        Seen::ResetAfterHello => {
            stream.write_all(HELLO).unwrap();
            assert_reset(stream);
        }
        Seen::AfterHello(answer) => {
            let received = answer_to_hello_in_two(&mut stream);
            match answer {
                Answer::Bytes(bytes) => assert_eq!(received, bytes),
                Answer::Begins(bytes) => assert!(received.starts_with(bytes)),
                Answer::ServerHello => {
                    let length = usize::from(u16::from_be_bytes([received[3], received[4]]));
                    assert_eq!((received[0], received[5], received.len()), (22, 2, 5 + length));
                }
            }
        }
        Seen::End => {
            stream.write_all(HELLO).unwrap();
            assert_eq!(stream.read_to_end(&mut Vec::new()).expect("an end, not a reset"), 0);
        }
        Seen::Greeting(bytes) => {
            let mut received = vec![0; bytes.len()];
            stream.read_exact(&mut received).unwrap();
            assert_eq!(received, bytes);
        }
        Seen::Silence => {
            stream.write_all(HELLO).unwrap();
            assert_silent(&mut stream);
        }
        Seen::SilenceAfterServerHello => {
            stream.write_all(HELLO).unwrap();
            server_hello(&mut stream);
            assert_silent(&mut stream);
        }
        Seen::FirstByte => {
            stream.write_all(HELLO).unwrap();
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            assert_eq!(byte, [22]);
        }
        Seen::Flood => {
            stream.write_all(HELLO).unwrap();
            server_hello(&mut stream);
            for _ in 0..256 {
                let (kind, body) = record(&mut stream);
                assert_eq!((kind, body.len()), (22, 1 << 14));
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_fault_is_visible_on_the_wire() {
    let fleet = one_of_each().await;
    for (kind, seen) in FAULTS {
        let stream = TcpStream::connect(address_of(&of_kind(&fleet, kind))).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        println!("{kind}");
        check(stream, *seen);
    }
    fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_port_has_no_listener() {
    let fleet = one_of_each().await;
    let error = TcpStream::connect(address_of(&of_kind(&fleet, "refused"))).expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn black_hole_accepts_no_connection() {
    let fleet = one_of_each().await;
    let hole = address_of(&of_kind(&fleet, "black-hole"));
    for _ in 0..3 {
        let error = TcpStream::connect_timeout(&hole, SILENCE).expect_err("no connection");
        assert_eq!(error.kind(), ErrorKind::TimedOut);
    }
    fleet.stop().await;
}

//! Each fault as a bare socket sees it.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::{address_of, of_kind, one_of_each};

/// Reached only when a server that should speak does not.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long one listens to silence.
const SILENCE: Duration = Duration::from_millis(300);
/// Stands for a ClientHello: the servers that fail do not read what is in it.
const HELLO: &[u8] = b"\x16\x03\x01\x00\x04\x01\x00\x00\x00";

/// What a client sees of a fault.
#[derive(Clone, Copy, Debug)]
enum Seen {
    /// Before a word is said.
    ResetAtOnce,
    ResetAfterHello,
    /// After the hello exactly these bytes (or a ServerHello), then the end of the stream.
    AfterHello(Answer),
    /// Without a hello: the end of the stream.
    End,
    /// These bytes without a hello.
    Greeting(&'static [u8]),
    /// Nothing, hello or not.
    Silence,
    /// A ServerHello, then nothing.
    SilenceAfterServerHello,
    /// A record of type 22 begins.
    FirstOctet,
    /// More handshake bytes than any handshake has.
    Flood,
}

#[derive(Clone, Copy, Debug)]
enum Answer {
    Octets(&'static [u8]),
    Begins(&'static [u8]),
    ServerHello,
}

const FAULTS: &[(&str, Seen)] = &[
    ("reset", Seen::ResetAtOnce),
    ("reset-after-hello", Seen::ResetAfterHello),
    ("http", Seen::AfterHello(Answer::Begins(b"HTTP/1.1 400 Bad Request\r\n"))),
    ("alert-handshake-failure", Seen::AfterHello(Answer::Octets(&[21, 3, 3, 0, 2, 2, 40]))),
    ("alert-unrecognized-name", Seen::AfterHello(Answer::Octets(&[21, 3, 3, 0, 2, 2, 112]))),
    ("alert-internal-error", Seen::AfterHello(Answer::Octets(&[21, 3, 3, 0, 2, 2, 80]))),
    ("closed-after-hello", Seen::AfterHello(Answer::ServerHello)),
    ("closed-at-once", Seen::End),
    ("ssh", Seen::Greeting(b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n")),
    ("stall", Seen::Silence),
    ("stall-after-hello", Seen::SilenceAfterServerHello),
    ("slow-drip", Seen::FirstOctet),
    ("endless-handshake", Seen::Flood),
    ("oversized-message", Seen::Flood),
];

/// One record's type and body.
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
    let heard = stream.read(&mut [0; 64]).expect_err("nothing");
    assert!(matches!(heard.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{heard}");
}

/// The rest of the stream after a hello in two segments, the second sent when the answer has begun: the
/// end must still be an end, not a reset.
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
    let heard = stream.read(&mut [0; 64]).expect_err("a reset");
    assert_eq!(heard.kind(), ErrorKind::ConnectionReset);
}

fn check(mut stream: TcpStream, seen: Seen) {
    match seen {
        Seen::ResetAtOnce => assert_reset(stream),
        Seen::ResetAfterHello => {
            stream.write_all(HELLO).unwrap();
            assert_reset(stream);
        }
        Seen::AfterHello(answer) => {
            let heard = answer_to_hello_in_two(&mut stream);
            match answer {
                Answer::Octets(octets) => assert_eq!(heard, octets),
                Answer::Begins(octets) => assert!(heard.starts_with(octets)),
                Answer::ServerHello => {
                    let length = usize::from(u16::from_be_bytes([heard[3], heard[4]]));
                    assert_eq!((heard[0], heard[5], heard.len()), (22, 2, 5 + length));
                }
            }
        }
        Seen::End => {
            stream.write_all(HELLO).unwrap();
            assert_eq!(stream.read_to_end(&mut Vec::new()).expect("an end, not a reset"), 0);
        }
        Seen::Greeting(octets) => {
            let mut heard = vec![0; octets.len()];
            stream.read_exact(&mut heard).unwrap();
            assert_eq!(heard, octets);
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
        Seen::FirstOctet => {
            stream.write_all(HELLO).unwrap();
            let mut octet = [0];
            stream.read_exact(&mut octet).unwrap();
            assert_eq!(octet, [22]);
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
async fn each_fault_shows_on_the_wire() {
    let fleet = one_of_each().await;
    for (kind, seen) in FAULTS {
        let stream = TcpStream::connect(address_of(&of_kind(&fleet, kind))).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        println!("{kind}");
        check(stream, *seen);
    }
    fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_listens_on_a_refused_port() {
    let fleet = one_of_each().await;
    let error = TcpStream::connect(address_of(&of_kind(&fleet, "refused"))).expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_black_hole_takes_no_connection_however_many_try() {
    let fleet = one_of_each().await;
    let hole = address_of(&of_kind(&fleet, "black-hole"));
    for _ in 0..3 {
        let error = TcpStream::connect_timeout(&hole, SILENCE).expect_err("no connection");
        assert_eq!(error.kind(), ErrorKind::TimedOut);
    }
    fleet.stop().await;
}

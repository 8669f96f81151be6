//! Verifies the test scripts with an independent client: `openssl s_client -starttls` must reach its ClientHello with the same
//! scripts that test our dialogues.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::scripts::{ClientPattern, DIALOGUES, POP3_WITHOUT_ASKING, Script, Turn};

/// Longer than any machine needs; reached only by a dialogue that hangs, which is a failure.
const HANGS_AFTER: Duration = Duration::from_secs(60);
/// A TLS record of type handshake (RFC 8446 section 5.1).
const TLS_HANDSHAKE: u8 = 22;

#[test]
fn openssl_reaches_tls_with_the_same_scripts() {
    let scripts = DIALOGUES.iter().chain([&POP3_WITHOUT_ASKING]);
    let led = scripts.filter(|script| script.openssl.is_some()).map(lead).count();
    assert_eq!(led, 12, "openssl s_client plays twelve of our protocols");
}

fn lead(script: &Script) {
    let name = script.openssl.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut client = Command::new("openssl")
        .args(["s_client", "-starttls", name, "-xmpphost", "chat.example", "-connect"])
        .arg(listener.local_addr().unwrap().to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("openssl is needed: apt-get install -y openssl");
    let (stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(HANGS_AFTER)).unwrap();
    serve(script, stream);
    client.wait().unwrap();
}

/// Plays the server until the first byte of the ClientHello.
fn serve(script: &Script, mut stream: TcpStream) {
    let mut tag = String::new();
    for turn in script.turns {
        match turn {
            Turn::Say(bytes) => stream.write_all(&retagged(bytes, &tag)).unwrap(),
            Turn::Hear(pattern) => {
                let received = receive_until(pattern, &mut stream, script.name);
                tag = received.split(' ').next().unwrap_or_default().to_owned();
            }
        }
    }
    let mut first = [0];
    stream.read_exact(&mut first).unwrap_or_else(|error| panic!("{}: {error}", script.name));
    assert_eq!(first[0], TLS_HANDSHAKE, "{}: a ClientHello", script.name);
}

/// Replaces the tag in IMAP replies of the script by the client's tag.
fn retagged(bytes: &[u8], tag: &str) -> Vec<u8> {
    let text = String::from_utf8_lossy(bytes);
    if text.contains("a1 OK") || text.contains("a2 OK") {
        return text.replace("a1 ", &format!("{tag} ")).replace("a2 ", &format!("{tag} ")).into();
    }
    bytes.to_vec()
}

fn receive_until(pattern: &ClientPattern, stream: &mut TcpStream, name: &str) -> String {
    let mut received = Vec::new();
    while !pattern.is_complete_in(&received) {
        let mut byte = [0];
        let read = stream.read_exact(&mut byte);
        let so_far = String::from_utf8_lossy(&received).into_owned();
        read.unwrap_or_else(|error| panic!("{name}: {error} after {so_far:?}"));
        received.extend(byte);
    }
    String::from_utf8_lossy(&received).into_owned()
}

//! Server side of the dialogues before TLS (STARTTLS), with only the parts of each protocol that lead to TLS.

use std::io;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Longest line or request in bytes before TLS.
const LINE_MAX: usize = 4_096;
/// Maximum commands before the one that starts TLS.
const COMMANDS_MAX: usize = 16;

/// A line-based protocol.
struct Lines {
    greeting: &'static str,
    /// Texts in commands, and the responses; `{tag}` is replaced by the command's first word.
    answers: &'static [(&'static str, &'static str)],
    /// The command that starts TLS, and its response.
    begin: (&'static str, &'static str),
}

const SMTP: Lines = Lines {
    greeting: "220 fleet.test ESMTP\r\n",
    answers: &[("EHLO", "250-fleet.test\r\n250-PIPELINING\r\n250 STARTTLS\r\n")],
    begin: ("STARTTLS", "220 go ahead\r\n"),
};
const LMTP: Lines = Lines {
    greeting: "220 fleet.test LMTP\r\n",
    answers: &[("LHLO", "250-fleet.test\r\n250 STARTTLS\r\n")],
    begin: ("STARTTLS", "220 go ahead\r\n"),
};
const IMAP: Lines = Lines {
    greeting: "* OK fleet ready\r\n",
    answers: &[("CAPABILITY", "* CAPABILITY IMAP4rev1 STARTTLS LOGINDISABLED\r\n{tag} OK done\r\n")],
    begin: ("STARTTLS", "{tag} OK begin TLS\r\n"),
};
const POP3: Lines = Lines {
    greeting: "+OK fleet ready\r\n",
    answers: &[("CAPA", "+OK\r\nTOP\r\nSTLS\r\n.\r\n")],
    begin: ("STLS", "+OK begin TLS\r\n"),
};
const SIEVE: Lines = Lines {
    greeting: "\"IMPLEMENTATION\" \"fleet\"\r\n\"SIEVE\" \"fileinto\"\r\n\"STARTTLS\"\r\nOK\r\n",
    answers: &[("CAPABILITY", "\"STARTTLS\"\r\nOK\r\n")],
    begin: ("STARTTLS", "OK begin TLS\r\n"),
};
const FTP: Lines = Lines {
    greeting: "220 fleet ready\r\n",
    answers: &[("FEAT", "211-Features\r\n AUTH TLS\r\n PROT\r\n211 End\r\n")],
    begin: ("AUTH TLS", "234 begin TLS\r\n"),
};
const NNTP: Lines = Lines {
    greeting: "200 fleet ready\r\n",
    answers: &[("CAPABILITIES", "101 list\r\nVERSION 2\r\nSTARTTLS\r\n.\r\n")],
    begin: ("STARTTLS", "382 begin TLS\r\n"),
};

/// Runs the dialogue until TLS may start. `protocol` is the scheme of the target.
pub(crate) async fn negotiate_starttls(stream: &mut TcpStream, protocol: &str) -> io::Result<()> {
    match protocol {
        "smtp" => lines(stream, &SMTP).await,
        "lmtp" => lines(stream, &LMTP).await,
        "imap" => lines(stream, &IMAP).await,
        "pop3" => lines(stream, &POP3).await,
        "sieve" => lines(stream, &SIEVE).await,
        "ftp" => lines(stream, &FTP).await,
        "nntp" => lines(stream, &NNTP).await,
        "ldap" => ldap(stream).await,
        "postgres" => postgres(stream).await,
        "mysql" => mysql(stream).await,
        "xmpp" => xmpp(stream).await,
        "rdp" => rdp(stream).await,
        _ => Ok(()),
    }
}

async fn lines(stream: &mut TcpStream, protocol: &Lines) -> io::Result<()> {
    stream.write_all(protocol.greeting.as_bytes()).await?;
    for _ in 0..COMMANDS_MAX {
        let line = read_until(stream, b'\n').await?;
        let line = String::from_utf8_lossy(&line);
        let tag = line.split_whitespace().next().unwrap_or_default();
        let command = line.to_ascii_uppercase();
        let answered = |answer: &str| answer.replace("{tag}", tag);
        if command.contains(protocol.begin.0) {
            return stream.write_all(answered(protocol.begin.1).as_bytes()).await;
        }
        let known = protocol.answers.iter().find(|(contained, _)| command.contains(contained));
        // The protocols have no common error response, so an unknown command closes the connection.
        let (_, answer) = known.ok_or_else(|| io::Error::other("unknown command"))?;
        stream.write_all(answered(answer).as_bytes()).await?;
    }
    Err(io::Error::other("too many commands"))
}

/// Answers StartTLS of LDAP (RFC 4511 section 4.14). Any first request is treated as StartTLS.
async fn ldap(stream: &mut TcpStream) -> io::Result<()> {
    let mut header = [0; 2];
    stream.read_exact(&mut header).await?;
    let mut request = vec![0; usize::from(header[1] & 0x7f)];
    stream.read_exact(&mut request).await?;
    // messageID INTEGER: a single byte in the first request.
    let id = request.get(2).copied().unwrap_or(1);
    let success = [0x30, 0x0c, 0x02, 0x01, id, 0x78, 0x07, 0x0a, 0x01, 0x00, 0x04, 0x00, 0x04, 0x00];
    stream.write_all(&success).await
}

/// Answers the SSLRequest of PostgreSQL, which has eight bytes.
async fn postgres(stream: &mut TcpStream) -> io::Result<()> {
    stream.read_exact(&mut [0; 8]).await?;
    stream.write_all(b"S").await
}

/// Sends the greeting of protocol 10, then reads the client's SSLRequest, a packet of 32 bytes.
async fn mysql(stream: &mut TcpStream) -> io::Result<()> {
    /// CLIENT_LONG_PASSWORD, PROTOCOL_41, SSL, TRANSACTIONS, SECURE_CONNECTION.
    const CAPABILITIES: u16 = 0x0001 | 0x0200 | 0x0800 | 0x2000 | 0x8000;
    let mut greeting = vec![10];
    greeting.extend_from_slice(b"8.0.0-fleet\0");
    greeting.extend_from_slice(&[1, 0, 0, 0]);
    greeting.extend_from_slice(b"saltsalt\0");
    greeting.extend_from_slice(&CAPABILITIES.to_le_bytes());
    greeting.extend_from_slice(&[0x2d, 2, 0, 0x08, 0, 21]);
    greeting.extend_from_slice(&[0; 10]);
    greeting.extend_from_slice(b"saltsaltsalt\0");
    greeting.extend_from_slice(b"mysql_native_password\0");
    let length = greeting.len() as u8;
    stream.write_all(&[&[length, 0, 0, 0], &greeting[..]].concat()).await?;
    stream.read_exact(&mut [0; 4 + 32]).await.map(drop)
}

/// Runs the XMPP dialogue (RFC 6120 section 5.4).
async fn xmpp(stream: &mut TcpStream) -> io::Result<()> {
    loop {
        let element = read_until(stream, b'>').await?;
        let element = String::from_utf8_lossy(&element).into_owned();
        if element.contains("<stream:stream") {
            let features = "<?xml version='1.0'?><stream:stream xmlns='jabber:client' \
                xmlns:stream='http://etherx.jabber.org/streams' id='1' from='fleet.test' version='1.0'>\
                <stream:features><starttls xmlns='urn:ietf:params:xml:ns:xmpp-tls'><required/></starttls>\
                </stream:features>";
            stream.write_all(features.as_bytes()).await?;
        } else if element.contains("<starttls") {
            let proceed = b"<proceed xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>";
            return stream.write_all(proceed).await;
        }
    }
}

/// Runs the RDP dialogue: a connection confirm that selects TLS (MS-RDPBCGR section 2.2.1.2).
async fn rdp(stream: &mut TcpStream) -> io::Result<()> {
    let mut header = [0; 4];
    stream.read_exact(&mut header).await?;
    let length = usize::from(u16::from_be_bytes([header[2], header[3]])).clamp(4, LINE_MAX);
    stream.read_exact(&mut vec![0; length - 4]).await?;
    let confirm = [3, 0, 0, 19, 14, 0xd0, 0, 0, 0x12, 0x34, 0, 2, 0x1f, 8, 0, 1, 0, 0, 0];
    stream.write_all(&confirm).await
}

/// Reads byte by byte up to `mark`: the following bytes belong to TLS.
async fn read_until(stream: &mut TcpStream, mark: u8) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    while line.len() < LINE_MAX {
        let byte = stream.read_u8().await?;
        line.push(byte);
        if byte == mark {
            return Ok(line);
        }
    }
    Err(io::Error::other("line too long"))
}

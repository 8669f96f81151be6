//! Binary protocols: LDAP, PostgreSQL, MySQL, Remote Desktop.

use super::error::{StartTlsError, malformed, not_offered, refused};
use super::input::Input;
use super::turn::{Action, ActionResult};

/// Encodes the extended operation StartTLS, 1.3.6.1.4.1.1466.20037 (RFC 4511 sections 4.12 and 4.14).
pub(super) fn ldap_request() -> Vec<u8> {
    let mut request = vec![0x30, 0x1d, 0x02, 0x01, 0x01, 0x77, 0x18, 0x80, 0x16];
    request.extend(b"1.3.6.1.4.1.1466.20037");
    request
}

/// Handles the response (RFC 4511 section 4.1.9): LDAPMessage { messageID, [APPLICATION 24] { resultCode, matchedDN,
/// diagnosticMessage, … } }.
pub(super) fn ldap(input: &mut Input) -> ActionResult {
    input.expect_first(|byte| byte == 0x30)?;
    let Some((header, length)) = tlv(input.pending())? else { return Ok(Action::Wait) };
    let Some(message) = input.exact(header.saturating_add(length), "message")? else {
        return Ok(Action::Wait);
    };
    let (code, text) =
        ldap_result(&message[header..]).ok_or_else(|| malformed("not an answer to StartTLS", &message))?;
    match code {
        0 => Ok(Action::Ready(Vec::new())),
        // protocolError: the operation is not supported (RFC 4511 section 4.14.1).
        2 => Err(not_offered(&text)),
        code => {
            let mut server_text = format!("result {code} ").into_bytes();
            server_text.extend(text);
            Err(refused(&server_text))
        }
    }
}

/// Returns result code and diagnostic message of an extended response.
fn ldap_result(body: &[u8]) -> Option<(u32, Vec<u8>)> {
    let (tag, _, rest) = element(body)?;
    let (response, body, _) = element(rest)?;
    if (tag, response) != (0x02, 0x78) {
        return None;
    }
    let (tag, code, rest) = element(body)?;
    if tag != 0x0a || code.len() > 4 {
        return None;
    }
    let (_, _matched, rest) = element(rest)?;
    let (_, text, _) = element(rest)?;
    Some((code.iter().fold(0, |code, &byte| code << 8 | u32::from(byte)), text.to_vec()))
}

/// Splits an element into tag, value and rest.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (header, length) = tlv(bytes).ok()??;
    let value = bytes.get(header..header.checked_add(length)?)?;
    Some((bytes[0], value, &bytes[header + length..]))
}

/// Returns the lengths of the header (tag and length) and of the value in bytes. `None`: more input is needed.
fn tlv(bytes: &[u8]) -> Result<Option<(usize, usize)>, StartTlsError> {
    let Some(&first) = bytes.get(1) else { return Ok(None) };
    if first < 0x80 {
        return Ok(Some((2, first.into())));
    }
    let count = usize::from(first & 0x7f);
    if !(1..=4).contains(&count) {
        return Err(malformed("a length that LDAP does not allow", bytes));
    }
    let Some(length_bytes) = bytes.get(2..2 + count) else { return Ok(None) };
    let length = length_bytes.iter().fold(0_usize, |length, &byte| length << 8 | usize::from(byte));
    Ok(Some((2 + count, length)))
}

/// Encodes an SSLRequest (PostgreSQL protocol 3.0, "Message Formats").
pub(super) fn postgres_request() -> Vec<u8> {
    vec![0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f]
}

pub(super) fn postgres(input: &mut Input) -> ActionResult {
    input.expect_first(|byte| matches!(byte, b'S' | b'N' | b'E'))?;
    match input.pending() {
        [] => Ok(Action::Wait),
        [b'S', ..] => {
            input.skip(1)?;
            Ok(Action::Ready(Vec::new()))
        }
        [b'N', ..] => Err(not_offered(b"")),
        _ => postgres_error(input),
    }
}

/// Handles an ErrorResponse: `E`, a length, then fields of a type byte and a string each; the field M is the message for people.
fn postgres_error(input: &mut Input) -> ActionResult {
    let Some(length) = input.pending().get(1..5) else { return Ok(Action::Wait) };
    let length = length.iter().fold(0_usize, |length, &byte| length << 8 | usize::from(byte));
    if !(5..=super::LINE_MAX).contains(&length) {
        return Err(input.wrong_protocol_error());
    }
    let Some(message) = input.exact(1 + length, "error")? else { return Ok(Action::Wait) };
    let text = message[5..]
        .split(|&byte| byte == 0)
        .find_map(|field| field.strip_prefix(b"M"))
        .unwrap_or(b"an error without text");
    Err(refused(text))
}

const MYSQL_CLIENT_SSL: u16 = 0x0800;
/// Capabilities of a client of protocol 4.1 with TLS (CLIENT_PROTOCOL_41, CLIENT_SSL and CLIENT_SECURE_CONNECTION), a packet size
/// of 16 MiB, and the character set utf8; followed by 23 zero bytes.
const MYSQL_SSL_REQUEST_HEAD: [u8; 13] = [32, 0, 0, 1, 0x00, 0x8a, 0x00, 0x00, 0x00, 0x00, 0x00, 0x01, 33];

/// Handles HandshakeV10 (MySQL "Connection Phase Packets"): length, sequence, 10, version, zero, thread (4), scramble (8), zero,
/// capabilities (2), …
pub(super) fn mysql(input: &mut Input) -> ActionResult {
    let Some(head) = input.pending().get(..5) else { return Ok(Action::Wait) };
    let length = usize::from(head[0]) | usize::from(head[1]) << 8 | usize::from(head[2]) << 16;
    let fits = head[3] == 0 && (2..=super::LINE_MAX).contains(&length);
    if !fits || !matches!(head[4], 9 | 10 | 0xff) {
        return Err(input.wrong_protocol_error());
    }
    let Some(packet) = input.exact(4 + length, "greeting")? else { return Ok(Action::Wait) };
    let body = &packet[5..];
    match packet[4] {
        // ERR_Packet: code (2), then the text, preceded by an SQL state since 4.1.
        0xff => Err(refused(body.get(2..).unwrap_or_default())),
        // Servers before 3.21 do not support TLS.
        9 => Err(not_offered(b"protocol version 9")),
        _ => handle_mysql_greeting(body),
    }
}

fn handle_mysql_greeting(body: &[u8]) -> ActionResult {
    let broken = || malformed("a truncated greeting", body);
    let version_end = body.iter().position(|&byte| byte == 0).ok_or_else(broken)?;
    let at = version_end + 1 + 4 + 8 + 1;
    let capabilities = body.get(at..at + 2).ok_or_else(broken)?;
    if u16::from_le_bytes([capabilities[0], capabilities[1]]) & MYSQL_CLIENT_SSL == 0 {
        return Err(not_offered(&body[..version_end]));
    }
    let mut request = MYSQL_SSL_REQUEST_HEAD.to_vec();
    request.resize(4 + 32, 0);
    Ok(Action::Ready(request))
}

/// Encodes an X.224 Connection Request with an RDP Negotiation Request for TLS, CredSSP and CredSSP with early user authorization
/// (MS-RDPBCGR section 2.2.1.1): all of them start with TLS.
pub(super) fn rdp_request() -> Vec<u8> {
    vec![3, 0, 0, 19, 14, 0xe0, 0, 0, 0, 0, 0, 1, 0, 8, 0, 0x0b, 0, 0, 0]
}

/// Handles the response (MS-RDPBCGR sections 2.2.1.2.1 and 2.2.1.2.2).
pub(super) fn rdp(input: &mut Input) -> ActionResult {
    input.expect_first(|byte| byte == 3)?;
    let Some(head) = input.pending().get(..4) else { return Ok(Action::Wait) };
    let length = usize::from(u16::from_be_bytes([head[2], head[3]]));
    if length < 11 {
        return Err(input.wrong_protocol_error());
    }
    let Some(packet) = input.exact(length, "answer")? else { return Ok(Action::Wait) };
    if packet[5] != 0xd0 {
        return Err(malformed("not a connection confirm", &packet));
    }
    match packet[11..] {
        // Servers without negotiation, and servers configured for standard RDP security.
        [] | [2, _, 8, 0, 0, 0, 0, 0] => Err(not_offered(b"only RDP's own security")),
        [2, _, 8, 0, 1 | 2 | 8, 0, 0, 0] => Ok(Action::Ready(Vec::new())),
        [3, _, 8, 0, code, 0, 0, 0] => Err(rdp_failure(code)),
        _ => Err(malformed("an unknown RDP negotiation type", &packet)),
    }
}

/// Converts a failure code (MS-RDPBCGR section 2.2.1.2.2).
fn rdp_failure(code: u8) -> StartTlsError {
    match code {
        1 => refused(b"SSL_REQUIRED_BY_SERVER"),
        2 => not_offered(b"SSL_NOT_ALLOWED_BY_SERVER"),
        3 => refused(b"SSL_CERT_NOT_ON_SERVER"),
        4 => refused(b"INCONSISTENT_FLAGS"),
        5 => refused(b"HYBRID_REQUIRED_BY_SERVER"),
        6 => refused(b"SSL_WITH_USER_AUTH_REQUIRED_BY_SERVER"),
        code => refused(format!("failure code {code}").as_bytes()),
    }
}

//! The first packets of a client: requests for encryption, the startup message, and the request to cancel a query.
//!
//! These packets have no type: a length, a code, and a body (PostgreSQL documentation, "Message Formats").

use std::collections::BTreeSet;
use std::io;

use bytes::{BufMut, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

use super::cancel::CancelKey;

/// Maximum bytes of a packet, as in PostgreSQL.
pub const PACKET_BYTES_MAX: usize = 10_000;
/// Maximum bytes of the name of a user or a database, as in PostgreSQL.
const NAME_BYTES_MAX: usize = 63;

const CANCEL: u32 = 80_877_102;
const SSL: u32 = 80_877_103;
const GSS_ENCRYPTION: u32 = 80_877_104;
const MAJOR: u32 = 3;

/// The first packet of a client.
#[derive(Debug, Eq, PartialEq)]
pub enum Packet {
    /// The client requests TLS.
    Ssl,
    /// The client requests encryption by GSSAPI.
    GssEncryption,
    /// The client requests that a query is cancelled.
    Cancel(CancelKey),
    /// The client starts a session.
    Startup(Startup),
}

/// The startup message of a session: protocol version and parameters.
#[derive(Debug, Eq, PartialEq)]
pub struct Startup {
    /// Minor version of protocol 3.
    pub minor: u16,
    /// The parameters, in the client's order. No name occurs twice.
    pub parameters: Vec<(String, String)>,
}

/// Reason why a packet is invalid.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum BadPacket {
    /// The packet has an invalid length.
    #[error("the packet has an invalid length")]
    Length,
    /// The protocol is not PostgreSQL's protocol 3.
    #[error("only version 3 of the PostgreSQL protocol is supported")]
    Version,
    /// A parameter of the startup message is not a pair of texts in UTF-8, or occurs twice.
    #[error("the startup message has an invalid parameter")]
    Parameter,
    /// The startup message names no user.
    #[error("the startup message has no user name")]
    NoUser,
    /// The name of the user or the database is longer than 63 bytes, or empty.
    #[error("the name of the user or database is longer than {NAME_BYTES_MAX} bytes")]
    Name,
}

impl Packet {
    /// Parses a packet, without its length.
    ///
    /// # Errors
    /// [`BadPacket`]
    pub fn parse(body: &[u8]) -> Result<Self, BadPacket> {
        let (code, rest) = body.split_first_chunk::<4>().ok_or(BadPacket::Length)?;
        match u32::from_be_bytes(*code) {
            SSL if rest.is_empty() => Ok(Self::Ssl),
            GSS_ENCRYPTION if rest.is_empty() => Ok(Self::GssEncryption),
            CANCEL => CancelKey::parse(rest).map(Self::Cancel).ok_or(BadPacket::Length),
            SSL | GSS_ENCRYPTION => Err(BadPacket::Length),
            version if version >> 16 == MAJOR => {
                let startup = Startup { minor: version as u16, parameters: parameters(rest)? };
                startup.check()?;
                Ok(Self::Startup(startup))
            }
            _ => Err(BadPacket::Version),
        }
    }
}

/// Parses pairs of zero-terminated strings.
fn parameters(mut rest: &[u8]) -> Result<Vec<(String, String)>, BadPacket> {
    let mut parameters = Vec::new();
    let mut names = BTreeSet::new();
    loop {
        let name = text(&mut rest)?;
        if name.is_empty() {
            return if rest.is_empty() { Ok(parameters) } else { Err(BadPacket::Length) };
        }
        // If a name occurs several times, servers use the last value, but the proxy would decide by the first.
        if !names.insert(name.clone()) {
            return Err(BadPacket::Parameter);
        }
        parameters.push((name, text(&mut rest)?));
    }
}

/// Takes a zero-terminated string.
fn text(rest: &mut &[u8]) -> Result<String, BadPacket> {
    let end = rest.iter().position(|byte| *byte == 0).ok_or(BadPacket::Length)?;
    let (text, after) = rest.split_at(end);
    *rest = after.get(1..).unwrap_or_default();
    std::str::from_utf8(text).map(str::to_owned).map_err(|_| BadPacket::Parameter)
}

impl Startup {
    fn check(&self) -> Result<(), BadPacket> {
        let is_name = |name: &str| (1..=NAME_BYTES_MAX).contains(&name.len());
        if self.get("user").is_none_or(str::is_empty) {
            return Err(BadPacket::NoUser);
        }
        // The name of a token or user of the proxy may be longer than a database user's.
        if is_name(self.database()) { Ok(()) } else { Err(BadPacket::Name) }
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.parameters.iter().find(|(one, _)| one == name).map(|(_, value)| value.as_str())
    }

    /// Returns the name of the user that the client logs in as.
    #[must_use]
    pub fn user(&self) -> &str {
        self.get("user").unwrap_or_default()
    }

    /// Returns the name of the database; by default, this is the user's name.
    #[must_use]
    pub fn database(&self) -> &str {
        self.get("database").filter(|name| !name.is_empty()).unwrap_or_else(|| self.user())
    }

    /// Returns whether the client requests a replication connection, which reads all databases or their log.
    #[must_use]
    pub fn replicates(&self) -> bool {
        let is_off =
            |value: &str| ["false", "off", "no", "0"].iter().any(|off| value.eq_ignore_ascii_case(off));
        self.get("replication").is_some_and(|value| !is_off(value))
    }

    /// Returns the names of protocol extensions that the client requests.
    #[must_use]
    pub fn extensions(&self) -> Vec<&str> {
        self.parameters
            .iter()
            .map(|(name, _)| name.as_str())
            .filter(|name| name.starts_with("_pq_."))
            .collect()
    }

    /// Returns the startup packet for the server: as `user`, with the same database and settings, without protocol extensions.
    #[must_use]
    pub fn packet_as(&self, user: &str) -> BytesMut {
        let mut body = BytesMut::new();
        let mut put = |name: &str, value: &str| {
            for text in [name, value] {
                body.put_slice(text.as_bytes());
                body.put_u8(0);
            }
        };
        put("user", user);
        put("database", self.database());
        for (name, value) in &self.parameters {
            let is_own =
                matches!(name.as_str(), "user" | "database" | "replication") || name.starts_with("_pq_.");
            if !is_own {
                put(name, value);
            }
        }
        body.put_u8(0);
        packet(MAJOR << 16, &body)
    }
}

/// Returns the packet that requests TLS.
#[must_use]
pub fn ssl_request() -> BytesMut {
    packet(SSL, &[])
}

/// Returns the packet that requests to cancel the query of the session with this key.
#[must_use]
pub fn cancel_request(key: &CancelKey) -> BytesMut {
    packet(CANCEL, &key.bytes())
}

fn packet(code: u32, body: &[u8]) -> BytesMut {
    let mut packet = BytesMut::with_capacity(8 + body.len());
    packet.put_u32(8 + body.len() as u32);
    packet.put_u32(code);
    packet.put_slice(body);
    packet
}

/// Reads a packet, and no byte after it.
///
/// # Errors
/// The connection ends, or the packet is invalid or longer than [`PACKET_BYTES_MAX`].
pub(super) async fn read<S: AsyncRead + Unpin>(stream: &mut S) -> io::Result<Result<Packet, BadPacket>> {
    let length = stream.read_u32().await? as usize;
    if !(8..=PACKET_BYTES_MAX).contains(&length) {
        return Ok(Err(BadPacket::Length));
    }
    let mut body = vec![0; length - 4];
    stream.read_exact(&mut body).await?;
    Ok(Packet::parse(&body))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn startup(parameters: &[(&str, &str)]) -> Vec<u8> {
        let mut body = (MAJOR << 16).to_be_bytes().to_vec();
        for (name, value) in parameters {
            body.extend_from_slice(format!("{name}\0{value}\0").as_bytes());
        }
        body.push(0);
        body
    }

    #[test]
    fn startup_messages_that_servers_read_differently_are_rejected() {
        let error = |body: &[u8]| Packet::parse(body).unwrap_err();
        let long = "x".repeat(64);
        for (parameters, wanted) in [
            (&[("user", "a"), ("user", "b")][..], BadPacket::Parameter),
            (&[("user", "a"), ("database", "x"), ("database", "y")], BadPacket::Parameter),
            (&[("database", "x")], BadPacket::NoUser),
            (&[("user", "a"), ("database", &long)], BadPacket::Name),
        ] {
            assert_eq!(error(&startup(parameters)), wanted, "{parameters:?}");
        }
        assert_eq!(error(&[startup(&[("user", "a")]), vec![1]].concat()), BadPacket::Length);
        assert_eq!(error(b"\0\x02\0\0user\0a\0\0"), BadPacket::Version);
        assert_eq!(error(b"\0\x03\0\0user\0\xff\0\0"), BadPacket::Parameter);
        assert_eq!(error(b"\0\x03\0\0user\0a"), BadPacket::Length);
    }

    #[test]
    fn packet_for_the_server_has_another_user_and_no_extensions() {
        let sent =
            startup(&[("user", "ci"), ("application_name", "psql"), ("_pq_.x", "1"), ("replication", "off")]);
        let Packet::Startup(client) = Packet::parse(&sent).unwrap() else { panic!("{sent:?}") };
        assert_eq!(
            (client.database(), client.extensions(), client.replicates()),
            ("ci", vec!["_pq_.x"], false)
        );
        let Packet::Startup(server) = Packet::parse(&client.packet_as("app")[4..]).unwrap() else { panic!() };
        let pairs: Vec<(&str, &str)> =
            server.parameters.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(pairs, [("user", "app"), ("database", "ci"), ("application_name", "psql")]);
        for (value, replicates) in [("true", true), ("database", true), ("On", true), ("OFF", false)] {
            let body = startup(&[("user", "a"), ("replication", value)]);
            let Packet::Startup(one) = Packet::parse(&body).unwrap() else { panic!() };
            assert_eq!(one.replicates(), replicates, "{value}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_or_rejected(body in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Packet::parse(&body);
        }

        #[test]
        fn startup_for_the_server_is_parsed_back(
            user in "[a-z]{1,20}", database in "[^\0]{1,15}", value in "[^\0]{0,20}", other in "[^\0]{1,20}",
        ) {
            let body = startup(&[("user", &user), ("database", &database), ("application_name", &value)]);
            let Packet::Startup(read) = Packet::parse(&body).unwrap() else { panic!() };
            let sent = read.packet_as(&other);
            prop_assert_eq!(u32::from_be_bytes(sent[..4].try_into().unwrap()) as usize, sent.len());
            let Packet::Startup(reparsed) = Packet::parse(&sent[4..]).unwrap() else { panic!() };
            prop_assert_eq!((reparsed.user(), reparsed.database()), (other.as_str(), database.as_str()));
            prop_assert_eq!(reparsed.get("application_name"), Some(value.as_str()));
        }

        #[test]
        fn cancel_request_is_parsed_back(process in any::<i32>(), secret in any::<i32>()) {
            let key = CancelKey { process, secret };
            prop_assert_eq!(Packet::parse(&cancel_request(&key)[4..]), Ok(Packet::Cancel(key)));
        }
    }
}

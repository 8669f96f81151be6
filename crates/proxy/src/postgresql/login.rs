//! The proxy's login at a PostgreSQL server: SCRAM-SHA-256, within TLS with channel binding (SCRAM-SHA-256-PLUS), and within TLS also MD5
//! and a password in clear.

use std::io;

use aws_lc_rs::digest::{self, SHA256, SHA384, SHA512};
use bytes::BytesMut;
use http_relay::upstream::Link;
use keys::Secret;
use postgres_protocol::authentication::md5_hash;
use postgres_protocol::authentication::sasl::{
    ChannelBinding, SCRAM_SHA_256, SCRAM_SHA_256_PLUS, ScramSha256,
};
use postgres_protocol::message::frontend;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio_util::either::Either;
use x509::{Certificate, SignatureAlgorithm};
use zeroize::Zeroize;

use super::message::{
    AUTHENTICATION, Authentication, ERROR, NOTICE, SERVER_MESSAGE_BYTES_MAX, error_field, read, send,
};
use super::packet::{Startup, ssl_request};
use crate::requests::Login;
use crate::sessions::{DialError, LoginFailure, ServerLogin, ServerStream};

/// Names of the protocol in TLS (ALPN).
pub(super) const ALPN: &[&[u8]] = &[b"postgresql"];
/// Class of SQLSTATEs of failed authentication.
pub(super) const AUTHENTICATION_CLASS: &str = "28";
/// Answer of a server that accepts TLS.
const ACCEPTS_TLS: u8 = b'S';
/// Maximum messages of a login. SCRAM has four.
const MESSAGES_MAX: usize = 20;
/// Initial buffer size of the proxy's login messages in bytes, in addition to the length of the password.
const ANSWER_BYTES: usize = 1 << 10;

/// Reason why the server did not accept the login.
#[derive(Debug, thiserror::Error)]
pub(super) enum LoginError {
    /// The server rejected the login, with this SQLSTATE.
    #[error(
        "the database server rejected the login of the proxy{}",
        .0.as_ref().map(|code| format!(": SQLSTATE {code}")).unwrap_or_default()
    )]
    Rejected(Option<String>),
    /// The server requests a method that would show the password on a connection without TLS.
    #[error(
        "without TLS, the proxy logs in with SCRAM-SHA-256 only, and the database server requests another method"
    )]
    NeedsTls,
    /// The server requests a method that the proxy does not support.
    #[error("the database server requests an authentication method that the proxy does not support")]
    Method,
    /// The server does not prove that it knows the password, or sends an invalid message.
    #[error("the database server sent an invalid message during the login")]
    Invalid,
    /// The connection broke.
    #[error("the connection to the database server broke during the login")]
    Io(#[from] io::Error),
    /// The login timed out.
    #[error("the database server did not finish the login in time")]
    Late,
}

impl LoginFailure for LoginError {
    fn late() -> Self {
        Self::Late
    }

    fn is_of_credential(&self) -> bool {
        matches!(self, Self::Rejected(Some(code)) if code.starts_with(AUTHENTICATION_CLASS))
    }
}

/// The login for a session whose client sent this startup message.
pub(super) struct PostgresqlLogin<'a>(pub(super) &'a Startup);

impl ServerLogin for PostgresqlLogin<'_> {
    const ALPN: &'static [&'static [u8]] = ALPN;
    type Error = LoginError;

    async fn request_tls(link: &mut Link) -> Result<(), DialError> {
        send(link, &ssl_request()).await?;
        match link.read_u8().await? {
            ACCEPTS_TLS => Ok(()),
            _ => Err(DialError::NoTls),
        }
    }

    async fn log_in(&self, stream: &mut ServerStream, login: &Login) -> Result<(), LoginError> {
        send(stream, &self.0.packet_as(login.user.expose())).await?;
        let channel = Channel::of(stream);
        log_in(stream, (&login.user, &login.password), &channel).await
    }
}

/// State of a SCRAM exchange.
enum Scram {
    NotBegun,
    Begun(Box<ScramSha256>),
    /// The server has proved that it knows the password.
    Proven,
}

/// The connection to a server, as the choice of a login method needs it.
#[derive(Clone, Debug, Eq, PartialEq)]
enum Channel {
    Plain,
    /// TLS, with the channel binding data of the server's certificate, if its signature algorithm defines them.
    Tls(Option<Vec<u8>>),
}

impl Channel {
    fn of(stream: &ServerStream) -> Self {
        match stream {
            Either::Left(_) => Self::Plain,
            Either::Right(tls) => {
                let leaf = tls.get_ref().1.peer_certificates().and_then(|chain| chain.first());
                Self::Tls(leaf.and_then(|leaf| end_point_binding(leaf)))
            }
        }
    }

    /// Chooses a SCRAM mechanism that the server offers: with channel binding if possible. `None` if the server offers none.
    fn mechanism(&self, offered: &[&str]) -> Option<(&'static str, ChannelBinding)> {
        match self {
            Self::Tls(Some(binding)) if offered.contains(&SCRAM_SHA_256_PLUS) => {
                Some((SCRAM_SHA_256_PLUS, ChannelBinding::tls_server_end_point(binding.clone())))
            }
            _ if !offered.contains(&SCRAM_SHA_256) => None,
            // The server rejects the login if its offer of channel binding was removed on the way (RFC 5802 section 6).
            Self::Tls(Some(_)) => Some((SCRAM_SHA_256, ChannelBinding::unrequested())),
            Self::Tls(None) | Self::Plain => Some((SCRAM_SHA_256, ChannelBinding::unsupported())),
        }
    }
}

/// Returns the channel binding data `tls-server-end-point` (RFC 5929 section 4.1): the digest of a certificate under the hash of its
/// signature. `None` for a signature algorithm without one hash, such as Ed25519.
fn end_point_binding(certificate: &[u8]) -> Option<Vec<u8>> {
    let algorithm = match Certificate::parse(certificate).ok()?.signature {
        SignatureAlgorithm::RsaMd5
        | SignatureAlgorithm::RsaSha1
        | SignatureAlgorithm::EcdsaSha1
        | SignatureAlgorithm::RsaSha256
        | SignatureAlgorithm::EcdsaSha256
        | SignatureAlgorithm::RsaPss(160 | 256) => &SHA256,
        SignatureAlgorithm::RsaSha384 | SignatureAlgorithm::EcdsaSha384 | SignatureAlgorithm::RsaPss(384) => {
            &SHA384
        }
        SignatureAlgorithm::RsaSha512 | SignatureAlgorithm::EcdsaSha512 | SignatureAlgorithm::RsaPss(512) => {
            &SHA512
        }
        _ => return None,
    };
    Some(digest::digest(algorithm, certificate).as_ref().to_vec())
}

/// Logs in as `user`, after the startup packet was sent.
async fn log_in<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    (user, password): (&Secret, &Secret),
    channel: &Channel,
) -> Result<(), LoginError> {
    let password = password.expose().as_bytes();
    let mut scram = Scram::NotBegun;
    for _ in 0..MESSAGES_MAX {
        let message = read(stream, SERVER_MESSAGE_BYTES_MAX).await?;
        match message.kind {
            AUTHENTICATION => {}
            NOTICE => continue,
            ERROR => return Err(LoginError::Rejected(error_field(&message.body, b'C').map(str::to_owned))),
            _ => return Err(LoginError::Invalid),
        }
        // Large enough that the buffer never grows: growing would leave a copy of the password in memory.
        let mut answer = BytesMut::with_capacity(ANSWER_BYTES + password.len());
        match (Authentication::parse(&message.body).ok_or(LoginError::Invalid)?, &mut scram) {
            (Authentication::Ok, Scram::NotBegun | Scram::Proven) => return Ok(()),
            (Authentication::Cleartext | Authentication::Md5(_), _) if *channel == Channel::Plain => {
                return Err(LoginError::NeedsTls);
            }
            (Authentication::Cleartext, Scram::NotBegun) => {
                frontend::password_message(password, &mut answer)?
            }
            (Authentication::Md5(salt), Scram::NotBegun) => {
                let digest = md5_hash(user.expose().as_bytes(), password, salt);
                frontend::password_message(digest.as_bytes(), &mut answer)?;
            }
            (Authentication::Sasl(mechanisms), Scram::NotBegun) => {
                let (mechanism, binding) = channel.mechanism(&mechanisms).ok_or(LoginError::Method)?;
                let begun = ScramSha256::new(password, binding);
                frontend::sasl_initial_response(mechanism, begun.message(), &mut answer)?;
                scram = Scram::Begun(Box::new(begun));
            }
            (Authentication::SaslContinue(data), Scram::Begun(begun)) => {
                begun.update(data).map_err(|_| LoginError::Invalid)?;
                frontend::sasl_response(begun.message(), &mut answer)?;
            }
            (Authentication::SaslFinal(data), Scram::Begun(begun)) => {
                begun.finish(data).map_err(|_| LoginError::Invalid)?;
                scram = Scram::Proven;
                continue;
            }
            (Authentication::Other(_), _) => return Err(LoginError::Method),
            _ => return Err(LoginError::Invalid),
        }
        let sent = send(stream, &answer).await;
        answer.as_mut().zeroize();
        sent?;
    }
    Err(LoginError::Invalid)
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    fn authentication(body: &[u8]) -> Vec<u8> {
        let mut message = vec![AUTHENTICATION];
        message.extend_from_slice(&(4 + body.len() as u32).to_be_bytes());
        message.extend_from_slice(body);
        message
    }

    /// Logs in at a server that sends `messages`. Returns the result, and all that the server received.
    async fn logged_in(messages: &[u8], channel: &Channel) -> (Result<(), LoginError>, Vec<u8>) {
        let (mut near, mut far) = duplex(64 << 10);
        far.write_all(messages).await.unwrap();
        let done = log_in(&mut near, (&Secret::new("app"), &Secret::new("canary")), channel).await;
        drop(near);
        let mut received = Vec::new();
        far.read_to_end(&mut received).await.unwrap();
        (done, received)
    }

    #[tokio::test]
    async fn password_is_sent_in_clear_within_tls_only() {
        for request in [&b"\0\0\0\x03"[..], b"\0\0\0\x05salt"] {
            let (done, received) = logged_in(&authentication(request), &Channel::Plain).await;
            assert!(
                matches!(done, Err(LoginError::NeedsTls)) && received.is_empty(),
                "{done:?} {received:?}"
            );
        }
        let messages = [authentication(b"\0\0\0\x03"), authentication(b"\0\0\0\0")].concat();
        let (done, received) = logged_in(&messages, &Channel::Tls(None)).await;
        assert!(done.is_ok() && received.ends_with(b"canary\0"), "{done:?} {received:?}");
    }

    #[tokio::test]
    async fn server_must_prove_that_it_knows_the_password() {
        let offer = authentication(b"\0\0\0\x0aSCRAM-SHA-256\0\0");
        for rest in [&b"\0\0\0\0"[..], b"\0\0\0\x0cv=AAAA", b"\0\0\0\x0br=x,s=AAAA,i=4096"] {
            let messages = [offer.clone(), authentication(rest)].concat();
            let (done, received) = logged_in(&messages, &Channel::Tls(None)).await;
            assert!(matches!(done, Err(LoginError::Invalid)), "{done:?}");
            assert!(!String::from_utf8_lossy(&received).contains("canary"));
        }
        let (done, _) =
            logged_in(&authentication(b"\0\0\0\x0aSCRAM-SHA-256-PLUS\0\0"), &Channel::Tls(None)).await;
        assert!(matches!(done, Err(LoginError::Method)));
    }

    #[tokio::test]
    async fn channel_is_bound_if_the_server_offers_it() {
        let bound = Channel::Tls(Some(vec![7; 32]));
        for (offer, channel, mechanism, header) in [
            (
                &b"SCRAM-SHA-256-PLUS\0SCRAM-SHA-256\0"[..],
                &bound,
                "SCRAM-SHA-256-PLUS",
                "p=tls-server-end-point,,",
            ),
            (b"SCRAM-SHA-256\0", &bound, "SCRAM-SHA-256", "y,,"),
            (b"SCRAM-SHA-256-PLUS\0SCRAM-SHA-256\0", &Channel::Tls(None), "SCRAM-SHA-256", "n,,"),
            (b"SCRAM-SHA-256\0", &Channel::Plain, "SCRAM-SHA-256", "n,,"),
        ] {
            let offer = authentication(&[b"\0\0\0\x0a", offer, b"\0"].concat());
            // The server does not continue the exchange.
            let messages = [offer, authentication(b"\0\0\0\0")].concat();
            let received = String::from_utf8_lossy(&logged_in(&messages, channel).await.1).into_owned();
            assert!(received.contains(&format!("{mechanism}\0")), "{received:?}");
            assert!(received.contains(&format!("{header}n=")), "{received:?}");
        }
    }
}

//! The proxy's login at a PostgreSQL server: SCRAM-SHA-256, and within TLS also MD5 and a password in clear.

use std::io;

use bytes::BytesMut;
use http_relay::upstream::Link;
use keys::Secret;
use postgres_protocol::authentication::md5_hash;
use postgres_protocol::authentication::sasl::{ChannelBinding, SCRAM_SHA_256, ScramSha256};
use postgres_protocol::message::frontend;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
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

    async fn log_in(&self, stream: &mut ServerStream, login: &Login, in_tls: bool) -> Result<(), LoginError> {
        send(stream, &self.0.packet_as(login.user.expose())).await?;
        log_in(stream, (&login.user, &login.password), in_tls).await
    }
}

/// State of a SCRAM exchange.
enum Scram {
    NotBegun,
    Begun(Box<ScramSha256>),
    /// The server has proved that it knows the password.
    Proven,
}

/// Logs in as `user`, after the startup packet was sent. `in_tls`: whether the connection is encrypted.
async fn log_in<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    (user, password): (&Secret, &Secret),
    in_tls: bool,
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
            (Authentication::Cleartext | Authentication::Md5(_), _) if !in_tls => {
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
                if !mechanisms.contains(&SCRAM_SHA_256) {
                    return Err(LoginError::Method);
                }
                // Without channel binding: the certificate of the server is verified instead.
                let begun = ScramSha256::new(password, ChannelBinding::unsupported());
                frontend::sasl_initial_response(SCRAM_SHA_256, begun.message(), &mut answer)?;
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
    async fn logged_in(messages: &[u8], in_tls: bool) -> (Result<(), LoginError>, Vec<u8>) {
        let (mut near, mut far) = duplex(64 << 10);
        far.write_all(messages).await.unwrap();
        let done = log_in(&mut near, (&Secret::new("app"), &Secret::new("canary")), in_tls).await;
        drop(near);
        let mut received = Vec::new();
        far.read_to_end(&mut received).await.unwrap();
        (done, received)
    }

    #[tokio::test]
    async fn password_is_sent_in_clear_within_tls_only() {
        for request in [&b"\0\0\0\x03"[..], b"\0\0\0\x05salt"] {
            let (done, received) = logged_in(&authentication(request), false).await;
            assert!(
                matches!(done, Err(LoginError::NeedsTls)) && received.is_empty(),
                "{done:?} {received:?}"
            );
        }
        let messages = [authentication(b"\0\0\0\x03"), authentication(b"\0\0\0\0")].concat();
        let (done, received) = logged_in(&messages, true).await;
        assert!(done.is_ok() && received.ends_with(b"canary\0"), "{done:?} {received:?}");
    }

    #[tokio::test]
    async fn server_must_prove_that_it_knows_the_password() {
        let offer = authentication(b"\0\0\0\x0aSCRAM-SHA-256\0\0");
        for rest in [&b"\0\0\0\0"[..], b"\0\0\0\x0cv=AAAA", b"\0\0\0\x0br=x,s=AAAA,i=4096"] {
            let messages = [offer.clone(), authentication(rest)].concat();
            let (done, received) = logged_in(&messages, true).await;
            assert!(matches!(done, Err(LoginError::Invalid)), "{done:?}");
            assert!(!String::from_utf8_lossy(&received).contains("canary"));
        }
        let (done, _) = logged_in(&authentication(b"\0\0\0\x0aSCRAM-SHA-256-PLUS\0\0"), true).await;
        assert!(matches!(done, Err(LoginError::Method)));
    }
}

//! The proxy's login at a Redis server: AUTH.

use std::io;

use http_relay::upstream::Link;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use zeroize::Zeroizing;

use crate::requests::Login;
use crate::sessions::{DialError, Failure, LoginFailure, ServerLogin, ServerStream};

/// Maximum bytes of user and password together. They may be JSON Web Tokens.
const CREDENTIAL_BYTES_MAX: usize = 16 << 10;
/// Bytes of the command AUTH without its arguments.
const COMMAND_BYTES_MAX: usize = 64;
/// Maximum bytes of the server's reply. Errors of Redis have less than 300 bytes.
const REPLY_BYTES_MAX: usize = 1 << 10;
const LINE_END: &[u8] = b"\r\n";
/// Maximum bytes of an error code, such as `WRONGPASS`.
const CODE_BYTES_MAX: usize = 32;

/// Reason why the server did not accept the login.
#[derive(Debug, thiserror::Error)]
pub(super) enum LoginError {
    /// The server rejected the login. Only the code of its error is kept, because the text may contain the password.
    #[error("the database server rejected the login of the proxy{}", .code.as_ref().map(|code| format!(": {code}")).unwrap_or_default())]
    Rejected { code: Option<String>, is_of_credential: bool },
    #[error("user and password of the database have more than {CREDENTIAL_BYTES_MAX} bytes")]
    TooLong,
    #[error("the database server sent an invalid reply during the login")]
    Invalid,
    #[error("the connection to the database server broke during the login")]
    Io(#[from] io::Error),
    #[error("the database server did not finish the login in time")]
    Late,
}

impl LoginFailure for LoginError {
    fn late() -> Self {
        Self::Late
    }

    fn is_of_credential(&self) -> bool {
        matches!(self, Self::Rejected { is_of_credential: true, .. })
    }
}

impl From<LoginError> for Failure {
    fn from(error: LoginError) -> Self {
        Self::login(error, None)
    }
}

/// The login at a Redis server.
pub(super) struct RedisLogin;

impl ServerLogin for RedisLogin {
    const ALPN: &'static [&'static [u8]] = &[];
    type Error = LoginError;

    async fn request_tls(_: &mut Link) -> Result<(), DialError> {
        Ok(())
    }

    async fn log_in(&self, stream: &mut ServerStream, login: &Login) -> Result<(), LoginError> {
        log_in(stream, login.user.expose().as_bytes(), login.password.expose().as_bytes()).await
    }
}

/// Logs in as `user`; if it is empty, with the password alone.
async fn log_in<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    user: &[u8],
    password: &[u8],
) -> Result<(), LoginError> {
    if user.len() + password.len() > CREDENTIAL_BYTES_MAX {
        return Err(LoginError::TooLong);
    }
    let arguments: &[&[u8]] = if user.is_empty() { &[b"AUTH", password] } else { &[b"AUTH", user, password] };
    // Large enough that the buffer never grows: growing would leave a copy of the password in memory.
    let mut command = Zeroizing::new(Vec::with_capacity(COMMAND_BYTES_MAX + user.len() + password.len()));
    super::reply::write_command(arguments, &mut command);
    stream.write_all(&command).await?;
    stream.flush().await?;
    accepted(&reply(stream).await?)
}

/// Reads the reply, without its line end.
async fn reply<S: AsyncRead + Unpin>(stream: &mut S) -> Result<Zeroizing<Vec<u8>>, LoginError> {
    let mut reply = Zeroizing::new(Vec::with_capacity(REPLY_BYTES_MAX));
    while !reply.ends_with(LINE_END) {
        if reply.len() >= REPLY_BYTES_MAX {
            return Err(LoginError::Invalid);
        }
        // Byte by byte, so that no byte after the reply is read.
        reply.push(stream.read_u8().await?);
    }
    let length = reply.len() - LINE_END.len();
    reply.truncate(length);
    Ok(reply)
}

fn accepted(reply: &[u8]) -> Result<(), LoginError> {
    let text = match reply {
        b"+OK" => return Ok(()),
        [b'-', text @ ..] => text,
        _ => return Err(LoginError::Invalid),
    };
    let code = text.split(|byte| *byte == b' ').next().unwrap_or_default();
    let is_code = (1..=CODE_BYTES_MAX).contains(&code.len()) && code.iter().all(u8::is_ascii_uppercase);
    // Redis before version 6 has no code of its own for a wrong password.
    let is_of_credential =
        matches!(code, b"WRONGPASS" | b"NOAUTH") || text.eq_ignore_ascii_case(b"ERR invalid password");
    let code = is_code.then(|| String::from_utf8_lossy(code).into_owned());
    Err(LoginError::Rejected { code, is_of_credential })
}

#[cfg(test)]
mod tests {
    use tokio::io::duplex;

    use super::*;

    /// Logs in at a server that sends `replies`. Returns the result, and all that the server received.
    async fn logged_in(replies: &[u8], (user, password): (&str, &str)) -> (Result<(), LoginError>, String) {
        let (mut near, mut far) = duplex(64 << 10);
        far.write_all(replies).await.unwrap();
        far.shutdown().await.unwrap();
        let done = log_in(&mut near, user.as_bytes(), password.as_bytes()).await;
        drop(near);
        let mut received = String::new();
        far.read_to_string(&mut received).await.unwrap();
        (done, received)
    }

    #[tokio::test]
    async fn user_is_left_out_if_the_credential_has_none() {
        let (done, sent) = logged_in(b"+OK\r\n", ("app", "pass word")).await;
        assert!(
            done.is_ok() && sent == "*3\r\n$4\r\nAUTH\r\n$3\r\napp\r\n$9\r\npass word\r\n",
            "{done:?} {sent:?}"
        );
        let (done, sent) = logged_in(b"+OK\r\n", ("", "pass")).await;
        assert!(done.is_ok() && sent == "*2\r\n$4\r\nAUTH\r\n$4\r\npass\r\n", "{done:?} {sent:?}");
        let long = "x".repeat(CREDENTIAL_BYTES_MAX);
        let (done, sent) = logged_in(b"+OK\r\n", ("app", &long)).await;
        assert!(matches!(done, Err(LoginError::TooLong)) && sent.is_empty());
    }

    #[tokio::test]
    async fn error_of_the_server_is_shown_without_its_text() {
        for (received, wanted, is_of_credential) in [
            (&b"-WRONGPASS canary\r\n"[..], ": WRONGPASS", true),
            (b"-NOAUTH Authentication required.\r\n", ": NOAUTH", true),
            (b"-ERR invalid password\r\n", ": ERR", true),
            (b"-ERR unknown command 'AUTH', with args beginning with: 'canary'\r\n", ": ERR", false),
            (b"-canary\r\n", "rejected the login of the proxy", false),
            (b"$2\r\nOK\r\n", "invalid reply", false),
            (b"+OK canary\r\n", "invalid reply", false),
            (b"+OK", "broke during the login", false),
            (&[b'+'; REPLY_BYTES_MAX + 1], "invalid reply", false),
        ] {
            let error = logged_in(received, ("app", "canary")).await.0.unwrap_err();
            let text = error.to_string();
            assert!(text.ends_with(wanted) || text.contains(wanted), "{text}");
            assert!(!text.contains("canary") && error.is_of_credential() == is_of_credential, "{error:?}");
        }
    }
}

//! The parts of a session that depend on its protocol.

use std::fmt::Display;

use http_relay::upstream::Link;
use tokio_rustls::client::TlsStream;
use tokio_util::either::Either;

use super::dial_error::DialError;
use super::failure::Failure;
use crate::requests::Login;

/// A byte stream to a server.
pub(crate) type ServerStream = Either<Link, TlsStream<Link>>;

/// The login of a protocol at its servers.
pub(crate) trait ServerLogin: Sync {
    /// Names of the protocol in TLS; empty if it has none.
    const ALPN: &'static [&'static [u8]];
    type Error: LoginFailure;

    /// Requests TLS on a new connection. Does nothing if TLS begins with the first byte.
    fn request_tls(link: &mut Link) -> impl Future<Output = Result<(), DialError>> + Send;

    /// Logs in on a new connection.
    fn log_in(
        &self,
        stream: &mut ServerStream,
        login: &Login,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;
}

/// Reason why a server did not accept a login.
pub(crate) trait LoginFailure: Display + Into<Failure> + Send {
    /// Returns the error of a login that timed out.
    fn late() -> Self;

    /// Returns whether the server rejected user or password. False for connection errors and all other rejections.
    fn is_of_credential(&self) -> bool;
}

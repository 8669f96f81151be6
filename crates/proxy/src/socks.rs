//! SOCKS5 (RFC 1928) with user and password (RFC 1929). Connections are served like connections after CONNECT.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use http_relay::client::Client;
use http_relay::opening::SOCKS_VERSION as VERSION;
use http_relay::target::Target;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use x509::HostOrIp;

use super::access::Denied;
use super::policy::Phase;
use super::proxy::Proxy;
use super::rules::Action;
use crate::permission::NotPermitted;

const NO_AUTHENTICATION: u8 = 0;
const USER_AND_PASSWORD: u8 = 2;
const NO_ACCEPTABLE_METHOD: u8 = 0xff;
/// Version of the subnegotiation (RFC 1929).
const PASSWORD_VERSION: u8 = 1;
const CONNECT: u8 = 1;

/// Reply codes (RFC 1928 section 6).
#[derive(Clone, Copy)]
enum Reply {
    Succeeded = 0,
    NotAllowed = 2,
    CommandNotSupported = 7,
    AddressTypeNotSupported = 8,
}

/// Reason why a SOCKS5 request is rejected.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoRequest {
    #[error(transparent)]
    Io(#[from] std::io::Error),
    #[error("not a SOCKS5 request")]
    NotSocks,
    #[error("the client offers no authentication method that this proxy accepts")]
    NoMethod,
    #[error(transparent)]
    Denied(#[from] Denied),
    #[error("only the SOCKS5 command CONNECT is supported")]
    Command,
    #[error("the address type is unknown, or the name is invalid")]
    Address,
    #[error("connections to {0} are not allowed here")]
    Rejected(Target),
    #[error("no leaf certificate for {0}: {1}")]
    NotPermitted(Target, NotPermitted),
}

impl Proxy {
    /// Reads the SOCKS5 request and accepts it. The bytes after the request are for the target. The caller sets the timeout.
    pub(super) async fn socks<S: AsyncRead + AsyncWrite + Send + Unpin>(
        self: &Arc<Self>,
        stream: &mut S,
        client: &Client,
    ) -> Result<(Target, Client), NoRequest> {
        if stream.read_u8().await? != VERSION {
            return Err(NoRequest::NotSocks);
        }
        let methods = counted(stream).await?;
        let wanted = match self.access.requires_authentication() && client.user.is_none() {
            // SOCKS5 has no authentication by certificates.
            true => self.access.has_passwords().then_some(USER_AND_PASSWORD),
            false => Some(NO_AUTHENTICATION),
        };
        let Some(wanted) = wanted.filter(|wanted| methods.contains(wanted)) else {
            if wanted != Some(NO_AUTHENTICATION) {
                self.metrics.denied(Denied::Missing);
            }
            send(stream, &[VERSION, NO_ACCEPTABLE_METHOD]).await?;
            return Err(NoRequest::NoMethod);
        };
        send(stream, &[VERSION, wanted]).await?;
        let client = match wanted {
            USER_AND_PASSWORD => self.authenticate_socks_user(stream, client).await?,
            _ => client.clone(),
        };
        let target = match request(stream).await? {
            Ok(target) => target,
            Err(refused) => {
                reply(stream, refused).await?;
                return Err(match refused {
                    Reply::CommandNotSupported => NoRequest::Command,
                    _ => NoRequest::Address,
                });
            }
        };
        if self.admit_target(&client, &target, Phase::Connect).await.is_err() {
            reply(stream, Reply::NotAllowed).await?;
            return Err(NoRequest::Rejected(target));
        }
        let action = self.action_of(&target, &target.name).await;
        if action == Action::Tunnel && self.admit_target(&client, &target, Phase::Tunnel).await.is_err() {
            reply(stream, Reply::NotAllowed).await?;
            return Err(NoRequest::Rejected(target));
        }
        if action == Action::Reject {
            self.metrics.rejected();
            self.requests.refused(&client, &target);
            reply(stream, Reply::NotAllowed).await?;
            return Err(NoRequest::Rejected(target));
        }
        if let Err(refused) = self.permits_target(&target, &client).await {
            reply(stream, Reply::NotAllowed).await?;
            return Err(NoRequest::NotPermitted(target, refused));
        }
        // As with CONNECT, the proxy dials the target only when it needs the connection.
        reply(stream, Reply::Succeeded).await?;
        Ok((target, client))
    }

    async fn authenticate_socks_user<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: &mut S,
        client: &Client,
    ) -> Result<Client, NoRequest> {
        if stream.read_u8().await? != PASSWORD_VERSION {
            return Err(NoRequest::NotSocks);
        }
        let name = counted(stream).await?;
        let password = zeroize::Zeroizing::new(counted(stream).await?);
        let known = self.access.password(&name, &password, client.ip()).await;
        send(stream, &[PASSWORD_VERSION, u8::from(known.is_err())]).await?;
        let proven = known.inspect_err(|denied| self.metrics.denied(*denied))?;
        Ok(proven.client(client))
    }
}

/// Reads a byte string that is prefixed by its length.
async fn counted<S: AsyncRead + Unpin>(stream: &mut S) -> std::io::Result<Vec<u8>> {
    let mut bytes = vec![0; stream.read_u8().await?.into()];
    stream.read_exact(&mut bytes).await?;
    Ok(bytes)
}

async fn request<S: AsyncRead + Unpin>(stream: &mut S) -> Result<Result<Target, Reply>, NoRequest> {
    let mut head = [0; 4];
    stream.read_exact(&mut head).await?;
    let [VERSION, command, _, kind] = head else { return Err(NoRequest::NotSocks) };
    let name = match kind {
        1 => Some(HostOrIp::Ip(IpAddr::from(Ipv4Addr::from_bits(stream.read_u32().await?)))),
        4 => Some(HostOrIp::Ip(IpAddr::from(Ipv6Addr::from_bits(stream.read_u128().await?)).to_canonical())),
        3 => {
            let text = counted(stream).await?;
            std::str::from_utf8(&text).ok().and_then(|text| HostOrIp::parse(text).ok())
        }
        // An address of an unknown type cannot be skipped, because its length is not known.
        _ => return Ok(Err(Reply::AddressTypeNotSupported)),
    };
    let port = stream.read_u16().await?;
    if command != CONNECT {
        return Ok(Err(Reply::CommandNotSupported));
    }
    match name {
        Some(name) if port > 0 => Ok(Ok(Target { name, port, redirected: false })),
        _ => Ok(Err(Reply::AddressTypeNotSupported)),
    }
}

/// Sends a reply without a bound address, because the upstream connection does not exist yet.
async fn reply<S: AsyncWrite + Unpin>(stream: &mut S, reply: Reply) -> std::io::Result<()> {
    send(stream, &[VERSION, reply as u8, 0, 1, 0, 0, 0, 0, 0, 0]).await
}

/// Writes and flushes: a TLS stream may buffer data, and reading does not flush it.
async fn send<S: AsyncWrite + Unpin>(stream: &mut S, message: &[u8]) -> std::io::Result<()> {
    stream.write_all(message).await?;
    stream.flush().await
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use tokio::io::{BufStream, duplex};

    use super::*;

    #[tokio::test]
    async fn replies_are_flushed_through_a_buffered_stream() {
        let (near, mut far) = duplex(64);
        reply(&mut BufStream::new(near), Reply::CommandNotSupported).await.unwrap();
        let mut answer = [0; 10];
        far.read_exact(&mut answer).now_or_never().expect("it is sent").unwrap();
        let (near, mut far) = duplex(64);
        let mut near = BufStream::new(near);
        send(&mut near, &[VERSION, NO_AUTHENTICATION]).await.unwrap();
        let mut answer = [0; 2];
        far.read_exact(&mut answer).now_or_never().expect("it is sent").unwrap();
        assert_eq!(answer, [VERSION, NO_AUTHENTICATION]);
    }
}

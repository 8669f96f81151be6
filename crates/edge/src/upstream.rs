//! Connections to the servers of an upstream.

use std::net::IpAddr;
use std::time::Duration;

use http_relay::upstream::{Link, UpstreamConnectError, UpstreamTls};
use outbound::Deadline;
use outbound::dial::{DialError, happy_eyeballs};
use outbound::resolve::{Families, ResolveError, Resolver};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::group::{Group, InFlight, Server, TRIES_MAX};
use super::metrics::EdgeMetrics;
use super::outcome::{note_answered, record_failure};

/// Reason why the connection to a server of an upstream failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoUpstream {
    #[error("cannot resolve the host name: {0}")]
    Name(#[from] ResolveError),
    #[error(transparent)]
    Dial(#[from] DialError),
    #[error("the connection was lost: {0}")]
    Broken(#[from] std::io::Error),
    #[error(transparent)]
    Tls(#[from] UpstreamConnectError),
}

/// Data that the upstream gets before the client's own bytes: PROXY protocol header and ALPN protocol.
pub(super) struct UpstreamPreamble {
    /// PROXY protocol header, sent unencrypted before TLS; empty if not configured.
    pub(super) header: Vec<u8>,
    /// ALPN protocols to offer to the upstream: the protocol that was negotiated with the client, if any.
    pub(super) alpn: Vec<Vec<u8>>,
}

/// Resources for connecting to upstreams.
pub(super) struct Reach<'a> {
    pub(super) resolver: &'a Resolver,
    pub(super) metrics: &'a EdgeMetrics,
    /// Timeout for one server: name resolution, TCP and TLS together.
    pub(super) limit: Duration,
}

impl Reach<'_> {
    /// Connects to a server of `group` for `client`. If a server is unreachable, tries the next one. Returns `None` if all tries
    /// fail.
    pub(super) async fn connect(
        &self,
        group: &Group,
        client: IpAddr,
        introduction: &UpstreamPreamble,
    ) -> Option<(Link, InFlight)> {
        let mut tried = Vec::new();
        while tried.len() < TRIES_MAX
            && let Some(at) = group.choose(client, &tried)
        {
            let server = &group.servers()[at];
            let in_flight = server.begin();
            match self.to(server, group.tls(), introduction).await {
                Ok(link) => {
                    note_answered(group, server, self.metrics);
                    tracing::debug!(upstream = %group.name(), server = %server.label, %client, "passed on");
                    return Some((link, in_flight));
                }
                Err(error) => {
                    tracing::info!(
                        upstream = %group.name(), server = %server.label, %error, "a server of an upstream cannot be reached"
                    );
                    record_failure(group, server, self.metrics);
                }
            }
            tried.push(at);
        }
        None
    }

    /// Opens a connection to one server.
    pub(super) async fn to(
        &self,
        server: &Server,
        tls: Option<&UpstreamTls>,
        introduction: &UpstreamPreamble,
    ) -> Result<Link, NoUpstream> {
        let deadline = Deadline::within(self.limit);
        let mut stream = dial(self.resolver, server, deadline).await?;
        if !introduction.header.is_empty() {
            stream.write_all(&introduction.header).await?;
        }
        match tls {
            None => Ok(Link::Direct(stream)),
            Some(tls) => {
                let stream = tls.connect(stream, introduction.alpn.clone(), deadline.remaining()).await?;
                Ok(Link::Tls(Box::new(stream)))
            }
        }
    }
}

async fn dial(resolver: &Resolver, server: &Server, deadline: Deadline) -> Result<TcpStream, NoUpstream> {
    let found = resolver.resolve(&server.host, Families::Both, deadline.remaining()).await?;
    let connected = happy_eyeballs(&found.addresses, server.port, deadline.remaining()).await;
    let (stream, _) = connected.map_err(|(_, error)| error)?;
    Ok(stream)
}

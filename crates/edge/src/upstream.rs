//! The way to an upstream.

use std::time::Duration;

use outbound::Deadline;
use outbound::dial::{DialError, happy_eyeballs};
use outbound::resolve::{Families, ResolveError, Resolver};
use tokio::net::TcpStream;

use super::routes::Route;

/// Why an upstream cannot be had.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoUpstream {
    #[error("its name is not resolved: {0}")]
    Name(#[from] ResolveError),
    #[error(transparent)]
    Dial(#[from] DialError),
}

/// Connects, within `limit` for its name and itself.
pub(super) async fn connect(
    resolver: &Resolver,
    route: &Route,
    limit: Duration,
) -> Result<TcpStream, NoUpstream> {
    let deadline = Deadline::within(limit);
    let found = resolver.resolve(&route.host, Families::Both, limit).await?;
    let connected = happy_eyeballs(&found.addresses, route.port, deadline.remaining()).await;
    let (stream, _) = connected.map_err(|(_, error)| error)?;
    Ok(stream)
}

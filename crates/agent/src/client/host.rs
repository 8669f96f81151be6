//! Facts about the agent's host, which the agent sends with every poll.

use std::net::UdpSocket;

use crate::work::HostFacts;

/// Collects facts about the host. Cheap enough for every poll.
pub(super) async fn facts(server: &str) -> HostFacts {
    HostFacts {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        hostname: hostname(),
        os: std::env::consts::OS.to_owned(),
        arch: std::env::consts::ARCH.to_owned(),
        addresses: address(server).await.unwrap_or_default(),
    }
}

fn hostname() -> String {
    let read = std::fs::read_to_string("/proc/sys/kernel/hostname")
        .or_else(|_| std::fs::read_to_string("/etc/hostname"));
    read.map(|text| text.trim().to_owned()).unwrap_or_default()
}

/// Returns the local address from which this host reaches its server. Connecting a UDP socket sends no packet.
async fn address(server: &str) -> Option<String> {
    let uri: http::Uri = server.parse().ok()?;
    let host = uri.host()?.trim_start_matches('[').trim_end_matches(']').to_owned();
    let port = uri.port_u16().unwrap_or(443);
    let found = tokio::net::lookup_host((host, port)).await.ok()?.next()?;
    let any = if found.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any).ok()?;
    socket.connect(found).ok()?;
    Some(socket.local_addr().ok()?.ip().to_string())
}

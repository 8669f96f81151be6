//! Listen addresses of processes.

use std::net::{SocketAddr, ToSocketAddrs};

use cli::exit::{Exit, Outcome, Problem};
use tokio::net::TcpListener;

/// Resolves `text`, the listen address in the setting `key`.
pub(crate) fn socket(key: &str, text: &str) -> Outcome<SocketAddr> {
    let found = text.to_socket_addrs().ok().and_then(|mut all| all.next());
    found.ok_or_else(|| {
        Problem::usage(format_args!("{key}: {text:?} is not an address to listen on"))
            .hint("give HOST:PORT, for example 0.0.0.0:8443")
    })
}

/// Lowers a connection limit to `most`, the number of available file descriptors. Logs a warning if the limit was configured, that
/// is, it differs from `default`. `bulla doctor` always shows the limit of open files.
pub(crate) fn bound_connections(key: &str, connections_max: &mut usize, default: usize, most: usize) {
    let most = most.max(1);
    if *connections_max <= most {
        return;
    }
    if *connections_max == default {
        tracing::info!(
            key,
            most,
            "fewer concurrent connections than by default: the limit of open files is low"
        );
    } else {
        eprintln!(
            "warning: {most} concurrent connections, not the {connections_max} of {key}: the limit of open files is too \
             low\nhint: raise it (ulimit -n, LimitNOFILE)"
        );
    }
    *connections_max = most;
}

/// Returns the number of file descriptors that each of `parts` listening roles of this process may use.
pub(crate) fn descriptors_for_one_of(parts: usize) -> usize {
    (outbound::limits::descriptor_budget() / parts.max(1)).max(1)
}

/// Binds the metrics listener of `SECTION.metrics_listen`; `None` if the setting is empty.
pub(crate) fn bind_metrics_listener(section: &str, listen: &str) -> Outcome<Option<TcpListener>> {
    if listen.is_empty() {
        return Ok(None);
    }
    let address = socket(&format!("{section}.metrics_listen"), listen)?;
    let listener = inbound::listen(address).map_err(|error| {
        Problem::new(Exit::Machine, format_args!("cannot listen on {address}: {error}")).hint(format!(
            "choose another address: --metrics-listen, or {section}.metrics_listen in the configuration"
        ))
    })?;
    Ok(Some(listener))
}

/// Returns the full URL of the metrics on this listener: `http://ADDRESS/metrics`.
pub(crate) fn figures_url(listener: &TcpListener) -> Option<String> {
    listener.local_addr().ok().map(|address| format!("http://{address}/metrics"))
}

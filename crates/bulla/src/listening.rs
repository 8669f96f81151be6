//! Addresses that processes listen on.

use std::net::{SocketAddr, ToSocketAddrs};

use cli::exit::{Exit, Outcome, Problem};
use tokio::net::TcpListener;

/// Resolves the address that the setting `key` names.
pub(crate) fn socket(key: &str, text: &str) -> Outcome<SocketAddr> {
    let found = text.to_socket_addrs().ok().and_then(|mut all| all.next());
    found.ok_or_else(|| {
        Problem::usage(format_args!("{key} is {text:?}, which is no address to listen on"))
            .hint("give HOST:PORT, for example 0.0.0.0:8443")
    })
}

/// Lowers a limit of connections to `most`, the file descriptors that there may be for them. There is a warning where the limit is
/// not `default`: somebody counts on it then. `bulla doctor` shows the limit of open files in any case.
pub(crate) fn bound_connections(key: &str, connections_max: &mut usize, default: usize, most: usize) {
    let most = most.max(1);
    if *connections_max <= most {
        return;
    }
    if *connections_max == default {
        tracing::info!(
            key,
            most,
            "fewer connections at once than by default: the limit of open files is low"
        );
    } else {
        eprintln!(
            "warning: {most} connections at once, not the {connections_max} of {key}: the limit of open files is too low\n\
             hint: raise it (ulimit -n, LimitNOFILE)"
        );
    }
    *connections_max = most;
}

/// File descriptors of this process for each of `parts` that listen.
pub(crate) fn descriptors_for_one_of(parts: usize) -> usize {
    (outbound::limits::descriptor_budget() / parts.max(1)).max(1)
}

/// Where `SECTION.metrics_listen` has figures served; `None` for nowhere.
pub(crate) fn figures_listener(section: &str, listen: &str) -> Outcome<Option<TcpListener>> {
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

/// The address of figures, as people open it.
pub(crate) fn figures_url(listener: &TcpListener) -> Option<String> {
    listener.local_addr().ok().map(|address| format!("http://{address}/metrics"))
}

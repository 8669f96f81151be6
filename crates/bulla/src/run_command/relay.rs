//! Connections from the namespace to a proxy that runs elsewhere, byte by byte.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use cli::exit::{Exit, Outcome, Problem};
use inbound::{Acceptor, ServiceTasks, Slots, WhenFull};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};

/// Connections at a time: as many as a proxy allows one address by default. Others wait.
const CONNECTIONS_MAX: usize = 1_024;

/// Relays until it is stopped.
pub(super) struct Relay(ServiceTasks);

impl Relay {
    pub(super) async fn stop(self) {
        // The command has ended, and its connections with it.
        let _drained = self.0.close(Duration::ZERO).await;
    }
}

/// Relays connections that come in at a bound socket to HOST:PORT. Must be called in a runtime.
pub(super) fn start(socket: OwnedFd, to: String) -> Outcome<Relay> {
    let listen = inbound::reserve_socket(socket).and_then(inbound::listen);
    listen.map(|listener| serve(listener, to)).map_err(|error| failed(&error))
}

/// Relays connections of this machine to HOST:PORT.
pub(super) async fn start_here(to: String) -> Outcome<(SocketAddr, Relay)> {
    let listener =
        TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).await.map_err(|error| failed(&error))?;
    let address = listener.local_addr().map_err(|error| failed(&error))?;
    Ok((address, serve(listener, to)))
}

fn serve(listener: TcpListener, to: String) -> Relay {
    let tasks = ServiceTasks::default();
    let handler = move |stream: TcpStream, _: SocketAddr| {
        let to = to.clone();
        async move {
            let _live = telemetry::tasks::guard("run-relay");
            pass_on(stream, &to).await;
        }
    };
    Acceptor::new(&tasks, Slots::new(CONNECTIONS_MAX), WhenFull::Wait).start(listener, Arc::new(handler));
    Relay(tasks)
}

async fn pass_on(mut from: TcpStream, to: &str) {
    let mut proxy = match TcpStream::connect(to).await {
        Ok(proxy) => proxy,
        Err(error) => {
            eprintln!("bulla: the proxy at {to} does not answer: {error}");
            return;
        }
    };
    let _ = (from.set_nodelay(true), proxy.set_nodelay(true));
    if let Err(error) = copy_bidirectional(&mut from, &mut proxy).await {
        tracing::debug!(%error, "a connection to the proxy ended");
    }
}

fn failed(error: &std::io::Error) -> Problem {
    Problem::new(Exit::Machine, format_args!("the command's way to the proxy cannot be opened: {error}"))
}

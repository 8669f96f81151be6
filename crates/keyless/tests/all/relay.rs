//! A network path between two nodes that can delay, drop or cut all traffic.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// State of the network path.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum LinkState {
    Open,
    /// All traffic is dropped silently.
    Hole,
    /// Connections are closed, and new ones are refused.
    Cut,
}

/// Maximum chunks in transit.
const ON_THE_WAY: usize = 4_096;

pub(crate) struct Relay {
    pub(crate) address: SocketAddr,
    state: watch::Sender<LinkState>,
    _tasks: JoinSet<()>,
}

impl Relay {
    /// Starts a relay to `target`. `delay` is the one-way delay.
    pub(crate) async fn new(target: SocketAddr, delay: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (state, receiver) = watch::channel(LinkState::Open);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let Ok((stream, _)) = listener.accept().await else { continue };
                if *receiver.borrow() != LinkState::Cut {
                    connections.spawn(connect(stream, target, delay, receiver.clone()));
                }
            }
        });
        Self { address, state, _tasks: tasks }
    }

    pub(crate) fn set(&self, state: LinkState) {
        self.state.send_replace(state);
    }
}

async fn connect(near: TcpStream, target: SocketAddr, delay: Duration, state: watch::Receiver<LinkState>) {
    let Ok(far) = TcpStream::connect(target).await else { return };
    near.set_nodelay(true).unwrap();
    far.set_nodelay(true).unwrap();
    let ((near_out, near_in), (far_out, far_in)) = (near.into_split(), far.into_split());
    let mut cut = state.clone();
    tokio::select! {
        () = carry(near_out, far_in, delay, state.clone()) => {}
        () = carry(far_out, near_in, delay, state) => {}
        _ = cut.wait_for(|state| *state == LinkState::Cut) => {}
    }
}

/// Forwards all traffic with this delay.
pub(crate) async fn carry(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    delay: Duration,
    state: watch::Receiver<LinkState>,
) {
    let (send, mut chunks) = mpsc::channel::<(Instant, Vec<u8>)>(ON_THE_WAY);
    let read = async {
        let mut buffer = vec![0; 64 << 10];
        loop {
            match from.read(&mut buffer).await {
                Ok(0) | Err(_) => return,
                Ok(_) if *state.borrow() == LinkState::Hole => {}
                Ok(count) => {
                    if send.send((Instant::now() + delay, buffer[..count].to_vec())).await.is_err() {
                        return;
                    }
                }
            }
        }
    };
    let write = async {
        while let Some((at, chunk)) = chunks.recv().await {
            tokio::time::sleep_until(at).await;
            if *state.borrow() == LinkState::Open && to.write_all(&chunk).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = read => {}
        () = write => {}
    }
}

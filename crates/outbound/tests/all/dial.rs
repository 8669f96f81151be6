//! Tests of connections and of connection errors.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use outbound::dial::{self, Attempt, DialError};
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;

/// Long enough for any connection; reached only by a hang.
const TIMEOUT: Duration = Duration::from_secs(30);

fn loopback(last: u8) -> IpAddr {
    Ipv4Addr::new(127, 0, 9, last).into()
}

async fn listen(address: IpAddr, port: u16) -> TcpListener {
    TcpListener::bind((address, port)).await.expect("a listener on loopback")
}

async fn closed_port(address: IpAddr) -> u16 {
    listen(address, 0).await.local_addr().unwrap().port()
}

#[tokio::test]
async fn connection_is_opened_with_nodelay() {
    let listener = listen(loopback(1), 0).await;
    let stream = dial::connect(listener.local_addr().unwrap(), TIMEOUT).await.unwrap();
    assert!(stream.nodelay().unwrap());
}

#[tokio::test]
async fn closed_port_is_reported_as_refused() {
    let address = SocketAddr::new(loopback(2), closed_port(loopback(2)).await);
    assert_eq!(dial::connect(address, TIMEOUT).await.unwrap_err(), DialError::Refused);
}

#[tokio::test]
async fn unanswered_connection_attempt_times_out() {
    // A listen queue of one entry that is full: the kernel drops further SYNs, which looks like a black hole.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::new(loopback(3), 0)).unwrap();
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    let mut streams = Vec::new();
    let error = loop {
        match dial::connect(address, Duration::from_millis(150)).await {
            Ok(stream) if streams.len() < 64 => streams.push(stream),
            Ok(_) => panic!("the queue is never full"),
            Err(error) => break error,
        }
    };
    assert_eq!(error, DialError::TimedOut);
}

#[tokio::test]
async fn next_address_is_tried_after_a_refused_one() {
    let listener = listen(loopback(5), 0).await;
    let port = listener.local_addr().unwrap().port();
    let connected = dial::race(&[loopback(4), loopback(5)], port, TIMEOUT).await.unwrap();
    assert_eq!(connected.address, loopback(5));
    let refused = Attempt { address: loopback(4), error: DialError::Refused };
    assert_eq!(connected.failed, [refused]);
}

#[tokio::test]
async fn race_reports_one_error_per_address_and_the_preferred_one_overall() {
    let port = closed_port(loopback(6)).await;
    let addresses = [loopback(6), loopback(7)];
    let failed = dial::race(&addresses, port, TIMEOUT).await.unwrap_err();
    assert_eq!(failed.len(), 2);
    let (address, error) = dial::happy_eyeballs(&addresses, port, TIMEOUT).await.unwrap_err();
    assert_eq!((address, error), (loopback(6), DialError::Refused));
    let nowhere = dial::happy_eyeballs(&[], port, TIMEOUT).await.unwrap_err();
    assert_eq!(nowhere.1, DialError::NoAddress);
}

#[tokio::test]
async fn fast_close_resets_the_connection_and_drop_does_not() {
    let listener = listen(loopback(8), 0).await;
    for fast in [true, false] {
        let stream = dial::connect(listener.local_addr().unwrap(), TIMEOUT).await.unwrap();
        let (mut peer, _) = listener.accept().await.unwrap();
        if fast {
            dial::close_with_reset(stream);
        } else {
            drop(stream);
        }
        let read = peer.read(&mut [0; 8]).await;
        assert_eq!(read.is_err(), fast, "{read:?}");
    }
}

#[test]
fn system_errors_are_classified() {
    use rustix::io::Errno;
    let table = [
        (Errno::CONNREFUSED, DialError::Refused),
        (Errno::CONNRESET, DialError::Reset),
        (Errno::HOSTUNREACH, DialError::HostUnreachable),
        (Errno::NETUNREACH, DialError::NetworkUnreachable),
        (Errno::TIMEDOUT, DialError::TimedOut),
        (Errno::MFILE, DialError::NoDescriptors),
        (Errno::NFILE, DialError::NoDescriptors),
        (Errno::NOBUFS, DialError::NoDescriptors),
        (Errno::ADDRNOTAVAIL, DialError::NoPorts),
        (Errno::PERM, DialError::Denied),
        (Errno::INVAL, DialError::Other(22)),
    ];
    for (errno, expected) in table {
        let error = std::io::Error::from_raw_os_error(errno.raw_os_error());
        assert_eq!(DialError::from(&error), expected);
    }
}

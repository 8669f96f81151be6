//! Addresses that are bound before the process drops its privileges.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
#[cfg(unix)]
use std::os::fd::OwnedFd;

use parking_lot::Mutex;
use tokio::net::TcpSocket;

/// The reserved socket of each address, or the error, which [`crate::listen`] returns.
static RESERVED: Mutex<Option<HashMap<SocketAddr, io::Result<TcpSocket>>>> = Mutex::new(None);

/// Binds `address` now, for a later [`crate::listen`]. Ports below 1,024 need a capability: the process reserves them, drops the
/// capability, and then starts threads. Needs no runtime.
pub fn reserve(address: SocketAddr) {
    RESERVED.lock().get_or_insert_default().insert(address, bound(address));
}

/// Stores a socket that another process has bound, perhaps in another network namespace, for the next [`crate::listen`] on its
/// address. Must be called on a runtime.
///
/// # Errors
/// The socket has no address.
#[cfg(unix)]
pub fn reserve_socket(socket: OwnedFd) -> io::Result<SocketAddr> {
    let socket = TcpSocket::from_std_stream(std::net::TcpStream::from(socket));
    let address = socket.local_addr()?;
    RESERVED.lock().get_or_insert_default().insert(address, Ok(socket));
    Ok(address)
}

/// Returns the socket that was reserved for `address`, or binds a new one.
pub(crate) fn socket(address: SocketAddr) -> io::Result<TcpSocket> {
    let reserved = RESERVED.lock().as_mut().and_then(|all| all.remove(&address));
    reserved.unwrap_or_else(|| bound(address))
}

fn bound(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    #[cfg(unix)]
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn reserved_address_is_used_once_by_listen() {
        // A loopback address that no other test uses.
        let free = bound("127.9.8.7:0".parse().unwrap()).unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        reserve(address);
        let listener = crate::listen(address).unwrap();
        assert_eq!(listener.local_addr().unwrap(), address);
        std::net::TcpStream::connect(address).unwrap();
        reserve(address);
        let error = crate::listen(address).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse, "as it was when it was reserved");
    }
}

//! Addresses that are bound while the process may still do so.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
#[cfg(unix)]
use std::os::fd::OwnedFd;

use parking_lot::Mutex;
use tokio::net::TcpSocket;

/// The socket of each address, or why there is none: [`crate::listen`] says so.
static RESERVED: Mutex<Option<HashMap<SocketAddr, io::Result<TcpSocket>>>> = Mutex::new(None);

/// Binds `address` now, for the next [`crate::listen`] there. A process needs a capability to bind a port below 1,024: it reserves its ports,
/// then drops the capability, then starts threads. Needs no runtime.
pub fn reserve(address: SocketAddr) {
    RESERVED.lock().get_or_insert_default().insert(address, bound(address));
}

/// Keeps a socket that another process has bound, perhaps in another network namespace, for the next [`crate::listen`] on its address. Must be
/// called in a runtime.
///
/// # Errors
/// When it has no address.
#[cfg(unix)]
pub fn reserve_socket(socket: OwnedFd) -> io::Result<SocketAddr> {
    let socket = TcpSocket::from_std_stream(std::net::TcpStream::from(socket));
    let address = socket.local_addr()?;
    RESERVED.lock().get_or_insert_default().insert(address, Ok(socket));
    Ok(address)
}

/// The socket that was reserved for `address`, else one that is bound now.
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
    async fn a_reserved_address_is_listened_at_once() {
        // Of loopback, but no other test's.
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

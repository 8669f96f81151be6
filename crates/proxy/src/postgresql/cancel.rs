//! Keys by which clients cancel queries. The proxy gives each session a new key, and does not show the server's key to the client.
//! A client then cannot cancel queries of other sessions.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use aws_lc_rs::rand;
use parking_lot::Mutex;

/// The key of a session: number of the server's process, and a secret.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct CancelKey {
    /// Number of the process that serves the session.
    pub process: i32,
    /// Secret that authorizes a client to cancel queries of the session.
    pub secret: i32,
}

impl CancelKey {
    /// Parses the process ID and secret of a BackendKeyData or CancelRequest message. `None` if `body` is not 8 bytes long.
    #[must_use]
    pub fn parse(body: &[u8]) -> Option<Self> {
        let (process, secret) = body.split_first_chunk::<4>()?;
        let secret = secret.try_into().ok()?;
        Some(Self { process: i32::from_be_bytes(*process), secret: i32::from_be_bytes(secret) })
    }

    /// Returns the body of a message with the key.
    #[must_use]
    pub fn bytes(&self) -> [u8; 8] {
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&self.process.to_be_bytes());
        bytes[4..].copy_from_slice(&self.secret.to_be_bytes());
        bytes
    }
}

/// Data with which the proxy cancels the query of a session at its server.
#[derive(Clone, Copy, Debug)]
pub(super) struct CancelTarget {
    /// The server's key of the session.
    pub(super) key: CancelKey,
    /// Address of the server, if it was dialled directly. A host may have several servers.
    pub(super) address: Option<IpAddr>,
}

/// The keys of all sessions of a listener.
#[derive(Clone, Debug, Default)]
pub(super) struct CancelKeys(Arc<Mutex<HashMap<CancelKey, CancelTarget>>>);

/// The key of an open session. Dropping the value deletes the key.
pub(super) struct IssuedKey {
    keys: CancelKeys,
    pub(super) key: CancelKey,
}

impl CancelKeys {
    /// Creates a key for a session; `None` if the system returns no random bytes.
    pub(super) fn issue(&self, target: CancelTarget) -> Option<IssuedKey> {
        let mut random = [0; 8];
        loop {
            rand::fill(&mut random).ok()?;
            // Clients display the process number as a positive number, so the sign bit is cleared.
            random[0] &= 0x7f;
            let key = CancelKey::parse(&random)?;
            let mut keys = self.0.lock();
            if let std::collections::hash_map::Entry::Vacant(free) = keys.entry(key) {
                free.insert(target);
                return Some(IssuedKey { keys: self.clone(), key });
            }
        }
    }

    /// Returns the data for cancelling the query of the session with this key; `None` if the key is unknown.
    pub(super) fn find(&self, key: &CancelKey) -> Option<CancelTarget> {
        self.0.lock().get(key).copied()
    }
}

impl Drop for IssuedKey {
    fn drop(&mut self) {
        self.keys.0.lock().remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_is_known_while_its_session_is_open() {
        let keys = CancelKeys::default();
        let of_server = CancelKey { process: 7, secret: 8 };
        let target = CancelTarget { key: of_server, address: None };
        let (one, other) = (keys.issue(target).unwrap(), keys.issue(target).unwrap());
        assert!(one.key != other.key && one.key != of_server && one.key.process >= 0);
        assert_eq!(keys.find(&one.key).unwrap().key, of_server);
        assert!(keys.find(&of_server).is_none(), "the server's key is not accepted");
        let key = one.key;
        drop(one);
        assert!(keys.find(&key).is_none() && keys.find(&other.key).is_some());
    }
}

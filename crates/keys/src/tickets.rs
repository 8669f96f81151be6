//! Keys for values that are sealed for hours only, such as session tickets. This process generates the keys, rotates them
//! automatically, and never stores them.

use std::fmt;
use std::time::{Duration, Instant};

use aws_lc_rs::aead::{AES_256_GCM, Aad, Nonce, RandomizedNonceKey};
use parking_lot::RwLock;

use crate::random::random;

/// Bytes of the key's name in a sealed value.
const ID: usize = 8;
/// Bytes of a nonce. Random nonces are safe for 2³² seals under a key (NIST SP 800-38D section 8.3).
const NONCE: usize = 12;
/// Bytes of the tag.
const TAG: usize = 16;
/// Bytes by which a sealed value is longer than its plaintext.
pub const OVERHEAD: usize = ID + NONCE + TAG;
/// Maximum number of seals under one key, far below the number at which random nonces may repeat. The next seal generates a new
/// key, even if the old one has not expired.
const SEALS_MAX: u32 = 1 << 30;

/// Reason why a value cannot be sealed or opened.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum TicketError {
    /// The key that sealed the value was retired, or belongs to another process. The client must start again without the value, for
    /// example with a full TLS handshake.
    #[error("the value was sealed with a key that no longer exists")]
    Retired,
    /// The value was changed, or sealed under another key.
    #[error("the value was not sealed by this service, or was changed after it was sealed")]
    Forged,
    /// The cryptography library failed.
    #[error("the cryptographic library failed to seal or open the value")]
    Library,
}

/// Current and previous key for values that are valid for hours, such as session tickets.
pub struct TicketKeys {
    life: Duration,
    generations: RwLock<Vec<Generation>>,
}

struct Generation {
    id: [u8; ID],
    key: RandomizedNonceKey,
    made: Instant,
    seals: std::sync::atomic::AtomicU32,
}

impl Generation {
    fn new(now: Instant) -> Option<Self> {
        let key = RandomizedNonceKey::new(&AES_256_GCM, &*random::<32>()).ok()?;
        Some(Self { id: *random::<ID>(), key, made: now, seals: 0.into() })
    }

    fn seals(&self, now: Instant, life: Duration) -> bool {
        let seals = self.seals.load(std::sync::atomic::Ordering::Relaxed);
        now.saturating_duration_since(self.made) < life && seals < SEALS_MAX
    }
}

impl TicketKeys {
    /// Creates the keys. Each key seals for `life`, and opens for twice as long.
    #[must_use]
    pub fn new(life: Duration) -> Self {
        Self { life, generations: RwLock::default() }
    }

    /// Seals a value with AES-256-GCM under the current key. [`Self::open`] needs the same `owner`.
    ///
    /// # Errors
    /// [`TicketError::Library`]
    pub fn seal(&self, now: Instant, owner: &str, clear: &[u8]) -> Result<Vec<u8>, TicketError> {
        if let Some(sealed) = self.seal_with_newest(now, owner, clear) {
            return sealed;
        }
        {
            let mut generations = self.generations.write();
            // Another thread may have generated the key since the check.
            if !generations.first().is_some_and(|newest| newest.seals(now, self.life)) {
                generations.insert(0, Generation::new(now).ok_or(TicketError::Library)?);
                generations.retain(|key| now.saturating_duration_since(key.made) < self.life * 2);
            }
        }
        self.seal_with_newest(now, owner, clear).unwrap_or(Err(TicketError::Library))
    }

    /// Seals with the newest key; `None` if that key must not seal any more.
    fn seal_with_newest(
        &self,
        now: Instant,
        owner: &str,
        clear: &[u8],
    ) -> Option<Result<Vec<u8>, TicketError>> {
        let generations = self.generations.read();
        let newest = generations.first().filter(|newest| newest.seals(now, self.life))?;
        newest.seals.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let mut sealed = Vec::with_capacity(clear.len() + OVERHEAD);
        sealed.extend_from_slice(&newest.id);
        sealed.extend_from_slice(&[0; NONCE]);
        sealed.extend_from_slice(clear);
        let made = newest.key.seal_in_place_separate_tag(bound(&newest.id, owner), &mut sealed[ID + NONCE..]);
        let Ok((nonce, tag)) = made else { return Some(Err(TicketError::Library)) };
        sealed[ID..ID + NONCE].copy_from_slice(nonce.as_ref());
        sealed.extend_from_slice(tag.as_ref());
        Some(Ok(sealed))
    }

    /// Opens a value that was sealed for `owner`.
    ///
    /// # Errors
    /// [`TicketError`]
    pub fn open(&self, now: Instant, owner: &str, sealed: &[u8]) -> Result<Vec<u8>, TicketError> {
        if sealed.len() < OVERHEAD {
            return Err(TicketError::Forged);
        }
        let (head, body) = sealed.split_at(ID + NONCE);
        let (id, nonce) = head.split_at(ID);
        let generations = self.generations.read();
        let live = |key: &&Generation| now.saturating_duration_since(key.made) < self.life * 2;
        let key = generations.iter().filter(live).find(|key| key.id == id).ok_or(TicketError::Retired)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| TicketError::Forged)?;
        let mut clear = body.to_vec();
        let opened = key.key.open_in_place(nonce, bound(&key.id, owner), &mut clear);
        let length = opened.map_err(|_| TicketError::Forged)?.len();
        clear.truncate(length);
        Ok(clear)
    }
}

/// Returns the additional authenticated data of a sealed value.
fn bound(id: &[u8; ID], owner: &str) -> Aad<Vec<u8>> {
    Aad::from([id, owner.as_bytes()].concat())
}

impl fmt::Debug for TicketKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TicketKeys").field("life", &self.life).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3_600);

    #[test]
    fn ticket_opens_for_twice_the_lifetime_of_its_key() {
        let (keys, began) = (TicketKeys::new(HOUR), Instant::now());
        let first = keys.seal(began, "a", b"session").unwrap();
        assert_eq!(keys.open(began, "a", &first).unwrap(), b"session");
        let second = keys.seal(began + HOUR, "a", b"session").unwrap();
        assert_ne!(first[..ID], second[..ID], "a new key");
        let just_before = began + HOUR * 2 - Duration::from_millis(1);
        assert_eq!(keys.open(just_before, "a", &first).unwrap(), b"session");
        assert_eq!(keys.open(began + HOUR * 2, "a", &first), Err(TicketError::Retired));
        assert_eq!(keys.open(began + HOUR * 2, "a", &second).unwrap(), b"session");
        assert_eq!(
            TicketKeys::new(HOUR).open(began, "a", &second),
            Err(TicketError::Retired),
            "another process"
        );
    }

    #[test]
    fn modified_ticket_or_ticket_of_another_tenant_is_rejected() {
        let (keys, now) = (TicketKeys::new(HOUR), Instant::now());
        let sealed = keys.seal(now, "a", b"session").unwrap();
        assert_eq!(sealed.len(), 7 + OVERHEAD);
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            let wanted = if at < ID { TicketError::Retired } else { TicketError::Forged };
            assert_eq!(keys.open(now, "a", &changed), Err(wanted), "octet {at}");
            assert!(keys.open(now, "a", &sealed[..at]).is_err(), "{at} octets");
        }
        assert_eq!(keys.open(now, "a", &keys.seal(now, "a", b"").unwrap()).unwrap(), b"");
        assert_eq!(keys.open(now, "b", &sealed), Err(TicketError::Forged), "another's");
    }
}

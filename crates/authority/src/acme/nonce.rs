//! Anti-replay nonces (RFC 8555 section 6.5) without database rows.
//!
//! A nonce is a counter and a MAC of the counter under a key generated at startup. A bitmap of the newest [`WINDOW`] counters marks
//! used nonces. A nonce is valid once, only on the node that issued it and only until that node restarts. Otherwise the response is
//! `badNonce` with a fresh nonce, with which every client repeats its request.

use aws_lc_rs::hmac;
use aws_lc_rs::rand::{SecureRandom as _, SystemRandom};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use parking_lot::Mutex;

/// Number of nonces in the bitmap, which uses 512 KiB. At 1,000 orders per second, a nonce stays valid for about seven minutes.
pub(crate) const WINDOW: u64 = 1 << 22;
const WORDS: usize = (WINDOW / 64) as usize;
const COUNTER_BYTES: usize = 8;
const TAG_BYTES: usize = 16;
/// Length of a nonce in characters.
const TEXT_CHARS: usize = (COUNTER_BYTES + TAG_BYTES) * 4 / 3;

pub(crate) struct Nonces {
    key: hmac::Key,
    window: Mutex<Window>,
}

/// Bitmap of the counters `next - WINDOW .. next`; a bit is set when the nonce is used. The lock is held only briefly.
struct Window {
    next: u64,
    spent: Box<[u64]>,
}

impl Nonces {
    /// Creates a bitmap without issued nonces.
    ///
    /// # Panics
    /// Panics if the operating system provides no random bytes.
    pub(crate) fn new() -> Self {
        let mut key = [0; 32];
        if SystemRandom::new().fill(&mut key).is_err() {
            panic!("the operating system returned no random bytes");
        }
        Self {
            key: hmac::Key::new(hmac::HMAC_SHA256, &key),
            window: Mutex::new(Window { next: 0, spent: vec![0; WORDS].into() }),
        }
    }

    pub(crate) fn issue(&self) -> String {
        let counter = {
            let mut window = self.window.lock();
            let counter = window.next;
            window.next += 1;
            let word = (counter / 64) as usize % WORDS;
            if counter.is_multiple_of(64) {
                window.spent[word] = 0;
            }
            counter
        };
        let mut bytes = [0; COUNTER_BYTES + TAG_BYTES];
        bytes[..COUNTER_BYTES].copy_from_slice(&counter.to_be_bytes());
        bytes[COUNTER_BYTES..].copy_from_slice(&self.tag(counter));
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// Marks `nonce` as used. Returns whether this node issued the nonce and it was still unused.
    pub(crate) fn spend(&self, nonce: &str) -> bool {
        let mut bytes = [0; COUNTER_BYTES + TAG_BYTES];
        if nonce.len() != TEXT_CHARS || URL_SAFE_NO_PAD.decode_slice(nonce, &mut bytes).is_err() {
            return false;
        }
        let (counter, tag) = bytes.split_at(COUNTER_BYTES);
        let mut number = [0; COUNTER_BYTES];
        number.copy_from_slice(counter);
        let counter = u64::from_be_bytes(number);
        if aws_lc_rs::constant_time::verify_slices_are_equal(tag, &self.tag(counter)).is_err() {
            return false;
        }
        let mut window = self.window.lock();
        // The oldest counters share a word of the bitmap with the newest ones, so their bits may already be cleared.
        if counter >= window.next || window.next - counter > WINDOW - 64 {
            return false;
        }
        let (word, bit) = ((counter / 64) as usize % WORDS, 1 << (counter % 64));
        let fresh = window.spent[word] & bit == 0;
        window.spent[word] |= bit;
        fresh
    }

    fn tag(&self, counter: u64) -> [u8; TAG_BYTES] {
        let mut tag = [0; TAG_BYTES];
        tag.copy_from_slice(&hmac::sign(&self.key, &counter.to_be_bytes()).as_ref()[..TAG_BYTES]);
        tag
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonce_is_valid_once_and_only_on_its_server() {
        let (server, other_server) = (Nonces::new(), Nonces::new());
        let (first, second) = (server.issue(), server.issue());
        assert_ne!(first, second);
        assert!(server.spend(&second));
        assert!(!server.spend(&second));
        assert!(!other_server.spend(&first));
        assert!(server.spend(&first));
        let _ = other_server.issue();
        assert!(!other_server.spend(&first));
    }

    #[test]
    fn forged_nonces_are_rejected() {
        let nonces = Nonces::new();
        let nonce = nonces.issue();
        let mut flipped = URL_SAFE_NO_PAD.decode(&nonce).unwrap();
        flipped[7] ^= 1;
        for bad in ["", "AAAA", &nonce[1..], &format!("{nonce}A"), &URL_SAFE_NO_PAD.encode(&flipped)] {
            assert!(!nonces.spend(bad), "{bad}");
        }
        assert!(nonces.spend(&nonce));
    }

    #[test]
    fn nonces_outside_the_window_are_rejected() {
        let nonces = Nonces::new();
        let old = nonces.issue();
        for _ in 0..WINDOW - 66 {
            nonces.window.lock().next += 1;
        }
        let recent = nonces.issue();
        assert!(nonces.spend(&old));
        let _ = nonces.issue();
        assert!(!nonces.spend(&old));
        assert!(nonces.spend(&recent));
        // After the bitmap wraps around, the same bit belongs to another counter.
        let expired = nonces.issue();
        for _ in 0..WINDOW {
            let _ = nonces.issue();
        }
        assert!(!nonces.spend(&expired));
        let newest = nonces.issue();
        assert!(nonces.spend(&newest) && !nonces.spend(&newest));
    }
}

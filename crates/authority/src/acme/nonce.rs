//! Anti-replay nonces (RFC 8555 section 6.5) without a row each.
//!
//! A nonce is a counter and a MAC of it under a key drawn at start. A bitmap of the newest [`WINDOW`] counters says
//! which are spent. So a nonce is good once, on the node and in the run that gave it: after a restart, or sent to
//! another node, it answers `badNonce` with a fresh one, which every client takes and repeats with.

use aws_lc_rs::hmac;
use aws_lc_rs::rand::{SecureRandom as _, SystemRandom};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use parking_lot::Mutex;

/// Nonces remembered: 512 KiB of bits, the nonces of some seven minutes at a thousand orders a second.
pub(crate) const WINDOW: u64 = 1 << 22;
const WORDS: usize = (WINDOW / 64) as usize;
const COUNTER: usize = 8;
const TAG: usize = 16;
/// Characters of a nonce.
const TEXT: usize = (COUNTER + TAG) * 4 / 3;

pub(crate) struct Nonces {
    key: hmac::Key,
    window: Mutex<Window>,
}

/// Bits of the counters `next - WINDOW .. next`, set when spent. Held locked for a few operations on words.
struct Window {
    next: u64,
    spent: Box<[u64]>,
}

impl Nonces {
    /// None given out yet, none good.
    ///
    /// # Panics
    /// When the operating system gives no random bytes.
    pub(crate) fn new() -> Self {
        let mut key = [0; 32];
        if SystemRandom::new().fill(&mut key).is_err() {
            panic!("the operating system gives no random octets");
        }
        Self {
            key: hmac::Key::new(hmac::HMAC_SHA256, &key),
            window: Mutex::new(Window { next: 0, spent: vec![0; WORDS].into() }),
        }
    }

    /// A fresh one.
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
        let mut octets = [0; COUNTER + TAG];
        octets[..COUNTER].copy_from_slice(&counter.to_be_bytes());
        octets[COUNTER..].copy_from_slice(&self.tag(counter));
        URL_SAFE_NO_PAD.encode(octets)
    }

    /// Whether `nonce` is one of ours, fresh and unspent; spends it.
    pub(crate) fn spend(&self, nonce: &str) -> bool {
        let mut octets = [0; COUNTER + TAG];
        if nonce.len() != TEXT || URL_SAFE_NO_PAD.decode_slice(nonce, &mut octets).is_err() {
            return false;
        }
        let (counter, tag) = octets.split_at(COUNTER);
        let mut number = [0; COUNTER];
        number.copy_from_slice(counter);
        let counter = u64::from_be_bytes(number);
        if aws_lc_rs::constant_time::verify_slices_are_equal(tag, &self.tag(counter)).is_err() {
            return false;
        }
        let mut window = self.window.lock();
        // The word of the oldest counters may have been cleared for the newest already.
        if counter >= window.next || window.next - counter > WINDOW - 64 {
            return false;
        }
        let (word, bit) = ((counter / 64) as usize % WORDS, 1 << (counter % 64));
        let fresh = window.spent[word] & bit == 0;
        window.spent[word] |= bit;
        fresh
    }

    fn tag(&self, counter: u64) -> [u8; TAG] {
        let mut tag = [0; TAG];
        tag.copy_from_slice(&hmac::sign(&self.key, &counter.to_be_bytes()).as_ref()[..TAG]);
        tag
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nonce_is_good_once_and_here_only() {
        let (here, there) = (Nonces::new(), Nonces::new());
        let (first, second) = (here.issue(), here.issue());
        assert_ne!(first, second);
        assert!(here.spend(&second));
        assert!(!here.spend(&second));
        assert!(!there.spend(&first));
        assert!(here.spend(&first));
        let _ = there.issue();
        assert!(!there.spend(&first));
    }

    #[test]
    fn what_was_not_given_out_is_not_good() {
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
    fn the_window_moves_on() {
        let nonces = Nonces::new();
        let old = nonces.issue();
        for _ in 0..WINDOW - 66 {
            nonces.window.lock().next += 1;
        }
        let kept = nonces.issue();
        assert!(nonces.spend(&old));
        let _ = nonces.issue();
        assert!(!nonces.spend(&old));
        assert!(nonces.spend(&kept));
        // A whole turn later the same bit serves another counter.
        let again = nonces.issue();
        for _ in 0..WINDOW {
            let _ = nonces.issue();
        }
        assert!(!nonces.spend(&again));
        let newest = nonces.issue();
        assert!(nonces.spend(&newest) && !nonces.spend(&newest));
    }
}

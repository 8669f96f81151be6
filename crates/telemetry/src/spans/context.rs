//! W3C Trace Context: the `traceparent` field, and traces with the ID of a stored object.

use std::fmt;

/// Name of the header field.
pub const TRACEPARENT: &str = "traceparent";

/// Bit of the flag "sampled" in `trace-flags` (section 3.2.2.5.1).
const SAMPLED: u8 = 1;

/// Trace of a request, and the span that sent the request (W3C Trace Context, section 3.2).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TraceParent {
    trace: u128,
    parent: u64,
    flags: u8,
}

impl TraceParent {
    /// Parses `00-TRACE-PARENT-FLAGS`, or the same part of a later version. `None` if invalid, or if an identifier is all zeros.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('-');
        let version = hexadecimal(parts.next()?, 2)?;
        let trace = hexadecimal(parts.next()?, 32)?;
        let parent = u64::try_from(hexadecimal(parts.next()?, 16)?).ok()?;
        let flags = u8::try_from(hexadecimal(parts.next()?, 2)?).ok()?;
        let is_whole = match version {
            0 => parts.next().is_none(),
            0xff => false,
            _ => true,
        };
        (is_whole && trace != 0 && parent != 0).then_some(Self { trace, parent, flags })
    }

    /// Returns a span of the same trace, for outgoing requests.
    #[must_use]
    pub fn child(&self, span: u64) -> Self {
        Self { parent: span.max(1), ..*self }
    }

    /// Creates the first span of a new trace, without the flag "sampled".
    #[must_use]
    pub fn root(trace: u128, span: u64) -> Self {
        Self { trace: trace.max(1), parent: span.max(1), flags: 0 }
    }

    /// Returns whether spans of the request are exported.
    #[must_use]
    pub const fn is_sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }

    /// Returns the same trace with the flag "sampled", so that its spans are exported.
    #[must_use]
    pub const fn sampled(self) -> Self {
        Self { flags: self.flags | SAMPLED, ..self }
    }

    /// Returns the first span of the sampled trace whose ID is the ID of a stored object. Every process derives the same span, so
    /// the trace needs no column in the database.
    #[must_use]
    pub fn of_object(id: u128) -> Self {
        Self { trace: id.max(1), parent: derive_span_id(id), flags: SAMPLED }
    }

    /// Like [`TraceParent::of_object`], for an object that is known by its hash: the ID is the first half of the hash.
    #[must_use]
    pub fn of_hash(hash: &[u8; 32]) -> Self {
        let half = hash.iter().take(16).fold(0, |id: u128, byte| id << 8 | u128::from(*byte));
        Self::of_object(half)
    }

    /// Returns the span of another object in this trace, which every process derives from the object's ID.
    #[must_use]
    pub fn object_span(&self, id: u128) -> Self {
        Self { parent: derive_span_id(id), ..*self }
    }

    /// Returns the trace ID as a number.
    #[must_use]
    pub const fn trace(&self) -> u128 {
        self.trace
    }

    /// Returns the ID of the span as a number.
    #[must_use]
    pub const fn parent(&self) -> u64 {
        self.parent
    }

    /// Returns the trace ID, 32 hexadecimal digits.
    #[must_use]
    pub fn trace_id(&self) -> String {
        format!("{:032x}", self.trace)
    }

    /// Returns the ID of the parent span, 16 hexadecimal digits.
    #[must_use]
    pub fn parent_id(&self) -> String {
        format!("{:016x}", self.parent)
    }
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-{:02x}", self.trace, self.parent, self.flags)
    }
}

/// Derives a span ID from an object's ID (the finalizer of SplitMix64 over both halves). Never 0.
fn derive_span_id(id: u128) -> u64 {
    let step = |word: u64| {
        let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    };
    step(step(id as u64).wrapping_add((id >> 64) as u64)).max(1)
}

/// Parses a fixed number of lower-case hexadecimal digits.
fn hexadecimal(text: &str, digits: usize) -> Option<u128> {
    let plain = text.len() == digits && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    if plain { u128::from_str_radix(text, 16).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GIVEN: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn traceparent_is_parsed_and_formatted() {
        let parent = TraceParent::parse(GIVEN).unwrap();
        assert_eq!(parent.to_string(), GIVEN);
        assert!(parent.is_sampled() && parent.child(7).is_sampled());
        let own = TraceParent::root(7, 9);
        assert!(!own.is_sampled() && own.sampled().to_string().ends_with("9-01"));
        assert_eq!(parent.trace_id(), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(parent.parent_id(), "00f067aa0ba902b7");
        let later = format!("cc{}-what-the-future-brings", &GIVEN[2..]);
        assert_eq!(TraceParent::parse(&later), Some(parent));
        for bad in [
            String::new(),
            GIVEN[1..].to_owned(),
            GIVEN.to_uppercase(),
            format!("{GIVEN}-x"),
            format!("ff{}", &GIVEN[2..]),
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01".to_owned(),
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01".to_owned(),
        ] {
            assert_eq!(TraceParent::parse(&bad), None, "{bad}");
        }
    }

    #[test]
    fn trace_of_an_object_has_its_id_and_one_span_for_each_other_object() {
        let id = 0x0193_7a5e_8c4f_7d21_9b3a_5c6d_7e8f_9012;
        let root = TraceParent::of_object(id);
        assert_eq!((root.trace_id(), root.is_sampled()), (format!("{id:032x}"), true));
        let (one, other) = (root.object_span(1 << 64 | 1), root.object_span(2 << 64 | 1));
        let spans = [root.parent(), one.parent(), other.parent()];
        assert!(spans[0] != spans[1] && spans[1] != spans[2] && spans[0] != spans[2], "{spans:x?}");
        assert_eq!((one.trace(), root.object_span(1 << 64 | 1)), (id, one));
        let mut hash = [7; 32];
        hash[..16].copy_from_slice(&id.to_be_bytes());
        assert_eq!(TraceParent::of_hash(&hash), root);
        assert_ne!(TraceParent::of_object(0).parent(), 0);
    }

    proptest! {
        #[test]
        fn arbitrary_traceparent_text_never_panics(text: String, digits in "[0-9a-f-]{0,60}") {
            for text in [text, digits] {
                if let Some(parent) = TraceParent::parse(&text) {
                    prop_assert_eq!(TraceParent::parse(&parent.to_string()), Some(parent));
                }
            }
        }
    }
}

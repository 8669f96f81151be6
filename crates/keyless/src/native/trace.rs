//! W3C Trace Context: the `traceparent` field.

use std::fmt;

/// Name of the header field.
pub const TRACEPARENT: &str = "traceparent";

/// Bit of the flag "sampled" in `trace-flags` (section 3.2.2.5.1).
const SAMPLED: u8 = 1;

/// Trace of a request, and the span that sent it (W3C Trace Context, section 3.2).
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

    pub(crate) const fn trace(&self) -> u128 {
        self.trace
    }

    pub(crate) const fn parent(&self) -> u64 {
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

    proptest! {
        #[test]
        fn arbitrary_traceparent_and_timeout_text_never_panics(text: String, digits in "[0-9a-f-]{0,60}") {
            for text in [text, digits] {
                if let Some(parent) = TraceParent::parse(&text) {
                    prop_assert_eq!(TraceParent::parse(&parent.to_string()), Some(parent));
                }
                let _ = super::super::grpc_timeout(&text);
            }
        }
    }
}

//! Record types of addresses.

/// A record type.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Kind {
    A,
    Aaaa,
}

/// RFC 1035 section 3.2.2 and RFC 3596 section 2.1.
impl From<Kind> for u16 {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::A => 1,
            Kind::Aaaa => 28,
        }
    }
}

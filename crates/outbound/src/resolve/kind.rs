//! Record types of address lookups: A and AAAA.

/// Record type of an address lookup: A or AAAA.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Kind {
    A,
    Aaaa,
}

/// Type codes of RFC 1035 section 3.2.2 and RFC 3596 section 2.1.
impl From<Kind> for u16 {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::A => 1,
            Kind::Aaaa => 28,
        }
    }
}

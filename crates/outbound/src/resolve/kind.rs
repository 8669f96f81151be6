//! Record types of addresses.

/// A record type.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Kind {
    A,
    Aaaa,
}

impl Kind {
    /// RFC 1035 section 3.2.2 and RFC 3596 section 2.1.
    pub(crate) fn code(self) -> u16 {
        match self {
            Self::A => 1,
            Self::Aaaa => 28,
        }
    }
}

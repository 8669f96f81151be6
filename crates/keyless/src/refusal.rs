//! Limits that refuse a request at once.

/// Why something was refused at once, although it was asked for rightly.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Refusal {
    /// The stage's queue of the key's class is full.
    Stage,
    /// As many requests to this key elsewhere are under way as may.
    Key,
    /// As many requests of the tenant to this key elsewhere are under way as may.
    TenantKey,
    /// As many requests to keys elsewhere are under way as may.
    Remote,
    /// The tenant exceeded its rate limit.
    Rate,
    /// As many requests of the tenant are under way as may.
    InFlight,
    /// As many requests of one stream are under way as may.
    Stream,
    /// As many requests of one connection are under way as may.
    Connection,
    /// As many bytes wait to be signed as may.
    Octets,
    /// Every node that may be asked has as many requests under way as may.
    Destination,
    /// As many records of signatures are not on the disk yet as may.
    Records,
}

impl Refusal {
    pub(crate) const ALL: [(Self, &'static str); 11] = [
        (Self::Stage, "stage"),
        (Self::Key, "key"),
        (Self::TenantKey, "tenant-key"),
        (Self::Remote, "elsewhere"),
        (Self::Rate, "rate"),
        (Self::InFlight, "in-flight"),
        (Self::Stream, "stream"),
        (Self::Connection, "connection"),
        (Self::Octets, "octets"),
        (Self::Destination, "destination"),
        (Self::Records, "records"),
    ];

    /// The reason, as the caller receives it.
    pub(crate) const fn reason(self) -> &'static str {
        match self {
            Self::Stage => "as many of the tenant's signatures wait as may",
            Self::Key => "too many concurrent requests to this key",
            Self::TenantKey => "as many of the tenant's requests to this key are under way as may",
            Self::Remote => "too many concurrent requests to keys on other nodes",
            Self::Rate => "the tenant's rate is reached",
            Self::InFlight => "as many of the tenant's requests are under way as may",
            Self::Stream => "too many concurrent requests of this stream",
            Self::Connection => "too many concurrent requests of this connection",
            Self::Octets => "as many octets wait to be signed as may",
            Self::Destination => "the nodes that may use this key have too much to do",
            Self::Records => "records of signatures cannot be written to the disk as fast as may",
        }
    }
}

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
            Self::Key => "as many requests to this key are under way as may",
            Self::TenantKey => "as many of the tenant's requests to this key are under way as may",
            Self::Remote => "as many requests to keys elsewhere are under way as may",
            Self::Rate => "the tenant's rate is reached",
            Self::InFlight => "as many of the tenant's requests are under way as may",
            Self::Stream => "as many requests of this stream are under way as may",
            Self::Connection => "as many requests of this connection are under way as may",
            Self::Octets => "as many octets wait to be signed as may",
            Self::Destination => "the nodes that may use this key have too much to do",
            Self::Records => "records of signatures cannot be written to the disk as fast as may",
        }
    }
}

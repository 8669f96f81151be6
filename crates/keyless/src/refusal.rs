//! Limits that reject a request immediately.

/// The limit that caused the immediate rejection of a valid request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Refusal {
    /// The queue for the key's cost class is full.
    Stage,
    /// The remote key has the maximum number of requests in progress.
    Key,
    /// The tenant has the maximum number of requests to this remote key in progress.
    TenantKey,
    /// All remote keys together have the maximum number of requests in progress.
    Remote,
    /// The tenant exceeded its rate limit.
    Rate,
    /// The tenant has the maximum number of requests in progress.
    InFlight,
    /// The stream has the maximum number of requests in progress.
    Stream,
    /// The connection has the maximum number of requests in progress.
    Connection,
    /// The messages that wait to be signed have the maximum total size in bytes.
    Bytes,
    /// Every eligible node has the maximum number of requests in progress.
    Destination,
    /// Too many signature records wait to be written to disk.
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
        (Self::Bytes, "octets"),
        (Self::Destination, "destination"),
        (Self::Records, "records"),
    ];

    /// Returns the reason, as sent to the caller.
    pub(crate) const fn reason(self) -> &'static str {
        match self {
            Self::Stage => "too many queued signatures of the tenant",
            Self::Key => "too many concurrent requests to this key",
            Self::TenantKey => "too many concurrent requests of the tenant to this key",
            Self::Remote => "too many concurrent requests to keys on other nodes",
            Self::Rate => "the tenant's rate limit is reached",
            Self::InFlight => "too many concurrent requests of the tenant",
            Self::Stream => "too many concurrent requests of this stream",
            Self::Connection => "too many concurrent requests of this connection",
            Self::Bytes => "too many bytes are queued for signing",
            Self::Destination => "the nodes that may use this key are overloaded",
            Self::Records => "signature records cannot be written to disk fast enough",
        }
    }
}

//! The team on whose behalf a certificate is requested.

/// The team on whose behalf a certificate is requested.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum Standing {
    /// A caller without a team, which may not use names and profiles of teams.
    #[default]
    Nobody,
    /// A caller of this team.
    Team(String),
    /// The server itself, or a caller with access to all objects.
    Everything,
    /// A caller that has validated control of every name with ACME challenges.
    Proven,
    /// The holder of a certificate with the same names, issued at this time or later.
    Held {
        /// Time of issue in microseconds.
        issued_at_us: i64,
    },
}

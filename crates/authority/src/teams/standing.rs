//! The principal and team of a certificate request.

/// The team of a certificate request.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum Standing {
    /// A caller without a team: names and profiles of a team are not for it.
    #[default]
    Nobody,
    /// A caller of this team.
    Team(String),
    /// The server itself, or a caller whose permission reaches everything.
    Everything,
    /// A caller that has proven control of every name by the challenges of ACME.
    Proven,
    /// The holder of a certificate with the same names, issued at this time (µs) or later.
    Held {
        /// When, µs.
        issued_at_us: i64,
    },
}

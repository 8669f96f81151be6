//! The rights of a requester to names and other objects that teams own.

/// The rights of a requester to names and other objects that teams own.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum OwnershipRights {
    /// A caller without a team. It can use a team's names only with a profile, issuer, target or path of the same team.
    #[default]
    Nobody,
    /// A caller that acts on behalf of this team.
    Team(String),
    /// The server itself, or a caller with access to all objects.
    Everything,
    /// A caller that has validated control of every name with ACME challenges.
    Proven,
    /// The holder of a certificate with the same names, issued at this time or later.
    CertificateHolder {
        /// Time of issue in microseconds.
        issued_at_us: i64,
    },
}

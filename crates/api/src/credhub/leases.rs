//! Dynamic credentials: connections to databases, roles, leases. CredHub has no such endpoints.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::lenient;

/// A connection to set: `PUT /api/v1/database-connections`. `S` is the type of secret values.
#[derive(Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ConnectionRequest<S = String> {
    /// Name of the connection, unique.
    #[serde(default, deserialize_with = "lenient::text")]
    pub name: String,
    /// Address without a password: `postgres://USER@HOST:5432/DATABASE`.
    #[serde(default, deserialize_with = "lenient::text")]
    pub url: String,
    /// Password of the user. When absent, the stored password is kept; this is allowed only if host, port, database, user and TLS
    /// settings do not change.
    #[serde(default = "Option::default", skip_serializing_if = "Option::is_none")]
    pub password: Option<S>,
    /// Verification of the server's TLS certificate: `verify-full` (the default), `verify-ca`, or `disable` (no TLS).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<String>,
    /// CA certificates that replace the trust store of the system for this server, PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub roots: Option<String>,
    /// Whether a changed host, port or database is the same database under a new address; false when absent.
    #[serde(default, deserialize_with = "lenient::flag", skip_serializing_if = "Option::is_none")]
    pub same_database: Option<bool>,
}

/// A connection without its password.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct ConnectionView {
    /// Name of the connection, unique.
    pub name: String,
    /// Address without the password.
    pub url: String,
    /// Verification of the server's TLS certificate: `verify-full`, `verify-ca`, or `disable` (no TLS).
    pub tls: String,
    /// CA certificates that replace the trust store of the system, PEM.
    pub roots: Option<String>,
    /// Time of the last change, RFC 3339.
    pub set_at: String,
    /// Actor that made the last change.
    pub set_by: String,
}

/// All connections to databases.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Connections {
    /// Connections, sorted by name, without their passwords.
    pub items: Vec<ConnectionView>,
}

/// Query parameter that names a connection or a role.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct DatabaseQuery {
    /// Name of the connection or role.
    pub name: Option<String>,
}

/// A role to set: `PUT /api/v1/database-roles`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RoleRequest {
    /// Name of the role, a path like the name of a credential.
    #[serde(default, deserialize_with = "lenient::text")]
    pub name: String,
    /// Name of the connection on which credentials of the role are created.
    #[serde(default, deserialize_with = "lenient::text")]
    pub connection: String,
    /// Templates of the SQL statements that create a credential, with `{{name}}`, `{{password_scram}}` or `{{password}}`, and
    /// `{{expiration}}`.
    #[serde(default)]
    pub creation: Vec<String>,
    /// Templates of the SQL statements that drop a credential, with `{{name}}`. If the list is empty, objects of the database user
    /// are reassigned to the connection's user, and the database user is dropped.
    #[serde(default)]
    pub revocation: Vec<String>,
    /// Default lifetime of a lease in seconds; 3,600 when absent.
    #[serde(default, deserialize_with = "lenient::number", skip_serializing_if = "Option::is_none")]
    pub default_ttl_seconds: Option<u32>,
    /// Maximum lifetime of a lease with all renewals in seconds; 86,400 when absent.
    #[serde(default, deserialize_with = "lenient::number", skip_serializing_if = "Option::is_none")]
    pub max_ttl_seconds: Option<u32>,
}

/// A role, which defines how dynamic credentials are created in a database.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct RoleView {
    /// Name of the role, a path such as `/team/db`.
    pub name: String,
    /// Name of the connection on which credentials of the role are created.
    pub connection: String,
    /// Templates of the SQL statements that create a credential. Absent for callers that may not configure databases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub creation: Option<Vec<String>>,
    /// Templates of the SQL statements that drop a credential. Absent for callers that may not configure databases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revocation: Option<Vec<String>>,
    /// Default lifetime of a lease in seconds.
    pub default_ttl_seconds: u32,
    /// Maximum lifetime of a lease with all renewals in seconds.
    pub max_ttl_seconds: u32,
    /// Time of the last change, RFC 3339.
    pub set_at: String,
    /// Actor that made the last change.
    pub set_by: String,
}

/// A credential to create: `POST /api/v1/leases`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct LeaseRequest {
    /// Name of the role, a path such as `/team/db`.
    #[serde(default, deserialize_with = "lenient::text")]
    pub name: String,
    /// Lifetime of the lease in seconds; the role's default when absent.
    #[serde(default, deserialize_with = "lenient::number", skip_serializing_if = "Option::is_none")]
    pub ttl_seconds: Option<u32>,
}

/// A renewal: `POST /api/v1/leases/{id}/renew`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RenewRequest {
    /// Lifetime of the lease from now on in seconds; the role's default when absent. Limited by the role's maximum.
    #[serde(default, deserialize_with = "lenient::number", skip_serializing_if = "Option::is_none")]
    pub ttl_seconds: Option<u32>,
}

/// Leases to revoke: `POST /api/v1/leases/revoke`, either of a path or of an actor.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RevokeLeasesRequest {
    /// Name of a role, or all roles below a path: `/team/*`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The actor whose leases are revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<String>,
}

/// The number of leases that are now being revoked. At most 1,000; repeat the request for more.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct RevokedLeases {
    /// Number of leases that are now being revoked.
    pub count: u64,
}

/// Query parameters of the list of leases.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct LeaseQuery {
    /// Name of a role, or all roles below a path. Absent: the caller's own leases.
    pub path: Option<String>,
}

/// A lease: a dynamic credential with its lifetime.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct LeaseView {
    /// UUID of the lease, used in `/api/v1/leases/{id}`.
    pub id: Uuid,
    /// Name of the role, a path such as `/team/db`.
    pub name: String,
    /// Name of the user at the database.
    pub username: String,
    /// Actor that read the credential.
    pub actor: String,
    /// State: `creating`, `active`, or `revoking`.
    pub state: String,
    /// Creation time, RFC 3339.
    pub created_at: String,
    /// Expiry, RFC 3339.
    pub expires_at: String,
    /// Maximum expiry with all renewals, RFC 3339.
    pub max_expires_at: String,
    /// Actor that revoked the lease, or the reason of the revocation.
    pub ended_by: Option<String>,
    /// Number of failed attempts to revoke the lease.
    pub failures: i64,
    /// Error of the last failed attempt at the database.
    pub error: Option<String>,
}

/// Response to the creation of a dynamic credential: its lease and its password.
#[derive(Deserialize, Serialize)]
pub struct NewLeaseView {
    /// Lease and username of the credential.
    #[serde(flatten)]
    pub lease: LeaseView,
    /// Password of the user. It is shown only in this response.
    pub password: String,
}

/// The result of revoking a lease.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct RevokedLease {
    /// Whether the database user has been dropped. If false, the server retries until the user is dropped.
    pub revoked: bool,
}

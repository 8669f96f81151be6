//! Dynamic credentials: roles that are created at a database on request, and dropped there when their lease ends.
//!
//! A lease is durable before the role is created, and deleted after the role is dropped. One node at a time revokes due leases. A
//! statement at the database may be repeated: dropping a role that does not exist succeeds.

mod connection;
mod lease;
mod limits;
mod report;
mod role;
mod scram;
mod state;
mod upkeep;

use std::time::Duration;

pub use connection::{ConnectionSettings, DatabaseConnection};
pub use lease::{LeaseRequest, NewLease};
pub use limits::LEASE_TTL_MAX_S;
pub use report::LeaseReport;
pub use role::RoleSettings;
pub(crate) use state::LeaseUpkeep;

/// Timeout of the statements that create a role. No such statement runs after [`CONFIRM_US`].
const CREATE_LIMIT: Duration = Duration::from_secs(40);

/// Time after the insertion of a lease at which an unconfirmed lease is revoked, µs. This time is longer than the timeout of the
/// statements that create the role.
const CONFIRM_US: i64 = 60_000_000;

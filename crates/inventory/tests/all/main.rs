//! Tests of watches, ownership and history on a database, with the endpoints and clouds of the fleet.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail by panicking, as tests do")]

mod history;
#[path = "../../../scan/tests/all/limits.rs"]
mod limits;
mod revocation_clouds;
#[path = "../../../scan/tests/all/revoking.rs"]
mod revoking;
mod tables;
mod watch;
mod watch_clouds;
mod watch_telling;

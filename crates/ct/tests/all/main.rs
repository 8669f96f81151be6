//! Tests of the monitor, the follower and the search services against simulated logs and services of the fleet.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail by panicking, as tests do")]

mod follow;
mod ledger;
mod monitor;
mod search;
mod tables;

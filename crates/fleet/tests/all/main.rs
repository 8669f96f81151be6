//! The fleet as its clients see it: by DNS, with bare sockets, and with OpenSSL.

// Test helpers fail by panicking, as tests do.
#![allow(clippy::unwrap_used, reason = "a test ends by a panic where it cannot go on")]

mod faults;
mod life;
mod name_server;
mod openssl;

use std::net::SocketAddr;

use fleet::{Fleet, Plan, Truth};

async fn one_of_each() -> Fleet {
    Fleet::start(&Plan::one_of_each()).await.expect("a fleet on loopback")
}

fn of_kind(fleet: &Fleet, kind: &str) -> Truth {
    fleet.truth().into_iter().find(|t| t.kind == kind).unwrap_or_else(|| panic!("no kind {kind}"))
}

fn address_of(truth: &Truth) -> SocketAddr {
    (truth.addresses[0], truth.port).into()
}

//! Tests of the server over real connections.

// clippy allows this only in test functions, not in the helpers that they call.
#![allow(clippy::unwrap_used, reason = "a test ends by a panic where it cannot go on")]

mod abuse;
mod acme_admin;
mod agents;
mod answers;
mod approving;
mod audit_log;
mod authorities;
mod credential_client;
mod credential_pages;
mod enrolments;
mod gates;
mod insider;
mod issuers;
mod last_manager;
mod listening;
mod logging_in;
mod managed;
mod master_key;
mod matrix;
mod mutual_tls;
mod ownership;
mod parts;
mod route_by_role;
mod scans;
mod security_keys;
mod signing_in;
mod teams;
mod tokens;
mod transparency;
mod unreadable_access;
mod vault;
mod watches;
mod world;

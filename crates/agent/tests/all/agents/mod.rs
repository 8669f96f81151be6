//! Tests of agents from enrolment to deployment, over mutual TLS on loopback.

mod journey;
mod server;
mod source;
mod targets;
mod tokens;

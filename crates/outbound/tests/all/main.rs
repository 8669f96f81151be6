//! Names and connections against servers of their own, on loopback.

mod dial;
mod dns;
mod name_server;
mod tls;

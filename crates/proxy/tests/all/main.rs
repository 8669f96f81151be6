//! The proxy and its certificate store.

#![allow(clippy::unwrap_used, reason = "tests")]

mod access;
mod certificate_store;
mod cloud_keys;
mod destinations;
mod echo;
mod echoes;
mod generated;
mod holds;
mod hooks;
mod hostile;
mod hostile_http2;
mod leaves;
mod limits;
mod minting;
mod mirror;
mod own_tls;
mod permission;
mod postgresql;
mod proxy;
mod recordings;
mod redis;
mod requests;
mod rotations;
mod second_level;
mod sharing;
mod stalls;
mod tables;
mod transparent;
mod users;
mod ways;
mod websockets;
mod world;

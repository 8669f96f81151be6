//! The binary as its users see it, run against simulated endpoints.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails there")]

mod configuration;
mod control;

mod credential_store;
mod edge;
mod endings;
mod help;
mod inventory;
mod key_service;
mod keys_of_clouds;
mod keys_seen;
mod outputs;
mod postgres;
mod proxy;
mod proxy_ask;
mod proxy_audit;
mod proxy_doors;
mod proxy_gateway;
mod proxy_holds;
mod proxy_hooks;
mod proxy_minting;
mod proxy_mirror;
mod proxy_postgresql;
mod proxy_redis;
mod proxy_rules;
mod proxy_store;
mod proxy_transparent;
mod resume;
mod run_command;
mod world;

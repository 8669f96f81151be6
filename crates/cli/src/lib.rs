//! The commands that only use a server's API, and the common parts of all commands: configuration layers, exit codes and problems,
//! output formats, the terminal.
//!
//! This crate only depends on the API over the network: it uses no database, no authority, no scanner.

pub mod candidates;
mod commands;
pub mod configuration;
pub mod connection;
pub mod control;
pub mod data;
mod execution;
pub mod exit;
pub mod format;
mod global;
pub mod help;
pub mod memory;
pub mod printer;
mod query;
pub mod repeat;
pub mod shell;
pub mod spelling;
pub mod stop;
pub mod terminal;
pub mod units;
pub mod url;
mod yaml;

pub use commands::{AccessCommand, IssuanceCommand, OperationCommand};
pub use execution::{CommandFuture, block_on, conclude, conclude_in, start_logging};
pub use global::GlobalArgs;

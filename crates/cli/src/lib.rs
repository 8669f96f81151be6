//! The commands that only speak to a server, and what every command needs: the configuration's layers, exit codes and
//! problems, formats of output, the terminal.
//!
//! This crate knows the API over the wire and nothing behind it: no database, no authority, no scanner.

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

pub mod shell;
pub mod spelling;
pub mod stop;
pub mod terminal;
pub mod units;
pub mod url;
mod yaml;

pub use commands::{AccessCommand, IssuanceCommand, OperationCommand};
pub use execution::{CommandFuture, block_on, conclude, start_logging};
pub use global::Global;

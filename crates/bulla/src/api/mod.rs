//! The commands that talk to a server: one client, one way to ask, one way to show.

mod client;
mod rows;

pub(crate) use client::{Client, ServerArgs, local};
pub(crate) use rows::{Columns, Document, Listing, Output, show_one};

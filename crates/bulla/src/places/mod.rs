//! Places where private keys may be: `bulla site` and `bulla node`.

mod command;
mod effect;

pub(crate) use command::{NodeCommand, SiteCommand};

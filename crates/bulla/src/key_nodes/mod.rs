//! Sites and nodes of the key service: `bulla site` and `bulla node`.

mod command;
mod policy_effect;

pub(crate) use command::{NodeCommand, SiteCommand};

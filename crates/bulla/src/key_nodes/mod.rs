//! Sites and nodes of the key service: `bulla key site` and `bulla key node`.

mod command;
mod policy_effect;

pub(crate) use command::{NodeCommand, SiteCommand};

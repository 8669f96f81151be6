//! `[agent]`: the agent of this host as a role of `bulla up` or `bulla serve`.

use std::path::{Path, PathBuf};

use agent::deploy::POLICY_FILE;
use cli::exit::Outcome;
use serde::{Deserialize, Serialize};

use crate::data_folder;

/// Default folder of the agent's state, in the data folder.
const FOLDER: &str = "agent";

/// `[agent]`. The keys have the same environment variables as in `bulla agent run`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct AgentSettings {
    pub(crate) state: PathBuf,
    pub(crate) policy: PathBuf,
}

impl AgentSettings {
    /// Returns the agent's folder: the configured one, else the default in the data folder.
    pub(crate) fn folder(&self) -> Outcome<PathBuf> {
        match self.state.as_os_str().is_empty() {
            true => Ok(data_folder::folder()?.join(FOLDER)),
            false => Ok(self.state.clone()),
        }
    }

    /// Returns the path of the agent's policy on this host.
    pub(crate) fn policy(&self) -> &Path {
        match self.policy.as_os_str().is_empty() {
            true => Path::new(POLICY_FILE),
            false => &self.policy,
        }
    }
}

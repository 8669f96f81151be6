//! `[agent]`: the agent of this host, where a process of `bulla up` or `bulla serve` has that role.

use std::path::{Path, PathBuf};

use agent::deploy::POLICY_FILE;
use cli::exit::Outcome;
use serde::{Deserialize, Serialize};

use crate::data_folder;

/// In the data folder.
const FOLDER: &str = "agent";

/// `[agent]`. The variables of its keys are those that `bulla agent run` reads.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct AgentSettings {
    pub(crate) state: PathBuf,
    pub(crate) policy: PathBuf,
}

impl AgentSettings {
    /// The agent's folder.
    pub(crate) fn folder(&self) -> Outcome<PathBuf> {
        match self.state.as_os_str().is_empty() {
            true => Ok(data_folder::folder()?.join(FOLDER)),
            false => Ok(self.state.clone()),
        }
    }

    /// The policy of this host.
    pub(crate) fn policy(&self) -> &Path {
        match self.policy.as_os_str().is_empty() {
            true => Path::new(POLICY_FILE),
            false => &self.policy,
        }
    }
}

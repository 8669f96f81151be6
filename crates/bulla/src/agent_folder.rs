//! The state folder of this host's agent, and the exit codes of agent errors.

use std::path::PathBuf;

use agent::client::{AgentRunError, STATE_FOLDER};
use clap::Args;
use cli::exit::{Exit, Problem, chain};

use crate::joining::not_joined;

/// Argument for the folder in which the agent stores its state.
#[derive(Args, Debug)]
pub(crate) struct FolderArgs {
    /// The agent's folder; only the owner may access it
    #[arg(long, value_name = "FOLDER", env = "BULLA_AGENT_STATE", default_value = STATE_FOLDER)]
    pub(crate) state: PathBuf,
}

/// Returns the exit code and hint for an error of the agent.
pub(crate) fn failed(error: &AgentRunError) -> Problem {
    let (exit, hint) = match error {
        AgentRunError::NotEnrolled(_) => (Exit::Usage, "create a token on the server: `bulla agent token`"),
        AgentRunError::Enrolled { .. } => (Exit::Usage, "to work as that agent: `bulla agent run`"),
        AgentRunError::Join(error) => return not_joined(error, "bulla agent token"),
    };
    Problem::new(exit, chain(error)).hint(hint)
}

//! What seals keys at rest.

use clap::Subcommand;
use reqwest::Method;
use serde_json::Value;

use super::Run;
use crate::api::{Client, Output, show_one};
use crate::exit::{Exit, Outcome, Problem};

/// The master key.
#[derive(Debug, Subcommand)]
pub(crate) enum KeyCommand {
    /// Wrap everything sealed anew, under the server's current master key; afterwards older ones can go
    Rotate {
        #[command(flatten)]
        show: Output,
    },
}

impl Run for KeyCommand {
    async fn run(&self, client: &Client) -> Outcome<()> {
        let Self::Rotate { show } = self;
        let done = client.send(Method::POST, "/api/v1/master-key/rotate", None).await?;
        show_one(&done, show)?;
        match done.get("remaining").and_then(Value::as_u64) {
            Some(0) => Ok(()),
            _ => Err(Problem::new(Exit::Findings, "some values are still under another master key").hint(
                "keep it in authority.old_master_key_files; `failed` says what does not open, then try again",
            )),
        }
    }
}

//! The audit log.

use std::io::Write;

use api::audit::{AuditQuery, AuditView, VerificationView};
use clap::Subcommand;
use reqwest::Method;

use super::Run;
use crate::columns;
use crate::connection::{Client, Columns, Listing, Output, read_as, show_one};
use crate::exit::{Exit, Outcome, Problem};

/// The audit log.
#[derive(Debug, Subcommand)]
pub enum AuditCommand {
    /// List what happened, newest first
    List {
        /// Only by this actor: token:ci, user:alice, system:renewal
        #[arg(long, value_name = "ACTOR")]
        actor: Option<String>,
        /// Only this action: certificate.revoke
        #[arg(long, value_name = "ACTION")]
        action: Option<String>,
        /// Only to this: certificate/ID
        #[arg(long, value_name = "RESOURCE")]
        resource: Option<String>,
        #[command(flatten)]
        listing: Listing,
    },
    /// Print everything as JSON lines, oldest first
    Export,
    /// Recompute every hash chain, and say whether anything was altered
    Verify {
        #[command(flatten)]
        show: Output,
    },
}

const COLUMNS: Columns = columns!(
    AuditView:
    ("At", at),
    ("Actor", actor),
    ("Action", action),
    ("Resource", resource),
    ("Details", details),
);

impl Run for AuditCommand {
    async fn run(&self, client: &Client) -> Outcome<()> {
        match self {
            Self::List { actor, action, resource, listing } => {
                let query = AuditQuery {
                    actor: actor.clone(),
                    action: action.clone(),
                    resource: resource.clone(),
                    ..AuditQuery::default()
                };
                listing.print(client, "/api/v1/audit", &query, COLUMNS).await
            }
            Self::Export => {
                let lines = client.get_bytes("/api/v1/audit/export", &()).await?;
                std::io::stdout().write_all(&lines).map_err(|error| Problem::output(&error))
            }
            Self::Verify { show } => {
                let verified = client.send(Method::POST, "/api/v1/audit/verify", None).await?;
                show_one(&verified, show)?;
                if read_as::<VerificationView>(&verified)?.good {
                    return Ok(());
                }
                Err(Problem::new(Exit::Findings, "the audit log was altered")
                    .hint("compare with an export and with heads kept elsewhere; the faults name the chains"))
            }
        }
    }
}

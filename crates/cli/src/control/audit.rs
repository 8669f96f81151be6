//! The audit log.

use std::fs::File;
use std::io::{BufReader, Write};
use std::path::{Path, PathBuf};

use api::audit::{AuditQuery, AuditView, VerificationView};
use clap::Subcommand;
use reqwest::Method;

use super::Run;
use super::audit_chain::{kept_heads, verify_export};
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
    /// Print everything as JSON lines, newest first
    Export,
    /// Recompute every hash chain, and say whether anything was altered
    ///
    /// With --export without the server: bulla audit verify --export audit.jsonl --head heads.json
    Verify {
        /// Verify this file of `bulla audit export`, without the server
        #[arg(long, value_name = "FILE")]
        export: Option<PathBuf>,
        /// Heads that were kept elsewhere and must be in the export: the output of `bulla audit verify --output json`, or a line
        /// SHARD:SEQUENCE:HASH for each
        #[arg(long, value_name = "FILE", requires = "export")]
        head: Option<PathBuf>,
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
            Self::Verify { show, .. } => {
                let verified = client.send(Method::POST, "/api/v1/audit/verify", None).await?;
                show_one(&verified, show)?;
                good_or_altered(&read_as(&verified)?)
            }
        }
    }

    fn run_offline(&self) -> Option<Outcome<()>> {
        let Self::Verify { export: Some(export), head, show } = self else { return None };
        Some(verify_file(export, head.as_deref(), show))
    }
}

fn good_or_altered(verified: &VerificationView) -> Outcome<()> {
    if verified.good {
        return Ok(());
    }
    Err(Problem::new(Exit::Findings, "the audit log was altered")
        .hint("compare with an export and with heads kept elsewhere; the faults name the chains"))
}

/// Verifies an export, and that the kept heads are in it.
fn verify_file(export: &Path, head: Option<&Path>, show: &Output) -> Outcome<()> {
    let unreadable = |path: &Path, error: String| {
        Problem::usage(format_args!("cannot read {}: {error}", path.display())).hint(
            "give a file of `bulla audit export`, and with --head one of `bulla audit verify --output json`",
        )
    };
    let heads = match head {
        None => Vec::new(),
        Some(path) => std::fs::read_to_string(path)
            .map_err(|error| error.to_string())
            .and_then(|text| kept_heads(&text))
            .map_err(|error| unreadable(path, error))?,
    };
    let file = File::open(export).map_err(|error| unreadable(export, error.to_string()))?;
    let verified = verify_export(BufReader::new(file), &heads).map_err(|error| unreadable(export, error))?;
    let shown = serde_json::to_value(&verified).map_err(|error| unreadable(export, error.to_string()))?;
    show_one(&shown, show)?;
    good_or_altered(&verified)
}

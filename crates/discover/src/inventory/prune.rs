//! `bulla inventory prune`: removes old observations, and scans without any remaining observations.

use std::time::Duration;

use clap::Args;
use cli::exit::{Outcome, Problem};
use cli::format::TableOrJson;
use cli::units::{self, count, counted, now_us};
use serde_json::json;
use store::{DAY_US, PruneMode, Pruned, Store};

use crate::database;
use crate::settings::InventorySettings;

/// Maximum time for the deletion of old observations at the end of a scan. The next scan continues.
const AFTER_SCAN: Duration = Duration::from_secs(1);

#[derive(Args, Debug)]
pub(super) struct PruneArgs {
    /// Remove observations of scans that ended longer ago than this: 90d [default: inventory.observations_days]
    #[arg(long, value_name = "DURATION", value_parser = units::duration)]
    older_than: Option<Duration>,
    /// Only count what would be removed
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    format: TableOrJson,
}

/// Runs `bulla inventory prune`.
pub(super) async fn run(store: &Store, args: &PruneArgs, settings: &InventorySettings) -> Outcome<()> {
    let is_json = args.format.is_json()?;
    let age_us = match (args.older_than, settings.days()) {
        (Some(age), _) => i64::try_from(age.as_micros()).unwrap_or(i64::MAX),
        (None, Some(days)) => i64::from(days) * DAY_US,
        (None, None) => {
            return Err(Problem::usage(
                "inventory.observations_days is 0: observations are kept without a limit",
            )
            .hint("give an age: --older-than 90d"));
        }
    };
    let now_us = now_us();
    let before_us = now_us.saturating_sub(age_us);
    let mode = if args.dry_run { PruneMode::Count } else { PruneMode::Remove };
    let done = inventory::retention::prune(store, before_us, now_us, mode, None)
        .await
        .map_err(|error| database::problem(&error))?;
    if is_json {
        return cli::exit::print(
            &json!({
                "observations": done.observations,
                "scans": done.scans,
                "scans_removed": done.scans_removed,
                "kept": done.kept,
                "ended_before": units::rfc3339_us(before_us),
                "dry_run": args.dry_run,
            })
            .to_string(),
        );
    }
    cli::exit::print(&text(&done, before_us, args.dry_run))
}

fn text(done: &Pruned, before_us: i64, dry_run: bool) -> String {
    let before = units::minute(before_us.div_euclid(1_000_000));
    if done.observations == 0 && done.scans_removed == 0 {
        return format!("nothing to prune: no scan that ended before {before} has superseded observations");
    }
    let verb = if dry_run { "would be pruned" } else { "pruned" };
    format!(
        "{verb}: {} of {} that ended before {before}, and {} without remaining observations; {} of these scans {}",
        counted(done.observations, "observation"),
        counted(done.scans, "scan"),
        counted(done.scans_removed, "scan"),
        count(done.kept),
        if dry_run { "would stay" } else { "stay" }
    )
}

/// Removes old observations at the end of a scan, for at most [`AFTER_SCAN`]. Does nothing on PostgreSQL, where the server has its own
/// setting.
pub(crate) async fn after_scan(store: &Store, settings: &InventorySettings) {
    let Some(days) = settings.days().filter(|_| !store.is_postgres()) else { return };
    let now_us = now_us();
    let before_us = now_us.saturating_sub(i64::from(days) * DAY_US);
    let pruned =
        inventory::retention::prune(store, before_us, now_us, PruneMode::Remove, Some(AFTER_SCAN)).await;
    match pruned {
        Ok(done) if done.observations > 0 || done.scans_removed > 0 => tracing::info!(
            observations = done.observations,
            scans = done.scans,
            scans_removed = done.scans_removed,
            days,
            "old observations were pruned"
        ),
        Ok(_) => {}
        Err(error) => {
            tracing::warn!(error = cli::exit::chain(&error), "old observations could not be pruned yet");
        }
    }
}

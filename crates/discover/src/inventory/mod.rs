//! `bulla inventory`: results of earlier scans.

mod export;
mod pages;
mod prune;
mod rows;
mod show;

use clap::{Args, Subcommand};
use cli::exit::{Exit, Outcome, Problem};
use cli::format::TableOrJson;
use cli::units::{self, now_us};
use store::{EndpointKey, InventoryFilter, InventoryOrder, ObservationRow, Page, Store, StoreError};
use uuid::Uuid;

use self::pages::{Pages, list, map, print_listings};
pub(crate) use self::prune::after_scan;
use self::rows::{Change, Endpoint, Entry, HistoryRow, Issuer, Scan};
use crate::database;
use crate::endpoint::host_and_port;
use crate::running_scans;
use crate::settings::ScannerSettings;

/// Arguments of `bulla inventory`.
#[derive(Args, Debug)]
pub struct InventoryArgs {
    /// Inventory database: a file or postgres://USER@HOST/DATABASE [default: in the data folder]
    #[arg(long, global = true, value_name = "URL")]
    db: Option<String>,
    #[command(subcommand)]
    command: InventoryCommand,
}

/// Queries of the inventory.
#[derive(Debug, Subcommand)]
enum InventoryCommand {
    /// List endpoints with their current state, earliest expiry first
    List(ListArgs),
    /// Show everything about a certificate (by fingerprint or its first digits) or a host
    Show {
        /// A SHA-256 fingerprint or its first digits (at least 8), or HOST, HOST:PORT, or a file
        what: String,
        #[command(flatten)]
        format: TableOrJson,
        /// When to use colour
        #[arg(long, value_enum, value_name = "WHEN", default_value = "auto")]
        color: cli::terminal::Colour,
    },
    /// Export certificates as PEM, each once: the given ones, or the chains of all endpoints
    Export {
        /// A SHA-256 fingerprint or its first digits (at least 8), or HOST, HOST:PORT, or a file
        what: Vec<String>,
    },
    /// Show changes between the last two scans of the same targets, between two given scans, or since a date
    Diff(DiffArgs),
    /// List all observations of an endpoint, newest first
    History {
        /// Endpoint: HOST or HOST:PORT, or a file
        endpoint: String,
        #[command(flatten)]
        pages: Pages,
    },
    /// List issuers of certificates in use, most used first
    Issuers(Pages),
    /// List scans, newest first
    Scans(Pages),
    /// Remove old observations; the times first seen and last seen stay
    Prune(prune::PruneArgs),
}

#[derive(Args, Debug)]
struct ListArgs {
    /// Only certificates that expire within this time, or have expired: 30d
    #[arg(long, value_name = "DURATION", value_parser = units::duration)]
    expiring_within: Option<std::time::Duration>,
    /// Only certificates whose issuer's name contains this text
    #[arg(long, value_name = "TEXT")]
    issuer: Option<String>,
    /// Only hosts that contain this text
    #[arg(long, value_name = "TEXT")]
    host: Option<String>,
    /// Only endpoints whose worst finding has at least this severity
    #[arg(long, value_name = "SEVERITY")]
    severity: Option<x509::Severity>,
    /// Only endpoints that changed since this time: 2026-11-01, or 2d for two days ago
    #[arg(long, value_name = "WHEN")]
    changed_since: Option<String>,
    /// Only endpoints that presented no certificate at the last observation
    #[arg(long)]
    silent: bool,
    /// Sort by host instead of expiry
    #[arg(long)]
    by_host: bool,
    #[command(flatten)]
    pages: Pages,
}

#[derive(Args, Debug)]
struct DiffArgs {
    /// All changes since this time: 2026-11-01, or 2d for two days ago
    #[arg(long, value_name = "WHEN", conflicts_with = "scans")]
    since: Option<String>,
    /// Two scans, the earlier one first
    #[arg(value_name = "SCAN", num_args = 2, value_parser = units::id)]
    scans: Vec<Uuid>,
    #[command(flatten)]
    pages: Pages,
}

/// Runs `bulla inventory`.
pub async fn run(args: &InventoryArgs, settings: &ScannerSettings) -> Outcome<Exit> {
    let url = database::inventory_url(args.db.as_deref(), &settings.store)?;
    if let Some(path) = url.sqlite_path().filter(|path| !path.exists()) {
        return Err(Problem::new(Exit::Inventory, format_args!("no inventory at {}", path.display()))
            .hint("scan first (`bulla scan TARGET…` stores its results), or check --db"));
    }
    let store = database::open(&url, &settings.store).await?;
    match &args.command {
        InventoryCommand::List(args) => endpoints(&store, args).await?,
        InventoryCommand::Show { what, format, color } => {
            show::run(&store, what, format.is_json()?, *color).await?;
        }
        InventoryCommand::Export { what } => export::run(&store, what).await?,
        InventoryCommand::Diff(args) => diff(&store, args).await?,
        InventoryCommand::History { endpoint, pages } => history(&store, endpoint, pages).await?,
        InventoryCommand::Issuers(pages) => {
            list(pages, async |after, limit| {
                Ok(map(store::Inventory::of(&store).issuers(after.as_ref(), limit).await?, Issuer))
            })
            .await?;
        }
        InventoryCommand::Scans(pages) => {
            running_scans::mark_killed(&store).await;
            list(pages, async |after, limit| {
                Ok(map(store::Scans::of(&store).page(after.as_ref(), limit).await?, Scan))
            })
            .await?;
        }
        InventoryCommand::Prune(args) => prune::run(&store, args, &settings.inventory).await?,
    }
    Ok(Exit::Ok)
}

async fn endpoints(store: &Store, args: &ListArgs) -> Outcome<()> {
    let now_us = now_us();
    let filter = InventoryFilter {
        expiring_before_us: args
            .expiring_within
            .map(|span| now_us.saturating_add(i64::try_from(span.as_micros()).unwrap_or(i64::MAX))),
        issuer_contains: args.issuer.clone(),
        host_contains: args.host.clone(),
        severity_at_least: args.severity,
        changed_since_us: args.changed_since.as_deref().map(|text| since(text, now_us)).transpose()?,
        answering: args.silent.then_some(false),
        order: if args.by_host { InventoryOrder::Host } else { InventoryOrder::Expiry },
        ..InventoryFilter::default()
    };
    list(&args.pages, async |after, limit| {
        Ok(map(store::Inventory::of(store).page(&filter, after.as_ref(), limit).await?, Endpoint))
    })
    .await
}

fn since(text: &str, now_us: i64) -> Outcome<i64> {
    units::parse_time(text, now_us)
        .map_err(|error| Problem::usage(error).hint("for example 2026-11-01, or 2d for two days ago"))
}

async fn diff(store: &Store, args: &DiffArgs) -> Outcome<()> {
    if let Some(text) = &args.since {
        let since_us = since(text, now_us())?;
        return list(&args.pages, async |after, limit| {
            Ok(map(store::Inventory::of(store).diff(since_us, after.as_ref(), limit).await?, Change))
        })
        .await;
    }
    let (a, b) = match (&args.scans[..], &args.pages.after) {
        ([a, b], _) => (*a, *b),
        // A scan may have finished since the first page.
        (_, Some(after)) => {
            store::Inventory::compared_scans(after).map_err(|error| pages::inventory_error(&error))?
        }
        (_, None) => last_two_scans(store).await?,
    };
    list(&args.pages, async |after, limit| {
        Ok(map(store::Inventory::of(store).diff_scans(a, b, after.as_ref(), limit).await?, Change))
    })
    .await
}

/// Returns the newest completed scan, and the completed scan of the same scope before it.
async fn last_two_scans(store: &Store) -> Outcome<(Uuid, Uuid)> {
    let found =
        store::Scans::of(store).last_comparable_scans().await.map_err(|error| database::problem(&error))?;
    found.ok_or_else(|| {
        Problem::usage("there are no two completed scans of the same targets to compare")
            .hint("scan again, name two scans, or list changes by date: --since 2d")
    })
}

async fn history(store: &Store, what: &str, pages: &Pages) -> Outcome<()> {
    let (host, port) = host_and_port(what);
    let known = endpoints_of(store, &host, port).await?;
    if known.is_empty() {
        return Err(show::unknown(what));
    }
    if let [endpoint] = &known[..] {
        return list(pages, async |after, limit| {
            let page = store::Inventory::of(store).endpoint_history(endpoint, after.as_ref(), limit).await?;
            with_pruned(store, endpoint, page).await
        })
        .await;
    }
    if pages.after.is_some() {
        let names: Vec<_> = known.iter().map(crate::endpoint::label).collect();
        return Err(Problem::usage(format_args!("{what} matches several endpoints: {}", names.join(", ")))
            .hint("--after needs one endpoint: give its port"));
    }
    print_listings(pages, known, async |endpoint, after, limit| {
        let page = store::Inventory::of(store).endpoint_history(&endpoint, after.as_ref(), limit).await?;
        with_pruned(store, &endpoint, page).await
    })
    .await
}

/// Returns the rows of a page of observations. The last page also contains the remaining data of pruned observations.
async fn with_pruned(
    store: &Store,
    endpoint: &EndpointKey,
    page: Page<ObservationRow>,
) -> Result<Page<HistoryRow>, StoreError> {
    let row = |entry| HistoryRow { endpoint: endpoint.clone(), entry };
    let mut page = map(page, |observation| row(Entry::Observation(observation)));
    if page.next.is_none() {
        let pruned = store::Inventory::of(store).pruned_observations(endpoint).await?;
        page.rows.extend(pruned.into_iter().map(|pruned| row(Entry::Pruned(pruned))));
    }
    Ok(page)
}

/// Returns the endpoints of a host, up to a maximum number.
async fn endpoints_of(store: &Store, host: &str, port: Option<u16>) -> Outcome<Vec<EndpointKey>> {
    /// Maximum number of endpoints. A host with more is a network behind one name, whose ports the user must query one by one.
    const ENDPOINTS_MAX: usize = 100;
    let page = store::Inventory::of(store)
        .endpoints_of_host(host, port, None, ENDPOINTS_MAX)
        .await
        .map_err(|error| database::problem(&error))?;
    Ok(page.rows.into_iter().map(|row| row.endpoint).collect())
}

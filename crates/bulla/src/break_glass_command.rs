//! `bulla break-glass`: an emergency token for the administrator of the host, for use when no approver is available.

use clap::Args;
use cli::GlobalArgs;
use cli::exit::{Exit, Outcome, Problem, chain, print};
use secrecy::ExposeSecret;
use server::access;
use store::Clock;

use crate::config::Configuration;
use discover::database;

/// Maximum characters of a reason.
const REASON_MAX: usize = 1_000;

/// Arguments of `bulla break-glass`.
#[derive(Args, Debug)]
pub(crate) struct BreakGlassArgs {
    /// Reason, recorded in the audit log
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// The control plane's database: a file, sqlite:FILE or postgres://USER@HOST/DATABASE [default: as configured]
    #[arg(long, value_name = "URL")]
    db: Option<String>,
}

/// Writes an all-permissions token, valid for one day, and its audit record to the database. Prints the token.
pub(crate) async fn run(args: &BreakGlassArgs, global: &GlobalArgs) -> Outcome<Exit> {
    let reason = args.reason.trim();
    if reason.is_empty() || reason.chars().count() > REASON_MAX || reason.chars().any(char::is_control) {
        return Err(Problem::usage(format_args!(
            "--reason must have 1 to {REASON_MAX} characters and no control characters"
        )));
    }
    let configuration = Configuration::load(global.config.as_deref())?;
    let settings = &configuration.settings.store;
    let url = database::inventory_url(args.db.as_deref(), settings)?;
    let store = database::open(&url, settings).await?;
    if access::has_no_credentials(&store).await.map_err(|error| database::problem(&error))? {
        return Err(Problem::usage(
            "no control plane has run on this database, so no emergency access is possible",
        )
        .hint("`bulla up` creates the first token; --db or store.url names the database"));
    }
    let token = access::break_glass(&store, &Clock::system(), reason).await;
    let token = token.map_err(|error| Problem::new(Exit::Inventory, chain(&error)))?;
    eprintln!(
        "created a token with all permissions, valid for one day; the audit log records it with its reason"
    );
    print(token.expose_secret())?;
    Ok(Exit::Ok)
}

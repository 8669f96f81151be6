//! `bulla config`: checks the configuration, or shows it.

use api::limits::LimitView;
use clap::{Args, Subcommand};
use cli::connection::{Client, Columns, Listing, ServerArgs};
use cli::exit::{Exit, Outcome, chain, print};
use cli::{GlobalArgs, columns};
use store::{Store, StoreUrl};

use crate::config::Configuration;
use crate::master_keys;
use discover::StoreSettings;
use discover::database::check_connection_limit;

/// Arguments of `bulla config`.
#[derive(Args, Debug)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    pub(crate) command: ConfigCommand,
}

/// Commands for the configuration.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Check the file and the environment, and report errors
    Check,
    /// Print every key with its value and the origin of the value
    Show,
    /// List the limits, timeouts and retention in effect on a server
    Limits {
        #[command(flatten)]
        server: ServerArgs,
        #[command(flatten)]
        listing: Listing,
    },
}

async fn limits(configuration: &Configuration, server: &ServerArgs, listing: &Listing) -> Outcome<()> {
    const LIMITS: Columns = columns!(
        LimitView:
        ("Key", name),
        ("Kind", kind),
        ("Value", value),
        ("Unit", unit),
        ("Source", source),
        ("Origin", origin),
    );
    let client = Client::open(server, &configuration.settings.client)?;
    listing.print(&client, "/api/v1/limits", &(), LIMITS).await
}

/// Runs `bulla config`.
pub(crate) async fn run(args: &ConfigArgs, global: &GlobalArgs) -> Outcome<Exit> {
    let configuration = Configuration::load(global.config.as_deref())?;
    match &args.command {
        ConfigCommand::Limits { server, listing } => limits(&configuration, server, listing).await?,
        ConfigCommand::Show => print(configuration.show().trim_end())?,
        ConfigCommand::Check => {
            let read = match (configuration.file(), cli::configuration::default_path()) {
                (Some(path), _) => format!("{} is valid", path.display()),
                (None, Some(path)) => {
                    format!("no file {}: every value is the default or from the environment", path.display())
                }
                (None, None) => {
                    "no configuration directory: every value is the default or from the environment".into()
                }
            };
            print(&read)?;
            for warning in configuration.settings.warnings() {
                print(&format!("warning: {warning}"))?;
            }
            for line in master_keys::described(&configuration.settings.authority)? {
                print(&line)?;
            }
            let clouds_file = &configuration.settings.watch.clouds_file;
            if !clouds_file.as_os_str().is_empty() {
                let sources = discover::scan_command::cloud_sources(clouds_file)?;
                print(&format!("watch.clouds_file has {sources} clouds and clusters"))?;
            }
            check_connections(&configuration.settings.store).await?;
        }
    }
    Ok(Exit::Ok)
}

/// Checks that the database server and this machine allow the configured number of connections. An unavailable server is reported,
/// but it is not a configuration error.
async fn check_connections(settings: &StoreSettings) -> Outcome<()> {
    let Ok(url) = settings.url.parse::<StoreUrl>() else { return Ok(()) };
    if !settings.enabled || url.sqlite_path().is_some() {
        return Ok(());
    }
    match Store::connections_at(&url, &settings.options()?).await {
        Ok(connections) => {
            check_connection_limit(connections)?;
            let servers = connections.servers.map_or_else(|| "some".to_owned(), |all| all.to_string());
            let ours = connections.ours;
            print(&format!(
                "store.connections: {ours} of the {servers} connections that {url} has for ordinary users"
            ))
        }
        Err(error) => print(&format!("cannot read the connection limit of {url}: {}", chain(&error))),
    }
}

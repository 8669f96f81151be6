//! `bulla api`: any route, for what has no command of its own.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use reqwest::Method;

use super::input;
use crate::configuration::ClientSettings;
use crate::connection::{Client, ServerArgs};
use crate::exit::{Exit, Outcome, Problem};

/// `bulla api`
#[derive(Args, Debug)]
pub struct RouteArgs {
    /// The path, with its query: /api/v1/acme/accounts?limit=10; /openapi.json describes all
    #[arg(value_name = "PATH", value_parser = path)]
    path: String,
    /// The method
    #[arg(long, short = 'X', value_name = "METHOD", default_value = "GET")]
    method: Method,
    /// The body's file: JSON, or TOML when it ends in .toml; - for JSON on standard input
    #[arg(long, short, value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    server: ServerArgs,
}

/// Of this server: what begins with a slash cannot name another.
fn path(text: &str) -> Result<String, String> {
    if text.starts_with('/') { Ok(text.to_owned()) } else { Err("give a path that begins with /".to_owned()) }
}

/// Asks, and prints the answer as it comes.
pub(crate) async fn run(args: &RouteArgs, settings: &ClientSettings) -> Outcome<Exit> {
    let client = Client::open(&args.server, settings)?;
    let body = args.file.as_deref().map(input::document).transpose()?;
    let answer = client.send_bytes(args.method.clone(), &args.path, body.as_ref()).await?;
    print(&answer).map_err(|error| Problem::output(&error))?;
    Ok(Exit::Ok)
}

fn print(answer: &[u8]) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(answer)?;
    if !answer.is_empty() && !answer.ends_with(b"\n") {
        out.write_all(b"\n")?;
    }
    out.flush()
}

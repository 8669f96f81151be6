//! `bulla api`: sends a request to any route, for routes without a command.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use reqwest::Method;

use super::input;
use crate::configuration::ClientSettings;
use crate::connection::{Client, ServerArgs};
use crate::exit::{Exit, Outcome, Problem};

/// Arguments of `bulla api`.
#[derive(Args, Debug)]
pub struct RouteArgs {
    /// The path, with its query: /api/v1/acme/accounts?limit=10; /openapi.json describes all routes
    #[arg(value_name = "PATH", value_parser = path)]
    path: String,
    /// The HTTP method
    #[arg(long, short = 'X', value_name = "METHOD", default_value = "GET")]
    method: Method,
    /// File with the request body: JSON, or TOML if its name ends in .toml; - for JSON on standard input
    #[arg(long, short, value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    server: ServerArgs,
}

/// Accepts only a path on this server: a text that begins with a slash cannot name another server.
fn path(text: &str) -> Result<String, String> {
    if text.starts_with('/') { Ok(text.to_owned()) } else { Err("give a path that begins with /".to_owned()) }
}

/// Sends the request, and prints the response unchanged.
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

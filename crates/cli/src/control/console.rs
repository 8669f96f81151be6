//! `bulla console`: a one-time link that signs a browser in to the console.

use std::process::{Command, Stdio};
use std::time::Duration;

use api::access::{NewSignInLink, SignInLinkView};
use clap::Args;
use reqwest::Method;

use crate::configuration::ClientSettings;
use crate::connection::{Client, ServerArgs, read_as};
use crate::exit::{Exit, Outcome, Problem, print};
use crate::units;

/// The program that opens a URL in the user's browser.
const OPENER: &str = "xdg-open";

/// Arguments of `bulla console`.
#[derive(Args, Debug)]
pub struct ConsoleArgs {
    /// Open the link in the browser of this machine with xdg-open; other users may see it in the process list
    #[arg(long)]
    open: bool,
    /// How long the link is valid, 10s to 10m [default: 10m]
    #[arg(long, value_name = "DURATION", value_parser = units::duration)]
    lifetime: Option<Duration>,
    #[command(flatten)]
    server: ServerArgs,
}

/// Requests a link, and prints it.
pub(crate) async fn run(args: &ConsoleArgs, settings: &ClientSettings) -> Outcome<Exit> {
    let client = Client::open(&args.server, settings)?;
    let new = NewSignInLink { lifetime_s: args.lifetime.map(|lifetime| lifetime.as_secs()) };
    let created = client.submit(Method::POST, "/api/v1/auth/links", &new).await?;
    let link: SignInLinkView = read_as(&created)?;
    print(&link.url)?;
    eprintln!("open the link in a browser: it signs in once, until {}", link.expires_at);
    if args.open {
        open(&link.url)?;
    }
    Ok(Exit::Ok)
}

fn open(url: &str) -> Outcome<()> {
    let quiet = Stdio::null;
    let mut command = Command::new(OPENER);
    let opened = command.arg(url).stdin(quiet()).stdout(quiet()).stderr(quiet()).status();
    match opened {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(cannot_open(format_args!("the program ended with {status}"))),
        Err(error) => Err(cannot_open(format_args!("{error}"))),
    }
}

fn cannot_open(why: std::fmt::Arguments<'_>) -> Problem {
    Problem::new(Exit::Machine, format_args!("{OPENER} cannot open the link: {why}"))
        .hint("open the printed link in a browser")
}

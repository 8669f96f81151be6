//! `bulla credential permission who`: lists the principals that may access a name, each with the permission or role that allows it.

use api::credhub::{AccessChangeView, AccessDifferenceView, AccessQuery, AccessView};
use clap::{Args, ValueEnum};

use super::store::name_of;
use crate::columns;
use crate::connection::{Client, Columns, Listing};
use crate::exit::{Exit, Outcome, Problem};
use crate::units;

/// Arguments of `bulla credential permission who`.
#[derive(Args, Debug)]
pub(super) struct WhoArgs {
    /// A name, or a path such as /team/*
    path: String,
    /// The operation that is allowed
    #[arg(long, value_enum, value_name = "OPERATION", default_value = "read")]
    operation: Operation,
    /// Only principals that may access one of the two names and not the other
    #[arg(long, value_name = "PATH", conflicts_with = "since")]
    compared_with: Option<String>,
    /// Only principals whose access changed since this time, and who changed it: 2026-11-01, 2d
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    #[command(flatten)]
    listing: Listing,
}

/// Operations on credentials.
#[derive(Clone, Copy, Debug, ValueEnum)]
#[value(rename_all = "snake_case")]
enum Operation {
    Read,
    Write,
    Delete,
    ReadAcl,
    WriteAcl,
}

impl WhoArgs {
    pub(super) async fn run(&self, client: &Client) -> Outcome<Exit> {
        const WHO: Columns = columns!(
            AccessView:
            ("Actor", actor),
            ("Path", path),
            ("Role", role),
            ("Since", since),
            ("Changed", changed_at),
            ("Given by", given_by),
        );
        const BOTH: Columns =
            columns!(AccessDifferenceView: ("Actor", actor), ("Here by", here), ("There by", there));
        const SINCE: Columns = columns!(
            AccessChangeView:
            ("At", at),
            ("Actor", actor),
            ("Change", change),
            ("Path", path),
            ("By", by),
        );
        let columns = match (&self.compared_with, &self.since) {
            (None, None) => WHO,
            (_, None) => BOTH,
            (_, Some(_)) => SINCE,
        };
        let parse_time = |text: &String| {
            let since = units::parse_time(text, units::now_us()).map_err(|why| {
                Problem::usage(why)
                    .hint("give --since as 2026-11-01, 2026-11-01T12:00Z, or 2d for two days ago")
            })?;
            Ok(units::rfc3339(since.div_euclid(1_000_000)))
        };
        let query = AccessQuery {
            name: Some(self.path.clone()),
            operation: Some(name_of(self.operation)),
            compared_with: self.compared_with.clone(),
            since: self.since.as_ref().map(parse_time).transpose()?,
        };
        self.listing.print(client, "/api/v1/access", &query, columns).await?;
        Ok(Exit::Ok)
    }
}

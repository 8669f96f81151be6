//! Who may do something, and why.

use clap::{Args, ValueEnum};

use super::store::name_of;
use crate::api::{Client, Columns, Listing};
use crate::exit::{Exit, Outcome, Problem};
use crate::units;

/// `bulla credential permission who`
#[derive(Args, Debug)]
pub(super) struct WhoArgs {
    /// A name, or a path as /team/*
    path: String,
    /// What they may
    #[arg(long, value_enum, value_name = "OPERATION", default_value = "read")]
    operation: Operation,
    /// Only who may with one of both and not with the other
    #[arg(long, value_name = "PATH", conflicts_with = "since")]
    compared_with: Option<String>,
    /// Only who may since then, or no more, and by whose doing: 2026-11-01, 2d
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    #[command(flatten)]
    listing: Listing,
}

/// What may be done.
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
        const WHO: Columns = &[
            ("Actor", "/actor"),
            ("Path", "/path"),
            ("Role", "/role"),
            ("Since", "/since"),
            ("Changed", "/changed_at"),
            ("Given by", "/given_by"),
        ];
        const BOTH: Columns = &[("Actor", "/actor"), ("Here by", "/here"), ("There by", "/there")];
        const SINCE: Columns =
            &[("At", "/at"), ("Actor", "/actor"), ("Change", "/change"), ("Path", "/path"), ("By", "/by")];
        let mut query = vec![("name", self.path.clone()), ("operation", name_of(self.operation))];
        let mut columns = WHO;
        if let Some(other) = &self.compared_with {
            query.push(("compared_with", other.clone()));
            columns = BOTH;
        }
        if let Some(text) = &self.since {
            let since = units::moment(text, units::now_us()).map_err(|why| {
                Problem::usage(why)
                    .hint("give --since as 2026-11-01, 2026-11-01T12:00Z, or 2d for two days ago")
            })?;
            query.push(("since", units::rfc3339(since.div_euclid(1_000_000))));
            columns = SINCE;
        }
        self.listing.print(client, "/api/v1/access", &query, columns).await?;
        Ok(Exit::Ok)
    }
}

//! Activity: certificates per hour, revocations, blocked keys, deployments, and the state of published CRLs.

use api::authorities::PublicationView;
use api::revocations::{BlockedKeyEntry, RevocationQuery, RevokedView};
use api::series::{SeriesCountsView, SeriesQuery};
use api::targets::{DeploymentQuery, DeploymentView};
use clap::Args;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::columns;
use crate::connection::{Client, Columns, Listing, Output, ShortListing, print_rows};
use crate::exit::{Outcome, Problem};
use crate::units;

/// Arguments of `bulla cert series`.
#[derive(Args, Debug)]
pub struct SeriesArgs {
    /// Names of series: issued, renewed, failed, revoked, deployed; separate several with commas
    #[arg(long, value_name = "NAMES")]
    names: Option<String>,
    /// The length of an interval: hour or day
    #[arg(long, value_name = "STEP", default_value = "hour")]
    step: String,
    /// Time range that ends now: 7d [default: two days for hours, 90 days for days]
    #[arg(long, value_name = "DURATION", value_parser = units::duration)]
    last: Option<std::time::Duration>,
    /// Only certificates of this team
    #[arg(long, value_name = "TEAM")]
    team: Option<String>,
    #[command(flatten)]
    show: Output,
}

impl SeriesArgs {
    /// Prints one row for each interval with activity.
    pub async fn print(&self, client: &Client) -> Outcome<()> {
        const COLUMNS: Columns = &[
            ("From", "/from"),
            ("Issued", "/issued"),
            ("Renewed", "/renewed"),
            ("Failed", "/failed"),
            ("Revoked", "/revoked"),
            ("Deployed", "/deployed"),
        ];
        let from = self.last.map(|span| {
            let span = i64::try_from(span.as_micros()).unwrap_or(i64::MAX);
            units::rfc3339_us(units::now_us().saturating_sub(span))
        });
        let query = SeriesQuery {
            names: self.names.clone(),
            step: Some(self.step.clone()),
            from,
            to: None,
            team: self.team.clone(),
        };
        let found: SeriesCountsView = client.fetch("/api/v1/series", &query).await?;
        print_rows(rows(&found)?, COLUMNS, &self.show)
    }
}

/// Returns one JSON object for each interval with activity.
fn rows(found: &SeriesCountsView) -> Outcome<Vec<Value>> {
    let start: jiff::Timestamp =
        found.from.parse().map_err(|_| Problem::usage("the server's response has no time"))?;
    let intervals = found.series.iter().map(|series| series.counts.len()).max().unwrap_or(0);
    let mut rows = Vec::new();
    for at in 0..intervals {
        let counts = || found.series.iter().map(|series| series.counts.get(at).copied().unwrap_or(0));
        if counts().all(|count| count == 0) {
            continue;
        }
        let seconds = found.step_seconds.saturating_mul(at as i64);
        let from = start.saturating_add(jiff::SignedDuration::from_secs(seconds));
        let from = from.map_err(|_| Problem::usage("the server's response has no time"))?;
        let mut row = json!({ "from": from.to_string() });
        for (series, count) in found.series.iter().zip(counts()) {
            row[&series.name] = count.into();
        }
        rows.push(row);
    }
    Ok(rows)
}

/// Prints revoked certificates, last revoked first.
pub(super) async fn revocations(client: &Client, ca: Option<&str>, listing: &Listing) -> Outcome<()> {
    const COLUMNS: Columns = columns!(
        RevokedView:
        ("Recorded", recorded_at),
        ("Serial", serial),
        ("Reason", reason),
        ("Profile", profile),
        ("By", actor),
        ("Ends", not_after),
        ("Certificate", certificate),
    );
    let query = RevocationQuery { ca: ca.map(str::to_owned) };
    listing.print(client, "/api/v1/revocations", &query, COLUMNS).await
}

/// Prints blocked keys, last blocked first.
pub(super) async fn blocked_keys(client: &Client, listing: &Listing) -> Outcome<()> {
    const COLUMNS: Columns =
        columns!(BlockedKeyEntry: ("Blocked", blocked_at), ("By", actor), ("SHA-256 of the key", key));
    listing.print(client, "/api/v1/blocked-keys", &(), COLUMNS).await
}

/// Prints the publications of each CA, one row per CRL.
pub(super) async fn publications(client: &Client, listing: &ShortListing) -> Outcome<()> {
    const COLUMNS: Columns = &[
        ("Authority", "/name"),
        ("Published", "/part"),
        ("State", "/state"),
        ("Number", "/number"),
        ("Made", "/this_update"),
        ("Ends", "/next_update"),
        ("Entries", "/entries"),
        ("Failures", "/failures"),
        ("Last error", "/last_error"),
    ];
    listing.print(COLUMNS, async || published(client).await).await
}

/// Returns one document for each CRL and OCSP responder.
async fn published(client: &Client) -> Outcome<Vec<Value>> {
    let found: api::listing::Listing<PublicationView> = client.fetch("/api/v1/publications", &()).await?;
    let mut rows = Vec::new();
    for authority in found.items {
        for crl in &authority.crls {
            let mut row = crate::connection::document_of(crl)?;
            row["name"] = authority.name.as_str().into();
            row["part"] = format!("CRL {}", crl.part).into();
            rows.push(row);
        }
        if let Some(ocsp) = authority.ocsp {
            let row = json!({
                "name": authority.name, "part": "OCSP responder", "state": ocsp.state,
                "this_update": ocsp.not_before, "next_update": ocsp.not_after,
            });
            rows.push(row);
        }
    }
    Ok(rows)
}

/// Arguments of `bulla job deployments`.
#[derive(Args, Debug)]
pub struct DeploymentsArgs {
    /// Only deployments in this state: waiting, deployed, unchanged, failed, rolled_back, broken, cancelled
    #[arg(long, value_name = "STATE")]
    state: Option<String>,
    /// Only deployments by this agent
    #[arg(long, value_name = "ID")]
    agent: Option<Uuid>,
    /// Only deployments to this target
    #[arg(long, value_name = "ID")]
    target: Option<Uuid>,
    #[command(flatten)]
    listing: Listing,
}

impl DeploymentsArgs {
    /// Prints deployments, the newest first.
    pub async fn print(&self, client: &Client) -> Outcome<()> {
        const COLUMNS: Columns = columns!(
            DeploymentView:
            ("Changed", updated_at),
            ("State", state),
            ("Tries", attempts),
            ("Certificate", certificate),
            ("Target", target),
            ("Agent", agent),
            ("Error", error),
        );
        let query = DeploymentQuery {
            certificate: None,
            target: self.target,
            agent: self.agent,
            state: self.state.clone(),
        };
        self.listing.print(client, "/api/v1/deployments", &query, COLUMNS).await
    }
}

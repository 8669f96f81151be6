//! Certificate Transparency: certificates issued for monitored domains.

use api::transparency::{
    CtDomainBody, CtDomainSettingsBody, CtDomainView, CtIssuanceQuery, CtIssuanceView, CtLogView,
    CtReasonBody, CtSearchView,
};
use clap::{Args, Subcommand};
use reqwest::Method;

use super::{Run, input};
use crate::columns;
use crate::connection::{Client, Columns, Listing, Output, show_one};
use crate::exit::{Outcome, Problem};
use crate::units;

const PATH: &str = "/api/v1/ct";

/// Commands of `bulla ct`.
#[derive(Debug, Subcommand)]
pub enum TransparencyCommand {
    /// Monitor a domain from now on; search services receive its name
    #[command(visible_alias = "create")]
    Add(NewDomain),
    /// List the monitored domains
    List(Listing),
    /// Show a domain, with the position at each search service
    Show {
        /// The domain
        domain: String,
        #[command(flatten)]
        show: Output,
    },
    /// Change how a domain is monitored; omitted options are reset to their defaults
    #[command(visible_alias = "update")]
    Set(NewDomain),
    /// Pause a domain: search services are not queried, and logs are not matched for it
    Pause {
        /// The domain
        domain: String,
    },
    /// Resume monitoring of a domain
    Resume {
        /// The domain
        domain: String,
    },
    /// Stop monitoring a domain; issuances found so far are kept
    #[command(visible_alias = "delete")]
    Remove {
        /// The domain
        domain: String,
    },
    /// Query the search services for a domain now
    Run {
        /// The domain
        domain: String,
    },
    /// Show the state of the search services, one row per domain and service
    Status(Listing),
    /// List the monitored logs: how far they are read, and their errors
    Logs(Listing),
    /// Forget the position in a log: monitoring restarts at its current end
    ForgetLog {
        /// Id of the log
        id: String,
    },
    /// List certificates issued for monitored domains, last found first
    Issuances {
        /// Only issuances for this monitored domain
        #[arg(long, value_name = "DOMAIN")]
        domain: Option<String>,
        /// Verdict: pending, expected, unexpected or acknowledged
        #[arg(long, value_name = "VERDICT")]
        verdict: Option<String>,
        /// Only issuances found since this time: a date (2026-11-01), a time, or an age (2d)
        #[arg(long, value_name = "WHEN")]
        since: Option<String>,
        #[command(flatten)]
        listing: Listing,
    },
    /// Show an issuance, with its certificate
    Issuance {
        /// Id of the issuance
        id: String,
        #[command(flatten)]
        show: Output,
    },
    /// Mark an issuance and its renewals as expected: its alert is resolved
    Expect(Decision),
    /// Mark an issuance as handled, such as revoked or reported: its alert is resolved, but a renewal of the certificate raises a
    /// new alert
    Acknowledge(Decision),
}

/// Arguments of `bulla ct add` and `bulla ct set`.
#[derive(Args, Debug)]
pub struct NewDomain {
    /// The domain, directly below a public suffix, such as example.com
    domain: String,
    /// Monitoring services: certspotter, crt.sh, logs [default: all configured]
    #[arg(long, value_name = "SERVICE", value_delimiter = ',')]
    service: Vec<String>,
    /// Expected issuers: words of the issuer's name [default: issuers of known certificates of the domain]
    #[arg(long, value_name = "WORDS")]
    issuer: Vec<String>,
    /// Expect the issuers of --issuer for any name below the domain
    #[arg(long, requires = "issuer")]
    trust_issuers: bool,
    /// Create paused: `bulla ct resume` starts monitoring
    #[arg(long)]
    paused: bool,
    #[command(flatten)]
    show: Output,
}

impl NewDomain {
    fn settings(&self) -> CtDomainSettingsBody {
        CtDomainSettingsBody {
            services: self.service.clone(),
            issuers: self.issuer.clone(),
            trust_issuers: self.trust_issuers,
            enabled: !self.paused,
        }
    }

    fn domain(&self) -> CtDomainBody {
        let CtDomainSettingsBody { services, issuers, trust_issuers, enabled } = self.settings();
        CtDomainBody { name: self.domain.clone(), services, issuers, trust_issuers, enabled }
    }
}

/// Arguments of `bulla ct expect` and `bulla ct acknowledge`.
#[derive(Args, Debug)]
pub struct Decision {
    /// Id of the issuance
    id: String,
    /// Reason, for later readers
    #[arg(long, value_name = "TEXT")]
    reason: String,
    #[command(flatten)]
    show: Output,
}

impl Run for TransparencyCommand {
    async fn run(&self, client: &Client) -> Outcome<()> {
        const DOMAINS: Columns = columns!(
            CtDomainView:
            ("Domain", name),
            ("Enabled", enabled),
            ("Services", services),
            ("Issuers", issuers),
            ("Any name", trust_issuers),
            ("Since", created_at),
        );
        const STATUS: Columns = columns!(
            CtSearchView:
            ("Domain", domain),
            ("Service", service),
            ("State", state),
            ("Answered", answered_at),
            ("Next", next_at),
            ("Late (s)", lag_s),
            ("Baseline", baseline_at),
            ("Error", last_error),
        );
        const LOGS: Columns = columns!(
            CtLogView:
            ("Log", name),
            ("State", state),
            ("Entries", tree_size),
            ("Behind", behind),
            ("Checkpoint", checkpoint_at),
            ("Step", stepped_at),
            ("Alarm", alarm),
            ("Error", last_error),
            ("Id", id),
        );
        const ISSUANCES: Columns = columns!(
            CtIssuanceView:
            ("Found", found_at),
            ("Verdict", verdict),
            ("Names", names),
            ("Issuer", issuer),
            ("From", not_before),
            ("Source", source),
            ("Id", id),
        );
        let domains = format!("{PATH}/domains");
        let one = |domain: &str| format!("{domains}/{}", input::segment(domain));
        let post = async |domain: &str, verb: &str| {
            client.send(Method::POST, &format!("{}/{verb}", one(domain)), None).await.map(drop)
        };
        let issuance = |id: &str| format!("{PATH}/issuances/{}", input::segment(id));
        let decide = async |of: &Decision, verb: &str| {
            let path = format!("{}/{verb}", issuance(&of.id));
            let body = CtReasonBody { reason: of.reason.clone() };
            show_one(&client.submit(Method::POST, &path, &body).await?, &of.show)
        };
        match self {
            Self::Add(new) => {
                show_one(&client.submit(Method::POST, &domains, &new.domain()).await?, &new.show)
            }
            Self::Set(new) => {
                let path = one(&new.domain);
                show_one(&client.submit(Method::PUT, &path, &new.settings()).await?, &new.show)
            }
            Self::List(listing) => listing.print(client, &domains, &(), DOMAINS).await,
            Self::Show { domain, show } => show_one(&client.get(&one(domain), &()).await?, show),
            Self::Pause { domain } => post(domain, "pause").await,
            Self::Resume { domain } => post(domain, "resume").await,
            Self::Run { domain } => post(domain, "run").await,
            Self::Remove { domain } => client.send(Method::DELETE, &one(domain), None).await.map(drop),
            Self::Status(listing) => listing.print(client, &format!("{PATH}/searches"), &(), STATUS).await,
            Self::Logs(listing) => listing.print(client, &format!("{PATH}/logs"), &(), LOGS).await,
            Self::ForgetLog { id } => {
                let path = format!("{PATH}/logs/{}", input::segment(id));
                client.send(Method::DELETE, &path, None).await.map(drop)
            }
            Self::Issuances { domain, verdict, since, listing } => {
                let parse_time = |since: &String| {
                    let at_us = units::parse_time(since, units::now_us()).map_err(|why| {
                        Problem::usage(format_args!("--since: {why}")).hint("give 2026-11-01, or 2d")
                    })?;
                    Ok(units::rfc3339(at_us.div_euclid(1_000_000)))
                };
                let query = CtIssuanceQuery {
                    domain: domain.clone(),
                    verdict: verdict.clone(),
                    since: since.as_ref().map(parse_time).transpose()?,
                };
                listing.print(client, &format!("{PATH}/issuances"), &query, ISSUANCES).await
            }
            Self::Issuance { id, show } => show_one(&client.get(&issuance(id), &()).await?, show),
            Self::Expect(of) => decide(of, "expect").await,
            Self::Acknowledge(of) => decide(of, "acknowledge").await,
        }
    }
}

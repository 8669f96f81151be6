//! Certificate Transparency: what was issued for the domains that are watched.

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

/// Certificate Transparency.
#[derive(Debug, Subcommand)]
pub enum TransparencyCommand {
    /// Watch a domain in the logs, from now on; search services are told its name
    Add(NewDomain),
    /// List the watched domains
    List(Listing),
    /// Show one, with where each search service was left
    Show {
        /// The domain
        domain: String,
        #[command(flatten)]
        show: Output,
    },
    /// Change how one is watched; what is not given becomes the default
    Set(NewDomain),
    /// Neither ask for one nor match it
    Pause {
        /// The domain
        domain: String,
    },
    /// Ask for one and match it again
    Resume {
        /// The domain
        domain: String,
    },
    /// Watch one no more; what was found stays
    Remove {
        /// The domain
        domain: String,
    },
    /// Have the search services asked for one now
    Run {
        /// The domain
        domain: String,
    },
    /// How the search services are getting on: a row a domain and service
    Status(Listing),
    /// The logs that are followed: how far they are read, and what is wrong with them
    Logs(Listing),
    /// Forget where a log was left, whatever it was before: it is followed from its present end
    ForgetLog {
        /// Its id
        id: String,
    },
    /// List what was issued for watched domains, the newest found first
    Issuances {
        /// Only issuances for this watched domain
        #[arg(long, value_name = "DOMAIN")]
        domain: Option<String>,
        /// pending, expected, unexpected or acknowledged
        #[arg(long, value_name = "VERDICT")]
        verdict: Option<String>,
        /// Those found since: a date (2026-11-01), a time, or an age (2d)
        #[arg(long, value_name = "WHEN")]
        since: Option<String>,
        #[command(flatten)]
        listing: Listing,
    },
    /// Show one, with its certificate
    Issuance {
        /// Its id
        id: String,
        #[command(flatten)]
        show: Output,
    },
    /// Say that one is ours, and so are its renewals: its alert ends
    Expect(Decision),
    /// Say that one has been seen to, revoked or reported: its alert ends, a renewal raises another
    Acknowledge(Decision),
}

/// How a domain is watched.
#[derive(Args, Debug)]
pub struct NewDomain {
    /// The domain: what stands directly below a public suffix, as example.com
    domain: String,
    /// Who watches it: certspotter, crt.sh, logs [default: all that are configured]
    #[arg(long, value_name = "SERVICE", value_delimiter = ',')]
    service: Vec<String>,
    /// Who may issue for it: words of the issuer's name [default: whose certificates for it are known]
    #[arg(long, value_name = "WORDS")]
    issuer: Vec<String>,
    /// Those issuers may issue for any name below it
    #[arg(long, requires = "issuer")]
    trust_issuers: bool,
    /// Do not begin: `bulla ct resume` does
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

/// What is said of an issuance.
#[derive(Args, Debug)]
pub struct Decision {
    /// The issuance's id
    id: String,
    /// Why, for anyone who reads it later
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
                let moment = |since: &String| {
                    let at_us = units::moment(since, units::now_us()).map_err(|why| {
                        Problem::usage(format_args!("--since: {why}")).hint("give 2026-11-01, or 2d")
                    })?;
                    Ok(units::rfc3339(at_us.div_euclid(1_000_000)))
                };
                let query = CtIssuanceQuery {
                    domain: domain.clone(),
                    verdict: verdict.clone(),
                    since: since.as_ref().map(moment).transpose()?,
                };
                listing.print(client, &format!("{PATH}/issuances"), &query, ISSUANCES).await
            }
            Self::Issuance { id, show } => show_one(&client.get(&issuance(id), &()).await?, show),
            Self::Expect(of) => decide(of, "expect").await,
            Self::Acknowledge(of) => decide(of, "acknowledge").await,
        }
    }
}

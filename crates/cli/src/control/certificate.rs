//! `bulla cert`: managed certificates, found certificates, and certificates issued directly.

use api::listing::{Direction, PageQuery};
use std::io::Write;
use std::path::{Path, PathBuf};

use api::certificates::{
    CertificateFilter, CertificateView, ExportBody, ExportKind, GroupView, GroupsView, KeyLocationBody,
    NewCertificateBody, RenewMany, RevokeMany, SelectionBody, ServedView, TargetBody, VersionView,
};
use api::inventory::{ClaimBody, DismissBody, FoundView, InventoryQuery, UndismissBody};
use api::issued::{IssuedCertificate, IssuedQuery, IssuedView, NewIssued};
use api::revocations::NewBlockedKey;
use api::targets::DeployTargetView;
use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::Value;
use uuid::Uuid;

use super::activity::{self, SeriesArgs};
use super::profile::TargetDocument;
use super::{Run, document, input};
use crate::columns;
use crate::connection::{Client, Columns, Listing, Output, document_of, print_rows, read_as, show_one};
use crate::exit::{Outcome, Problem};
use crate::format::Format;
use crate::units;

/// Commands of `bulla cert`.
#[derive(Debug, Subcommand)]
pub enum CertificateCommand {
    /// List managed certificates, earliest expiry first
    List {
        #[command(flatten)]
        filter: Filter,
        /// Sort by: expiry, name, created, issued
        #[arg(long, value_name = "BY")]
        sort: Option<String>,
        /// Reverse the order
        #[arg(long)]
        desc: bool,
        /// Print the number of matching certificates on standard error
        #[arg(long)]
        count: bool,
        #[command(flatten)]
        listing: Listing,
    },
    /// Count certificates by issuer, profile, algorithm, owner, team, environment, status or expiry_day
    Groups {
        /// The attribute to count by
        #[arg(long, value_name = "BY", default_value = "issuer")]
        by: String,
        #[command(flatten)]
        filter: Filter,
        #[command(flatten)]
        show: Output,
    },
    /// Show a certificate
    Show {
        /// Name or id of the certificate
        certificate: String,
        #[command(flatten)]
        show: Output,
    },
    /// Count certificates by status and by expiry
    Summary {
        #[command(flatten)]
        show: Output,
    },
    /// Create a managed certificate, and issue it
    Create(Box<NewCertificate>),
    /// Change a certificate's settings by a JSON or TOML file with the fields to change
    Update {
        /// Name or id of the certificate
        certificate: String,
        /// The JSON or TOML file; - for JSON on standard input
        #[arg(long, short, value_name = "FILE")]
        file: PathBuf,
        #[command(flatten)]
        show: Output,
    },
    /// Renew a certificate, or all that match, now
    Renew {
        #[command(flatten)]
        selection: CertificateSelection,
        /// Maximum number of renewals to start; those in progress do not count
        #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
        limit: Option<u64>,
        #[command(flatten)]
        show: Output,
    },
    /// Revoke a certificate, or all that match
    Revoke {
        #[command(flatten)]
        selection: CertificateSelection,
        /// Reason: keyCompromise, superseded, cessationOfOperation, affiliationChanged, privilegeWithdrawn
        #[arg(long, value_name = "REASON", default_value = "unspecified")]
        reason: String,
        /// Immediately request a new version, with a new key
        #[arg(long)]
        replace: bool,
        #[command(flatten)]
        show: Output,
    },
    /// Deploy the current version to its targets again
    Deploy {
        /// Name or id of the certificate
        certificate: String,
    },
    /// List the versions of a certificate, newest first
    Versions {
        /// Name or id of the certificate
        certificate: String,
        #[command(flatten)]
        listing: Listing,
    },
    /// List where scans last found each version, oldest first: finds endpoints with an old version
    Served {
        /// Name or id of the certificate
        certificate: String,
        #[command(flatten)]
        listing: Listing,
    },
    /// Export the chain, and with --key the private key if this server has it
    Export {
        /// Name or id of the certificate
        certificate: String,
        /// Include the private key; recorded in the audit log
        #[arg(long)]
        key: bool,
        /// Export as a PKCS#12 file with the key; its password is read from this file
        #[arg(long, value_name = "PASSWORD_FILE")]
        pkcs12: Option<PathBuf>,
        /// Output file, readable by its owner only [default: standard output]
        #[arg(long, short = 'f', value_name = "FILE")]
        file: Option<PathBuf>,
    },
    /// Archive a certificate; it is no longer renewed
    Archive {
        /// Name or id of the certificate
        certificate: String,
    },
    /// Restore an archived certificate
    Restore {
        /// Name or id of the certificate
        certificate: String,
    },
    /// List certificates that scans found, and whether they are managed
    Found {
        /// Only hosts that contain this text
        #[arg(long, value_name = "TEXT")]
        host: Option<String>,
        /// Only certificates that the ownership rules assign to this team; a page covers at most 5,000 endpoints, so it may be
        /// short or empty and still have a next page: see --all
        #[arg(long, value_name = "TEAM")]
        team: Option<String>,
        /// Only certificates that the ownership rules assign to this owner
        #[arg(long, value_name = "OWNER")]
        owner: Option<String>,
        /// Only certificates to which no rule assigns a team or an owner
        #[arg(long, conflicts_with_all = ["team", "owner"])]
        nobody: bool,
        #[command(flatten)]
        listing: Listing,
    },
    /// Take over a found certificate into management
    Claim(Claim),
    /// Suppress a found certificate: for some time, or permanently
    Dismiss {
        /// SHA-256 fingerprint of the certificate, as in `cert found`
        fingerprint: String,
        /// Reason
        #[arg(long, value_name = "TEXT")]
        note: String,
        /// Duration: 30d [default: permanently]
        #[arg(long = "for", value_name = "DURATION", value_parser = units::duration)]
        length: Option<std::time::Duration>,
    },
    /// Undo a dismissal
    Undismiss {
        /// SHA-256 fingerprint of the certificate
        fingerprint: String,
    },
    /// Issue a certificate for a request immediately, without managing it
    Issue {
        /// The certificate request: PKCS #10 in PEM
        #[arg(long, value_name = "FILE")]
        csr: PathBuf,
        /// Profile of the certificate
        #[arg(long, value_name = "PROFILE", default_value = crate::configuration::FIRST_PROFILE)]
        profile: String,
        /// Validity of the certificate: 30d
        #[arg(long, value_name = "DURATION", value_parser = units::duration)]
        lifetime: Option<std::time::Duration>,
        /// Output file for the chain [default: standard output]
        #[arg(long, short = 'f', value_name = "FILE")]
        file: Option<PathBuf>,
    },
    /// List all certificates that the CA has issued, over every protocol
    Issued {
        /// Only certificates of this profile
        #[arg(long, value_name = "PROFILE")]
        profile: Option<String>,
        /// Only certificates issued over this protocol: api, acme, est, scep, lifecycle, system
        #[arg(long, value_name = "PROTOCOL")]
        source: Option<String>,
        /// Only certificates with this name, or with a name below it
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
        /// Only the certificate with this serial number
        #[arg(long, value_name = "HEX")]
        serial: Option<String>,
        /// Only the certificate with this SHA-256 fingerprint
        #[arg(long, value_name = "HEX")]
        fingerprint: Option<String>,
        /// List the oldest first
        #[arg(long)]
        asc: bool,
        #[command(flatten)]
        listing: Listing,
    },
    /// List revoked certificates, last revoked first
    Revocations {
        /// Only certificates of this CA, by name or id
        #[arg(long, value_name = "CA")]
        ca: Option<String>,
        #[command(flatten)]
        listing: Listing,
    },
    /// List blocked keys, last blocked first
    BlockedKeys(Listing),
    /// Count issued, renewed, revoked and deployed certificates, and failed jobs, by hour or by day
    Series(SeriesArgs),
    /// Block a compromised key: all certificates with the key are revoked, and no new ones are issued for it
    BlockKey {
        /// SHA-256 of the SubjectPublicKeyInfo, or with --of-certificate the id or fingerprint of a certificate with the key
        key: String,
        /// The KEY argument is a certificate's id or fingerprint
        #[arg(long)]
        of_certificate: bool,
        #[command(flatten)]
        show: Output,
    },
}

/// Conditions that select managed certificates, from flags such as `--status`.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Filter")]
pub struct Filter {
    /// Status: pending, issuing, deploying, active, failed, revoked, archived, …; separate several with commas
    #[arg(long, value_name = "STATUS")]
    status: Option<String>,
    /// Only certificates of this profile
    #[arg(long = "by-profile", value_name = "PROFILE")]
    profile: Option<String>,
    /// Only certificates from this issuer
    #[arg(long = "from-issuer", value_name = "ISSUER")]
    issuer: Option<String>,
    /// Only certificates whose current version was issued by this CA of the server
    #[arg(long = "from-ca", value_name = "CA")]
    ca: Option<String>,
    /// Only certificates of this owner
    #[arg(long = "of-owner", value_name = "OWNER")]
    owner: Option<String>,
    /// Only certificates of this team
    #[arg(long = "of-team", value_name = "TEAM")]
    team: Option<String>,
    /// Only certificates in this environment
    #[arg(long = "in-environment", value_name = "ENVIRONMENT")]
    environment: Option<String>,
    /// Only certificates with this tag: NAME=VALUE
    #[arg(long = "with-tag", value_name = "TAG")]
    tag: Option<String>,
    /// Only certificates whose name contains this text
    #[arg(long, value_name = "TEXT")]
    contains: Option<String>,
    /// Only certificates with a DNS name that ends with this: .example.org
    #[arg(long, value_name = "SUFFIX")]
    suffix: Option<String>,
    /// Only certificates that expire within this time: 30d
    #[arg(long, value_name = "DURATION", value_parser = units::duration)]
    expiring_within: Option<std::time::Duration>,
    /// Only certificates that expire after this time: 90d
    #[arg(long, value_name = "DURATION", value_parser = units::duration)]
    expiring_after: Option<std::time::Duration>,
    /// Only certificates with exactly this name
    #[arg(long = "with-name", value_name = "NAME")]
    name: Option<String>,
    /// Only the certificate whose current version has this serial number
    #[arg(long = "with-serial", value_name = "HEX")]
    serial: Option<String>,
    /// Only the certificate whose current version has this SHA-256 fingerprint
    #[arg(long = "with-fingerprint", value_name = "HEX")]
    fingerprint: Option<String>,
    /// Only certificates with this key type: p256, rsa2048, …
    #[arg(long = "with-algorithm", value_name = "KIND")]
    algorithm: Option<String>,
    /// Only certificates that violate this rule of a policy
    #[arg(long = "with-finding", value_name = "RULE")]
    finding: Option<String>,
}

/// Query parameters of the request that `cert list` sends.
#[derive(serde::Serialize)]
struct ListQuery {
    #[serde(flatten)]
    filter: CertificateFilter,
    sort: Option<String>,
    order: Option<&'static str>,
    count: Option<bool>,
}

/// Query parameters of the request that `cert groups` sends.
#[derive(serde::Serialize)]
struct GroupsQuery<'a> {
    #[serde(flatten)]
    filter: CertificateFilter,
    by: &'a str,
}

impl Filter {
    fn conditions(&self) -> CertificateFilter {
        let ends = |span: std::time::Duration| {
            let span = i64::try_from(span.as_micros()).unwrap_or(i64::MAX);
            units::rfc3339_us(units::now_us().saturating_add(span))
        };
        CertificateFilter {
            name: self.name.clone(),
            serial: self.serial.clone(),
            fingerprint: self.fingerprint.clone(),
            algorithm: self.algorithm.clone(),
            finding: self.finding.clone(),
            expires_after: self.expiring_after.map(ends),
            status: self.status.clone(),
            profile: self.profile.clone(),
            issuer: self.issuer.clone(),
            ca: self.ca.clone(),
            owner: self.owner.clone(),
            team: self.team.clone(),
            environment: self.environment.clone(),
            tag: self.tag.clone(),
            contains: self.contains.clone(),
            suffix: self.suffix.clone(),
            expires_before: self.expiring_within.map(ends),
            ..CertificateFilter::default()
        }
    }
}

/// Selects certificates by name or id, or all certificates that match a filter.
#[derive(Args, Debug)]
pub struct CertificateSelection {
    /// Names or ids of certificates
    certificates: Vec<String>,
    /// All certificates that match the filter, or all without a filter
    #[arg(long, conflicts_with = "certificates")]
    all: bool,
    #[command(flatten)]
    filter: Filter,
}

impl CertificateSelection {
    async fn body(&self, client: &Client) -> Outcome<SelectionBody> {
        let filter = self.filter.conditions();
        let matches_all = filter == CertificateFilter::default();
        if self.certificates.is_empty() && !self.all && matches_all {
            return Err(Problem::usage("no certificates are selected").hint("give names, a filter, or --all"));
        }
        if self.certificates.is_empty() {
            return Ok(SelectionBody { ids: None, filter: Some(filter) });
        }
        if !matches_all {
            return Err(
                Problem::usage("names and a filter cannot be combined").hint("give only one of the two")
            );
        }
        let mut ids = Vec::with_capacity(self.certificates.len());
        for certificate in &self.certificates {
            ids.push(id_of(client, certificate).await?);
        }
        Ok(SelectionBody { ids: Some(ids), filter: None })
    }
}

/// Arguments of `bulla cert create`.
#[derive(Args, Debug)]
pub struct NewCertificate {
    /// Subject names of the certificate: DNS names, addresses, URIs
    #[arg(required = true)]
    names: Vec<String>,
    /// Name of the certificate on this server [default: the first subject name]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Profile of the certificate
    #[arg(long, value_name = "PROFILE", default_value = crate::configuration::FIRST_PROFILE)]
    profile: String,
    /// Issuer of the certificate [default: the own CA]
    #[arg(long, value_name = "ISSUER")]
    issuer: Option<String>,
    /// Owner of the certificate
    #[arg(long, value_name = "OWNER")]
    owner: Option<String>,
    /// Team that owns the certificate
    #[arg(long, value_name = "TEAM")]
    team: Option<String>,
    /// Environment of the certificate
    #[arg(long, value_name = "ENVIRONMENT")]
    environment: Option<String>,
    /// Policy that sets the time of renewal
    #[arg(long, value_name = "POLICY")]
    policy: Option<String>,
    /// Tag of the certificate; may be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = input::pair)]
    tag: Vec<(String, String)>,
    /// Key type: p256, p384, rsa2048, ed25519, …
    #[arg(long, value_name = "KIND")]
    key_type: Option<String>,
    /// Create the key on the host of the first target's agent; it stays there
    #[arg(long, requires = "target")]
    key_on_agent: bool,
    /// Name or id of a deployment target; may be repeated
    #[arg(long, value_name = "TARGET")]
    target: Vec<String>,
    /// Validity of each version: 6d
    #[arg(long, value_name = "DURATION", value_parser = units::duration)]
    lifetime: Option<std::time::Duration>,
    /// Disable automatic renewal
    #[arg(long)]
    no_auto_renew: bool,
    /// Only create the record; issue the certificate on request
    #[arg(long)]
    no_issue: bool,
    #[command(flatten)]
    show: Output,
}

impl NewCertificate {
    async fn request(&self, client: &Client) -> Outcome<NewCertificateBody> {
        let mut targets = Vec::new();
        let mut first_agent = None;
        for target in &self.target {
            let path = document::document_path::<TargetDocument>(client, target).await?;
            let DeployTargetView { id, agent, .. } = client.fetch(&path, &()).await?;
            first_agent.get_or_insert(agent);
            targets.push(TargetBody::Deploy { target: id, agent });
        }
        let location = match first_agent {
            Some(agent) if self.key_on_agent => KeyLocationBody::Agent { agent },
            _ => KeyLocationBody::Server,
        };
        Ok(NewCertificateBody {
            name: self.name.clone(),
            names: self.names.clone(),
            profile: self.profile.clone(),
            issuer: self.issuer.clone(),
            owner: self.owner.clone(),
            team: self.team.clone(),
            environment: self.environment.clone(),
            policy: self.policy.clone(),
            tags: self.tag.iter().cloned().collect(),
            key_type: self.key_type.clone(),
            key_location: Some(location),
            targets,
            lifetime_seconds: self.lifetime.map(units::whole_seconds),
            auto_renew: Some(!self.no_auto_renew),
            issue: Some(!self.no_issue),
            ..NewCertificateBody::default()
        })
    }
}

/// Arguments of `bulla cert claim`.
#[derive(Args, Debug)]
pub struct Claim {
    /// SHA-256 fingerprint of the certificate, as in `cert found`
    fingerprint: String,
    /// Name of the certificate on this server [default: its first subject name]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Profile of the next version
    #[arg(long, value_name = "PROFILE", default_value = crate::configuration::FIRST_PROFILE)]
    profile: String,
    /// Issuer of the next version
    #[arg(long, value_name = "ISSUER")]
    issuer: Option<String>,
    /// Owner of the certificate [default without --team: by the ownership rules]
    #[arg(long, value_name = "OWNER")]
    owner: Option<String>,
    /// Team that owns the certificate [default without --owner: by the ownership rules]
    #[arg(long, value_name = "TEAM")]
    team: Option<String>,
    #[command(flatten)]
    show: Output,
}

const PATH: &str = "/api/v1/certificates";
const COLUMNS: Columns = columns!(
    CertificateView:
    ("Name", name),
    ("Status", status),
    ("Ends", ends_at),
    ("Served", served_status),
    ("Renews", renew_at),
    ("Issuer", issuer),
    ("Owner", owner),
    ("Last error", last_error),
    ("Id", id),
);
const VERSIONS: Columns = columns!(
    VersionView:
    ("Issued", issued_at),
    ("From", not_before),
    ("Ends", not_after),
    ("Serial", serial),
    ("Revoked", revoked_at),
    ("Fingerprint", fingerprint),
);
const SERVED: Columns = columns!(
    ServedView:
    ("Host", endpoint.host),
    ("Port", endpoint.port),
    ("Current", current),
    ("Ends", not_after),
    ("Seen", last_seen_at),
    ("Fingerprint", fingerprint),
);
const FOUND: Columns = columns!(
    FoundView:
    ("Host", endpoint.host),
    ("Port", endpoint.port),
    ("State", state),
    ("Subject", leaf?.subject),
    ("Ends", leaf?.not_after),
    ("Fingerprint", leaf?.fingerprint),
    ("Team", team),
    ("Owner", owner),
);
const ISSUED: Columns = columns!(
    IssuedView:
    ("Issued", issued_at),
    ("Names", names),
    ("Ends", not_after),
    ("Status", status),
    ("Profile", profile),
    ("Over", source),
    ("For", requester),
    ("Id", id),
);

/// Prints groups: one row for each group in tables and CSV, or the whole document.
fn print_groups(document: &Value, show: &Output) -> Outcome<()> {
    const GROUPS: Columns = columns!(GroupView: ("Value", value), ("Certificates", count));
    if !show.is_table() && (show.query.is_some() || show.output != Format::Csv) {
        return show_one(document, show);
    }
    let GroupsView { groups, complete, .. } = read_as(document)?;
    let none = show.is_table().then(|| "(none)".to_owned());
    let row = |group: GroupView| {
        document_of(&GroupView { value: group.value.or_else(|| none.clone()), count: group.count })
    };
    let rows = groups.into_iter().map(row).collect::<Outcome<Vec<_>>>()?;
    print_rows(rows, GROUPS, show)?;
    if !complete {
        eprintln!("the counts are incomplete: too many certificates or groups; add a filter");
    }
    Ok(())
}

impl Run for CertificateCommand {
    async fn run(&self, client: &Client) -> Outcome<()> {
        match self {
            Self::List { filter, sort, desc, count, listing } => {
                let query = ListQuery {
                    filter: filter.conditions(),
                    sort: sort.clone(),
                    order: desc.then_some("desc"),
                    count: count.then_some(true),
                };
                listing.print(client, PATH, &query, COLUMNS).await
            }
            Self::Groups { by, filter, show } => {
                let query = GroupsQuery { filter: filter.conditions(), by };
                print_groups(&client.get(&format!("{PATH}/groups"), &query).await?, show)
            }
            Self::Show { certificate, show } => {
                show_one(&client.get(&certificate_path(client, certificate).await?, &()).await?, show)
            }
            Self::Summary { show } => show_one(&client.get(&format!("{PATH}/summary"), &()).await?, show),
            Self::Create(new) => {
                let body = new.request(client).await?;
                show_one(&client.submit(Method::POST, PATH, &body).await?, &new.show)
            }
            Self::Update { certificate, file, show } => {
                let (path, body) = (certificate_path(client, certificate).await?, input::document(file)?);
                show_one(&client.send(Method::PATCH, &path, Some(&body)).await?, show)
            }
            Self::Renew { selection, limit, show } => {
                let body = RenewMany { select: selection.body(client).await?, reason: None, limit: *limit };
                show_one(&client.submit(Method::POST, &format!("{PATH}/renew"), &body).await?, show)
            }
            Self::Revoke { selection, reason, replace, show } => {
                let select = selection.body(client).await?;
                let body = RevokeMany { select, reason: Some(reason.clone()), replace: *replace };
                show_one(&client.submit(Method::POST, &format!("{PATH}/revoke"), &body).await?, show)
            }
            Self::Deploy { certificate } => act(client, certificate, "deploy").await,
            Self::Restore { certificate } => act(client, certificate, "restore").await,
            Self::Archive { certificate } => client
                .send(Method::DELETE, &certificate_path(client, certificate).await?, None)
                .await
                .map(drop),
            Self::Versions { certificate, listing } => {
                listing
                    .print(
                        client,
                        &format!("{}/versions", certificate_path(client, certificate).await?),
                        &(),
                        VERSIONS,
                    )
                    .await
            }
            Self::Served { certificate, listing } => {
                let path = format!("{}/endpoints", certificate_path(client, certificate).await?);
                listing.print(client, &path, &(), SERVED).await
            }
            Self::Export { certificate, key, pkcs12, file } => {
                export(client, certificate, *key, pkcs12.as_deref(), file.as_deref()).await
            }
            Self::Found { host, team, owner, nobody, listing } => {
                let query = InventoryQuery {
                    host: host.clone(),
                    team: team.clone(),
                    owner: owner.clone(),
                    nobody: nobody.then_some(true),
                    ..InventoryQuery::default()
                };
                listing.print(client, "/api/v1/inventory", &query, FOUND).await
            }
            Self::Claim(claim) => {
                let body = ClaimBody {
                    fingerprint: Some(claim.fingerprint.clone()),
                    name: claim.name.clone(),
                    profile: claim.profile.clone(),
                    issuer: claim.issuer.clone(),
                    owner: claim.owner.clone(),
                    team: claim.team.clone(),
                    ..ClaimBody::default()
                };
                show_one(&client.submit(Method::POST, "/api/v1/inventory/claim", &body).await?, &claim.show)
            }
            Self::Dismiss { fingerprint, note, length } => {
                let until = length.map(|length| (jiff::Timestamp::now() + length).to_string());
                let body = DismissBody { fingerprint: fingerprint.clone(), note: note.clone(), until };
                client.submit(Method::POST, "/api/v1/inventory/dismiss", &body).await.map(drop)
            }
            Self::Undismiss { fingerprint } => {
                let body = UndismissBody { fingerprint: fingerprint.clone() };
                client.submit(Method::POST, "/api/v1/inventory/undismiss", &body).await.map(drop)
            }
            Self::Issue { csr, profile, lifetime, file } => {
                let lifetime_seconds = lifetime.map(units::whole_seconds);
                let body = NewIssued { csr: read(csr)?, lifetime_seconds, ..NewIssued::default() };
                let path = format!("/api/v1/profiles/{}/certificates", input::segment(profile));
                let issued: IssuedCertificate = read_as(&client.submit(Method::POST, &path, &body).await?)?;
                write(file.as_deref(), issued.chain.as_bytes())
            }
            Self::Issued { profile, source, name, serial, fingerprint, asc, listing } => {
                let query = IssuedQuery {
                    profile: profile.clone(),
                    source: source.clone(),
                    name: name.clone(),
                    serial: serial.clone(),
                    fingerprint: fingerprint.clone(),
                    order: asc.then_some(Direction::Asc),
                    ..IssuedQuery::default()
                };
                listing.print(client, "/api/v1/issued", &query, ISSUED).await
            }
            Self::Revocations { ca, listing } => activity::revocations(client, ca.as_deref(), listing).await,
            Self::BlockedKeys(listing) => activity::blocked_keys(client, listing).await,
            Self::Series(series) => series.print(client).await,
            Self::BlockKey { key, of_certificate, show } => {
                let (certificate, key) = if *of_certificate { (Some(key), None) } else { (None, Some(key)) };
                let body = NewBlockedKey { key: key.cloned(), certificate: certificate.cloned() };
                show_one(&client.submit(Method::POST, "/api/v1/blocked-keys", &body).await?, show)
            }
        }
    }
}

/// Returns the id of a certificate given by its name or id.
async fn id_of(client: &Client, given: &str) -> Outcome<Uuid> {
    if let Ok(id) = given.parse() {
        return Ok(id);
    }
    let filter = CertificateFilter { name: Some(given.to_owned()), ..CertificateFilter::default() };
    let first = PageQuery { limit: Some(1), ..PageQuery::default() };
    let found: api::listing::Listing<CertificateView> = client.fetch(PATH, &first.of(&filter)).await?;
    found.items.first().map(|found| found.id).ok_or_else(|| {
        Problem::new(crate::exit::Exit::Refused, format_args!("unknown certificate {given:?}"))
            .hint("`bulla cert list` shows names and IDs")
    })
}

async fn certificate_path(client: &Client, given: &str) -> Outcome<String> {
    Ok(format!("{PATH}/{}", id_of(client, given).await?))
}

async fn act(client: &Client, certificate: &str, verb: &str) -> Outcome<()> {
    let path = format!("{}/{verb}", certificate_path(client, certificate).await?);
    client.send(Method::POST, &path, None).await.map(drop)
}

async fn export(
    client: &Client,
    certificate: &str,
    key: bool,
    pkcs12: Option<&Path>,
    file: Option<&Path>,
) -> Outcome<()> {
    let path = certificate_path(client, certificate).await?;
    let bytes = match pkcs12 {
        Some(password) => {
            let password = read(password)?;
            let password = Some(password.trim_end_matches(['\r', '\n']).to_owned());
            let body = document_of(&ExportBody { format: ExportKind::Pkcs12, password })?;
            client.send_bytes(Method::POST, &format!("{path}/export"), Some(&body)).await?
        }
        None if key => {
            let body = document_of(&ExportBody { format: ExportKind::Pem, password: None })?;
            client.send_bytes(Method::POST, &format!("{path}/export"), Some(&body)).await?
        }
        None => client.get_bytes(&format!("{path}/chain"), &()).await?,
    };
    write(file, &bytes)
}

fn read(path: &Path) -> Outcome<String> {
    std::fs::read_to_string(path)
        .map_err(|error| Problem::usage(format_args!("cannot read {}: {error}", path.display())))
}

/// Writes to a new file that only its owner can read, or to standard output.
fn write(file: Option<&Path>, bytes: &[u8]) -> Outcome<()> {
    use std::os::unix::fs::OpenOptionsExt;
    let Some(path) = file else {
        return std::io::stdout().write_all(bytes).map_err(|error| Problem::output(&error));
    };
    let opened = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    opened.and_then(|mut file| file.write_all(bytes)).map_err(|error| {
        Problem::usage(format_args!("cannot write {}: {error}", path.display()))
            .hint("choose a file that does not exist yet")
    })
}

//! Certificates: those under management, and those issued directly.

use api::listing::{Direction, PageQuery};
use std::io::Write;
use std::path::{Path, PathBuf};

use api::certificates::{
    CertificateFilter, CertificateView, ExportBody, ExportKind, KeyLocationBody, NewCertificateBody,
    RenewMany, RevokeMany, SelectionBody, ServedView, TargetBody, VersionView,
};
use api::inventory::{ClaimBody, DismissBody, FoundView, InventoryQuery, UndismissBody};
use api::issued::{IssuedCertificate, IssuedQuery, IssuedView, NewIssued};
use api::revocations::NewBlockedKey;
use api::targets::DeployTargetView;
use clap::{Args, Subcommand};
use reqwest::Method;
use uuid::Uuid;

use super::activity::{self, SeriesArgs};
use super::{Run, input};
use crate::columns;
use crate::connection::{Client, Columns, Listing, Output, document_of, read_as, show_one};
use crate::exit::{Outcome, Problem};
use crate::units;

/// Certificates.
#[derive(Debug, Subcommand)]
pub enum CertificateCommand {
    /// List those under management, those that end soonest first
    List {
        #[command(flatten)]
        filter: Filter,
        /// By what to sort: expiry, name, created, issued
        #[arg(long, value_name = "BY")]
        sort: Option<String>,
        /// The other end of the order first
        #[arg(long)]
        desc: bool,
        /// Say how many certificates match, on standard error
        #[arg(long)]
        count: bool,
        #[command(flatten)]
        listing: Listing,
    },
    /// Count certificates by issuer, profile, algorithm, owner, team, environment, status or expiry_day
    Groups {
        /// By what
        #[arg(long, value_name = "BY", default_value = "issuer")]
        by: String,
        #[command(flatten)]
        filter: Filter,
        #[command(flatten)]
        show: Output,
    },
    /// Show one
    Show {
        /// Its name or id
        certificate: String,
        #[command(flatten)]
        show: Output,
    },
    /// How many there are, by state and by end
    Summary {
        #[command(flatten)]
        show: Output,
    },
    /// Bring one under management, and issue it
    Create(Box<NewCertificate>),
    /// Change what is decided about one, by a JSON or TOML file with the members to change
    Update {
        /// Its name or id
        certificate: String,
        /// The file; - for JSON on standard input
        #[arg(long, short, value_name = "FILE")]
        file: PathBuf,
        #[command(flatten)]
        show: Output,
    },
    /// Renew now: one, or all that match
    Renew {
        #[command(flatten)]
        selection: CertificateSelection,
        #[command(flatten)]
        show: Output,
    },
    /// Revoke: one, or all that match
    Revoke {
        #[command(flatten)]
        selection: CertificateSelection,
        /// keyCompromise, superseded, cessationOfOperation, affiliationChanged, privilegeWithdrawn
        #[arg(long, value_name = "REASON", default_value = "unspecified")]
        reason: String,
        /// Ask for a new version, with a new key, at once
        #[arg(long)]
        replace: bool,
        #[command(flatten)]
        show: Output,
    },
    /// Bring the current version to its targets once more
    Deploy {
        /// Its name or id
        certificate: String,
    },
    /// Its versions, the newest first
    Versions {
        /// Its name or id
        certificate: String,
        #[command(flatten)]
        listing: Listing,
    },
    /// Where scans last saw its versions, the oldest first: what still serves an old one
    Served {
        /// Its name or id
        certificate: String,
        #[command(flatten)]
        listing: Listing,
    },
    /// Write its chain, and with --key its private key if this server holds it
    Export {
        /// Its name or id
        certificate: String,
        /// With the private key; noted in the audit log
        #[arg(long)]
        key: bool,
        /// As a PKCS#12 file with the key; the password is read from this file
        #[arg(long, value_name = "PASSWORD_FILE")]
        pkcs12: Option<PathBuf>,
        /// Where to; standard output unless given. A file is readable by its owner only
        #[arg(long, short = 'f', value_name = "FILE")]
        file: Option<PathBuf>,
    },
    /// Take one out of management; nothing is renewed any more
    Archive {
        /// Its name or id
        certificate: String,
    },
    /// Take an archived one back into management
    Restore {
        /// Its name or id
        certificate: String,
    },
    /// What scans found, and whether it is managed
    Found {
        /// Only hosts that contain this
        #[arg(long, value_name = "TEXT")]
        host: Option<String>,
        /// Only what this team answers for, by the rules of ownership; a page looks at 5,000 endpoints at most, so it may be
        /// short, or empty, and still have a next one: see --all
        #[arg(long, value_name = "TEAM")]
        team: Option<String>,
        /// Only what this owner answers for, by the rules of ownership
        #[arg(long, value_name = "OWNER")]
        owner: Option<String>,
        /// Only what no rule names a team or an owner for
        #[arg(long, conflicts_with_all = ["team", "owner"])]
        nobody: bool,
        #[command(flatten)]
        listing: Listing,
    },
    /// Bring what a scan found under management
    Claim(Claim),
    /// Say nothing more of what a scan found: for a time, or for good
    Dismiss {
        /// Its SHA-256 fingerprint, as `cert found` shows it
        fingerprint: String,
        /// Why
        #[arg(long, value_name = "TEXT")]
        note: String,
        /// For how long: 30d; for good unless given
        #[arg(long = "for", value_name = "DURATION", value_parser = units::duration)]
        length: Option<std::time::Duration>,
    },
    /// Take a dismissal back
    Undismiss {
        /// Its SHA-256 fingerprint
        fingerprint: String,
    },
    /// Issue one for a request at once, without managing it
    Issue {
        /// The request: PKCS #10 in PEM
        #[arg(long, value_name = "FILE")]
        csr: PathBuf,
        /// By which profile
        #[arg(long, value_name = "PROFILE", default_value = crate::configuration::FIRST_PROFILE)]
        profile: String,
        /// How long it is valid: 30d
        #[arg(long, value_name = "DURATION", value_parser = units::duration)]
        lifetime: Option<std::time::Duration>,
        /// Write the chain here; standard output unless given
        #[arg(long, short = 'f', value_name = "FILE")]
        file: Option<PathBuf>,
    },
    /// Everything the authority has issued, over every protocol
    Issued {
        /// Only by this profile
        #[arg(long, value_name = "PROFILE")]
        profile: Option<String>,
        /// Only over this protocol: api, acme, est, scep, lifecycle, system
        #[arg(long, value_name = "PROTOCOL")]
        source: Option<String>,
        /// Only with this name, or one below it
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
        /// Only with this serial number
        #[arg(long, value_name = "HEX")]
        serial: Option<String>,
        /// Only with this SHA-256 fingerprint
        #[arg(long, value_name = "HEX")]
        fingerprint: Option<String>,
        /// The oldest first
        #[arg(long)]
        asc: bool,
        #[command(flatten)]
        listing: Listing,
    },
    /// List revoked certificates, the last one revoked first
    Revocations {
        /// Only of this authority, by name or id
        #[arg(long, value_name = "CA")]
        ca: Option<String>,
        #[command(flatten)]
        listing: Listing,
    },
    /// List blocked keys, the last one blocked first
    BlockedKeys(Listing),
    /// Count certificates issued, renewed, revoked and deployed, and failed runs, by hour or by day
    Series(SeriesArgs),
    /// Block a compromised key: every certificate that has it is revoked, and none is issued for it again
    BlockKey {
        /// SHA-256 of the SubjectPublicKeyInfo, or the id or fingerprint of a certificate with the key
        key: String,
        /// The first argument is a certificate's id or fingerprint
        #[arg(long)]
        of_certificate: bool,
        #[command(flatten)]
        show: Output,
    },
}

/// Which certificates under management.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Filter")]
pub struct Filter {
    /// pending, issuing, deploying, active, failed, revoked, archived, …; several with commas
    #[arg(long, value_name = "STATUS")]
    status: Option<String>,
    /// By this profile
    #[arg(long = "by-profile", value_name = "PROFILE")]
    profile: Option<String>,
    /// From this issuer
    #[arg(long = "from-issuer", value_name = "ISSUER")]
    issuer: Option<String>,
    /// Of this owner
    #[arg(long = "of-owner", value_name = "OWNER")]
    owner: Option<String>,
    /// Of this team
    #[arg(long = "of-team", value_name = "TEAM")]
    team: Option<String>,
    /// In this environment
    #[arg(long = "in-environment", value_name = "ENVIRONMENT")]
    environment: Option<String>,
    /// With this tag: NAME=VALUE
    #[arg(long = "with-tag", value_name = "TAG")]
    tag: Option<String>,
    /// Whose name contains this
    #[arg(long, value_name = "TEXT")]
    contains: Option<String>,
    /// With a name that ends so: .example.org
    #[arg(long, value_name = "SUFFIX")]
    suffix: Option<String>,
    /// That end within this time: 30d
    #[arg(long, value_name = "DURATION", value_parser = units::duration)]
    expiring_within: Option<std::time::Duration>,
    /// That end after this time: 90d
    #[arg(long, value_name = "DURATION", value_parser = units::duration)]
    expiring_after: Option<std::time::Duration>,
    /// With exactly this name
    #[arg(long = "with-name", value_name = "NAME")]
    name: Option<String>,
    /// Whose current version has this serial number
    #[arg(long = "with-serial", value_name = "HEX")]
    serial: Option<String>,
    /// Whose current version has this SHA-256 fingerprint
    #[arg(long = "with-fingerprint", value_name = "HEX")]
    fingerprint: Option<String>,
    /// With a key of this kind: p256, rsa2048, …
    #[arg(long = "with-algorithm", value_name = "KIND")]
    algorithm: Option<String>,
    /// That breaks this rule of a policy
    #[arg(long = "with-finding", value_name = "RULE")]
    finding: Option<String>,
}

/// The query of `cert list`.
#[derive(serde::Serialize)]
struct ListQuery {
    #[serde(flatten)]
    filter: CertificateFilter,
    sort: Option<String>,
    order: Option<&'static str>,
    count: Option<bool>,
}

/// The query of `cert groups`.
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

/// One certificate or more, or all that match.
#[derive(Args, Debug)]
pub struct CertificateSelection {
    /// Names or ids
    certificates: Vec<String>,
    /// Every one that matches the filter; without a filter, every one
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
            return Err(Problem::usage("which certificates?").hint("name some, give a filter, or say --all"));
        }
        if self.certificates.is_empty() {
            return Ok(SelectionBody { ids: None, filter: Some(filter) });
        }
        if !matches_all {
            return Err(Problem::usage("names and a filter do not go together").hint("give either"));
        }
        let mut ids = Vec::with_capacity(self.certificates.len());
        for certificate in &self.certificates {
            ids.push(id_of(client, certificate).await?);
        }
        Ok(SelectionBody { ids: Some(ids), filter: None })
    }
}

/// A certificate to bring under management.
#[derive(Args, Debug)]
pub struct NewCertificate {
    /// What it is to speak for: DNS names, addresses, URIs
    #[arg(required = true)]
    names: Vec<String>,
    /// Its name here; the first of the names unless given
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// By which profile
    #[arg(long, value_name = "PROFILE", default_value = crate::configuration::FIRST_PROFILE)]
    profile: String,
    /// From which issuer; the own CA unless given
    #[arg(long, value_name = "ISSUER")]
    issuer: Option<String>,
    /// Who answers for it
    #[arg(long, value_name = "OWNER")]
    owner: Option<String>,
    /// The team that does
    #[arg(long, value_name = "TEAM")]
    team: Option<String>,
    /// Where it is used
    #[arg(long, value_name = "ENVIRONMENT")]
    environment: Option<String>,
    /// The policy that says when it is renewed
    #[arg(long, value_name = "POLICY")]
    policy: Option<String>,
    /// Labels; may be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = input::pair)]
    tag: Vec<(String, String)>,
    /// The kind of its key: p256, p384, rsa2048, ed25519, …
    #[arg(long, value_name = "KIND")]
    key_type: Option<String>,
    /// Make the key on the host of the first target's agent, where it stays
    #[arg(long, requires = "target")]
    key_on_agent: bool,
    /// Where it goes: the id of a deployment target; may be repeated
    #[arg(long, value_name = "TARGET")]
    target: Vec<String>,
    /// How long a version is valid: 6d
    #[arg(long, value_name = "DURATION", value_parser = units::duration)]
    lifetime: Option<std::time::Duration>,
    /// Leave renewing to people
    #[arg(long)]
    no_auto_renew: bool,
    /// Only enter it; issue it when somebody asks
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
            let path = format!("/api/v1/targets/{}", input::segment(target));
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

/// What a scan found, to be managed.
#[derive(Args, Debug)]
pub struct Claim {
    /// The certificate's SHA-256 fingerprint, as `cert found` shows it
    fingerprint: String,
    /// Its name here; its first name unless given
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// The profile its next version is issued by
    #[arg(long, value_name = "PROFILE", default_value = crate::configuration::FIRST_PROFILE)]
    profile: String,
    /// The issuer of its next version
    #[arg(long, value_name = "ISSUER")]
    issuer: Option<String>,
    /// Who answers for it [default: with no --team, as the rules of ownership say]
    #[arg(long, value_name = "OWNER")]
    owner: Option<String>,
    /// The team that does [default: with no --owner, as the rules of ownership say]
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
                show_one(&client.get(&format!("{PATH}/groups"), &query).await?, show)
            }
            Self::Show { certificate, show } => {
                show_one(&client.get(&place(client, certificate).await?, &()).await?, show)
            }
            Self::Summary { show } => show_one(&client.get(&format!("{PATH}/summary"), &()).await?, show),
            Self::Create(new) => {
                let body = new.request(client).await?;
                show_one(&client.submit(Method::POST, PATH, &body).await?, &new.show)
            }
            Self::Update { certificate, file, show } => {
                let (path, body) = (place(client, certificate).await?, input::document(file)?);
                show_one(&client.send(Method::PATCH, &path, Some(&body)).await?, show)
            }
            Self::Renew { selection, show } => {
                let body = RenewMany { select: selection.body(client).await?, reason: None };
                show_one(&client.submit(Method::POST, &format!("{PATH}/renew"), &body).await?, show)
            }
            Self::Revoke { selection, reason, replace, show } => {
                let select = selection.body(client).await?;
                let body = RevokeMany { select, reason: Some(reason.clone()), replace: *replace };
                show_one(&client.submit(Method::POST, &format!("{PATH}/revoke"), &body).await?, show)
            }
            Self::Deploy { certificate } => act(client, certificate, "deploy").await,
            Self::Restore { certificate } => act(client, certificate, "restore").await,
            Self::Archive { certificate } => {
                client.send(Method::DELETE, &place(client, certificate).await?, None).await.map(drop)
            }
            Self::Versions { certificate, listing } => {
                listing
                    .print(client, &format!("{}/versions", place(client, certificate).await?), &(), VERSIONS)
                    .await
            }
            Self::Served { certificate, listing } => {
                let path = format!("{}/endpoints", place(client, certificate).await?);
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

/// The id of a certificate given by its name or id.
async fn id_of(client: &Client, given: &str) -> Outcome<Uuid> {
    if let Ok(id) = given.parse() {
        return Ok(id);
    }
    let filter = CertificateFilter { name: Some(given.to_owned()), ..CertificateFilter::default() };
    let first = PageQuery { limit: Some(1), ..PageQuery::default() };
    let found: api::listing::Listing<CertificateView> = client.fetch(PATH, &first.of(&filter)).await?;
    found.items.first().map(|found| found.id).ok_or_else(|| {
        Problem::new(crate::exit::Exit::Refused, format_args!("there is no certificate named {given:?}"))
            .hint("`bulla cert list` shows names and ids")
    })
}

async fn place(client: &Client, given: &str) -> Outcome<String> {
    Ok(format!("{PATH}/{}", id_of(client, given).await?))
}

async fn act(client: &Client, certificate: &str, verb: &str) -> Outcome<()> {
    let path = format!("{}/{verb}", place(client, certificate).await?);
    client.send(Method::POST, &path, None).await.map(drop)
}

async fn export(
    client: &Client,
    certificate: &str,
    key: bool,
    pkcs12: Option<&Path>,
    file: Option<&Path>,
) -> Outcome<()> {
    let path = place(client, certificate).await?;
    let octets = match pkcs12 {
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
    write(file, &octets)
}

fn read(path: &Path) -> Outcome<String> {
    std::fs::read_to_string(path)
        .map_err(|error| Problem::usage(format_args!("cannot read {}: {error}", path.display())))
}

/// Into a new file that its owner alone may read, or to standard output.
fn write(file: Option<&Path>, octets: &[u8]) -> Outcome<()> {
    use std::os::unix::fs::OpenOptionsExt;
    let Some(path) = file else {
        return std::io::stdout().write_all(octets).map_err(|error| Problem::output(&error));
    };
    let opened = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    opened.and_then(|mut file| file.write_all(octets)).map_err(|error| {
        Problem::usage(format_args!("cannot write {}: {error}", path.display()))
            .hint("choose a file that does not exist yet")
    })
}

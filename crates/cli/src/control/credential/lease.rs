//! Dynamic credentials: leases, roles, and connections to databases.

use std::path::PathBuf;
use std::time::Duration;

use api::credhub::{
    ConnectionRequest, ConnectionView, DatabaseQuery, LeaseQuery, LeaseRequest, LeaseView, RenewRequest,
    RevokeLeasesRequest, RevokedLease, RoleRequest, RoleView,
};
use clap::{Args, Subcommand, ValueEnum};
use reqwest::Method;
use serde_json::Value;
use uuid::Uuid;

use super::store::name_of;
use super::value::read_value;
use crate::columns;
use crate::connection::{Client, Columns, Listing, Output, ShortListing, read_as, show_one};
use crate::exit::{Exit, Outcome, Problem};
use crate::units;

const LEASES: &str = "/api/v1/leases";
const ROLES: &str = "/api/v1/database-roles";
const CONNECTIONS: &str = "/api/v1/database-connections";

/// Default of `--creation`: the SQL that creates a credential.
const CREATION: &str =
    "CREATE ROLE \"{{name}}\" LOGIN PASSWORD '{{password_scram}}' VALID UNTIL '{{expiration}}'";

/// Commands of `bulla credential lease`.
#[derive(Debug, Subcommand)]
pub(super) enum LeaseCommand {
    /// Create a credential: a user at the database, until its lease ends
    Create {
        /// Name of the role: /team/db/readonly
        role: String,
        /// Lifetime of the lease [default: the role's]
        #[arg(long, value_name = "DURATION", value_parser = units::duration)]
        ttl: Option<Duration>,
        #[command(flatten)]
        show: Output,
    },
    /// List your leases, or all leases of a path
    List {
        /// Name of a role, or all roles below a path: /team/*; needs the permission delete there
        #[arg(long, value_name = "PATH")]
        path: Option<String>,
        #[command(flatten)]
        listing: Listing,
    },
    /// Show a lease
    Show {
        /// ID of the lease
        #[arg(value_parser = units::id)]
        id: Uuid,
        #[command(flatten)]
        show: Output,
    },
    /// Renew one of your leases, at most to the maximum lifetime of its role
    Renew {
        /// ID of the lease
        #[arg(value_parser = units::id)]
        id: Uuid,
        /// Lifetime of the lease from now on [default: the role's]
        #[arg(long, value_name = "DURATION", value_parser = units::duration)]
        ttl: Option<Duration>,
        #[command(flatten)]
        show: Output,
    },
    /// Revoke leases: their users are dropped at the database, and their sessions end
    Revoke(RevokeArgs),
}

/// Arguments of `bulla credential lease revoke`.
#[derive(Args, Debug)]
pub(super) struct RevokeArgs {
    #[command(flatten)]
    selection: LeaseSelection,
    #[command(flatten)]
    show: Output,
}

/// The leases to revoke: one lease, the leases of roles, or the leases of a principal.
#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
struct LeaseSelection {
    /// ID of the lease
    #[arg(value_parser = units::id)]
    id: Option<Uuid>,
    /// Leases of a role, or of all roles below a path: /team/*; needs the permission delete there
    #[arg(long, value_name = "PATH")]
    path: Option<String>,
    /// Leases of a principal: uaa-client:NAME of an API token, uaa-user:NAME
    #[arg(long, value_name = "ACTOR")]
    actor: Option<String>,
}

/// Commands of `bulla credential role`, for the SQL roles of dynamic credentials.
#[derive(Debug, Subcommand)]
pub(super) enum RoleCommand {
    /// Set a role: which SQL creates and drops its credentials
    Set(SetRoleArgs),
    /// List roles whose credentials you may create
    List(Listing),
    /// Remove a role; its leases stay until they end
    #[command(visible_alias = "delete")]
    Remove {
        /// Name of the role
        name: String,
    },
}

/// Arguments of `bulla credential role set`.
#[derive(Args, Debug)]
pub(super) struct SetRoleArgs {
    /// Name of the role: /team/db/readonly; the permission read there allows creating credentials
    name: String,
    /// The connection: `bulla credential database list`
    #[arg(long, value_name = "NAME")]
    database: String,
    /// SQL that creates a credential; may be repeated. Placeholders: {{name}}, {{password_scram}}, {{password}}, {{expiration}}
    /// [default: CREATE ROLE "{{name}}" LOGIN …, without any rights]
    #[arg(long, value_name = "SQL")]
    creation: Vec<String>,
    /// SQL that grants rights to "{{name}}" after the creation; may be repeated
    #[arg(long, value_name = "SQL")]
    grant: Vec<String>,
    /// SQL that drops a credential; may be repeated [default: reassign its objects, then DROP ROLE]
    #[arg(long, value_name = "SQL")]
    revocation: Vec<String>,
    /// Default lifetime of a lease [default: 1h]
    #[arg(long, value_name = "DURATION", value_parser = units::duration)]
    ttl: Option<Duration>,
    /// Maximum lifetime of a lease with all renewals [default: 1d]
    #[arg(long, value_name = "DURATION", value_parser = units::duration)]
    max_ttl: Option<Duration>,
    #[command(flatten)]
    show: Output,
}

/// Commands of `bulla credential database`.
#[derive(Debug, Subcommand)]
pub(super) enum DatabaseCommand {
    /// Set a connection to a PostgreSQL server; the password is read from standard input by default
    Set(SetDatabaseArgs),
    /// List connections, without passwords
    List(ShortListing),
    /// Remove a connection that no role and no lease uses
    #[command(visible_alias = "delete")]
    Remove {
        /// Name of the connection
        name: String,
    },
}

/// Arguments of `bulla credential database set`.
#[derive(Args, Debug)]
pub(super) struct SetDatabaseArgs {
    /// Name of the connection
    name: String,
    /// Address without a password: postgres://USER@HOST:5432/DATABASE; the user needs CREATEROLE
    #[arg(long, value_name = "URL")]
    url: String,
    /// File with the user's password; - for standard input
    #[arg(long, value_name = "FILE", default_value = "-")]
    password_file: PathBuf,
    /// Keep the stored password; allowed only if the address and the TLS settings do not change
    #[arg(long, conflicts_with = "password_file")]
    keep_password: bool,
    /// Encryption of the connection
    #[arg(long, value_enum, value_name = "MODE", default_value = "verify-full")]
    tls: Tls,
    /// Certificates to trust for this server instead of the system's, PEM
    #[arg(long, value_name = "FILE")]
    roots: Option<PathBuf>,
    /// The new address belongs to the same database, so existing leases are revoked through it
    #[arg(long)]
    same_database: bool,
    #[command(flatten)]
    show: Output,
}

/// Encryption of connections to databases.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Tls {
    /// TLS; the certificate must be trusted and name the host
    VerifyFull,
    /// TLS; the certificate must be trusted
    VerifyCa,
    /// No TLS
    Disable,
}

impl LeaseCommand {
    pub(super) async fn run(&self, client: &Client) -> Outcome<Exit> {
        const LEASE: Columns = columns!(
            LeaseView:
            ("ID", id),
            ("Role", name),
            ("User", username),
            ("State", state),
            ("Expires", expires_at),
            ("Actor", actor),
            ("Failures", failures),
            ("Error", error),
        );
        match self {
            Self::Create { role, ttl, show } => {
                let request = LeaseRequest { name: role.clone(), ttl_seconds: ttl.map(units::seconds) };
                show_one(&client.submit(Method::POST, LEASES, &request).await?, show)?;
            }
            Self::List { path, listing } => {
                listing.print(client, LEASES, &LeaseQuery { path: path.clone() }, LEASE).await?;
            }
            Self::Show { id, show } => show_one(&client.get(&format!("{LEASES}/{id}"), &()).await?, show)?,
            Self::Renew { id, ttl, show } => {
                let request = RenewRequest { ttl_seconds: ttl.map(units::seconds) };
                show_one(
                    &client.submit(Method::POST, &format!("{LEASES}/{id}/renew"), &request).await?,
                    show,
                )?;
            }
            Self::Revoke(args) => return args.run(client).await,
        }
        Ok(Exit::Ok)
    }
}

impl RevokeArgs {
    async fn run(&self, client: &Client) -> Outcome<Exit> {
        let Some(id) = self.selection.id else {
            let (path, actor) = (self.selection.path.clone(), self.selection.actor.clone());
            let request = RevokeLeasesRequest { path, actor };
            let revoked = client.submit(Method::POST, &format!("{LEASES}/revoke"), &request).await?;
            show_one(&revoked, &self.show)?;
            return Ok(Exit::Ok);
        };
        let revoked = client.send(Method::DELETE, &format!("{LEASES}/{id}"), None).await?;
        let revoked: RevokedLease = read_as(&revoked)?;
        if revoked.revoked {
            return Ok(Exit::Ok);
        }
        Err(Problem::new(Exit::Incomplete, "the database has not dropped the user yet; the server retries")
            .hint(format!("`bulla credential lease show {id}` shows the error")))
    }
}

impl RoleCommand {
    pub(super) async fn run(&self, client: &Client) -> Outcome<Exit> {
        const ROLE: Columns = columns!(
            RoleView:
            ("Name", name),
            ("Database", connection),
            ("Default TTL (s)", default_ttl_seconds),
            ("Maximum TTL (s)", max_ttl_seconds),
            ("Set by", set_by),
        );
        match self {
            Self::Set(args) => {
                show_one(&client.submit(Method::PUT, ROLES, &args.request()).await?, &args.show)?;
            }
            Self::List(listing) => listing.print(client, ROLES, &(), ROLE).await?,
            Self::Remove { name } => {
                client.delete(ROLES, &DatabaseQuery { name: Some(name.clone()) }).await?;
            }
        }
        Ok(Exit::Ok)
    }
}

impl SetRoleArgs {
    fn request(&self) -> RoleRequest {
        let mut creation = self.creation.clone();
        if creation.is_empty() {
            creation.push(CREATION.to_owned());
        }
        creation.extend(self.grant.iter().cloned());
        RoleRequest {
            name: self.name.clone(),
            connection: self.database.clone(),
            creation,
            revocation: self.revocation.clone(),
            default_ttl_seconds: self.ttl.map(units::seconds),
            max_ttl_seconds: self.max_ttl.map(units::seconds),
        }
    }
}

impl DatabaseCommand {
    pub(super) async fn run(&self, client: &Client) -> Outcome<Exit> {
        const CONNECTION: Columns =
            columns!(ConnectionView: ("Name", name), ("URL", url), ("TLS", tls), ("Set by", set_by));
        match self {
            Self::Set(args) => {
                show_one(&client.submit(Method::PUT, CONNECTIONS, &args.request()?).await?, &args.show)?;
            }
            Self::List(listing) => {
                listing.print(CONNECTION, async || items(client, CONNECTIONS).await).await?;
            }
            Self::Remove { name } => {
                client.delete(CONNECTIONS, &DatabaseQuery { name: Some(name.clone()) }).await?;
            }
        }
        Ok(Exit::Ok)
    }
}

impl SetDatabaseArgs {
    fn request(&self) -> Outcome<ConnectionRequest> {
        let password = match self.keep_password {
            true => None,
            false => Some(read_value(&self.password_file)?.trim_end_matches(['\r', '\n']).to_owned()),
        };
        let roots = self.roots.as_ref().map(|path| read_value(path)).transpose()?;
        Ok(ConnectionRequest {
            name: self.name.clone(),
            url: self.url.clone(),
            password,
            tls: Some(name_of(self.tls)),
            roots: roots.map(|roots| roots.to_string()),
            same_database: Some(self.same_database),
        })
    }
}

/// Fetches `path`, and returns the items of a response without pages.
async fn items(client: &Client, path: &str) -> Outcome<Vec<Value>> {
    let listing: api::listing::Listing<Value> = client.fetch(path, &()).await?;
    Ok(listing.items)
}

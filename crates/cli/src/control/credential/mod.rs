//! Credentials: passwords, keys, certificates and other secrets, over the API of CredHub.

mod access;
mod agent;
mod deleted;
mod exec;
mod export;
mod import;
mod lease;
mod record;
mod remote;
mod rotation;
mod store;
mod template;
mod transfer;
mod value;
mod wrap;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use api::credhub::{
    CredentialVersion, CredentialView, Data, DataQuery, FoundCredentials, FoundView, GenerateRequest,
    NamePermissions, NameQuery, PermissionEntry, PermissionRequest, PermissionView, PermissionsQuery,
    RegenerateRequest, SetRequest,
};
use clap::{Args, Subcommand, ValueEnum};
use keys::SecretJson;
use reqwest::Method;
use serde::Serialize;
use serde_json::{Map, Value};

use self::store::{DATA, PERMISSIONS, name_of};
use self::value::{print_value, read_value, show_value, without_field};
use super::input;
use crate::columns;
use crate::configuration::ClientConfiguration;
use crate::connection::{Client, Columns, Output, ServerArgs, ShortListing, document_of, read_as, show_one};
use crate::exit::{Exit, Outcome, Problem};
use crate::memory;
use crate::units;

/// Arguments of `bulla credential`.
#[derive(Args, Debug)]
pub struct CredentialArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// The credential store: https://HOST:8844, or an agent's socket: unix:PATH [default: client.credential_url, else the store of
    /// the local `bulla up`]
    #[arg(long, global = true, value_name = "URL", help_heading = "Server")]
    credential_server: Option<String>,
    #[command(subcommand)]
    command: CredentialCommand,
}

/// Commands of `bulla credential`.
#[derive(Debug, Subcommand)]
enum CredentialCommand {
    /// Show a credential; with --value only its value, for scripts
    Get {
        /// Name of the credential
        name: String,
        /// Only this field of the value: password, private_key
        #[arg(long, short, value_name = "FIELD")]
        key: Option<String>,
        /// Print only the value
        #[arg(long)]
        value: bool,
        /// Show this many of the newest versions
        #[arg(long, value_name = "COUNT", conflicts_with_all = ["key", "value"])]
        versions: Option<u32>,
        #[command(flatten)]
        show: Output,
    },
    /// Set a credential; the value is read from standard input by default
    Set(SetArgs),
    /// Generate a credential
    Generate(GenerateArgs),
    /// Regenerate a credential with its original parameters
    Regenerate {
        /// Name of the credential
        name: String,
        #[command(flatten)]
        show: Output,
    },
    /// Find credentials by name or path, newest first
    #[command(visible_alias = "list")]
    Find {
        /// Only names below this path
        #[arg(long, value_name = "PATH", default_value = "/")]
        path: String,
        /// Only names that contain this text
        #[arg(long, value_name = "TEXT", conflicts_with = "path")]
        like: Option<String>,
        /// Only certificates that expire within this many days
        #[arg(long, value_name = "DAYS")]
        expires_within: Option<u32>,
        #[command(flatten)]
        listing: ShortListing,
    },
    /// Delete a credential and all its versions
    Delete {
        /// Name of the credential
        name: String,
    },
    #[command(flatten)]
    Deleted(deleted::DeletedCommand),
    /// Export credentials to a file, encrypted with a passphrase or to age recipients
    Export(export::ExportArgs),
    /// Import credentials from an export, a file of CredHub's client, or a live CredHub
    Import(import::ImportArgs),
    /// Run a program with credentials in its environment
    Exec(exec::ExecArgs),
    /// Render a template: replace ((/name)) and ((/name.field)) in a file by values
    Template(template::TemplateArgs),
    /// Serve credentials on a Unix socket or with TLS, from a cache that also serves while the store is unavailable
    Agent(agent::AgentArgs),
    /// Credential permissions
    #[command(subcommand)]
    Permission(PermissionCommand),
    /// Automatic rotation of credentials
    #[command(subcommand)]
    Rotation(rotation::RotationCommand),
    /// Dynamic credentials: users that exist at a database until their lease ends
    #[command(subcommand)]
    Lease(lease::LeaseCommand),
    /// Roles: the SQL of dynamic credentials
    #[command(subcommand)]
    Role(lease::RoleCommand),
    /// Connections to the databases of dynamic credentials
    #[command(subcommand)]
    Database(lease::DatabaseCommand),
    /// Create a token that reads a credential once
    Wrap(wrap::WrapArgs),
    /// Read the credential of a one-time token
    Unwrap(wrap::UnwrapArgs),
}

/// Types of credentials that can be set.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum SetType {
    Value,
    Json,
    Password,
    User,
    Certificate,
    Rsa,
    Ssh,
}

/// Types of credentials that can be generated.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum GenerateType {
    Password,
    User,
    Certificate,
    Rsa,
    Ssh,
}

/// Behaviour of `generate` if the credential exists.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Mode {
    /// Keep the value, unless it was generated with other parameters
    Converge,
    /// Keep the value
    NoOverwrite,
    /// Add a new version
    Overwrite,
}

/// Arguments of `bulla credential set`.
#[derive(Args, Debug)]
struct SetArgs {
    /// Name of the credential: /team/database
    name: String,
    /// Type of the credential
    #[arg(long = "type", short = 't', value_enum, value_name = "TYPE", default_value = "value")]
    kind: SetType,
    /// File with the value: text for value and password, JSON for all other types; - for standard input
    #[arg(long, short, value_name = "FILE", default_value = "-")]
    file: PathBuf,
    /// Field of the value, instead of a file; may be repeated: username=ci password=… (visible to other users of this machine)
    #[arg(long = "field", value_name = "NAME=VALUE", value_parser = input::pair, conflicts_with = "file")]
    fields: Vec<(String, String)>,
    /// Lifetime, after which the credential counts as deleted: 1h, 30d
    #[arg(long, value_name = "DURATION", value_parser = units::duration)]
    ttl: Option<Duration>,
    #[command(flatten)]
    show: Output,
}

/// Arguments of `bulla credential generate`.
#[derive(Args, Debug)]
struct GenerateArgs {
    /// Name of the credential: /team/database
    name: String,
    /// Type of the credential
    #[arg(long = "type", short = 't', value_enum, value_name = "TYPE", default_value = "password")]
    kind: GenerateType,
    /// Parameter of the generation; may be repeated: length=40, common_name=a.example, ca=/my-ca, is_ca=true, alternative_names=a,b
    #[arg(long = "with", short = 'w', value_name = "NAME=VALUE", value_parser = input::pair)]
    parameters: Vec<(String, String)>,
    /// Behaviour if the credential exists
    #[arg(long, value_enum, value_name = "MODE", default_value = "converge")]
    mode: Mode,
    /// Lifetime, after which the credential counts as deleted: 1h, 30d
    #[arg(long, value_name = "DURATION", value_parser = units::duration)]
    ttl: Option<Duration>,
    #[command(flatten)]
    show: Output,
}

/// Commands of `bulla credential permission`.
#[derive(Debug, Subcommand)]
enum PermissionCommand {
    /// Grant a permission: uaa-client:TOKEN-NAME, /team/*, read write
    Grant {
        /// Principal: uaa-client:NAME of an API token, user:NAME, mtls-app:ID
        actor: String,
        /// A name, or all names below a path: /team/*
        path: String,
        /// Operations: read, write, delete, read_acl, write_acl
        #[arg(required = true)]
        operations: Vec<String>,
        #[command(flatten)]
        show: Output,
    },
    /// List the permissions for exactly this name or path
    List {
        /// A name, or a path such as /team/*
        path: String,
        #[command(flatten)]
        listing: ShortListing,
    },
    /// List who may access a name, and by which permission or role
    Who(access::WhoArgs),
    /// Revoke a permission
    Revoke {
        /// Principal of the permission
        actor: String,
        /// Name or path of the permission
        path: String,
    },
}

/// Runs a command against the credential store.
pub(crate) async fn run(args: &CredentialArgs, configuration: &ClientConfiguration) -> Outcome<Exit> {
    if !configuration.core_dumps {
        args.command.protect_memory()?;
    }
    let client =
        Client::open_credentials(&args.server, args.credential_server.as_deref(), &configuration.client)?;
    args.command.run(&Arc::new(client)).await
}

impl CredentialCommand {
    /// Disables core dumps, because values pass through this process. A command that starts another program does not change that
    /// program's limits.
    fn protect_memory(&self) -> Outcome<()> {
        match self {
            Self::Exec(_) | Self::Template(_) => memory::protect_self(),
            _ => memory::protect(),
        }
    }

    async fn run(&self, client: &Arc<Client>) -> Outcome<Exit> {
        match self {
            Self::Get { name, key, value, versions, show } => {
                get(client, name, key.as_deref(), *value, *versions, show).await
            }
            Self::Set(args) => {
                let request = SetRequest {
                    name: args.name.clone(),
                    kind: name_of(args.kind),
                    value: args.value()?,
                    metadata: None,
                    ttl_seconds: args.ttl.map(units::seconds),
                };
                make(client, (Method::PUT, DATA), &request, &args.show).await
            }
            Self::Generate(args) => make(client, (Method::POST, DATA), &args.request(), &args.show).await,
            Self::Regenerate { name, show } => {
                let request = RegenerateRequest { name: name.clone(), ..RegenerateRequest::default() };
                make(client, (Method::POST, "/api/v1/regenerate"), &request, show).await
            }
            Self::Find { path, like, expires_within, listing } => {
                find(client, path, like.as_deref(), *expires_within, listing).await
            }
            Self::Delete { name } => {
                client.delete(DATA, &NameQuery::of(name)).await?;
                Ok(Exit::Ok)
            }
            Self::Deleted(command) => command.run(client).await,
            Self::Exec(args) => args.run(client).await,
            Self::Template(args) => args.run(client).await,
            Self::Agent(args) => args.run(client).await,
            Self::Permission(command) => command.run(client).await,
            Self::Export(args) => args.run(client).await,
            Self::Import(args) => args.run(client).await,
            Self::Rotation(command) => command.run(client).await,
            Self::Lease(command) => command.run(client).await,
            Self::Role(command) => command.run(client).await,
            Self::Database(command) => command.run(client).await,
            Self::Wrap(args) => args.run(client).await,
            Self::Unwrap(args) => args.run(client).await,
        }
    }
}

/// Sets or generates a version, and prints it without its value, which could stay visible in the terminal.
async fn make(
    client: &Client,
    (method, path): (Method, &str),
    request: &impl Serialize,
    show: &Output,
) -> Outcome<Exit> {
    let made: CredentialVersion = read_as(&client.submit(method, path, request).await?)?;
    show_one(&document_of(&made)?, show)?;
    Ok(Exit::Ok)
}

async fn get(
    client: &Client,
    name: &str,
    key: Option<&str>,
    value: bool,
    versions: Option<u32>,
    show: &Output,
) -> Outcome<Exit> {
    let query = match versions {
        Some(count) => DataQuery::versions(name, Some(count)),
        None => DataQuery::current(name),
    };
    let Data::<CredentialView<SecretJson>> { data } = client.fetch(DATA, &query).await?;
    if versions.is_some() {
        for one in &data {
            show_value(&one.version.kind, one, show)?;
        }
        return Ok(Exit::Ok);
    }
    match data.first() {
        Some(first) if !value && key.is_none() => show_value(&first.version.kind, first, show),
        Some(first) => print_value(&first.value, key, name),
        None => Err(without_field(key, name)),
    }
}

impl SetArgs {
    fn value(&self) -> Outcome<SecretJson> {
        if !self.fields.is_empty() {
            let fields = self.fields.iter().map(|(name, value)| (name.clone(), value.clone().into()));
            return Ok(Value::Object(fields.collect::<Map<_, _>>()).into());
        }
        let text = read_value(&self.file)?;
        match self.kind {
            SetType::Value | SetType::Password => {
                let text = text.strip_suffix('\n').unwrap_or(&text).trim_end_matches('\r');
                Ok(Value::from(text).into())
            }
            _ => serde_json::from_str(&text).map_err(|error| {
                Problem::usage(format_args!("the value is not JSON: {error}"))
                    .hint("a user is {\"username\": …, \"password\": …}; or give --field NAME=VALUE")
            }),
        }
    }
}

impl GenerateArgs {
    fn request(&self) -> GenerateRequest {
        let lists = ["alternative_names", "key_usage", "extended_key_usage"];
        let read = |name: &str, value: &str| -> Value {
            if lists.contains(&name) {
                return value.split(',').map(|part| Value::from(part.trim())).collect();
            }
            match value {
                "true" => true.into(),
                "false" => false.into(),
                _ => value.parse::<u32>().map_or_else(|_| value.into(), Value::from),
            }
        };
        let parameters: Map<String, Value> =
            self.parameters.iter().map(|(name, value)| (name.clone(), read(name, value))).collect();
        GenerateRequest {
            name: self.name.clone(),
            kind: name_of(self.kind),
            mode: Some(name_of(self.mode)),
            parameters: Some(Value::Object(parameters)),
            ttl_seconds: self.ttl.map(units::seconds),
            ..GenerateRequest::default()
        }
    }
}

const FOUND: Columns =
    columns!(FoundView: ("Name", name), ("Newest version", version_created_at), ("Ends", expiry_date));

async fn find(
    client: &Client,
    path: &str,
    like: Option<&str>,
    days: Option<u32>,
    listing: &ShortListing,
) -> Outcome<Exit> {
    let query = DataQuery {
        path: like.is_none().then(|| path.to_owned()),
        name_like: like.map(str::to_owned),
        expires_within_days: days.map(|days| days.to_string()),
        ..DataQuery::default()
    };
    let fetch = async || {
        let found: FoundCredentials<Value> = client.fetch(DATA, &query).await?;
        Ok(found.credentials)
    };
    listing.print(FOUND, fetch).await?;
    Ok(Exit::Ok)
}

impl PermissionCommand {
    async fn run(&self, client: &Client) -> Outcome<Exit> {
        const GRANTED: Columns =
            columns!(PermissionEntry: ("Actor", actor), ("Path", path), ("Operations", operations));
        match self {
            Self::Grant { actor, path, operations, show } => {
                let operations = operations.iter().flat_map(|list| list.split(','));
                let request = PermissionRequest {
                    actor: actor.clone(),
                    path: path.clone(),
                    operations: operations.filter(|one| !one.is_empty()).map(str::to_owned).collect(),
                    uuid: None,
                };
                show_one(&client.submit(Method::POST, PERMISSIONS, &request).await?, show)?;
                Ok(Exit::Ok)
            }
            Self::List { path, listing } => {
                let query =
                    PermissionsQuery { credential_name: Some(path.clone()), ..PermissionsQuery::default() };
                let fetch = async || {
                    let all: NamePermissions<Value> = client.fetch("/api/v1/permissions", &query).await?;
                    Ok(all.permissions.unwrap_or_default())
                };
                listing.print(GRANTED, fetch).await?;
                Ok(Exit::Ok)
            }
            Self::Who(args) => args.run(client).await,
            Self::Revoke { actor, path } => {
                let query = PermissionsQuery {
                    actor: Some(actor.clone()),
                    path: Some(path.clone()),
                    ..PermissionsQuery::default()
                };
                let PermissionView { uuid, .. } = client.fetch(PERMISSIONS, &query).await?;
                client.delete(&format!("{PERMISSIONS}/{uuid}"), &()).await?;
                Ok(Exit::Ok)
            }
        }
    }
}

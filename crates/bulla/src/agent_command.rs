//! `bulla agent`: this host as an agent, and the agents of a server.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};
use keys::Secret;
use lifecycle::agents::client::{
    Agent, AgentRunError, AgentStatus, ApiError, JoinError, JoinOptions, STATE_FOLDER,
};
use reqwest::Method;
use serde_json::{Map, Value, json};
use store::Clock;
use uuid::Uuid;
use x509::Fingerprint;

use crate::api::{Client, Columns, Listing, Output, ServerArgs, show_one};
use crate::cli::Global;
use crate::config::Configuration;
use crate::control::{self, Document, DocumentCommand, Noun};
use crate::exit::{Exit, Outcome, Problem, chain};
use crate::units;

/// Holds an enrolment token, for those who do not want it in the list of processes.
const TOKEN_VARIABLE: &str = "BULLA_ENROLL_TOKEN";
/// A stop lets deployments under way finish: reloading a server and looking at it takes some seconds.
const GRACE: Duration = Duration::from_secs(65);
/// How long a new token holds when nothing is said.
const TOKEN_LIFETIME: &str = "1h";

const AGENTS: Columns = &[
    ("Name", "/name"),
    ("Online", "/online"),
    ("Last seen", "/last_seen_at"),
    ("Labels", "/labels"),
    ("Host", "/hostname"),
    ("Version", "/version"),
    ("Id", "/id"),
];

const TOKENS: Columns = &[
    ("Made", "/created_at"),
    ("By", "/created_by"),
    ("Ends", "/expires_at"),
    ("Used", "/used_at"),
    ("Agent", "/agent"),
    ("Labels", "/labels"),
    ("Id", "/id"),
];

/// `bulla agent`
#[derive(Args, Debug)]
pub(crate) struct AgentArgs {
    #[command(subcommand)]
    command: AgentCommand,
}

/// What to do with agents. The first four are done on an agent's host, the others over a server's API.
#[derive(Debug, Subcommand)]
enum AgentCommand {
    /// Make this host an agent of a server: makes a key here, and gets a client certificate for it
    Enroll(EnrollArgs),
    /// Work as an agent until stopped: make keys, deploy certificates
    Run(FolderArgs),
    /// Do what there is to do now, and end
    WorkOnce(FolderArgs),
    /// What this host's agent is and what it has deployed
    Status(StatusArgs),
    /// List the agents of a server
    List(ListArgs),
    /// Show an agent of a server
    Show(ShowArgs),
    /// Change an agent's name or labels
    Update(UpdateArgs),
    /// Retire an agent: it gets no more work and is not let in any more
    Retire(RetireArgs),
    /// Make an enrolment token; it is shown this once, and makes one host an agent
    Token(TokenArgs),
    /// List the enrolment tokens
    Tokens(TokensArgs),
    /// Take an enrolment token back
    RevokeToken(RetireArgs),
    /// Groups of agents, by their labels
    Group(Noun<DocumentCommand<GroupDocument>>),
}

/// Groups of agents.
#[derive(Debug)]
struct GroupDocument;

impl Document for GroupDocument {
    const PATH: &'static str = "/api/v1/agent-groups";
    const COLUMNS: Columns = &[("Name", "/name"), ("Selector", "/selector"), ("Description", "/description")];
    const REPLACE: Method = Method::PUT;
}

/// `bulla agent enroll`
#[derive(Args, Debug)]
struct EnrollArgs {
    /// The server
    #[arg(long, value_name = "URL")]
    server: String,
    /// The enrolment token
    #[arg(long, value_name = "TOKEN", env = TOKEN_VARIABLE, hide_env_values = true)]
    token: String,
    /// File of certificates to trust for the server (PEM) [default: this host's roots]
    #[arg(long, value_name = "FILE", conflicts_with = "ca_sha256")]
    ca: Option<PathBuf>,
    /// SHA-256 of the server's certificate, or of an authority's above it that it sends
    #[arg(long, value_name = "FINGERPRINT")]
    ca_sha256: Option<Fingerprint>,
    /// The agent's name [default: this host's]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    folder: FolderArgs,
    #[command(flatten)]
    show: Output,
}

/// Where the agent keeps what it has.
#[derive(Args, Debug)]
struct FolderArgs {
    /// The agent's folder; only its owner may enter it
    #[arg(long, value_name = "FOLDER", env = "BULLA_AGENT_STATE", default_value = STATE_FOLDER)]
    state: PathBuf,
}

/// `bulla agent status`
#[derive(Args, Debug)]
struct StatusArgs {
    #[command(flatten)]
    folder: FolderArgs,
    #[command(flatten)]
    show: Output,
}

/// `bulla agent list`
#[derive(Args, Debug)]
struct ListArgs {
    /// Labels they must have: name=value, separated by commas
    #[arg(long, value_name = "LABELS")]
    labels: Option<String>,
    /// Those of a group
    #[arg(long, value_name = "NAME")]
    group: Option<String>,
    /// Only those online
    #[arg(long, conflicts_with = "offline")]
    online: bool,
    /// Only those offline
    #[arg(long)]
    offline: bool,
    /// Retired ones too
    #[arg(long)]
    retired: bool,
    #[command(flatten)]
    listing: Listing,
    #[command(flatten)]
    server: ServerArgs,
}

/// `bulla agent show`
#[derive(Args, Debug)]
struct ShowArgs {
    /// Its id
    id: Uuid,
    #[command(flatten)]
    show: Output,
    #[command(flatten)]
    server: ServerArgs,
}

/// `bulla agent update`
#[derive(Args, Debug)]
struct UpdateArgs {
    /// Its id
    id: Uuid,
    /// Another name
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Labels in place of all: name=value, may be repeated
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = label)]
    labels: Vec<(String, String)>,
    #[command(flatten)]
    show: Output,
    #[command(flatten)]
    server: ServerArgs,
}

/// `bulla agent retire`, `bulla agent revoke-token`
#[derive(Args, Debug)]
struct RetireArgs {
    /// Its id
    id: Uuid,
    #[command(flatten)]
    server: ServerArgs,
}

/// `bulla agent token`
#[derive(Args, Debug)]
struct TokenArgs {
    /// A label for the agent: name=value, may be repeated
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = label)]
    labels: Vec<(String, String)>,
    /// How long it holds
    #[arg(long, value_name = "DURATION", value_parser = units::duration, default_value = TOKEN_LIFETIME)]
    lifetime: Duration,
    #[command(flatten)]
    show: Output,
    #[command(flatten)]
    server: ServerArgs,
}

/// `bulla agent tokens`
#[derive(Args, Debug)]
struct TokensArgs {
    #[command(flatten)]
    listing: Listing,
    #[command(flatten)]
    server: ServerArgs,
}

fn label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("give name=value".to_owned()),
    }
}

/// Runs `bulla agent`.
pub(crate) async fn run(args: &AgentArgs, global: &Global) -> Outcome<Exit> {
    let client = |server: &ServerArgs| {
        let configuration = Configuration::load(global.config.as_deref())?;
        Client::open(server, &configuration)
    };
    match &args.command {
        AgentCommand::Enroll(args) => return enroll(args).await,
        AgentCommand::Run(args) => return work(&args.state).await,
        AgentCommand::WorkOnce(args) => return work_once(&args.state).await,
        AgentCommand::Status(args) => return status(args),
        AgentCommand::Group(noun) => return control::run(noun, global).await,
        AgentCommand::List(args) => list(&client(&args.server)?, args).await?,
        AgentCommand::Show(args) => {
            show_one(&client(&args.server)?.get(&agent(args.id), &[]).await?, &args.show)?;
        }
        AgentCommand::Update(args) => update(&client(&args.server)?, args).await?,
        AgentCommand::Retire(args) => {
            let path = format!("{}/retire", agent(args.id));
            client(&args.server)?.send(Method::POST, &path, None).await?;
        }
        AgentCommand::Token(args) => token(&client(&args.server)?, args).await?,
        AgentCommand::Tokens(args) => {
            args.listing.print(&client(&args.server)?, "/api/v1/agent-tokens", &[], TOKENS).await?;
        }
        AgentCommand::RevokeToken(args) => {
            let path = format!("/api/v1/agent-tokens/{}", args.id);
            client(&args.server)?.send(Method::DELETE, &path, None).await?;
        }
    }
    Ok(Exit::Ok)
}

fn agent(id: Uuid) -> String {
    format!("/api/v1/agents/{id}")
}

async fn list(client: &Client, args: &ListArgs) -> Outcome<()> {
    let mut query: Vec<(&str, String)> = Vec::new();
    query.extend(args.labels.clone().map(|labels| ("labels", labels)));
    query.extend(args.group.clone().map(|group| ("group", group)));
    if args.online || args.offline {
        query.push(("online", args.online.to_string()));
    }
    if args.retired {
        query.push(("retired", "true".to_owned()));
    }
    args.listing.print(client, "/api/v1/agents", &query, AGENTS).await
}

async fn update(client: &Client, args: &UpdateArgs) -> Outcome<()> {
    if args.name.is_none() && args.labels.is_empty() {
        return Err(Problem::usage("there is nothing to change").hint("give --name or --label"));
    }
    let mut body = Map::new();
    if let Some(name) = &args.name {
        body.insert("name".to_owned(), name.as_str().into());
    }
    if !args.labels.is_empty() {
        body.insert("labels".to_owned(), labels(&args.labels));
    }
    let changed = client.send(Method::PATCH, &agent(args.id), Some(&Value::Object(body))).await?;
    show_one(&changed, &args.show)
}

async fn token(client: &Client, args: &TokenArgs) -> Outcome<()> {
    let body = json!({ "labels": labels(&args.labels), "seconds": args.lifetime.as_secs() });
    let made = client.send(Method::POST, "/api/v1/agent-tokens", Some(&body)).await?;
    show_one(&made, &args.show)
}

fn labels(pairs: &[(String, String)]) -> Value {
    pairs
        .iter()
        .map(|(name, value)| (name.clone(), Value::from(value.as_str())))
        .collect::<Map<_, _>>()
        .into()
}

async fn enroll(args: &EnrollArgs) -> Outcome<Exit> {
    let ca_pem = args.ca.as_deref().map(read).transpose()?;
    let options = JoinOptions {
        server: args.server.clone(),
        token: Secret::new(args.token.trim()),
        ca_pem,
        ca_sha256: args.ca_sha256,
        name: args.name.clone(),
        state: args.folder.state.clone(),
    };
    let enrolled = Agent::enroll(&options).await.map_err(|error| failed(&error))?;
    show(&enrolled, &args.show)?;
    eprintln!("enrolled: now run `bulla agent run`, as a service of this host");
    Ok(Exit::Ok)
}

async fn work(state: &Path) -> Outcome<Exit> {
    let stop = crate::stop::on_signal_within(GRACE)?;
    let mut agent = Agent::open(state, Clock::system()).await.map_err(|error| failed(&error))?;
    tracing::info!(agent = agent.name(), "works");
    agent.run(stop).await.map_err(|error| failed(&error))?;
    Ok(Exit::Ok)
}

async fn work_once(state: &Path) -> Outcome<Exit> {
    let mut agent = Agent::open(state, Clock::system()).await.map_err(|error| failed(&error))?;
    let worked = agent.work_once().await.map_err(|error| failed(&error))?;
    eprintln!("{} jobs done, {} failed", worked.done, worked.failed);
    Ok(if worked.failed == 0 { Exit::Ok } else { Exit::Incomplete })
}

fn status(args: &StatusArgs) -> Outcome<Exit> {
    let state = &args.folder.state;
    let found = Agent::status(state).map_err(|error| failed(&error))?;
    let found = found.ok_or_else(|| failed(&AgentRunError::NotEnrolled(state.clone())))?;
    show(&found, &args.show)?;
    Ok(Exit::Ok)
}

fn show(status: &AgentStatus, output: &Output) -> Outcome<()> {
    let certificates: Vec<Value> = status
        .certificates
        .iter()
        .map(|held| {
            json!({ "name": held.name, "names": held.names, "fingerprint": held.fingerprint,
                    "expires_at": units::rfc3339(held.not_after), "certificate": held.certificate })
        })
        .collect();
    let document = json!({
        "agent": status.agent,
        "name": status.name,
        "server": status.server,
        "certificate_expires_at": units::rfc3339(status.certificate_not_after),
        "deployments_cut_off": status.cut_off,
        "certificates": certificates,
    });
    show_one(&document, output)
}

pub(crate) fn read(path: &Path) -> Outcome<String> {
    std::fs::read_to_string(path).map_err(|error| {
        Problem::usage(format_args!("cannot read {}: {error}", path.display()))
            .hint("give --ca a file of certificates in PEM")
    })
}

/// Whose turn it is, and what to do.
fn failed(error: &AgentRunError) -> Problem {
    let (exit, hint) = match error {
        AgentRunError::NotEnrolled(_) => (Exit::Usage, "make a token on the server: `bulla agent token`"),
        AgentRunError::Enrolled { .. } => (Exit::Usage, "to work as that agent: `bulla agent run`"),
        AgentRunError::Join(error) => return not_joined(error, "bulla agent token"),
    };
    Problem::new(exit, chain(error)).hint(hint)
}

/// Why a host did not join, or cannot go on; `token` is the command that makes another token.
pub(crate) fn not_joined(error: &JoinError, token: &str) -> Problem {
    let (exit, hint) = match error {
        JoinError::Server(_) => (Exit::Usage, "correct the server's address"),
        JoinError::Trust(_) => (Exit::Usage, "correct --ca or --ca-sha256"),
        JoinError::Identity(_) => (Exit::Machine, "remove the folder and join anew with another token"),
        JoinError::State(_) => (Exit::Machine, "run as root, or with --state FOLDER as another user"),
        JoinError::Api(ApiError::Refused { .. }) => {
            let hint = format!("a token is good once and for a while: make another with `{token}`");
            return Problem::new(Exit::Refused, chain(error)).hint(hint);
        }
        JoinError::Api(_) => {
            (Exit::Server, "check the address, and what the server is trusted by: --ca or --ca-sha256")
        }
    };
    Problem::new(exit, chain(error)).hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_pairs() {
        assert_eq!(label("env=prod"), Ok(("env".to_owned(), "prod".to_owned())));
        assert_eq!(label("env="), Ok(("env".to_owned(), String::new())));
        assert!(label("env").is_err() && label("=x").is_err());
        let pairs = [("a".to_owned(), "1".to_owned()), ("b".to_owned(), "2".to_owned())];
        assert_eq!(labels(&pairs), json!({"a": "1", "b": "2"}));
    }

    #[test]
    fn whose_turn_it_is_shows_in_the_exit_code() {
        let refused = ApiError::Refused {
            server: "https://a".to_owned(),
            status: 401,
            reason: "no".to_owned(),
            retry_after: None,
        };
        assert_eq!(failed(&refused.into()).exit, Exit::Refused);
        let away = ApiError::Away { server: "https://a".to_owned(), reason: "gone".to_owned() };
        assert_eq!(failed(&away.into()).exit, Exit::Server);
        assert_eq!(failed(&AgentRunError::NotEnrolled(PathBuf::new())).exit, Exit::Usage);
    }
}

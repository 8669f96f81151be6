//! The agents of a server.

use std::time::Duration;

use api::agents::{AgentGroupView, AgentPatch, AgentTokenView, AgentView, AgentsQuery, NewAgentToken};
use clap::{Args, Subcommand};
use reqwest::Method;

use super::document::{Document, DocumentCommand, Key};
use super::input;
use super::noun::{self, Noun};
use crate::columns;
use crate::configuration::ClientSettings;
use crate::connection::{Client, Columns, Listing, Output, ServerArgs, path_of, show_one};
use crate::exit::{Exit, Outcome, Problem};
use crate::units;

/// Default lifetime of a new enrolment token.
const TOKEN_LIFETIME: &str = "1h";

const AGENTS: Columns = columns!(
    AgentView:
    ("Name", name),
    ("Online", online),
    ("Last seen", last_seen_at),
    ("Labels", labels),
    ("Host", hostname),
    ("Version", version),
    ("Id", id),
);

const TOKENS: Columns = columns!(
    AgentTokenView:
    ("Made", created_at),
    ("By", created_by),
    ("Ends", expires_at),
    ("Used", used_at),
    ("Agent", agent),
    ("Labels", labels),
    ("Id", id),
);

/// Commands for the agents of a server.
#[derive(Debug, Subcommand)]
pub enum AgentServerCommand {
    /// List agents
    List(ListArgs),
    /// Show an agent
    Show(ShowArgs),
    /// Change an agent's name or labels
    Update(UpdateArgs),
    /// Retire an agent: it gets no more work and can no longer connect
    Retire(RetireArgs),
    /// Create an enrolment token, shown only once, with which one host becomes an agent
    Token(TokenArgs),
    /// List the enrolment tokens
    Tokens(TokensArgs),
    /// Revoke an enrolment token
    RevokeToken(RetireArgs),
    /// Groups of agents, by their labels
    Group(Noun<DocumentCommand<GroupDocument>>),
}

/// Groups of agents, for the generic commands of `DocumentCommand`.
#[derive(Debug)]
pub struct GroupDocument;

impl Document for GroupDocument {
    const ONE: &'static str = "group of agents";
    const MANY: &'static str = "groups of agents";
    const PATH: &'static str = "/api/v1/agent-groups";
    const KEY: Key = Key::Name;
    const COLUMNS: Columns =
        columns!(AgentGroupView: ("Name", name), ("Selector", selector), ("Description", description));
    const REPLACE: Method = Method::PUT;
}

/// Arguments of `bulla agent list`.
#[derive(Args, Debug)]
pub struct ListArgs {
    /// Only agents with these labels: name=value, separated by commas
    #[arg(long, value_name = "LABELS")]
    labels: Option<String>,
    /// Only agents of this group
    #[arg(long, value_name = "NAME")]
    group: Option<String>,
    /// Only online agents
    #[arg(long, conflicts_with = "offline")]
    online: bool,
    /// Only offline agents
    #[arg(long)]
    offline: bool,
    /// Include retired agents
    #[arg(long)]
    retired: bool,
    #[command(flatten)]
    listing: Listing,
    #[command(flatten)]
    server: ServerArgs,
}

/// Arguments of `bulla agent show`.
#[derive(Args, Debug)]
pub struct ShowArgs {
    /// Name or id of the agent
    id: String,
    #[command(flatten)]
    show: Output,
    #[command(flatten)]
    server: ServerArgs,
}

/// Arguments of `bulla agent update`.
#[derive(Args, Debug)]
pub struct UpdateArgs {
    /// Name or id of the agent
    id: String,
    /// New name
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Replace all labels by these: name=value, may be repeated
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = label)]
    labels: Vec<(String, String)>,
    #[command(flatten)]
    show: Output,
    #[command(flatten)]
    server: ServerArgs,
}

/// Arguments of `bulla agent retire` and `bulla agent revoke-token`.
#[derive(Args, Debug)]
pub struct RetireArgs {
    /// Name or id of the agent, or id of the token
    id: String,
    #[command(flatten)]
    server: ServerArgs,
}

/// Arguments of `bulla agent token`.
#[derive(Args, Debug)]
pub struct TokenArgs {
    /// A label for the agent: name=value, may be repeated
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = label)]
    labels: Vec<(String, String)>,
    /// Lifetime of the token
    #[arg(long, value_name = "DURATION", value_parser = units::duration, default_value = TOKEN_LIFETIME)]
    lifetime: Duration,
    #[command(flatten)]
    show: Output,
    #[command(flatten)]
    server: ServerArgs,
}

/// Arguments of `bulla agent tokens`.
#[derive(Args, Debug)]
pub struct TokensArgs {
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

impl AgentServerCommand {
    /// Runs the command against the server that its flags and the configuration name.
    pub async fn run(&self, settings: &ClientSettings) -> Outcome<Exit> {
        let client = |server: &ServerArgs| Client::open(server, settings);
        match self {
            Self::Group(noun) => return noun::run(noun, settings).await,
            Self::List(args) => list(&client(&args.server)?, args).await?,
            Self::Show(args) => {
                let client = client(&args.server)?;
                show_one(&client.get(&agent(&client, &args.id).await?, &()).await?, &args.show)?;
            }
            Self::Update(args) => update(&client(&args.server)?, args).await?,
            Self::Retire(args) => {
                let client = client(&args.server)?;
                let path = format!("{}/retire", agent(&client, &args.id).await?);
                client.send(Method::POST, &path, None).await?;
            }
            Self::Token(args) => token(&client(&args.server)?, args).await?,
            Self::Tokens(args) => {
                args.listing.print(&client(&args.server)?, "/api/v1/agent-tokens", &(), TOKENS).await?;
            }
            Self::RevokeToken(args) => {
                let path = format!("/api/v1/agent-tokens/{}", input::segment(&args.id));
                client(&args.server)?.send(Method::DELETE, &path, None).await?;
            }
        }
        Ok(Exit::Ok)
    }
}

async fn agent(client: &Client, given: &str) -> Outcome<String> {
    path_of(client, "/api/v1/agents", "agent", given).await
}

async fn list(client: &Client, args: &ListArgs) -> Outcome<()> {
    let query = AgentsQuery {
        labels: args.labels.clone(),
        group: args.group.clone(),
        online: (args.online || args.offline).then_some(args.online),
        retired: args.retired,
    };
    args.listing.print(client, "/api/v1/agents", &query, AGENTS).await
}

async fn update(client: &Client, args: &UpdateArgs) -> Outcome<()> {
    if args.name.is_none() && args.labels.is_empty() {
        return Err(Problem::usage("no change given").hint("give --name or --label"));
    }
    let labels = (!args.labels.is_empty()).then(|| args.labels.iter().cloned().collect());
    let patch = AgentPatch { name: args.name.clone(), labels };
    let changed = client.submit(Method::PATCH, &agent(client, &args.id).await?, &patch).await?;
    show_one(&changed, &args.show)
}

async fn token(client: &Client, args: &TokenArgs) -> Outcome<()> {
    let seconds = units::whole_seconds(args.lifetime);
    let new = NewAgentToken { labels: args.labels.iter().cloned().collect(), seconds: Some(seconds) };
    let made = client.submit(Method::POST, "/api/v1/agent-tokens", &new).await?;
    show_one(&made, &args.show)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_is_parsed_as_a_key_value_pair() {
        assert_eq!(label("env=prod"), Ok(("env".to_owned(), "prod".to_owned())));
        assert_eq!(label("env="), Ok(("env".to_owned(), String::new())));
        assert!(label("env").is_err() && label("=x").is_err());
    }
}

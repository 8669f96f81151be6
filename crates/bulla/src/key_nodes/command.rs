//! The commands for sites, and for the nodes of the key service at them.

use std::time::Duration;

use clap::{Args, Subcommand};
use cli::api::{Client, Columns, Listing, Output, show_one};
use cli::control::{Run, confirm, pair, segment};
use cli::exit::{Outcome, Problem};
use cli::units;
use reqwest::Method;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::policy_effect::{Policies, nodes_of};

const SITES: &str = "/api/v1/key-sites";
const NODES: &str = "/api/v1/key-nodes";
const TOKENS: &str = "/api/v1/key-node-tokens";
/// How long a new token holds when nothing is said.
const TOKEN_LIFETIME: &str = "1h";

/// Sites.
#[derive(Debug, Subcommand)]
pub(crate) enum SiteCommand {
    /// Make one
    Create {
        /// Its name
        name: String,
        /// What is so at all its nodes: country=DE; may be repeated
        #[arg(long = "attribute", value_name = "NAME=VALUE", value_parser = pair)]
        attributes: Vec<(String, String)>,
        #[command(flatten)]
        show: Output,
    },
    /// List them
    List(Listing),
    /// Show one
    Show {
        /// Its name or id
        name: String,
        #[command(flatten)]
        show: Output,
    },
    /// Change one; its nodes have the new attributes within a second
    Update(SiteChange),
    /// Remove one at which no node is
    Delete {
        /// Its name or id
        name: String,
    },
}

/// A site's change.
#[derive(Args, Debug)]
pub(crate) struct SiteChange {
    /// Its name or id
    name: String,
    /// Another name
    #[arg(long, value_name = "NAME")]
    rename: Option<String>,
    /// An attribute beside those that it has, or another value for one: country=DE; may be repeated
    #[arg(long = "attribute", value_name = "NAME=VALUE", value_parser = pair)]
    attributes: Vec<(String, String)>,
    /// An attribute to take away; may be repeated
    #[arg(long = "without", value_name = "NAME")]
    without: Vec<String>,
    /// Do not ask
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    show: Output,
}

impl SiteChange {
    /// The site as it is to be.
    fn body(&self, before: &Value) -> Value {
        let mut attributes = before.get("attributes").and_then(Value::as_object).cloned().unwrap_or_default();
        attributes.retain(|name, _| !self.without.contains(name));
        attributes.extend(pairs(&self.attributes));
        let name = self.rename.as_deref().map_or_else(|| before["name"].clone(), Value::from);
        json!({ "name": name, "attributes": attributes })
    }

    async fn make(&self, client: &Client) -> Outcome<()> {
        if self.rename.is_none() && self.attributes.is_empty() && self.without.is_empty() {
            return Err(Problem::usage("there is nothing to change")
                .hint("give --attribute NAME=VALUE, --without NAME or --rename NAME"));
        }
        let to_be = async |before: &Value| {
            let after = self.body(before);
            // A name opens nothing.
            if !self.yes && before["attributes"] != after["attributes"] {
                self.ask(client, before, &after).await?;
            }
            Ok(after)
        };
        show_one(&client.change(&site(&self.name), to_be).await?, &self.show)
    }

    /// Shows who may open what from then on, and asks.
    async fn ask(&self, client: &Client, before: &Value, after: &Value) -> Outcome<()> {
        let name = before["name"].as_str().unwrap_or_default();
        let nodes = nodes_of(client, NODES, name).await?;
        eprintln!("{} nodes at the site {name}", nodes.len());
        match Policies::read(client).await? {
            Some(policies) => {
                let lines = policies.moved(&nodes, &before["attributes"], &after["attributes"]);
                lines.iter().for_each(|line| eprintln!("  {line}"));
                if lines.is_empty() {
                    eprintln!("  the same policies are open to them as before");
                }
            }
            None => eprintln!("  which policies gain or lose them is not shown: that needs key_policy.read"),
        }
        confirm(&format!("Change the site {name:?}?"), false)
    }
}

impl Run for SiteCommand {
    async fn run(&self, client: &Client) -> Outcome<()> {
        const COLUMNS: Columns =
            &[("Name", "/name"), ("Attributes", "/attributes"), ("Changed", "/updated_at"), ("Id", "/id")];
        match self {
            Self::Create { name, attributes, show } => {
                let body = json!({ "name": name, "attributes": pairs(attributes) });
                show_one(&client.send(Method::POST, SITES, Some(&body)).await?, show)
            }
            Self::List(listing) => listing.print(client, SITES, &[], COLUMNS).await,
            Self::Show { name, show } => show_one(&client.get(&site(name), &[]).await?, show),
            Self::Update(change) => change.make(client).await,
            Self::Delete { name } => client.send(Method::DELETE, &site(name), None).await.map(drop),
        }
    }
}

/// Nodes.
#[derive(Debug, Subcommand)]
pub(crate) enum NodeCommand {
    /// Make a token; it is shown this once, and makes one host a node at a site
    Token {
        /// The site
        #[arg(long, value_name = "SITE")]
        site: String,
        /// What is so of this node alone, over its site's attributes: security=high; may be repeated
        #[arg(long = "attribute", value_name = "NAME=VALUE", value_parser = pair)]
        attributes: Vec<(String, String)>,
        /// How long it holds
        #[arg(long, value_name = "DURATION", value_parser = units::duration, default_value = TOKEN_LIFETIME)]
        ttl: Duration,
        #[command(flatten)]
        show: Output,
    },
    /// List the tokens
    Tokens(Listing),
    /// Take a token back
    RevokeToken {
        /// Its id
        id: Uuid,
    },
    /// List the nodes
    List {
        /// Those of a site
        #[arg(long, value_name = "SITE")]
        site: Option<String>,
        /// Retired ones too
        #[arg(long)]
        retired: bool,
        #[command(flatten)]
        listing: Listing,
    },
    /// Show one
    Show {
        /// Its name or id
        name: String,
        #[command(flatten)]
        show: Output,
    },
    /// Retire one: it is not let in any more, and the others are told that it is gone
    Retire {
        /// Its name or id
        name: String,
        /// It is not trusted any more, and neither is what was open to it: the policies of which it could open keys are
        /// rotated, which is shown first
        #[arg(long)]
        hostile: bool,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
}

impl Run for NodeCommand {
    async fn run(&self, client: &Client) -> Outcome<()> {
        const COLUMNS: Columns = &[
            ("Name", "/name"),
            ("Site", "/site"),
            ("Present", "/present"),
            ("Attributes", "/attributes"),
            ("Address", "/address"),
            ("Enrolled", "/enrolled_at"),
            ("Retired", "/retired_at"),
            ("Id", "/id"),
        ];
        const TOKEN_COLUMNS: Columns = &[
            ("Made", "/created_at"),
            ("By", "/created_by"),
            ("Ends", "/expires_at"),
            ("Used", "/used_at"),
            ("Node", "/node"),
            ("Site", "/site"),
            ("Attributes", "/attributes"),
            ("Id", "/id"),
        ];
        let one = |name: &str| format!("{NODES}/{}", segment(name));
        match self {
            Self::Token { site, attributes, ttl, show } => {
                let body = json!({ "site": site, "attributes": pairs(attributes), "seconds": ttl.as_secs() });
                show_one(&client.send(Method::POST, TOKENS, Some(&body)).await?, show)
            }
            Self::Tokens(listing) => listing.print(client, TOKENS, &[], TOKEN_COLUMNS).await,
            Self::RevokeToken { id } => {
                client.send(Method::DELETE, &format!("{TOKENS}/{id}"), None).await.map(drop)
            }
            Self::List { site, retired, listing } => {
                let mut query: Vec<_> = site.iter().map(|site| ("site", site.clone())).collect();
                if *retired {
                    query.push(("retired", "true".to_owned()));
                }
                listing.print(client, NODES, &query, COLUMNS).await
            }
            Self::Show { name, show } => show_one(&client.get(&one(name), &[]).await?, show),
            Self::Retire { name, hostile, yes } => {
                if *hostile && !yes {
                    ask_of_hostile(client, &client.get(&one(name), &[]).await?).await?;
                }
                let body = json!({ "hostile": hostile });
                client.send(Method::POST, &format!("{}/retire", one(name)), Some(&body)).await.map(drop)
            }
        }
    }
}

/// Shows what is not trusted any more with a node, and asks.
async fn ask_of_hostile(client: &Client, node: &Value) -> Outcome<()> {
    let text = |member: &str| node[member].as_str().unwrap_or_default();
    let (name, at) = (text("name"), text("site"));
    eprintln!("the node {name} at {at} is let in no more, and what was open to it is not trusted");
    match Policies::read(client).await? {
        Some(policies) => match policies.open_to(&node["attributes"]).as_slice() {
            [] => eprintln!("  no policy is open to it now"),
            open => eprintln!("  rotated, with all keys sealed to them: {}", open.join(", ")),
        },
        None => eprintln!("  which policies are rotated is not shown: that needs key_policy.read"),
    }
    confirm(&format!("Retire the node {name:?} as hostile?"), false)
}

fn site(name: &str) -> String {
    format!("{SITES}/{}", segment(name))
}

fn pairs(all: &[(String, String)]) -> Map<String, Value> {
    all.iter().map(|(name, value)| (name.clone(), value.as_str().into())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use cli::format::Format;
    use cli::terminal::Colour;

    #[test]
    fn a_change_keeps_what_it_does_not_name() {
        let show = Output { output: Format::Json, color: Colour::Never };
        let text = |text: &str| text.to_owned();
        let change = SiteChange {
            name: text("a"),
            rename: None,
            attributes: vec![(text("country"), text("FR"))],
            without: vec![text("tier")],
            yes: true,
            show,
        };
        let before = json!({ "name": "a", "attributes": { "country": "DE", "region": "EU", "tier": "1" } });
        let after = json!({ "name": "a", "attributes": { "country": "FR", "region": "EU" } });
        assert_eq!(change.body(&before), after);
        let renamed = SiteChange { rename: Some(text("b")), ..change };
        assert_eq!(renamed.body(&before)["name"], "b");
    }
}

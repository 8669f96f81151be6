//! The commands for sites, and for the key service's nodes at a site.

use std::time::Duration;

use api::sites::{
    KeyNodeQuery, KeyNodeRetirement, KeyNodeTokenView, NewKeyNodeToken, NodeView, SiteBody, SiteView,
};
use clap::{Args, Subcommand};
use cli::columns;
use cli::connection::{Client, Columns, Listing, Output, document_of, read_as, show_one};
use cli::control::{Consent, Run, confirm, pair, segment};
use cli::exit::{Outcome, Problem};
use cli::units;
use reqwest::Method;
use serde_json::Value;
use uuid::Uuid;

use super::policy_effect::{Policies, active_nodes_at};

const SITES: &str = "/api/v1/key-sites";
const NODES: &str = "/api/v1/key-nodes";
const TOKENS: &str = "/api/v1/key-node-tokens";
/// Default lifetime of a new node token.
const TOKEN_LIFETIME: &str = "1h";

/// Commands of `bulla key site`.
#[derive(Debug, Subcommand)]
pub(crate) enum SiteCommand {
    /// Create a site
    Create {
        /// Name of the site
        name: String,
        /// Attribute of all its nodes: country=DE; may be repeated
        #[arg(long = "attribute", value_name = "NAME=VALUE", value_parser = pair)]
        attributes: Vec<(String, String)>,
        #[command(flatten)]
        show: Output,
    },
    /// List the sites
    List(Listing),
    /// Show a site
    Show {
        /// Name or id of the site
        name: String,
        #[command(flatten)]
        show: Output,
    },
    /// Change a site; its nodes receive the new attributes within a second
    Update(SiteChange),
    /// Delete a site that has no nodes
    Delete {
        /// Name or id of the site
        name: String,
        #[command(flatten)]
        consent: Consent,
    },
}

/// Arguments of `bulla key site update`.
#[derive(Args, Debug)]
pub(crate) struct SiteChange {
    /// Name or id of the site
    name: String,
    /// New name
    #[arg(long, value_name = "NAME")]
    rename: Option<String>,
    /// Add an attribute, or change its value: country=DE; may be repeated
    #[arg(long = "attribute", value_name = "NAME=VALUE", value_parser = pair)]
    attributes: Vec<(String, String)>,
    /// Remove an attribute; may be repeated
    #[arg(long = "without", value_name = "NAME")]
    without: Vec<String>,
    #[command(flatten)]
    consent: Consent,
    #[command(flatten)]
    show: Output,
}

impl SiteChange {
    /// Returns the request body: the site as it is after the change.
    fn body(&self, before: &SiteView) -> SiteBody {
        let mut attributes = before.attributes.clone();
        attributes.retain(|name, _| !self.without.contains(name));
        attributes.extend(self.attributes.iter().cloned());
        SiteBody { name: self.rename.clone().unwrap_or_else(|| before.name.clone()), attributes }
    }

    async fn make(&self, client: &Client) -> Outcome<()> {
        if self.rename.is_none() && self.attributes.is_empty() && self.without.is_empty() {
            return Err(Problem::usage("no change given")
                .hint("give --attribute NAME=VALUE, --without NAME or --rename NAME"));
        }
        let to_be = async |before: &Value| {
            let before: SiteView = read_as(before)?;
            let after = self.body(&before);
            // Only a change of attributes can change which keys the nodes can open.
            if !self.consent.is_given() && before.attributes != after.attributes {
                self.confirm_change(client, &before, &after).await?;
            }
            document_of(&after)
        };
        show_one(&client.change(&site(&self.name), to_be).await?, &self.show)
    }

    /// Shows which nodes could open keys after the change, and asks for confirmation.
    async fn confirm_change(&self, client: &Client, before: &SiteView, after: &SiteBody) -> Outcome<()> {
        let name = before.name.as_str();
        let nodes = active_nodes_at(client, NODES, name).await?;
        eprintln!("{} nodes at the site {name}", nodes.len());
        match Policies::read(client).await? {
            Some(policies) => {
                let lines = policies.moved(&nodes, &before.attributes, &after.attributes);
                lines.iter().for_each(|line| eprintln!("  {line}"));
                if lines.is_empty() {
                    eprintln!("  the same policies include them as before");
                }
            }
            None => eprintln!(
                "  cannot show which policies gain or lose them: permission key_policy.read is missing"
            ),
        }
        confirm(&format!("Change the site {name:?}?"))
    }
}

impl Run for SiteCommand {
    async fn run(&self, client: &Client) -> Outcome<()> {
        const COLUMNS: Columns = columns!(SiteView: ("Name", name), ("Attributes", attributes), ("Changed", updated_at), ("Id", id));
        match self {
            Self::Create { name, attributes, show } => {
                let body = SiteBody { name: name.clone(), attributes: attributes.iter().cloned().collect() };
                show_one(&client.submit(Method::POST, SITES, &body).await?, show)
            }
            Self::List(listing) => listing.print(client, SITES, &(), COLUMNS).await,
            Self::Show { name, show } => show_one(&client.get(&site(name), &()).await?, show),
            Self::Update(change) => change.make(client).await,
            Self::Delete { name, consent } => {
                consent.confirm_at_terminal(&format!("Delete the site {name:?}?"))?;
                client.send(Method::DELETE, &site(name), None).await.map(drop)
            }
        }
    }
}

/// Commands of `bulla key node`.
#[derive(Debug, Subcommand)]
pub(crate) enum NodeCommand {
    /// Create a token, shown only once, with which one host joins a site as a node
    Token {
        /// Name or id of the site
        #[arg(long, value_name = "SITE")]
        site: String,
        /// Attribute of this node only, which overrides its site's: security=high; may be repeated
        #[arg(long = "attribute", value_name = "NAME=VALUE", value_parser = pair)]
        attributes: Vec<(String, String)>,
        /// Lifetime of the token
        #[arg(long, value_name = "DURATION", value_parser = units::duration, default_value = TOKEN_LIFETIME)]
        ttl: Duration,
        #[command(flatten)]
        show: Output,
    },
    /// List the tokens
    Tokens(Listing),
    /// Revoke a token
    RevokeToken {
        /// Id of the token
        #[arg(value_parser = units::id)]
        id: Uuid,
        #[command(flatten)]
        consent: Consent,
    },
    /// List the nodes
    List {
        /// Only nodes of this site
        #[arg(long, value_name = "SITE")]
        site: Option<String>,
        /// Include retired nodes
        #[arg(long)]
        retired: bool,
        #[command(flatten)]
        listing: Listing,
    },
    /// Show a node
    Show {
        /// Name or id of the node
        name: String,
        #[command(flatten)]
        show: Output,
    },
    /// Retire a node: it can no longer connect, and the other nodes are notified
    Retire {
        /// Name or id of the node
        name: String,
        /// The node is compromised: also rotate the policies whose keys it could open, after a preview
        #[arg(long)]
        hostile: bool,
        #[command(flatten)]
        consent: Consent,
    },
}

impl Run for NodeCommand {
    async fn run(&self, client: &Client) -> Outcome<()> {
        const COLUMNS: Columns = columns!(
            NodeView:
            ("Name", name),
            ("Site", site),
            ("Present", present),
            ("Attributes", attributes),
            ("Address", address),
            ("Enrolled", enrolled_at),
            ("Retired", retired_at),
            ("Id", id),
        );
        const TOKEN_COLUMNS: Columns = columns!(
            KeyNodeTokenView:
            ("Made", created_at),
            ("By", created_by),
            ("Ends", expires_at),
            ("Used", used_at),
            ("Node", node),
            ("Site", site),
            ("Attributes", attributes),
            ("Id", id),
        );
        let one = |name: &str| format!("{NODES}/{}", segment(name));
        match self {
            Self::Token { site, attributes, ttl, show } => {
                let body = NewKeyNodeToken {
                    site: site.clone(),
                    attributes: attributes.iter().cloned().collect(),
                    seconds: Some(units::whole_seconds(*ttl)),
                };
                show_one(&client.submit(Method::POST, TOKENS, &body).await?, show)
            }
            Self::Tokens(listing) => listing.print(client, TOKENS, &(), TOKEN_COLUMNS).await,
            Self::RevokeToken { id, consent } => {
                consent.confirm_at_terminal(&format!("Revoke the token {id}?"))?;
                client.send(Method::DELETE, &format!("{TOKENS}/{id}"), None).await.map(drop)
            }
            Self::List { site, retired, listing } => {
                let query = KeyNodeQuery { site: site.clone(), retired: *retired };
                listing.print(client, NODES, &query, COLUMNS).await
            }
            Self::Show { name, show } => show_one(&client.get(&one(name), &()).await?, show),
            Self::Retire { name, hostile, consent } => {
                if *hostile && !consent.is_given() {
                    confirm_untrusted_node(client, &client.fetch(&one(name), &()).await?).await?;
                }
                let body = KeyNodeRetirement { hostile: *hostile };
                client.submit(Method::POST, &format!("{}/retire", one(name)), &body).await.map(drop)
            }
        }
    }
}

/// Shows which policies become untrusted with a node, and asks for confirmation.
async fn confirm_untrusted_node(client: &Client, node: &NodeView) -> Outcome<()> {
    let (name, at) = (&node.name, &node.site);
    eprintln!(
        "the node {name} at {at} will be refused, and keys sealed under the policies that include it are no longer trusted"
    );
    match Policies::read(client).await? {
        Some(policies) => match policies.policies_satisfied_by(&node.attributes).as_slice() {
            [] => eprintln!("  no policy includes it now"),
            open => eprintln!("  rotated, with all keys sealed under them: {}", open.join(", ")),
        },
        None => eprintln!("  cannot show which policies are rotated: permission key_policy.read is missing"),
    }
    confirm(&format!("Retire the node {name:?} as hostile?"))
}

fn site(name: &str) -> String {
    format!("{SITES}/{}", segment(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    use cli::format::Format;
    use cli::terminal::Colour;

    #[test]
    fn site_update_keeps_unspecified_attributes() {
        let show = Output { output: Format::Json, color: Colour::Never, query: None };
        let text = |text: &str| text.to_owned();
        let change = SiteChange {
            name: text("a"),
            rename: None,
            attributes: vec![(text("country"), text("FR"))],
            without: vec![text("tier")],
            consent: Consent::default(),
            show,
        };
        let pairs = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs.iter().map(|(name, value)| (text(name), text(value))).collect()
        };
        let before = SiteView {
            id: Uuid::nil(),
            name: text("a"),
            attributes: pairs(&[("country", "DE"), ("region", "EU"), ("tier", "1")]),
            created_at: text("2026-11-01T00:00:00Z"),
            updated_at: text("2026-11-01T00:00:00Z"),
        };
        let after = change.body(&before);
        assert_eq!(
            (after.name.as_str(), after.attributes),
            ("a", pairs(&[("country", "FR"), ("region", "EU")]))
        );
        let renamed = SiteChange { rename: Some(text("b")), ..change };
        assert_eq!(renamed.body(&before).name, "b");
    }
}

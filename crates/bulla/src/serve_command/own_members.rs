//! Joins the key node and the agent of this process to the control plane of this process.

use agent::NewToken;
use agent::client::Agent;
use cli::connection::local;
use cli::exit::{Exit, Outcome, Problem, chain};
use enrollment::client::JoinOptions;
use keys::Secret;
use sites::node::KeyNode;
use sites::{Attributes, NewNodeToken, NewSite, SiteError};

use super::running::RunningControlPlane;
use crate::agent_folder;
use crate::config::{NodeSettings, ServerSettings, Settings};
use crate::data_folder;
use crate::joining::read;

/// The site of the key node of this process.
const SITE: &str = "local";
/// The attribute of this site, so that a key policy can name it: `site: local`.
const ATTRIBUTE: (&str, &str) = ("site", SITE);
/// Default of `keys.node.listen` for the key node of this process. Other hosts cannot reach this address.
pub(super) const LISTEN: &str = "127.0.0.1:2410";
/// Actor in the audit log for the site and the join tokens that the start creates.
const ACTOR: &str = "system:start";
/// The lifetime of a join token, which is used immediately.
const TOKEN_SECONDS: i64 = 600;

/// Changes the settings of the key service: it becomes a node of this control plane. Returns a join token if the node has not joined yet;
/// a node that has joined gets the control plane's current URL.
pub(super) async fn prepare_node(
    settings: &mut Settings,
    control_plane: &RunningControlPlane,
) -> Outcome<Option<String>> {
    let node = &mut settings.keys.node;
    node.server.clone_from(&control_plane.url);
    if node.listen == NodeSettings::default().listen {
        node.listen = LISTEN.to_owned();
    }
    if has_own_certificate(&settings.server) {
        node.ca_file = data_folder::folder()?.join(local::ROOT);
    }
    let folder = node.folder()?;
    if let Some(known) = KeyNode::status(&folder).map_err(|error| failed(&error))? {
        if known.server != control_plane.url {
            KeyNode::move_to(&folder, &control_plane.url).map_err(|error| failed(&error))?;
        }
        return Ok(None);
    }
    let attributes = Attributes::of([ATTRIBUTE]).map_err(|error| failed(&error))?;
    let site = NewSite { name: SITE.to_owned(), attributes };
    match control_plane.sites.create_site(site, ACTOR).await {
        Ok(_) | Err(SiteError::NameTaken(_)) => {}
        Err(error) => return Err(failed(&error)),
    }
    let token =
        NewNodeToken { site: SITE.to_owned(), attributes: Attributes::default(), seconds: TOKEN_SECONDS };
    let created = control_plane.sites.create_token(token, ACTOR).await.map_err(|error| failed(&error))?;
    Ok(Some(created.token.to_string()))
}

/// Enrols this host with this control plane, unless the agent's folder already has an agent. An agent in a configured folder keeps
/// its server. An agent in the default folder gets the current URL of this control plane.
pub(super) async fn prepare_agent(settings: &Settings, control_plane: &RunningControlPlane) -> Outcome<()> {
    let (folder, url) = (settings.agent.folder()?, &control_plane.url);
    let known = Agent::status(&folder).map_err(|error| agent_folder::failed(&error))?;
    if let Some(known) = known {
        let is_own = settings.agent.state.as_os_str().is_empty();
        if is_own && known.server != *url {
            Agent::move_to(&folder, url).map_err(|error| agent_folder::failed(&error))?;
        }
        return Ok(());
    }
    let token = NewToken { labels: Default::default(), seconds: TOKEN_SECONDS };
    let created = control_plane.agents.create_token(token, ACTOR).await.map_err(|error| failed(&error))?;
    let root = data_folder::folder()?.join(local::ROOT);
    let options = JoinOptions {
        server: url.clone(),
        token: Secret::new(created.token.as_str()),
        ca_pem: has_own_certificate(&settings.server).then(|| read(&root)).transpose()?,
        ca_sha256: None,
        name: None,
        state: folder,
    };
    Agent::enroll(&options).await.map(drop).map_err(|error| agent_folder::failed(&error))
}

/// Returns whether a CA of this server issued the server's certificate.
fn has_own_certificate(settings: &ServerSettings) -> bool {
    settings.certificate_file.as_os_str().is_empty()
}

fn failed(error: &dyn std::error::Error) -> Problem {
    Problem::new(Exit::Inventory, chain(error))
        .hint("check the database and the data folder, then start again")
}

//! The roles of a process beside the control plane: key service, terminator, proxy and agent.

use std::time::Duration;

use agent::client::Agent;
use agent::deploy::PolicyFile;
use cli::exit::{Outcome, Problem};
use tokio_util::sync::CancellationToken;

use super::own_members;
use super::running::RunningControlPlane;
use crate::agent_command;
use crate::component::{Component, Description, Drained};
use crate::config::{Configuration, Role, Settings};
use crate::edge::{self, EdgeArgs};
use crate::keys;
use crate::proxy::{self, ProxyArgs};
use crate::roles::Roles;

/// Starts the roles beside the control plane, which runs already where it is in this process. What does not depend on each
/// other starts at the same time.
pub(super) async fn start(
    configuration: &Configuration,
    roles: &Roles,
    control_plane: Option<&RunningControlPlane>,
    descriptors: usize,
) -> Outcome<Vec<Component>> {
    // The terminator asks the key service of this process.
    let keys_and_edge = async {
        let mut started = Vec::new();
        if roles.has(Role::Keys) {
            let keys = key_service(configuration, control_plane, descriptors).await;
            started.push(keys.map_err(|problem| of_role(Role::Keys, problem))?);
        }
        if roles.has(Role::Edge) {
            let edge = terminator(configuration, descriptors).await;
            started.push(edge.map_err(|problem| of_role(Role::Edge, problem))?);
        }
        Ok(started)
    };
    let proxy = async {
        let proxy = if roles.has(Role::Proxy) { Some(proxy(configuration, descriptors).await) } else { None };
        proxy.transpose().map_err(|problem| of_role(Role::Proxy, problem))
    };
    let agent = async {
        let settings = &configuration.settings;
        let agent = if roles.has(Role::Agent) { Some(agent(settings, control_plane).await) } else { None };
        agent.transpose().map_err(|problem| of_role(Role::Agent, problem))
    };
    let (mut started, proxy, agent) = tokio::try_join!(keys_and_edge, proxy, agent)?;
    started.extend(proxy);
    started.extend(agent);
    Ok(started)
}

/// Stops them: first those that others do not need, all at once, then the key service.
pub(super) async fn stop(components: Vec<Component>) -> Drained {
    let (keys, others): (Vec<_>, Vec<_>) =
        components.into_iter().partition(|component| component.role == Role::Keys);
    let mut drained = Drained::All;
    for stage in [others, keys] {
        for ended in futures_util::future::join_all(stage.into_iter().map(Component::stop)).await {
            if ended == Drained::CutOff {
                drained = Drained::CutOff;
            }
        }
    }
    drained
}

/// How long [`stop`] takes at most.
pub(super) fn grace(settings: &Settings, roles: &Roles) -> Duration {
    let of = |role, grace| if roles.has(role) { grace } else { Duration::ZERO };
    let others = [
        of(Role::Edge, edge::grace(settings)),
        of(Role::Proxy, proxy::grace(settings)),
        of(Role::Agent, agent_command::GRACE),
    ];
    others.into_iter().max().unwrap_or_default() + of(Role::Keys, keys::GRACE)
}

/// `problem`, which says that it is one of this role.
fn of_role(role: Role, problem: Problem) -> Problem {
    Problem { message: format!("the role {} did not start: {}", role.name(), problem.message), ..problem }
}

async fn key_service(
    configuration: &Configuration,
    control_plane: Option<&RunningControlPlane>,
    descriptors: usize,
) -> Outcome<Component> {
    let mut configuration = configuration.clone();
    let settings = &mut configuration.settings;
    let own = control_plane.filter(|_| !settings.keys.node.is_one());
    let token = match own {
        Some(control_plane) => own_members::prepare_node(settings, control_plane).await?,
        None => std::env::var(keys::TOKEN_VARIABLE).ok(),
    };
    settings.keys.check_whole(false)?;
    let stop = CancellationToken::new();
    let service = keys::start(&configuration, token.as_deref(), descriptors, stop.clone()).await?;
    Ok(Component::spawn(Role::Keys, service.description()?, stop, service.run()))
}

async fn terminator(configuration: &Configuration, descriptors: usize) -> Outcome<Component> {
    let stop = CancellationToken::new();
    let edge = edge::start(configuration, &EdgeArgs::default(), descriptors, stop.clone()).await?;
    edge.warn();
    Ok(Component::spawn(Role::Edge, edge.description(), stop, edge.run()))
}

async fn proxy(configuration: &Configuration, descriptors: usize) -> Outcome<Component> {
    let stop = CancellationToken::new();
    let proxy = proxy::start(configuration, &ProxyArgs::default(), descriptors, stop.clone()).await?;
    Ok(Component::spawn(Role::Proxy, proxy.description(), stop, proxy.run()))
}

async fn agent(settings: &Settings, control_plane: Option<&RunningControlPlane>) -> Outcome<Component> {
    let folder = settings.agent.folder()?;
    if let Some(control_plane) = control_plane {
        own_members::prepare_agent(settings, control_plane).await?;
    }
    let policy = settings.agent.policy();
    let mut agent: Agent = agent_command::open(&folder, PolicyFile::new(policy)).await?;
    let notes = vec![
        format!("agent {}, its folder {}", agent.name(), folder.display()),
        format!("policy {}", policy.display()),
    ];
    let stop = CancellationToken::new();
    let until = stop.clone();
    let run = async move {
        let ended = agent.run(until).await;
        if let Err(error) = &ended {
            tracing::error!(%error, "the agent of this host works no more");
        }
        Drained::from(ended.is_ok())
    };
    Ok(Component::spawn(Role::Agent, Description { places: Vec::new(), notes }, stop, run))
}

//! The roles of a process other than the control plane: key service, terminator, proxy and agent.

use std::future::Future;
use std::time::Duration;

use agent::client::Agent;
use agent::deploy::PolicyFile;
use cli::exit::{Outcome, Problem};
use futures_util::FutureExt as _;
use tokio_util::sync::CancellationToken;

use super::own_members;
use super::restarts::RoleSupervisor;
use super::running::RunningControlPlane;
use crate::agent_command;
use crate::agent_folder;
use crate::component::{Component, Description, DrainOutcome};
use crate::config::{Configuration, Role, Settings};
use crate::edge::{self, EdgeArgs};
use crate::keys;
use crate::proxy::{self, ProxyArgs};
use crate::roles::Roles;

/// Starts the roles other than the control plane, which already runs if it is a role of this process. Starts independent roles
/// concurrently. If a role fails, stops the started roles and returns the problem of the first failed role.
pub(super) async fn start(
    configuration: &Configuration,
    roles: &Roles,
    control_plane: Option<&RunningControlPlane>,
    descriptors: usize,
) -> Outcome<Vec<Component>> {
    // The terminator uses the key service of this process.
    let keys_and_edge = async {
        let keys = key_service(configuration, control_plane, descriptors);
        let keys = Box::pin(start_if_enabled(roles, Role::Keys, keys)).await;
        // Without its key service the terminator could serve no client.
        let edge = match &keys {
            Some(Err(_)) => None,
            _ => {
                let edge = terminator(configuration, control_plane, descriptors);
                start_if_enabled(roles, Role::Edge, edge).await
            }
        };
        [keys, edge]
    };
    let proxy = start_if_enabled(roles, Role::Proxy, proxy(configuration, control_plane, descriptors));
    let agent = start_if_enabled(roles, Role::Agent, agent(&configuration.settings, control_plane));
    let ([keys, edge], proxy, agent) = tokio::join!(keys_and_edge, proxy, agent);
    let (mut started, mut failed) = (Vec::new(), None);
    for outcome in [keys, edge, proxy, agent].into_iter().flatten() {
        match outcome {
            Ok(component) => started.push(component),
            Err(problem) if failed.is_none() => failed = Some(problem),
            Err(problem) => tracing::error!("{}", problem.message),
        }
    }
    match failed {
        None => Ok(started),
        Some(problem) => {
            let _ = stop(started).await;
            Err(problem)
        }
    }
}

/// Starts a role if this process has it.
async fn start_if_enabled(
    roles: &Roles,
    role: Role,
    start: impl Future<Output = Outcome<Component>>,
) -> Option<Outcome<Component>> {
    if !roles.has(role) {
        return None;
    }
    Some(Box::pin(start).await.map_err(|problem| of_role(role, problem)))
}

/// Stops the roles: first all roles except the key service, concurrently, because they may use it; then the key service.
pub(super) async fn stop(components: Vec<Component>) -> DrainOutcome {
    let (keys, others): (Vec<_>, Vec<_>) =
        components.into_iter().partition(|component| component.role == Role::Keys);
    let mut drained = DrainOutcome::All;
    for stage in [others, keys] {
        for ended in futures_util::future::join_all(stage.into_iter().map(Component::stop)).await {
            drained = drained.and(ended);
        }
    }
    drained
}

/// Returns the maximum duration of [`stop`].
pub(super) fn grace(settings: &Settings, roles: &Roles) -> Duration {
    let of = |role, grace| if roles.has(role) { grace } else { Duration::ZERO };
    let others = [
        of(Role::Edge, edge::grace(settings)),
        of(Role::Proxy, proxy::grace(settings)),
        of(Role::Agent, agent_command::GRACE),
    ];
    others.into_iter().max().unwrap_or_default() + of(Role::Keys, keys::GRACE)
}

/// Adds the name of the role to the message of a problem.
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
    let own = control_plane.filter(|_| !settings.keys.node.is_configured());
    let token = match own {
        Some(control_plane) => own_members::prepare_node(settings, control_plane).await?,
        None => std::env::var(keys::TOKEN_VARIABLE).ok(),
    };
    settings.keys.check_required(false)?;
    let stop = CancellationToken::new();
    let service = keys::start(&configuration, token.as_deref(), descriptors, stop.clone()).await?;
    Ok(Component::spawn(Role::Keys, service.description()?, stop, service.run()))
}

async fn terminator(
    configuration: &Configuration,
    control_plane: Option<&RunningControlPlane>,
    descriptors: usize,
) -> Outcome<Component> {
    let stop = CancellationToken::new();
    let edge = edge::start(configuration, &EdgeArgs::default(), descriptors, stop.clone()).await?;
    if let Some(control_plane) = control_plane {
        control_plane.metrics.register(|registry| edge.metrics.register(registry));
    }
    edge.warn();
    Ok(Component::spawn(Role::Edge, edge.description(), stop, edge.run()))
}

async fn proxy(
    configuration: &Configuration,
    control_plane: Option<&RunningControlPlane>,
    descriptors: usize,
) -> Outcome<Component> {
    let stop = CancellationToken::new();
    let handles = control_plane.and_then(|it| it.proxy.clone()).unwrap_or_default();
    let args = ProxyArgs::default();
    let proxy = proxy::start(configuration, &args, handles, descriptors, stop.clone()).await?;
    if let Some(control_plane) = control_plane {
        control_plane.metrics.register(|registry| proxy.metrics.register(registry));
    }
    Ok(Component::spawn(Role::Proxy, proxy.description(), stop, proxy.run()))
}

async fn agent(settings: &Settings, control_plane: Option<&RunningControlPlane>) -> Outcome<Component> {
    let folder = settings.agent.folder()?;
    if let Some(control_plane) = control_plane {
        own_members::prepare_agent(settings, control_plane).await?;
    }
    let policy = settings.agent.policy();
    let agent: Agent = agent_command::open(&folder, PolicyFile::new(policy)).await?;
    let notes = vec![
        format!("agent {}, folder {}", agent.name(), folder.display()),
        format!("policy {}", policy.display()),
    ];
    let stop = CancellationToken::new();
    let restarts =
        RoleSupervisor::new(Role::Agent, control_plane.map(|control_plane| &control_plane.metrics));
    let (until, policy) = (stop.clone(), policy.to_owned());
    let run = async move {
        let stop = until.clone();
        let mut opened = Some(agent);
        let work = move || {
            let (opened, folder) = (opened.take(), folder.clone());
            let (policy, until) = (PolicyFile::new(&policy), until.clone());
            let work = async move {
                let mut agent = match opened {
                    Some(agent) => agent,
                    None => agent_command::open(&folder, policy).await?,
                };
                agent.run(until).await.map_err(|error| agent_folder::failed(&error))
            };
            work.boxed()
        };
        restarts.keep(stop, work).await;
        DrainOutcome::All
    };
    Ok(Component::spawn(Role::Agent, Description { places: Vec::new(), notes }, stop, run))
}

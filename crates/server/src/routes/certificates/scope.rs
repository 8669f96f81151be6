//! The scopes that a managed certificate lies in.

use agent::Agents;
use lifecycle::managed::{INTERNAL_ISSUER, KeyLocation, ManagedCertificate, NewCertificate, TargetRef};
use lifecycle::tables::managed::ManagedScope;

use crate::access::{Caller, Permission, Reach, Scope};
use crate::problem::Problem;

/// The scopes a certificate lies in.
pub(super) fn scopes(profile: &str, issuer: &str, team: Option<&str>) -> Vec<Scope> {
    let mut scopes = vec![Scope::profile(profile), Scope::issuer(issuer)];
    scopes.extend(team.map(Scope::team));
    scopes
}

pub(super) fn scopes_of(certificate: &ManagedCertificate) -> Vec<Scope> {
    scopes(&certificate.profile, &certificate.issuer, certificate.team.as_deref())
}

/// What a caller may see of everything; `None` for all of it.
pub(super) fn within(caller: &Caller, permission: Permission) -> Option<Vec<ManagedScope>> {
    match caller.reach(permission) {
        Reach::Everything => None,
        Reach::Only(scopes) => Some(scopes.into_iter().filter_map(managed_scope).collect()),
    }
}

fn managed_scope(scope: Scope) -> Option<ManagedScope> {
    match scope {
        Scope::Any => None,
        Scope::Profile(name) => Some(ManagedScope::Profile(name)),
        Scope::Issuer(name) => Some(ManagedScope::Issuer(name)),
        Scope::Team(name) => Some(ManagedScope::Team(name)),
        Scope::Every(bounds) => {
            Some(ManagedScope::Every(bounds.into_iter().filter_map(managed_scope).collect()))
        }
    }
}

/// Whether the caller may have this certificate, and refer to what it refers to.
pub(super) async fn may_create(
    agents: Option<&Agents>,
    caller: &Caller,
    new: &NewCertificate,
) -> Result<(), Problem> {
    const NEEDED: Permission = Permission::CertificateRequest;
    let issuer = new.issuer.as_deref().unwrap_or(INTERNAL_ISSUER);
    let team = new.team.as_deref();
    let scopes = scopes(&new.profile, issuer, team);
    caller.may(NEEDED, &scopes)?;
    let references = References { team, targets: new.targets.iter().collect(), key: Some(&new.key_location) };
    check_references(agents, caller, NEEDED, references, (&scopes, team)).await
}

/// What a new or changed certificate refers to beside its own profile and issuer, as far as it is not the same as before.
pub(super) struct References<'a> {
    pub(super) team: Option<&'a str>,
    pub(super) targets: Vec<&'a TargetRef>,
    pub(super) key: Option<&'a KeyLocation>,
}

/// Refuses references to what another team has. A host and its targets are the team's in the agent's label `team`; hosts without the
/// label are for callers alone whose permission reaches everything.
pub(super) async fn check_references(
    agents: Option<&Agents>,
    caller: &Caller,
    permission: Permission,
    references: References<'_>,
    (scopes, team): (&[Scope], Option<&str>),
) -> Result<(), Problem> {
    if caller.holds_everywhere(permission) {
        return Ok(());
    }
    if let Some(team) = references.team {
        caller.may_for_team(permission, team, scopes)?;
    }
    let mut hosts = Vec::new();
    for reference in references.targets {
        if let TargetRef::Deploy { target, agent } = reference {
            let agents = agents.ok_or_else(|| elsewhere("target"))?;
            let found = agents.target(*target).await.map_err(|_| elsewhere("target"))?;
            if found.row.settings.agent != *agent {
                return Err(elsewhere("target"));
            }
            hosts.push((*agent, "target"));
        }
    }
    if let Some(KeyLocation::Agent { agent }) = references.key {
        hosts.push((*agent, "agent"));
    }
    for (agent, what) in hosts {
        let agents = agents.ok_or_else(|| elsewhere(what))?;
        let host = agents.agent(agent).await.map_err(|_| elsewhere(what))?;
        let owner = agent::labels_of(&host.labels).remove("team").ok_or_else(|| elsewhere(what))?;
        if team != Some(owner.as_str()) || caller.may_for_team(permission, &owner, scopes).is_err() {
            return Err(elsewhere(what));
        }
    }
    Ok(())
}

/// The same for what is not there and what is another team's.
fn elsewhere(what: &str) -> Problem {
    Problem::forbidden(format_args!("this {what} does not belong to the certificate's team")).hint(
        "an agent's label `team` says whose host it is; or ask somebody whose permission reaches everything",
    )
}

//! Permission checks on a managed certificate, and on the objects that it refers to.

use agent::Agents;
use lifecycle::managed::{INTERNAL_ISSUER, KeyLocation, ManagedCertificate, NewCertificate, TargetRef};
use lifecycle::tables::managed::ManagedScope;
use store::Store;
use x509::GeneralName;

use crate::access::{Caller, Object, Permission, Reach, Scope};
use crate::problem::Problem;

/// The properties of an existing or new certificate for permission checks.
pub(super) struct Facts<'a> {
    pub(super) profile: &'a str,
    pub(super) issuer: &'a str,
    pub(super) team: Option<&'a str>,
    pub(super) names: Vec<String>,
    pub(super) targets: &'a [TargetRef],
}

impl<'a> Facts<'a> {
    pub(super) fn of(certificate: &'a ManagedCertificate) -> Self {
        Self {
            profile: &certificate.profile,
            issuer: &certificate.issuer,
            team: certificate.team.as_deref(),
            names: certificate.names.iter().map(ToString::to_string).collect(),
            targets: &certificate.targets,
        }
    }

    /// Returns the object without its targets. Grants that are limited to targets do not cover such an object.
    fn object(&self) -> Object {
        Object {
            issuer: Some(self.issuer.to_owned()),
            team: self.team.map(str::to_owned),
            ..Object::profile(self.profile).with_names(&self.names)
        }
    }

    /// Returns the object with the names of its targets. The names are looked up only if the caller's permissions depend on
    /// targets.
    pub(super) async fn into_object(self, store: &Store, caller: &Caller) -> Result<Object, Problem> {
        let mut object = self.object();
        let mut names = Vec::new();
        if caller.depends_on_targets() {
            for target in self.targets {
                let TargetRef::Deploy { target, .. } = target else { continue };
                let found = agent::tables::Agents::of(store).target(*target).await?;
                // A deleted target has no name. Its ID is used instead, and matches no grant.
                names.push(found.map_or_else(|| target.to_string(), |row| row.settings.name));
            }
        }
        object.targets = Some(names);
        Ok(object)
    }
}

/// Returns the scopes in which a caller may see certificates; `None` for all. [`may_see`] checks limits on names.
pub(super) fn visible_scopes(caller: &Caller, permission: Permission) -> Option<Vec<ManagedScope>> {
    match caller.reach(permission) {
        Reach::Everything => None,
        Reach::Only(scopes) => scopes.into_iter().map(managed_scope).collect(),
    }
}

/// Returns whether the caller may see a row of a listing. Targets are not looked up: grants limited to targets list nothing.
pub(crate) fn may_see(caller: &Caller, permission: Permission, certificate: &ManagedCertificate) -> bool {
    caller.may(permission, Facts::of(certificate).object()).is_ok()
}

/// Converts a scope to a database filter; `None` for a scope that the database cannot filter by.
fn managed_scope(scope: Scope) -> Option<ManagedScope> {
    match scope {
        Scope::Any | Scope::Name(_) | Scope::Target(_) | Scope::Path(_) => None,
        Scope::Profile(name) => Some(ManagedScope::Profile(name)),
        Scope::Issuer(name) => Some(ManagedScope::Issuer(name)),
        Scope::Team(name) => Some(ManagedScope::Team(name)),
        Scope::Every(bounds) => {
            let known: Vec<_> = bounds.into_iter().filter_map(managed_scope).collect();
            (!known.is_empty()).then_some(ManagedScope::Every(known))
        }
    }
}

/// Returns the normalized form of the valid names among the texts.
pub(super) fn names_of(texts: &[String]) -> Vec<String> {
    let name =
        |text: &String| GeneralName::parse(text).map_or_else(|_| text.clone(), |name| name.to_string());
    texts.iter().map(name).collect()
}

/// Checks that the caller may create this certificate, and refer to its objects.
pub(super) async fn may_create(
    (store, agents): (&Store, Option<&Agents>),
    caller: &Caller,
    new: &NewCertificate,
) -> Result<(), Problem> {
    const NEEDED: Permission = Permission::CertificateRequest;
    let issuer = new.issuer.as_deref().unwrap_or(INTERNAL_ISSUER);
    let team = new.team.as_deref();
    let facts =
        Facts { profile: &new.profile, issuer, team, names: names_of(&new.names), targets: &new.targets };
    let object = facts.into_object(store, caller).await?;
    check_profile_and_issuer(store, caller, NEEDED, &object).await?;
    caller.may(NEEDED, &object)?;
    if let Some(name) = &new.name {
        check_name(caller, NEEDED, name, &object)?;
    }
    let references = References { team, targets: new.targets.iter().collect(), key: Some(&new.key_location) };
    check_references(agents, caller, NEEDED, references, &object).await
}

/// Checks that the profile and the issuer of a certificate exist, and belong to no other team. A missing object and an object of
/// another team get the same error.
pub(super) async fn check_profile_and_issuer(
    store: &Store,
    caller: &Caller,
    permission: Permission,
    object: &Object,
) -> Result<(), Problem> {
    let (Some(profile), Some(issuer)) = (&object.profile, &object.issuer) else { return Ok(()) };
    if caller.has_permission_everywhere(permission) {
        return Ok(());
    }
    let teams = caller.teams();
    let foreign = |object: Object| !caller.ownership().owners(&object).is_subset(&teams);
    let refused = |what: &str, name: &str| {
        Err(Problem::forbidden(format_args!("the {what} {name} does not exist, or belongs to another team"))
            .hint("name another one, or ask a caller whose permission covers all teams"))
    };
    let own = issuer == INTERNAL_ISSUER;
    let known = own || issuers::tables::ExternalIssuers::of(store).named(issuer).await?.is_some();
    if !known || foreign(Object { issuer: Some(issuer.clone()), ..Object::default() }) {
        return refused("issuer", issuer);
    }
    // The profile of an external issuer's certificate need not exist.
    let known = !own || authority::tables::Profiles::of(store).get(profile).await?.is_some();
    if !known || foreign(Object::profile(profile)) {
        return refused("profile", profile);
    }
    Ok(())
}

/// Checks that the name of a certificate is no DNS name of another team. Otherwise a name conflict would reveal certificates of the
/// other team, and a team could occupy names of another team.
pub(super) fn check_name(
    caller: &Caller,
    permission: Permission,
    name: &str,
    object: &Object,
) -> Result<(), Problem> {
    let named = Object { names: Some(vec![name.to_owned()]), ..Object::default() };
    if caller.ownership().owners(&named).is_empty() {
        return Ok(());
    }
    let names = object.names.iter().flatten().cloned().chain([name.to_owned()]).collect();
    caller.may(permission, Object { names: Some(names), ..object.clone() })
}

/// References of a new or changed certificate to objects other than its profile and issuer. Contains only references that are new.
pub(super) struct References<'a> {
    pub(super) team: Option<&'a str>,
    pub(super) targets: Vec<&'a TargetRef>,
    pub(super) key: Option<&'a KeyLocation>,
}

/// Rejects references to objects of another team. The agent label `team` assigns a host and its targets to a team. Hosts without
/// the label are only for callers with an unrestricted permission.
pub(super) async fn check_references(
    agents: Option<&Agents>,
    caller: &Caller,
    permission: Permission,
    references: References<'_>,
    object: &Object,
) -> Result<(), Problem> {
    if caller.has_permission_everywhere(permission) {
        return Ok(());
    }
    if let Some(team) = references.team {
        caller.may_for_team(permission, team, object)?;
    }
    let team = object.team.as_deref();
    let mut hosts = Vec::new();
    for reference in references.targets {
        if let TargetRef::Deploy { target, agent } = reference {
            let agents = agents.ok_or_else(|| inaccessible("target"))?;
            let found = agents.target(*target).await.map_err(|_| inaccessible("target"))?;
            if found.row.settings.agent != *agent {
                return Err(inaccessible("target"));
            }
            // A target that a team owns belongs to that team, regardless of its host.
            let targets = Some(vec![found.row.settings.name]);
            let owned = Object { targets, ..Object::default() };
            let owners = caller.ownership().owners(&owned);
            if !owners.is_empty() {
                if !owners.into_iter().eq(team) {
                    return Err(inaccessible("target"));
                }
                continue;
            }
            hosts.push((*agent, "target"));
        }
    }
    if let Some(KeyLocation::Agent { agent }) = references.key {
        hosts.push((*agent, "agent"));
    }
    for (agent, what) in hosts {
        let agents = agents.ok_or_else(|| inaccessible(what))?;
        let host = agents.agent(agent).await.map_err(|_| inaccessible(what))?;
        let owner = agent::labels_of(&host.labels).remove("team").ok_or_else(|| inaccessible(what))?;
        if team != Some(owner.as_str()) || caller.may_for_team(permission, &owner, object).is_err() {
            return Err(inaccessible(what));
        }
    }
    Ok(())
}

/// Returns the error for an object that does not exist, or that belongs to another team. The error is the same, so that it
/// reveals nothing.
fn inaccessible(what: &str) -> Problem {
    Problem::forbidden(format_args!("this {what} does not belong to the certificate's team")).hint(
        "set the agent's label `team` to the team of its host; or ask a caller whose permission covers all teams",
    )
}

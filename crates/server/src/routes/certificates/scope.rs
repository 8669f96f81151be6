//! The scopes that a managed certificate lies in.

use lifecycle::managed::ManagedCertificate;
use lifecycle::tables::managed::ManagedScope;

use crate::access::{Caller, Permission, Reach, Scope};

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
        Reach::Only(scopes) => Some(
            scopes
                .into_iter()
                .filter_map(|scope| match scope {
                    Scope::Any => None,
                    Scope::Profile(name) => Some(ManagedScope::Profile(name)),
                    Scope::Issuer(name) => Some(ManagedScope::Issuer(name)),
                    Scope::Team(name) => Some(ManagedScope::Team(name)),
                })
                .collect(),
        ),
    }
}

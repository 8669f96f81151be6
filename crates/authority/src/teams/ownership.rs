//! The owners of objects, and the rules that decide which owned objects a request may combine. Pure functions without I/O.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use api::access::{Object, Scope, address, host_of};

use super::owns::{OwnedKind, Quota};
use super::rights::OwnershipRights;

/// A snapshot of all objects that teams own.
#[derive(Clone, Debug, Default)]
pub struct Ownership {
    objects: HashMap<(OwnedKind, String), Owner>,
    /// Owned suffixes, keyed by parent name. A wildcard directly below the parent name covers them.
    below: HashMap<String, Vec<String>>,
    /// Teams that own at least one object, and whether they own names.
    teams: HashMap<Arc<str>, OwnsNames>,
    quotas: HashMap<String, Quota>,
}

#[derive(Clone, Debug, Eq, PartialEq)]
struct Owner {
    team: Arc<str>,
    moved_at_us: Option<i64>,
}

/// Whether a team owns names. A team that owns names gets certificates only for these names.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum OwnsNames {
    #[default]
    No,
    Yes,
}

/// Reason why objects do not belong together. The messages reveal nothing about other teams.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum OwnershipMismatch {
    /// The name belongs to a team, but not to the caller's team.
    #[error("the name {0} belongs to another team than the team that requests it")]
    Name(String),
    /// The name does not belong to the team, which gets certificates only for its own names.
    #[error("{0}: this name is outside the names that the team {1} owns")]
    Outside(String, String),
    /// The profile, the issuer or a target belongs to another team.
    #[error("the profile, the issuer and the targets do not all belong to the team of the request")]
    Objects,
    /// An object moved to another team after the certificate to renew was issued.
    #[error(
        "a name, profile, issuer or target of this certificate moved to another team after the certificate was issued: enrol again"
    )]
    Moved,
}

impl Ownership {
    /// Creates the ownership from these objects and quotas.
    #[must_use]
    pub fn new(
        owned: impl IntoIterator<Item = (OwnedKind, String, String, Option<i64>)>,
        quotas: impl IntoIterator<Item = (String, Quota)>,
    ) -> Self {
        let mut new = Self { quotas: quotas.into_iter().collect(), ..Self::default() };
        for (kind, object, team, moved_at_us) in owned {
            let team: Arc<str> = team.into();
            let names = new.teams.entry(Arc::clone(&team)).or_default();
            let object = if kind == OwnedKind::Name { host_of(&object) } else { object };
            if kind == OwnedKind::Name {
                *names = OwnsNames::Yes;
                if let Some((_, parent)) = object.split_once('.') {
                    new.below.entry(parent.to_owned()).or_default().push(object.clone());
                }
            }
            new.objects.insert((kind, object), Owner { team, moved_at_us });
        }
        new
    }

    /// Returns the quota of a team; without limits if the team has no quota.
    #[must_use]
    pub fn quota(&self, team: &str) -> Quota {
        self.quotas.get(team).copied().unwrap_or_default()
    }

    /// Returns whether at least one team has a request quota.
    #[must_use]
    pub fn has_request_quota(&self) -> bool {
        self.quotas.values().any(|quota| quota.requests_per_second.is_some())
    }

    /// Returns whether at least one team owns an object of this kind.
    #[must_use]
    pub fn owns_any(&self, kind: OwnedKind) -> bool {
        self.objects.keys().any(|(owned, _)| *owned == kind)
    }

    /// Returns the teams of an object: the owners of its profile, its issuer, its names, its targets and its path. The team in the
    /// object's label is included if that team owns any object.
    #[must_use]
    pub fn owners(&self, object: &Object) -> BTreeSet<&str> {
        let mut owners: BTreeSet<&str> = self.holders(object).map(|owner| &*owner.team).collect();
        let labelled = object.team.as_deref().and_then(|team| self.teams.get_key_value(team));
        owners.extend(labelled.map(|(team, _)| &**team));
        for name in object.names.iter().flatten() {
            owners.extend(self.owners_of_name(name).into_iter().map(|owner| &*owner.team));
        }
        if let Some(above) = object.path.as_deref().and_then(|path| path.strip_suffix('*')) {
            let above = above.to_lowercase();
            let below = self
                .objects
                .iter()
                .filter(|((kind, path), _)| *kind == OwnedKind::Path && path.starts_with(&above));
            owners.extend(below.map(|(_, owner)| &*owner.team));
        }
        owners
    }

    /// Returns whether a grant with this scope gives access to an object. The object must be within the bounds of the scope. If its
    /// parts belong to teams, they must all belong to one team, and the scope must be for this team. The scope [`Scope::Any`] gives
    /// access to every object.
    #[must_use]
    pub fn admits(&self, scope: &Scope, object: &Object) -> bool {
        if *scope == Scope::Any {
            return true;
        }
        if self.objects.is_empty() {
            return scope.reaches(object);
        }
        let owners = self.owners(object);
        if owners.len() > 1 {
            return false;
        }
        let Some(owner) = owners.first() else { return scope.reaches(object) };
        let within = match object.team {
            Some(_) => scope.reaches(object),
            // An object that the team owns counts as within the team's scope even without a label.
            None => scope.reaches(&Object { team: Some((*owner).to_owned()), ..object.clone() }),
        };
        within && self.acting_teams(scope).iter().eq([owner])
    }

    /// Returns the teams on whose behalf a grant acts: the teams that it names, otherwise the owners of the objects that it names.
    #[must_use]
    pub fn acting_teams<'a>(&'a self, scope: &'a Scope) -> BTreeSet<&'a str> {
        let named: BTreeSet<&str> = scope.bounds().iter().filter_map(bound_team).collect();
        if !named.is_empty() {
            return named;
        }
        scope.bounds().iter().flat_map(|bound| self.owners_of_bound(bound)).collect()
    }

    fn owners_of_bound(&self, bound: &Scope) -> Vec<&str> {
        let owner =
            |kind, object: &str| self.owner(kind, object).map(|owner| &*owner.team).into_iter().collect();
        match bound {
            Scope::Profile(name) => owner(OwnedKind::Profile, name),
            Scope::Issuer(name) => owner(OwnedKind::Issuer, name),
            Scope::Target(name) => owner(OwnedKind::Target, name),
            Scope::Name(pattern) => owner(OwnedKind::Name, pattern.strip_prefix("*.").unwrap_or(pattern)),
            Scope::Path(pattern) => owner(OwnedKind::Path, pattern.strip_suffix("/*").unwrap_or(pattern)),
            Scope::Any | Scope::Team(_) | Scope::Every(_) => Vec::new(),
        }
    }

    /// Checks that a certificate may be issued. Returns the team to whose quota the certificate counts.
    ///
    /// The profile, the issuer, the targets, the path and the label of a certificate must belong to one team. If the caller has a
    /// team, it must be the same team. This team may use its own names. It may also use names without an owner, unless it owns
    /// names itself.
    ///
    /// Without such a team, a name that a team owns is allowed only in these cases:
    ///
    /// - the caller has access to all objects;
    /// - the caller has validated control of the name;
    /// - the caller holds a certificate for the name, and none of its objects has moved between teams since its issue.
    ///
    /// # Errors
    /// [`OwnershipMismatch`]
    pub fn check_issue(
        &self,
        object: &Object,
        rights: &OwnershipRights,
    ) -> Result<Option<&str>, OwnershipMismatch> {
        let mut teams: BTreeSet<&str> = self.holders(object).map(|owner| &*owner.team).collect();
        let label = object.team.as_deref().and_then(|team| self.teams.get_key_value(team));
        teams.extend(label.map(|(team, _)| &**team));
        let of_caller = match rights {
            OwnershipRights::Team(team) => self.teams.get_key_value(team.as_str()).map(|(team, _)| &**team),
            _ => None,
        };
        // A password or ACME may allow a caller without a team to use a profile of a team. The caller then acts on behalf of that
        // team.
        let foreign = of_caller.is_none() && matches!(rights, OwnershipRights::Team(_));
        if foreign && !teams.is_empty() {
            return Err(OwnershipMismatch::Objects);
        }
        teams.extend(of_caller);
        if teams.len() > 1 {
            return Err(OwnershipMismatch::Objects);
        }
        if let OwnershipRights::CertificateHolder { issued_at_us } = rights
            && self.holders(object).any(|owner| owner.ownership_changed_after(*issued_at_us))
        {
            return Err(OwnershipMismatch::Moved);
        }
        let acting = teams.first().copied();
        let mut charged = acting;
        for name in object.names.iter().flatten() {
            let owners = self.owners_of_name(name);
            charged = charged.or_else(|| owners.first().map(|owner| &*owner.team));
            self.check_name(name, &owners, acting, rights)?;
        }
        Ok(charged)
    }

    fn check_name(
        &self,
        name: &str,
        owners: &[&Owner],
        acting: Option<&str>,
        rights: &OwnershipRights,
    ) -> Result<(), OwnershipMismatch> {
        let refused = || Err(OwnershipMismatch::Name(name.to_owned()));
        if let Some(team) = acting {
            let limited = self.teams.get(team).copied() == Some(OwnsNames::Yes);
            return match owners {
                [] if limited => Err(OwnershipMismatch::Outside(name.to_owned(), team.to_owned())),
                _ if owners.iter().all(|owner| *owner.team == *team) => Ok(()),
                _ => refused(),
            };
        }
        match rights {
            _ if owners.is_empty() => Ok(()),
            OwnershipRights::Everything | OwnershipRights::Proven => Ok(()),
            OwnershipRights::CertificateHolder { issued_at_us }
                if owners.iter().any(|owner| owner.ownership_changed_after(*issued_at_us)) =>
            {
                Err(OwnershipMismatch::Moved)
            }
            OwnershipRights::CertificateHolder { .. } => Ok(()),
            OwnershipRights::Nobody | OwnershipRights::Team(_) => refused(),
        }
    }

    /// Returns the owners of an object's profile, issuer, targets and path.
    fn holders(&self, object: &Object) -> impl Iterator<Item = &Owner> {
        let one = |kind, name: Option<&String>| name.and_then(|name| self.owner(kind, name));
        let path = object.path.as_ref().map(|path| path.to_lowercase());
        let targets = object.targets.iter().flatten().filter_map(|name| self.owner(OwnedKind::Target, name));
        let found = [
            one(OwnedKind::Profile, object.profile.as_ref()),
            one(OwnedKind::Issuer, object.issuer.as_ref()),
            one(OwnedKind::Path, path.as_ref()),
        ];
        found.into_iter().flatten().chain(targets)
    }

    /// Returns the owner of an object. For a name, the longest owned suffix counts; for a path, the longest owned prefix.
    fn owner(&self, kind: OwnedKind, object: &str) -> Option<&Owner> {
        let (mut key, mut rest) = ((kind, object.to_owned()), object);
        loop {
            if let Some(owner) = self.objects.get(&key) {
                return Some(owner);
            }
            rest = match kind {
                // An address has no suffixes.
                OwnedKind::Name if address(rest).is_some() => return None,
                OwnedKind::Name => rest.split_once('.')?.1,
                OwnedKind::Path => rest.rsplit_once('/')?.0,
                OwnedKind::Profile | OwnedKind::Issuer | OwnedKind::Target => return None,
            };
            rest.clone_into(&mut key.1);
        }
    }

    /// Returns the owners of a name: the owner of its host, and for a wildcard also the owners of all suffixes that it covers.
    fn owners_of_name(&self, name: &str) -> Vec<&Owner> {
        let host = host_of(name);
        let Some(parent) = host.strip_prefix("*.") else {
            return self.owner(OwnedKind::Name, &host).into_iter().collect();
        };
        let covered = self.below.get(parent).into_iter().flatten();
        let covered = covered.filter_map(|suffix| self.objects.get(&(OwnedKind::Name, suffix.clone())));
        self.owner(OwnedKind::Name, parent).into_iter().chain(covered).collect()
    }
}

impl Owner {
    fn ownership_changed_after(&self, at_us: i64) -> bool {
        self.moved_at_us.is_some_and(|moved| moved > at_us)
    }
}

fn bound_team(bound: &Scope) -> Option<&str> {
    match bound {
        Scope::Team(team) => Some(team),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two_teams() -> Ownership {
        let own = |kind, object: &str, team: &str| (kind, object.to_owned(), team.to_owned(), None);
        Ownership::new(
            [
                own(OwnedKind::Name, "a.example", "a"),
                own(OwnedKind::Name, "b.example", "b"),
                own(OwnedKind::Name, "b.a.example", "b"),
                own(OwnedKind::Name, "10.0.0.7", "b"),
                own(OwnedKind::Name, "2001:db8::7", "b"),
                own(OwnedKind::Profile, "web-a", "a"),
                own(OwnedKind::Profile, "web-b", "b"),
                own(OwnedKind::Issuer, "le-b", "b"),
                own(OwnedKind::Target, "host-a", "a"),
                own(OwnedKind::Target, "host-b", "b"),
                own(OwnedKind::Path, "/a", "a"),
                own(OwnedKind::Path, "/b", "b"),
                (OwnedKind::Profile, "moved".to_owned(), "b".to_owned(), Some(100)),
                own(OwnedKind::Profile, "c", "c"),
            ],
            [],
        )
    }

    fn certificate(profile: &str, team: Option<&str>, names: &[&str], targets: &[&str]) -> Object {
        Object {
            team: team.map(str::to_owned),
            targets: Some(targets.iter().map(|name| (*name).to_owned()).collect()),
            issuer: Some("internal".to_owned()),
            ..Object::profile(profile).with_names(names)
        }
    }

    #[test]
    fn grant_covers_the_objects_of_its_team() {
        let all = two_teams();
        let admits = |scope: &str, object: &Object| all.admits(&scope.parse().unwrap(), object);
        let plain = certificate("shared", Some("a"), &["x.a.example"], &["host-a"]);
        for scope in ["any", "team:a", "team:a,profile:shared", "team:a,name:*.a.example,target:host-*"] {
            assert!(admits(scope, &plain), "{scope}");
        }
        // No team owns the shared profile, so a grant for this profile alone acts for no team.
        for scope in
            ["team:b", "profile:shared", "issuer:internal", "name:*.example", "team:b,profile:shared"]
        {
            assert!(!admits(scope, &plain), "{scope}");
        }
        for scope in ["profile:web-a", "team:a", "name:*.a.example"] {
            assert!(admits(scope, &certificate("web-a", None, &["x.a.example"], &[])), "{scope}");
        }
        for (object, why) in [
            (certificate("web-b", Some("a"), &["x.a.example"], &[]), "the profile"),
            (certificate("shared", Some("a"), &["x.b.example"], &[]), "the name"),
            (certificate("shared", Some("a"), &["x.a.example", "y.b.example"], &[]), "one name"),
            (certificate("shared", Some("a"), &["x.b.a.example"], &[]), "a suffix within"),
            (certificate("shared", Some("a"), &["*.a.example"], &[]), "a wildcard over it"),
            (certificate("shared", Some("a"), &["*.example"], &[]), "a wildcard over both"),
            (certificate("shared", Some("a"), &["ops@b.example"], &[]), "a mailbox"),
            (certificate("shared", Some("a"), &["spiffe://b.example/x"], &[]), "a URI"),
            (certificate("shared", Some("a"), &["https://x.a.example@B.Example.:1/"], &[]), "a URI's host"),
            (certificate("shared", Some("a"), &["URI:sip:x@b.example"], &[]), "a URI without an authority"),
            (certificate("shared", Some("a"), &["10.0.0.7"], &[]), "an address"),
            (certificate("shared", Some("a"), &["::ffff:10.0.0.7"], &[]), "a mapped address"),
            (certificate("shared", Some("a"), &["https://10.0.0.7:1/x"], &[]), "an address in a URI"),
            (certificate("shared", Some("a"), &["https://0xA.7/"], &[]), "an address in numbers"),
            (certificate("shared", Some("a"), &["https://[2001:DB8:0::7]:1/"], &[]), "an IPv6 literal"),
            (certificate("shared", Some("a"), &["https://[2001:db8::7%25eth0]/"], &[]), "a zone ID"),
            (certificate("shared", Some("a"), &["x.a.example"], &["host-a", "host-b"]), "a target"),
        ] {
            assert!(!admits("team:a", &object), "{why}");
            assert!(admits("any", &object), "{why}");
        }
        assert!(admits("team:a", &Object::path("/A/x")) && admits("path:/a/*", &Object::path("/a/x")));
        assert!(!admits("team:b", &Object::path("/a/x")) && !admits("path:/*", &Object::path("/a/x")));
        assert!(admits("team:a", &Object::path("/a/*")) && !admits("team:a", &Object::path("/*")));
        assert!(admits("team:a", &Object::profile("web-a")) && !admits("team:a", &Object::profile("web-b")));
        assert!(
            !admits("team:a", &Object::profile("shared")),
            "shared profiles are listed to all by another rule"
        );
    }

    #[test]
    fn scope_alone_decides_when_no_teams_exist() {
        let none = Ownership::default();
        let object = certificate("web", Some("x"), &["a.example"], &[]);
        for (scope, admitted) in [("profile:web", true), ("team:x", true), ("team:y", false), ("any", true)] {
            assert_eq!(none.admits(&scope.parse().unwrap(), &object), admitted, "{scope}");
        }
        assert_eq!(none.check_issue(&object, &OwnershipRights::Nobody), Ok(None));
    }

    #[test]
    fn certificate_is_issued_for_exactly_one_team() {
        let all = two_teams();
        let team = |team: &str| OwnershipRights::Team(team.to_owned());
        let check = |profile: &str, label: Option<&str>, names: &[&str], rights: &OwnershipRights| {
            all.check_issue(&certificate(profile, label, names, &[]), rights)
        };
        let (a, b) = (["x.a.example"], ["x.b.example"]);
        assert_eq!(check("web-a", None, &a, &team("a")), Ok(Some("a")));
        assert_eq!(check("shared", None, &a, &team("a")), Ok(Some("a")));
        assert_eq!(check("shared", None, &["x.c.example"], &OwnershipRights::Nobody), Ok(None));
        assert_eq!(check("shared", None, &["x.c.example"], &team("unknown")), Ok(None));
        // A team without names gets certificates for all names that its profiles allow.
        assert_eq!(check("c", None, &["x.c.example"], &team("c")), Ok(Some("c")));
        for rights in [
            OwnershipRights::Everything,
            OwnershipRights::Proven,
            OwnershipRights::CertificateHolder { issued_at_us: 1 },
        ] {
            assert_eq!(check("shared", None, &b, &rights), Ok(Some("b")), "{rights:?}");
            assert_eq!(check("web-a", None, &a, &rights), Ok(Some("a")), "{rights:?}");
            // Ownership never extends the names that a profile allows.
            assert!(check("web-a", None, &b, &rights).is_err(), "{rights:?}");
            assert!(check("web-a", None, &["x.c.example"], &rights).is_err(), "{rights:?}");
        }
        for rights in [team("a"), OwnershipRights::Nobody, team("unknown")] {
            assert!(check("shared", None, &b, &rights).is_err(), "{rights:?}");
            let entered = if rights == OwnershipRights::Nobody {
                Ok(Some("b"))
            } else {
                Err(OwnershipMismatch::Objects)
            };
            assert_eq!(check("web-b", None, &b, &rights), entered, "{rights:?}");
            assert!(check("web-b", None, &a, &rights).is_err(), "{rights:?}");
            assert!(check("shared", None, &["*.example"], &rights).is_err(), "{rights:?}");
        }
        assert!(check("shared", Some("a"), &b, &OwnershipRights::Everything).is_err());
        assert!(check("web-b", Some("a"), &b, &OwnershipRights::Everything).is_err());
        assert_eq!(
            check("shared", None, &["x.c.example"], &team("a")),
            Err(OwnershipMismatch::Outside("x.c.example".to_owned(), "a".to_owned()))
        );
        let to_b = certificate("shared", Some("a"), &a, &["host-b"]);
        assert_eq!(all.check_issue(&to_b, &OwnershipRights::Everything), Err(OwnershipMismatch::Objects));
    }

    #[test]
    fn certificate_of_an_object_moved_to_another_team_is_not_renewed() {
        let all = two_teams();
        let object = certificate("moved", None, &["x.b.example"], &[]);
        let held =
            |issued_at_us| all.check_issue(&object, &OwnershipRights::CertificateHolder { issued_at_us });
        assert_eq!(held(99), Err(OwnershipMismatch::Moved));
        assert_eq!(held(100), Ok(Some("b")));
    }
}

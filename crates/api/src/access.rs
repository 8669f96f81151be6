//! Access: identities, tokens, people, client certificates, roles and their scopes.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// An identity: a token, a person, a client certificate.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct IdentityView {
    /// Its id.
    pub id: Uuid,
    /// Its name.
    pub name: String,
    /// To recognise it by: a token's first characters, a person's subject, what a certificate is found by.
    pub label: String,
    /// A person's address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub email: Option<String>,
    /// What it may do.
    pub grants: Vec<Grant>,
    /// Whether it is let in.
    pub enabled: bool,
    /// When it was made.
    pub created_at: String,
    /// By whom.
    pub created_by: String,
    /// When it ends; null for never.
    pub expires_at: Option<String>,
    /// When it was last used, to the hour; null for never.
    pub last_used_at: Option<String>,
}

/// A change; what is absent stays as it is.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct IdentityPatch {
    /// Its new name.
    #[cfg_attr(feature = "schemas", schema(min_length = 1, max_length = 128))]
    pub name: Option<String>,
    /// A person's new address; null for none.
    #[serde(default, deserialize_with = "crate::patch::given")]
    #[cfg_attr(feature = "schemas", schema(value_type = Option<String>))]
    pub email: Option<Option<String>>,
    /// What it may do from now on.
    pub grants: Option<Vec<Grant>>,
    /// Whether it is let in from now on.
    pub enabled: Option<bool>,
    /// When it ends; null for never.
    #[serde(default, deserialize_with = "crate::patch::given")]
    #[cfg_attr(feature = "schemas", schema(value_type = Option<String>))]
    pub expires_at: Option<Option<String>>,
}

/// A role within a scope.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Grant {
    /// The role's name.
    #[cfg_attr(feature = "schemas", schema(example = "operator"))]
    pub role: String,
    /// How far it reaches: `any`, `profile:NAME`, `issuer:NAME`, `team:NAME`, or several of these with commas between: all of them
    /// must hold.
    #[serde(default = "any")]
    #[cfg_attr(feature = "schemas", schema(value_type = String, example = "team:web", default = "any"))]
    pub scope: Scope,
}

fn any() -> Scope {
    Scope::Any
}

/// A token to make.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewToken {
    /// Its name, unique among tokens.
    #[cfg_attr(feature = "schemas", schema(example = "ci", min_length = 1, max_length = 128))]
    pub name: String,
    /// What it may do; nothing its maker may not.
    pub grants: Vec<Grant>,
    /// When it ends, RFC 3339; never when absent.
    #[cfg_attr(feature = "schemas", schema(example = "2027-01-01T00:00:00Z"))]
    pub expires_at: Option<String>,
}

/// A token just made.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct CreatedToken {
    /// The secret. It is shown this once.
    pub token: String,
    /// What is kept of it.
    #[serde(flatten)]
    pub view: IdentityView,
}

/// A person who may log in.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewUser {
    /// A name, unique among people.
    #[cfg_attr(feature = "schemas", schema(example = "alice", min_length = 1, max_length = 128))]
    pub name: String,
    /// What the issuer calls the person: the claim `sub`.
    #[cfg_attr(feature = "schemas", schema(min_length = 1, max_length = 255))]
    pub subject: String,
    /// The issuer; the configured one when absent.
    pub issuer: Option<String>,
    /// An address.
    pub email: Option<String>,
    /// What the person may do, beside what their groups give.
    #[serde(default)]
    pub grants: Vec<Grant>,
}

/// A session.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct SessionView {
    /// From where the login came.
    pub address: String,
    /// When it began.
    pub created_at: String,
    /// When it was last seen, coarsely.
    pub last_seen_at: String,
    /// When it ends whatever happens.
    pub expires_at: String,
    /// What the login's groups gave.
    pub grants: Vec<Grant>,
}

/// A client certificate to let in.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewClientCertificate {
    /// A name, unique among client certificates; the audit trail shows `certificate:NAME`.
    #[cfg_attr(feature = "schemas", schema(example = "deployer", min_length = 1, max_length = 128))]
    pub name: String,
    /// The certificate, by its fingerprint (`sha256:HEX`) or a name in it (`dns:NAME`, `email:ADDRESS`, `uri:URI`). It
    /// must lie below one of the roots configured for client certificates.
    #[serde(rename = "match")]
    #[cfg_attr(feature = "schemas", schema(example = "dns:deployer.example.org"))]
    pub matcher: String,
    /// The profile by which the server's own authority issued the certificate. Needed for a name in such a certificate; absent, a
    /// name counts in certificates of other CAs alone.
    #[serde(default)]
    #[cfg_attr(feature = "schemas", schema(example = "deployers", min_length = 1, max_length = 64))]
    pub profile: Option<String>,
    /// What it may do; nothing its maker may not.
    pub grants: Vec<Grant>,
    /// When it ends, RFC 3339; with the certificate when absent.
    pub expires_at: Option<String>,
}

/// A role.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct RoleView {
    /// Its name.
    pub name: String,
    /// What it is for.
    pub description: String,
    /// What it holds.
    pub permissions: Vec<String>,
    /// Whether it comes with Bulla and cannot be changed.
    pub built_in: bool,
    /// When it last changed; null for one that comes with Bulla.
    pub updated_at: Option<String>,
}

/// A role as it is to be.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewRole {
    /// What it is for.
    #[serde(default)]
    #[cfg_attr(feature = "schemas", schema(max_length = 1024))]
    pub description: String,
    /// What it holds, `noun.verb`; nothing its maker may not do.
    #[cfg_attr(feature = "schemas", schema(example = json!(["certificate.read", "certificate.renew"])))]
    pub permissions: Vec<String>,
}

/// Who one is.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct Me {
    /// As the audit trail names the caller.
    #[cfg_attr(feature = "schemas", schema(example = "token:ci"))]
    pub actor: String,
    /// `token`, `user`, `certificate` or `agent`.
    pub kind: String,
    /// The token's, person's or certificate's id.
    pub id: Uuid,
    /// What one may do.
    pub granted: Vec<MyGrant>,
    /// With a session: the value of `X-CSRF-Token` for unsafe requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub csrf_token: Option<String>,
}

/// Permissions within a scope.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct MyGrant {
    /// How far.
    #[cfg_attr(feature = "schemas", schema(value_type = String))]
    pub scope: Scope,
    /// What.
    pub permissions: Vec<String>,
}

/// What is left to do after logging out.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct LoggedOut {
    /// Where the browser ends the issuer's own session too, if the issuer offers it.
    pub end_session_url: Option<String>,
}

/// Longest name in a scope, in octets: as for the things named.
const NAME_BYTES_MAX: usize = 253;

/// Bounds of one scope.
const BOUNDS_MAX: usize = 8;

/// How far a grant reaches. Written `any`, `profile:NAME`, `issuer:NAME`, `team:NAME`, or `team:NAME,profile:NAME`: what lies in all of
/// these.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Scope {
    /// Everything.
    Any,
    /// What is issued by this profile.
    Profile(String),
    /// What comes from this issuer.
    Issuer(String),
    /// What belongs to this team.
    Team(String),
    /// What lies in every one of these, sorted: at least two, each a profile, an issuer or a team.
    Every(Vec<Self>),
}

impl Scope {
    /// The scope of a profile.
    #[must_use]
    pub fn profile(name: impl Into<String>) -> Self {
        Self::Profile(name.into())
    }

    /// The scope of an issuer.
    #[must_use]
    pub fn issuer(name: impl Into<String>) -> Self {
        Self::Issuer(name.into())
    }

    /// The scope of a team.
    #[must_use]
    pub fn team(name: impl Into<String>) -> Self {
        Self::Team(name.into())
    }

    /// The profiles, issuers and teams in which a thing must lie, all of them.
    #[must_use]
    pub fn bounds(&self) -> &[Self] {
        match self {
            Self::Any => &[],
            Self::Every(bounds) => bounds,
            bound => std::slice::from_ref(bound),
        }
    }

    /// Whether all of `other` lies within.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        self.bounds().iter().all(|bound| other.bounds().contains(bound))
    }

    /// Whether a thing that lies in `scopes` lies within.
    #[must_use]
    pub fn reaches(&self, scopes: &[Self]) -> bool {
        self.bounds().iter().all(|bound| scopes.contains(bound))
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("any"),
            Self::Profile(name) => write!(f, "profile:{name}"),
            Self::Issuer(name) => write!(f, "issuer:{name}"),
            Self::Team(name) => write!(f, "team:{name}"),
            Self::Every(bounds) => {
                let texts: Vec<String> = bounds.iter().map(ToString::to_string).collect();
                f.write_str(&texts.join(","))
            }
        }
    }
}

/// Where a bound of a scope begins after a comma; a comma elsewhere is part of a name.
fn split(text: &str) -> Vec<&str> {
    let (mut parts, mut start) = (Vec::new(), 0);
    for (at, _) in text.match_indices(',') {
        let rest = &text[at + 1..];
        if ["profile:", "issuer:", "team:"].iter().any(|kind| rest.starts_with(kind)) {
            parts.push(&text[start..at]);
            start = at + 1;
        }
    }
    parts.push(&text[start..]);
    parts
}

/// A text that is no scope.
#[derive(Debug, thiserror::Error)]
#[error(
    "{0:?} is no scope: give `any`, `profile:NAME`, `issuer:NAME`, `team:NAME`, or several of them with commas between"
)]
pub struct BadScope(pub String);

impl FromStr for Scope {
    type Err = BadScope;

    fn from_str(text: &str) -> Result<Self, BadScope> {
        let bad = || BadScope(text.chars().take(NAME_BYTES_MAX).collect());
        if text == "any" {
            return Ok(Self::Any);
        }
        if let parts @ [_, _, ..] = &split(text)[..] {
            let mut bounds = parts.iter().map(|part| part.parse()).collect::<Result<Vec<Self>, _>>()?;
            if bounds.contains(&Self::Any) || bounds.len() > BOUNDS_MAX {
                return Err(bad());
            }
            bounds.sort();
            bounds.dedup();
            // Of one bound twice there is one.
            return Ok(if bounds.len() == 1 { bounds.remove(0) } else { Self::Every(bounds) });
        }
        let (kind, name) = text.split_once(':').ok_or_else(bad)?;
        if name.is_empty() || name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control) {
            return Err(bad());
        }
        match kind {
            "profile" => Ok(Self::profile(name)),
            "issuer" => Ok(Self::issuer(name)),
            "team" => Ok(Self::team(name)),
            _ => Err(bad()),
        }
    }
}

impl Serialize for Scope {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Scope {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        std::borrow::Cow::<'de, str>::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_are_read_as_they_are_written() {
        for text in ["any", "profile:web", "issuer:letsencrypt", "team:a:b", "team:a,b", "profile:w,team:a,x"]
        {
            assert_eq!(text.parse::<Scope>().unwrap().to_string(), text);
        }
        assert_eq!("team:a,profile:w".parse::<Scope>().unwrap().to_string(), "profile:w,team:a");
        assert_eq!("team:a,team:a".parse::<Scope>().unwrap(), Scope::team("a"));
        for text in
            ["", "all", "profile", "profile:", "path:/x", "team:a\nb", "any,team:a", "team:,profile:w"]
        {
            assert!(text.parse::<Scope>().is_err(), "{text:?}");
        }
        assert!(format!("x:{}", "a".repeat(300)).parse::<Scope>().is_err());
    }

    #[test]
    fn a_scope_of_several_bounds_needs_all_of_them() {
        let both: Scope = "team:a,profile:web".parse().unwrap();
        let (team, profile) = (Scope::team("a"), Scope::profile("web"));
        assert!(both.reaches(&[profile.clone(), Scope::issuer("x"), team.clone()]));
        assert!(!both.reaches(&[profile.clone(), Scope::team("b")]));
        assert!(!both.reaches(std::slice::from_ref(&team)) && !both.reaches(&[]));
        assert!(Scope::Any.reaches(&[]) && !team.reaches(&[]));
        assert!(team.covers(&both) && profile.covers(&both) && both.covers(&both));
        assert!(!both.covers(&team) && !both.covers(&Scope::Any) && Scope::Any.covers(&both));
    }

    #[test]
    fn any_covers_all_and_others_themselves() {
        let web = Scope::profile("web");
        assert!(Scope::Any.covers(&web) && web.covers(&web));
        assert!(!web.covers(&Scope::Any) && !web.covers(&Scope::team("web")));
    }
}

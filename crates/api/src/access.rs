//! Access: identities, tokens, people, client certificates, roles and their scopes.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

pub use crate::scope::{BadScope, Object, Scope};

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
    /// The granted roles and scopes.
    pub grants: Vec<Grant>,
    /// Whether it is let in.
    pub enabled: bool,
    /// Creation time.
    pub created_at: String,
    /// Actor that created it.
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
    /// The roles and scopes that replace the present ones.
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
    /// How far it reaches: `any`, `profile:NAME`, `issuer:NAME`, `team:NAME`, `name:*.a.example`, `target:NAME`, `path:/a/*`, or
    /// several of these with commas between: all of them must hold.
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
    /// The stored part, without the secret.
    #[serde(flatten)]
    pub view: IdentityView,
}

/// A person who may log in.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewUser {
    /// A name, unique among people.
    #[cfg_attr(feature = "schemas", schema(example = "alice", min_length = 1, max_length = 128))]
    pub name: String,
    /// What the issuer calls the person: the claim `sub`. Absent for a person who signs in with a password or one-time links.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schemas", schema(min_length = 1, max_length = 255))]
    pub subject: Option<String>,
    /// The issuer; the configured one when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
    /// An address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub email: Option<String>,
    /// Grants of the person, in addition to those of their groups.
    #[serde(default)]
    pub grants: Vec<Grant>,
}

/// A session.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct SessionView {
    /// From where the login came.
    pub address: String,
    /// Start time.
    pub created_at: String,
    /// When it was last seen, coarsely.
    pub last_seen_at: String,
    /// When it ends whatever happens.
    pub expires_at: String,
    /// What the login's groups gave.
    pub grants: Vec<Grant>,
    /// How its person signed in: `oidc`, `link` or `password`; null for a session that an older release began.
    pub method: Option<String>,
    /// When its person last proved who they are; null where that is not known.
    pub confirmed_at: Option<String>,
    /// Whether this request came with it.
    pub current: bool,
}

/// A one-time sign-in link to make, for oneself.
#[derive(Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewSignInLink {
    /// Seconds until it expires, 10 to 600; 600 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schemas", schema(minimum = 10, maximum = 600, example = 600))]
    pub lifetime_s: Option<u64>,
}

/// A one-time sign-in link just made.
#[derive(Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct SignInLinkView {
    /// The code. It is shown this once, and used once.
    pub code: String,
    /// The page of the console that signs in with it. Open it in a browser.
    #[cfg_attr(feature = "schemas", schema(example = "https://bulla.example.org/console/sign-in#code=x"))]
    pub url: String,
    /// Until when it can be used.
    pub expires_at: String,
}

/// What a person signs in with.
#[derive(Deserialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SignIn {
    /// The code of a one-time link; without name and password.
    #[serde(default)]
    #[cfg_attr(feature = "schemas", schema(min_length = 1, max_length = 128))]
    pub code: Option<String>,
    /// A user's name.
    #[serde(default)]
    #[cfg_attr(feature = "schemas", schema(min_length = 1, max_length = 128))]
    pub name: Option<String>,
    /// The user's password.
    #[serde(default)]
    #[cfg_attr(feature = "schemas", schema(max_length = 256))]
    pub password: Option<String>,
}

/// A user's new password.
#[derive(Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewPassword {
    /// At least 12 characters, and at most 256 bytes.
    #[cfg_attr(feature = "schemas", schema(min_length = 12, max_length = 256))]
    pub password: String,
}

/// What a person confirms a session with: a new one-time code, or the password.
#[derive(Deserialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SessionConfirmation {
    /// The code of a one-time link; without the password.
    #[serde(default)]
    #[cfg_attr(feature = "schemas", schema(min_length = 1, max_length = 128))]
    pub code: Option<String>,
    /// The user's password.
    #[serde(default)]
    #[cfg_attr(feature = "schemas", schema(max_length = 256))]
    pub password: Option<String>,
}

/// Sessions that were ended.
#[derive(Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct SignedOut {
    /// How many.
    pub ended: u64,
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
    /// The profile by which the server's own CA issued the certificate. Needed for a name in such a certificate; absent, a
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
    /// A description.
    pub description: String,
    /// The permissions of the role.
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
    /// A description.
    #[serde(default)]
    #[cfg_attr(feature = "schemas", schema(max_length = 1024))]
    pub description: String,
    /// What it holds, `noun.verb`; nothing its maker may not do.
    #[cfg_attr(feature = "schemas", schema(example = json!(["certificate.read", "certificate.renew"])))]
    pub permissions: Vec<String>,
}

/// The caller's identity and permissions.
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
    /// The grants of the caller.
    pub granted: Vec<MyGrant>,
    /// With a session: the value of `X-CSRF-Token` for unsafe requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub csrf_token: Option<String>,
    /// The session that the request came with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<MySession>,
}

/// The session that a request came with.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct MySession {
    /// How its person signed in: `oidc`, `link` or `password`; null for a session that an older release began.
    pub method: Option<String>,
    /// When it ends whatever happens.
    pub expires_at: String,
    /// When its person last proved who they are; null where that is not known.
    pub confirmed_at: Option<String>,
    /// Until when it may do what needs a recent proof; null when the person has to confirm it first.
    pub confirmed_until: Option<String>,
}

/// Permissions within a scope.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct MyGrant {
    /// How far.
    #[cfg_attr(feature = "schemas", schema(value_type = String))]
    pub scope: Scope,
    /// The permissions.
    pub permissions: Vec<String>,
}

/// What is left to do after logging out.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct LoggedOut {
    /// Where the browser ends the issuer's own session too, if the issuer offers it.
    pub end_session_url: Option<String>,
}

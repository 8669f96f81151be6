//! Access: identities, tokens, people, client certificates, roles and their scopes.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::security_keys::SecurityKeyAssertion;

pub use crate::host::{address, host_of};
pub use crate::scope::{BadScope, Object, Scope};

/// An identity that can authenticate: a token, a person or a client certificate.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct IdentityView {
    /// UUID of the identity, used in `/api/v1/tokens/{id}`, `/api/v1/users/{id}` or `/api/v1/client-certificates/{id}`.
    pub id: Uuid,
    /// Name of the identity, unique among identities of its kind.
    pub name: String,
    /// Text by which to recognise the identity: the first characters of a token, the subject of a person, or the matcher of a
    /// client certificate.
    pub label: String,
    /// Email address; only for a person.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub email: Option<String>,
    /// The granted roles and scopes.
    pub grants: Vec<Grant>,
    /// Whether the identity may authenticate.
    pub enabled: bool,
    /// Creation time, RFC 3339.
    pub created_at: String,
    /// Actor that created the identity.
    pub created_by: String,
    /// Expiry time; null if the identity does not expire.
    pub expires_at: Option<String>,
    /// Time of the last use, with a precision of one hour; null if never used.
    pub last_used_at: Option<String>,
}

/// A change to an identity. Absent fields keep their value.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct IdentityPatch {
    /// New name, unique among identities of the same kind.
    #[cfg_attr(feature = "schemas", schema(min_length = 1, max_length = 128))]
    pub name: Option<String>,
    /// New email address of a person; null removes it.
    #[serde(default, deserialize_with = "crate::patch::given")]
    #[cfg_attr(feature = "schemas", schema(value_type = Option<String>))]
    pub email: Option<Option<String>>,
    /// Roles and scopes that replace all current ones.
    pub grants: Option<Vec<Grant>>,
    /// Whether the identity may authenticate.
    pub enabled: Option<bool>,
    /// New expiry time; null for no expiry.
    #[serde(default, deserialize_with = "crate::patch::given")]
    #[cfg_attr(feature = "schemas", schema(value_type = Option<String>))]
    pub expires_at: Option<Option<String>>,
}

/// A role, granted within a scope.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Grant {
    /// Name of a built-in or custom role, such as `operator`.
    #[cfg_attr(feature = "schemas", schema(example = "operator"))]
    pub role: String,
    /// Scope of the role: `any`, `profile:NAME`, `issuer:NAME`, `team:NAME`, `name:*.a.example`, `target:NAME`, `path:/a/*`, or
    /// several of these separated by commas. All of them must match.
    #[serde(default = "any")]
    #[cfg_attr(feature = "schemas", schema(value_type = String, example = "team:web", default = "any"))]
    pub scope: Scope,
}

fn any() -> Scope {
    Scope::Any
}

/// A token to create.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewToken {
    /// Name of the token, unique among tokens.
    #[cfg_attr(feature = "schemas", schema(example = "ci", min_length = 1, max_length = 128))]
    pub name: String,
    /// Roles and scopes of the token. They cannot exceed the permissions of the creator.
    pub grants: Vec<Grant>,
    /// Expiry time, RFC 3339. The token does not expire when absent.
    #[cfg_attr(feature = "schemas", schema(example = "2027-01-01T00:00:00Z"))]
    pub expires_at: Option<String>,
}

/// Response to creating a token or replacing its secret: the secret and the identity of the token.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct CreatedToken {
    /// The secret token. It is shown only in this response.
    pub token: String,
    /// The identity of the token, without the secret.
    #[serde(flatten)]
    pub view: IdentityView,
}

/// A person who may sign in.
#[derive(Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewUser {
    /// Name of the person, unique among people.
    #[cfg_attr(feature = "schemas", schema(example = "alice", min_length = 1, max_length = 128))]
    pub name: String,
    /// Subject of the person at the issuer (claim `sub`). The value `local` is reserved. Absent for a person who signs in with a
    /// password or one-time links.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schemas", schema(min_length = 1, max_length = 255))]
    pub subject: Option<String>,
    /// URL of the OIDC issuer; the configured one when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
    /// Email address of the person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub email: Option<String>,
    /// Roles and scopes granted to the person, in addition to the grants of their groups.
    #[serde(default)]
    pub grants: Vec<Grant>,
}

/// A session of a signed-in person.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct SessionView {
    /// Network address from which the person signed in.
    pub address: String,
    /// Time at which the session began, RFC 3339.
    pub created_at: String,
    /// Approximate time of the last request in the session.
    pub last_seen_at: String,
    /// Time at which the session ends, even if it is in use.
    pub expires_at: String,
    /// Grants that the person has in this session because of their groups at the OIDC issuer.
    pub grants: Vec<Grant>,
    /// Sign-in method of the person: `oidc`, `link`, `password`, `password+security-key` or `passkey`; null for a session that
    /// began before an upgrade from an older release.
    pub method: Option<String>,
    /// Time at which the person last proved their identity; null if unknown.
    pub confirmed_at: Option<String>,
    /// Whether this request was made in this session.
    pub current: bool,
}

/// A one-time sign-in link to create for the caller.
#[derive(Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewSignInLink {
    /// Lifetime in seconds, 10 to 600; 600 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schemas", schema(minimum = 10, maximum = 600, example = 600))]
    pub lifetime_s: Option<u64>,
}

/// Response to the creation of a one-time sign-in link: the code, the URL and the expiry.
#[derive(Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct SignInLinkView {
    /// The code. It is shown only in this response and can be used once.
    pub code: String,
    /// URL of the console page that signs in with the code. Open it in a browser.
    #[cfg_attr(feature = "schemas", schema(example = "https://bulla.example.org/console/sign-in#code=x"))]
    pub url: String,
    /// Expiry time, RFC 3339.
    pub expires_at: String,
}

/// Credentials for signing in: a one-time code, a name and a password, or the response of a security key.
#[derive(Deserialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SignIn {
    /// Code of a one-time link. Omit the other members with it.
    #[serde(default)]
    #[cfg_attr(feature = "schemas", schema(min_length = 1, max_length = 128))]
    pub code: Option<String>,
    /// Name of the user, with `password`.
    #[serde(default)]
    #[cfg_attr(feature = "schemas", schema(min_length = 1, max_length = 128))]
    pub name: Option<String>,
    /// Password of the user, with `name`.
    #[serde(default)]
    #[cfg_attr(feature = "schemas", schema(max_length = 256))]
    pub password: Option<String>,
    /// Response of a security key, alone or after the password. Omit the other members with it.
    #[serde(default)]
    pub security_key: Option<SecurityKeyAssertion>,
}

/// Request body that sets a user's password.
#[derive(Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewPassword {
    /// New password: at least 12 characters and at most 256 bytes.
    #[cfg_attr(feature = "schemas", schema(min_length = 12, max_length = 256))]
    pub password: String,
}

/// Credentials that confirm a session: a new one-time code, the password, or the response of a security key.
#[derive(Deserialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SessionConfirmation {
    /// Code of a one-time link. Omit the other members with it.
    #[serde(default)]
    #[cfg_attr(feature = "schemas", schema(min_length = 1, max_length = 128))]
    pub code: Option<String>,
    /// Password of the user.
    #[serde(default)]
    #[cfg_attr(feature = "schemas", schema(max_length = 256))]
    pub password: Option<String>,
    /// Response of a security key, alone or after the password. Omit the other members with it.
    #[serde(default)]
    pub security_key: Option<SecurityKeyAssertion>,
}

/// Result of a request that ends sessions.
#[derive(Deserialize, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct SignedOut {
    /// Number of sessions that were ended.
    pub ended: u64,
}

/// A client certificate that may authenticate.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewClientCertificate {
    /// Name, unique among client certificates. The audit log shows `certificate:NAME`.
    #[cfg_attr(feature = "schemas", schema(example = "deployer", min_length = 1, max_length = 128))]
    pub name: String,
    /// The certificate, by its fingerprint (`sha256:HEX`) or by a name in it (`dns:NAME`, `email:ADDRESS`, `uri:URI`). It must
    /// chain to one of the roots configured for client certificates.
    #[serde(rename = "match")]
    #[cfg_attr(feature = "schemas", schema(example = "dns:deployer.example.org"))]
    pub matcher: String,
    /// Profile with which a CA of this server issued the certificate. Required when `matcher` is a name and a CA of this server
    /// issues the certificate. When absent, a name matches only certificates of other CAs.
    #[serde(default)]
    #[cfg_attr(feature = "schemas", schema(example = "deployers", min_length = 1, max_length = 64))]
    pub profile: Option<String>,
    /// Roles and scopes of the certificate. They cannot exceed the permissions of the creator.
    pub grants: Vec<Grant>,
    /// Expiry time, RFC 3339; the expiry of the certificate when absent.
    pub expires_at: Option<String>,
}

/// A built-in or custom role, with its permissions.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct RoleView {
    /// Name of the role, unique.
    pub name: String,
    /// Human-readable description.
    pub description: String,
    /// Permissions of the role, each as `noun.verb`.
    pub permissions: Vec<String>,
    /// Whether the role is built into Bulla and cannot be changed.
    pub built_in: bool,
    /// Time of the last change; null for a built-in role.
    pub updated_at: Option<String>,
}

/// Definition of a role to create or replace.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewRole {
    /// Human-readable description.
    #[serde(default)]
    #[cfg_attr(feature = "schemas", schema(max_length = 1024))]
    pub description: String,
    /// Permissions of the role, each as `noun.verb`. They cannot exceed the permissions of the creator.
    #[cfg_attr(feature = "schemas", schema(example = json!(["certificate.read", "certificate.renew"])))]
    pub permissions: Vec<String>,
}

/// The caller's identity and permissions.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct Me {
    /// Name of the caller in the audit log.
    #[cfg_attr(feature = "schemas", schema(example = "token:ci"))]
    pub actor: String,
    /// Kind of the caller: `token`, `user`, `certificate` or `agent`.
    pub kind: String,
    /// Identifier of the token, person, certificate or agent.
    pub id: Uuid,
    /// Permissions of the caller, by scope.
    pub granted: Vec<MyGrant>,
    /// Value of the header `X-CSRF-Token` for unsafe requests; only with a session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub csrf_token: Option<String>,
    /// The session in which the request was made; null without a session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<MySession>,
}

/// The session in which a request was made.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct MySession {
    /// Sign-in method of the person: `oidc`, `link`, `password`, `password+security-key` or `passkey`; null for a session that
    /// began before an upgrade from an older release.
    pub method: Option<String>,
    /// Time at which the session ends, even if it is in use.
    pub expires_at: String,
    /// Time at which the person last proved their identity; null if unknown.
    pub confirmed_at: Option<String>,
    /// End of the period in which the session may do actions that need a recent confirmation; null when the person must confirm the
    /// session first.
    pub confirmed_until: Option<String>,
}

/// Permissions of the caller within a scope.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct MyGrant {
    /// Scope within which the permissions apply.
    #[cfg_attr(feature = "schemas", schema(value_type = String))]
    pub scope: Scope,
    /// Permissions within the scope.
    pub permissions: Vec<String>,
}

/// Result of a logout.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(utoipa::ToSchema))]
pub struct LoggedOut {
    /// URL at which the browser also ends the session at the OIDC issuer, if the issuer has one.
    pub end_session_url: Option<String>,
}

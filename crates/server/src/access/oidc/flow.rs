//! The OpenID Connect login flow, from the first redirect to the session.

use api::access::Grant;
use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use reqwest::Url;
use serde::{Deserialize, Serialize};
use serde_json::json;
use store::{Identity, IdentityKind, IdentitySettings, NewIdentity, SignInMethod};
use utoipa::IntoParams;
use uuid::Uuid;
use zeroize::Zeroizing;

use super::id_token::Claims;
use super::provider::Oidc;
use crate::access::grant;
use crate::access::issuer::refused;
use crate::access::session::{PreparedSession, SessionStart};
use crate::access::{AccessControl, admin, secret};
use crate::problem::Problem;

/// The cookie that binds a login to the browser in which it began.
pub(crate) const LOGIN_COOKIE: &str = "__Host-bulla-login";

/// Maximum duration of a login, µs: ten minutes, because finding a second factor can take time.
const LOGIN_MAX_US: i64 = 600 * 1_000_000;

/// Maximum length of the path to return to.
const RETURN_MAX: usize = 1_024;

/// The state of a login, in a cookie while the user is at the issuer. The server stores nothing, so that an unfinished login costs
/// nothing.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Login {
    state: String,
    nonce: String,
    verifier: String,
    return_to: String,
    begun_at_us: i64,
    /// Whether the issuer was asked to authenticate the user again. The browser could change this flag: only the `auth_time` claim
    /// is proof.
    #[serde(default)]
    confirm: bool,
}

/// Query parameters of the issuer's redirect to the callback.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct CallbackParams {
    /// The authorization code, which is exchanged for the ID token.
    code: Option<String>,
    /// Value of the `state` parameter that the issuer returned.
    state: Option<String>,
    /// Issuer identifier (RFC 9207), if the issuer sends it.
    iss: Option<String>,
    /// The error code, if the login failed at the issuer.
    error: Option<String>,
}

/// The result of a completed login: the session cookie and the path to return to.
pub(crate) struct CompletedLogin {
    /// The session's secret, for the cookie.
    pub(crate) cookie: Zeroizing<String>,
    /// Path on this server to which the browser returns.
    pub(crate) return_to: String,
}

impl Login {
    /// Starts a login; `return_to` is a path on this server.
    pub(crate) fn begin(return_to: Option<&str>, confirm: bool, now_us: i64) -> Result<Self, Problem> {
        let text = || secret::random_text().map(|text| text.as_str().to_owned());
        Ok(Self {
            state: text()?,
            nonce: text()?,
            verifier: text()?,
            return_to: local_path(return_to).unwrap_or("/").to_owned(),
            begun_at_us: now_us,
            confirm,
        })
    }

    /// Serializes the login for the cookie.
    pub(crate) fn to_cookie(&self) -> Result<String, Problem> {
        serde_json::to_vec(self).map(|json| URL_SAFE_NO_PAD.encode(json)).map_err(Problem::internal)
    }

    pub(crate) fn from_cookie(cookie: &str) -> Option<Self> {
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(cookie).ok()?).ok()
    }

    /// Returns the URL to which the browser is redirected.
    pub(crate) async fn redirect(&self, oidc: &Oidc) -> Result<String, Problem> {
        let description = oidc.description().await?;
        let options = oidc.options();
        let challenge = URL_SAFE_NO_PAD.encode(digest(&SHA256, self.verifier.as_bytes()));
        let scopes = std::iter::once("openid")
            .chain(options.scopes.iter().map(String::as_str).filter(|scope| *scope != "openid"))
            .collect::<Vec<_>>()
            .join(" ");
        let parameters = [
            ("response_type", "code"),
            ("client_id", &options.client_id),
            ("redirect_uri", &options.redirect_url),
            ("scope", &scopes),
            ("state", &self.state),
            ("nonce", &self.nonce),
            ("code_challenge", &challenge),
            ("code_challenge_method", "S256"),
        ];
        let confirming: &[(&str, &str)] =
            if self.confirm { &[("prompt", "login"), ("max_age", "0")] } else { &[] };
        let parameters = parameters.iter().chain(confirming);
        let url = Url::parse_with_params(description.authorization_endpoint()?, parameters);
        url.map(String::from).map_err(Problem::internal)
    }

    /// Completes a login: from the issuer's response to a session.
    pub(crate) async fn finish(
        self,
        access: &AccessControl,
        oidc: &Oidc,
        answer: &CallbackParams,
        address: &str,
        replaces: Option<[u8; 32]>,
    ) -> Result<CompletedLogin, Problem> {
        let now_us = access.clock().now_us();
        if now_us - self.begun_at_us > LOGIN_MAX_US || self.begun_at_us > now_us {
            return Err(refused("the login took too long"));
        }
        if !answer.state.as_deref().is_some_and(|given| secret::same(given, &self.state)) {
            return Err(refused("the response belongs to another login"));
        }
        self.check_issuer(oidc, answer).await?;
        if let Some(error) = &answer.error {
            let error: String = error.chars().filter(|c| c.is_ascii_graphic()).take(64).collect();
            return Err(refused(format_args!("the issuer returned the error {error}")));
        }
        let code = answer.code.as_deref().ok_or_else(|| refused("the issuer's response contains no code"))?;
        let token = oidc.exchange(code, &self.verifier).await?;
        let claims = oidc.verified(&token, &self.nonce, access.clock().now_seconds()).await?;
        let proved_at_us = claims.auth_time().map(|at| at.saturating_mul(1_000_000));
        if self.confirm {
            check_authentication_time(proved_at_us, self.begun_at_us)?;
        }
        let grants = grants_from_groups(oidc, &claims);
        let user = user(access, oidc, &claims, !grants.is_empty()).await?;
        let start = SessionStart {
            identity: &user,
            method: SignInMethod::Oidc,
            grants: grant::to_store(&grants),
            proved_at_us,
            end_us: None,
            chain: None,
            security_key: None,
            address,
            replaces,
        };
        let cookie = PreparedSession::new(access, start)?.begin(access).await?;
        Ok(CompletedLogin { cookie, return_to: self.return_to })
    }

    /// Checks the issuer parameter (RFC 9207), so that the response of one issuer is not accepted for another.
    async fn check_issuer(&self, oidc: &Oidc, answer: &CallbackParams) -> Result<(), Problem> {
        let required = oidc.description().await?.authorization_response_iss_parameter_supported;
        match &answer.iss {
            Some(iss) if *iss != oidc.options().issuer => Err(refused("the response is from another issuer")),
            None if required => Err(refused("the response does not name its issuer (parameter iss)")),
            _ => Ok(()),
        }
    }
}

/// Checks that the user authenticated after the login began, by the issuer's clock.
fn check_authentication_time(proved_at_us: Option<i64>, begun_at_us: i64) -> Result<(), Problem> {
    const CLOCKS_DIFFER_US: i64 = 60 * 1_000_000;
    let hint = "confirm the session with a password or the code of a one-time link instead";
    match proved_at_us {
        Some(at) if at.saturating_add(CLOCKS_DIFFER_US) >= begun_at_us => Ok(()),
        Some(_) => Err(refused("the issuer did not authenticate you again").hint(hint)),
        None => Err(refused("the issuer does not report when you signed in (claim auth_time)").hint(hint)),
    }
}

/// Returns the path if it is on this server: neither on another host (`//…`, `/\…`) nor with a scheme.
fn local_path(path: Option<&str>) -> Option<&str> {
    path.filter(|path| {
        let mut letters = path.chars();
        letters.next() == Some('/')
            && !matches!(letters.next(), Some('/' | '\\'))
            && path.len() <= RETURN_MAX
            && path.chars().all(|letter| letter.is_ascii_graphic() && letter != '\\')
    })
}

fn grants_from_groups(oidc: &Oidc, claims: &Claims) -> Vec<Grant> {
    let options = oidc.options();
    let groups = claims.texts(&options.groups_claim);
    let mut grants: Vec<Grant> = Vec::new();
    for mapped in options.groups.iter().filter(|mapped| groups.contains(&mapped.group.as_str())) {
        let grant = Grant { role: mapped.role.clone(), scope: mapped.scope.clone() };
        if !grants.contains(&grant) && grants.len() < grant::GRANTS_MAX {
            grants.push(grant);
        }
    }
    grants
}

/// Returns the existing user, or creates one. Rejects a user who has no grants, neither from groups nor from an administrator.
async fn user(
    access: &AccessControl,
    oidc: &Oidc,
    claims: &Claims,
    granted: bool,
) -> Result<Identity, Problem> {
    let key = secret::subject_hash(&oidc.options().issuer, &claims.sub);
    let found = store::Access::of(access.store()).identities_by_keys(&[key]).await?;
    if let Some(user) = found.into_iter().find(|user| user.kind == IdentityKind::User) {
        if !user.enabled {
            return Err(Problem::forbidden("this user is disabled"));
        }
        if granted || !grant::stored(&user)?.is_empty() {
            return Ok(user);
        }
    }
    if !granted {
        return Err(Problem::forbidden("you have no role on this server")
            .hint("ask an administrator to map one of your groups or to assign you a role"));
    }
    create_user(access, oidc, claims, key).await
}

async fn create_user(
    access: &AccessControl,
    oidc: &Oidc,
    claims: &Claims,
    key: [u8; 32],
) -> Result<Identity, Problem> {
    let named = claims.text(&oidc.options().name_claim).or(claims.email.as_deref()).unwrap_or(&claims.sub);
    let name: String = named.chars().filter(|c| !c.is_control()).take(64).collect();
    // If two users have the same name at the issuer, the name of the second contains a part of the subject's hash. The same applies
    // if the name has permissions already, as the name of a deleted user may.
    let other = format!("{name} ({})", &URL_SAFE_NO_PAD.encode(key)[..6]);
    let actor = "system:login";
    for name in [name, other] {
        if admin::has_credential_permissions(access, &format!("user:{name}")).await? {
            continue;
        }
        let id = Uuid::now_v7();
        let new = NewIdentity {
            id,
            kind: IdentityKind::User,
            key_hash: key,
            label: claims.sub.clone(),
            settings: IdentitySettings {
                name: name.clone(),
                email: claims.email.clone(),
                grants: "[]".to_owned(),
                enabled: true,
                expires_at_us: None,
            },
            created_at_us: access.clock().now_us(),
            created_by: actor.to_owned(),
        };
        let details = json!({ "name": name, "subject": claims.sub });
        let prepared = admin::CheckedChange { change: admin::Change::Insert(Box::new(new)), details };
        match admin::make(access, true, actor, prepared).await {
            Ok(()) => return admin::find(access, IdentityKind::User, id).await,
            Err(problem) if problem.kind() == "conflict" => {}
            Err(problem) => return Err(problem),
        }
    }
    // The same user was created concurrently, for example by a login in another tab.
    let found = store::Access::of(access.store()).identities_by_keys(&[key]).await?.into_iter().next();
    found.ok_or_else(|| Problem::conflict("this name is already in use: ask an administrator"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_local_paths_are_accepted_as_return_to() {
        for good in ["/", "/certificates?state=active#x", "/a//b"] {
            assert_eq!(local_path(Some(good)), Some(good));
        }
        for bad in
            ["", "//evil.example", "/\\evil.example", "https://evil.example", "x", "/a\\b", "/a\nb", "/ü"]
        {
            assert_eq!(local_path(Some(bad)), None, "{bad:?}");
        }
        assert_eq!(local_path(Some(&format!("/{}", "x".repeat(2_000)))), None);
    }

    #[test]
    fn login_cookies_roundtrip_and_invalid_ones_are_rejected() {
        let login = Login::begin(Some("/x"), false, 7).unwrap();
        let decoded = Login::from_cookie(&login.to_cookie().unwrap()).unwrap();
        assert_eq!(
            (decoded.state, decoded.nonce, decoded.return_to),
            (login.state, login.nonce, "/x".to_owned())
        );
        assert!(login.verifier.len() >= 43, "RFC 7636 section 4.1");
        assert!(Login::from_cookie("bm9uc2Vuc2U").is_none());
    }
}

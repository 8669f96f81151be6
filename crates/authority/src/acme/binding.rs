//! External account binding (RFC 8555 section 7.3.4): keys that the operator issues, and their restrictions.

use aws_lc_rs::rand;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures_util::FutureExt;
use keys::Context;
use serde_json::{Value, json};
use store::{AuditEvent, Cursor, Page, StoreError, audit};
use uuid::Uuid;
use zeroize::Zeroizing;

use super::identifier::Identifier;
use super::jose::{AccountKey, Jws, JwsError, Signer, strict};
use super::problem::{Kind, Problem};
use super::request::KeyRequest;
use super::{Acme, Server};
use crate::tables;
use crate::tables::acme::{
    AcmeExternalKey, SEALED_SECRETS, delete_acme_external_key, disable_acme_external_key,
    insert_acme_external_key,
};

/// Length of a MAC key in bytes; the output length of HMAC-SHA256.
const SECRET_BYTES: usize = 32;
/// Maximum length in bytes of a key identifier and of a label.
const TEXT_MAX: usize = 200;
/// Maximum number of profiles or names that one key lists.
const RULES_MAX: usize = 1_000;

/// A key for external account binding to create.
#[derive(Clone, Debug, Default)]
pub struct NewExternalKey {
    /// Key identifier that clients send; generated when `None`.
    pub kid: Option<String>,
    /// Human-readable description.
    pub label: String,
    /// Whether the key may bind any number of accounts; otherwise it binds one.
    pub reusable: bool,
    /// Profiles that accounts bound with this key may use. An empty list allows any.
    pub profiles: Vec<String>,
    /// Names that accounts bound with this key may request. An empty list allows any. `a.example` allows that name and all its
    /// subdomains, including wildcards. `10.0.0.0/8` allows all addresses in this network.
    pub names: Vec<String>,
    /// Team on whose behalf accounts bound with this key act. They may request names that the team owns and names that are shared,
    /// but no names of other teams.
    pub team: Option<String>,
    /// Time in microseconds after which the key binds no new accounts.
    pub expires_at_us: Option<i64>,
}

/// A newly created external key with its secret, which is not available later.
pub struct ExternalKey {
    /// Identifier of the key for its management. ACME clients send `kid` instead.
    pub id: Uuid,
    /// Key identifier that clients send.
    pub kid: String,
    /// MAC key in base64url, the format that ACME clients expect.
    pub secret: Zeroizing<String>,
}

impl std::fmt::Debug for ExternalKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ExternalKey").field("id", &self.id).field("kid", &self.kid).finish_non_exhaustive()
    }
}

/// Reason why an external key was not created or changed.
#[derive(Debug, thiserror::Error)]
pub enum ExternalKeyError {
    /// The request is invalid. The caller must correct it.
    #[error("{field}: {reason}")]
    Bad {
        /// Name of the invalid field.
        field: &'static str,
        /// Reason why the value of the field is invalid.
        reason: String,
    },
    /// The key identifier (`kid`) is in use. The caller must choose another one.
    #[error("an external account key named {0:?} already exists")]
    NameTaken(String),
    /// The operating system provided no random bytes.
    #[error("the operating system returned no random bytes")]
    Random,
    /// An error of the database.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Changes a secret whose base64url form would begin with `-`, because certbot and other clients parse such a value as an option.
/// One secret in 64 is affected.
fn avoid_leading_hyphen(secret: &mut [u8; SECRET_BYTES]) {
    if secret[0] >> 2 == 62 {
        secret[0] ^= 0x80;
    }
}

impl Acme {
    /// Creates an external key. The returned secret is not available later.
    ///
    /// # Errors
    /// [`ExternalKeyError`].
    #[crate::boxed]
    pub async fn create_external_key(
        &self,
        new: NewExternalKey,
        actor: &str,
    ) -> Result<ExternalKey, ExternalKeyError> {
        check(&new)?;
        let inner = &self.0;
        let mut secret = Zeroizing::new([0; SECRET_BYTES]);
        rand::fill(&mut *secret).map_err(|_| ExternalKeyError::Random)?;
        avoid_leading_hyphen(&mut secret);
        let (id, now_us) = (Uuid::now_v7(), inner.now_us());
        let kid = new.kid.unwrap_or_else(|| id.simple().to_string());
        let sealed = inner.authority.keystore().keyring().seal(&context(&id), &*secret);
        let details = json!({
            "kid": kid, "label": new.label, "reusable": new.reusable, "profiles": new.profiles, "names": new.names,
            "team": new.team,
        });
        let row = AcmeExternalKey {
            id,
            kid: kid.clone(),
            secret: sealed,
            label: new.label,
            reusable: new.reusable,
            profiles: new.profiles,
            names: new.names,
            team: new.team,
            created_at_us: now_us,
            created_by: actor.to_owned(),
            expires_at_us: new.expires_at_us,
            disabled_at_us: None,
            used_at_us: None,
            uses: 0,
        };
        let event = event(now_us, actor, "acme_external_key.create", id, details);
        let stored = inner
            .store
            .write("acme_external_key", move |tx| {
                async move {
                    let stored = insert_acme_external_key(tx, &row).await?;
                    if stored {
                        audit(tx, vec![event]).await?;
                    }
                    Ok(stored)
                }
                .boxed()
            })
            .await?;
        if !stored {
            return Err(ExternalKeyError::NameTaken(kid));
        }
        Ok(ExternalKey { id, kid, secret: Zeroizing::new(URL_SAFE_NO_PAD.encode(*secret)) })
    }

    /// Lists external keys, newest first. Their secrets are encrypted.
    ///
    /// # Errors
    /// Fails if the database fails.
    #[crate::boxed]
    pub async fn external_keys(
        &self,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<AcmeExternalKey>, StoreError> {
        tables::Acme::of(&self.0.store).external_keys(after, limit).await
    }

    /// Returns the external key with this identifier; `None` if it does not exist. Its secret is encrypted.
    ///
    /// # Errors
    /// Fails if the database fails.
    #[crate::boxed]
    pub async fn external_key(&self, id: Uuid) -> Result<Option<AcmeExternalKey>, StoreError> {
        tables::Acme::of(&self.0.store).external_key(id).await
    }

    /// Disables an external key and all accounts bound with it, immediately on this node and within seconds on other nodes. Returns
    /// false if the key does not exist.
    ///
    /// # Errors
    /// Fails if the database fails.
    #[crate::boxed]
    pub async fn disable_external_key(&self, id: Uuid, actor: &str) -> Result<bool, StoreError> {
        let now_us = self.0.now_us();
        let event = event(now_us, actor, "acme_external_key.disable", id, json!({}));
        self.0
            .store
            .write("acme_external_key_disable", move |tx| {
                async move {
                    let found = disable_acme_external_key(tx, id, now_us).await?;
                    if found {
                        audit(tx, vec![event]).await?;
                    }
                    Ok(found)
                }
                .boxed()
            })
            .await
    }

    /// Deletes an external key, which also disables its accounts. Returns false if the key does not exist.
    ///
    /// # Errors
    /// Fails if the database fails.
    #[crate::boxed]
    pub async fn delete_external_key(&self, id: Uuid, actor: &str) -> Result<bool, StoreError> {
        let event = event(self.0.now_us(), actor, "acme_external_key.delete", id, json!({}));
        self.0
            .store
            .write("acme_external_key_delete", move |tx| {
                async move {
                    let found = delete_acme_external_key(tx, id).await?;
                    if found {
                        audit(tx, vec![event]).await?;
                    }
                    Ok(found)
                }
                .boxed()
            })
            .await
    }
}

impl Server {
    /// Verifies an external account binding and returns the identifier of the external key. A single-use key is marked as used only
    /// when the account is stored.
    pub(crate) async fn verify_external_binding(
        &self,
        binding: Value,
        signed: &KeyRequest,
        profile: &str,
    ) -> Result<Uuid, Problem> {
        // The same error for an unknown key and for a wrong MAC, so that key identifiers cannot be probed.
        let refused = || {
            Problem::unauthorized(
                "the external account binding is not valid: check its key and key identifier (kid)",
            )
        };
        let jws = Jws::from_value(binding)
            .map_err(|error| Problem::malformed(format!("externalAccountBinding: {error}")))?;
        let Signer::Kid(kid) = &jws.signer else {
            return Err(Problem::malformed("externalAccountBinding must name its key (kid)"));
        };
        if jws.nonce.is_some() {
            return Err(Problem::malformed("externalAccountBinding must not have a nonce"));
        }
        if jws.url != signed.url {
            return Err(Problem::malformed("externalAccountBinding must have the same URL as the request"));
        }
        let named = strict::parse(&jws.payload).map_err(|error| {
            Problem::malformed(format!("cannot parse the payload of externalAccountBinding: {error}"))
        })?;
        if AccountKey::from_jwk(&named).map_err(JwsError::from)?.thumbprint() != signed.key.thumbprint() {
            return Err(Problem::malformed("externalAccountBinding is for another account key"));
        }
        let row = tables::Acme::of(&self.store).external_key_named(kid).await?.ok_or_else(refused)?;
        let secret =
            self.authority.keystore().keyring().open_sealed(&context(&row.id), &row.secret).map_err(
                |error| {
                    tracing::error!(external_key = %row.id, %error, "cannot decrypt an external account key");
                    Problem::internal()
                },
            )?;
        jws.verify_mac(&secret).map_err(|_| refused())?;
        if !row.can_bind(self.now_us()) {
            let detail = "the external account key is used, expired or revoked: request a new one";
            return Err(Problem::unauthorized(detail));
        }
        if !row.profiles.is_empty() && !row.profiles.iter().any(|allowed| allowed == profile) {
            let detail = format!("the external account key does not allow the profile {profile:?}");
            return Err(Problem::unauthorized(detail));
        }
        Ok(row.id)
    }
}

/// Checks that the list of names of an external key allows an identifier.
pub(crate) fn allows(rules: &[String], identifier: &Identifier) -> Result<(), Problem> {
    let fits = |rule: &String| match identifier {
        Identifier::Dns(name) => {
            let host = name.strip_prefix("*.").unwrap_or(name);
            host.strip_suffix(rule.as_str()).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        }
        Identifier::Ip(address) => {
            rule.parse::<ipnet::IpNet>().is_ok_and(|network| network.contains(address))
        }
    };
    if rules.is_empty() || rules.iter().any(fits) {
        return Ok(());
    }
    let detail = format!("the external account key of this account does not allow {identifier}");
    Err(Problem::new(Kind::RejectedIdentifier, detail))
}

fn check(new: &NewExternalKey) -> Result<(), ExternalKeyError> {
    let bad = |field, reason: String| Err(ExternalKeyError::Bad { field, reason });
    if let Some(kid) = &new.kid
        && (kid.is_empty() || kid.len() > TEXT_MAX || !kid.bytes().all(|byte| byte.is_ascii_graphic()))
    {
        return bad("kid", format!("give 1 to {TEXT_MAX} printable ASCII characters without spaces"));
    }
    if new.label.len() > TEXT_MAX || new.label.contains(char::is_control) {
        return bad("label", format!("give at most {TEXT_MAX} bytes without control characters"));
    }
    if new.profiles.len() > RULES_MAX || new.names.len() > RULES_MAX {
        return bad("names", format!("give at most {RULES_MAX} entries"));
    }
    if let Some(profile) = new.profiles.iter().find(|profile| profile.is_empty() || profile.contains('\n')) {
        return bad("profiles", format!("{profile:?} is not a profile name"));
    }
    if let Some(team) = &new.team
        && (team.is_empty() || team.len() > TEXT_MAX || team.contains(char::is_control))
    {
        return bad("team", format!("give 1 to {TEXT_MAX} bytes without control characters"));
    }
    for name in &new.names {
        let host = x509::HostName::parse(name).is_ok_and(|host| host.as_str() == name);
        if !host && name.parse::<ipnet::IpNet>().is_err() {
            return bad(
                "names",
                format!("{name:?} is neither a host name in lower case nor a network such as 10.0.0.0/8"),
            );
        }
    }
    Ok(())
}

fn context(id: &Uuid) -> Context<'_> {
    Context { table: SEALED_SECRETS.table, row: id.as_bytes(), column: SEALED_SECRETS.column }
}

fn event(at_us: i64, actor: &str, action: &'static str, id: Uuid, details: Value) -> AuditEvent {
    AuditEvent {
        at_us,
        actor: actor.to_owned(),
        action,
        resource: format!("acme-external-key/{id}"),
        details,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_secret_never_starts_with_a_hyphen() {
        for first in 0..=u8::MAX {
            let mut secret = [first; SECRET_BYTES];
            avoid_leading_hyphen(&mut secret);
            assert!(!URL_SAFE_NO_PAD.encode(secret).starts_with('-'), "{first}");
        }
    }

    #[test]
    fn names_are_allowed_by_domain_suffix_and_network() {
        let rules = ["a.example".to_owned(), "10.0.0.0/8".to_owned()];
        let table = [
            ("dns:a.example", true),
            ("dns:x.y.a.example", true),
            ("dns:*.a.example", true),
            ("dns:xa.example", false),
            ("dns:example", false),
            ("dns:*.example", false),
            ("ip:10.1.2.3", true),
            ("ip:11.1.2.3", false),
            ("ip:::1", false),
        ];
        for (key, allowed) in table {
            assert_eq!(allows(&rules, &Identifier::from_key(key).unwrap()).is_ok(), allowed, "{key}");
            assert!(allows(&[], &Identifier::from_key(key).unwrap()).is_ok());
        }
    }

    #[test]
    fn invalid_external_account_keys_are_rejected() {
        let names = |names: &[&str]| NewExternalKey {
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            ..NewExternalKey::default()
        };
        assert!(check(&names(&["a.example", "10.0.0.0/8", "fd00::/8"])).is_ok());
        for bad in ["A.example", "*.a.example", "a\nb", "", "10.0.0.0/33"] {
            assert!(check(&names(&[bad])).is_err(), "{bad:?}");
        }
        assert!(check(&NewExternalKey { kid: Some("a b".to_owned()), ..NewExternalKey::default() }).is_err());
    }
}

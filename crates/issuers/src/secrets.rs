//! Secrets of an issuer's configuration: stored apart from the visible part, bound to their destination, erased when dropped.

use std::collections::{BTreeMap, BTreeSet};

use keys::Secret;
use serde_json::Value;
use zeroize::Zeroizing;

/// Maximum bytes of a secret. A PEM key or a token with claims has a few thousand.
const SECRET_MAX: usize = 64 * 1024;

/// Reason why secrets could not be removed from a configuration or inserted into it.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum BadSecret {
    /// A secret is not a string.
    #[error("{pointer} must be a string of at most {SECRET_MAX} bytes")]
    NotText {
        /// JSON pointer of the secret.
        pointer: String,
    },
    /// The stored secrets are malformed.
    #[error("the stored secrets cannot be decrypted; set the issuer's secrets again")]
    Unreadable,
}

/// Locations of secrets in a configuration, as JSON pointers (RFC 6901).
const POINTERS: [&str; 9] = [
    "/eab/hmac_key",
    "/auth/token",
    "/auth/secret_id",
    "/provisioner/key",
    "/provisioner/password",
    "/secret",
    "/http/client_key",
    "/dns01/publisher/tsig_secret",
    "/dns01/publisher/secret",
];

/// Members that do not affect the destination of secrets, its TLS trust or the login. All other members are part of the
/// destination, including those added in later versions.
const HARMLESS: [&str; 12] = [
    "/contact",
    "/terms_agreed",
    "/profile",
    "/role",
    "/preferred_chain",
    "/challenges",
    "/listen",
    "/limits",
    "/verify",
    "/http/request_seconds",
    "/dns01/propagation",
    "/dns01/ttl",
];
/// Members that define the kind of their object. When the kind changes, the object's stored secrets are dropped.
const KINDS: [&str; 2] = ["type", "method"];

/// A change of the configuration would send stored secrets to another destination.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "{} changed, which decides where secrets are sent: give {} again in the same request, or null to remove the secret",
    .changed.iter().cloned().collect::<Vec<_>>().join(", "),
    .secrets.join(", ")
)]
pub struct MissingSecrets {
    /// Changed members, as JSON pointers.
    pub changed: BTreeSet<String>,
    /// Secrets that must be sent again in the request, as JSON pointers.
    pub secrets: Vec<String>,
}

/// Returns the members of `config` that determine the destination of the secret at `pointer`, by JSON pointer and without nulls.
/// dns-01 records have their own destination.
fn destination<'c>(config: &'c Value, pointer: &str) -> BTreeMap<String, &'c Value> {
    let below = |at: &str, whole: &str| {
        at.strip_prefix(whole).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let concerns = |at: &str| match pointer {
        // The client certificate is sent to both destinations.
        "/http/client_key" => true,
        _ if below(pointer, "/dns01") => ["/type", "/dns01", "/http"].iter().any(|whole| below(at, whole)),
        _ => !below(at, "/dns01"),
    };
    let mut leaves = BTreeMap::new();
    leaves_of(String::new(), config, &mut leaves);
    leaves.retain(|at, _| concerns(at) && !HARMLESS.iter().any(|whole| below(at, whole)));
    leaves
}

/// Collects the members of `value` that are not objects, by JSON pointer. An empty object counts as a member.
fn leaves_of<'c>(at: String, value: &'c Value, leaves: &mut BTreeMap<String, &'c Value>) {
    match value {
        Value::Null => {}
        Value::Object(members) if !members.is_empty() => {
            for (name, member) in members {
                let name = name.replace('~', "~0").replace('/', "~1");
                leaves_of(format!("{at}/{name}"), member, leaves);
            }
        }
        _ => {
            leaves.insert(at, value);
        }
    }
}

/// Returns the members that differ between `stored` and `new` and change the destination of the secret at `pointer`.
fn changed(stored: &Value, new: &Value, pointer: &str) -> BTreeSet<String> {
    let (before, after) = (destination(stored, pointer), destination(new, pointer));
    let all: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    all.into_iter().filter(|at| before.get(*at) != after.get(*at)).cloned().collect()
}

/// Returns whether the object of the secret at `pointer` still exists and has the same kind.
fn has_same_parent(stored: &Value, new: &Value, pointer: &str) -> bool {
    let parent = pointer.rsplit_once('/').map_or("", |(parent, _)| parent);
    let (Some(stored), Some(new)) = (stored.pointer(parent), new.pointer(parent)) else { return false };
    new.is_object() && KINDS.iter().all(|kind| stored.get(kind) == new.get(kind))
}

/// The secrets of one configuration, by JSON pointer.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Secrets(BTreeMap<String, Secret>);

impl Secrets {
    /// Removes the secrets from `config`, which can then be stored and displayed.
    ///
    /// # Errors
    /// [`BadSecret::NotText`] when a secret is not a string.
    pub fn take(config: &mut Value) -> Result<Self, BadSecret> {
        let mut found = BTreeMap::new();
        for pointer in POINTERS {
            let Some((parent, field)) = pointer.rsplit_once('/') else { continue };
            let Some(Value::Object(parent)) = config.pointer_mut(parent) else { continue };
            match parent.remove(field) {
                None | Some(Value::Null) => {}
                Some(Value::String(text)) if text.len() <= SECRET_MAX => {
                    found.insert(pointer.to_owned(), Secret::new(text));
                }
                Some(_) => return Err(BadSecret::NotText { pointer: pointer.to_owned() }),
            }
        }
        Ok(Self(found))
    }

    /// Inserts the secrets, so that [`super::IssuerConfig`] can be parsed. Skips secrets whose object no longer exists.
    pub fn put(&self, config: &mut Value) {
        for (pointer, secret) in &self.0 {
            let Some((parent, field)) = pointer.rsplit_once('/') else { continue };
            if let Some(Value::Object(parent)) = config.pointer_mut(parent) {
                parent.insert(field.to_owned(), Value::String(secret.expose().to_owned()));
            }
        }
    }

    /// Returns the JSON pointers of the secrets that are null in `config`, and so are removed.
    #[must_use]
    pub fn removed(config: &Value) -> BTreeSet<&'static str> {
        POINTERS.into_iter().filter(|pointer| config.pointer(pointer).is_some_and(Value::is_null)).collect()
    }

    /// Merges these secrets with the secrets of `before` that the update omits: a secret is kept if its destination stays the same. Both
    /// configurations are without secrets; `removed` secrets are dropped.
    ///
    /// # Errors
    /// [`MissingSecrets`] when a secret's destination changes and the secret is not given again.
    pub fn merge_over(
        mut self,
        before: Self,
        removed: &BTreeSet<&'static str>,
        stored: &Value,
        new: &Value,
    ) -> Result<Self, MissingSecrets> {
        let mut rebound = MissingSecrets { changed: BTreeSet::new(), secrets: Vec::new() };
        for (pointer, secret) in before.0 {
            if self.0.contains_key(&pointer) || removed.contains(pointer.as_str()) {
                continue;
            }
            let changed = changed(stored, new, &pointer);
            if changed.is_empty() {
                self.0.insert(pointer, secret);
            } else if has_same_parent(stored, new, &pointer) {
                rebound.changed.extend(changed);
                rebound.secrets.push(pointer);
            }
        }
        if rebound.secrets.is_empty() { Ok(self) } else { Err(rebound) }
    }

    /// Returns the JSON pointers of the secrets that are set.
    pub fn pointers(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Returns whether there is no secret.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Serializes the secrets for sealing.
    #[must_use]
    pub fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        let texts: BTreeMap<&str, &str> =
            self.0.iter().map(|(at, text)| (at.as_str(), text.expose())).collect();
        // A map of strings always serializes.
        Zeroizing::new(serde_json::to_vec(&texts).unwrap_or_default())
    }

    /// Parses the unsealed secrets.
    ///
    /// # Errors
    /// [`BadSecret::Unreadable`] when the bytes are not from [`Secrets::to_bytes`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, BadSecret> {
        serde_json::from_slice(bytes).map(Self).map_err(|_| BadSecret::Unreadable)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn secrets_are_removed_from_the_config_and_restored() {
        let whole =
            json!({"type": "vault", "url": "https://v", "auth": {"method": "token", "token": "s.abc"}});
        let mut config = whole.clone();
        let secrets = Secrets::take(&mut config).unwrap();
        assert!(!config.to_string().contains("s.abc"));
        assert!(!format!("{secrets:?}").contains("s.abc"));
        let mut restored = config.clone();
        Secrets::from_bytes(&secrets.to_bytes()).unwrap().put(&mut restored);
        assert_eq!(restored, whole);
    }

    /// Returns the secrets that remain after an update of `stored` to `new`.
    fn updated(stored: &Value, new: &Value) -> Result<Vec<String>, MissingSecrets> {
        let (mut stored, mut new) = (stored.clone(), new.clone());
        let removed = Secrets::removed(&new);
        let (before, given) = (Secrets::take(&mut stored).unwrap(), Secrets::take(&mut new).unwrap());
        let merged = given.merge_over(before, &removed, &stored, &new)?;
        Ok(merged.pointers().map(str::to_owned).collect())
    }

    fn with(base: &Value, changes: &[(&str, Value)]) -> Value {
        let mut config = base.clone();
        for (pointer, value) in changes {
            let (parent, member) = pointer.rsplit_once('/').unwrap();
            config.pointer_mut(parent).unwrap()[member] = value.clone();
        }
        config
    }

    fn vault() -> Value {
        json!({"type": "vault", "url": "https://v", "role": "web", "auth": {"method": "token", "token": "s.abc"},
               "http": {"client_certificate": "PEM", "client_key": "KEY"}})
    }

    fn acme() -> Value {
        json!({"type": "acme", "directory": "https://ca/dir", "eab": {"key_id": "k", "hmac_key": "mac"},
               "dns01": {"publisher": {"type": "rfc2136", "server": "192.0.2.1:53", "tsig_name": "n", "tsig_secret": "t"}}})
    }

    #[test]
    fn secret_is_kept_while_its_destination_is_unchanged() {
        let left_out = |config: &Value| {
            let mut public = config.clone();
            Secrets::take(&mut public).unwrap();
            public
        };
        let (vault, acme) = (vault(), acme());
        for (stored, change) in [
            (&vault, ("/role", json!("api"))),
            (&vault, ("/limits", json!({"concurrency": 2}))),
            (&vault, ("/verify", json!({"names": "may_add"}))),
            (&vault, ("/http/request_seconds", json!(9))),
            (&vault, ("/namespace", Value::Null)),
            (&acme, ("/contact", json!(["mailto:a@b"]))),
            (&acme, ("/challenges", json!(["dns-01"]))),
            (&acme, ("/dns01/ttl", json!(9))),
            (&acme, ("/dns01/propagation", json!({"check": false}))),
        ] {
            let merged = updated(stored, &with(&left_out(stored), std::slice::from_ref(&change))).unwrap();
            assert_eq!(merged.len(), 2, "{change:?}: {merged:?}");
        }
        // A secret that is given again may go to another destination; null removes it.
        let elsewhere = with(&vault, &[("/url", json!("https://other"))]);
        assert_eq!(updated(&vault, &elsewhere).unwrap().len(), 2);
        let removed = with(&left_out(&vault), &[("/http", json!({"client_key": null}))]);
        let error = updated(&vault, &removed).unwrap_err();
        assert_eq!(
            error.secrets,
            ["/auth/token"],
            "the client certificate is gone, which the login may need"
        );
        // For another kind, no secret is kept and none is required.
        let login = json!({"method": "approle", "role_id": "r", "secret_id": "s"});
        let other = with(&vault, &[("/auth", login)]);
        assert_eq!(updated(&vault, &other).unwrap(), ["/auth/secret_id", "/http/client_key"]);
        assert_eq!(updated(&vault, &json!({"type": "exec", "issue": "x"})), Ok(Vec::new()));
    }

    #[test]
    fn secret_must_be_given_again_if_its_destination_changes() {
        let login = ["/auth/token", "/http/client_key"];
        for (stored, pointer, value, demanded) in [
            (vault(), "/url", json!("https://evil"), &login[..]),
            (vault(), "/mount", json!("other"), &login),
            (vault(), "/namespace", json!("theirs"), &login),
            (vault(), "/auth/mount", json!("theirs"), &login),
            (vault(), "/http/roots", json!("PEM"), &login),
            (vault(), "/http/client_certificate", json!("other"), &login),
            (vault(), "/added_later", json!(1), &login),
            (acme(), "/directory", json!("https://evil/dir"), &["/eab/hmac_key"]),
            (acme(), "/eab/key_id", json!("other"), &["/eab/hmac_key"]),
            (acme(), "/dns01/publisher/server", json!("192.0.2.9:53"), &["/dns01/publisher/tsig_secret"]),
            (acme(), "/http", json!({"roots": "PEM"}), &["/dns01/publisher/tsig_secret", "/eab/hmac_key"]),
        ] {
            let mut new = stored.clone();
            Secrets::take(&mut new).unwrap();
            let error = updated(&stored, &with(&new, &[(pointer, value)])).unwrap_err();
            assert_eq!(error.secrets, demanded, "{pointer}");
            assert!(error.changed.iter().all(|at| at.starts_with(pointer)), "{error}");
            let text = error.to_string();
            assert!(text.contains(pointer) && text.contains(demanded[0]), "{text}");
        }
    }

    #[test]
    fn secrets_must_be_texts_of_limited_size() {
        for bad in [json!({"secret": 7}), json!({"secret": "x".repeat(SECRET_MAX + 1)})] {
            assert_eq!(
                Secrets::take(&mut bad.clone()),
                Err(BadSecret::NotText { pointer: "/secret".to_owned() })
            );
        }
        assert_eq!(Secrets::from_bytes(b"[]"), Err(BadSecret::Unreadable));
    }
}

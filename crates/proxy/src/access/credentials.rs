//! Users and tokens of one version of the configuration, which a reload replaces.

use std::collections::HashMap;
use std::sync::Arc;

use aws_lc_rs::{digest, hmac};
use flight::Cache;
use http_relay::client::Ended;

use super::denied::Denied;
use super::keyed_digest::{DIGEST, Digest, under};
use super::passwords::Users;

/// Maximum verified passwords in the cache.
const REMEMBERED_MAX: u64 = 65_536;

/// Access token of a user, stored only as a digest.
#[derive(Clone, Debug)]
pub struct Token {
    /// Name of the token's owner.
    pub name: String,
    /// SHA-256 of the token.
    pub digest: [u8; DIGEST],
}

/// An authenticated user, with the signal that the password or token was removed or changed.
#[derive(Clone, Debug)]
pub(crate) struct Proven {
    pub(crate) user: Arc<str>,
    pub(crate) ended: Ended,
}

/// Users and tokens of one version of the configuration.
pub(super) struct Credentials {
    pub(super) users: Arc<Users>,
    by_password: HashMap<Arc<str>, Proven>,
    /// Tokens, by keyed digest. The key is random for each process, so that the time of a lookup reveals nothing about a token.
    tokens: HashMap<Digest, Proven>,
    /// Users by the digests of verified passwords.
    pub(super) remembered: Cache<Digest, Proven, Denied>,
}

impl Credentials {
    pub(super) fn new(users: Users, tokens: &[Token], key: &hmac::Key) -> Self {
        let proven = |user: Arc<str>| Proven { user, ended: Ended::default() };
        let by_password = users.names().map(|name| (Arc::clone(name), proven(Arc::clone(name)))).collect();
        let token = |token: &Token| (under(key, &[&token.digest]), proven(token.name.as_str().into()));
        Self {
            users: Arc::new(users),
            by_password,
            tokens: tokens.iter().map(token).collect(),
            remembered: Cache::with_entries_max(REMEMBERED_MAX),
        }
    }

    /// Replaces `old`. Credentials that are in both versions stay valid; all other credentials of `old` are revoked.
    pub(super) fn replace(&mut self, old: &Self) {
        for (name, proven) in &old.by_password {
            match self.by_password.get_mut(name).filter(|_| self.users.has_same_hash(name, &old.users)) {
                Some(new) => new.ended = proven.ended.clone(),
                None => proven.ended.end(),
            }
        }
        for (digest, proven) in &old.tokens {
            match self.tokens.get_mut(digest).filter(|new| new.user == proven.user) {
                Some(new) => new.ended = proven.ended.clone(),
                None => proven.ended.end(),
            }
        }
    }

    pub(super) fn has_tokens(&self) -> bool {
        !self.tokens.is_empty()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.users.is_empty() && self.tokens.is_empty()
    }

    pub(super) fn token(&self, value: &[u8], key: &hmac::Key) -> Option<&Proven> {
        let digest = digest::digest(&digest::SHA256, value);
        self.tokens.get(&under(key, &[digest.as_ref()]))
    }

    pub(super) fn user(&self, name: &str) -> Option<&Proven> {
        self.by_password.get(name)
    }
}

#[cfg(test)]
mod tests {
    use sha_crypt::{PasswordHasher as _, ShaCrypt};

    use super::*;

    fn key() -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, b"key")
    }

    fn credentials(users: &[(&str, &str)], tokens: &[(&str, &str)]) -> Credentials {
        let hash =
            |password: &str| ShaCrypt::default().hash_password_with_salt(password.as_bytes(), &[7; 12]);
        let line = |(name, password): &(&str, &str)| format!("{name}:{}", hash(password).unwrap());
        let lines: Vec<_> = users.iter().map(line).collect();
        let token = |(name, value): &(&str, &str)| Token {
            name: (*name).to_owned(),
            digest: digest::digest(&digest::SHA256, value.as_bytes()).as_ref().try_into().unwrap(),
        };
        let tokens: Vec<_> = tokens.iter().map(token).collect();
        Credentials::new(Users::parse(&lines.join("\n")).unwrap(), &tokens, &key())
    }

    #[test]
    fn removed_or_changed_credentials_end_and_others_continue() {
        let old = credentials(
            &[("alice", "a"), ("bob", "b"), ("carol", "c")],
            &[("ci", "1"), ("dev", "2"), ("job", "3"), ("two", "4"), ("two", "5")],
        );
        let mut new =
            credentials(&[("bob", "b"), ("carol", "C")], &[("dev", "2"), ("job", "33"), ("two", "5")]);
        new.replace(&old);
        let user = |name| old.user(name).unwrap().ended.has_ended();
        assert_eq!([user("alice"), user("bob"), user("carol")], [true, false, true]);
        let token = |value: &str| old.token(value.as_bytes(), &key()).unwrap().ended.has_ended();
        assert_eq!(["1", "2", "3", "4", "5"].map(token), [true, false, true, true, false]);
        // The next version revokes the credentials that the first two versions have in common.
        let mut newest = credentials(&[], &[]);
        newest.replace(&new);
        assert!(user("bob") && token("2") && token("5"));
    }
}

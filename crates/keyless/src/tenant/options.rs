//! The configuration of tenants, and its checks.

use std::collections::HashSet;

use super::identity::Pattern;
use crate::fair::SHARE_MAX;
use crate::limits::TENANT_MAX;

/// The tenant of clients that match no other tenant. Beside other tenants it may use no key unless it is configured.
pub const DEFAULT: &str = "default";

/// The tenant of clients of Unix sockets; the same as [`DEFAULT`] where it is not configured.
pub const SOCKET: &str = "socket";

/// Tenants at most: each is a line in each class of cost and some thirty figures.
pub const TENANTS_MAX: usize = 1_000;

/// Entries of a tenant's `clients` and `keys`.
const ENTRIES_MAX: usize = 10_000;

/// Requests a second, or at once, at most.
const RATE_MAX: u32 = 10_000_000;

/// The configuration of a tenant.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TenantOptions {
    /// As metrics and logs write it.
    pub name: String,
    /// By what its clients' certificates are known, one of these: `O=Organisation`, exactly; a DNS name, exactly or `*.` and
    /// the rest of it after one label; a URI, exactly, or with all below it when it ends with a slash. The first tenant that
    /// knows a client has it.
    pub clients: Vec<String>,
    /// Of the processors where there is too much to do, against the others' shares: 1 to [`SHARE_MAX`].
    pub share: u32,
    /// Requests a second; 0: no limit.
    pub rate_per_s: u32,
    /// Requests at once within the rate; 0: as many as `rate_per_s`.
    pub burst: u32,
    /// Requests under way.
    pub in_flight_max: usize,
    /// Of those the ones to one destination: a key of a security module or a cloud, or another node. 0: half of what such a key
    /// may have where there are other tenants, else all; of a node
    /// [`TENANT_IN_FLIGHT_MAX`](crate::routing::TENANT_IN_FLIGHT_MAX), which is the most in any case.
    pub destination_in_flight_max: usize,
    /// Connections over TLS; 0: half of those there may be where there are other tenants, so that no tenant takes all.
    pub connections_max: usize,
    /// Which keys it may use: names of files or labels, with `*` for any characters; a key's SKI or the SHA-256 of its
    /// SubjectPublicKeyInfo, in hexadecimal. Empty: every key.
    pub keys: Vec<String>,
    /// Whether keys of security modules decrypt for it, where the service does so at all.
    pub rsa_decrypt: bool,
}

impl TenantOptions {
    /// No limits but the usual ones, every key, and nobody's certificate; nothing is decrypted.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            clients: Vec::new(),
            share: 1,
            rate_per_s: 0,
            burst: 0,
            in_flight_max: TENANT_MAX,
            destination_in_flight_max: 0,
            connections_max: 0,
            keys: Vec::new(),
            rsa_decrypt: false,
        }
    }

    /// The default tenant where none is configured. When it is alone, the service's own setting says whether it decrypts.
    pub(super) fn of_others(alone: bool) -> Self {
        Self { rsa_decrypt: alone, ..Self::new(DEFAULT) }
    }
}

/// What is wrong with a tenant; its name, and what to do.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("tenant {name:?}: {what}")]
pub struct TenantError {
    name: String,
    what: String,
}

/// Whether all tenants can be as they are said to be.
///
/// # Errors
/// [`TenantError`], for the first that cannot.
pub fn check(tenants: &[TenantOptions]) -> Result<(), TenantError> {
    let mut names = HashSet::new();
    for tenant in tenants {
        let refuse = |what: String| Err(TenantError { name: tenant.name.clone(), what });
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if tenant.name.is_empty() || tenant.name.len() > 64 || !tenant.name.chars().all(plain) {
            return refuse("a name has 1 to 64 letters, digits and -_.".to_owned());
        }
        if !names.insert(&tenant.name) {
            return refuse("two have this name".to_owned());
        }
        let special = [DEFAULT, SOCKET].contains(&tenant.name.as_str());
        if special != tenant.clients.is_empty() {
            let what = if special { "its clients are those of nobody else" } else { "it needs clients" };
            return refuse(what.to_owned());
        }
        if !(1..=SHARE_MAX).contains(&tenant.share) {
            return refuse(format!("share is from 1 to {SHARE_MAX}"));
        }
        if tenant.rate_per_s > RATE_MAX || tenant.burst > RATE_MAX {
            return refuse(format!("rate_per_s and burst are at most {RATE_MAX}"));
        }
        if tenant.burst > 0 && tenant.rate_per_s == 0 {
            return refuse("burst is part of a rate: give rate_per_s too".to_owned());
        }
        if tenant.in_flight_max == 0 {
            return refuse("in_flight_max is at least 1".to_owned());
        }
        if tenant.clients.len() > ENTRIES_MAX || tenant.keys.len() > ENTRIES_MAX {
            return refuse(format!("clients and keys have at most {ENTRIES_MAX} entries each"));
        }
        if let Some(bad) = tenant.clients.iter().find(|text| Pattern::parse(text).is_none()) {
            return refuse(format!("{bad:?} is no O=organisation, DNS name or URI"));
        }
        if tenant.keys.iter().any(String::is_empty) {
            return refuse("a key has no name".to_owned());
        }
    }
    if tenants.len() > TENANTS_MAX {
        let name = tenants[TENANTS_MAX].name.clone();
        return Err(TenantError { name, what: format!("there are more than {TENANTS_MAX}") });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_a_tenant_is_refused() {
        let one = |change: fn(&mut TenantOptions)| {
            let mut tenant = TenantOptions { clients: vec!["O=A".into()], ..TenantOptions::new("a") };
            change(&mut tenant);
            check(&[tenant])
        };
        assert_eq!(one(|_| ()), Ok(()));
        for (change, what) in [
            ((|t| t.name = "a b".into()) as fn(&mut TenantOptions), "letters"),
            (|t| t.name.clear(), "letters"),
            (|t| t.clients.clear(), "needs clients"),
            (|t| t.name = DEFAULT.into(), "nobody else"),
            (|t| t.share = 0, "share"),
            (|t| t.share = SHARE_MAX + 1, "share"),
            (|t| t.burst = 1, "rate_per_s"),
            (|t| t.in_flight_max = 0, "in_flight_max"),
            (|t| t.clients.push("a b".into()), "a b"),
            (|t| t.keys.push(String::new()), "no name"),
        ] {
            let error = one(change).unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
        }
        let twice = TenantOptions { clients: vec!["O=A".into()], ..TenantOptions::new("a") };
        assert!(check(&[twice.clone(), twice]).is_err());
    }
}

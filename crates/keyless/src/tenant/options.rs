//! The configuration of tenants, and its checks.

use std::collections::HashSet;

use super::identity::Pattern;
use crate::fair::SHARE_MAX;
use crate::limits::TENANT_MAX;

/// The tenant of clients that match no other tenant. If other tenants are configured and this one is not, its clients may use no
/// key.
pub const DEFAULT: &str = "default";

/// The tenant of clients on Unix sockets; [`DEFAULT`] if it is not configured.
pub const SOCKET: &str = "socket";

/// Maximum tenants. Each has a queue in each cost class and about thirty metrics.
pub const TENANTS_MAX: usize = 1_000;

/// Maximum entries of a tenant's `clients` and of its `keys`.
const ENTRIES_MAX: usize = 10_000;

/// Maximum of `rate_per_s` and `burst`.
const RATE_MAX: u32 = 10_000_000;

/// The configuration of a tenant: client patterns, limits, and permitted keys.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TenantOptions {
    /// Name of the tenant in metrics and logs.
    pub name: String,
    /// Patterns for client certificates: `O=Organisation` (exact); a DNS name (exact, or `*.` for one label); a URI (exact, or all
    /// URIs below it if it ends with a slash). The first tenant with a matching pattern owns the client.
    pub clients: Vec<String>,
    /// Share of the processors under overload, relative to the other tenants: 1 to [`SHARE_MAX`].
    pub share: u32,
    /// Maximum requests per second; 0: no limit.
    pub rate_per_s: u32,
    /// Maximum requests in a burst; 0: equal to `rate_per_s`.
    pub burst: u32,
    /// Maximum requests of the tenant in progress, over all connections.
    pub in_flight_max: usize,
    /// Maximum requests of the tenant in progress to one destination: a key of a security module or cloud, or another node. 0
    /// selects the default. The default for a key is half of the key's limit if there are other tenants, and else the whole limit.
    /// For a node, the default and upper limit is [`TENANT_IN_FLIGHT_MAX`](crate::routing::TENANT_IN_FLIGHT_MAX).
    pub destination_in_flight_max: usize,
    /// Maximum TLS connections. 0 means half of all connections if there are other tenants, so that no tenant uses all.
    pub connections_max: usize,
    /// Keys that the tenant may use: names of files or labels, with `*` for any characters, or a key's SKI or the SHA-256 of its
    /// SubjectPublicKeyInfo in hexadecimal. Empty: every key.
    pub keys: Vec<String>,
    /// Whether keys of security modules may perform RSA decryption for the tenant, if the service enables RSA decryption.
    pub rsa_decrypt: bool,
}

impl TenantOptions {
    /// Creates a tenant with default limits, every key, no client patterns, and no decryption.
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

    /// Creates the default tenant for a configuration without one. `alone`: whether the configuration has no other tenant. If so,
    /// the tenant may use RSA decryption whenever the service enables it.
    pub(super) fn of_others(alone: bool) -> Self {
        Self { rsa_decrypt: alone, ..Self::new(DEFAULT) }
    }
}

/// Error in a tenant's configuration: the tenant's name, and how to fix the error.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("tenant {name:?}: {what}")]
pub struct TenantError {
    name: String,
    what: String,
}

/// Checks the configuration of all tenants.
///
/// # Errors
/// [`TenantError`] of the first invalid tenant.
pub fn check(tenants: &[TenantOptions]) -> Result<(), TenantError> {
    let mut names = HashSet::new();
    for tenant in tenants {
        let refuse = |what: String| Err(TenantError { name: tenant.name.clone(), what });
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if tenant.name.is_empty() || tenant.name.len() > 64 || !tenant.name.chars().all(plain) {
            return refuse("a name must have 1 to 64 letters, digits, '-', '_' and '.'".to_owned());
        }
        if !names.insert(&tenant.name) {
            return refuse("two tenants have this name".to_owned());
        }
        let special = [DEFAULT, SOCKET].contains(&tenant.name.as_str());
        if special != tenant.clients.is_empty() {
            let what = if special {
                "clients must be empty: the clients of this tenant are predefined"
            } else {
                "clients is required"
            };
            return refuse(what.to_owned());
        }
        if !(1..=SHARE_MAX).contains(&tenant.share) {
            return refuse(format!("share must be 1 to {SHARE_MAX}"));
        }
        if tenant.rate_per_s > RATE_MAX || tenant.burst > RATE_MAX {
            return refuse(format!("rate_per_s and burst must be at most {RATE_MAX}"));
        }
        if tenant.burst > 0 && tenant.rate_per_s == 0 {
            return refuse("burst requires rate_per_s".to_owned());
        }
        if tenant.in_flight_max == 0 {
            return refuse("in_flight_max must be at least 1".to_owned());
        }
        if tenant.clients.len() > ENTRIES_MAX || tenant.keys.len() > ENTRIES_MAX {
            return refuse(format!("clients and keys may have at most {ENTRIES_MAX} entries each"));
        }
        if let Some(bad) = tenant.clients.iter().find(|text| Pattern::parse(text).is_none()) {
            return refuse(format!("{bad:?} is not O=ORGANIZATION, a DNS name or a URI"));
        }
        if tenant.keys.iter().any(String::is_empty) {
            return refuse("a key has an empty name".to_owned());
        }
    }
    if tenants.len() > TENANTS_MAX {
        let name = tenants[TENANTS_MAX].name.clone();
        return Err(TenantError { name, what: format!("more than {TENANTS_MAX} tenants") });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_tenant_options_are_rejected() {
        let one = |change: fn(&mut TenantOptions)| {
            let mut tenant = TenantOptions { clients: vec!["O=A".into()], ..TenantOptions::new("a") };
            change(&mut tenant);
            check(&[tenant])
        };
        assert_eq!(one(|_| ()), Ok(()));
        for (change, what) in [
            ((|t| t.name = "a b".into()) as fn(&mut TenantOptions), "letters"),
            (|t| t.name.clear(), "letters"),
            (|t| t.clients.clear(), "clients is required"),
            (|t| t.name = DEFAULT.into(), "clients must be empty: the clients of this"),
            (|t| t.share = 0, "share"),
            (|t| t.share = SHARE_MAX + 1, "share"),
            (|t| t.burst = 1, "rate_per_s"),
            (|t| t.in_flight_max = 0, "in_flight_max"),
            (|t| t.clients.push("a b".into()), "a b"),
            (|t| t.keys.push(String::new()), "empty name"),
        ] {
            let error = one(change).unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
        }
        let twice = TenantOptions { clients: vec!["O=A".into()], ..TenantOptions::new("a") };
        assert!(check(&[twice.clone(), twice]).is_err());
    }
}

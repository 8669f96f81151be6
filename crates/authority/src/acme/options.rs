//! How the ACME server works: one table for all of it, one for each profile's directory.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

pub use crate::tables::acme::Method;

/// The ACME server. Times are seconds unless the name says otherwise; the default suits a network of one's own.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct AcmeOptions {
    /// Where clients reach this server, `https://HOST[:PORT]`, without a slash at the end. Account URLs are made of it
    /// and stand in clients' files, CAA and DNS records: it must not change.
    pub base_url: String,
    /// The profile of `/acme/directory`.
    pub default_profile: String,
    /// Directories by profile; `/acme/PROFILE/directory`.
    pub directories: BTreeMap<String, DirectoryOptions>,
    /// What holds for profiles without an entry above; absent: they have no directory. The default profile always has one.
    pub other_profiles: Option<DirectoryOptions>,
    /// This authority's names in CAA records and `dns-persist-01` (RFC 8659 section 4.2). While there are none, CAA
    /// is not checked and `dns-persist-01` not offered. Ten at most.
    pub caa_identities: Vec<String>,
    /// Whether `dns-persist-01` also takes the account's plain URL, as the drafts before 02 had it and most clients
    /// still write it.
    pub dns_persist_plain_account: bool,
    /// Where the terms of service stand; given, new accounts must agree to them.
    pub terms_of_service: Option<String>,
    /// A page about this authority.
    pub website: Option<String>,
    /// How names are looked up and hosts reached to validate.
    pub validation: ValidationOptions,
    /// How much each client may ask for.
    pub limits: LimitOptions,
    /// Names in one order at most.
    pub names_max: usize,
    /// How long ended orders and authorizations stay readable before they are deleted, seconds.
    pub keep_ended_seconds: u64,
}

impl Default for AcmeOptions {
    fn default() -> Self {
        Self {
            base_url: "https://localhost".to_owned(),
            default_profile: "default".to_owned(),
            directories: BTreeMap::new(),
            other_profiles: None,
            caa_identities: Vec::new(),
            dns_persist_plain_account: true,
            terms_of_service: None,
            website: None,
            validation: ValidationOptions::default(),
            limits: LimitOptions::default(),
            // Let's Encrypt's figure, on which clients rely.
            names_max: 100,
            keep_ended_seconds: 7 * 86_400,
        }
    }
}

/// One profile's directory.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct DirectoryOptions {
    /// Whether accounts must be bound to an external key (RFC 8555 section 7.3.4).
    pub external_account_required: bool,
    /// How names may be proven; those that fit a name are offered.
    pub methods: Vec<Method>,
    /// No proof at all: anyone who has an account may have any name that the profile and the account's external key allow.
    /// For closed networks; best together with `external_account_required`.
    pub trust_authenticated: bool,
    /// How long a proof serves the same account's later orders, seconds; 0: every order is proven again.
    pub reuse_seconds: u64,
    /// How long an order may stay unfinished, seconds.
    pub order_seconds: u64,
    /// Whether clients may choose notBefore and notAfter, within what the profile allows.
    pub choose_dates: bool,
    /// Other profiles that an order may name in its `profile` (draft-ietf-acme-profiles). Their own tables hold for it.
    pub profiles: Vec<String>,
    /// The description of this profile in the directory.
    pub description: String,
}

impl Default for DirectoryOptions {
    fn default() -> Self {
        Self {
            external_account_required: false,
            methods: vec![
                Method::Http01,
                Method::Dns01,
                Method::TlsAlpn01,
                Method::DnsAccount01,
                Method::DnsPersist01,
            ],
            trust_authenticated: false,
            reuse_seconds: 0,
            order_seconds: 86_400,
            choose_dates: true,
            profiles: Vec::new(),
            description: String::new(),
        }
    }
}

/// Validation.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct ValidationOptions {
    /// Name servers to ask; none: those of this machine.
    pub name_servers: Vec<SocketAddr>,
    /// The port of http-01. Anything but 80 is for tests.
    pub http_port: u16,
    /// The port of tls-alpn-01, and the one to which http-01 may be redirected. Anything but 443 is for tests.
    pub https_port: u16,
    /// Whether hosts in private networks (RFC 1918, RFC 4193, RFC 6598) may be reached: the reason for a private
    /// authority.
    pub allow_private: bool,
    /// Networks that may be reached whatever else is said: even loopback or link-local.
    pub allow_networks: Vec<IpNet>,
    /// Networks that are never reached, unless in `allow_networks`.
    pub deny_networks: Vec<IpNet>,
    /// Validations at once; more wait.
    pub concurrency: usize,
    /// How long one try may take, milliseconds.
    pub try_milliseconds: u64,
    /// Pause before the second try, milliseconds; before the third it is three times as long.
    pub pause_milliseconds: u64,
}

impl Default for ValidationOptions {
    fn default() -> Self {
        Self {
            name_servers: Vec::new(),
            http_port: 80,
            https_port: 443,
            allow_private: true,
            allow_networks: Vec::new(),
            deny_networks: Vec::new(),
            // Each holds a socket and some kilobytes; it waits for the network nearly all the time.
            concurrency: 256,
            try_milliseconds: 10_000,
            pause_milliseconds: 1_000,
        }
    }
}

impl ValidationOptions {
    /// Loopback allowed, quick to repeat: for tests.
    #[must_use]
    pub fn for_tests() -> Self {
        let loopback =
            [IpAddr::from([127, 0, 0, 1]).into(), IpAddr::from(std::net::Ipv6Addr::LOCALHOST).into()];
        Self { allow_networks: loopback.to_vec(), pause_milliseconds: 10, ..Self::default() }
    }

    pub(crate) fn try_limit(&self) -> Duration {
        Duration::from_millis(self.try_milliseconds)
    }

    pub(crate) fn pause(&self) -> Duration {
        Duration::from_millis(self.pause_milliseconds)
    }
}

/// So many in so many seconds: as many at once, and then evenly. 0 of `count` forbids, an absent limit allows all.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Limit {
    /// How many.
    pub count: u32,
    /// In how long, seconds.
    pub seconds: u32,
}

/// Limits, each with overrides in the database.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct LimitOptions {
    /// New accounts an address; IPv6 by its /64.
    pub new_accounts: Option<Limit>,
    /// New orders an account.
    pub orders: Option<Limit>,
    /// Failed validations an account and name.
    pub failed_validations: Option<Limit>,
    /// Certificates for exactly the same names.
    pub duplicate_certificates: Option<Limit>,
}

impl Default for LimitOptions {
    fn default() -> Self {
        let limit = |count, seconds| Some(Limit { count, seconds });
        Self {
            // A site behind one address that sets up all its machines in an hour.
            new_accounts: limit(1_000, 3_600),
            // An account that serves a platform: ten thousand an hour is three a second.
            orders: limit(10_000, 3_600),
            // A client that tries every minute for ever is broken.
            failed_validations: limit(30, 3_600),
            // Let's Encrypt has 5 a week; a private authority's short-lived certificates need one a few hours.
            duplicate_certificates: limit(100, 86_400),
        }
    }
}

impl LimitOptions {
    /// None at all.
    #[must_use]
    pub fn none() -> Self {
        Self { new_accounts: None, orders: None, failed_validations: None, duplicate_certificates: None }
    }
}

/// Why options cannot be used.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("acme.{field}: {reason}")]
pub struct BadOptions {
    /// The key.
    pub field: &'static str,
    /// The error, and what to do.
    pub reason: String,
}

/// RFC: draft-ietf-acme-dns-persist-02 section 3.1.
const CAA_IDENTITIES_MAX: usize = 10;

impl AcmeOptions {
    /// What holds for a profile; `None` when it has no directory.
    #[must_use]
    pub fn directory(&self, profile: &str) -> Option<DirectoryOptions> {
        let own = self.directories.get(profile).or(self.other_profiles.as_ref());
        own.cloned().or_else(|| (profile == self.default_profile).then(DirectoryOptions::default))
    }

    /// Checks and normalises.
    pub(crate) fn checked(mut self) -> Result<Self, BadOptions> {
        let bad = |field, reason: &str| Err(BadOptions { field, reason: reason.to_owned() });
        while self.base_url.ends_with('/') {
            self.base_url.pop();
        }
        let Ok(url) = self.base_url.parse::<http::Uri>() else {
            return bad("base_url", "it is no URL; give https://HOST[:PORT]");
        };
        if url.scheme_str().is_none_or(|scheme| scheme != "https" && scheme != "http")
            || url.host().is_none_or(str::is_empty)
            || url.path_and_query().is_some_and(|path| path.as_str() != "/")
        {
            return bad("base_url", "give https://HOST[:PORT] without a path");
        }
        if self.caa_identities.len() > CAA_IDENTITIES_MAX {
            return bad("caa_identities", "give ten names at most");
        }
        for name in &mut self.caa_identities {
            let Ok(host) = x509::HostName::parse(name) else {
                return Err(BadOptions {
                    field: "caa_identities",
                    reason: format!("{name:?} is no host name"),
                });
            };
            *name = host.as_str().to_owned();
        }
        if self.names_max == 0 || self.validation.concurrency == 0 || self.validation.try_milliseconds == 0 {
            return bad(
                "names_max, validation.concurrency, validation.try_milliseconds",
                "0 would let nothing through",
            );
        }
        let directories = self.directories.values().chain(&self.other_profiles);
        if directories.clone().any(|directory| directory.methods.is_empty() && !directory.trust_authenticated)
        {
            return bad(
                "directories.methods",
                "without a method nothing can be proven; name some, or set trust_authenticated",
            );
        }
        if directories.clone().any(|directory| directory.order_seconds < 60) {
            return bad("directories.order_seconds", "a client needs a minute at least");
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_good_and_names_are_normalised() {
        let options = AcmeOptions {
            base_url: "https://ca.example/".to_owned(),
            caa_identities: vec!["CA.Example".to_owned()],
            ..AcmeOptions::default()
        };
        let options = options.checked().unwrap();
        assert_eq!(
            (options.base_url.as_str(), options.caa_identities[0].as_str()),
            ("https://ca.example", "ca.example")
        );
        assert!(options.directory("default").is_some());
        assert!(options.directory("web").is_none());
    }

    #[test]
    fn what_cannot_work_is_refused() {
        for base_url in
            ["", "ca.example", "https://ca.example/path", "ftp://ca.example", "https://ca.example?x=1"]
        {
            let options = AcmeOptions { base_url: base_url.to_owned(), ..AcmeOptions::default() };
            assert_eq!(options.checked().unwrap_err().field, "base_url", "{base_url}");
        }
        let silent = DirectoryOptions { methods: Vec::new(), ..DirectoryOptions::default() };
        let options = AcmeOptions { other_profiles: Some(silent), ..AcmeOptions::default() };
        assert_eq!(options.checked().unwrap_err().field, "directories.methods");
    }

    #[test]
    fn methods_are_known_by_name_and_bit() {
        for method in Method::ALL {
            assert_eq!(method.name().parse(), Ok(method));
            assert_eq!(serde_json::to_value(method).unwrap(), method.name());
            assert_eq!(Method::of_bits(method.bit()).collect::<Vec<_>>(), [method]);
        }
    }
}

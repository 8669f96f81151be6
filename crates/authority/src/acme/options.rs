//! Options of the ACME server: one table for the server and one for the directory of each profile.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

pub use crate::tables::acme::Method;

/// Options of the ACME server. Times are in seconds unless the name says otherwise. The defaults suit a private network.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct AcmeOptions {
    /// Base URL of this server for clients, `https://HOST[:PORT]`, without a trailing slash. It must not change: the files of
    /// clients, CAA records and other DNS records contain account URLs, which begin with it.
    pub base_url: String,
    /// Profile of `/acme/directory`.
    pub default_profile: String,
    /// Directories by profile, at `/acme/PROFILE/directory`.
    pub directories: BTreeMap<String, DirectoryOptions>,
    /// Options of profiles without an entry in `directories`. When absent, these profiles have no directory. The default profile
    /// always has one.
    pub other_profiles: Option<DirectoryOptions>,
    /// Domain names of this CA in CAA records and `dns-persist-01` (RFC 8659 section 4.2), 10 at most. If the list is empty, CAA is
    /// not checked and `dns-persist-01` is not offered.
    pub caa_identities: Vec<String>,
    /// Whether `dns-persist-01` also accepts the plain URL of the account, as in the drafts before 02. Most clients still send it.
    pub dns_persist_plain_account: bool,
    /// URL of the terms of service. If set, new accounts must agree to them.
    pub terms_of_service: Option<String>,
    /// URL of a page about this CA.
    pub website: Option<String>,
    /// DNS servers, networks, ports and timeouts for domain validation.
    pub validation: ValidationOptions,
    /// Rate limits for new accounts, orders, failed validations and duplicate certificates.
    pub limits: LimitOptions,
    /// Maximum number of names in one order.
    pub names_max: usize,
    /// Seconds after which finished orders and authorizations are deleted.
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
            // The limit of Let's Encrypt, on which clients rely.
            names_max: 100,
            keep_ended_seconds: 7 * 86_400,
        }
    }
}

/// Options of one profile's directory: account binding, validation methods, and lifetimes of orders and validations.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct DirectoryOptions {
    /// Whether accounts must be bound to an external key (RFC 8555 section 7.3.4).
    pub external_account_required: bool,
    /// Allowed validation methods. The server offers those that are suitable for the name.
    pub methods: Vec<Method>,
    /// Whether no validation is required. Any account may then obtain any name that the profile and its external key allow. Use
    /// this only in closed networks, preferably with `external_account_required`.
    pub trust_authenticated: bool,
    /// Seconds for which a validation is reused for later orders of the same account; 0 requires a validation for every order.
    pub reuse_seconds: u64,
    /// Seconds until an unfinished order expires.
    pub order_seconds: u64,
    /// Whether clients may choose notBefore and notAfter within the limits of the profile.
    pub choose_dates: bool,
    /// Other profiles that an order may request in its `profile` (draft-ietf-acme-profiles). Their own options then apply.
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

/// Options of domain validation: DNS servers, ports, allowed networks, concurrency and timeouts.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct ValidationOptions {
    /// DNS servers; this machine's if the list is empty.
    pub name_servers: Vec<SocketAddr>,
    /// Port of http-01. Change the value 80 only for tests.
    pub http_port: u16,
    /// Port of tls-alpn-01, also allowed in redirects of http-01. Change the value 443 only for tests.
    pub https_port: u16,
    /// Whether hosts in private networks (RFC 1918, RFC 4193, RFC 6598) may be contacted, which most private CAs need.
    pub allow_private: bool,
    /// Networks that may always be contacted, even loopback and link-local. They take precedence over all other rules.
    pub allow_networks: Vec<IpNet>,
    /// Networks that are never contacted, unless `allow_networks` contains them.
    pub deny_networks: Vec<IpNet>,
    /// Maximum number of concurrent validations. Further ones are queued.
    pub concurrency: usize,
    /// Timeout of one attempt in milliseconds.
    pub try_milliseconds: u64,
    /// Delay before the second attempt in milliseconds. The delay before the third attempt is three times as long.
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
            // Each validation uses a socket and a few kilobytes, and mostly waits for the network.
            concurrency: 256,
            try_milliseconds: 10_000,
            pause_milliseconds: 1_000,
        }
    }
}

impl ValidationOptions {
    /// Returns options for tests: loopback is allowed, and retries are fast.
    #[must_use]
    pub fn for_tests() -> Self {
        let loopback =
            [IpAddr::from([127, 0, 0, 1]).into(), IpAddr::from(std::net::Ipv6Addr::LOCALHOST).into()];
        Self { allow_networks: loopback.to_vec(), pause_milliseconds: 10, ..Self::default() }
    }

    pub(crate) fn attempt_timeout(&self) -> Duration {
        Duration::from_millis(self.try_milliseconds)
    }

    pub(crate) fn pause(&self) -> Duration {
        Duration::from_millis(self.pause_milliseconds)
    }
}

/// A rate limit: `count` events are allowed immediately, then one every `seconds / count`. A `count` of 0 allows none; an absent
/// limit allows all.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Limit {
    /// Number of events allowed in each period; 0 allows none.
    pub count: u32,
    /// Period in seconds.
    pub seconds: u32,
}

/// Rate limits for ACME clients. The database can contain overrides for each.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct LimitOptions {
    /// New accounts per IPv4 address or IPv6 /64.
    pub new_accounts: Option<Limit>,
    /// New orders per account.
    pub orders: Option<Limit>,
    /// Failed validations per account and name.
    pub failed_validations: Option<Limit>,
    /// Certificates for exactly the same set of names.
    pub duplicate_certificates: Option<Limit>,
}

impl Default for LimitOptions {
    fn default() -> Self {
        let limit = |count, seconds| Some(Limit { count, seconds });
        Self {
            // Enough for a site behind one address that sets up all its machines within an hour.
            new_accounts: limit(1_000, 3_600),
            // Enough for an account that serves a platform: 10,000 per hour is three per second.
            orders: limit(10_000, 3_600),
            // A client that retries every minute without end is broken.
            failed_validations: limit(30, 3_600),
            // Let's Encrypt allows 5 a week. A private CA with short-lived certificates must issue a duplicate every few hours.
            duplicate_certificates: limit(100, 86_400),
        }
    }
}

impl LimitOptions {
    /// Returns options without any limit.
    #[must_use]
    pub fn none() -> Self {
        Self { new_accounts: None, orders: None, failed_validations: None, duplicate_certificates: None }
    }
}

/// Reason why the options are invalid.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("acme.{field}: {reason}")]
pub struct BadOptions {
    /// Name of the invalid option.
    pub field: &'static str,
    /// Description of the error and of the correction.
    pub reason: String,
}

/// Maximum number of CAA identities (draft-ietf-acme-dns-persist-02 section 3.1).
const CAA_IDENTITIES_MAX: usize = 10;

impl AcmeOptions {
    /// Returns the directory options of a profile; `None` if the profile has no directory.
    #[must_use]
    pub fn directory(&self, profile: &str) -> Option<DirectoryOptions> {
        let own = self.directories.get(profile).or(self.other_profiles.as_ref());
        own.cloned().or_else(|| (profile == self.default_profile).then(DirectoryOptions::default))
    }

    /// Validates and normalizes the options.
    pub(crate) fn checked(mut self) -> Result<Self, BadOptions> {
        let bad = |field, reason: &str| Err(BadOptions { field, reason: reason.to_owned() });
        while self.base_url.ends_with('/') {
            self.base_url.pop();
        }
        let Ok(url) = self.base_url.parse::<http::Uri>() else {
            return bad("base_url", "not a URL; give https://HOST[:PORT]");
        };
        if url.scheme_str().is_none_or(|scheme| scheme != "https" && scheme != "http")
            || url.host().is_none_or(str::is_empty)
            || url.path_and_query().is_some_and(|path| path.as_str() != "/")
        {
            return bad("base_url", "give https://HOST[:PORT] without a path");
        }
        if self.caa_identities.len() > CAA_IDENTITIES_MAX {
            return bad("caa_identities", "give at most ten names");
        }
        for name in &mut self.caa_identities {
            let Ok(host) = x509::HostName::parse(name) else {
                return Err(BadOptions {
                    field: "caa_identities",
                    reason: format!("{name:?} is not a host name"),
                });
            };
            *name = host.as_str().to_owned();
        }
        if self.names_max == 0 || self.validation.concurrency == 0 || self.validation.try_milliseconds == 0 {
            return bad(
                "names_max, validation.concurrency, validation.try_milliseconds",
                "0 would block all requests: give 1 or more",
            );
        }
        let directories = self.directories.values().chain(&self.other_profiles);
        if directories.clone().any(|directory| directory.methods.is_empty() && !directory.trust_authenticated)
        {
            return bad(
                "directories.methods",
                "at least one challenge method is required; list some, or set trust_authenticated",
            );
        }
        if directories.clone().any(|directory| directory.order_seconds < 60) {
            return bad("directories.order_seconds", "give at least 60 seconds");
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_options_are_valid_and_names_are_normalized() {
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
    fn invalid_options_are_rejected() {
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
    fn methods_round_trip_through_name_and_bit() {
        for method in Method::ALL {
            assert_eq!(method.name().parse(), Ok(method));
            assert_eq!(serde_json::to_value(method).unwrap(), method.name());
            assert_eq!(Method::methods_in_bits(method.bit()).collect::<Vec<_>>(), [method]);
        }
    }
}

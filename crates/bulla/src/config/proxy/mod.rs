//! `[proxy]`: the forward proxy with TLS interception.

mod access;
mod ask;
mod authority;
mod databases;
mod hooks;
mod leaf_store;
mod minting;
mod policy;
mod requests;
mod transparent;
mod upstreams;

use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

use cli::exit::{Outcome, Problem};
use http_relay::names::BadRule;
use ipnet::IpNet;
use outbound::guard::Guard;
use proxy::mint::{LEAF_KEY_LIFE_MAX, LeafKeySharing, VALIDITY_MAX};
use proxy::policy::{Policy, SessionProtocol};
use proxy::requests::{RequestRules, RuleText};
use proxy::{Action, Options, Rules};
use serde::{Deserialize, Serialize};

pub(crate) use self::authority::ProxyAuthoritySettings;
pub(crate) use self::databases::{DatabaseListenerSettings, DatabaseTls};
pub(crate) use self::hooks::HookSettings;
pub(crate) use self::leaf_store::LeafBackend;
pub(crate) use self::policy::{HoldWebhook, HoldWebhookFormat};
pub(super) use self::requests::{access_log, logged_query};

use self::access::AccessSettings;
use self::ask::AskSettings;
use self::leaf_store::ProxyStoreSettings;
use self::minting::MintingSettings;
use self::policy::PolicySettings;
use self::requests::ProxyRequestSettings;
use self::transparent::TransparentSettings;
use self::upstreams::{ParentSettings, UpstreamSettings};

/// Name of the control socket in the data folder.
const CONTROL_SOCKET: &str = "proxy.sock";

/// Configuration section `[proxy]`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ProxySettings {
    pub(crate) listen: String,
    pub(crate) ca_certificate_file: PathBuf,
    pub(crate) ca_key_file: PathBuf,
    pub(crate) crl_urls: Vec<String>,
    pub(crate) clients: Vec<IpNet>,
    pub(crate) intercept: Vec<String>,
    pub(crate) mirror: Vec<String>,
    pub(crate) tunnel: Vec<String>,
    pub(crate) reject: Vec<String>,
    pub(crate) others: DefaultAction,
    pub(crate) upstream_ca_files: Vec<PathBuf>,
    pub(crate) leaf_validity_s: u64,
    pub(crate) leaf_keys: LeafKeySharingSetting,
    pub(crate) leaf_key_s: u64,
    pub(crate) store_octets_max: u64,
    pub(crate) new_names_per_minute: u32,
    pub(crate) new_names_burst: u32,
    pub(crate) metrics_listen: String,
    pub(crate) connections_max: usize,
    pub(crate) connections_per_address_max: usize,
    pub(crate) trusted_proxies: Vec<IpNet>,
    pub(crate) upstream_connections_max: usize,
    pub(crate) upstream_per_host_max: usize,
    pub(crate) upstream_idle_max: usize,
    pub(crate) upstream_idle_s: u64,
    pub(crate) handshake_timeout_ms: u64,
    pub(crate) head_timeout_ms: u64,
    pub(crate) keep_alive_s: u64,
    pub(crate) connect_timeout_ms: u64,
    pub(crate) response_timeout_ms: u64,
    pub(crate) idle_s: u64,
    pub(crate) stop_s: u64,
    pub(crate) control_socket: PathBuf,
    pub(crate) store: ProxyStoreSettings,
    pub(crate) allow_link_local: bool,
    pub(crate) auto_tunnel: bool,
    pub(crate) auto_tunnel_s: u64,
    pub(crate) upstreams: Vec<UpstreamSettings>,
    pub(crate) access: AccessSettings,
    pub(crate) transparent: TransparentSettings,
    pub(crate) parent: ParentSettings,
    pub(crate) authority: ProxyAuthoritySettings,
    pub(crate) minting: MintingSettings,
    pub(crate) ask: AskSettings,
    pub(crate) policy: PolicySettings,
    pub(crate) postgresql: Vec<DatabaseListenerSettings>,
    pub(crate) redis: Vec<DatabaseListenerSettings>,
    pub(crate) rules: Vec<RuleText>,
    pub(crate) hooks: Vec<HookSettings>,
    pub(crate) requests: ProxyRequestSettings,
    /// Cache of the compiled `rules`; empty until their first use.
    #[serde(skip)]
    compiled: OnceLock<RequestRules>,
}

/// The action for connections to names that are in no list.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum DefaultAction {
    /// TLS is intercepted, so that the proxy sees the requests.
    #[default]
    Intercept,
    /// TLS is intercepted, with leaves that resemble the servers' own certificates.
    Mirror,
    /// The connection passes through without interception.
    Tunnel,
    /// The connection is refused.
    Reject,
}

/// Scope in which leaf certificates share a key.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum LeafKeySharingSetting {
    /// All leaves that are minted within an hour share a key.
    #[default]
    Shared,
    /// Each host has its own key.
    ByHost,
    /// Each user has its own key.
    ByUser,
}

impl From<LeafKeySharingSetting> for LeafKeySharing {
    fn from(of: LeafKeySharingSetting) -> Self {
        match of {
            LeafKeySharingSetting::Shared => Self::Shared,
            LeafKeySharingSetting::ByHost => Self::ByHost,
            LeafKeySharingSetting::ByUser => Self::ByUser,
        }
    }
}

impl Default for ProxySettings {
    fn default() -> Self {
        let usual = Options::default();
        let ms = |limit: Duration| limit.as_millis() as u64;
        Self {
            listen: usual.listen.to_string(),
            ca_certificate_file: PathBuf::new(),
            ca_key_file: PathBuf::new(),
            crl_urls: Vec::new(),
            clients: Vec::new(),
            intercept: Vec::new(),
            mirror: Vec::new(),
            tunnel: Vec::new(),
            reject: Vec::new(),
            others: DefaultAction::Intercept,
            upstream_ca_files: Vec::new(),
            leaf_validity_s: usual.leaf_validity.as_secs(),
            leaf_keys: LeafKeySharingSetting::Shared,
            leaf_key_s: usual.leaf_key_life.as_secs(),
            store_octets_max: usual.store_octets_max,
            new_names_per_minute: usual.new_names_per_minute,
            new_names_burst: usual.new_names_burst,
            metrics_listen: "127.0.0.1:2409".into(),
            connections_max: usual.connections_max,
            connections_per_address_max: 0,
            trusted_proxies: Vec::new(),
            upstream_connections_max: usual.upstream_connections_max,
            upstream_per_host_max: usual.upstream_per_host_max,
            upstream_idle_max: usual.upstream_idle_max,
            upstream_idle_s: usual.upstream_idle.as_secs(),
            handshake_timeout_ms: ms(usual.handshake_timeout),
            head_timeout_ms: ms(usual.head_timeout),
            keep_alive_s: usual.keep_alive.as_secs(),
            connect_timeout_ms: ms(usual.connect_timeout),
            response_timeout_ms: ms(usual.response_timeout),
            idle_s: usual.idle.as_secs(),
            stop_s: 5,
            control_socket: PathBuf::new(),
            store: ProxyStoreSettings::default(),
            allow_link_local: false,
            auto_tunnel: false,
            auto_tunnel_s: 86_400,
            upstreams: Vec::new(),
            access: AccessSettings::default(),
            transparent: TransparentSettings::default(),
            parent: ParentSettings::default(),
            authority: ProxyAuthoritySettings::default(),
            minting: MintingSettings::default(),
            ask: AskSettings::default(),
            policy: PolicySettings::default(),
            postgresql: Vec::new(),
            redis: Vec::new(),
            rules: Vec::new(),
            hooks: Vec::new(),
            requests: ProxyRequestSettings::default(),
            compiled: OnceLock::new(),
        }
    }
}

impl ProxySettings {
    pub(crate) fn check(&self) -> Outcome<()> {
        const DAY_S: u64 = 86_400;
        const MINUTE_MS: u64 = 60_000;
        const MANY: u64 = 1_000_000;
        let within = |key: &str, value: u64, least: u64, most: u64| {
            if (least..=most).contains(&value) {
                return Ok(());
            }
            Err(Problem::usage(format_args!("proxy.{key} must be from {least} to {most}"))
                .hint("see `bulla config show`"))
        };
        within("leaf_validity_s", self.leaf_validity_s, 60, VALIDITY_MAX.as_secs())?;
        within("leaf_key_s", self.leaf_key_s, 60, LEAF_KEY_LIFE_MAX.as_secs())?;
        within("store_octets_max", self.store_octets_max, 1 << 20, 64 << 30)?;
        within("new_names_per_minute", self.new_names_per_minute.into(), 1, MANY)?;
        within("new_names_burst", self.new_names_burst.into(), 1, MANY)?;
        within("connections_max", self.connections_max as u64, 1, MANY)?;
        within("connections_per_address_max", self.connections_per_address_max as u64, 0, MANY)?;
        within("upstream_connections_max", self.upstream_connections_max as u64, 1, MANY)?;
        within("upstream_per_host_max", self.upstream_per_host_max as u64, 1, MANY)?;
        within("upstream_idle_max", self.upstream_idle_max as u64, 0, MANY)?;
        if self.upstream_idle_max >= self.upstream_per_host_max {
            return Err(Problem::usage(
                "proxy.upstream_idle_max must be less than proxy.upstream_per_host_max",
            )
            .hint("otherwise idle connections could use up the connection limit of a host with many names"));
        }
        within("upstream_idle_s", self.upstream_idle_s, 1, 3_600)?;
        within("handshake_timeout_ms", self.handshake_timeout_ms, 1, MINUTE_MS)?;
        within("head_timeout_ms", self.head_timeout_ms, 1, 10 * MINUTE_MS)?;
        within("keep_alive_s", self.keep_alive_s, 1, 3_600)?;
        within("connect_timeout_ms", self.connect_timeout_ms, 1, MINUTE_MS)?;
        within("response_timeout_ms", self.response_timeout_ms, 1, 60 * MINUTE_MS)?;
        within("idle_s", self.idle_s, 1, DAY_S)?;
        within("stop_s", self.stop_s, 0, 3_600)?;
        self.store.check()?;
        self.authority.check()?;
        if self.authority.intermediate && self.store.backend != LeafBackend::Memory {
            return Err(Problem::usage("proxy.authority.intermediate and proxy.store exclude each other").hint(
                "each start creates a new intermediate, so other proxies cannot use its leaves: leave one of the two out",
            ));
        }
        self.minting.check()?;
        self.ask.check()?;
        if self.authority.is_key_external() {
            if !self.ca_key_file.as_os_str().is_empty() {
                return Err(Problem::usage(
                    "a CA with an external key needs proxy.ca_certificate_file and must not have proxy.ca_key_file",
                )
                .hint("give the CA certificate and its chain: --ca-certificate, or proxy.ca_certificate_file"));
            }
        } else if self.ca_certificate_file.as_os_str().is_empty() != self.ca_key_file.as_os_str().is_empty() {
            return Err(Problem::usage(
                "proxy.ca_certificate_file and proxy.ca_key_file must be set together",
            )
            .hint("set both, or neither to create a CA in the data folder"));
        }
        within("auto_tunnel_s", self.auto_tunnel_s, 60, 30 * DAY_S)?;
        self.access.check()?;
        if self.leaf_keys == LeafKeySharingSetting::ByUser && !self.access.requires_authentication() {
            return Err(Problem::usage("proxy.leaf_keys is \"by-user\", but clients are not authenticated")
                .hint("configure users in [proxy.access]: users_file, tokens or client_ca_files"));
        }
        self.transparent.check(&self.clients, self.access.requires_authentication())?;
        upstreams::check(&self.parent, &self.upstreams)?;
        self.requests.check()?;
        self.request_rules()?;
        hooks::check(&self.hooks)?;
        let has_policy = self.policy.is_active();
        databases::check(&self.postgresql, SessionProtocol::Postgresql, has_policy)?;
        databases::check(&self.redis, SessionProtocol::Redis, has_policy)?;
        self.policy.check_access(&self.access)?;
        self.policy.check_webhook()?;
        self.policy()?;
        self.names().map(drop)
    }

    /// Rejects a policy that holds requests if the control socket is disabled. Call this only for a proxy without the control plane
    /// in its process: there, held requests can be approved only on this socket.
    pub(crate) fn check_control_socket(&self) -> Outcome<()> {
        if self.policy()?.holds() && self.control_socket()?.is_none() {
            return Err(Problem::usage(
                "a rule of proxy.policy has action = \"hold\", but proxy.control_socket is \"none\"",
            )
            .hint(
                "approvals need the socket: leave proxy.control_socket out, or set a path. In the process of the server, the \
                 console and the API decide without it",
            ));
        }
        Ok(())
    }

    /// Returns the path of the control socket, by default in the data folder; `None` if it is disabled.
    pub(crate) fn control_socket(&self) -> Outcome<Option<PathBuf>> {
        match self.control_socket.to_str() {
            Some("none") => Ok(None),
            Some("") => Ok(Some(cli::data::folder()?.join(CONTROL_SOCKET))),
            _ => Ok(Some(self.control_socket.clone())),
        }
    }

    /// Returns the rules from the lists `intercept`, `mirror`, `tunnel` and `reject`.
    pub(crate) fn names(&self) -> Outcome<Rules> {
        let rule_error = |error: BadRule| {
            Problem::usage(format_args!("a list of [proxy]: {error}"))
                .hint("see proxy.intercept, proxy.mirror, proxy.tunnel and proxy.reject")
        };
        let mut rules = Rules::new(match self.others {
            DefaultAction::Intercept => Action::Intercept,
            DefaultAction::Mirror => Action::Mirror,
            DefaultAction::Tunnel => Action::Tunnel,
            DefaultAction::Reject => Action::Reject,
        });
        rules.add(&self.intercept, Action::Intercept).map_err(rule_error)?;
        rules.add(&self.mirror, Action::Mirror).map_err(rule_error)?;
        rules.add(&self.tunnel, Action::Tunnel).map_err(rule_error)?;
        rules.add(&self.reject, Action::Reject).map_err(rule_error)?;
        Ok(rules)
    }

    /// Returns the compiled rules. They are compiled only once, because thousands of rules take time.
    pub(crate) fn request_rules(&self) -> Outcome<RequestRules> {
        if let Some(compiled) = self.compiled.get() {
            return Ok(compiled.clone());
        }
        let compiled = RequestRules::compile(&self.rules)
            .map_err(|bad| Problem::usage(format_args!("proxy.rules: {bad}")).hint(bad.hint))?;
        Ok(self.compiled.get_or_init(|| compiled).clone())
    }

    /// Returns the compiled policy. Rejects request rules that inject a credential for an identity, team or tag that the policy
    /// does not define.
    pub(crate) fn policy(&self) -> Outcome<Policy> {
        let policy = self.policy.compiled()?;
        for (index, inject) in
            self.rules.iter().enumerate().filter_map(|(index, rule)| Some((index, rule.inject.as_ref()?)))
        {
            if let Some((kind, name)) = policy.unknown(&inject.grants()) {
                let rule = index + 1;
                return Err(Problem::usage(format_args!(
                    "proxy.rules: rule {rule}: inject: {kind}: no identity has {name:?}"
                ))
                .hint("see the names, teams and tags in [[proxy.policy.identities]]"));
            }
        }
        Ok(policy)
    }

    /// Returns the options of the proxy, without its addresses and trust anchors.
    pub(crate) fn options(&self) -> Outcome<Options> {
        Ok(Options {
            clients: self.clients.clone(),
            access: self.access.options()?,
            transparent: self.transparent.options()?,
            postgresql: databases::options(&self.postgresql, SessionProtocol::Postgresql)?,
            redis: databases::options(&self.redis, SessionProtocol::Redis)?,
            upstreams: upstreams::policies(&self.parent, &self.upstreams)?,
            guard: Guard { allow_link_local: self.allow_link_local, networks: self.policy.networks()? },
            auto_tunnel: self.auto_tunnel.then(|| Duration::from_secs(self.auto_tunnel_s)),
            rules: self.names()?,
            policy: self.policy()?,
            hooks: hooks::options(&self.hooks)?,
            requests: self.requests.options(self.request_rules()?)?,
            leaf_validity: Duration::from_secs(self.leaf_validity_s),
            leaf_keys: self.leaf_keys.into(),
            leaf_key_life: Duration::from_secs(self.leaf_key_s),
            store_octets_max: self.store_octets_max,
            new_names_per_minute: self.new_names_per_minute,
            new_names_burst: self.new_names_burst,
            connections_max: self.connections_max,
            connections_per_address_max: Some(self.connections_per_address_max).filter(|most| *most > 0),
            trusted_proxies: self.trusted_proxies.clone(),
            upstream_connections_max: self.upstream_connections_max,
            upstream_per_host_max: self.upstream_per_host_max,
            upstream_idle_max: self.upstream_idle_max,
            upstream_idle: Duration::from_secs(self.upstream_idle_s),
            handshake_timeout: Duration::from_millis(self.handshake_timeout_ms),
            head_timeout: Duration::from_millis(self.head_timeout_ms),
            keep_alive: Duration::from_secs(self.keep_alive_s),
            connect_timeout: Duration::from_millis(self.connect_timeout_ms),
            response_timeout: Duration::from_millis(self.response_timeout_ms),
            idle: Duration::from_secs(self.idle_s),
            intermediate: self.authority.intermediate(),
            minting: self.minting.options(Duration::from_secs(self.leaf_key_s))?,
            permission: self.ask.options()?,
            ..Options::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use proxy::requests::RuleText;

    use super::*;

    #[test]
    fn request_rules_are_compiled_once_and_cached() {
        let rule = RuleText { path: vec!["/a".into()], block: Some(403), ..RuleText::default() };
        let mut settings = ProxySettings { rules: vec![rule], ..ProxySettings::default() };
        settings.check().unwrap();
        // If the rules were compiled again, the result would be empty.
        settings.rules.clear();
        assert_eq!(settings.clone().request_rules().unwrap().len(), 1);
    }
}

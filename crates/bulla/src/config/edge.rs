//! `[edge]`: the TLS terminator.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use cli::exit::{Outcome, Problem};
use edge::{BadRoute, ClientAuth, ClientCertificates, ClientCrls, Mode, Options, Route, Routes};
use ipnet::IpNet;
use keyless::client::{InvalidServer, Server};
use serde::{Deserialize, Serialize};

use super::edge_upstreams::{EdgeUpstreamSettings, ReferencedFiles, groups};
use super::proxy::{access_log, logged_query};
use crate::files;

/// Configuration section `[edge]`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct EdgeSettings {
    pub(crate) listen: String,
    pub(crate) certificates: PathBuf,
    pub(crate) inventory: bool,
    pub(crate) inventory_tag: String,
    pub(crate) fetch_staples: bool,
    pub(crate) default_certificate: String,
    pub(crate) unknown_names: UnknownNameAction,
    pub(crate) client_certificates: ClientCertificates,
    pub(crate) client_ca_files: Vec<PathBuf>,
    pub(crate) client_crl_files: Vec<PathBuf>,
    pub(crate) keys: Vec<String>,
    pub(crate) keys_certificate_file: PathBuf,
    pub(crate) keys_key_file: PathBuf,
    pub(crate) keys_ca_files: Vec<PathBuf>,
    pub(crate) upstream: String,
    pub(crate) mode: ForwardingMode,
    pub(crate) alpn: Vec<String>,
    pub(crate) proxy_protocol: bool,
    pub(crate) routes: Vec<RouteSettings>,
    pub(crate) upstreams: Vec<EdgeUpstreamSettings>,
    pub(crate) ticket_keys_file: PathBuf,
    pub(crate) ticket_key_s: u64,
    pub(crate) metrics_listen: String,
    pub(crate) reload_s: u64,
    pub(crate) connections_max: usize,
    pub(crate) connections_per_address_max: usize,
    pub(crate) handshake_timeout_ms: u64,
    pub(crate) sign_timeout_ms: u64,
    pub(crate) connect_timeout_ms: u64,
    pub(crate) idle_s: u64,
    pub(crate) head_timeout_ms: u64,
    pub(crate) keep_alive_s: u64,
    pub(crate) response_timeout_ms: u64,
    pub(crate) upstream_connections_max: usize,
    pub(crate) upstream_per_host_max: usize,
    pub(crate) upstream_idle_max: usize,
    pub(crate) upstream_idle_s: u64,
    pub(crate) trusted_proxies: Vec<IpNet>,
    pub(crate) access_log_file: String,
    pub(crate) access_log_query: bool,
    pub(crate) stop_s: u64,
}

/// Unit of forwarding: connections or requests.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ForwardingMode {
    /// Connections are forwarded unchanged.
    #[default]
    Tcp,
    /// Requests are forwarded one by one.
    Http,
}

impl From<ForwardingMode> for Mode {
    fn from(text: ForwardingMode) -> Self {
        match text {
            ForwardingMode::Tcp => Self::Tcp,
            ForwardingMode::Http => Self::Http,
        }
    }
}

/// The response to a client that requests a name without a certificate.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum UnknownNameAction {
    /// Reject the handshake with the alert unrecognized_name.
    #[default]
    Refuse,
    /// Present the default certificate.
    Default,
}

/// Configuration of one entry of `[[edge.routes]]`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RouteSettings {
    pub(crate) names: Vec<String>,
    pub(crate) upstream: String,
    /// How connections are forwarded. Default: the value in `[edge]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) mode: Option<ForwardingMode>,
    /// Protocols that the upstream supports, most preferred first. Default: the value in `[edge]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) alpn: Option<Vec<String>>,
    /// Whether the upstream gets a PROXY protocol header with the client's address. Default: the value in `[edge]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) proxy_protocol: Option<bool>,
}

impl Default for EdgeSettings {
    fn default() -> Self {
        let usual = Options::default();
        let ms = |limit: Duration| limit.as_millis() as u64;
        Self {
            listen: usual.listen.to_string(),
            certificates: PathBuf::new(),
            inventory: false,
            inventory_tag: String::new(),
            fetch_staples: true,
            default_certificate: String::new(),
            unknown_names: UnknownNameAction::Refuse,
            client_certificates: ClientCertificates::Off,
            client_ca_files: Vec::new(),
            client_crl_files: Vec::new(),
            keys: Vec::new(),
            keys_certificate_file: PathBuf::new(),
            keys_key_file: PathBuf::new(),
            keys_ca_files: Vec::new(),
            upstream: String::new(),
            mode: ForwardingMode::Tcp,
            alpn: vec!["http/1.1".into()],
            proxy_protocol: false,
            routes: Vec::new(),
            upstreams: Vec::new(),
            ticket_keys_file: PathBuf::new(),
            ticket_key_s: usual.ticket_key_life.as_secs(),
            metrics_listen: "127.0.0.1:2405".into(),
            reload_s: usual.reload.as_secs(),
            connections_max: usual.connections_max,
            connections_per_address_max: 0,
            handshake_timeout_ms: ms(usual.handshake_timeout),
            sign_timeout_ms: ms(usual.sign_timeout),
            connect_timeout_ms: ms(usual.connect_timeout),
            idle_s: usual.idle.as_secs(),
            head_timeout_ms: ms(usual.head_timeout),
            keep_alive_s: usual.keep_alive.as_secs(),
            response_timeout_ms: ms(usual.response_timeout),
            upstream_connections_max: usual.upstream_connections_max,
            upstream_per_host_max: 0,
            upstream_idle_max: usual.upstream_idle_max,
            upstream_idle_s: usual.upstream_idle.as_secs(),
            trusted_proxies: Vec::new(),
            access_log_file: String::new(),
            access_log_query: false,
            stop_s: 20,
        }
    }
}

impl EdgeSettings {
    pub(crate) fn check(&self) -> Outcome<()> {
        const DAY_S: u64 = 86_400;
        const MINUTE_MS: u64 = 60_000;
        let within = |key: &str, value: u64, least: u64, most: u64| {
            if (least..=most).contains(&value) {
                return Ok(());
            }
            Err(Problem::usage(format_args!("edge.{key} must be from {least} to {most}"))
                .hint("see `bulla config show`"))
        };
        within("reload_s", self.reload_s, 1, DAY_S)?;
        within("ticket_key_s", self.ticket_key_s, 60, 30 * DAY_S)?;
        within("connections_per_address_max", self.connections_per_address_max as u64, 0, 1_000_000)?;
        within("connections_max", self.connections_max as u64, 1, 1_000_000)?;
        within("handshake_timeout_ms", self.handshake_timeout_ms, 1, MINUTE_MS)?;
        within("sign_timeout_ms", self.sign_timeout_ms, 1, MINUTE_MS)?;
        within("connect_timeout_ms", self.connect_timeout_ms, 1, MINUTE_MS)?;
        within("idle_s", self.idle_s, 1, DAY_S)?;
        within("head_timeout_ms", self.head_timeout_ms, 1, 10 * MINUTE_MS)?;
        within("keep_alive_s", self.keep_alive_s, 1, 3_600)?;
        within("response_timeout_ms", self.response_timeout_ms, 1, 60 * MINUTE_MS)?;
        within("upstream_connections_max", self.upstream_connections_max as u64, 1, 1_000_000)?;
        within("upstream_per_host_max", self.upstream_per_host_max as u64, 0, 1_000_000)?;
        within("upstream_idle_max", self.upstream_idle_max as u64, 0, 1_000_000)?;
        within("upstream_idle_s", self.upstream_idle_s, 1, 3_600)?;
        within("stop_s", self.stop_s, 0, 3_600)?;
        if self.keys_certificate_file.as_os_str().is_empty() != self.keys_key_file.as_os_str().is_empty() {
            return Err(Problem::usage(
                "edge.keys_certificate_file and edge.keys_key_file must be set together",
            )
            .hint("set both, or neither to use only the socket of this host"));
        }
        if !self.inventory_tag.is_empty() && !self.inventory_tag.contains('=') {
            return Err(
                Problem::usage("edge.inventory_tag must be a tag and its value").hint("for example edge=web")
            );
        }
        let requests_certificates = self.client_certificates != ClientCertificates::Off;
        if requests_certificates == self.client_ca_files.is_empty() {
            return Err(Problem::usage("edge.client_certificates and edge.client_ca_files must be set together")
                .hint("client_certificates is \"required\" or \"optional\", and client_ca_files are the trust anchors of \
                 the client certificates"));
        }
        if !requests_certificates && !self.client_crl_files.is_empty() {
            return Err(Problem::usage("edge.client_crl_files needs edge.client_certificates")
                .hint("set edge.client_certificates, or leave edge.client_crl_files out"));
        }
        self.servers()?;
        self.routes(ReferencedFiles::NotRead).map(drop)
    }

    /// Returns whether an upstream or a route is configured.
    pub(crate) fn has_upstream(&self) -> bool {
        !self.upstream.is_empty() || !self.routes.is_empty()
    }

    /// Checks that all settings needed to run are present, from the file or from flags.
    pub(crate) fn check_required(&self) -> Outcome<()> {
        if self.certificates.as_os_str().is_empty() && !self.inventory {
            return Err(Problem::usage("the edge has no certificates to present").hint(
                "name a folder of *.pem files: --certificates, or edge.certificates in the configuration; or use managed \
                 certificates: --inventory",
            ));
        }
        if !self.has_upstream() {
            return Err(Problem::usage("the edge has no upstream to forward connections to")
                .hint("name one: --upstream, or edge.upstream or edge.routes in the configuration"));
        }
        // Without a client certificate no key service can be reached over TLS. The error names each service that uses TLS.
        let speaks_tls = !self.keys_certificate_file.as_os_str().is_empty();
        if speaks_tls && self.keys_ca_files.is_empty() {
            return Err(Problem::usage("edge.keys_ca_files is empty: no key service would be trusted").hint(
                "name the CA that issued the key service's certificate: --keys-ca, or edge.keys_ca_files",
            ));
        }
        if self.unknown_names == UnknownNameAction::Default && self.default_certificate.is_empty() {
            return Err(Problem::usage("edge.unknown_names is \"default\", but no default certificate is set").hint(
                "name a file of the folder, without its extension: --default-certificate, or edge.default_certificate",
            ));
        }
        Ok(())
    }

    /// Returns the key services. Default: the socket in the data folder.
    pub(crate) fn servers(&self) -> Outcome<Vec<Server>> {
        let read = |text: &String| {
            text.parse::<Server>().map_err(|error: InvalidServer| {
                Problem::usage(format_args!("edge.keys: {error}"))
                    .hint("for example unix:/run/bulla/keys.sock or tls:keys.example:2407")
            })
        };
        self.keys.iter().map(read).collect()
    }

    pub(crate) fn routes(&self, named_files: ReferencedFiles) -> Outcome<Routes> {
        let groups = groups(&self.upstreams, named_files)?;
        let route_error = |error: BadRoute| {
            Problem::usage(format_args!("an upstream of [edge]: {error}"))
                .hint("see --upstream, edge.upstream and edge.routes")
        };
        let read = |upstream: &str, alpn: &[String], sends_proxy_protocol: bool, mode: ForwardingMode| {
            let to = match groups.get(upstream) {
                Some(group) => Route::to(Arc::clone(group), alpn).map_err(route_error)?,
                None => Route::new(upstream, alpn).map_err(route_error)?,
            };
            let to = if sends_proxy_protocol { to.with_proxy_protocol() } else { to };
            to.with_mode(mode.into()).map_err(route_error)
        };
        let default = match self.upstream.as_str() {
            "" => None,
            upstream => Some(read(upstream, &self.alpn, self.proxy_protocol, self.mode)?),
        };
        let mut routes = Routes::new(default);
        for route in &self.routes {
            let alpn = route.alpn.as_ref().unwrap_or(&self.alpn);
            let sends_proxy_protocol = route.proxy_protocol.unwrap_or(self.proxy_protocol);
            let to = read(&route.upstream, alpn, sends_proxy_protocol, route.mode.unwrap_or(self.mode))?;
            routes.add(&route.names, to).map_err(route_error)?;
        }
        Ok(routes)
    }

    fn client_auth(&self) -> Outcome<Option<ClientAuth>> {
        if self.client_certificates == ClientCertificates::Off {
            return Ok(None);
        }
        let mut roots = Vec::new();
        for path in &self.client_ca_files {
            roots.extend(files::certificates("edge.client_ca_files", path)?);
        }
        let paths = self.client_crl_files.clone();
        let read = move || {
            let lists = paths.iter().map(|path| files::crls("edge.client_crl_files", path));
            let lists = lists.collect::<Outcome<Vec<_>>>().map_err(|problem| problem.message)?;
            Ok(lists.concat())
        };
        let lists = (!self.client_crl_files.is_empty()).then(|| ClientCrls::new(read));
        Ok(Some(ClientAuth { mode: self.client_certificates, roots, lists }))
    }

    /// Returns the options of the terminator, without its listen addresses.
    pub(crate) fn options(&self) -> Outcome<Options> {
        let given = |path: &PathBuf| Some(path.clone()).filter(|path| !path.as_os_str().is_empty());
        Ok(Options {
            certificates: self.certificates.clone(),
            default_certificate: Some(self.default_certificate.clone()).filter(|name| !name.is_empty()),
            unknown_names_get_default: self.unknown_names == UnknownNameAction::Default,
            client_auth: self.client_auth()?,
            routes: self.routes(ReferencedFiles::Read)?,
            ticket_keys_file: given(&self.ticket_keys_file),
            ticket_key_life: Duration::from_secs(self.ticket_key_s),
            reload: Duration::from_secs(self.reload_s),
            connections_max: self.connections_max,
            connections_per_address_max: Some(self.connections_per_address_max).filter(|most| *most > 0),
            handshake_timeout: Duration::from_millis(self.handshake_timeout_ms),
            sign_timeout: Duration::from_millis(self.sign_timeout_ms),
            connect_timeout: Duration::from_millis(self.connect_timeout_ms),
            idle: Duration::from_secs(self.idle_s),
            head_timeout: Duration::from_millis(self.head_timeout_ms),
            keep_alive: Duration::from_secs(self.keep_alive_s),
            response_timeout: Duration::from_millis(self.response_timeout_ms),
            upstream_connections_max: self.upstream_connections_max,
            upstream_per_host_max: Some(self.upstream_per_host_max).filter(|most| *most > 0),
            upstream_idle_max: self.upstream_idle_max,
            upstream_idle: Duration::from_secs(self.upstream_idle_s),
            trusted_proxies: self.trusted_proxies.clone(),
            access_log: access_log(&self.access_log_file),
            access_log_query: logged_query(self.access_log_query),
            ..Options::default()
        })
    }
}

//! `[[edge.upstreams]]`: upstreams of several servers, their health checks, and TLS to them.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use cli::exit::{Outcome, Problem};
use edge::{Balance, Group, HealthOptions};
use http_relay::upstream::UpstreamTls;
use serde::{Deserialize, Serialize};
use x509::HostOrIp;

use crate::files;

/// Maximum number of upstreams in the configuration. Each may have many servers.
const UPSTREAMS_MAX: usize = 1_000;
const MINUTE_MS: u64 = 60_000;

/// The treatment of referenced files in a check of the configuration.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ReferencedFiles {
    /// Files are read: the terminator runs on this machine.
    Read,
    /// Files are not read. Only the settings themselves are checked.
    NotRead,
}

/// Configuration of one entry of `[[edge.upstreams]]`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct EdgeUpstreamSettings {
    pub(crate) name: String,
    pub(crate) servers: Vec<String>,
    pub(crate) balance: Balance,
    pub(crate) health_path: String,
    pub(crate) health_host: String,
    pub(crate) health_interval_s: u64,
    pub(crate) health_timeout_ms: u64,
    pub(crate) healthy_after: u32,
    pub(crate) unhealthy_after: u32,
    pub(crate) eject_after: u32,
    pub(crate) eject_s: u64,
    pub(crate) tls: bool,
    pub(crate) server_name: String,
    pub(crate) ca_files: Vec<PathBuf>,
    pub(crate) client_certificate_file: PathBuf,
    pub(crate) client_key_file: PathBuf,
}

impl Default for EdgeUpstreamSettings {
    fn default() -> Self {
        let usual = HealthOptions::default();
        Self {
            name: String::new(),
            servers: Vec::new(),
            balance: Balance::RoundRobin,
            health_path: String::new(),
            health_host: String::new(),
            health_interval_s: usual.interval.unwrap_or_default().as_secs(),
            health_timeout_ms: usual.timeout.as_millis() as u64,
            healthy_after: usual.healthy_after,
            unhealthy_after: usual.unhealthy_after,
            eject_after: usual.eject_after,
            eject_s: usual.eject.as_secs(),
            tls: false,
            server_name: String::new(),
            ca_files: Vec::new(),
            client_certificate_file: PathBuf::new(),
            client_key_file: PathBuf::new(),
        }
    }
}

/// Returns the upstreams of `[[edge.upstreams]]`, by their names.
pub(super) fn groups(
    upstreams: &[EdgeUpstreamSettings],
    named_files: ReferencedFiles,
) -> Outcome<HashMap<String, Arc<Group>>> {
    if upstreams.len() > UPSTREAMS_MAX {
        return Err(Problem::usage(format_args!("edge.upstreams has more than {UPSTREAMS_MAX} entries"))
            .hint("one entry may have several servers"));
    }
    let mut groups = HashMap::new();
    for upstream in upstreams {
        upstream.check()?;
        let group = Arc::new(upstream.group(named_files)?);
        if groups.insert(upstream.name.clone(), group).is_some() {
            return upstream.invalid("two upstreams have this name", "give each upstream a unique name");
        }
    }
    Ok(groups)
}

impl EdgeUpstreamSettings {
    fn invalid<T>(&self, what: impl std::fmt::Display, hint: &str) -> Outcome<T> {
        Err(Problem::usage(format_args!("the upstream {:?} of [[edge.upstreams]]: {what}", self.name))
            .hint(hint))
    }

    fn check(&self) -> Outcome<()> {
        if self.name.is_empty() || self.name.contains(':') {
            return self.invalid("its name is empty or contains a colon", "for example name = \"shop\"");
        }
        for (key, value, least, most) in [
            ("health_interval_s", self.health_interval_s, 0, 3_600),
            ("health_timeout_ms", self.health_timeout_ms, 1, MINUTE_MS),
            ("healthy_after", self.healthy_after.into(), 1, 100),
            ("unhealthy_after", self.unhealthy_after.into(), 1, 100),
            ("eject_after", self.eject_after.into(), 0, 1_000),
            ("eject_s", self.eject_s, 1, 3_600),
        ] {
            if !(least..=most).contains(&value) {
                return self.invalid(
                    format_args!("{key} must be from {least} to {most}"),
                    "see docs/configuration.md",
                );
            }
        }
        if !self.health_path.is_empty() && !self.health_path.starts_with('/') {
            return self
                .invalid("health_path does not begin with /", "for example health_path = \"/healthz\"");
        }
        if !self.health_host.bytes().all(|byte| byte.is_ascii_graphic()) {
            return self
                .invalid("health_host is not a host name", "give a host name, or leave health_host out");
        }
        let has_files = !self.ca_files.is_empty() || !self.client_certificate_file.as_os_str().is_empty();
        if !self.tls && (has_files || !self.server_name.is_empty()) {
            return self
                .invalid("server_name, ca_files and client_certificate_file need TLS", "add tls = true");
        }
        if self.client_certificate_file.as_os_str().is_empty() != self.client_key_file.as_os_str().is_empty()
        {
            return self.invalid(
                "client_certificate_file and client_key_file must be set together",
                "set both, or neither",
            );
        }
        if self.tls && self.server_name.is_empty() {
            return self.invalid(
                "tls needs server_name",
                "give the name in the certificates of its servers; it is also sent as SNI",
            );
        }
        Ok(())
    }

    fn group(&self, named_files: ReferencedFiles) -> Outcome<Group> {
        let tls = self.upstream_tls(named_files)?;
        let given = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
        let health = HealthOptions {
            interval: Some(Duration::from_secs(self.health_interval_s)).filter(|every| !every.is_zero()),
            timeout: Duration::from_millis(self.health_timeout_ms),
            path: given(&self.health_path),
            host: given(&self.health_host),
            healthy_after: self.healthy_after,
            unhealthy_after: self.unhealthy_after,
            eject_after: self.eject_after,
            eject: Duration::from_secs(self.eject_s),
        };
        Group::new(&self.name, &self.servers, self.balance, health, tls).or_else(|error| {
            self.invalid(error, "for example servers = [\"10.0.0.1:8080\", \"10.0.0.2:8080\"]")
        })
    }

    /// Returns the TLS settings for connections to the servers of this upstream; `None` without TLS.
    fn upstream_tls(&self, named_files: ReferencedFiles) -> Outcome<Option<UpstreamTls>> {
        if !self.tls {
            return Ok(None);
        }
        let Ok(server) = HostOrIp::parse(&self.server_name) else {
            return self.invalid("server_name is not a host name or IP address", "for example app.internal");
        };
        let (mut roots, mut certificate) = (Vec::new(), None);
        if named_files == ReferencedFiles::Read {
            for path in &self.ca_files {
                roots.extend(files::certificates("edge.upstreams.ca_files", path)?);
            }
            if self.ca_files.is_empty() {
                roots = outbound::tls::system_roots();
            }
            let (shown, key) = (&self.client_certificate_file, &self.client_key_file);
            if !key.as_os_str().is_empty() {
                certificate = Some(files::certified_key("edge.upstreams.client_", shown, key)?);
            }
        }
        UpstreamTls::new(server, roots, certificate)
            .map(Some)
            .or_else(|error| self.invalid(error, "check its ca_files and client_certificate_file"))
    }
}

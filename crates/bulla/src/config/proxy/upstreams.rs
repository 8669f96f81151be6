//! `[proxy.parent]` and `[[proxy.upstreams]]`: how the proxy reaches and verifies upstreams.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cli::exit::{Outcome, Problem};
use http_relay::upstream::{Parent, UpstreamPolicies, UpstreamPolicy, UpstreamRoute};
use secrecy::ExposeSecret;
use serde::{Deserialize, Serialize};

use crate::files;

/// Maximum number of upstreams in the configuration. Each has its own TLS settings.
const UPSTREAMS_MAX: usize = 1_000;
/// Value for connections without a parent proxy.
const DIRECT: &str = "direct";

/// Configuration section `[proxy.parent]`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ParentSettings {
    pub(crate) url: String,
    pub(crate) credentials_file: PathBuf,
}

/// Configuration of one entry of `[[proxy.upstreams]]`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct UpstreamSettings {
    pub(crate) names: Vec<String>,
    #[serde(default)]
    pub(crate) ca_files: Vec<PathBuf>,
    #[serde(default = "yes")]
    pub(crate) verify: bool,
    #[serde(default)]
    pub(crate) client_certificate_file: PathBuf,
    #[serde(default)]
    pub(crate) client_key_file: PathBuf,
    #[serde(default)]
    pub(crate) parent: String,
    #[serde(default)]
    pub(crate) parent_credentials_file: PathBuf,
}

const fn yes() -> bool {
    true
}

/// Checks the settings without reading files.
pub(super) fn check(parent: &ParentSettings, upstreams: &[UpstreamSettings]) -> Outcome<()> {
    if upstreams.len() > UPSTREAMS_MAX {
        return Err(Problem::usage(format_args!("proxy.upstreams has more than {UPSTREAMS_MAX} entries"))
            .hint("one entry may have several names"));
    }
    route(&parent.url, &parent.credentials_file, None)?;
    let mut names = UpstreamPolicies::default();
    for upstream in upstreams {
        upstream.check()?;
        add(&mut names, upstream, UpstreamPolicy::default())?;
    }
    Ok(())
}

/// Returns the policies of all upstreams. Reads files. The settings must have been checked before.
pub(crate) fn policies(parent: &ParentSettings, upstreams: &[UpstreamSettings]) -> Outcome<UpstreamPolicies> {
    let mut policies = UpstreamPolicies::default();
    if let Some(route) = parse_parent_proxy(&parent.url, &parent.credentials_file)? {
        policies.route = route;
    }
    for upstream in upstreams {
        add(&mut policies, upstream, upstream.policy()?)?;
    }
    Ok(policies)
}

fn add(into: &mut UpstreamPolicies, upstream: &UpstreamSettings, policy: UpstreamPolicy) -> Outcome<()> {
    into.add(&upstream.names, policy).map_err(|error| {
        Problem::usage(format_args!("names of proxy.upstreams: {error}"))
            .hint("for example names = [\"a.example\", \"*.b.example\"]")
    })
}

impl UpstreamSettings {
    fn check(&self) -> Outcome<()> {
        let invalid = |what: &str, hint: &str| {
            Err(Problem::usage(format_args!("proxy.upstreams for {:?}: {what}", self.names)).hint(hint))
        };
        if self.names.is_empty() {
            return invalid("the entry has no names", "give names, or leave the entry out");
        }
        if !self.verify && !self.ca_files.is_empty() {
            return invalid(
                "ca_files have no effect without verify",
                "leave verify out: ca_files are enough",
            );
        }
        let (certificate, key) = (&self.client_certificate_file, &self.client_key_file);
        if certificate.as_os_str().is_empty() != key.as_os_str().is_empty() {
            return invalid(
                "client_certificate_file and client_key_file must be set together",
                "set both, or neither",
            );
        }
        route(&self.parent, &self.parent_credentials_file, None).map(drop)
    }

    fn policy(&self) -> Outcome<UpstreamPolicy> {
        let (certificate, key) = (&self.client_certificate_file, &self.client_key_file);
        let mut roots = Vec::new();
        for path in &self.ca_files {
            roots.extend(files::certificates("proxy.upstreams.ca_files", path)?);
        }
        let certificate = match key.as_os_str().is_empty() {
            true => None,
            false => Some(files::certified_key("proxy.upstreams.client_", certificate, key)?),
        };
        let route = parse_parent_proxy(&self.parent, &self.parent_credentials_file)?;
        Ok(UpstreamPolicy { roots, verify: self.verify, certificate, route })
    }
}

/// Reads the URL of a parent proxy, with the credentials in the file if one is named.
fn parse_parent_proxy(url: &str, credentials: &Path) -> Outcome<Option<UpstreamRoute>> {
    let secret = match credentials.as_os_str().is_empty() {
        true => None,
        false => Some(files::secret("the parent proxy's credentials_file", credentials)?),
    };
    route(url, credentials, secret.as_ref().map(ExposeSecret::expose_secret))
}

fn route(url: &str, credentials: &Path, secret: Option<&str>) -> Outcome<Option<UpstreamRoute>> {
    let has_credentials = !credentials.as_os_str().is_empty();
    if matches!(url, "" | DIRECT) {
        if has_credentials {
            return Err(Problem::usage("the credentials of a parent proxy are set, but no parent proxy")
                .hint("give its URL, http://HOST:PORT or https://HOST:PORT"));
        }
        return Ok((url == DIRECT).then_some(UpstreamRoute::Direct));
    }
    let parent = Parent::new(url, secret).map_err(|error| {
        Problem::usage(format_args!("a parent proxy of [proxy]: {error}")).hint(
            "give http://HOST:PORT or https://HOST:PORT, and USER:PASSWORD in a separate file; or \"direct\"",
        )
    })?;
    Ok(Some(UpstreamRoute::Parent(Arc::new(parent))))
}

//! `[[proxy.hooks]]`: services that decide about requests, or change requests and responses.

use std::path::PathBuf;
use std::time::Duration;

use cli::exit::{Outcome, Problem};
use proxy::hooks::{BadHook, HookOptions, HookProtocol, Hooks, OnError};
use serde::{Deserialize, Serialize};

use crate::files;

/// Configuration of one entry of `[[proxy.hooks]]`.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HookSettings {
    pub(crate) name: String,
    pub(crate) protocol: HookProtocol,
    pub(crate) url: String,
    #[serde(default)]
    pub(crate) host: Vec<String>,
    #[serde(default)]
    pub(crate) ca_files: Vec<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) timeout_ms: Option<u64>,
    #[serde(default)]
    pub(crate) on_error: OnError,
    #[serde(default)]
    pub(crate) request_body: bool,
    #[serde(default)]
    pub(crate) response_headers: bool,
    #[serde(default)]
    pub(crate) response_body: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) body_bytes_max: Option<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) calls_max: Option<usize>,
}

impl HookSettings {
    /// Returns the options that need no files.
    fn plain(&self) -> HookOptions {
        let usual = HookOptions::new(self.name.clone(), self.protocol, self.url.clone());
        HookOptions {
            hosts: self.host.clone(),
            timeout: self.timeout_ms.map_or(usual.timeout, Duration::from_millis),
            on_error: self.on_error,
            request_body: self.request_body,
            response_headers: self.response_headers,
            response_body: self.response_body,
            body_bytes_max: self.body_bytes_max.unwrap_or(usual.body_bytes_max),
            calls_max: self.calls_max.unwrap_or(usual.calls_max),
            ..usual
        }
    }

    fn options(&self) -> Outcome<HookOptions> {
        if self.ca_files.is_empty() {
            return Ok(self.plain());
        }
        let mut roots = Vec::new();
        for path in &self.ca_files {
            roots.extend(files::certificates("ca_files of proxy.hooks", path)?);
        }
        Ok(HookOptions { roots: Some(roots), ..self.plain() })
    }
}

fn problem(bad: &BadHook) -> Problem {
    Problem::usage(format_args!("proxy.hooks: {bad}")).hint(bad.hint)
}

/// Checks the settings without reading files.
pub(super) fn check(hooks: &[HookSettings]) -> Outcome<()> {
    let options: Vec<_> = hooks.iter().map(HookSettings::plain).collect();
    Hooks::check(&options).map_err(|bad| problem(&bad))
}

/// Returns the options of all hooks; reads files.
pub(super) fn options(hooks: &[HookSettings]) -> Outcome<Vec<HookOptions>> {
    hooks.iter().map(HookSettings::options).collect()
}

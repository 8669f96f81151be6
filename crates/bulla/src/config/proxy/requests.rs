//! `[[proxy.rules]]` and `[proxy.requests]`: rules for requests, and logs and recordings of requests.

use std::path::PathBuf;

use cli::exit::{Outcome, Problem};
use http_relay::access_log::{AccessLog, LoggedQuery};
use proxy::requests::{AuditOptions, Options, RecordOptions, RequestRules};
use serde::{Deserialize, Serialize};

/// Default folder of recordings, in the data folder.
const FOLDER: &str = "proxy-har";

/// Configuration section `[proxy.requests]`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ProxyRequestSettings {
    pub(crate) access_log_file: String,
    pub(crate) access_log_query: bool,
    pub(crate) audit_file: PathBuf,
    pub(crate) audit_sync: bool,
    pub(crate) record_folder: PathBuf,
    pub(crate) record_body_octets_max: u64,
    pub(crate) record_octets_max: u64,
    pub(crate) record_redact_headers: Vec<String>,
    pub(crate) record_redact_query: Vec<String>,
}

impl Default for ProxyRequestSettings {
    fn default() -> Self {
        let names = |names: &[&str]| names.iter().map(ToString::to_string).collect();
        Self {
            access_log_file: String::new(),
            access_log_query: false,
            audit_file: PathBuf::new(),
            audit_sync: true,
            record_folder: PathBuf::new(),
            record_body_octets_max: 64 << 10,
            record_octets_max: 256 << 20,
            record_redact_headers: names(&["x-api-key", "x-auth-token"]),
            record_redact_query: names(&[
                "access_token",
                "api_key",
                "client_secret",
                "id_token",
                "key",
                "password",
                "refresh_token",
                "sig",
                "token",
            ]),
        }
    }
}

impl ProxyRequestSettings {
    pub(super) fn check(&self) -> Outcome<()> {
        let within = |key: &str, value: u64, least: u64, most: u64| match (least..=most).contains(&value) {
            true => Ok(()),
            false => Err(Problem::usage(format_args!("proxy.requests.{key} must be from {least} to {most}"))
                .hint("see `bulla config show`")),
        };
        within("record_body_octets_max", self.record_body_octets_max, 0, 4 << 20)?;
        within("record_octets_max", self.record_octets_max, 1 << 20, 1 << 40)
    }

    /// Returns the options for requests, without the source of credentials. Recording is always prepared, because rules that are
    /// added later may need it. The folder of recordings is created with the first recording.
    pub(super) fn options(&self, rules: RequestRules) -> Outcome<Options> {
        let folder = match self.record_folder.as_os_str().is_empty() {
            false => self.record_folder.clone(),
            true => cli::data::folder()?.join(FOLDER),
        };
        let record = Some(RecordOptions {
            folder,
            body_bytes_max: self.record_body_octets_max as usize,
            bytes_max: self.record_octets_max,
            redact_headers: self.record_redact_headers.clone(),
            redact_query: self.record_redact_query.clone(),
        });
        let (access_log, access_log_query) =
            (access_log(&self.access_log_file), logged_query(self.access_log_query));
        let file = Some(self.audit_file.clone()).filter(|file| !file.as_os_str().is_empty());
        let audit = file.map(|file| AuditOptions { file, sync: self.audit_sync });
        Ok(Options { rules, secrets: None, leases: None, access_log, access_log_query, audit, record })
    }
}

/// Returns whether the access log contains the query after the path (`whole`), or only the path.
pub(crate) fn logged_query(whole: bool) -> LoggedQuery {
    if whole { LoggedQuery::Whole } else { LoggedQuery::Omitted }
}

/// Returns the destination of the access log: `None` for an empty setting, standard output for `-`, otherwise a file.
pub(crate) fn access_log(file: &str) -> Option<AccessLog> {
    match file {
        "" => None,
        "-" => Some(AccessLog::Output),
        path => Some(AccessLog::File(path.into())),
    }
}

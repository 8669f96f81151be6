//! `[[proxy.rules]]` and `[proxy.requests]`: what becomes of requests, and what is left behind of them.

use std::path::PathBuf;

use intercept::proxy::requests::{AccessLog, Options, RecordOptions, RequestRules};
use serde::{Deserialize, Serialize};

use super::ProxySettings;
use crate::exit::{Outcome, Problem};

/// Of recordings, in the data folder, where no other is named.
const FOLDER: &str = "proxy-har";

/// `[proxy.requests]`
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ProxyRequestSettings {
    pub(crate) access_log_file: String,
    pub(crate) access_log_query: bool,
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
            false => Err(Problem::usage(format_args!("proxy.requests.{key} is from {least} to {most}"))
                .hint("see `bulla config show`")),
        };
        within("record_body_octets_max", self.record_body_octets_max, 0, 4 << 20)?;
        within("record_octets_max", self.record_octets_max, 1 << 20, 1 << 40)
    }
}

/// Where lines go that a setting has.
pub(super) fn access_log(file: &str) -> Option<AccessLog> {
    match file {
        "" => None,
        "-" => Some(AccessLog::Output),
        path => Some(AccessLog::File(path.into())),
    }
}

impl ProxySettings {
    /// The rules, compiled: once, whoever asks, as thousands of them take their time.
    pub(crate) fn request_rules(&self) -> Outcome<RequestRules> {
        if let Some(compiled) = self.compiled.get() {
            return Ok(compiled.clone());
        }
        let compiled = RequestRules::compile(&self.rules)
            .map_err(|bad| Problem::usage(format_args!("proxy.rules: {bad}")).hint(bad.hint))?;
        Ok(self.compiled.get_or_init(|| compiled).clone())
    }

    /// What the proxy is told of requests, but for where credentials come from. Recording is always ready, as rules that come later
    /// may ask for it; its folder is made with the first.
    pub(crate) fn requests(&self) -> Outcome<Options> {
        let rules = self.request_rules()?;
        let settings = &self.requests;
        let folder = match settings.record_folder.as_os_str().is_empty() {
            false => settings.record_folder.clone(),
            true => crate::data::folder()?.join(FOLDER),
        };
        let record = Some(RecordOptions {
            folder,
            body_octets_max: settings.record_body_octets_max as usize,
            octets_max: settings.record_octets_max,
            redact_headers: settings.record_redact_headers.clone(),
            redact_query: settings.record_redact_query.clone(),
        });
        let (access_log, access_log_query) =
            (access_log(&settings.access_log_file), settings.access_log_query);
        Ok(Options { rules, secrets: None, access_log, access_log_query, record })
    }
}

#[cfg(test)]
mod tests {
    use intercept::proxy::requests::RuleText;

    use super::*;

    #[test]
    fn rules_are_compiled_once_however_often_they_are_asked_for() {
        let rule = RuleText { path: vec!["/a".into()], block: Some(403), ..RuleText::default() };
        let mut settings = ProxySettings { rules: vec![rule], ..ProxySettings::default() };
        settings.check().unwrap();
        // Compiled anew, there would be none.
        settings.rules.clear();
        assert_eq!(settings.clone().request_rules().unwrap().len(), 1);
    }
}

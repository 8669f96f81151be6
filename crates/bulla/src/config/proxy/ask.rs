//! `[proxy.ask]`: the permission service, which the proxy queries before it mints a leaf.

use std::path::PathBuf;
use std::time::Duration;

use cli::exit::{Outcome, Problem};
use proxy::permission::{self, Options, OutagePolicy, Token};
use secrecy::ExposeSecret;
use serde::{Deserialize, Serialize};

use crate::files;

/// Configuration section `[proxy.ask]`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct AskSettings {
    pub(crate) url: String,
    pub(crate) token_file: PathBuf,
    pub(crate) ca_files: Vec<PathBuf>,
    pub(crate) timeout_ms: u64,
    pub(crate) when_away: OutageDecision,
    pub(crate) yes_s: u64,
    pub(crate) no_s: u64,
    pub(crate) answers_max: u64,
    pub(crate) questions_max: usize,
    pub(crate) names_clients: bool,
}

/// The decision while the permission service is unavailable.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum OutageDecision {
    /// No leaf is minted.
    #[default]
    Refuse,
    /// The leaf is minted.
    Allow,
}

impl Default for AskSettings {
    fn default() -> Self {
        Self {
            url: String::new(),
            token_file: PathBuf::new(),
            ca_files: Vec::new(),
            timeout_ms: permission::TIMEOUT.as_millis() as u64,
            when_away: OutageDecision::Refuse,
            yes_s: permission::YES_FOR.as_secs(),
            no_s: permission::NO_FOR.as_secs(),
            answers_max: permission::ANSWERS_MAX,
            questions_max: permission::QUESTIONS_MAX,
            names_clients: true,
        }
    }
}

impl AskSettings {
    pub(super) fn check(&self) -> Outcome<()> {
        let within = |key: &str, value: u64, least: u64, most: u64| match (least..=most).contains(&value) {
            true => Ok(()),
            false => Err(Problem::usage(format_args!("proxy.ask.{key} must be from {least} to {most}"))
                .hint("see `bulla config show`")),
        };
        within("timeout_ms", self.timeout_ms, 10, 5_000)?;
        within("yes_s", self.yes_s, 1, 86_400)?;
        within("no_s", self.no_s, 1, 3_600)?;
        within("answers_max", self.answers_max, 1, 10_000_000)?;
        within("questions_max", self.questions_max as u64, 4, 10_000)?;
        let has_more = !self.token_file.as_os_str().is_empty() || !self.ca_files.is_empty();
        if self.url.is_empty() && has_more {
            return Err(Problem::usage("proxy.ask.token_file and proxy.ask.ca_files need proxy.ask.url")
                .hint(
                    "set the URL of the permission service, for example proxy.ask.url = \"https://permission.example/leaf\"",
                ));
        }
        Ok(())
    }

    /// Returns the options of the permission service, if one is configured; reads files.
    pub(crate) fn options(&self) -> Outcome<Option<Options>> {
        if self.url.is_empty() {
            return Ok(None);
        }
        let mut options = Options::new(self.url.clone());
        if !self.token_file.as_os_str().is_empty() {
            let token = files::secret("proxy.ask.token_file", &self.token_file)?;
            options.token = Some(Token::new(token.expose_secret().to_owned()));
        }
        if !self.ca_files.is_empty() {
            let mut roots = Vec::new();
            for path in &self.ca_files {
                roots.extend(files::certificates("proxy.ask.ca_files", path)?);
            }
            options.roots = Some(roots);
        }
        Ok(Some(Options {
            timeout: Duration::from_millis(self.timeout_ms),
            when_away: match self.when_away {
                OutageDecision::Refuse => OutagePolicy::Refuse,
                OutageDecision::Allow => OutagePolicy::Allow,
            },
            yes_for: Duration::from_secs(self.yes_s),
            no_for: Duration::from_secs(self.no_s),
            answers_max: self.answers_max,
            questions_max: self.questions_max,
            names_clients: self.names_clients,
            ..options
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_ask_settings_are_rejected_with_a_hint() {
        let right = AskSettings::default;
        assert!(right().check().is_ok() && right().options().unwrap().is_none());
        let wrong = [
            AskSettings { timeout_ms: 0, ..right() },
            AskSettings { yes_s: 0, ..right() },
            AskSettings { no_s: 100_000, ..right() },
            AskSettings { answers_max: 0, ..right() },
            AskSettings { questions_max: 1, ..right() },
            AskSettings { token_file: "token".into(), ..right() },
        ];
        for settings in wrong {
            let problem = settings.check().unwrap_err();
            assert!(problem.hint.is_some() && problem.message.contains("proxy.ask."), "{}", problem.message);
        }
    }
}

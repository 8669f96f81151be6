//! `[audit]`: signed heads of the audit log, witnesses, retention.

use std::path::PathBuf;
use std::time::Duration;

use audit::{AuditOptions, Reads, Retention, SyslogAddress, WebhookWitness, WitnessOptions};
use callout::Posts;
use cli::exit::{Outcome, Problem};
use keys::Secret;
use secrecy::ExposeSecret;
use serde::{Deserialize, Serialize};

use crate::files;

/// Minimum bytes of the secret that signs webhook requests.
const SECRET_MIN: usize = 16;

/// Configuration section `[audit]`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct AuditSettings {
    pub(crate) head_every_s: u64,
    pub(crate) seal_after_days: u32,
    pub(crate) prune_after_days: u32,
    pub(crate) aggregate_reads: bool,
    pub(crate) witness: WitnessSettings,
}

/// Configuration section `[audit.witness]`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct WitnessSettings {
    pub(crate) file: PathBuf,
    pub(crate) syslog: String,
    pub(crate) webhook_url: String,
    pub(crate) webhook_secret_file: PathBuf,
    pub(crate) webhook_ca_file: PathBuf,
}

impl Default for AuditSettings {
    fn default() -> Self {
        Self {
            head_every_s: AuditOptions::default().head_every.as_secs(),
            seal_after_days: 0,
            prune_after_days: 0,
            aggregate_reads: true,
            witness: WitnessSettings::default(),
        }
    }
}

impl AuditSettings {
    /// Checks the values of the section.
    pub(crate) fn check(&self) -> Outcome<()> {
        if !(10..=86_400).contains(&self.head_every_s) {
            return Err(
                Problem::usage("audit.head_every_s must be from 10 to 86400").hint("see `bulla config show`")
            );
        }
        let (seal, prune) = (self.seal_after_days, self.prune_after_days);
        if prune > 0 && (seal == 0 || prune < seal) {
            return Err(Problem::usage(format_args!(
                "audit.prune_after_days is {prune}, but audit.seal_after_days is {seal}"
            ))
            .hint("only sealed events are pruned: set seal_after_days to 1 or more, and prune_after_days to 0 or to at \
             least seal_after_days"));
        }
        self.witness.check()
    }

    /// Returns the options of the audit log. `posts` sends the webhooks.
    pub(crate) fn options(&self, posts: &Posts) -> Outcome<AuditOptions> {
        let of_zero = |days: u32| (days > 0).then_some(days);
        let reads = if self.aggregate_reads { Reads::ByMinute } else { Reads::Each };
        let retention = Retention {
            seal_after_days: of_zero(self.seal_after_days),
            prune_after_days: of_zero(self.prune_after_days),
            reads,
            ..Retention::default()
        };
        let head_every = Duration::from_secs(self.head_every_s);
        Ok(AuditOptions { head_every, witness: self.witness.options(posts)?, retention })
    }
}

impl WitnessSettings {
    fn check(&self) -> Outcome<()> {
        let refuse = |what: String, hint: &str| Err(Problem::usage(what).hint(hint.to_owned()));
        if !self.file.as_os_str().is_empty() && !self.file.is_absolute() {
            return refuse(
                format!("audit.witness.file: {} is not an absolute path", self.file.display()),
                "give an absolute path, such as /mnt/worm/bulla-heads.jsonl",
            );
        }
        self.syslog()?;
        if self.webhook_url.is_empty() {
            return Ok(());
        }
        if !self.webhook_url.starts_with("https://") {
            return refuse(
                "audit.witness.webhook_url is not an https URL".to_owned(),
                "for example https://witness.example/heads",
            );
        }
        if self.webhook_secret_file.as_os_str().is_empty() {
            return refuse(
                "audit.witness.webhook_url needs audit.witness.webhook_secret_file".to_owned(),
                "name a file with the secret that signs the webhook requests, at least 16 bytes",
            );
        }
        Ok(())
    }

    fn syslog(&self) -> Outcome<Option<SyslogAddress>> {
        if self.syslog.is_empty() {
            return Ok(None);
        }
        self.syslog.parse().map(Some).map_err(|error| {
            Problem::usage(format_args!("audit.witness.syslog: {error}"))
                .hint("for example udp://logs.example:514, tcp://logs.example:601 or unix:/dev/log")
        })
    }

    fn options(&self, posts: &Posts) -> Outcome<WitnessOptions> {
        let file = Some(self.file.clone()).filter(|path| !path.as_os_str().is_empty());
        Ok(WitnessOptions { file, syslog: self.syslog()?, webhook: self.webhook(posts)? })
    }

    fn webhook(&self, posts: &Posts) -> Outcome<Option<WebhookWitness>> {
        if self.webhook_url.is_empty() {
            return Ok(None);
        }
        let secret = files::secret("audit.witness.webhook_secret_file", &self.webhook_secret_file)?;
        if secret.expose_secret().len() < SECRET_MIN {
            return Err(Problem::usage(
                "the secret in audit.witness.webhook_secret_file is shorter than 16 bytes",
            )
            .hint("create one with `openssl rand -hex 32`"));
        }
        let path = &self.webhook_ca_file;
        let roots = match path.as_os_str().is_empty() {
            true => None,
            false => Some(std::fs::read_to_string(path).map_err(|error| {
                Problem::usage(format_args!("cannot read {}: {error}", path.display()))
                    .hint("check audit.witness.webhook_ca_file")
            })?),
        };
        let (url, secret) = (self.webhook_url.clone(), Secret::new(secret.expose_secret()));
        Ok(Some(WebhookWitness { posts: posts.clone(), url, secret, roots }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_audit_settings_are_rejected_with_the_key() {
        let wrong = |change: fn(&mut AuditSettings), word: &str| {
            let mut settings = AuditSettings::default();
            settings.check().unwrap();
            change(&mut settings);
            let error = settings.check().unwrap_err();
            assert!(error.message.contains(word) && error.hint.is_some(), "{}", error.message);
        };
        wrong(|all| all.head_every_s = 1, "head_every_s");
        wrong(|all| all.prune_after_days = 30, "seal_after_days is 0");
        wrong(|all| (all.seal_after_days, all.prune_after_days) = (90, 30), "prune_after_days is 30");
        wrong(|all| all.witness.file = "heads.jsonl".into(), "witness.file");
        wrong(|all| all.witness.syslog = "logs:514".into(), "witness.syslog");
        wrong(|all| all.witness.webhook_url = "http://w.example/".into(), "https");
        wrong(|all| all.witness.webhook_url = "https://w.example/".into(), "webhook_secret_file");
    }
}

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

/// Configuration section `[audit]`: signed heads, sealing and retention of the audit log.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct AuditSettings {
    pub(crate) head_every_s: u64,
    pub(crate) seal_after_days: u32,
    pub(crate) prune_after_days: u32,
    pub(crate) aggregate_reads: bool,
    pub(crate) witness: WitnessSettings,
}

/// Configuration section `[audit.witness]`: the destinations of signed heads.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct WitnessSettings {
    pub(crate) file: PathBuf,
    pub(crate) syslog: String,
    pub(crate) webhook_url: String,
    pub(crate) webhook_secret_file: PathBuf,
    pub(crate) webhook_ca_file: PathBuf,
    pub(crate) s3_bucket: String,
    pub(crate) s3_region: String,
    pub(crate) s3_endpoint: String,
    pub(crate) s3_prefix: String,
    pub(crate) s3_mode: String,
    pub(crate) s3_retention_days: u32,
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
        self.check_bucket()?;
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

    fn check_bucket(&self) -> Outcome<()> {
        let refuse = |what: String, hint: &str| Err(Problem::usage(what).hint(hint.to_owned()));
        if self.s3_bucket.is_empty() {
            return Ok(());
        }
        let plain = |text: &str, more: &str| {
            text.chars().all(|c| c.is_ascii_alphanumeric() || more.contains(c)) && !text.contains("..")
        };
        if !plain(&self.s3_bucket, "-.") || !plain(&self.s3_prefix, "-_./") || self.s3_prefix.starts_with('/')
        {
            return refuse(
                "audit.witness.s3_bucket or s3_prefix has characters other than letters, digits, '-' and '.' (a prefix also '_' \
                 and '/')"
                    .to_owned(),
                "for example s3_bucket = \"heads\" and s3_prefix = \"bulla/\"",
            );
        }
        if self.s3_region.is_empty() {
            return refuse(
                "audit.witness.s3_bucket needs audit.witness.s3_region".to_owned(),
                "name the region of the bucket, such as eu-west-1; servers other than AWS usually take us-east-1",
            );
        }
        let is_url = ["https://", "http://"].iter().any(|start| self.s3_endpoint.starts_with(start));
        if !self.s3_endpoint.is_empty() && !is_url {
            return refuse(
                "audit.witness.s3_endpoint is not a URL".to_owned(),
                "for example https://minio.example:9000; leave it empty for AWS",
            );
        }
        if !["", "compliance", "governance"].contains(&&*self.s3_mode) {
            return refuse(
                format!("audit.witness.s3_mode is {:?}", self.s3_mode),
                "use \"compliance\", which no account can lift, or \"governance\"",
            );
        }
        if !(1..=36_500).contains(&self.s3_retention_days) {
            return refuse(
                format!("audit.witness.s3_retention_days is {}, not 1 to 36500", self.s3_retention_days),
                "give the days for which no account may delete a head: as long as you keep the audit log",
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
        Ok(WitnessOptions { file, syslog: self.syslog()?, webhook: self.webhook(posts)?, other: None })
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
        let assert_invalid = |change: fn(&mut AuditSettings), word: &str| {
            let mut settings = AuditSettings::default();
            settings.check().unwrap();
            change(&mut settings);
            let error = settings.check().unwrap_err();
            assert!(error.message.contains(word) && error.hint.is_some(), "{}", error.message);
        };
        assert_invalid(|all| all.head_every_s = 1, "head_every_s");
        assert_invalid(|all| all.prune_after_days = 30, "seal_after_days is 0");
        assert_invalid(
            |all| (all.seal_after_days, all.prune_after_days) = (90, 30),
            "prune_after_days is 30",
        );
        assert_invalid(|all| all.witness.file = "heads.jsonl".into(), "witness.file");
        assert_invalid(|all| all.witness.syslog = "logs:514".into(), "witness.syslog");
        assert_invalid(|all| all.witness.webhook_url = "http://w.example/".into(), "https");
        assert_invalid(|all| all.witness.webhook_url = "https://w.example/".into(), "webhook_secret_file");
    }

    #[test]
    fn invalid_bucket_of_the_witness_is_rejected_with_the_key() {
        let good = || WitnessSettings {
            s3_bucket: "heads".to_owned(),
            s3_region: "eu-west-1".to_owned(),
            s3_prefix: "bulla/one_".to_owned(),
            s3_retention_days: 400,
            ..WitnessSettings::default()
        };
        good().check().unwrap();
        let assert_invalid = |change: fn(&mut WitnessSettings), word: &str| {
            let mut settings = good();
            change(&mut settings);
            let error = settings.check().unwrap_err();
            assert!(error.message.contains(word) && error.hint.is_some(), "{}", error.message);
        };
        assert_invalid(|all| all.s3_bucket = "a/b".into(), "s3_bucket");
        assert_invalid(|all| all.s3_prefix = "a?b".into(), "s3_prefix");
        assert_invalid(|all| all.s3_prefix = "../b".into(), "s3_prefix");
        assert_invalid(|all| all.s3_region.clear(), "s3_region");
        assert_invalid(|all| all.s3_endpoint = "minio:9000".into(), "s3_endpoint");
        assert_invalid(|all| all.s3_mode = "none".into(), "s3_mode");
        assert_invalid(|all| all.s3_retention_days = 0, "s3_retention_days");
    }
}

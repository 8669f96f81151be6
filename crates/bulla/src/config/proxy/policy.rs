//! `[proxy.policy]`: identities, and which requests each of them may send.

use std::path::PathBuf;

use callout::SigningKey;
use cli::exit::{Outcome, Problem};
use ipnet::IpNet;
use keys::Secret;
use outbound::guard::Networks;
use proxy::policy::{Action, IdentityText, Policy, PolicyRuleText, PolicyText};
use secrecy::ExposeSecret;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::access::AccessSettings;
use crate::files;

/// Presets: rules for an API, as TOML.
const PRESETS: &[(&str, &str)] = &[
    ("anthropic", include_str!("../../../presets/anthropic.toml")),
    ("aws-read", include_str!("../../../presets/aws-read.toml")),
    ("aws-write", include_str!("../../../presets/aws-write.toml")),
    ("gcp-read", include_str!("../../../presets/gcp-read.toml")),
    ("gcp-write", include_str!("../../../presets/gcp-write.toml")),
    ("github-read", include_str!("../../../presets/github-read.toml")),
    ("github-write", include_str!("../../../presets/github-write.toml")),
    ("npm-read", include_str!("../../../presets/npm-read.toml")),
    ("openai", include_str!("../../../presets/openai.toml")),
    ("pypi-read", include_str!("../../../presets/pypi-read.toml")),
];

/// Configuration section `[proxy.policy]`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct PolicySettings {
    pub(crate) default: String,
    pub(crate) allow_networks: Vec<IpNet>,
    pub(crate) identities: Vec<IdentityText>,
    pub(crate) rules: Vec<PolicyRuleText>,
    pub(crate) hold_webhook_url: String,
    pub(crate) hold_webhook_format: HoldWebhookFormat,
    pub(crate) hold_webhook_secret_file: PathBuf,
    pub(crate) hold_webhook_ca_file: PathBuf,
}

/// The format of notifications of held requests.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum HoldWebhookFormat {
    /// The held request as JSON.
    #[default]
    Json,
    /// A message for an incoming webhook of Slack, or of a service with the same format.
    Slack,
}

/// The service that receives notifications of held requests.
#[derive(Debug)]
pub(crate) struct HoldWebhook {
    pub(crate) url: String,
    pub(crate) format: HoldWebhookFormat,
    /// The secret that signs the requests.
    pub(crate) secret: Secret,
    /// Trust anchors (PEM) of the service, instead of the system's.
    pub(crate) roots: Option<String>,
}

/// A preset as in its TOML file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Preset {
    rules: Vec<PolicyRuleText>,
}

impl PolicySettings {
    pub(crate) fn is_active(&self) -> bool {
        !self.default.is_empty() || !self.identities.is_empty() || !self.rules.is_empty()
    }

    /// Returns the private networks, and networks of this machine, to which the policy permits connections. `None` without a
    /// policy.
    pub(crate) fn permitted_networks(&self) -> Option<Vec<IpNet>> {
        self.is_active().then(|| self.allow_networks.clone())
    }

    /// Returns the networks that the guard permits and denies. Call this once per process: the result is never freed.
    pub(super) fn networks(&self) -> Outcome<Option<&'static Networks>> {
        if !self.is_active() && !self.allow_networks.is_empty() {
            return Err(Problem::usage("proxy.policy.allow_networks is set, but no policy is set").hint(
                "set the default action, proxy.policy.default = \"deny\", or leave allow_networks out",
            ));
        }
        let closed = |open| Networks::new(open, Vec::new()).deny_private().into_static();
        Ok(self.permitted_networks().map(closed))
    }

    /// Compiles the policy. An error names the position in the file, where a preset counts as one rule.
    pub(super) fn compiled(&self) -> Outcome<Policy> {
        let default = match self.default.as_str() {
            "" => None,
            "allow" => Some(Action::Allow),
            "deny" => Some(Action::Deny),
            "log" => Some(Action::Log),
            other => {
                return Err(Problem::usage(format_args!("proxy.policy.default: {other:?} is not an action"))
                    .hint("use \"allow\", \"deny\" or \"log\"; \"hold\" is an action of rules"));
            }
        };
        let (mut rules, mut positions) = (Vec::new(), Vec::new());
        for (index, rule) in self.rules.iter().enumerate() {
            for expanded in expanded(rule, index)? {
                rules.push(expanded);
                positions.push(index + 1);
            }
        }
        let text = PolicyText { default, identities: self.identities.clone(), rules };
        Policy::compile(&text).map_err(|mut bad| {
            if bad.list == "rules" {
                bad.number =
                    bad.number.checked_sub(1).and_then(|at| positions.get(at)).copied().unwrap_or(bad.number);
            }
            Problem::usage(format_args!("proxy.policy.{bad}")).hint(bad.hint)
        })
    }

    /// Checks the settings of the webhook about held requests.
    pub(super) fn check_webhook(&self) -> Outcome<()> {
        let has_files = self.has_webhook_secret() || !self.hold_webhook_ca_file.as_os_str().is_empty();
        let (what, hint) = match (self.hold_webhook_url.is_empty(), has_files) {
            (true, false) => return Ok(()),
            (true, true) => (
                "hold_webhook_secret_file and hold_webhook_ca_file need proxy.policy.hold_webhook_url",
                "set the URL of the service, or leave the files out",
            ),
            (false, _) if !self.hold_webhook_url.starts_with("https://") => {
                ("hold_webhook_url is not an https URL", "for example https://approvals.example/held")
            }
            (false, _)
                if self.hold_webhook_format != HoldWebhookFormat::Slack && !self.has_webhook_secret() =>
            {
                (
                    "hold_webhook_url needs proxy.policy.hold_webhook_secret_file",
                    "name a file with the secret that signs the webhook requests, at least 16 bytes",
                )
            }
            (false, _) => return Ok(()),
        };
        Err(Problem::usage(format_args!("proxy.policy.{what}")).hint(hint))
    }

    fn has_webhook_secret(&self) -> bool {
        !self.hold_webhook_secret_file.as_os_str().is_empty()
    }

    /// Returns the service that receives notifications of held requests, if one is configured; reads files.
    pub(crate) fn webhook(&self) -> Outcome<Option<HoldWebhook>> {
        if self.hold_webhook_url.is_empty() {
            return Ok(None);
        }
        let key = "proxy.policy.hold_webhook_secret_file";
        let secret = match self.has_webhook_secret() {
            true => Secret::new(files::secret(key, &self.hold_webhook_secret_file)?.expose_secret()),
            // Slack does not check the signature.
            false => Secret::new(Uuid::new_v4().to_string()),
        };
        SigningKey::new(&secret).map_err(|error| {
            Problem::usage(format_args!("{key}: {error}")).hint("create one with `openssl rand -hex 32`")
        })?;
        let path = &self.hold_webhook_ca_file;
        let roots = match path.as_os_str().is_empty() {
            true => None,
            false => Some(std::fs::read_to_string(path).map_err(|error| {
                Problem::usage(format_args!("cannot read {}: {error}", path.display()))
                    .hint("check proxy.policy.hold_webhook_ca_file")
            })?),
        };
        let (url, format) = (self.hold_webhook_url.clone(), self.hold_webhook_format);
        Ok(Some(HoldWebhook { url, format, secret, roots }))
    }

    /// Checks that identities and authentication settings match: each issuer needs an identity, and each identity needs a
    /// configured authentication method.
    pub(super) fn check_access(&self, access: &AccessSettings) -> Outcome<()> {
        let has_identity = |name: &str| {
            self.identities.iter().any(|identity| identity.jwt.iter().any(|jwt| jwt.issuer == name))
        };
        if let Some(issuer) = access.issuers.iter().find(|issuer| !has_identity(&issuer.name)) {
            return Err(Problem::usage(format_args!(
                "proxy.access.issuers ({}): no identity has jwt with this issuer, so all of its tokens would have the same \
                 permissions",
                issuer.name
            ))
            .hint("add [[proxy.policy.identities]] with jwt = [{ issuer = \"NAME\", claims = { sub = \"…\" } }]"));
        }
        for (index, identity) in self.identities.iter().enumerate() {
            let invalid = |key: &str, why: String, hint: &str| {
                let number = index + 1;
                Err(Problem::usage(format_args!(
                    "proxy.policy.identities[{number}] ({}): {key}: {why}",
                    identity.name
                ))
                .hint(hint))
            };
            let is_token = |name: &&String| access.tokens.iter().any(|token| token.name == **name);
            if let Some(user) = identity.users.iter().find(|user| !access.has_users() && !is_token(user)) {
                let hint = "name a token in proxy.access.tokens, or give proxy.access.users_file";
                return invalid("users", format!("[proxy.access] has no token or user {user:?}"), hint);
            }
            let is_issuer = |name: &str| access.issuers.iter().any(|issuer| issuer.name == name);
            if let Some(jwt) = identity.jwt.iter().find(|jwt| !is_issuer(&jwt.issuer)) {
                let hint = "add it to [[proxy.access.issuers]]";
                return invalid("jwt", format!("[proxy.access] has no issuer {:?}", jwt.issuer), hint);
            }
            if !identity.certificates.is_empty() && access.client_ca_files.is_empty() {
                let hint = "set the CA of the client certificates: proxy.access.client_ca_files";
                return invalid("certificates", "client certificates are not requested".into(), hint);
            }
        }
        Ok(())
    }
}

/// Returns the rule itself or, for a preset, the preset's rules for the identities of the rule.
fn expanded(rule: &PolicyRuleText, index: usize) -> Outcome<Vec<PolicyRuleText>> {
    let name = if rule.name.is_empty() { format!("#{}", index + 1) } else { rule.name.clone() };
    if rule.preset.is_empty() {
        return Ok(vec![PolicyRuleText { name, ..rule.clone() }]);
    }
    let invalid = |why: String, hint: &str| {
        let number = index + 1;
        Problem::usage(format_args!("proxy.policy.rules[{number}] ({name}): preset: {why}")).hint(hint)
    };
    if rule.has_conditions() {
        return Err(invalid(
            "a preset cannot be combined with conditions".into(),
            "a rule with a preset has name, identities, teams, tags and action only; put other conditions into a separate rule",
        ));
    }
    let known = || PRESETS.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    let found = PRESETS.iter().find(|(name, _)| *name == rule.preset);
    let (_, text) = found.ok_or_else(|| {
        invalid(format!("unknown preset {:?}", rule.preset), &format!("known presets: {}", known()))
    })?;
    let preset: Preset = toml::from_str(text)
        .map_err(|error| invalid(error.to_string(), "report this: the preset is part of Bulla"))?;
    Ok(preset
        .rules
        .into_iter()
        .map(|one| {
            // A request that a preset denies stays denied, even if the rule with the preset holds or only logs requests.
            let denies = one.action == Some(Action::Deny);
            PolicyRuleText {
                name: format!("{name}: {}", one.name),
                identities: rule.identities.clone(),
                teams: rule.teams.clone(),
                tags: rule.tags.clone(),
                action: if denies { one.action } else { rule.action.or(one.action) },
                hold_for_s: if denies { None } else { rule.hold_for_s.or(one.hold_for_s) },
                ..one
            }
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use http::HeaderName;
    use proxy::policy::{Phase, PolicyRequest, RequestFacts};
    use x509::HostOrIp;

    use super::*;

    #[test]
    fn policy_presets_compile_and_their_rules_have_name_and_host() {
        for (name, text) in PRESETS {
            let preset: Preset = toml::from_str(text).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(preset.rules.iter().all(|rule| !rule.name.is_empty() && !rule.host.is_empty()), "{name}");
            let rules = vec![PolicyRuleText { preset: (*name).into(), ..PolicyRuleText::default() }];
            let settings = PolicySettings { rules, ..PolicySettings::default() };
            assert_eq!(settings.compiled().unwrap().rules(), preset.rules.len(), "{name}");
        }
    }

    /// The URL, method, header and content length of a request to a cloud, and whether the presets allow it.
    type Cloud<'a> = (&'a str, &'a str, &'a str, Option<(&'a str, &'a str)>, u64, bool);

    #[test]
    fn cloud_presets_allow_data_and_deny_metadata_tokens_and_public_objects() {
        let target = |name: &'static str| Some(("x-amz-target", name));
        let cases: &[Cloud<'_>] = &[
            ("GET", "s3.eu-central-1.amazonaws.com", "/b/k", None, 0, true),
            ("HEAD", "b.s3.eu-central-1.amazonaws.com", "/k", None, 0, true),
            ("GET", "b.s3.amazonaws.com", "/a%2Fb", None, 0, true),
            ("GET", "b.s3.nowhere-1.amazonaws.com", "/k", None, 0, false),
            ("GET", "ec2-192-0-2-1.compute.amazonaws.com", "/", None, 0, false),
            ("PUT", "b.s3.eu-central-1.amazonaws.com", "/k", None, 9, true),
            ("PUT", "b.s3.eu-central-1.amazonaws.com", "/", None, 0, false),
            ("DELETE", "b.s3.eu-central-1.amazonaws.com", "/?policy", None, 0, false),
            ("PUT", "s3.eu-central-1.amazonaws.com", "/b", None, 0, false),
            ("PUT", "b.s3.eu-central-1.amazonaws.com", "/k?acl", None, 0, false),
            ("PUT", "b.s3.amazonaws.com", "/k", Some(("x-amz-acl", "public-read")), 0, false),
            ("PUT", "b.s3.amazonaws.com", "/k", Some(("x-amz-grant-read", "uri=x")), 0, false),
            (
                "GET",
                "sts.eu-central-1.amazonaws.com",
                "/?Action=GetCallerIdentity&Version=2011-06-15",
                None,
                0,
                true,
            ),
            ("GET", "sts.amazonaws.com", "/?Action=GetCallerIdentity&Action=AssumeRole", None, 0, false),
            ("GET", "sts.amazonaws.com", "/?Action=GetSessionToken", None, 0, false),
            ("POST", "sts.amazonaws.com", "/?Action=GetCallerIdentity", None, 41, false),
            (
                "POST",
                "api.ecr.us-east-1.amazonaws.com",
                "/",
                target("AmazonEC2ContainerRegistry_V20150921.DescribeImages"),
                2,
                true,
            ),
            (
                "POST",
                "api.ecr.us-east-1.amazonaws.com",
                "/",
                target("AmazonEC2ContainerRegistry_V20150921.GetAuthorizationToken"),
                2,
                false,
            ),
            ("GET", "169.254.169.254", "/latest/meta-data/", None, 0, false),
            ("GET", "storage.googleapis.com", "/storage/v1/b/b/o/folder%2Fname", None, 0, true),
            ("GET", "b.storage.googleapis.com", "/k", None, 0, true),
            ("GET", "www.googleapis.com", "/drive/v3/files", None, 0, false),
            (
                "POST",
                "storage.googleapis.com",
                "/upload/storage/v1/b/b/o?uploadType=media&name=a%2Fb",
                None,
                9,
                true,
            ),
            (
                "POST",
                "storage.googleapis.com",
                "/upload/storage/v1/b/b/o?predefinedAcl=publicRead",
                None,
                9,
                false,
            ),
            ("POST", "storage.googleapis.com", "/storage/v1/b", None, 9, false),
            ("POST", "oauth2.googleapis.com", "/token", None, 9, false),
            ("GET", "metadata.google.internal", "/computeMetadata/v1/", None, 0, false),
        ];
        let presets = ["aws-read", "aws-write", "gcp-read", "gcp-write"];
        let policy = |action| {
            let rule =
                |name: &&str| PolicyRuleText { preset: (*name).into(), action, ..PolicyRuleText::default() };
            let rules = presets.iter().map(rule).collect();
            PolicySettings { rules, ..PolicySettings::default() }.compiled().unwrap()
        };
        let allowing = policy(None);
        for case in cases {
            let (method, host, target, header, body_bytes, allows) = *case;
            let decided = decided(&allowing, (method, host, target), header, body_bytes);
            assert_eq!(decided == Action::Allow, allows, "{case:?}");
        }
        let holding = policy(Some(Action::Hold));
        let held = decided(&holding, ("GET", "b.s3.amazonaws.com", "/k"), None, 0);
        let metadata = decided(&holding, ("GET", "169.254.169.254", "/latest/meta-data/"), None, 0);
        assert_eq!((held, metadata), (Action::Hold, Action::Deny), "what a preset denies is not held");
    }

    fn decided(
        policy: &Policy,
        (method, host, target): (&str, &str, &str),
        header: Option<(&'static str, &str)>,
        body_bytes: u64,
    ) -> Action {
        let (path, query) =
            target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
        let headers =
            header.into_iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap()));
        let headers = headers.collect();
        let facts = RequestFacts { method, path, query, headers: &headers, body_bytes: Some(body_bytes) };
        let host = HostOrIp::parse(host).unwrap();
        let request = PolicyRequest { identity: None, host: &host, port: 443, phase: Phase::Request(facts) };
        policy.decide(&request, 0).action
    }

    #[test]
    fn hold_webhook_needs_https_and_a_secret() {
        let of = |url: &str, secret: &str| PolicySettings {
            hold_webhook_url: url.into(),
            hold_webhook_secret_file: secret.into(),
            ..PolicySettings::default()
        };
        assert!(of("", "").check_webhook().is_ok());
        assert!(of("https://a.example/held", "secret").check_webhook().is_ok());
        for (url, secret, word) in [
            ("", "secret", "need proxy.policy.hold_webhook_url"),
            ("http://a.example/", "secret", "https"),
            ("https://a.example/", "", "needs proxy.policy.hold_webhook_secret_file"),
        ] {
            let problem = of(url, secret).check_webhook().unwrap_err();
            assert!(problem.message.contains(word) && problem.hint.is_some(), "{}", problem.message);
        }
        let format = HoldWebhookFormat::Slack;
        let slack = PolicySettings { hold_webhook_format: format, ..of("https://hooks.example/x", "") };
        assert!(slack.check_webhook().is_ok(), "the URL is the secret of Slack's webhooks");
    }

    #[test]
    fn policy_error_reports_the_rule_position() {
        let preset = PolicyRuleText { preset: "github-read".into(), ..PolicyRuleText::default() };
        let second = PolicyRuleText { host: vec!["https://a".into()], ..PolicyRuleText::default() };
        let error_of = |rules: Vec<PolicyRuleText>| {
            PolicySettings { rules, ..PolicySettings::default() }.compiled().unwrap_err().message
        };
        assert!(error_of(vec![preset.clone(), second]).starts_with("proxy.policy.rules[2] (#2): host: "));
        let unknown = PolicyRuleText { preset: "github".into(), ..PolicyRuleText::default() };
        assert!(error_of(vec![unknown]).contains("rules[1] (#1): preset: unknown preset \"github\""));
        let both = PolicyRuleText { host: vec!["a.example".into()], ..preset };
        assert!(error_of(vec![both]).contains("cannot be combined with conditions"));
    }
}

//! What an operator says about an issuer.
//!
//! Read from JSON or TOML with unknown fields refused; secrets travel apart (see [`super::Secrets`]).

use std::net::SocketAddr;

use callout::HttpConfig;
use coded::named;
use keys::Secret;
use outbound::guard::Guard;
use outbound::rate::Rate;
use serde::{Deserialize, Serialize};

use crate::dns01::Dns01Config;
use crate::program_name::ProgramName;

/// One configured issuer.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum IssuerConfig {
    /// Our own CA.
    Internal(InternalConfig),
    /// Any ACME server (RFC 8555).
    Acme(Box<AcmeConfig>),
    /// HashiCorp Vault or OpenBao, the PKI secrets engine.
    Vault(VaultConfig),
    /// Smallstep's step-ca.
    StepCa(StepCaConfig),
    /// A program of the operator's.
    Exec(ExecConfig),
    /// An HTTP service of the operator's.
    Webhook(WebhookConfig),
}

named! {
    /// Type of an issuer, as in the configuration.
    pub enum IssuerKind: "issuer type" {
        /// Our own CA.
        Internal => "internal",
        /// Any ACME server.
        Acme => "acme",
        /// HashiCorp Vault or OpenBao.
        Vault => "vault",
        /// Smallstep's step-ca.
        StepCa => "step_ca",
        /// A program of the operator's.
        Exec => "exec",
        /// An HTTP service of the operator's.
        Webhook => "webhook",
    }
}

impl IssuerConfig {
    /// Its type.
    #[must_use]
    pub fn kind(&self) -> IssuerKind {
        match self {
            Self::Internal(_) => IssuerKind::Internal,
            Self::Acme(_) => IssuerKind::Acme,
            Self::Vault(_) => IssuerKind::Vault,
            Self::StepCa(_) => IssuerKind::StepCa,
            Self::Exec(_) => IssuerKind::Exec,
            Self::Webhook(_) => IssuerKind::Webhook,
        }
    }

    /// The rate limits.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        match self {
            Self::Internal(config) => &config.limits,
            Self::Acme(config) => &config.limits,
            Self::Vault(config) => &config.limits,
            Self::StepCa(config) => &config.limits,
            Self::Exec(config) => &config.limits,
            Self::Webhook(config) => &config.limits,
        }
    }

    /// The programs that the issuer and its dns-01 publisher run.
    #[must_use]
    pub fn programs(&self) -> Vec<&ProgramName> {
        match self {
            Self::Exec(config) => [Some(&config.issue), config.revoke.as_ref(), config.test.as_ref()]
                .into_iter()
                .flatten()
                .collect(),
            Self::Acme(config) => config.dns01.iter().filter_map(|dns01| dns01.publisher.program()).collect(),
            Self::Internal(_) | Self::Vault(_) | Self::StepCa(_) | Self::Webhook(_) => Vec::new(),
        }
    }

    /// The files that the server reads for it.
    #[must_use]
    pub fn files(&self) -> Option<&str> {
        match self {
            Self::Vault(VaultConfig { auth: VaultAuth::Kubernetes { token_file, .. }, .. }) => {
                Some(token_file)
            }
            _ => None,
        }
    }

    /// The same, with connections checked by `guard`.
    #[must_use]
    pub(crate) fn guarded(mut self, guard: Guard) -> Self {
        let http = match &mut self {
            Self::Acme(config) => &mut config.http,
            Self::Vault(config) => &mut config.http,
            Self::StepCa(config) => &mut config.http,
            Self::Webhook(config) => &mut config.http,
            Self::Internal(_) | Self::Exec(_) => return self,
        };
        http.guard = guard;
        self
    }

    /// How its deliveries are checked.
    #[must_use]
    pub fn verify(&self) -> &VerifyConfig {
        match self {
            Self::Internal(config) => &config.verify,
            Self::Acme(config) => &config.verify,
            Self::Vault(config) => &config.verify,
            Self::StepCa(config) => &config.verify,
            Self::Exec(config) => &config.verify,
            Self::Webhook(config) => &config.verify,
        }
    }
}

/// How much may be asked of an issuer, and what happens when it fails.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Orders under way at once, 1 to 1 000.
    pub concurrency: u32,
    /// Orders begun in a minute, in the long run; `None` for no limit.
    pub per_minute: Option<u32>,
    /// Orders that may begin at once before the rate holds them; at least 1.
    pub burst: u32,
    /// Failures in a row after which the issuer is given a rest.
    pub failures_max: u32,
    /// The first rest, seconds; each next one is twice as long.
    pub rest_seconds: u32,
    /// The longest rest, seconds.
    pub rest_max_seconds: u32,
    /// Longest one order may take, seconds, whatever the caller allows.
    pub order_seconds: u32,
}

impl Limits {
    /// How often orders may begin; `None` for no limit.
    pub(crate) fn rate(&self) -> Option<Rate> {
        Some(Rate::per_minute(self.per_minute?).with_burst(self.burst))
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            concurrency: 16,
            per_minute: None,
            burst: 20,
            failures_max: 5,
            rest_seconds: 15,
            rest_max_seconds: 1_800,
            order_seconds: 600,
        }
    }
}

/// How a delivered certificate is held against the order.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct VerifyConfig {
    /// Roots it must chain up to, in PEM. Without any the chain must hold together up to its last certificate.
    pub roots: Option<String>,
    /// Which names it may hold.
    pub names: NameRule,
}

/// Which names a delivered certificate may hold.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NameRule {
    /// Those asked for, all of them and no others.
    #[default]
    Exact,
    /// All of those asked for; the issuer may add some (`www.` beside the bare name).
    MayAdd,
}

/// Our own CA.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[derive(Default)]
pub struct InternalConfig {
    /// The authority's profile for orders that name none.
    pub profile: Option<String>,
    /// The issuing CA, by name; the profile's when absent.
    pub ca: Option<String>,
    /// See [`Limits`].
    pub limits: Limits,
    /// See [`VerifyConfig`].
    pub verify: VerifyConfig,
}

/// An ACME server.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AcmeConfig {
    /// The directory's URL.
    pub directory: String,
    /// `mailto:` URLs of whom the server may tell about trouble.
    #[serde(default)]
    pub contact: Vec<String>,
    /// The server's terms of service are agreed to. Servers that have terms refuse accounts without.
    #[serde(default)]
    pub terms_agreed: bool,
    /// External account binding (RFC 8555 section 7.3.4).
    #[serde(default)]
    pub eab: Option<Eab>,
    /// The server's profile for orders that name none (draft-ietf-acme-profiles).
    #[serde(default)]
    pub profile: Option<String>,
    /// Part of the common name of the root or top issuer whose chain is preferred among alternates.
    #[serde(default)]
    pub preferred_chain: Option<String>,
    /// Ways to prove control, best first. Wildcards take dns-01 whatever stands first.
    #[serde(default = "http_01")]
    pub challenges: Vec<ChallengeKind>,
    /// How dns-01 records are published.
    #[serde(default)]
    pub dns01: Option<Dns01Config>,
    /// Own listeners for challenges, where the server's listener does not answer them.
    #[serde(default)]
    pub listen: ListenerConfig,
    /// See [`HttpConfig`].
    #[serde(default)]
    pub http: HttpConfig,
    /// See [`Limits`].
    #[serde(default)]
    pub limits: Limits,
    /// See [`VerifyConfig`].
    #[serde(default)]
    pub verify: VerifyConfig,
}

fn http_01() -> Vec<ChallengeKind> {
    vec![ChallengeKind::Http01]
}

/// Addresses on which challenges are answered, each only while one is open.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct ListenerConfig {
    /// For http-01; the validating server connects to port 80.
    pub http01: Option<SocketAddr>,
    /// For tls-alpn-01; the validating server connects to port 443.
    pub tls_alpn01: Option<SocketAddr>,
}

named! {
    /// A way to prove control over a name.
    pub enum ChallengeKind: "challenge type" {
        /// RFC 8555 section 8.3
        Http01 => "http-01",
        /// RFC 8555 section 8.4
        Dns01 => "dns-01",
        /// RFC 8737
        TlsAlpn01 => "tls-alpn-01",
    }
}

/// External account binding.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Eab {
    /// The key's identifier, from the CA.
    pub key_id: String,
    /// The MAC key as the CA gave it: base64url without padding.
    pub hmac_key: Secret,
}

/// Vault or OpenBao.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VaultConfig {
    /// Its address, `https://vault.internal:8200`.
    pub url: String,
    /// Where the PKI engine is mounted.
    #[serde(default = "pki")]
    pub mount: String,
    /// The role for orders that name no profile.
    pub role: String,
    /// A namespace, for editions that have them.
    #[serde(default)]
    pub namespace: Option<String>,
    /// How we log in.
    pub auth: VaultAuth,
    /// See [`HttpConfig`].
    #[serde(default)]
    pub http: HttpConfig,
    /// See [`Limits`].
    #[serde(default)]
    pub limits: Limits,
    /// See [`VerifyConfig`].
    #[serde(default)]
    pub verify: VerifyConfig,
}

fn pki() -> String {
    "pki".to_owned()
}

/// How we log in to Vault.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "method", rename_all = "snake_case", deny_unknown_fields)]
pub enum VaultAuth {
    /// With a token we were given; it is renewed as long as it can be.
    Token {
        /// The token.
        token: Secret,
    },
    /// AppRole.
    #[serde(rename = "approle")]
    AppRole {
        /// Where the method is mounted.
        #[serde(default = "approle")]
        mount: String,
        /// Its role id.
        role_id: String,
        /// Its secret id.
        secret_id: Secret,
    },
    /// Kubernetes: by this pod's service account.
    Kubernetes {
        /// Where the method is mounted.
        #[serde(default = "kubernetes")]
        mount: String,
        /// The role.
        role: String,
        /// The service account's token; read again at each login.
        #[serde(default = "service_account_token")]
        token_file: String,
    },
}

fn approle() -> String {
    "approle".to_owned()
}

fn kubernetes() -> String {
    "kubernetes".to_owned()
}

fn service_account_token() -> String {
    "/var/run/secrets/kubernetes.io/serviceaccount/token".to_owned()
}

/// step-ca.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepCaConfig {
    /// Its address, `https://ca.internal:9000`.
    pub url: String,
    /// SHA-256 of its root certificate in hexadecimal. The root is fetched and held against it, and then trusted for
    /// TLS.
    pub root_fingerprint: String,
    /// The JWK provisioner we sign one-time tokens for.
    pub provisioner: Provisioner,
    /// See [`HttpConfig`]; its `roots` are not used.
    #[serde(default)]
    pub http: HttpConfig,
    /// See [`Limits`].
    #[serde(default)]
    pub limits: Limits,
    /// See [`VerifyConfig`].
    #[serde(default)]
    pub verify: VerifyConfig,
}

/// A JWK provisioner of step-ca.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Provisioner {
    /// Its name.
    pub name: String,
    /// The key's identifier; `None` for the thumbprint (RFC 7638), as step makes it.
    #[serde(default)]
    pub key_id: Option<String>,
    /// Its private key: a PKCS #8 PEM, the private JWK with `kty` `EC`, or the encrypted key (JWE) as `encryptedKey` in
    /// step-ca's configuration.
    pub key: Secret,
    /// Opens an encrypted key.
    #[serde(default)]
    pub password: Option<Secret>,
}

/// A program of the server's configuration.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExecConfig {
    /// The program that issues.
    pub issue: ProgramName,
    /// The program that revokes; without it revoking is not supported.
    #[serde(default)]
    pub revoke: Option<ProgramName>,
    /// The program that tests; without it only the presence of `issue` is looked at.
    #[serde(default)]
    pub test: Option<ProgramName>,
    /// Longest a run may take, seconds, where that is shorter than the program's own limit.
    #[serde(default)]
    pub seconds: Option<u32>,
    /// See [`Limits`].
    #[serde(default)]
    pub limits: Limits,
    /// See [`VerifyConfig`].
    #[serde(default)]
    pub verify: VerifyConfig,
}

/// An HTTP service.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WebhookConfig {
    /// URL for orders.
    pub url: String,
    /// Where revocations are posted; without it revoking is not supported.
    #[serde(default)]
    pub revoke_url: Option<String>,
    /// The key of the HMAC-SHA256 over what is posted.
    pub secret: Secret,
    /// See [`HttpConfig`].
    #[serde(default)]
    pub http: HttpConfig,
    /// See [`Limits`].
    #[serde(default)]
    pub limits: Limits,
    /// See [`VerifyConfig`].
    #[serde(default)]
    pub verify: VerifyConfig,
}

//! Configuration of issuers.
//!
//! Read from JSON or TOML; unknown fields are rejected. Secrets are stored separately (see [`super::Secrets`]).

use std::net::SocketAddr;

use callout::HttpConfig;
use coded::named;
use keys::Secret;
use outbound::guard::Guard;
use outbound::rate::Rate;
use serde::{Deserialize, Serialize};

use crate::dns01::Dns01Config;
use crate::program_name::ProgramName;

/// Configuration of an issuer, by its type.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum IssuerConfig {
    /// The internal CA.
    Internal(InternalConfig),
    /// Any ACME server (RFC 8555).
    Acme(Box<AcmeConfig>),
    /// HashiCorp Vault or OpenBao, the PKI secrets engine.
    Vault(VaultConfig),
    /// Smallstep's step-ca.
    StepCa(StepCaConfig),
    /// A program of the operator.
    Exec(ExecConfig),
    /// An HTTP service of the operator.
    Webhook(WebhookConfig),
}

named! {
    /// Type of an issuer, as in the configuration.
    pub enum IssuerKind: "issuer type" {
        /// The internal CA.
        Internal => "internal",
        /// Any ACME server.
        Acme => "acme",
        /// HashiCorp Vault or OpenBao.
        Vault => "vault",
        /// Smallstep's step-ca.
        StepCa => "step_ca",
        /// A program of the operator.
        Exec => "exec",
        /// An HTTP service of the operator.
        Webhook => "webhook",
    }
}

impl IssuerConfig {
    /// Returns the type of the issuer, such as `acme`.
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

    /// Returns the limits and the circuit breaker settings of the issuer.
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

    /// Returns the programs that the issuer and its dns-01 publisher run.
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

    /// Returns the path of the file that the server reads for the issuer, if any.
    #[must_use]
    pub fn files(&self) -> Option<&str> {
        match self {
            Self::Vault(VaultConfig { auth: VaultAuth::Kubernetes { token_file, .. }, .. }) => {
                Some(token_file)
            }
            _ => None,
        }
    }

    /// Returns the configuration with connections checked by `guard`.
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

    /// Returns the settings for the verification of the issuer's certificates.
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

/// Limits of an issuer, and its circuit breaker settings.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Maximum number of concurrent orders, 1 to 1 000.
    pub concurrency: u32,
    /// Maximum orders per minute on average. `None` for no limit.
    pub per_minute: Option<u32>,
    /// Maximum orders in a burst before the rate limit applies; at least 1.
    pub burst: u32,
    /// Number of consecutive failures that open the circuit breaker.
    pub failures_max: u32,
    /// Seconds for which the circuit breaker first stays open. The time doubles with each repetition.
    pub rest_seconds: u32,
    /// Maximum seconds for which the circuit breaker stays open.
    pub rest_max_seconds: u32,
    /// Maximum seconds for one order, even if the caller's deadline is later.
    pub order_seconds: u32,
}

impl Limits {
    /// Returns the rate limit of orders. `None` for no limit.
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

/// Checks of an issued certificate against the order.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct VerifyConfig {
    /// Trusted roots in PEM. Without them, the chain must only be consistent up to its last certificate.
    pub roots: Option<String>,
    /// Whether the certificate may contain names that were not requested.
    pub names: NameRule,
}

/// Rule for the names in an issued certificate: exactly the requested names, or additional ones.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NameRule {
    /// Exactly the requested names.
    #[default]
    Exact,
    /// All requested names; the issuer may add others, such as `www.`.
    MayAdd,
}

/// Configuration of the internal CA as an issuer.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[derive(Default)]
pub struct InternalConfig {
    /// Profile for orders without one.
    pub profile: Option<String>,
    /// Name of the issuing CA. Default: the profile's CA.
    pub ca: Option<String>,
    /// Concurrency limit, rate limit and circuit breaker settings.
    pub limits: Limits,
    /// Checks of an issued certificate against the order.
    pub verify: VerifyConfig,
}

/// Configuration of an ACME server as an issuer.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AcmeConfig {
    /// URL of the ACME directory (RFC 8555 section 7.1.1).
    pub directory: String,
    /// `mailto:` URLs of contacts that the server may notify.
    #[serde(default)]
    pub contact: Vec<String>,
    /// Whether the operator agrees to the server's terms of service. Servers with terms reject accounts without agreement.
    #[serde(default)]
    pub terms_agreed: bool,
    /// External account binding (RFC 8555 section 7.3.4).
    #[serde(default)]
    pub eab: Option<Eab>,
    /// Server's profile for orders without one (draft-ietf-acme-profiles).
    #[serde(default)]
    pub profile: Option<String>,
    /// Part of the common name of the preferred root or top issuer, used to select among alternate chains.
    #[serde(default)]
    pub preferred_chain: Option<String>,
    /// Challenge types in order of preference. Wildcards always use dns-01.
    #[serde(default = "http_01")]
    pub challenges: Vec<ChallengeKind>,
    /// Publication of dns-01 records.
    #[serde(default)]
    pub dns01: Option<Dns01Config>,
    /// Separate listeners for challenges, when the server's own listeners are not reachable for validation.
    #[serde(default)]
    pub listen: ListenerConfig,
    /// Settings of the HTTPS client: trusted roots, client certificate and timeout.
    #[serde(default)]
    pub http: HttpConfig,
    /// Concurrency limit, rate limit and circuit breaker settings.
    #[serde(default)]
    pub limits: Limits,
    /// Checks of an issued certificate against the order.
    #[serde(default)]
    pub verify: VerifyConfig,
}

fn http_01() -> Vec<ChallengeKind> {
    vec![ChallengeKind::Http01]
}

/// Addresses on which challenges are answered. Each listener is open only during a challenge.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct ListenerConfig {
    /// Listen address for http-01 challenges. The CA connects to port 80: forward port 80 to this address if the port differs.
    pub http01: Option<SocketAddr>,
    /// Address for tls-alpn-01. The validating server connects to port 443.
    pub tls_alpn01: Option<SocketAddr>,
}

named! {
    /// Type of a challenge that proves control over a name.
    pub enum ChallengeKind: "challenge type" {
        /// HTTP validation (RFC 8555 section 8.3).
        Http01 => "http-01",
        /// DNS validation (RFC 8555 section 8.4).
        Dns01 => "dns-01",
        /// TLS validation with ALPN (RFC 8737).
        TlsAlpn01 => "tls-alpn-01",
    }
}

/// External account binding of an ACME account.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Eab {
    /// Key identifier from the CA.
    pub key_id: String,
    /// MAC key from the CA, base64url without padding.
    pub hmac_key: Secret,
}

/// Configuration of Vault or OpenBao as an issuer.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VaultConfig {
    /// URL of the server, such as `https://vault.internal:8200`.
    pub url: String,
    /// Mount path of the PKI secrets engine.
    #[serde(default = "pki")]
    pub mount: String,
    /// Role for orders without a profile.
    pub role: String,
    /// Namespace, for editions that support it.
    #[serde(default)]
    pub namespace: Option<String>,
    /// Method by which Bulla logs in to Vault.
    pub auth: VaultAuth,
    /// Settings of the HTTPS client: trusted roots, client certificate and timeout.
    #[serde(default)]
    pub http: HttpConfig,
    /// Concurrency limit, rate limit and circuit breaker settings.
    #[serde(default)]
    pub limits: Limits,
    /// Checks of an issued certificate against the order.
    #[serde(default)]
    pub verify: VerifyConfig,
}

fn pki() -> String {
    "pki".to_owned()
}

/// Method by which Bulla logs in to Vault: token, AppRole or Kubernetes.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "method", rename_all = "snake_case", deny_unknown_fields)]
pub enum VaultAuth {
    /// A configured token, which is renewed as long as possible.
    Token {
        /// The Vault token.
        token: Secret,
    },
    /// The AppRole method.
    #[serde(rename = "approle")]
    AppRole {
        /// Mount path of the method.
        #[serde(default = "approle")]
        mount: String,
        /// Role id of the AppRole.
        role_id: String,
        /// Secret id of the AppRole.
        secret_id: Secret,
    },
    /// The Kubernetes method, with this pod's service account.
    Kubernetes {
        /// Mount path of the method.
        #[serde(default = "kubernetes")]
        mount: String,
        /// Role of the Kubernetes method.
        role: String,
        /// File with the service account's token. Read again at each login.
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

/// Configuration of step-ca as an issuer.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepCaConfig {
    /// URL of the server, such as `https://ca.internal:9000`.
    pub url: String,
    /// SHA-256 of the root certificate in hexadecimal. The fetched root must match it, and is then trusted for TLS.
    pub root_fingerprint: String,
    /// The JWK provisioner that signs the one-time tokens.
    pub provisioner: Provisioner,
    /// Settings of the HTTPS client. [`HttpConfig::roots`] is ignored.
    #[serde(default)]
    pub http: HttpConfig,
    /// Concurrency limit, rate limit and circuit breaker settings.
    #[serde(default)]
    pub limits: Limits,
    /// Checks of an issued certificate against the order.
    #[serde(default)]
    pub verify: VerifyConfig,
}

/// A JWK provisioner of step-ca.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Provisioner {
    /// Name of the provisioner in step-ca's configuration.
    pub name: String,
    /// Key identifier. `None` for the thumbprint (RFC 7638), the default of step.
    #[serde(default)]
    pub key_id: Option<String>,
    /// The private key: PKCS #8 in PEM, a private JWK with `kty` `EC`, or the encrypted key (JWE) from `encryptedKey` in step-ca's
    /// configuration.
    pub key: Secret,
    /// Password of an encrypted key.
    #[serde(default)]
    pub password: Option<Secret>,
}

/// Configuration of a program as an issuer.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExecConfig {
    /// Program that issues certificates.
    pub issue: ProgramName,
    /// Program that revokes certificates. Without it, revocation is not supported.
    #[serde(default)]
    pub revoke: Option<ProgramName>,
    /// Program that tests the issuer. Without it, a test only checks that `issue` exists.
    #[serde(default)]
    pub test: Option<ProgramName>,
    /// Timeout of a run in seconds, if shorter than the program's own.
    #[serde(default)]
    pub seconds: Option<u32>,
    /// Concurrency limit, rate limit and circuit breaker settings.
    #[serde(default)]
    pub limits: Limits,
    /// Checks of an issued certificate against the order.
    #[serde(default)]
    pub verify: VerifyConfig,
}

/// Configuration of an HTTP service as an issuer.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WebhookConfig {
    /// URL to which orders are posted.
    pub url: String,
    /// URL for revocations. Without it, revocation is not supported.
    #[serde(default)]
    pub revoke_url: Option<String>,
    /// Key of the HMAC-SHA256 over request bodies.
    pub secret: Secret,
    /// Settings of the HTTPS client: trusted roots, client certificate and timeout.
    #[serde(default)]
    pub http: HttpConfig,
    /// Concurrency limit, rate limit and circuit breaker settings.
    #[serde(default)]
    pub limits: Limits,
    /// Checks of an issued certificate against the order.
    #[serde(default)]
    pub verify: VerifyConfig,
}

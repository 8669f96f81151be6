//! step-ca issuers: one-time tokens of a JWK provisioner, and a root pinned by its fingerprint.

use std::sync::Arc;
use std::time::{Duration, Instant};

use callout::{HttpClient, HttpConfig, Reply, Request, excerpt};
use futures_util::future::{BoxFuture, FutureExt};
use keys::{KeyRef, Secret};
use outbound::resolve::Resolver;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use serde::Deserialize;
use serde_json::{Value, json};
use store::Clock;
use tokio::sync::Mutex;
use uuid::Uuid;
use x509::crl::Reason;
use x509::{Certificate, Fingerprint, GeneralName, UnixTime, pem};

use crate::config::{IssuerKind, StepCaConfig};
use crate::delivery::{DeliveredChain, parse_pem_chain};
use crate::error::IssuerError;
use crate::issuer::Issuer;
use crate::jose::JwsKey;
use crate::order::Order;
use crate::provisioner_key;

/// Lifetime of a one-time token in seconds. step-ca accepts at most five minutes.
const TOKEN_LIFE: i64 = 240;
/// Seconds by which a token is backdated, for clocks that differ.
const TOKEN_BACKDATE: i64 = 30;
/// Timeout of a request outside an order.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// An issuer that uses one JWK provisioner of a step-ca server.
pub(crate) struct StepCa {
    config: StepCaConfig,
    root: Fingerprint,
    key: JwsKey,
    clock: Clock,
    resolver: Resolver,
    /// A client that trusts the pinned root, once the root is fetched.
    trusted: Mutex<Option<Trusted>>,
}

#[derive(Clone)]
struct Trusted {
    http: HttpClient,
    root: Arc<[u8]>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Signed {
    #[serde(default)]
    cert_chain: Vec<String>,
    #[serde(default)]
    crt: String,
    #[serde(default)]
    ca: String,
}

impl std::fmt::Debug for StepCa {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StepCa").field("url", &self.config.url).finish_non_exhaustive()
    }
}

impl StepCa {
    pub(crate) fn new(config: &StepCaConfig, clock: Clock, resolver: &Resolver) -> Result<Self, IssuerError> {
        let digits: String = config.root_fingerprint.chars().filter(|c| !matches!(c, ':' | ' ')).collect();
        let root = digits.to_ascii_lowercase().parse().map_err(|_| {
            IssuerError::misconfigured(
                "root_fingerprint is not a SHA-256 in hexadecimal (step ca root | step certificate \
             fingerprint)",
            )
        })?;
        let key = provisioner_key::read(&config.provisioner.key, config.provisioner.password.as_ref())?;
        let key: KeyRef = Arc::new(key);
        let key = JwsKey::new(key).map_err(|error| IssuerError::misconfigured(error.to_string()))?;
        let http = HttpClient::new(&config.http, resolver)?;
        http.guard().url(&config.url).map_err(|error| IssuerError::misconfigured(error.to_string()))?;
        Ok(Self {
            config: config.clone(),
            root,
            key,
            clock,
            resolver: resolver.clone(),
            trusted: Mutex::default(),
        })
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.config.url.trim_end_matches('/'))
    }

    /// Returns the client that trusts the pinned root. The root is fetched over an unverified connection and accepted only with the
    /// right fingerprint. No secret is sent before that.
    async fn trusted(&self, deadline: Instant) -> Result<Trusted, IssuerError> {
        let mut trusted = self.trusted.lock().await;
        if let Some(known) = &*trusted {
            return Ok(known.clone());
        }
        let url = self.url(&format!("/root/{}", self.root));
        let bootstrap = HttpConfig { client_certificate: None, client_key: None, ..self.config.http.clone() };
        let anyone = HttpClient::accepting_any_certificate(&bootstrap, &self.resolver)?;
        let reply = anyone.send(Request::get(&url), deadline, "fetching step-ca's root").await?;
        if !reply.status.is_success() {
            return Err(self.error_of(&reply));
        }
        #[derive(Deserialize)]
        struct Root {
            ca: String,
        }
        let der = parse_pem_chain(reply.json::<Root>()?.ca.as_bytes())?.swap_remove(0);
        if Certificate::parse(&der).map(|root| root.fingerprint) != Ok(self.root) {
            return Err(IssuerError::Lying {
                reason: "step-ca's root does not match the pinned fingerprint".to_owned(),
            });
        }
        let mut roots = RootCertStore::empty();
        roots
            .add(CertificateDer::from(der.as_slice()))
            .map_err(|error| IssuerError::misconfigured(format!("step-ca's root cannot be used: {error}")))?;
        let fresh = Trusted {
            http: HttpClient::with_roots(&self.config.http, &self.resolver, roots)?,
            root: der.into(),
        };
        *trusted = Some(fresh.clone());
        Ok(fresh)
    }

    /// Creates a one-time token for one endpoint.
    async fn token(
        &self,
        path: &str,
        subject: &str,
        sans: &[String],
        deadline: Instant,
    ) -> Result<String, IssuerError> {
        let now = self.clock.now_seconds();
        let key_id =
            self.config.provisioner.key_id.clone().unwrap_or_else(|| self.key.thumbprint().to_owned());
        let header = json!({ "alg": self.key.algorithm(), "kid": key_id, "typ": "JWT" });
        let mut claims = json!({
            "iss": self.config.provisioner.name,
            "aud": self.url(path),
            "sub": subject,
            "iat": now,
            "nbf": now - TOKEN_BACKDATE,
            "exp": now + TOKEN_LIFE,
            "jti": Uuid::new_v4().simple().to_string(),
            "sha": self.root.to_string(),
        });
        if !sans.is_empty() {
            claims["sans"] = json!(sans);
        }
        self.key.compact(&header, &claims, deadline).await.map_err(|error| IssuerError::Storage {
            reason: format!("the provisioner's key cannot be used: {error}"),
        })
    }

    async fn sign(&self, order: &Order) -> Result<DeliveredChain, IssuerError> {
        let trusted = self.trusted(order.deadline).await?;
        let sans: Vec<String> = order.names.iter().map(san_text).collect::<Result<_, _>>()?;
        let subject = sans
            .first()
            .ok_or_else(|| IssuerError::Refused { reason: "the order has no names".to_owned() })?;
        let token = self.token("/1.0/sign", subject, &sans, order.deadline).await?;
        let mut body = json!({ "csr": pem::encode("CERTIFICATE REQUEST", &order.csr_der), "ott": token });
        if let Some(seconds) = order.lifetime_seconds {
            body["notAfter"] = json!(format!("{seconds}s"));
        }
        self.request_chain(&trusted, "/1.0/sign", &body, order.deadline).await
    }

    async fn request_chain(
        &self,
        trusted: &Trusted,
        path: &str,
        body: &Value,
        deadline: Instant,
    ) -> Result<DeliveredChain, IssuerError> {
        let url = self.url(path);
        let reply =
            trusted.http.send(Request::post_json(&url, body), deadline, "waiting for step-ca").await?;
        if !reply.status.is_success() {
            return Err(self.error_of(&reply));
        }
        let signed: Signed = reply.json()?;
        let texts =
            if signed.cert_chain.is_empty() { vec![signed.crt, signed.ca] } else { signed.cert_chain };
        let mut chain = Vec::new();
        for pem in texts.iter().filter(|pem| !pem.is_empty()) {
            chain.extend(parse_pem_chain(pem.as_bytes())?);
        }
        // Add the root, so that the chain is verified against the pin.
        chain.push(trusted.root.to_vec());
        Ok(DeliveredChain { chain })
    }

    async fn withdraw(&self, certificate: &Certificate, reason: Reason) -> Result<(), IssuerError> {
        let deadline = Instant::now() + REQUEST_TIMEOUT;
        let trusted = self.trusted(deadline).await?;
        let serial = decimal(certificate.serial.content());
        let token = self.token("/1.0/revoke", &serial, &[], deadline).await?;
        let body = json!({
            "serial": serial,
            "ott": token,
            "reasonCode": reason.code(),
            "reason": reason.to_string(),
            "passive": true,
        });
        let url = self.url("/1.0/revoke");
        let reply =
            trusted.http.send(Request::post_json(&url, &body), deadline, "waiting for step-ca").await?;
        let already = String::from_utf8_lossy(&reply.body).contains("already revoked");
        if reply.status.is_success() || already { Ok(()) } else { Err(self.error_of(&reply)) }
    }

    /// Renews by mutual TLS with the certificate and its key (`/1.0/renew`): without a token, for the same names and key.
    async fn renew(&self, chain: &[Vec<u8>], key: &Secret) -> Result<DeliveredChain, IssuerError> {
        let deadline = Instant::now() + REQUEST_TIMEOUT;
        let trusted = self.trusted(deadline).await?;
        let pem: String = chain.iter().map(|der| pem::encode("CERTIFICATE", der)).collect();
        let config = HttpConfig {
            client_certificate: Some(pem),
            client_key: Some(key.clone()),
            ..self.config.http.clone()
        };
        let mut roots = RootCertStore::empty();
        roots
            .add(CertificateDer::from(&*trusted.root))
            .map_err(|error| IssuerError::misconfigured(format!("step-ca's root cannot be used: {error}")))?;
        let http = HttpClient::with_roots(&config, &self.resolver, roots)?;
        let ours = Trusted { http, root: trusted.root };
        self.request_chain(&ours, "/1.0/renew", &Value::Null, deadline).await
    }

    async fn check_service(&self) -> Result<String, IssuerError> {
        let deadline = Instant::now() + REQUEST_TIMEOUT;
        let trusted = self.trusted(deadline).await?;
        let url = self.url("/provisioners?limit=100");
        let reply =
            trusted.http.send(Request::get(&url), deadline, "fetching step-ca's provisioners").await?;
        if !reply.status.is_success() {
            return Err(self.error_of(&reply));
        }
        let parsed: Value = reply.json()?;
        let name = &self.config.provisioner.name;
        let provisioners = parsed["provisioners"].as_array().map_or(&[][..], Vec::as_slice);
        let Some(found) =
            provisioners.iter().find(|one| one["name"] == json!(name) && one["type"] == json!("JWK"))
        else {
            return Err(IssuerError::misconfigured(format!("step-ca has no JWK provisioner {name:?}")));
        };
        if found["key"]["x"] != self.key.jwk()["x"] {
            return Err(IssuerError::misconfigured(format!(
                "the key of provisioner {name:?} is not the configured key"
            )));
        }
        Ok(format!("root {} matches; provisioner {name} has the configured key", self.root))
    }

    fn error_of(&self, reply: &Reply) -> IssuerError {
        let parsed: Option<Value> = serde_json::from_slice(&reply.body).ok();
        let message = parsed.as_ref().and_then(|parsed| parsed["message"].as_str()).map(excerpt);
        let reason = format!("{} {}", reply.status.as_u16(), message.unwrap_or_else(|| reply.excerpt()));
        let retry_after = reply.retry_after(UnixTime(self.clock.now_seconds()));
        match reply.status.as_u16() {
            401 => IssuerError::Denied { reason },
            404 => IssuerError::Misconfigured { reason: format!("{reason}: check url and root_fingerprint") },
            429 => IssuerError::RateLimited { retry_after, reason },
            500.. => IssuerError::Unavailable { reason, retry_after },
            _ => IssuerError::Refused { reason },
        }
    }
}

fn san_text(name: &GeneralName) -> Result<String, IssuerError> {
    match name {
        GeneralName::Dns(text) | GeneralName::Email(text) | GeneralName::Uri(text) => Ok(text.clone()),
        GeneralName::Ip(address) => Ok(address.to_string()),
        _ => Err(IssuerError::Unsupported { what: "issue certificates for names of that type" }),
    }
}

/// Formats a serial number in decimal, as step-ca expects it.
fn decimal(bytes: &[u8]) -> String {
    let mut digits = vec![0_u8];
    for byte in bytes {
        let mut carry = u32::from(*byte);
        for digit in &mut digits {
            let value = u32::from(*digit) * 256 + carry;
            *digit = (value % 10) as u8;
            carry = value / 10;
        }
        while carry > 0 {
            digits.push((carry % 10) as u8);
            carry /= 10;
        }
    }
    digits.iter().rev().map(|digit| char::from(b'0' + digit)).collect()
}

impl Issuer for StepCa {
    fn kind(&self) -> IssuerKind {
        IssuerKind::StepCa
    }

    fn issue<'a>(&'a self, order: &'a Order) -> BoxFuture<'a, Result<DeliveredChain, IssuerError>> {
        self.sign(order).boxed()
    }

    fn revoke<'a>(
        &'a self,
        certificate: &'a Certificate,
        reason: Reason,
    ) -> BoxFuture<'a, Result<(), IssuerError>> {
        self.withdraw(certificate, reason).boxed()
    }

    fn renew_with_key<'a>(
        &'a self,
        chain: &'a [Vec<u8>],
        key: &'a Secret,
    ) -> BoxFuture<'a, Result<DeliveredChain, IssuerError>> {
        self.renew(chain, key).boxed()
    }

    fn test<'a>(&'a self) -> BoxFuture<'a, Result<String, IssuerError>> {
        self.check_service().boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serial_numbers_are_formatted_in_decimal() {
        let table: [(&[u8], &str); 5] = [
            (&[0], "0"),
            (&[0, 255], "255"),
            (&[1, 0], "256"),
            (&[0x7f; 16], "169473963133173273960190490760135540607"),
            (&[], "0"),
        ];
        for (bytes, text) in table {
            assert_eq!(decimal(bytes), text);
        }
    }
}

//! Simulated Azure, over HTTPS: Resource Manager with Key Vaults and Application Gateways, and the certificates of the vaults.
//!
//! A vault responds to a request without a token with a challenge that names the token audience. Every vault has its own address
//! and its own quota.

use std::collections::{BTreeMap, HashMap};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use parking_lot::Mutex;
use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use serde_json::{Value, json};
use x509::DAY;

use super::server::{Cloud, Gate};
use super::{
    CertificateFactory, CloudBehavior, CloudRequest, Fault, MintedCertificate, OperationCounts, Quota, Reply,
    Server, SimulatedCertificate, page,
};
use crate::FleetError;
use crate::forge::{AlternativeName, Order, Role, forge, random_serial};
use crate::key::{Key, ServerKey, SignedWith};
use crate::key_kind::KeyKind;

/// Quota of a vault: 4,000 transactions in ten seconds, simulated as 400 per second; a 429 response has `Retry-After: 1`.
const VAULT: Quota = Quota { per_second: Some(400), per_minute: None, retry_after: Some(1) };
/// Read quota of Resource Manager per subscription. The real one refills 25 per second after a burst.
const MANAGEMENT: Quota = Quota { per_second: Some(250), per_minute: None, retry_after: Some(1) };
/// Maximum certificates on one page of a listing.
const PAGE_MAX: usize = 25;
/// First IP address of the vaults.
const FIRST_VAULT: u32 = 0x7f01_0001;
/// Maximum vaults: each is a name in the server's certificate.
const VAULTS_MAX: usize = 64;

/// Contents of a simulated Azure subscription: its vaults and their certificates.
#[derive(Clone, Debug)]
pub struct AzurePlan {
    /// Number of vaults in the subscription, 64 at most.
    pub vaults: usize,
    /// Certificates per vault. The first is used by an Application Gateway, the last is still being issued.
    pub certificates: usize,
    /// Delays, page sizes, quotas and throttling of the simulated cloud.
    pub manners: CloudBehavior,
}

impl Default for AzurePlan {
    fn default() -> Self {
        Self { vaults: 2, certificates: 30, manners: CloudBehavior::default() }
    }
}

struct StoredCertificate {
    name: String,
    minted: Option<MintedCertificate>,
    updated: i64,
    tags: BTreeMap<String, String>,
}

struct Contents {
    vaults: BTreeMap<Ipv4Addr, Vec<StoredCertificate>>,
    /// Valid tokens.
    tokens: HashMap<String, ()>,
}

struct Azure {
    contents: Arc<Mutex<Contents>>,
    port: Arc<AtomicU64>,
}

/// A running simulated cloud. Stops when dropped.
pub struct AzureCloud {
    server: Server,
    contents: Arc<Mutex<Contents>>,
    factory: CertificateFactory,
    root: CertificateDer<'static>,
    tokens_issued: AtomicU64,
}

/// Id of the only simulated subscription.
pub const SUBSCRIPTION: &str = "00000000-1111-2222-3333-444444444444";

impl AzureCloud {
    /// Creates all certificates and starts serving.
    ///
    /// # Errors
    /// [`FleetError`].
    pub fn start(plan: &AzurePlan) -> Result<Self, FleetError> {
        let factory = CertificateFactory::new()?;
        let count = plan.vaults.clamp(1, VAULTS_MAX) as u32;
        let addresses: Vec<Ipv4Addr> =
            (0..count).map(|number| Ipv4Addr::from(FIRST_VAULT + number)).collect();
        let mut vaults = BTreeMap::new();
        for (number, address) in addresses.iter().enumerate() {
            let mut stored = Vec::new();
            for index in 0..plan.certificates {
                let waits = plan.certificates > 2 && index == plan.certificates - 1;
                let names = vec![format!("c{index}.v{number}.example")];
                let kind = if index % 2 == 0 { KeyKind::Rsa2048 } else { KeyKind::P256 };
                let minted = if waits { None } else { Some(factory.mint(names, kind, 15 + index as i64)?) };
                let tags = super::tags_of(index);
                stored.push(StoredCertificate {
                    name: format!("cert-{index:04}"),
                    minted,
                    updated: 1_790_000_000,
                    tags,
                });
            }
            vaults.insert(*address, stored);
        }
        let contents = Arc::new(Mutex::new(Contents { vaults, tokens: HashMap::new() }));
        let (tls, root) = server_tls(&factory, &addresses)?;
        let port = Arc::new(AtomicU64::new(0));
        let cloud = Azure { contents: contents.clone(), port: port.clone() };
        let server = Server::start(cloud, plan.manners.clone(), Some(tls))?;
        port.store(server.port().into(), Relaxed);
        Ok(Self { server, contents, factory, root, tokens_issued: AtomicU64::new(0) })
    }

    /// Returns the URL of Resource Manager.
    #[must_use]
    pub fn management(&self) -> String {
        format!("https://127.0.0.1:{}", self.server.port())
    }

    /// Returns the root certificate to trust, DER.
    #[must_use]
    pub fn root(&self) -> Vec<u8> {
        self.root.to_vec()
    }

    /// Creates a token that is valid until a fault expires it.
    #[must_use]
    pub fn token(&self) -> String {
        let token = format!("token-{}", self.tokens_issued.fetch_add(1, Relaxed));
        self.contents.lock().tokens.insert(token.clone(), ());
        token
    }

    /// Sets the fault of all further requests.
    pub fn set_fault(&self, fault: Fault) {
        self.server.set_fault(fault);
    }

    /// Returns the counters by operation and vault or subscription.
    #[must_use]
    pub fn counts(&self) -> BTreeMap<(&'static str, String), OperationCounts> {
        self.server.counts()
    }

    /// Returns the number of connections and of requests so far.
    #[must_use]
    pub fn traffic(&self) -> (u64, u64) {
        self.server.traffic()
    }

    /// Returns the certificates that a scanner should find.
    #[must_use]
    pub fn truth(&self) -> Vec<SimulatedCertificate> {
        let contents = self.contents.lock();
        let mut truth = Vec::new();
        for (address, vault) in &contents.vaults {
            for (index, stored) in vault.iter().enumerate() {
                let name = format!("{}certificates/{}", vault_url(*address, self.server.port()), stored.name);
                let used_by = (index == 0).then(|| gateway_id(*address)).into_iter().collect();
                let leaf_sha256 = stored.minted.as_ref().map(MintedCertificate::sha256);
                let tags = stored.tags.clone();
                truth.push(SimulatedCertificate {
                    store: "azure-key-vault",
                    name,
                    leaf_sha256,
                    used_by,
                    tags,
                });
            }
        }
        truth.sort();
        truth
    }

    /// Creates a new version of the first vault's first certificate; returns the new leaf's SHA-256.
    ///
    /// # Errors
    /// [`FleetError`].
    pub fn renew_one(&self) -> Result<Option<String>, FleetError> {
        let mut contents = self.contents.lock();
        let first = contents.vaults.values_mut().next().and_then(|vault| vault.first_mut());
        let Some(stored) = first else { return Ok(None) };
        let new = self.factory.mint(vec!["renewed.example".to_owned()], KeyKind::P256, 300)?;
        let sha256 = new.sha256();
        stored.minted = Some(new);
        stored.updated += 1;
        Ok(Some(sha256))
    }
}

/// Creates the TLS configuration: one certificate for the addresses of all vaults and Resource Manager.
fn server_tls(
    factory: &CertificateFactory,
    vaults: &[Ipv4Addr],
) -> Result<(Arc<ServerConfig>, CertificateDer<'static>), FleetError> {
    let (now, root) = factory.anchor();
    let key = Arc::new(Key::generate(KeyKind::P256)?);
    let addresses = std::iter::once(Ipv4Addr::LOCALHOST).chain(vaults.iter().copied());
    let order = Order {
        role: Role::Server,
        common_name: None,
        names: addresses.map(|address| AlternativeName::Address(address.octets())).collect(),
        serial: random_serial(),
        not_before: now.plus(-DAY),
        not_after: now.plus(90 * DAY),
        signed_with: SignedWith::Usual,
        crl_url: None,
    };
    let leaf = forge(&order, &key, root)?;
    let certified = CertifiedKey::new(vec![leaf], Arc::new(ServerKey(key)));
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
    Ok((Arc::new(config), root.certificate.clone()))
}

fn vault_url(address: Ipv4Addr, port: u16) -> String {
    format!("https://{address}:{port}/")
}

fn gateway_id(vault: Ipv4Addr) -> String {
    let number = u32::from(vault) - FIRST_VAULT;
    format!(
        "/subscriptions/{SUBSCRIPTION}/resourceGroups/g/providers/Microsoft.Network/applicationGateways/gw{number}"
    )
}

fn problem(status: u16, code: &str, message: &str) -> Reply {
    Reply::json(status, &json!({"error": {"code": code, "message": message}}))
}

impl Azure {
    fn port(&self) -> u16 {
        u16::try_from(self.port.load(Relaxed)).unwrap_or_default()
    }

    /// Checks the request's token; returns the vault's challenge if it is missing or invalid.
    fn admit(&self, request: &CloudRequest) -> Result<(), Reply> {
        let token = request
            .header("authorization")
            .and_then(|value| value.strip_prefix("Bearer "))
            .unwrap_or_default();
        let mut contents = self.contents.lock();
        if request.expired {
            contents.tokens.remove(token);
        }
        if contents.tokens.contains_key(token) {
            return Ok(());
        }
        let challenge =
            "Bearer authorization=\"https://login.example/tenant\", resource=\"https://vault.azure.net\"";
        Err(problem(401, "Unauthorized", "AKV10000: Request is missing a Bearer or PoP token.")
            .with("www-authenticate", challenge))
    }

    fn manage(&self, request: &CloudRequest, gate: &Gate) -> Reply {
        if let Err(quota) = gate.enter(request, "ResourceManager", SUBSCRIPTION, MANAGEMENT) {
            return problem(429, "TooManyRequests", "throttled").retry_after(quota);
        }
        let contents = self.contents.lock();
        let (all, kind): (Vec<Value>, &str) = if request.path.ends_with("/vaults") {
            (
                contents.vaults.keys().map(|address| self.vault(*address)).collect(),
                "Microsoft.KeyVault/vaults",
            )
        } else {
            (
                contents.vaults.keys().map(|address| self.gateway(*address)).collect(),
                "Microsoft.Network/applicationGateways",
            )
        };
        let token = request.query.get("$skiptoken").map(String::as_str);
        let Some((some, next)) = page(&all, token, None, 1_000, gate.page_max()) else {
            return problem(400, "InvalidSkipToken", "token");
        };
        let mut answer = json!({"value": some});
        if let Some(next) = next {
            answer["nextLink"] = format!(
                "https://127.0.0.1:{}/subscriptions/{SUBSCRIPTION}/providers/{kind}?api-version=2023-07-01&$skiptoken={next}",
                self.port()
            )
            .into();
        }
        Reply::json(200, &answer)
    }

    fn vault(&self, address: Ipv4Addr) -> Value {
        json!({"id": format!("/subscriptions/{SUBSCRIPTION}/vaults/{address}"), "name": address.to_string(),
            "properties": {"vaultUri": vault_url(address, self.port())}})
    }

    fn gateway(&self, address: Ipv4Addr) -> Value {
        let id = gateway_id(address);
        let certificate = format!("{id}/sslCertificates/web");
        let secret = format!("{}secrets/cert-0000", vault_url(address, self.port()));
        json!({"id": id, "properties": {
            "sslCertificates": [{"id": certificate, "properties": {"keyVaultSecretId": secret}}],
            "httpListeners": [{"properties": {"sslCertificate": {"id": certificate}, "hostName": "gw.example"}}]}})
    }

    fn list(&self, vault: &[StoredCertificate], url: &str, request: &CloudRequest, gate: &Gate) -> Reply {
        let pending = request.query.get("includePending").is_some_and(|value| value == "true");
        let all: Vec<Value> = vault
            .iter()
            .filter(|stored| pending || stored.minted.is_some())
            .map(|stored| {
                let mut item = json!({"id": format!("{url}certificates/{}", stored.name),
                    "attributes": attributes(stored), "tags": stored.tags});
                if let Some(minted) = &stored.minted {
                    item["x5t"] = URL_SAFE_NO_PAD.encode(crate::old_key::sha1(&minted.leaf)).into();
                }
                item
            })
            .collect();
        let requested_size = request.query.get("maxresults").and_then(|most| most.parse().ok());
        let token = request.query.get("$skiptoken").map(String::as_str);
        let Some((some, next)) = page(&all, token, requested_size, PAGE_MAX, gate.page_max().min(PAGE_MAX))
        else {
            return problem(400, "BadParameter", "skiptoken");
        };
        let size = requested_size.unwrap_or(PAGE_MAX);
        let next = next.map(|next| {
            format!("{url}certificates?api-version=7.5&includePending={pending}&maxresults={size}&$skiptoken={next}")
        });
        Reply::json(200, &json!({"value": some, "nextLink": next}))
    }
}

fn attributes(stored: &StoredCertificate) -> Value {
    let mut attributes = json!({"enabled": true, "created": 1_780_000_000, "updated": stored.updated,
        "recoveryLevel": "Recoverable"});
    if let Some(minted) = &stored.minted {
        attributes["nbf"] = minted.not_before.0.into();
        attributes["exp"] = minted.not_after.0.into();
    }
    attributes
}

impl Cloud for Azure {
    fn answer(&self, request: &CloudRequest, gate: &Gate) -> Reply {
        if let Err(challenge) = self.admit(request) {
            return challenge;
        }
        let address: Option<Ipv4Addr> =
            request.host.split(':').next().and_then(|address| address.parse().ok());
        if address == Some(Ipv4Addr::LOCALHOST) {
            return self.manage(request, gate);
        }
        let contents = self.contents.lock();
        let Some((address, vault)) =
            address.and_then(|address| Some((address, contents.vaults.get(&address)?)))
        else {
            return problem(404, "NotFound", "no such vault");
        };
        if let Err(quota) = gate.enter(request, "KeyVault", &address.to_string(), VAULT) {
            return problem(
                429,
                "Throttled",
                "Request was not processed because too many requests were received.",
            )
            .retry_after(quota);
        }
        let url = vault_url(address, self.port());
        let mut path = request.path.trim_start_matches('/').split('/');
        match (path.next(), path.next().filter(|name| !name.is_empty())) {
            (Some("certificates"), None) => self.list(vault, &url, request, gate),
            (Some("certificates"), Some(name)) => match vault.iter().find(|stored| stored.name == name) {
                Some(stored) => Reply::json(
                    200,
                    &json!({"id": format!("{url}certificates/{name}/0"), "attributes": attributes(stored),
                        "cer": stored.minted.as_ref().map(|minted| STANDARD.encode(&minted.leaf))}),
                ),
                None => problem(404, "CertificateNotFound", "A certificate with this name was not found."),
            },
            _ => problem(404, "NotFound", "no such resource"),
        }
    }
}

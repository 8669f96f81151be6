//! Simulated search services with the APIs of Cert Spotter (SSLMate's CT Search API v1) and crt.sh.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use data_encoding::HEXLOWER;
use parking_lot::RwLock;
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

use super::http::{CtCounts, Page, Quota, Server, Trouble};
use super::paper::IssuedPair;
use super::tree::sha256;
use crate::FleetError;

/// API of a simulated search service.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SearchKind {
    /// `/v1/issuances`: pages in the order of discovery, each issuance once, `after` as cursor, Retry-After on the last, empty
    /// page.
    CertSpotter,
    /// `/?q=…&output=json`: everything in one response, precertificate and certificate separately, no cursor.
    CrtSh,
}

/// Options of a simulated search service: API, rate limit, delay, page size and token.
#[derive(Clone, Debug)]
pub struct SearchOptions {
    /// API of the service.
    pub kind: SearchKind,
    /// Rate limit of requests.
    pub quota: Quota,
    /// Delay before every response.
    pub latency: Duration,
    /// Issuances per page; only for [`SearchKind::CertSpotter`].
    pub page: usize,
    /// The only valid token; `None`: no token is required.
    pub token: Option<String>,
}

impl SearchOptions {
    /// Returns options without a quota, delay or token.
    #[must_use]
    pub fn new(kind: SearchKind) -> Self {
        Self { kind, quota: Quota::default(), latency: Duration::ZERO, page: 100, token: None }
    }
}

/// A running simulated search service. Stops when dropped.
pub struct FakeSearchService {
    server: Server,
    issued: Arc<RwLock<Vec<IssuedPair>>>,
    asked: Arc<RwLock<HashMap<String, u64>>>,
}

impl FakeSearchService {
    /// Starts a service without issuances.
    ///
    /// # Errors
    /// [`FleetError`].
    pub async fn start(options: &SearchOptions) -> Result<Self, FleetError> {
        let issued: Arc<RwLock<Vec<IssuedPair>>> = Arc::default();
        let asked: Arc<RwLock<HashMap<String, u64>>> = Arc::default();
        let (of, count) = (issued.clone(), asked.clone());
        let (kind, page) = (options.kind, options.page);
        let bearer = options.token.as_ref().map(|token| format!("Bearer {token}"));
        let server = Server::start(options.quota, options.latency, move |asked| {
            let uri = asked.uri;
            if bearer.is_some() && bearer.as_deref() != asked.authorization {
                return json_error(401, "unauthorized", "the API token is missing or wrong");
            }
            let query = Query::parse(uri.query().unwrap_or_default());
            let domain = query.domain(kind);
            *count.write().entry(domain).or_default() += 1;
            match kind {
                SearchKind::CertSpotter if uri.path() == "/v1/issuances" => {
                    cert_spotter(&of.read(), &query, page)
                }
                SearchKind::CrtSh if uri.path() == "/" => crt_sh(&of.read(), &query),
                _ => Page::status(404, "not found\n"),
            }
        })
        .await?;
        Ok(Self { server, issued, asked })
    }

    /// Returns the URL, `http://127.0.0.1:PORT`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.server.address)
    }

    /// Adds issuances in the order of discovery.
    pub fn add(&self, pairs: &[IssuedPair]) {
        self.issued.write().extend_from_slice(pairs);
    }

    /// Returns the number of queries by domain.
    #[must_use]
    pub fn asked(&self) -> HashMap<String, u64> {
        self.asked.read().clone()
    }

    /// Queues faults: one for each of the next requests.
    pub fn trouble(&self, troubles: &[Trouble]) {
        self.server.trouble(troubles);
    }

    /// Returns the counters of connections, requests and throttled requests.
    #[must_use]
    pub fn counts(&self) -> CtCounts {
        self.server.counts()
    }

    /// Stops the service and waits until its tasks have ended.
    pub async fn stop(self) {
        self.server.stop().await;
    }
}

struct Query(Vec<(String, String)>);

impl Query {
    fn parse(query: &str) -> Self {
        let pair = |part: &str| {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            (name.to_owned(), percent_decode_str(&value.replace('+', " ")).decode_utf8_lossy().into_owned())
        };
        Self(query.split('&').map(pair).collect())
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }

    fn domain(&self, kind: SearchKind) -> String {
        let name = if kind == SearchKind::CertSpotter { "domain" } else { "q" };
        self.get(name).unwrap_or_default().trim_start_matches("%.").to_owned()
    }

    fn expands(&self, field: &str) -> bool {
        self.0.iter().any(|(name, value)| name == "expand" && value == field)
    }
}

/// Returns the issuances for `domain`, and for its subdomains if `below`.
fn matching<'p>(pairs: &'p [IssuedPair], domain: &str, below: bool) -> Vec<(usize, &'p IssuedPair)> {
    let now = crate::clock::now().0;
    let is = |name: &String| {
        let name = name.trim_start_matches("*.");
        name == domain || (below && name.ends_with(&format!(".{domain}")))
    };
    let found = |(_, pair): &(usize, &IssuedPair)| pair.not_after > now && pair.names.iter().any(is);
    pairs.iter().enumerate().filter(found).collect()
}

/// Creates an error response in the format of Cert Spotter.
fn json_error(status: u16, code: &str, message: &str) -> Page {
    Page {
        headers: vec![("content-type", "application/json".to_owned())],
        ..Page::status(status, &json!({ "code": code, "message": message }).to_string())
    }
}

fn cert_spotter(pairs: &[IssuedPair], query: &Query, page: usize) -> Page {
    let wrong = |code, message| json_error(400, code, message);
    let Some(domain) = query.get("domain").filter(|domain| domain.contains('.')) else {
        return wrong("invalid_domain", "domain must be a registered domain or below one");
    };
    let below = query.get("include_subdomains") == Some("true");
    // Ids are opaque to clients; a cursor must be one of the ids returned here.
    let after = match query.get("after").filter(|after| !after.is_empty()) {
        None => 0,
        Some(after) => match after.strip_prefix("ct").and_then(|n| n.parse::<usize>().ok()) {
            Some(after) => after,
            None => return wrong("invalid_after", "after is not the id of an issuance"),
        },
    };
    let found: Vec<Value> = matching(pairs, domain, below)
        .into_iter()
        .filter(|(at, _)| *at >= after)
        .take(page)
        .map(|(at, pair)| issuance(at, pair, query))
        .collect();
    let mut headers = vec![("content-type", "application/json".to_owned())];
    match found.last().and_then(|last| last["id"].as_str()) {
        Some(id) => {
            headers.push(("link", format!("</v1/issuances?domain={domain}&after={id}>; rel=\"next\"")))
        }
        // Seconds until the client should query again.
        None => headers.push(("retry-after", "3600".to_owned())),
    }
    let body = Value::from(found).to_string().into_bytes();
    Page { headers, empty: "[]", ..Page::ok("application/json", body) }
}

fn issuance(at: usize, pair: &IssuedPair, query: &Query) -> Value {
    let mut value = json!({
        "id": format!("ct{}", at + 1),
        "tbs_sha256": HEXLOWER.encode(&pair.tbs_sha256()),
        "cert_sha256": HEXLOWER.encode(&sha256(&pair.certificate)),
        "pubkey_sha256": HEXLOWER.encode(&pair.spki_sha256),
        "not_before": date(pair.not_before, "Z"),
        "not_after": date(pair.not_after, "Z"),
        "revoked": false,
    });
    if query.expands("dns_names") {
        value["dns_names"] = json!(pair.names);
    }
    if query.expands("issuer") {
        value["issuer"] = json!({
            "friendly_name": "Fleet CT", "name": pair.issuer_name, "caa_domains": ["ct.fleet.example"],
            "pubkey_sha256": HEXLOWER.encode(&pair.issuer_key_hash),
        });
    }
    if query.expands("cert_der") {
        value["cert_der"] = json!(STANDARD.encode(&pair.certificate));
    }
    value
}

fn crt_sh(pairs: &[IssuedPair], query: &Query) -> Page {
    if query.get("output") != Some("json") {
        return Page::status(200, "<html></html>");
    }
    let domain = query.domain(SearchKind::CrtSh);
    let mut rows = Vec::new();
    for (at, pair) in matching(pairs, &domain, true) {
        for (second, offset) in [(0, 1), (7, 0)] {
            // crt.sh returns the newest first and, without `deduplicate`, the certificate next to its precertificate.
            if offset == 1 && query.get("deduplicate") == Some("Y") {
                continue;
            }
            rows.push(json!({
                "issuer_ca_id": 7, "issuer_name": pair.issuer_name,
                "common_name": pair.names.first(), "name_value": pair.names.join("\n"),
                "id": 1_000_000 + 2 * at + offset,
                "entry_timestamp": date(pair.not_before + second, ".123"),
                "not_before": date(pair.not_before, ""), "not_after": date(pair.not_after, ""),
                "serial_number": pair.serial, "result_count": pair.names.len() + 1,
            }));
        }
    }
    rows.reverse();
    let headers = vec![("content-type", "application/json".to_owned())];
    let body = Value::from(rows).to_string().into_bytes();
    Page { headers, empty: "[]", ..Page::ok("application/json", body) }
}

fn date(seconds: i64, end: &str) -> String {
    let c = x509::UnixTime(seconds).civil();
    format!("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}{end}", c.year, c.month, c.day, c.hour, c.minute, c.second)
}

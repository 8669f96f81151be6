//! Whole ACME orders by the second, in one process with their clients:
//!
//! ```sh
//! cargo run --release -p authority --example acme_load -- postgres://… 20000 64 http
//! ```
//!
//! Arguments: the database's address, orders, clients at once, `trust` (no proof) or `http` (http-01 on loopback).

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use authority::acme::{Acme, AcmeOptions, DirectoryOptions, LimitOptions, ValidationOptions};
use authority::keystore::KeyStore;
use authority::profile::Profile;
use authority::tree::NewCa;
use authority::{Authority, AuthorityOptions, Peer};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::{Request, Response};
use keys::{KeyType, Keyring, PrivateKey, Signer as _};
use serde_json::{Value, json};
use store::{Clock, Store};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use x509::GeneralName;
use x509::build::{self, Extension};

const BASE: &str = "https://acme.test";

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, orders, clients, mode] = &arguments[..] else {
        return Err("give the database's address, orders, clients at once, and trust or http".into());
    };
    let (orders, clients): (u64, u64) = (orders.parse()?, clients.parse()?);
    let (acme, thumbprints) = (open(url, mode).await?, Arc::new(parking_lot::Mutex::new(String::new())));
    if mode == "http" {
        // One account, so every key authorization ends alike.
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 5_002)).await?;
        tokio::spawn(serve(listener, thumbprints.clone()));
    }
    let running = acme.clone();
    tokio::spawn(async move { running.run(std::future::pending()).await });
    let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING)?;
    let mut client = Client { acme, pair: Arc::new(pair), kid: String::new(), nonce: String::new() };
    client.register().await?;
    *thumbprints.lock() = client.thumbprint()?;
    let share = client.own_share(if mode == "http" { 6 } else { 3 })?;
    let (next, slowest) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (began, cpu) = (Instant::now(), cpu_seconds());
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..clients {
        let (mut client, next, slowest) = (client.clone(), next.clone(), slowest.clone());
        client.nonce.clear();
        tasks.spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= orders {
                    return Ok::<(), Failure>(());
                }
                let began = Instant::now();
                client.order(number).await?;
                slowest.fetch_max(began.elapsed().as_micros() as u64, Ordering::Relaxed);
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    let seconds = began.elapsed().as_secs_f64();
    println!(
        "{orders} orders in {seconds:.1} s: {:.0}/s, {:.0} µs CPU each, {share:.0} of them the client's, slowest {:.0} ms",
        orders as f64 / seconds,
        (cpu_seconds() - cpu) * 1e6 / orders as f64,
        slowest.load(Ordering::Relaxed) as f64 / 1_000.0,
    );
    Ok(())
}

async fn open(url: &str, mode: &str) -> Result<Acme, Failure> {
    let (store, clock) = (Store::open(&url.parse()?).await?, Clock::system());
    let keystore = KeyStore::new(store.clone(), Keyring::ephemeral(), clock.clone());
    let authority = Authority::open(store.clone(), keystore, clock.clone(), AuthorityOptions::default())?;
    let name = format!("root {}", clock.now_us());
    authority.create_root(&NewCa::root(&name, "CN=Load Root"), "user:load").await?;
    let names = json!({"dns_allowed": ["."], "ip_allowed": ["127.0.0.0/8"]});
    let mut profile = Profile::for_servers("default", serde_json::from_value(names)?);
    profile.ca = Some(name);
    authority.put_profile(profile, None, "user:load").await?;
    let directory = DirectoryOptions { trust_authenticated: mode == "trust", ..DirectoryOptions::default() };
    let options = AcmeOptions {
        base_url: BASE.to_owned(),
        directories: [("default".to_owned(), directory)].into(),
        limits: LimitOptions::none(),
        validation: ValidationOptions {
            allow_networks: vec!["127.0.0.0/8".parse()?],
            http_port: 5_002,
            ..ValidationOptions::for_tests()
        },
        ..AcmeOptions::default()
    };
    Ok(Acme::new(authority, store, clock, options)?)
}

/// Answers every http-01 request with the token it asks for.
async fn serve(listener: TcpListener, thumbprint: Arc<parking_lot::Mutex<String>>) {
    while let Ok((mut stream, _)) = listener.accept().await {
        let thumbprint = thumbprint.lock().clone();
        tokio::spawn(async move {
            let mut head = [0; 2_048];
            let length = stream.read(&mut head).await.unwrap_or(0);
            let head = String::from_utf8_lossy(&head[..length]).into_owned();
            let token = head.split(' ').nth(1).and_then(|path| path.rsplit('/').next()).unwrap_or_default();
            let body = format!("{token}.{thumbprint}");
            let length = body.len();
            let answer =
                format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}");
            let _ = stream.write_all(answer.as_bytes()).await;
        });
    }
}

#[derive(Clone)]
struct Client {
    acme: Acme,
    pair: Arc<EcdsaKeyPair>,
    kid: String,
    nonce: String,
}

impl Client {
    fn jwk(&self) -> Value {
        let (x, y) = self.pair.public_key().as_ref()[1..].split_at(32);
        json!({"kty": "EC", "crv": "P-256", "x": b64(x), "y": b64(y)})
    }

    fn thumbprint(&self) -> Result<String, Failure> {
        Ok(authority::acme::jose::AccountKey::from_jwk(&self.jwk())?.thumbprint_text())
    }

    async fn send(&mut self, request: Request<Bytes>) -> Result<Response<Bytes>, Failure> {
        let response = self.acme.handle(request, &Peer::local()).await;
        self.nonce = response.headers()["replay-nonce"].to_str()?.to_owned();
        if !response.status().is_success() {
            return Err(String::from_utf8_lossy(response.body()).into_owned().into());
        }
        Ok(response)
    }

    async fn post(&mut self, url: &str, payload: &str) -> Result<Response<Bytes>, Failure> {
        if self.nonce.is_empty() {
            self.send(Request::head("/acme/new-nonce").body(Bytes::new())?).await?;
        }
        let request = self.request(url, payload)?;
        self.send(request).await
    }

    fn request(&self, url: &str, payload: &str) -> Result<Request<Bytes>, Failure> {
        let mut header = json!({"alg": "ES256", "nonce": self.nonce, "url": url});
        match self.kid.as_str() {
            "" => header["jwk"] = self.jwk(),
            kid => header["kid"] = json!(kid),
        }
        let input = format!("{}.{}", b64(header.to_string()), b64(payload));
        let signature = self.pair.sign(&SystemRandom::new(), input.as_bytes())?;
        let (protected, payload) = input.split_once('.').unwrap_or_default();
        let body = json!({"protected": protected, "payload": payload, "signature": b64(signature)});
        let request = Request::post(url.strip_prefix(BASE).unwrap_or(url));
        Ok(request.header("content-type", "application/jose+json").body(body.to_string().into())?)
    }

    /// What an order costs its client, µs of CPU.
    fn own_share(&self, requests: u32) -> Result<f64, Failure> {
        const TIMES: u32 = 500;
        let began = cpu_seconds();
        for _ in 0..TIMES {
            for _ in 0..requests {
                self.request(&format!("{BASE}/acme/new-order"), &"x".repeat(200))?;
            }
            certificate_request(IpAddr::V4(Ipv4Addr::LOCALHOST))?;
        }
        Ok((cpu_seconds() - began) * 1e6 / f64::from(TIMES))
    }

    async fn json(&mut self, url: &str, payload: &str) -> Result<Value, Failure> {
        Ok(serde_json::from_slice(self.post(url, payload).await?.body())?)
    }

    async fn register(&mut self) -> Result<(), Failure> {
        let made = self.post(&format!("{BASE}/acme/new-account"), "{}").await?;
        self.kid = made.headers()["location"].to_str()?.to_owned();
        Ok(())
    }

    async fn order(&mut self, number: u64) -> Result<(), Failure> {
        let [_, a, b, c] = (number as u32).to_be_bytes();
        let address = IpAddr::from([127, a.saturating_add(1), b, c]);
        let identifier = json!({"identifiers": [{"type": "ip", "value": address}]}).to_string();
        let order = self.json(&format!("{BASE}/acme/new-order"), &identifier).await?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let authorization = text(&order["authorizations"][0]);
        if order["status"] == "pending" {
            let found = self.json(&authorization, "").await?;
            self.post(&text(&found["challenges"][0]["url"]), "{}").await?;
            // Real clients wait for seconds.
            let mut wait = Duration::from_millis(50);
            loop {
                tokio::time::sleep(wait).await;
                if self.json(&authorization, "").await?["status"] != "pending" {
                    break;
                }
                wait *= 2;
            }
        }
        let csr = certificate_request(address)?;
        let done = self.json(&text(&order["finalize"]), &json!({"csr": b64(csr)}).to_string()).await?;
        if done["status"] != "valid" {
            return Err(done.to_string().into());
        }
        self.post(&text(&done["certificate"]), "").await?;
        Ok(())
    }
}

/// With a key of its own.
fn certificate_request(address: IpAddr) -> Result<Vec<u8>, Failure> {
    let key = PrivateKey::generate(KeyType::P256)?;
    let extensions = [Extension::subject_alt_names(&[GeneralName::Ip(address)], true)];
    let tbs = x509::csr::tbs(&x509::DistinguishedName::empty().der, key.spki(), &extensions, None);
    Ok(build::signed(&tbs, &key.algorithm(), &key.sign_now(&tbs)?))
}

fn b64(octets: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(octets)
}

/// Of this process, from /proc: user and system time in ticks of 10 ms.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after = stat.rsplit(')').next().unwrap_or_default();
    let ticks: Vec<f64> =
        after.split_whitespace().skip(11).take(2).filter_map(|field| field.parse().ok()).collect();
    ticks.iter().sum::<f64>() / 100.0
}

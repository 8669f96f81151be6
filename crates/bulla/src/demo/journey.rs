//! The demo's steps for one certificate: found, claimed, renewed, deployed, served without its key, and called with a credential
//! that the client never sees.

use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use cli::exit::{Exit, Outcome, Problem, chain};
use outbound::Deadline;
use outbound::tls::Connector;
use serde_json::{Value, json};

use super::demo_folder::DemoFolder;
use super::fixtures::{NAMES, Receiver};
use super::servers::DemoServer;

/// The longest wait for one effect, such as an alert. A machine under load may be slow.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Pause between two checks of a condition.
const PAUSE: Duration = Duration::from_millis(100);
const SECRET: &str = "a-credential-of-the-demo";
const OWNER: &str = "shop-team";

/// The parts of the demo that the steps use.
pub(super) struct DemoContext<'a> {
    pub(super) demo_folder: &'a DemoFolder,
    pub(super) shop: &'a DemoServer,
    /// Receiver of the alert webhooks.
    pub(super) webhook: &'a Receiver,
    /// The server behind the terminator.
    pub(super) upstream: &'a Receiver,
    /// Number of endpoints of the simulated estate.
    pub(super) endpoints: usize,
}

/// Runs a step. Prints its result and duration.
pub(super) async fn step(work: impl Future<Output = Outcome<String>>) -> Outcome<()> {
    let began = Instant::now();
    let text = Box::pin(work).await?;
    eprintln!("  \u{2713} {:>5.1} s  {text}", began.elapsed().as_secs_f64());
    Ok(())
}

/// Waits until a condition holds.
async fn wait_until(what: &str, mut holds: impl AsyncFnMut() -> Outcome<bool>) -> Outcome<()> {
    let deadline = Instant::now() + TIMEOUT;
    while !Box::pin(holds()).await? {
        if Instant::now() > deadline {
            let seconds = TIMEOUT.as_secs();
            return Err(Problem::new(
                Exit::Incomplete,
                format_args!("{what}: not complete within {seconds} s"),
            ));
        }
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}

/// Returns a field of a document, as text.
fn text<'a>(document: &'a Value, pointer: &str) -> Outcome<&'a str> {
    document
        .pointer(pointer)
        .and_then(Value::as_str)
        .ok_or_else(|| Problem::new(Exit::Machine, format_args!("no text at {pointer} of {document}")))
}

impl DemoContext<'_> {
    pub(super) async fn run(&self) -> Outcome<()> {
        step(self.wait_for_estate_scan()).await?;
        let mut raised = Value::Null;
        step(async {
            raised = self.wait_for_rogue_alert().await?;
            Ok(format!(
                "found an unknown certificate of {}: it expires in 2 days; alert sent to a webhook",
                NAMES[0]
            ))
        })
        .await?;
        step(self.claim_certificate()).await?;
        step(self.renew_and_deploy()).await?;
        step(self.wait_for_alert_resolved(&raised)).await?;
        step(self.move_key_to_service()).await?;
        step(self.call_api()).await?;
        step(self.verify_audit_log()).await
    }

    /// Waits until a watch has scanned the simulated estate.
    async fn wait_for_estate_scan(&self) -> Outcome<String> {
        let demo_folder = self.demo_folder;
        demo_folder.run_checked(&["watch", "add", "estate", "@estate.txt", "--every", "1h"]).await?;
        let mut counts = Value::Null;
        wait_until("the scan of the estate", async || {
            let watch = demo_folder.json(&["watch", "show", "estate"]).await?;
            counts = watch["last_run"]["counts"].clone();
            Ok(watch["last_run"].is_object())
        })
        .await?;
        let number = |name: &str| counts[name].as_u64().unwrap_or_default();
        let worst = &counts["worst_findings"];
        let severe = ["critical", "high"].iter().filter_map(|name| worst[name].as_u64()).sum::<u64>();
        Ok(format!(
            "scanned a simulated estate of {} endpoints: {} new certificates, {severe} endpoints with critical or high findings",
            self.endpoints,
            number("new_certificates"),
        ))
    }

    /// Waits until a watch has found the shop's certificate. Returns the alert that a webhook received.
    async fn wait_for_rogue_alert(&self) -> Outcome<Value> {
        let demo_folder = self.demo_folder;
        let hook = format!("http://127.0.0.1:{}/", self.webhook.port);
        let config = json!({ "type": "webhook", "url": hook, "secret": "0123456789abcdef" });
        demo_folder
            .run_with_input(&["alert", "channel", "create"], &json!({ "name": "team", "config": config }))
            .await?;
        let rule = json!({ "name": "all", "rule": { "channels": ["team"] } });
        demo_folder.run_with_input(&["alert", "rule", "create"], &rule).await?;
        let target = format!("127.0.0.1:{}", self.shop.port);
        demo_folder.run_checked(&["watch", "add", "shop", &target, "--every", "1h"]).await?;
        let fingerprint = self.shop_certificate_sha256()?;
        let raised = || {
            self.webhook.messages().into_iter().find(|message| {
                message["kind"] == "certificate.expiring"
                    && message["reason"] == "raised"
                    && message.to_string().contains(&fingerprint)
            })
        };
        wait_until("the alert at the webhook", async || Ok(raised().is_some())).await?;
        Ok(raised().unwrap_or_default())
    }

    /// Returns the SHA-256 hash of the certificate in the shop's file.
    fn shop_certificate_sha256(&self) -> Outcome<String> {
        let chain = crate::files::certificates("the shop", &self.shop.chain)?;
        let leaf = chain.first().map(|der| x509::Fingerprint::of(der).to_string());
        Ok(leaf.unwrap_or_default())
    }

    async fn claim_certificate(&self) -> Outcome<String> {
        let found = self.shop_certificate_sha256()?;
        self.demo_folder.run_checked(&["cert", "claim", &found, "--owner", OWNER]).await?;
        Ok(format!("claimed: {} is managed now, its owner is {OWNER}", NAMES[0]))
    }

    /// Renews the certificate with Bulla's CA. The agent of this host deploys it to the shop.
    async fn renew_and_deploy(&self) -> Outcome<String> {
        let demo_folder = self.demo_folder;
        let agents = demo_folder.json(&["agent", "list"]).await?;
        let agent = text(&agents, "/rows/0/id")?;
        let document = json!({
            "name": "shop", "agent": agent,
            "target": {
                "type": "files",
                "fullchain": { "path": self.shop.chain },
                "key": { "path": self.shop.key },
                "verify": { "port": self.shop.port, "server_name": NAMES[0] },
            }
        });
        let target = demo_folder.run_with_input(&["target", "create"], &document).await?;
        let target = text(&target, "/id")?;
        self.allow().await?;
        let change = json!({ "targets": [{ "kind": "deploy", "target": target, "agent": agent }] });
        demo_folder.write("change.json", &change.to_string())?;
        // Retry, because the command fails if the lifecycle changes the certificate at the same time.
        wait_until("the change of the certificate", async || {
            let updated = demo_folder.output(&["cert", "update", NAMES[0], "--file", "change.json"]).await?;
            Ok(updated.status.success())
        })
        .await?;
        demo_folder.run_checked(&["cert", "renew", NAMES[0]]).await?;
        wait_until("the deployment", async || {
            let shown = demo_folder.json(&["cert", "show", NAMES[0]]).await?;
            Ok(shown["status"] == "active" && shown["served_status"] == "newest")
        })
        .await?;
        Ok("renewed by Bulla's CA, deployed by the agent of this host, and verified on the endpoint"
            .to_owned())
    }

    /// Adds the files of the target to the policy of this host.
    async fn allow(&self) -> Outcome<()> {
        let demo_folder = self.demo_folder;
        let (policy, state) = (
            demo_folder.path("agent.toml").display().to_string(),
            demo_folder.path("data/agent").display().to_string(),
        );
        let check = ["agent", "policy", "check", "--policy", &policy, "--state", &state, "--lines"];
        let lines = demo_folder.run_checked(&check).await?;
        let before = demo_folder.read("agent.toml")?;
        demo_folder.write("agent.toml", &format!("{before}{lines}"))
    }

    async fn wait_for_alert_resolved(&self, raised: &Value) -> Outcome<String> {
        wait_until("the resolution of the alert", async || {
            let resolved = self.demo_folder.json(&["alert", "list", "--state", "resolved"]).await?;
            let rows = resolved["rows"].as_array();
            Ok(rows.is_some_and(|rows| rows.iter().any(|alert| alert["id"] == raised["alert"])))
        })
        .await?;
        Ok("the alert is resolved".to_owned())
    }

    /// Moves the key to the key service, so that the terminator serves the certificate.
    async fn move_key_to_service(&self) -> Outcome<String> {
        let demo_folder = self.demo_folder;
        wait_until("the key policy", async || {
            let made =
                demo_folder.output(&["key", "policy", "create", "here", "site: local", "--yes"]).await?;
            Ok(made.status.success())
        })
        .await?;
        demo_folder.run_checked(&["cert", "export", NAMES[0], "--key", "--file", "shop.pem"]).await?;
        let pem = demo_folder.read("shop.pem")?;
        let begin = pem.find("-----BEGIN PRIVATE KEY").unwrap_or_default();
        let end = "-----END PRIVATE KEY-----\n";
        let key: String = pem[begin..].split_inclusive(end).take(1).collect();
        demo_folder.write("shop.key", &key)?;
        demo_folder.run_checked(&["key", "seal", "--policy", "here", "--key", "shop.key"]).await?;
        for name in ["shop.pem", "shop.key"] {
            demo_folder.write(name, "")?;
        }
        let root = crate::files::certificates("the root", &demo_folder.path("data/root.pem"))?;
        let connector =
            Connector::with_roots(root).map_err(|error| Problem::new(Exit::Machine, chain(&error)))?;
        let edge = SocketAddr::from((Ipv4Addr::LOCALHOST, demo_folder.edge_port));
        wait_until("the terminator", async || {
            Ok(connector.connect(edge, NAMES[0], Deadline::within(TIMEOUT)).await.is_ok())
        })
        .await?;
        Ok("the key is encrypted to the key service; the TLS terminator serves the certificate without its key"
            .to_owned())
    }

    /// Calls the shop's API at the terminator, through the proxy, which injects a credential.
    async fn call_api(&self) -> Outcome<String> {
        let demo_folder = self.demo_folder;
        demo_folder.write("value", SECRET)?;
        demo_folder
            .run_checked(&["credential", "set", "/shop/api", "--type", "password", "--file", "value"])
            .await?;
        demo_folder.write("value", "")?;
        let failed = |error: reqwest::Error| Problem::new(Exit::Incomplete, chain(&error));
        let ca = reqwest::Certificate::from_pem(demo_folder.read("data/proxy-ca.pem")?.as_bytes())
            .map_err(failed)?;
        let proxy =
            reqwest::Proxy::all(format!("http://127.0.0.1:{}", demo_folder.proxy_port)).map_err(failed)?;
        let client = reqwest::Client::builder().proxy(proxy).tls_certs_only([ca]).timeout(TIMEOUT);
        let url = format!("https://localhost:{}/api/stock", demo_folder.edge_port);
        let response = client.build().map_err(failed)?.get(url).send().await.map_err(failed)?;
        let status = response.status();
        let heads = self.upstream.heads();
        let head = heads.iter().find(|head| head.starts_with("GET /api/stock "));
        let injected = head.is_some_and(|head| head.contains(&format!("Bearer {SECRET}")));
        if !status.is_success() || !injected {
            let problem_text =
                format!("the call through the proxy: status {status}, credential injected: {injected}");
            return Err(Problem::new(Exit::Incomplete, problem_text));
        }
        Ok("called through the proxy, which injected a credential that the client never sees".to_owned())
    }

    async fn verify_audit_log(&self) -> Outcome<String> {
        let verified = self.demo_folder.json(&["audit", "verify"]).await?;
        if verified["good"] != true {
            return Err(Problem::new(Exit::Incomplete, format_args!("the audit log: {verified}")));
        }
        Ok("every step is in the audit log, whose hash chain is verified".to_owned())
    }
}

//! Certificate Transparency monitoring of domains: search services, logs, verdicts, alerts.

use std::time::Duration;

use fleet::ct::{CtAuthority, CtLog, CtLogOptions, FakeSearchService, IssuedPair, SearchKind, SearchOptions};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::House;
use crate::world::{describe, run};

const DAY: i64 = x509::DAY;
const DOMAIN: &str = "ours.example";

/// A fake search service with the Cert Spotter API, and its runtime.
struct Fake {
    search: FakeSearchService,
    runtime: Runtime,
}

impl Fake {
    fn start() -> Self {
        let runtime = Runtime::new().unwrap();
        let search = runtime.block_on(FakeSearchService::start(&SearchOptions::new(SearchKind::CertSpotter)));
        Self { search: search.unwrap(), runtime }
    }

    /// The server queries only this service, and gives verdicts immediately.
    fn configuration(&self) -> String {
        let url = self.search.url();
        format!(
            "[ct]\ncertspotter_url = {url:?}\ncertspotter_per_minute = 600\ncrtsh_url = \"\"\ngrace_s = 0\n\
             checkpoint_s = 1\n"
        )
    }

    fn asked(&self, domain: &str) -> u64 {
        self.search.asked().get(domain).copied().unwrap_or_default()
    }
}

fn now() -> i64 {
    store::Clock::system().now_seconds()
}

/// Returns whether a service has delivered everything for a domain, and no query is running.
fn settled(house: &House, domain: &str) -> bool {
    let shown = house.json(&["ct", "show", domain]);
    let search = &shown["searches"][0];
    search["state"] == "planned" && search["baseline_at"].is_string()
}

fn alerts(house: &House, state: &str) -> Vec<Value> {
    let listed = house.json(&["alert", "list", "--state", state]);
    let of_ct = |one: &&Value| one["kind"].as_str().is_some_and(|kind| kind.starts_with("ct."));
    listed["rows"].as_array().unwrap().iter().filter(of_ct).cloned().collect()
}

fn issuances(house: &House, verdict: &str) -> Vec<Value> {
    let listed = house.json(&["ct", "issuances", "--domain", DOMAIN, "--verdict", verdict, "--since", "1d"]);
    listed["rows"].as_array().unwrap().clone()
}

#[test]
fn unexpected_ct_issuance_alerts_until_acknowledged_or_expected() {
    let fake = Fake::start();
    let (ours, other) = (CtAuthority::new(1).unwrap(), CtAuthority::new(2).unwrap());
    let old = ours.issue(&["www.ours.example"], now() - 60 * DAY, 90).unwrap();
    fake.search.add(&[old]);
    let mut house = House::up_with(&fake.configuration(), None);
    let below = run(&mut house.bulla(&["ct", "add", "www.ours.example"]));
    assert_eq!(below.status.code(), Some(6), "{}", describe(&below));
    house.does(&["ct", "add", DOMAIN]);
    house.until("the baseline", || settled(&house, DOMAIN));
    let baseline = issuances(&house, "expected");
    assert_eq!(baseline.len(), 1, "{baseline:?}");
    assert_eq!(baseline[0]["reason"], "baseline");
    let asked = fake.asked(DOMAIN);
    assert_eq!(asked, 2, "a page, and the end");

    // A renewal of the known certificate, and two unknown certificates.
    let renewed = ours.issue(&["www.ours.example"], now(), 90).unwrap();
    let foreign = other.issue(&["login.ours.example"], now(), 90).unwrap();
    let bought = other.issue(&["shop.ours.example"], now(), 90).unwrap();
    fake.search.add(&[renewed, foreign.clone(), bought]);
    house.does(&["ct", "run", DOMAIN]);
    house.until("the alerts", || alerts(&house, "open").len() == 2);
    let mut unexpected = issuances(&house, "unexpected");
    assert_eq!(unexpected.len(), 2, "{unexpected:?}");
    assert!(issuances(&house, "expected").iter().any(|one| !one["reason"]["renewal"].is_null()));
    unexpected.sort_by_key(|one| one["names"].to_string());
    let serial: x509::SerialNumber = foreign.serial.parse().unwrap();
    assert_eq!(unexpected[0]["serial"], serial.to_string());
    let id = |one: &Value| one["id"].as_str().unwrap().to_owned();
    let alert = alerts(&house, "open")
        .into_iter()
        .find(|alert| alert["subject"] == format!("ct-issuance/{}", id(&unexpected[0])))
        .unwrap();
    assert_eq!((&alert["kind"], &alert["severity"]), (&json!("ct.unexpected_issuance"), &json!("high")));
    let shown = house.json(&["ct", "issuance", &id(&unexpected[0])]);
    assert_eq!(shown["domains"], json!([DOMAIN]));
    assert!(shown["der"].as_str().is_some_and(|der| der.len() > 300), "{shown}");

    house.does(&["ct", "acknowledge", &id(&unexpected[0]), "--reason", "revoked by its issuer"]);
    house.until("one alert's end", || alerts(&house, "open").len() == 1);
    house.does(&["ct", "expect", &id(&unexpected[1]), "--reason", "bought by the shop"]);
    house.until("the other's end", || alerts(&house, "open").is_empty());
    assert_eq!(alerts(&house, "resolved").len(), 2);
    let repeated = run(&mut house.bulla(&["ct", "acknowledge", &id(&unexpected[0]), "--reason", "again"]));
    assert_eq!(repeated.status.code(), Some(6), "{}", describe(&repeated));
    // A certificate marked as expected makes its renewals expected. An acknowledged one does not.
    let early = other.issue(&["login.ours.example"], now(), 90).unwrap();
    let late = other.issue(&["shop.ours.example"], now() + 60 * DAY, 90).unwrap();
    fake.search.add(&[early, late]);

    // A restart keeps the cursor: one query for its page, one for the end.
    house.until("rest", || settled(&house, DOMAIN));
    let asked = fake.asked(DOMAIN);
    assert_eq!(house.stop(), Some(0));
    house.start();
    house.does(&["ct", "run", DOMAIN]);
    house.until("the second alert", || alerts(&house, "open").len() == 1);
    house.until("rest", || settled(&house, DOMAIN));
    assert_eq!(fake.asked(DOMAIN), asked + 2);
    assert_eq!(issuances(&house, "unexpected")[0]["names"], json!(["login.ours.example"]));
    house.does(&["ct", "run", DOMAIN]);
    house.until("another question", || fake.asked(DOMAIN) == asked + 3 && settled(&house, DOMAIN));

    let metrics = house.does(&["api", "/metrics"]);
    let metrics = String::from_utf8(metrics.stdout).unwrap();
    assert!(metrics.contains("bulla_ct_domains{} 1"), "{metrics}");
    assert!(
        metrics.contains("bulla_ct_questions_total{service=\"certspotter\",outcome=\"answered\"} 3"),
        "{metrics}"
    );
    house.does(&["ct", "remove", DOMAIN]);
    assert_eq!(house.json(&["ct", "list"])["rows"], json!([]));
    let verified = house.json(&["audit", "verify"]);
    assert_eq!(verified["good"], Value::Bool(true), "{verified}");
}

/// Converts one of the server's certificates to the form of the search service.
fn issued_pair(der: &[u8]) -> IssuedPair {
    let certificate = x509::Certificate::parse(der).unwrap();
    IssuedPair {
        precertificate: der.to_vec(),
        certificate: der.to_vec(),
        tbs: x509::sct::logged_tbs(certificate.tbs()).unwrap(),
        issuer_key_hash: [0; 32],
        issuer: Vec::new(),
        issuer_name: certificate.issuer.text.clone(),
        serial: certificate.serial.to_string(),
        names: vec!["shop.example".to_owned()],
        not_before: certificate.not_before.0,
        not_after: certificate.not_after.0,
        spki_sha256: *certificate.public_key.spki_sha256.as_bytes(),
    }
}

#[test]
fn renewal_of_a_managed_certificate_is_expected_in_ct() {
    let fake = Fake::start();
    let house = House::up_with(&fake.configuration(), None);
    let newest = || {
        let pem = house.does(&["cert", "export", "shop.example"]).stdout;
        x509::pem::certificates(&pem).next().unwrap().1
    };
    let current = || house.json(&["cert", "show", "shop.example"])["current"]["fingerprint"].clone();
    house.does(&["cert", "create", "shop.example"]);
    house.until("the first version", || current().is_string());
    let first = current();
    fake.search.add(&[issued_pair(&newest())]);
    house.does(&["ct", "add", "shop.example"]);
    house.until("the baseline", || settled(&house, "shop.example"));
    house.does(&["cert", "renew", "shop.example"]);
    house.until("the second version", || current() != first);
    fake.search.add(&[issued_pair(&newest())]);
    house.does(&["ct", "run", "shop.example"]);
    let reasons = || {
        let listed = house.json(&["ct", "issuances", "--domain", "shop.example", "--verdict", "expected"]);
        let rows = listed["rows"].as_array().unwrap().clone();
        rows.into_iter().map(|row| row["reason"].clone()).collect::<Vec<_>>()
    };
    house.until("the verdict", || reasons().len() == 2);
    assert_eq!(reasons(), [json!({"known": "managed"}), json!("baseline")]);
    assert!(alerts(&house, "open").is_empty());
}

#[test]
fn two_servers_do_not_query_ct_services_twice() {
    /// Enough domains for both servers to work on several concurrently.
    const DOMAINS: usize = 20;
    let fake = Fake::start();
    let authority = CtAuthority::new(1).unwrap();
    let domains: Vec<String> = (0..DOMAINS).map(|n| format!("n{n}.example")).collect();
    for domain in &domains {
        fake.search.add(&[authority.issue(&[domain], now() - DAY, 90).unwrap()]);
    }
    let cluster = store::testing::Cluster::start();
    let database = cluster.database().to_string();
    let one = House::up_with(&fake.configuration(), Some(database.clone()));
    let key = one.path("data/master.key");
    let shared = format!("{}[authority]\nmaster_key_file = {key:?}\n", fake.configuration());
    let mut other = House::up_with(&shared, Some(database));
    for domain in &domains {
        one.does(&["ct", "add", domain]);
    }
    let states = || {
        let status = one.json(&["ct", "status", "--all"]);
        status["rows"].as_array().unwrap().iter().filter(|row| row["baseline_at"].is_string()).count()
    };
    one.until("all baselines", || states() == DOMAINS);
    for domain in &domains {
        assert_eq!(fake.asked(domain), 2, "{domain}: a page, and the end");
    }
    let listed = one.json(&["ct", "issuances", "--all"]);
    assert_eq!(listed["rows"].as_array().unwrap().len(), DOMAINS, "each once");
    // When one server stops, the other continues its work, without extra queries.
    assert_eq!(other.stop(), Some(0));
    one.does(&["ct", "run", &domains[0]]);
    one.until("one more question", || fake.asked(&domains[0]) == 3);
    assert_eq!(domains[1..].iter().map(|domain| fake.asked(domain)).max(), Some(2));
}

#[test]
fn ct_log_is_followed_and_a_rollback_raises_an_alert() {
    let fake = Fake::start();
    let log = fake.runtime.block_on(CtLog::start(&CtLogOptions::default())).unwrap();
    let authority = CtAuthority::new(1).unwrap();
    let others = authority.issue(&["www.others.example"], now(), 90).unwrap();
    let add = |count: usize| {
        (0..count).for_each(|_| log.add_certificate(&others));
        log.advance_clock(Duration::from_secs(1));
        log.publish().unwrap();
    };
    add(300);
    let mut house = House::prepared("", None);
    std::fs::write(house.path("logs.json"), log.log_list()).unwrap();
    let list = house.path("logs.json");
    house.configure(&format!(
        "[ct]\ncertspotter_url = \"\"\ncrtsh_url = \"\"\ngrace_s = 0\ncheckpoint_s = 1\nlog_list_files = [{list:?}]\n"
    ));
    house.start();
    house.does(&["ct", "add", DOMAIN, "--service", "logs"]);
    let row = |house: &House| house.json(&["ct", "logs"])["rows"][0].clone();
    house.until("the log's end", || row(&house)["next_entry"] == 300);
    let ours = authority.issue(&["www.ours.example"], now(), 90).unwrap();
    log.add_precertificate(&ours);
    log.add_certificate(&ours);
    add(300);
    house.until("the alert", || alerts(&house, "open").len() == 1);
    assert_eq!(issuances(&house, "unexpected").len(), 1, "precertificate and certificate are one");
    house.until("both full tiles", || row(&house)["next_entry"] == 512);
    // A graceful stop releases the log. The restarted server continues at the same entry.
    assert_eq!(house.stop(), Some(0));
    house.start();
    log.advance_clock(Duration::from_secs(60));
    log.roll_back(100).unwrap();
    let inconsistent =
        |state: &str| alerts(&house, state).into_iter().find(|one| one["kind"] == "ct.log_inconsistent");
    house.until("the alarm", || inconsistent("open").is_some());
    let alert = inconsistent("open").unwrap();
    assert_eq!(alert["severity"], "critical");
    let shown = row(&house);
    assert_eq!((&shown["state"], &shown["alarm"]), (&json!("inconsistent"), &json!("rolled-back")));
    assert_eq!((&shown["tree_size"], &shown["next_entry"]), (&json!(602), &json!(512)), "the place holds");
    assert!(shown["evidence"]["old"].is_string() && shown["evidence"]["new"].is_string(), "{shown}");
    house.does(&["ct", "forget-log", shown["id"].as_str().unwrap()]);
    house.until("its end", || inconsistent("resolved").is_some());
    house.until("a new beginning", || row(&house)["tree_size"] == 100);
    drop(fake);
}

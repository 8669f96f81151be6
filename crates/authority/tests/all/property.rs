//! Property test: no certificate violates its profile, whatever is requested. The rules are implemented a second time here, as
//! simply as possible.

use authority::issue::{IssueRequest, Source};
use authority::profile::Profile;
use keys::{KeyType, PrivateKey, Signer};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};
use x509::{Certificate, DistinguishedName, GeneralName, KeyUsage, UnixTime};

use crate::office::{Office, options};

const KINDS: [KeyType; 4] = [KeyType::P256, KeyType::P384, KeyType::Ed25519, KeyType::Rsa2048];
/// The number of cases: each is a profile and a request on one database.
const CASES: u32 = 1_500;
/// The minimum number of cases that must issue a certificate. A test in which all requests are refused tests nothing.
const ISSUED_MIN: u32 = 150;

#[derive(Clone, Debug)]
struct Case {
    profile: Value,
    suffixes: Vec<Suffix>,
    denied: Option<String>,
    key_types: Vec<KeyType>,
    names: Vec<String>,
    key: usize,
    subject: Option<String>,
    lifetime: Option<i64>,
    starts_in: Option<i64>,
    must_staple: bool,
}

#[derive(Clone, Debug)]
struct Suffix {
    name: String,
    itself: bool,
    depth_max: usize,
    wildcards: bool,
}

fn label() -> impl Strategy<Value = String> {
    "[ab]"
}

fn host() -> impl Strategy<Value = String> {
    prop::collection::vec(label(), 1..4).prop_map(|labels| labels.join("."))
}

fn requested_name() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => host(),
        2 => host().prop_map(|host| format!("*.{host}")),
        1 => (0..4_u8, 0..4_u8).prop_map(|(a, b)| format!("10.{a}.0.{b}")),
        1 => label().prop_map(|label| format!("spiffe://td/{label}")),
        1 => label().prop_map(|label| format!("{label}@a")),
    ]
}

fn suffix() -> impl Strategy<Value = Suffix> {
    (prop_oneof![2 => label(), 1 => host()], any::<bool>(), 0..4_usize, any::<bool>()).prop_map(
        |(name, itself, depth_max, wildcards)| Suffix {
            name,
            itself: itself || (depth_max == 0 && !wildcards),
            depth_max,
            wildcards,
        },
    )
}

fn case() -> impl Strategy<Value = Case> {
    let profile = (
        prop::collection::vec(suffix(), 0..4),
        prop::option::of(host()),
        prop::sample::subsequence(KINDS.to_vec(), 2..=4),
        (600..100_000_i64, prop::option::of(0..100_000_i64)),
        prop::sample::select(vec!["none", "first-name", "requested", "any"]),
        prop::sample::select(vec!["never", "on-request", "always"]),
        prop::option::of(Just("O=Fixed")),
        any::<[bool; 5]>(),
    );
    let request = (
        prop::collection::vec(requested_name(), 0..3),
        0..KINDS.len(),
        prop::option::weighted(0.3, prop_oneof![host(), Just("Somebody Else".to_owned())]),
        prop::option::weighted(0.3, 1..100_000_i64),
        prop::option::weighted(0.3, -120..3_000_000_i64),
        any::<bool>(),
        // Some names use a suffix of the profile. Otherwise most requests would be refused.
        prop::option::weighted(0.7, (any::<prop::sample::Index>(), 0..3_usize, any::<bool>())),
    );
    (profile, request).prop_map(|(profile, (mut names, key, subject, lifetime, starts_in, must_staple, own))| {
        let (suffixes, denied, key_types, (default, more), common_name, staple, fixed, flags) = profile;
        if let Some((index, depth, star)) = own
            && !suffixes.is_empty()
        {
            let labels = ["*.", "a.", "b."];
            let head: String = labels[usize::from(!star)..].iter().take(depth).copied().collect();
            names = vec![format!("{head}{}", index.get(&suffixes).name)];
        }
        let dns: Vec<Value> = suffixes
            .iter()
            .map(|suffix| {
                json!({ "suffix": suffix.name, "itself": suffix.itself, "depth_max": suffix.depth_max,
                        "wildcards": suffix.wildcards })
            })
            .collect();
        let profile = json!({
            "name": "p",
            "key_types": key_types,
            "validity": { "default_seconds": default, "max_seconds": more.map(|more| default + more) },
            "names": {
                "dns_allowed": dns,
                "dns_denied": denied.iter().collect::<Vec<_>>(),
                "ip_allowed": if flags[0] { vec!["10.1.0.0/16"] } else { vec![] },
                "uri_allowed": if flags[1] { vec!["spiffe://td/a"] } else { vec![] },
                "email_allowed": if flags[2] { vec!["a"] } else { vec![] },
                "required": false,
            },
            "subject": { "common_name": common_name, "fixed": fixed, "requested": flags[3] },
            "must_staple": staple,
            "extended_key_usage": if flags[4] { vec!["clientAuth"] } else { vec!["serverAuth", "clientAuth"] },
            "urls": { "crl": flags[0], "ocsp": flags[1], "issuer": flags[2] },
        });
        Case { profile, suffixes, denied, key_types, names, key, subject, lifetime, starts_in, must_staple }
    })
}

/// Returns whether the profile allows a DNS name, by counting labels.
fn dns_allowed(case: &Case, name: &str) -> bool {
    let labels: Vec<&str> = name.split('.').collect();
    let below = |suffix: &str| {
        let suffix: Vec<&str> = suffix.split('.').collect();
        labels.ends_with(&suffix).then(|| labels.len() - suffix.len())
    };
    let denied = case.denied.as_ref().is_some_and(|denied| match name.strip_prefix("*.") {
        None => denied == name,
        Some(parent) => denied.split_once('.').is_some_and(|(_, rest)| rest == parent),
    });
    let allowed = case.suffixes.iter().any(|suffix| match below(&suffix.name) {
        None => false,
        Some(0) => suffix.itself,
        Some(_) if labels[0] == "*" => suffix.wildcards,
        Some(depth) => depth <= suffix.depth_max,
    });
    allowed && !denied
}

fn flag(case: &Case, path: &str) -> bool {
    case.profile.pointer(path).is_some_and(|value| value.as_array().is_some_and(|list| !list.is_empty()))
}

fn name_allowed(case: &Case, name: &GeneralName) -> bool {
    match name {
        GeneralName::Dns(text) => dns_allowed(case, text),
        GeneralName::Ip(address) => {
            flag(case, "/names/ip_allowed") && address.to_string().starts_with("10.1.")
        }
        GeneralName::Uri(text) => flag(case, "/names/uri_allowed") && text == "spiffe://td/a",
        GeneralName::Email(text) => flag(case, "/names/email_allowed") && text.ends_with("@a"),
        _ => false,
    }
}

fn check(case: &Case, certificate: &Certificate, now: UnixTime, ca: &Certificate) {
    certificate.signed_by(&ca.public_key).unwrap();
    assert!(certificate.faults.is_empty(), "{:?}", certificate.faults);
    for name in &certificate.subject_alt_names {
        assert!(name_allowed(case, name), "{name}");
        assert!(case.names.contains(&name.to_string()), "{name} was not asked for");
    }
    assert!(case.key_types.contains(&KeyType::of(&certificate.public_key).unwrap()));
    let life = certificate.not_after.since(certificate.not_before) + 1;
    let validity = &case.profile["validity"];
    let longest = validity["max_seconds"].as_i64().or(validity["default_seconds"].as_i64()).unwrap();
    assert!(life <= longest && life >= 60, "{life} of {longest}");
    assert!(case.lifetime.is_none_or(|requested| life == requested), "{life}");
    assert!(certificate.not_before >= now.plus(-60) && certificate.not_after <= ca.not_after);
    let wanted = case.profile["extended_key_usage"].as_array().unwrap().len();
    assert_eq!(certificate.extended_key_usage.as_ref().unwrap().len(), wanted);
    assert!(!certificate.is_ca() && certificate.basic_constraints.is_some());
    assert!(!certificate.key_usage.unwrap().allows(KeyUsage::KEY_CERT_SIGN | KeyUsage::CRL_SIGN));
    let staple = match case.profile["must_staple"].as_str().unwrap() {
        "always" => true,
        "never" => false,
        _ => case.must_staple,
    };
    assert_eq!(certificate.must_staple, staple);
    let urls = &case.profile["urls"];
    assert_eq!(certificate.crl_urls.len(), usize::from(urls["crl"].as_bool().unwrap()));
    assert_eq!(certificate.ocsp_urls.len(), usize::from(urls["ocsp"].as_bool().unwrap()));
    assert_eq!(certificate.issuer_urls.len(), usize::from(urls["issuer"].as_bool().unwrap()));
    let named = |text: &String| certificate.subject_alt_names.iter().any(|name| name.to_string() == *text);
    match (
        case.profile["subject"]["common_name"].as_str().unwrap(),
        certificate.subject.common_names.as_slice(),
    ) {
        ("none", names) if case.profile["subject"]["requested"] == false => assert!(names.is_empty()),
        ("any", _) => {}
        (_, names) => assert!(names.iter().all(named), "{names:?}"),
    }
    assert_eq!(certificate.serial.content().len(), 16);
}

#[test]
fn no_certificate_violates_its_profile() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let office = runtime.block_on(Office::sqlite(options()));
    let keys: Vec<PrivateKey> = KINDS.iter().map(|kind| PrivateKey::generate(*kind).unwrap()).collect();
    let issued = std::cell::Cell::new(0);
    let mut runner = TestRunner::new(Config { cases: CASES, failure_persistence: None, ..Config::default() });
    let outcome = runner.run(&case(), |case| {
        let Ok(profile) = Profile::from_json(&case.profile.to_string()) else { return Ok(()) };
        let now = UnixTime(office.clock.now_seconds());
        let names = case.names.iter().map(|name| match name.strip_prefix("*.") {
            // Wildcards of a top-level domain cannot be parsed. The test requests them, too.
            Some(_) => GeneralName::Dns(name.clone()),
            None => GeneralName::parse(name).unwrap(),
        });
        let subject =
            case.subject.as_ref().map(|name| DistinguishedName::from_text(&format!("CN={name}")).unwrap());
        let request = IssueRequest {
            subject,
            not_before: case.starts_in.map(|seconds| now.plus(seconds)),
            lifetime_seconds: case.lifetime,
            must_staple: case.must_staple,
            ..IssueRequest::new("p", keys[case.key].spki().to_vec(), names.collect(), Source::Api, "user:p")
        };
        let answer = runtime.block_on(async {
            office.authority.put_profile(profile, None, "user:p").await.unwrap();
            let allowed = office.authority.check(&request).await;
            let answer = office.authority.issue(request).await;
            assert_eq!(allowed.is_ok(), answer.is_ok(), "check and issue agree");
            answer
        });
        if let Ok(given) = answer {
            issued.set(issued.get() + 1);
            check(&case, &Certificate::parse(&given.der).unwrap(), now, &office.ca.certificate);
        }
        Ok(())
    });
    outcome.unwrap();
    assert!(issued.get() >= ISSUED_MIN, "only {} of {CASES} were issued", issued.get());
    // The connections of the office are dropped before the runtime.
    runtime.block_on(async move { drop(office) });
}

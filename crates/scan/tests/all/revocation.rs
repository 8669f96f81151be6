//! Tests of revocation checks with CAs and servers that violate the specifications.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fleet::revocation::{
    Document, Responder, RevocationServer, RevokingAuthority, TestCrlSpec, TestLeafSpec, Trouble,
    issuing_distribution_point,
};
use fleet::{Mix, Plan};
use outbound::http::Client;
use outbound::resolve::Resolver;
use scan::revocation::{
    Cause, FAILURE_LIFETIME, FetchKind, KEEP_MAX, RevocationChecker, RevocationOptions, Source, Subject,
    Verdict,
};
use scan::{ScanOptions, Scanner, Trusted};
use x509::build::Extension;
use x509::crl::{Reason, Scope};
use x509::ocsp::{CertificateId, ErrorStatus, OcspHash, ResponseEntry, Status};
use x509::{Certificate, DAY, KeyUsage, SerialNumber, UnixTime};

use crate::limits::long_timeout_options;
use crate::revoking::{REVOKED_AT, RevokingSite, SERIAL, checker, entry, with_checker};
use crate::world::{Seen, World, scan_with};

const NEEDS_OPENSSL: &str = "openssl is needed: apt-get install -y openssl";

fn now() -> UnixTime {
    UnixTime(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64)
}

impl RevokingSite {
    async fn check(&self, certificate: &Certificate) -> Verdict {
        self.checker.check(certificate, &self.issuer, None, now()).await
    }

    async fn stapled(&self, certificate: &Certificate, staple: &[u8]) -> Verdict {
        self.checker.check(certificate, &self.issuer, Some(staple), now()).await
    }

    /// Returns an OCSP response entry for the certificate with the serial number [`SERIAL`].
    fn says(&self, status: Status, this_update: i64, next_update: Option<i64>) -> ResponseEntry {
        let id = CertificateId::of(&self.issuer, SerialNumber::from_content(SERIAL), OcspHash::Sha1);
        (id, status, now().plus(this_update), next_update.map(|due| now().plus(due)))
    }
}

fn cause(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Unknown { cause } => cause.code(),
        other => panic!("{other} instead of a cause"),
    }
}

#[tokio::test]
async fn crl_yields_good_and_revoked_verdicts() {
    let site = RevokingSite::new().await;
    let order =
        TestCrlSpec { revoked: vec![entry(SERIAL, Some(Reason::KeyCompromise))], ..TestCrlSpec::default() };
    site.publish("/a.crl", &order);
    let source = Source::Crl { url: site.server.url("/a.crl").into(), delta: false };
    let good = Verdict::Good { source: source.clone(), until: order.next_update };
    assert_eq!(site.check(&site.leaf(&[1], "/a.crl")).await, good);
    let revoked = Verdict::Revoked { at: REVOKED_AT, reason: Some(Reason::KeyCompromise), source };
    assert_eq!(site.check(&site.leaf(SERIAL, "/a.crl")).await, revoked);
    assert_eq!(site.server.counts().requests, 1, "one list for both");
}

/// Issuers may encode serial numbers with redundant bytes. `4abc01` is part of `114abc01` but another number.
#[tokio::test]
async fn serial_numbers_are_compared_numerically() {
    let site = RevokingSite::new().await;
    let revoked = vec![entry(&[0, 0, 0x4a, 0xbc, 1], None), entry(&[0, 0x9a], None)];
    site.publish("/a.crl", &TestCrlSpec { revoked, ..TestCrlSpec::default() });
    for (serial, code) in [
        (SERIAL, "revoked"),
        (&[0, 0x9a], "revoked"),
        (&[0x9a], "good"), // a negative number
        (&[0x11, 0x4a, 0xbc, 1], "good"),
        (&[0x4a, 0xbc, 1, 0], "good"),
        (&[0x4a, 0xbc], "good"),
    ] {
        assert_eq!(site.check(&site.leaf(serial, "/a.crl")).await.code(), code, "{serial:?}");
    }
}

#[tokio::test]
async fn unusable_crls_are_reported_with_their_cause() {
    let site = RevokingSite::new().await;
    let mine = site.server.url("/list.crl");
    let elsewhere = site.server.url("/other.crl");
    let of = |order: TestCrlSpec| site.ca.crl(&order).unwrap();
    let with =
        |extension: Extension| TestCrlSpec { extensions: Some(vec![extension]), ..TestCrlSpec::default() };
    let stranger = RevokingAuthority::new(1).unwrap(); // the same name, another key
    let mut torn = of(TestCrlSpec::default());
    torn.truncate(torn.len() / 2);
    let past = TestCrlSpec {
        this_update: now().plus(-9 * DAY),
        next_update: now().plus(-1),
        ..TestCrlSpec::default()
    };
    let table = [
        ("bad-signature", stranger.crl(&TestCrlSpec::default()).unwrap()),
        ("malformed", torn),
        ("malformed", b"-----BEGIN X509 CRL-----".to_vec()),
        ("stale", of(past)),
        ("from-the-future", of(TestCrlSpec { this_update: now().plus(DAY), ..TestCrlSpec::default() })),
        (
            "wrong-distribution-point",
            of(TestCrlSpec { distribution_point: Some(elsewhere), ..TestCrlSpec::default() }),
        ),
        // The distribution point is only a directory name, which cannot be compared with a URL.
        (
            "wrong-distribution-point",
            of(with(
                Extension::custom("2.5.29.28", vec![0x30, 8, 0xa0, 6, 0xa0, 4, 0xa4, 2, 0x30, 0])
                    .critical(true),
            )),
        ),
        ("wrong-scope", of(TestCrlSpec { scope: Scope::Authorities, ..TestCrlSpec::default() })),
        ("wrong-scope", of(TestCrlSpec { scope: Scope::Attributes, ..TestCrlSpec::default() })),
        ("indirect", of(with(issuing_distribution_point(Some(&mine), &[4])))),
        ("some-reasons", of(with(issuing_distribution_point(Some(&mine), &[3])))),
        ("unknown-extension", of(with(Extension::custom("1.2.3.4", vec![5, 0]).critical(true)))),
        ("wrong-kind", of(TestCrlSpec { number: 2, base: Some(1), ..TestCrlSpec::default() })),
    ];
    for (code, crl) in table {
        site.server.put_bytes("/list.crl", crl);
        let checker = checker(RevocationOptions::default());
        let leaf = site.leaf(SERIAL, "/list.crl");
        let verdict = checker.check(&leaf, &site.issuer, None, now()).await;
        assert_eq!(cause(&verdict), code, "{verdict}");
    }
}

/// The distribution point URL of the CRL must equal one of the certificate's URLs. Only then is a partitioned CRL accepted.
#[tokio::test]
async fn partitioned_crl_must_match_its_distribution_point() {
    let site = RevokingSite::new().await;
    let revoked = vec![entry(SERIAL, None)];
    let part = |path: &str| TestCrlSpec {
        distribution_point: Some(site.server.url(path)),
        scope: Scope::EndEntities,
        revoked: revoked.clone(),
        ..TestCrlSpec::default()
    };
    site.publish("/1.crl", &part("/1.crl"));
    site.publish("/2.crl", &part("/1.crl"));
    assert_eq!(site.check(&site.leaf(SERIAL, "/1.crl")).await.code(), "revoked");
    assert_eq!(site.check(&site.leaf(&[1], "/1.crl")).await.code(), "good");
    assert_eq!(cause(&site.check(&site.leaf(SERIAL, "/2.crl")).await), "wrong-distribution-point");
    let both = TestLeafSpec {
        serial: Some(SERIAL.to_vec()),
        crl_urls: vec![site.server.url("/2.crl"), site.server.url("/1.crl")],
        ..TestLeafSpec::default()
    };
    assert_eq!(site.check(&site.leaf_of(both)).await.code(), "revoked", "it names this point, too");
}

#[tokio::test]
async fn crl_of_a_ca_without_crl_sign_usage_is_rejected() {
    let ca = RevokingAuthority::with_usage(1, KeyUsage::KEY_CERT_SIGN).unwrap();
    let server = RevocationServer::start(Duration::ZERO).await.unwrap();
    server.put_bytes("/a.crl", ca.crl(&TestCrlSpec::default()).unwrap());
    let order = TestLeafSpec { crl_urls: vec![server.url("/a.crl")], ..TestLeafSpec::default() };
    let leaf = Certificate::parse(&ca.issue(&order).unwrap()).unwrap();
    let issuer = Arc::new(ca.certificate().clone());
    let verdict = checker(RevocationOptions::default()).check(&leaf, &issuer, None, now()).await;
    assert_eq!(cause(&verdict), "may-not-sign");
}

/// A stale CRL still proves a final revocation. A hold may have been lifted since.
#[tokio::test]
async fn stale_crl_still_proves_revocation_but_not_hold() {
    let site = RevokingSite::new().await;
    let revoked = vec![entry(SERIAL, None), entry(&[2], Some(Reason::CertificateHold))];
    let (this_update, next_update) = (now().plus(-9 * DAY), now().plus(-DAY));
    site.publish("/a.crl", &TestCrlSpec { this_update, next_update, revoked, ..TestCrlSpec::default() });
    assert_eq!(site.check(&site.leaf(SERIAL, "/a.crl")).await.code(), "revoked");
    for serial in [2, 3] {
        let verdict = site.check(&site.leaf(&[serial], "/a.crl")).await;
        assert_eq!(verdict, Verdict::Unknown { cause: Cause::Stale { next_update: Some(next_update) } });
    }
}

#[tokio::test]
async fn crl_server_failures_are_reported_with_their_cause() {
    let site =
        RevokingSite::with(RevocationOptions { list_bytes_max: 2_000_000, ..RevocationOptions::default() })
            .await;
    let good = site.ca.crl(&TestCrlSpec::default()).unwrap();
    let troubled = |trouble| Document { body: good.clone(), trouble: Some(trouble), ..Document::default() };
    let huge = Document { body: vec![0x30; 2_000_001], ..Document::default() };
    for (path, document, code) in [
        ("/500", troubled(Trouble::Status(500)), "http-status"),
        ("/301", troubled(Trouble::Status(301)), "redirected"),
        ("/half", troubled(Trouble::HalfBody), "unreachable"),
        ("/cut", troubled(Trouble::HalfPage), "malformed"),
        ("/huge", huge, "too-large"),
    ] {
        site.server.put(path, document);
        assert_eq!(cause(&site.check(&site.leaf(SERIAL, path)).await), code, "{path}");
    }
    assert_eq!(cause(&site.check(&site.leaf(SERIAL, "/nothing")).await), "http-status");
    site.server.put("/hang", troubled(Trouble::Hang));
    let short_limit_checker =
        checker(RevocationOptions { limit: Duration::from_secs(2), ..RevocationOptions::default() });
    let verdict = short_limit_checker.check(&site.leaf(SERIAL, "/hang"), &site.issuer, None, now()).await;
    assert_eq!(cause(&verdict), "timed-out");
    // A port that the system never assigns.
    let free = "127.0.0.1:1";
    for (url, code) in [
        (format!("http://{free}/a.crl"), "unreachable"),
        ("http://169.254.169.254/latest/meta-data".to_owned(), "refused-by-guard"),
        ("http://[::ffff:169.254.169.254]/".to_owned(), "refused-by-guard"),
        ("http://user:secret@127.0.0.1/a.crl".to_owned(), "refused-by-guard"),
        ("ldap://127.0.0.1/cn=crl".to_owned(), "refused-by-guard"),
        ("file:///etc/passwd".to_owned(), "refused-by-guard"),
        (format!("http://127.0.0.1/{}", "a".repeat(3_000)), "refused-by-guard"),
    ] {
        let order = TestLeafSpec { crl_urls: vec![url.clone()], ..TestLeafSpec::default() };
        assert_eq!(cause(&site.check(&site.leaf_of(order)).await), code, "{url}");
    }
}

/// CRLs may move: three redirects are followed, each only if the guard permits it. The conditional request headers are sent along.
#[tokio::test]
async fn crl_redirects_are_followed_up_to_three_times_within_the_guard() {
    let site = RevokingSite::new().await;
    let moved = |path: &str, to: &str| {
        site.server.put(path, Document { moved_to: Some(to.to_owned()), ..Document::default() });
    };
    site.publish("/list", &TestCrlSpec { revoked: vec![entry(SERIAL, None)], ..TestCrlSpec::default() });
    moved("/1", &site.server.url("/list"));
    moved("/2", "/1"); // a relative one
    moved("/3", &site.server.url("/2"));
    moved("/4", &site.server.url("/3"));
    moved("/circle", "/circle");
    moved("/metadata", "http://169.254.169.254/latest/meta-data");
    moved("/credentials", "http://user:secret@127.0.0.1/list");
    moved("/file", "file:///etc/passwd");
    for path in ["/1", "/2", "/3"] {
        assert_eq!(site.check(&site.leaf(SERIAL, path)).await.code(), "revoked", "{path}");
    }
    for (path, code) in [
        ("/4", "redirected"),
        ("/circle", "redirected"),
        ("/metadata", "refused-by-guard"),
        ("/credentials", "refused-by-guard"),
        ("/file", "refused-by-guard"),
    ] {
        assert_eq!(cause(&site.check(&site.leaf(SERIAL, path)).await), code, "{path}");
    }
    assert_eq!(site.server.asked("/circle"), 4, "the first and three redirects");
    // When the CRL is due again, a conditional request is sent to its current location.
    let (asked, sent) = (site.server.asked("/list"), site.server.not_modified());
    pass(KEEP_MAX).await;
    assert_eq!(site.check(&site.leaf(SERIAL, "/3")).await.code(), "revoked");
    assert_eq!((site.server.asked("/list"), site.server.not_modified()), (asked + 1, sent + 1));
}

/// Verdicts are counted by code, and fetches by result. The age of the CRLs in use is measured.
#[tokio::test]
async fn verdicts_fetches_and_ages_are_counted() {
    let site = RevokingSite::new().await;
    let old = now().plus(-30 * 3_600);
    let revoked = vec![entry(SERIAL, None)];
    site.publish("/old", &TestCrlSpec { this_update: old, revoked, ..TestCrlSpec::default() });
    site.publish("/new", &TestCrlSpec { this_update: now().plus(-60), ..TestCrlSpec::default() });
    site.server.put("/500", Document { trouble: Some(Trouble::Status(500)), ..Document::default() });
    for (serial, path) in [(SERIAL, "/old"), (&[1], "/old"), (&[1], "/new"), (&[1], "/500"), (&[2], "/500")] {
        site.check(&site.leaf(serial, path)).await;
    }
    let expired = TestLeafSpec { not_after: now().plus(-60), ..TestLeafSpec::default() };
    site.check(&site.leaf_of(expired)).await;
    let counts = site.checker.counts();
    assert_eq!(counts.verdicts, [("good", 2), ("not-applicable", 1), ("revoked", 1), ("unknown", 2)].into());
    let fetches = [((FetchKind::Crl, "http-status"), 1), ((FetchKind::Crl, "read"), 2)];
    assert_eq!(counts.fetches, fetches.into());
    assert_eq!((counts.crl_cache_hits, counts.ocsp_cache_hits), (2, 0), "the old list and the failure");
    assert_eq!(counts.list_ages, [1, 0, 0, 2, 0, 0], "one of a minute, two of thirty hours");
    assert!((2 * 30 * 3_600 + 60..2 * 30 * 3_600 + 600).contains(&counts.list_ages_sum_s), "{counts:?}");
}

/// Larger than a CRL that is read concurrently with others, and within the size limit.
#[tokio::test]
async fn large_crl_is_read_once_and_packed() {
    let site = RevokingSite::new().await;
    let revoked =
        (0..40_000_u32).map(|n| entry(&[&[0x40; 12][..], &n.to_be_bytes()].concat(), None)).collect();
    site.publish("/large.crl", &TestCrlSpec { revoked, ..TestCrlSpec::default() });
    let revoked_leaf = site.leaf(&[&[0x40; 12][..], &39_999_u32.to_be_bytes()].concat(), "/large.crl");
    assert_eq!(site.check(&revoked_leaf).await.code(), "revoked");
    assert_eq!(site.check(&site.leaf(SERIAL, "/large.crl")).await.code(), "good");
    let counts = site.checker.counts();
    assert_eq!((counts.requests, counts.lists_read, counts.entries_read), (2, 1, 40_000));
    assert!(counts.packed_bytes < 40_000 * 23, "{counts:?}");
}

#[tokio::test]
async fn certificates_without_applicable_revocation_send_no_request() {
    let site = RevokingSite::new().await;
    let (long, ca) = (TestLeafSpec::default(), &site.issuer);
    let at = now();
    let short = TestLeafSpec {
        not_before: at.plus(-DAY),
        not_after: at.plus(6 * DAY - 1),
        ..TestLeafSpec::default()
    };
    let eight_days = TestLeafSpec { not_after: now().plus(7 * DAY), ..short.clone() };
    let expired = TestLeafSpec {
        not_after: now().plus(-1),
        crl_urls: vec![site.server.url("/a.crl")],
        ..TestLeafSpec::default()
    };
    let silent = TestLeafSpec {
        extensions: vec![Extension::custom("2.5.29.56", vec![5, 0])],
        crl_urls: vec![site.server.url("/a.crl")],
        ..TestLeafSpec::default()
    };
    let signing = TestLeafSpec { usages: vec!["1.3.6.1.5.5.7.3.3".to_owned()], ..TestLeafSpec::default() };
    let ocsp_only = TestLeafSpec { ocsp_urls: vec![site.server.url("/ocsp")], ..TestLeafSpec::default() };
    for (order, expected) in [
        (long, "no-source"),
        (short, "short-lived"),
        (eight_days, "no-source"),
        (expired, "expired"),
        (silent, "no-revocation-available"),
        (signing, "not-for-tls"),
        (ocsp_only, "ocsp-off"),
    ] {
        let found = match site.check(&site.leaf_of(order)).await {
            Verdict::NotApplicable { why } => why.code(),
            verdict => cause(&verdict),
        };
        assert_eq!(found, expected);
    }
    let Verdict::NotApplicable { why } = site.check(ca).await else { panic!("a root") };
    assert_eq!(why.code(), "self-issued");
    assert_eq!(site.server.counts().requests, 0, "nobody was asked");
}

#[tokio::test]
async fn crl_named_by_many_certificates_is_fetched_once() {
    const CERTIFICATES: usize = 300;
    let site = RevokingSite::new().await;
    let body =
        site.ca.crl(&TestCrlSpec { revoked: vec![entry(&[5], None)], ..TestCrlSpec::default() }).unwrap();
    site.server.put("/a.crl", Document { body, delay: Duration::from_millis(50), ..Document::default() });
    let subjects: Vec<_> = (0..CERTIFICATES)
        .map(|n| Subject {
            certificate: Arc::new(site.leaf(&[(n % 100) as u8], "/a.crl")),
            issuer: site.issuer.clone(),
            staple: None,
        })
        .collect();
    let verdicts = site.checker.check_all(&subjects, now()).await;
    assert_eq!(site.server.asked("/a.crl"), 1);
    let revoked: Vec<_> = (0..CERTIFICATES).filter(|n| verdicts[*n].code() == "revoked").collect();
    assert_eq!(revoked, [5, 105, 205], "in the order asked");
}

/// A certificate of another issuer names our CRL. It must not change the cached result for our certificates.
#[tokio::test]
async fn foreign_issuer_naming_our_crl_does_not_affect_its_verdicts() {
    let site = RevokingSite::new().await;
    site.publish("/a.crl", &TestCrlSpec { revoked: vec![entry(SERIAL, None)], ..TestCrlSpec::default() });
    let stranger = RevokingAuthority::new(1).unwrap();
    let order = TestLeafSpec { crl_urls: vec![site.server.url("/a.crl")], ..TestLeafSpec::default() };
    let theirs = Certificate::parse(&stranger.issue(&order).unwrap()).unwrap();
    let issuer = Arc::new(stranger.certificate().clone());
    let verdict = site.checker.check(&theirs, &issuer, None, now()).await;
    assert_eq!(cause(&verdict), "bad-signature");
    assert_eq!(site.check(&site.leaf(SERIAL, "/a.crl")).await.code(), "revoked");
}

/// Advances tokio's clock, by which caches expire. Certificate times are checked with the system clock.
async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

#[tokio::test]
async fn crl_is_revalidated_and_kept_until_next_update_on_failure() {
    let site = RevokingSite::new().await;
    site.publish("/a.crl", &TestCrlSpec::default());
    let leaf = site.leaf(SERIAL, "/a.crl");
    assert_eq!(site.check(&leaf).await.code(), "good");
    pass(KEEP_MAX).await;
    assert_eq!(site.check(&leaf).await.code(), "good");
    assert_eq!((site.server.counts().requests, site.server.not_modified()), (2, 1));
    assert_eq!(site.checker.counts().lists_read, 1, "nothing was read again");

    site.server.put("/a.crl", Document { trouble: Some(Trouble::Status(503)), ..Document::default() });
    pass(KEEP_MAX).await;
    assert_eq!(site.check(&leaf).await.code(), "good", "it holds until its nextUpdate");
    assert_eq!(site.check(&leaf).await.code(), "good");
    assert_eq!(site.server.counts().requests, 3, "the failure is remembered");

    let (number, revoked) = (2, vec![entry(SERIAL, None)]);
    let newer = TestCrlSpec { this_update: now(), number, revoked, ..TestCrlSpec::default() };
    site.publish("/a.crl", &newer);
    pass(FAILURE_LIFETIME).await;
    assert_eq!(site.check(&leaf).await.code(), "revoked");

    site.publish("/a.crl", &TestCrlSpec::default());
    pass(KEEP_MAX).await;
    assert_eq!(site.check(&leaf).await.code(), "revoked", "an older list is not believed after a newer one");
}

#[tokio::test]
async fn fetch_failure_is_cached_for_a_limited_time() {
    let site = RevokingSite::new().await;
    site.server.put("/a.crl", Document { trouble: Some(Trouble::Status(500)), ..Document::default() });
    let leaf = site.leaf(SERIAL, "/a.crl");
    for _ in 0..3 {
        assert_eq!(site.check(&leaf).await, Verdict::Unknown { cause: Cause::Status(500) });
    }
    assert_eq!(site.server.asked("/a.crl"), 1);
    site.publish("/a.crl", &TestCrlSpec::default());
    pass(FAILURE_LIFETIME).await;
    assert_eq!(site.check(&leaf).await.code(), "good");
}

#[tokio::test]
async fn delta_crl_adds_and_removes_entries() {
    let site = RevokingSite::new().await;
    let on_hold = entry(&[2], Some(Reason::CertificateHold));
    let complete = TestCrlSpec {
        number: 5,
        freshest: Some(site.server.url("/delta.crl")),
        revoked: vec![on_hold, entry(&[3], None)],
        ..TestCrlSpec::default()
    };
    site.publish("/a.crl", &complete);
    let delta = TestCrlSpec {
        number: 7,
        base: Some(5),
        next_update: now().plus(DAY),
        revoked: vec![entry(SERIAL, None), entry(&[2], Some(Reason::RemoveFromCrl))],
        ..TestCrlSpec::default()
    };
    let table: [(&str, Option<TestCrlSpec>, [&str; 4]); 6] = [
        ("read", Some(delta.clone()), ["revoked", "good", "revoked", "good"]),
        ("missing", None, ["good", "revoked", "revoked", "good"]),
        (
            "of a later list",
            Some(TestCrlSpec { base: Some(6), ..delta.clone() }),
            ["good", "revoked", "revoked", "good"],
        ),
        (
            "older",
            Some(TestCrlSpec { number: 5, base: Some(4), ..delta.clone() }),
            ["good", "revoked", "revoked", "good"],
        ),
        (
            "stale",
            Some(TestCrlSpec { next_update: now().plus(-1), ..delta.clone() }),
            ["good", "revoked", "revoked", "good"],
        ),
        (
            "of another scope",
            Some(TestCrlSpec { scope: Scope::EndEntities, ..delta.clone() }),
            ["good", "revoked", "revoked", "good"],
        ),
    ];
    for (which, order, expected) in table {
        match order {
            Some(order) => site.publish("/delta.crl", &order),
            None => site
                .server
                .put("/delta.crl", Document { trouble: Some(Trouble::Status(404)), ..Document::default() }),
        }
        let checker = checker(RevocationOptions::default());
        let mut found = Vec::new();
        for serial in [SERIAL, &[2], &[3], &[4]] {
            let leaf = site.leaf(serial, "/a.crl");
            found.push(checker.check(&leaf, &site.issuer, None, now()).await);
        }
        assert_eq!(found.iter().map(Verdict::code).collect::<Vec<_>>(), expected, "{which}: {found:?}");
        if which == "read" {
            let Verdict::Good { source, until } = &found[3] else { panic!("{found:?}") };
            assert_eq!((source.code(), *until), ("delta-crl", delta.next_update));
        }
    }
}

#[tokio::test]
async fn valid_ocsp_staple_takes_precedence_over_the_crl() {
    let site = RevokingSite::new().await;
    site.publish("/a.crl", &TestCrlSpec::default());
    let leaf = site.leaf(SERIAL, "/a.crl");
    let good = site.says(Status::Good, -3_600, Some(DAY));
    let reason = Some(Reason::Superseded);
    let revoked = site.says(Status::Revoked { at: REVOKED_AT, reason }, -3_600, Some(DAY));
    let by_ca = |answer: &ResponseEntry| site.ca.ocsp(std::slice::from_ref(answer)).unwrap();
    let verdict = site.stapled(&leaf, &by_ca(&good)).await;
    assert_eq!(verdict, Verdict::Good { source: Source::Staple, until: good.3.unwrap() });
    let verdict = site.stapled(&leaf, &by_ca(&revoked)).await;
    assert_eq!(verdict, Verdict::Revoked { at: REVOKED_AT, reason, source: Source::Staple });
    assert_eq!(site.server.counts().requests, 0, "no list was asked for");
    let verdict = site.stapled(&leaf, b"nonsense").await;
    let Verdict::Good { source: Source::Crl { .. }, .. } = verdict else { panic!("{verdict}") };
}

/// If there is no other source, the problem of the staple is the reported cause.
#[tokio::test]
async fn invalid_ocsp_staple_is_reported_with_its_cause() {
    let site = RevokingSite::new().await;
    let leaf = site.leaf_of(TestLeafSpec { serial: Some(SERIAL.to_vec()), ..TestLeafSpec::default() });
    let good = site.says(Status::Good, -3_600, Some(DAY));
    let by_ca = |answer: ResponseEntry| site.ca.ocsp(&[answer]).unwrap();
    let delegate = |usage: &str, until: i64| TestLeafSpec {
        usages: vec![usage.to_owned()],
        not_after: now().plus(until),
        ..TestLeafSpec::default()
    };
    let by_delegate =
        |order: &TestLeafSpec| site.ca.ocsp_delegated(std::slice::from_ref(&good), order).unwrap();
    const OCSP_SIGNING: &str = "1.3.6.1.5.5.7.3.9";
    let stranger = RevokingAuthority::new(1).unwrap();
    let mut forged = by_ca(good.clone());
    let at = forged.len() - 20;
    forged[at] ^= 1;
    let mut other = good.clone();
    other.0.serial = SerialNumber::from_content(&[9]);
    let table = [
        ("good", by_delegate(&delegate(OCSP_SIGNING, DAY))),
        ("not-authorized", by_delegate(&delegate("1.3.6.1.5.5.7.3.1", DAY))),
        ("not-authorized", by_delegate(&delegate(OCSP_SIGNING, -1))),
        ("not-authorized", stranger.ocsp(std::slice::from_ref(&good)).unwrap()),
        (
            "not-authorized",
            stranger.ocsp_delegated(std::slice::from_ref(&good), &delegate(OCSP_SIGNING, DAY)).unwrap(),
        ),
        ("bad-signature", forged),
        ("other-certificate", by_ca(other)),
        ("unknown-to-responder", by_ca(site.says(Status::Unknown, -60, Some(DAY)))),
        ("stale", by_ca(site.says(Status::Good, -2 * DAY, Some(-1)))),
        ("stale", by_ca(site.says(Status::Good, -2 * DAY, None))),
        ("good", by_ca(site.says(Status::Good, -60, None))),
        ("from-the-future", by_ca(site.says(Status::Good, DAY, Some(2 * DAY)))),
        ("malformed", b"nonsense".to_vec()),
        ("no-answer", x509::ocsp::error_response(ErrorStatus::TryLater)),
    ];
    for (expected, staple) in table {
        let verdict = site.stapled(&leaf, &staple).await;
        let found = if verdict.code() == "good" { "good" } else { cause(&verdict) };
        assert_eq!(found, expected, "{verdict}");
    }
}

#[tokio::test]
async fn ocsp_responder_is_queried_after_crls_and_cached() {
    let site = RevokingSite::with(RevocationOptions { ocsp: true, ..RevocationOptions::default() }).await;
    let statuses =
        HashMap::from([(vec![1], Status::Good), (vec![2], Status::Revoked { at: REVOKED_AT, reason: None })]);
    let responder = Responder::new(site.ca.clone(), statuses);
    site.server.put_responder("/ocsp", responder.clone());
    let leaf_with_lists = |serial: u8, lists: &[&str]| {
        site.leaf_of(TestLeafSpec {
            serial: Some(vec![serial]),
            crl_urls: lists.iter().map(|path| site.server.url(path)).collect(),
            ocsp_urls: vec![site.server.url("/ocsp")],
            ..TestLeafSpec::default()
        })
    };
    for _ in 0..3 {
        let source = Source::Ocsp { url: site.server.url("/ocsp").into() };
        let revoked = Verdict::Revoked { at: REVOKED_AT, reason: None, source };
        assert_eq!(site.check(&leaf_with_lists(2, &[])).await, revoked);
        assert_eq!(site.check(&leaf_with_lists(1, &[])).await.code(), "good");
        assert_eq!(cause(&site.check(&leaf_with_lists(3, &[])).await), "unknown-to-responder");
    }
    assert_eq!(site.server.counts().requests, 3, "one for each certificate");

    site.publish("/a.crl", &TestCrlSpec::default());
    assert_eq!(
        site.check(&leaf_with_lists(4, &["/a.crl"])).await.code(),
        "good",
        "by the list, although OCSP knows nothing"
    );
    assert_eq!(
        site.check(&leaf_with_lists(2, &["/missing.crl"])).await.code(),
        "revoked",
        "by OCSP, where there is no list"
    );
    let verdict = site.check(&leaf_with_lists(3, &["/missing.crl"])).await;
    assert_eq!(verdict, Verdict::Unknown { cause: Cause::Status(404) }, "the first source's trouble is told");

    site.server.put_responder("/ocsp", Responder { error: Some(ErrorStatus::TryLater), ..responder.clone() });
    assert_eq!(cause(&site.check(&leaf_with_lists(5, &[])).await), "no-answer");
    let stranger = Arc::new(RevokingAuthority::new(1).unwrap());
    site.server.put_responder("/ocsp", Responder { authority: stranger, ..responder });
    assert_eq!(cause(&site.check(&leaf_with_lists(6, &[])).await), "not-authorized");
}

fn openssl(folder: &std::path::Path, arguments: &str) {
    let output = std::process::Command::new("openssl")
        .current_dir(folder)
        .args(arguments.split(' '))
        .output()
        .expect(NEEDS_OPENSSL);
    assert!(output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
}

/// The CA, certificates, CRLs and OCSP responses of a delegated responder are made by OpenSSL.
#[tokio::test]
async fn crl_and_ocsp_responses_of_openssl_are_accepted() {
    let server = RevocationServer::start(Duration::ZERO).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let read = |name: &str| std::fs::read(folder.path().join(name)).unwrap();
    let configuration = format!(
        "[ca]\ndefault_ca=ours\n[ours]\ndatabase=index\nserial=serial\ncrlnumber=crlnumber\nnew_certs_dir=.\n\
         certificate=ca.pem\nprivate_key=ca.key\ndefault_md=sha256\ndefault_days=90\ndefault_crl_days=7\n\
         policy=any\nunique_subject=no\n[any]\ncommonName=supplied\n\
         [leaf]\ncrlDistributionPoints=URI:{0}\nextendedKeyUsage=serverAuth\n\
         [part]\ncrlDistributionPoints=URI:{1}\nextendedKeyUsage=serverAuth\n\
         [responder]\nextendedKeyUsage=OCSPSigning\n\
         [crl]\nissuingDistributionPoint=critical,@point\n[point]\nfullname=URI:{1}\nonlyuser=TRUE\n",
        server.url("/ca.crl"),
        server.url("/part.crl"),
    );
    for (name, text) in
        [("config", configuration.as_str()), ("index", ""), ("serial", "8f00"), ("crlnumber", "1000")]
    {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    let run = |arguments: &str| openssl(folder.path(), arguments);
    run("req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -subj /CN=OpenSSL -days 900");
    for (name, extensions) in
        [("good", "leaf"), ("bad", "leaf"), ("part", "part"), ("responder", "responder")]
    {
        run(&format!(
            "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout {name}.key -out {name}.csr -subj /CN={name}"
        ));
        run(&format!(
            "ca -batch -config config -notext -extensions {extensions} -in {name}.csr -out {name}.pem"
        ));
        run(&format!("x509 -in {name}.pem -outform DER -out {name}.der"));
    }
    run("ca -config config -revoke bad.pem -crl_reason keyCompromise");
    run("ca -config config -revoke part.pem -crl_reason superseded");
    run("ca -config config -gencrl -out crl.pem");
    run("crl -in crl.pem -outform DER -out crl.der");
    run("ca -config config -gencrl -crlexts crl -out part-crl.pem");
    run("crl -in part-crl.pem -outform DER -out part-crl.der");
    run("x509 -in ca.pem -outform DER -out ca.der");
    for name in ["good", "bad"] {
        run(&format!(
            "ocsp -index index -CA ca.pem -rsigner responder.pem -rkey responder.key -issuer ca.pem -cert {name}.pem \
             -ndays 3 -respout {name}.ocsp -noverify"
        ));
    }
    server.put_bytes("/ca.crl", read("crl.der"));
    server.put_bytes("/part.crl", read("part-crl.der"));
    let issuer = Arc::new(Certificate::parse(&read("ca.der")).unwrap());
    let certificate = |name: &str| Certificate::parse(&read(name)).unwrap();
    let checker = checker(RevocationOptions::default());
    for (name, expected, by_crl) in [
        ("good.der", "good", Some("good.ocsp")),
        ("bad.der", "revoked", Some("bad.ocsp")),
        ("part.der", "revoked", None),
    ] {
        let verdict = checker.check(&certificate(name), &issuer, None, now()).await;
        assert_eq!(verdict.code(), expected, "{name} by CRL: {verdict}");
        if let Some(staple) = by_crl {
            let verdict = checker.check(&certificate(name), &issuer, Some(&read(staple)), now()).await;
            assert_eq!(verdict.code(), expected, "{name} by staple: {verdict}");
            assert!(verdict.to_string().ends_with("the staple"), "{verdict}");
        }
    }
    let other = checker.check(&certificate("bad.der"), &issuer, Some(&read("good.ocsp")), now()).await;
    assert!(
        other.code() == "revoked" && other.to_string().contains("crl"),
        "another's staple says nothing: {other}"
    );
}

/// Returns the endpoints with the finding `code`.
fn with_finding(seen: &Seen, code: &str) -> Vec<String> {
    let has = |findings: &[x509::Finding]| findings.iter().any(|finding| finding.rule.code == code);
    let found = seen.observations.iter().filter(|observation| has(&observation.findings));
    let mut targets: Vec<_> = found.map(|observation| observation.target.identity()).collect();
    targets.sort();
    targets
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scan_reports_revoked_certificates_still_served() {
    let plan = Plan { endpoints: 600, mix: Mix::AllKinds, revocation: true, ..Plan::default() };
    let world = World::of(&plan).await;
    let truth = world.fleet.truth();
    let checker = checker(RevocationOptions::default());
    let targets: Vec<_> = truth.iter().map(|t| t.target.clone()).collect();
    let seen = world.scan(with_checker(&checker), &targets).await;
    assert_eq!(seen.observations.len(), truth.len(), "none is lost, none doubled");
    let mut revoked: Vec<_> = truth.iter().filter(|t| t.revoked).map(|t| t.target.clone()).collect();
    revoked.sort();
    assert!(revoked.len() > 20, "{} of {}", revoked.len(), truth.len());
    assert_eq!(with_finding(&seen, "endpoint.revoked"), revoked);
    for observation in &seen.observations {
        assert_eq!(observation.revocation.len(), observation.chain.len().min(8), "{}", observation.label());
        let Some((certificate, verdict)) = observation.revocation.first() else { continue };
        assert_eq!(Some(*certificate), observation.leaf().map(|leaf| leaf.fingerprint));
        let leaf = observation.leaf().unwrap();
        if observation.at() > leaf.not_after {
            assert_eq!(verdict.to_string(), "not applicable: the certificate has expired");
        }
    }
    let lists = checker.counts();
    assert!(lists.requests <= 6 && lists.lists_read == lists.requests, "one for each issuer: {lists:?}");
    world.fleet.stop().await;
}

/// A server with an untrusted chain chooses the URLs in it, and so the hosts that this host would connect to.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_fetched_for_an_untrusted_chain() {
    let plan = Plan { endpoints: 60, mix: Mix::AllKinds, revocation: true, ..Plan::default() };
    let world = World::of(&plan).await;
    let checker = checker(RevocationOptions { ocsp: true, ..RevocationOptions::default() });
    let targets: Vec<_> = world.fleet.truth().iter().map(|t| t.target.clone()).collect();
    let resolver = Resolver::with_upstreams(vec![world.fleet.dns()]);
    let scanner = Scanner::new(with_checker(&checker), resolver, Trusted::trusting_none()).unwrap();
    let seen = scan_with(&scanner, &targets).await;
    assert_eq!((seen.observations.len(), checker.counts().requests), (targets.len(), 0));
    let verdicts: Vec<_> = seen.observations.iter().flat_map(|observation| &observation.revocation).collect();
    let untrusted = Verdict::Unknown { cause: Cause::Untrusted };
    assert!(verdicts.iter().filter(|(_, verdict)| *verdict == untrusted).count() > 20, "{verdicts:?}");
    world.fleet.stop().await;
}

/// Handshakes do not wait for a CRL that never arrives. The observations wait for it, up to the limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handshakes_do_not_wait_for_crls() {
    /// Longer than all handshakes take on a slow machine. There are four CRLs.
    const LIMIT: Duration = Duration::from_secs(30);
    const ENDPOINTS: usize = 30;
    let plan = Plan {
        endpoints: ENDPOINTS,
        mix: Mix::Healthy,
        dead_fraction: 0.0,
        revocation: true,
        ..Plan::default()
    };
    let world = World::of(&plan).await;
    let server = world.fleet.revocation().unwrap();
    for path in ["/issuing.crl", "/rsa.crl", "/deep.crl", "/crossed.crl"] {
        server.put(path, Document { trouble: Some(Trouble::Hang), ..Document::default() });
    }
    let checker = checker(RevocationOptions { limit: LIMIT, ..RevocationOptions::default() });
    let scanner = world.scanner(ScanOptions {
        in_flight: Some(2),
        revocation: Some(checker.clone()),
        ..long_timeout_options()
    });
    let targets: Vec<_> = world.fleet.truth().into_iter().map(|t| t.target).collect();
    let input = Box::new(scan::Targets::new(targets, scan::TargetOptions::default()));
    let began = std::time::Instant::now();
    let mut run =
        scanner.start(input, scan::KnownEndpoints::default(), tokio_util::sync::CancellationToken::new());
    let (mut observations, mut waited) = (0, 0);
    while let Some(observation) = run.observations.recv().await {
        observations += 1;
        let (_, verdict) = &observation.revocation[0];
        if observation.session.as_ref().is_some_and(|session| session.ocsp_staple.is_some()) {
            assert_eq!(verdict.code(), "good", "a staple needs no list");
            continue;
        }
        assert_eq!(cause(verdict), "timed-out", "{}", observation.label());
        if waited == 0 {
            assert_eq!(run.progress.snapshot().finished, ENDPOINTS as u64, "all looks were over before");
        }
        waited += 1;
    }
    assert!(waited > ENDPOINTS / 2, "{waited}");
    assert_eq!(observations, ENDPOINTS);
    assert!(began.elapsed() < 4 * LIMIT, "{:?}: each waits its limit, all together", began.elapsed());
    world.fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelled_scan_drops_pending_revocation_checks() {
    let plan =
        Plan { endpoints: 60, mix: Mix::Healthy, dead_fraction: 0.0, revocation: true, ..Plan::default() };
    let world = World::of(&plan).await;
    let server = world.fleet.revocation().unwrap();
    for path in ["/issuing.crl", "/rsa.crl", "/deep.crl", "/crossed.crl"] {
        server.put(path, Document { trouble: Some(Trouble::Hang), ..Document::default() });
    }
    let checker = checker(RevocationOptions::default());
    let scanner = world.scanner(ScanOptions { revocation: Some(checker.clone()), ..long_timeout_options() });
    let targets: Vec<_> = world.fleet.truth().into_iter().map(|t| t.target).collect();
    let input = Box::new(scan::Targets::new(targets, scan::TargetOptions::default()));
    let stop = tokio_util::sync::CancellationToken::new();
    let mut run = scanner.start(input, scan::KnownEndpoints::default(), stop.clone());
    while run.progress.snapshot().finished < 60 {
        tokio::task::yield_now().await;
    }
    stop.cancel();
    let mut observations = 0;
    while let Some(observation) = run.observations.recv().await {
        assert_eq!(observation.revocation[0].1.code(), "good", "by a staple: no list came");
        observations += 1;
    }
    assert!(observations < 20, "{observations}");
    world.fleet.stop().await;
}

/// Starts a name server that answers every query with one address.
async fn name_server(address: [u8; 4]) -> std::net::SocketAddr {
    let socket = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let at = socket.local_addr().unwrap();
    tokio::spawn(async move {
        let mut question = [0; 512];
        while let Ok((length, from)) = socket.recv_from(&mut question).await {
            // A query has a header, one name, type and class (RFC 1035 section 4.1). The remaining bytes are not copied into the
            // answer.
            let name = question[12..length].iter().position(|byte| *byte == 0).unwrap();
            let end = 12 + name + 1 + 4;
            let is_a = question[end - 4..end - 2] == [0, 1];
            let mut answer = question[..end].to_vec();
            answer[2..12].copy_from_slice(&[0x81, 0x80, 0, 1, 0, u8::from(is_a), 0, 0, 0, 0]);
            if is_a {
                answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4]);
                answer.extend(address);
            }
            let _ = socket.send_to(&answer, from).await;
        }
    });
    at
}

/// An unsuspicious name that resolves to a cloud metadata address is rejected after resolution, with that cause.
#[tokio::test]
async fn crl_host_is_checked_by_its_resolved_address() {
    let site = RevokingSite::new().await;
    site.publish("/a.crl", &TestCrlSpec::default());
    let port = site.server.url("").rsplit(':').next().unwrap().to_owned();
    let order = TestLeafSpec {
        crl_urls: vec![format!("http://crl.example.com:{port}/a.crl")],
        ..TestLeafSpec::default()
    };
    let leaf = site.leaf_of(order);
    for (address, expected) in [([127, 0, 0, 1], "good"), ([169, 254, 169, 254], "refused-by-guard")] {
        let resolver = Resolver::with_upstreams(vec![name_server(address).await]);
        let http = Client::new(&resolver, &outbound::http::Options::default()).unwrap();
        let checker = RevocationChecker::new(http, RevocationOptions::default());
        let verdict = checker.check(&leaf, &site.issuer, None, now()).await;
        let found = if verdict.code() == "good" { "good" } else { cause(&verdict) };
        assert_eq!(found, expected, "{verdict}");
    }
}

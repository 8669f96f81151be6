//! Tests of chain verdicts, compared with the verdicts of `openssl verify` and of webpki, the verifier of rustls.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use rustls_pki_types::{CertificateDer, UnixTime};
use x509::verify::{
    self, CHECKS_MAX, Distrust, MemorySignatureCache, SignatureCache, TrustStore, Verdict, chain_order,
    verify_chain,
};
use x509::{Certificate, DAY, Fingerprint, KeyUsage, SpkiHash};

use crate::forge::*;

/// Keys and healthy certificates that the cases modify.
struct World {
    root_key: Key,
    middle_key: Key,
    lower_key: Key,
    leaf_key: Key,
    other_key: Key,
}

/// The certificates that a server sends, and the trust anchors of the client.
struct Given {
    leaf: Arc<Certificate>,
    sent: Vec<Arc<Certificate>>,
    trusted: Vec<Arc<Certificate>>,
}

impl World {
    fn new() -> Self {
        let key = Key::new;
        Self { root_key: key(), middle_key: key(), lower_key: key(), leaf_key: key(), other_key: key() }
    }

    fn root(&self, change: impl FnOnce(&mut Spec)) -> Arc<Certificate> {
        let mut spec = authority("Root", &self.root_key, "Root", &self.root_key);
        change(&mut spec);
        spec.certificate(&self.root_key)
    }

    fn middle(&self, change: impl FnOnce(&mut Spec)) -> Arc<Certificate> {
        let mut spec = authority("Middle", &self.middle_key, "Root", &self.root_key);
        change(&mut spec);
        spec.certificate(&self.root_key)
    }

    fn lower(&self, change: impl FnOnce(&mut Spec)) -> Arc<Certificate> {
        let mut spec = authority("Lower", &self.lower_key, "Middle", &self.middle_key);
        change(&mut spec);
        spec.certificate(&self.middle_key)
    }

    fn leaf(&self, change: impl FnOnce(&mut Spec)) -> Arc<Certificate> {
        let mut spec = leaf(&self.leaf_key, "Middle", &self.middle_key);
        change(&mut spec);
        spec.certificate(&self.middle_key)
    }

    fn deep_leaf(&self, change: impl FnOnce(&mut Spec)) -> Arc<Certificate> {
        let mut spec = leaf(&self.leaf_key, "Lower", &self.lower_key);
        change(&mut spec);
        spec.certificate(&self.lower_key)
    }

    fn self_signed(&self) -> Arc<Certificate> {
        leaf(&self.leaf_key, "a.example", &self.leaf_key).certificate(&self.leaf_key)
    }

    /// Returns the intermediate CA, certified also by an older root.
    fn cross(&self) -> Arc<Certificate> {
        authority("Middle", &self.middle_key, "Old root", &self.other_key).certificate(&self.other_key)
    }

    fn old_root(&self, change: impl FnOnce(&mut Spec)) -> Arc<Certificate> {
        let mut spec = authority("Old root", &self.other_key, "Old root", &self.other_key);
        change(&mut spec);
        spec.certificate(&self.other_key)
    }

    fn given(&self, leaf: Arc<Certificate>, sent: Vec<Arc<Certificate>>) -> Given {
        Given { leaf, sent, trusted: vec![self.root(as_is)] }
    }
}

fn as_is(_: &mut Spec) {}

fn trusting_itself(leaf: Arc<Certificate>) -> Given {
    Given { leaf: leaf.clone(), sent: vec![], trusted: vec![leaf] }
}

struct Case {
    name: &'static str,
    given: fn(&World) -> Given,
    /// [`Verdict::code`].
    code: &'static str,
    /// A part of the verdict's text.
    says: &'static str,
    /// The output of `openssl verify -purpose sslserver`: OK, or an error number.
    openssl: &'static str,
    /// The reason why OpenSSL's verdict differs, if it does.
    because: Option<&'static str>,
    /// The reason why webpki's verdict differs, if it does.
    webpki: Option<&'static str>,
}

const fn agreed(
    name: &'static str,
    given: fn(&World) -> Given,
    code: &'static str,
    says: &'static str,
    openssl: &'static str,
) -> Case {
    Case { name, given, code, says, openssl, because: None, webpki: None }
}

const fn differs(
    name: &'static str,
    given: fn(&World) -> Given,
    code: &'static str,
    openssl: &'static str,
    because: &'static str,
) -> Case {
    Case { name, given, code, says: "", openssl, because: Some(because), webpki: None }
}

const CASES: &[Case] = &[
    agreed("complete", |w| w.given(w.leaf(as_is), vec![w.middle(as_is)]), "trusted", "Root", "OK"),
    agreed(
        "complete with the root",
        |w| w.given(w.leaf(as_is), vec![w.middle(as_is), w.root(as_is)]),
        "trusted",
        "Root",
        "OK",
    ),
    agreed(
        "misordered",
        |w| w.given(w.deep_leaf(as_is), vec![w.root(as_is), w.middle(as_is), w.lower(as_is)]),
        "trusted",
        "Root",
        "OK",
    ),
    agreed(
        "with strays",
        |w| w.given(w.leaf(as_is), vec![w.self_signed(), w.middle(as_is), w.old_root(as_is)]),
        "trusted",
        "Root",
        "OK",
    ),
    agreed("missing intermediate", |w| w.given(w.leaf(as_is), vec![]), "incomplete", "Middle", "20"),
    agreed(
        "missing upper intermediate",
        // A private root looks the same to the verifier. The evidence names the issuer.
        |w| w.given(w.deep_leaf(as_is), vec![w.lower(as_is)]),
        "untrusted",
        "Middle",
        "20",
    ),
    agreed("self-signed", |w| w.given(w.self_signed(), vec![]), "self-signed", "own key", "18"),
    agreed("self-signed and trusted", |w| trusting_itself(w.self_signed()), "trusted", "a.example", "OK"),
    agreed(
        "private root",
        |w| Given {
            leaf: w.leaf(as_is),
            sent: vec![w.middle(as_is), w.root(as_is)],
            trusted: vec![w.old_root(as_is)],
        },
        "untrusted",
        "Root",
        "19",
    ),
    agreed(
        "expired intermediate",
        |w| w.given(w.leaf(as_is), vec![w.middle(|s| s.not_after = NOW.plus(-DAY))]),
        "expired-intermediate",
        "Middle",
        "10",
    ),
    agreed(
        "expired root",
        |w| Given {
            leaf: w.leaf(as_is),
            sent: vec![w.middle(as_is)],
            trusted: vec![w.root(|s| s.not_after = NOW.plus(-1))],
        },
        "expired-intermediate",
        "Root",
        "10",
    )
    .but_webpki("webpki has no dates of trust anchors"),
    agreed(
        "intermediate of tomorrow",
        |w| w.given(w.leaf(as_is), vec![w.middle(|s| s.not_before = NOW.plus(DAY))]),
        "invalid",
        "not valid before",
        "9",
    ),
    agreed(
        "cross-signed, the other root trusted",
        |w| Given {
            leaf: w.leaf(as_is),
            sent: vec![w.middle(as_is), w.cross()],
            trusted: vec![w.old_root(as_is)],
        },
        "trusted",
        "Old root",
        "20",
    )
    .but("OpenSSL follows the first candidate only and never goes back; other clients do"),
    agreed(
        "cross-signed, the other root expired",
        |w| Given {
            leaf: w.leaf(as_is),
            sent: vec![w.cross(), w.middle(as_is)],
            trusted: vec![w.old_root(|s| s.not_after = NOW.plus(-DAY)), w.root(as_is)],
        },
        "trusted",
        "Root",
        "10",
    )
    .but("OpenSSL judges the path it built first; a valid one is there"),
    agreed(
        "intermediate is no authority",
        |w| w.given(w.leaf(as_is), vec![w.middle(|s| s.drop(BASIC_CONSTRAINTS))]),
        "invalid",
        "is not a CA",
        "79",
    ),
    agreed(
        "intermediate says CA: false",
        |w| {
            let middle = w.middle(|s| {
                s.put(BASIC_CONSTRAINTS, true, |w| {
                    w.sequence(|_| {});
                });
            });
            w.given(w.leaf(as_is), vec![middle])
        },
        "invalid",
        "is not a CA",
        "79",
    ),
    agreed(
        "intermediate may not sign",
        |w| w.given(w.leaf(as_is), vec![w.middle(|s| s.usage(KeyUsage::CRL_SIGN))]),
        "invalid",
        "is not allowed to sign certificates",
        "79",
    )
    .but_webpki("webpki does not read key usage"),
    agreed(
        "path too long for the intermediate",
        |w| w.given(w.deep_leaf(as_is), vec![w.lower(as_is), w.middle(|s| s.ca(Some(0)))]),
        "invalid",
        "fewer intermediates",
        "25",
    ),
    agreed(
        "path just long enough",
        |w| w.given(w.deep_leaf(as_is), vec![w.lower(|s| s.ca(Some(0))), w.middle(|s| s.ca(Some(1)))]),
        "trusted",
        "Root",
        "OK",
    ),
    agreed(
        "intermediate for clients only",
        |w| w.given(w.leaf(as_is), vec![w.middle(|s| s.purposes(&[CLIENT_AUTH]))]),
        "invalid",
        "not for TLS servers",
        "26",
    ),
    agreed(
        "leaf for clients only",
        |w| w.given(w.leaf(|s| s.purposes(&[CLIENT_AUTH])), vec![w.middle(as_is)]),
        "invalid",
        "not for TLS servers",
        "26",
    ),
    agreed(
        "name permitted",
        |w| w.given(w.leaf(as_is), vec![w.middle(|s| s.constrain(&["example"], &[]))]),
        "trusted",
        "Root",
        "OK",
    ),
    agreed(
        "name not permitted",
        |w| w.given(w.leaf(as_is), vec![w.middle(|s| s.constrain(&["b.example"], &[]))]),
        "invalid",
        "a.example",
        "47",
    ),
    agreed(
        "name excluded",
        |w| w.given(w.leaf(as_is), vec![w.middle(|s| s.constrain(&[], &["a.example"]))]),
        "invalid",
        "a.example",
        "48",
    ),
    agreed(
        "unknown critical extension in the leaf",
        |w| w.given(w.leaf(unknown_critical), vec![w.middle(as_is)]),
        "invalid",
        "1.2.3.4",
        "34",
    ),
    agreed(
        "unknown critical extension above",
        |w| w.given(w.leaf(as_is), vec![w.middle(unknown_critical)]),
        "invalid",
        "1.2.3.4",
        "34",
    ),
    agreed(
        "precertificate",
        |w| {
            let poisoned = w.leaf(|s| {
                s.put(CT_POISON, true, |w| {
                    w.null();
                });
            });
            w.given(poisoned, vec![w.middle(as_is)])
        },
        "invalid",
        "1.3.6.1.4.1.11129.2.4.3",
        "34",
    ),
    agreed(
        "signature broken",
        |w| {
            let mut der = w.leaf(as_is).der.to_vec();
            // The last byte is within the last integer of the signature.
            let last = der.len() - 1;
            der[last] ^= 1;
            w.given(Arc::new(Certificate::parse(&der).unwrap()), vec![w.middle(as_is)])
        },
        "invalid",
        "does not match its issuer's key",
        "7",
    ),
    agreed(
        "issuer's name, another key",
        |w| {
            let fake = authority("Root", &w.other_key, "Root", &w.other_key).certificate(&w.other_key);
            Given { leaf: w.leaf(as_is), sent: vec![w.middle(as_is)], trusted: vec![fake] }
        },
        "untrusted",
        "Root",
        "20",
    ),
    agreed(
        "version 1 root",
        |w| {
            let root = w.root(|s| {
                s.version = 1;
                s.extensions.clear();
            });
            Given { leaf: w.leaf(as_is), sent: vec![w.middle(as_is)], trusted: vec![root] }
        },
        "trusted",
        "Root",
        "OK",
    ),
    agreed(
        "version 1 intermediate",
        |w| {
            let middle = w.middle(|s| {
                s.version = 1;
                s.extensions.clear();
            });
            w.given(w.leaf(as_is), vec![middle])
        },
        "invalid",
        "is not a CA",
        "79",
    ),
    agreed(
        "version 1 leaf",
        |w| {
            let old = w.leaf(|s| {
                s.version = 1;
                s.extensions.clear();
            });
            w.given(old, vec![w.middle(as_is)])
        },
        "trusted",
        "Root",
        "OK",
    )
    .but_webpki("webpki reads version 3 alone below a trust anchor"),
    agreed(
        "no alternative name",
        |w| w.given(w.leaf(|s| s.drop(SUBJECT_ALT_NAME)), vec![w.middle(as_is)]),
        "trusted",
        "Root",
        "OK",
    ),
    agreed(
        "issuer's name in other case and another string type",
        |w| {
            let leaf = w.leaf(|s| {
                s.issuer = x509::der::write(|w| {
                    w.sequence(|w| {
                        w.set(|w| {
                            w.sequence(|w| {
                                w.oid(&[2, 5, 4, 3]).printable("MIDDLE");
                            });
                        });
                    });
                });
            });
            w.given(leaf, vec![w.middle(as_is)])
        },
        "trusted",
        "Root",
        "OK",
    )
    .but_webpki("webpki compares names byte by byte"),
    differs(
        "expired leaf",
        |w| w.given(w.leaf(|s| s.not_after = NOW.plus(-DAY)), vec![w.middle(as_is)]),
        "trusted",
        "10",
        "the leaf's dates are a finding of their own",
    )
    .but_webpki("the dates of the leaf are a finding of their own"),
    differs(
        "leaf in the store",
        |w| trusting_itself(w.leaf(as_is)),
        "trusted",
        "20",
        "OpenSSL wants -partial_chain for it; browsers and Go do not",
    )
    .but_webpki("webpki wants an issuer; browsers and Go do not"),
    differs(
        "intermediate in the store",
        |w| Given { leaf: w.leaf(as_is), sent: vec![], trusted: vec![w.middle(as_is)] },
        "trusted",
        "2",
        "OpenSSL wants -partial_chain for it; browsers and Go do not",
    ),
    differs(
        "key identifiers that do not fit",
        |w| {
            let leaf = w.leaf(|s| {
                s.put(AUTHORITY_KEY_ID, false, |w| {
                    w.sequence(|w| {
                        w.context_primitive(0, &[7; 20]);
                    });
                });
            });
            w.given(leaf, vec![w.middle(as_is)])
        },
        "trusted",
        "20",
        "RFC 5280 section 4.2.1.1 calls them an aid, and browsers take the signature's word",
    ),
];

impl Case {
    const fn but(mut self, because: &'static str) -> Self {
        self.because = Some(because);
        self
    }

    const fn but_webpki(mut self, because: &'static str) -> Self {
        self.webpki = Some(because);
        self
    }
}

fn unknown_critical(spec: &mut Spec) {
    spec.put(&[1, 2, 3, 4], true, |w| {
        w.null();
    });
}

fn judge(given: &Given, cache: &impl SignatureCache) -> Verdict {
    let store: TrustStore = given.trusted.iter().cloned().collect();
    verify_chain(&given.leaf, &given.sent, &store, NOW, cache)
}

fn pem(certificates: &[Arc<Certificate>]) -> String {
    certificates.iter().map(|certificate| crate::fields::pem(&certificate.der)).collect()
}

/// Returns `OK`, or the number of the first error that `openssl verify` prints.
fn openssl(given: &Given) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(path("leaf"), pem(std::slice::from_ref(&given.leaf))).unwrap();
    std::fs::write(path("roots"), pem(&given.trusted)).unwrap();
    std::fs::write(path("sent"), pem(&given.sent)).unwrap();
    let mut command = Command::new("openssl");
    command.args(["verify", "-purpose", "sslserver", "-no-CApath", "-no-CAstore"]);
    command.args(["-attime", &NOW.0.to_string(), "-CAfile", &path("roots")]);
    if !given.sent.is_empty() {
        command.args(["-untrusted", &path("sent")]);
    }
    let output = command.arg(path("leaf")).output();
    let output = output.expect("openssl is missing: apt-get install -y openssl");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    match text.split_once("error ") {
        Some((_, rest)) => rest.split(' ').next().unwrap().to_owned(),
        None if output.status.success() => "OK".to_owned(),
        None => panic!("openssl says neither OK nor why not: {text}"),
    }
}

#[test]
fn chain_verdicts_match_openssl_or_the_documented_exception() {
    let world = World::new();
    let mut wrong = Vec::new();
    for case in CASES {
        let given = (case.given)(&world);
        let verdict = judge(&given, &());
        let theirs = openssl(&given);
        let agree = verdict.is_trusted() == (theirs == "OK");
        if verdict.code() != case.code
            || !verdict.to_string().contains(case.says)
            || theirs != case.openssl
            || agree != case.because.is_none()
        {
            wrong.push(format!("{}: {} ({verdict}); openssl {theirs}", case.name, verdict.code()));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Returns whether webpki finds a path for TLS servers, or its error.
fn webpki(given: &Given) -> Result<(), String> {
    let der = |certificate: &Arc<Certificate>| CertificateDer::from(certificate.der.to_vec());
    let (leaf, trusted) = (der(&given.leaf), given.trusted.iter().map(der).collect::<Vec<_>>());
    let sent: Vec<CertificateDer<'_>> = given.sent.iter().map(der).collect();
    let anchors: Result<Vec<_>, _> = trusted.iter().map(webpki::anchor_from_trusted_cert).collect();
    let anchors = anchors.map_err(|error| error.to_string())?;
    let now = UnixTime::since_unix_epoch(Duration::from_secs(NOW.0.cast_unsigned()));
    let leaf = webpki::EndEntityCert::try_from(&leaf).map_err(|error| error.to_string())?;
    let path = leaf.verify_for_usage(
        webpki::ALL_VERIFICATION_ALGS,
        &anchors,
        &sent,
        now,
        webpki::KeyUsage::server_auth(),
        None,
        None,
    );
    path.map(drop).map_err(|error| error.to_string())
}

#[test]
fn chain_verdicts_match_webpki_or_the_documented_exception() {
    let world = World::new();
    let mut wrong = Vec::new();
    for case in CASES {
        let given = (case.given)(&world);
        let (verdict, theirs) = (judge(&given, &()), webpki(&given));
        if (verdict.is_trusted() == theirs.is_ok()) != case.webpki.is_none() {
            wrong.push(format!("{}: {verdict}; webpki {theirs:?}", case.name));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// A name, the index of the modified certificate, and the modification. Index 0 is the root, and 3 is the leaf.
type Mutation = (&'static str, usize, fn(&mut Spec));

/// Modifications on which both verifiers agree, whether they break the chain or not. webpki ignores the path length of a trust
/// anchor.
const MUTATIONS: &[Mutation] = &[
    ("nothing", 0, as_is),
    ("root: permits example", 0, |s| s.constrain(&["example"], &[])),
    ("root: permits b.example", 0, |s| s.constrain(&["b.example"], &[])),
    ("root: excludes example", 0, |s| s.constrain(&[], &["example"])),
    ("middle: expired", 1, |s| s.not_after = NOW.plus(-DAY)),
    ("middle: not yet valid", 1, |s| s.not_before = NOW.plus(DAY)),
    ("middle: no authority", 1, |s| s.drop(BASIC_CONSTRAINTS)),
    ("middle: path length 0", 1, |s| s.ca(Some(0))),
    ("middle: path length 1", 1, |s| s.ca(Some(1))),
    ("middle: for servers", 1, |s| s.purposes(&[SERVER_AUTH])),
    ("middle: for clients", 1, |s| s.purposes(&[CLIENT_AUTH])),
    ("middle: for both", 1, |s| s.purposes(&[CLIENT_AUTH, SERVER_AUTH])),
    ("middle: permits a.example", 1, |s| s.constrain(&["a.example"], &[])),
    ("middle: permits and excludes", 1, |s| s.constrain(&["example"], &["b.example"])),
    ("middle: unknown critical extension", 1, unknown_critical),
    ("lower: expired", 2, |s| s.not_after = NOW.plus(-DAY)),
    ("lower: path length 0", 2, |s| s.ca(Some(0))),
    ("lower: for clients", 2, |s| s.purposes(&[CLIENT_AUTH])),
    ("lower: excludes b.example", 2, |s| s.constrain(&[], &["b.example"])),
    ("lower: other issuer", 2, |s| s.issuer = name("Nobody")),
    ("leaf: for clients", 3, |s| s.purposes(&[CLIENT_AUTH])),
    ("leaf: for any use", 3, |s| s.drop(EXTENDED_KEY_USAGE)),
    ("leaf: b.example", 3, |s| s.hosts(&["b.example"])),
    ("leaf: a.example and b.example", 3, |s| s.hosts(&["a.example", "b.example"])),
    ("leaf: below a.example", 3, |s| s.hosts(&["x.a.example"])),
    ("leaf: unknown critical extension", 3, unknown_critical),
    ("leaf: other issuer", 3, |s| s.issuer = name("Nobody")),
];

#[test]
fn chains_with_two_modifications_are_judged_as_by_webpki() {
    let w = World::new();
    let (mut wrong, mut trusted) = (Vec::new(), 0);
    for (index, one) in MUTATIONS.iter().enumerate() {
        for other in &MUTATIONS[index..] {
            let mutation = |certificate_index: usize| {
                move |spec: &mut Spec| {
                    for (_, _, change) in
                        [one, other].into_iter().filter(|mutation| mutation.1 == certificate_index)
                    {
                        change(spec);
                    }
                }
            };
            let given = Given {
                leaf: w.deep_leaf(mutation(3)),
                sent: vec![w.middle(mutation(1)), w.lower(mutation(2))],
                trusted: vec![w.root(mutation(0))],
            };
            let (verdict, theirs) = (judge(&given, &()), webpki(&given));
            trusted += usize::from(verdict.is_trusted());
            if verdict.is_trusted() != theirs.is_ok() {
                wrong.push(format!("{} and {}: {verdict}; webpki {theirs:?}", one.0, other.0));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!((50..300).contains(&trusted), "{trusted} of 378 chains are trusted");
}

#[test]
fn verified_path_runs_from_leaf_to_root() {
    let w = World::new();
    let given = w.given(w.deep_leaf(as_is), vec![w.root(as_is), w.middle(as_is), w.lower(as_is)]);
    let Verdict::Trusted { path } = judge(&given, &()) else {
        panic!("was not sent and is not a trust anchor")
    };
    let names: Vec<&str> = path.iter().map(|c| c.subject.text.as_str()).collect();
    assert_eq!(names, ["CN=a.example", "CN=Lower", "CN=Middle", "CN=Root"]);
}

#[test]
fn verdict_recognizes_leaf_faults_reported_by_lint() {
    let w = World::new();
    let is_reported = |leaf: Arc<Certificate>, middle| {
        judge(&w.given(leaf.clone(), vec![middle]), &()).is_reported_by_lint(&leaf)
    };
    assert!(is_reported(w.leaf(unknown_critical), w.middle(as_is)));
    assert!(is_reported(w.leaf(|s| s.purposes(&[CLIENT_AUTH])), w.middle(as_is)));
    assert!(!is_reported(w.leaf(as_is), w.middle(unknown_critical)));
    assert!(!is_reported(w.leaf(as_is), w.middle(as_is)));
}

#[test]
fn missing_issuer_is_reported_with_its_aia_url() {
    let w = World::new();
    let leaf = w.leaf(|s| {
        s.put(AUTHORITY_INFO_ACCESS, false, |w| {
            w.sequence(|w| {
                w.sequence(|w| {
                    w.oid(&[1, 3, 6, 1, 5, 5, 7, 48, 2]).context_primitive(6, b"http://x/y.cer");
                });
            });
        });
    });
    let verdict = judge(&w.given(leaf, vec![]), &());
    let Verdict::Incomplete { missing, issuer_url } = verdict else { panic!("{verdict}") };
    assert_eq!((missing.as_str(), issuer_url.as_deref()), ("CN=Middle", Some("http://x/y.cer")));
}

#[test]
fn chain_to_an_unknown_root_is_untrusted_not_incomplete() {
    let w = World::new();
    for sent in [vec![w.middle(as_is)], vec![w.middle(as_is), w.root(as_is)]] {
        let leaf = w.leaf(as_is);
        let verdict = verify_chain(&leaf, &sent, &TrustStore::new(), NOW, &());
        assert_eq!(verdict.code(), "untrusted", "{verdict}");
        assert!(verdict.to_string().contains("CN=Root"), "{verdict}");
    }
    let verdict = verify_chain(&w.leaf(as_is), &[], &TrustStore::new(), NOW, &());
    assert_eq!(verdict.code(), "incomplete", "{verdict}");
}

/// Counts the signature checks.
#[derive(Default)]
struct Counting {
    lookups: std::cell::Cell<usize>,
}

impl SignatureCache for Counting {
    fn get(&self, _: &SpkiHash, _: &Fingerprint) -> Option<bool> {
        self.lookups.set(self.lookups.get() + 1);
        None
    }

    fn put(&self, _: &SpkiHash, _: &Fingerprint, _: bool) {}
}

#[test]
fn cross_signed_ca_maze_stops_at_the_signature_budget() {
    // Every CA is certified by every other CA. The number of paths is factorial, and no path leads to a root.
    let keys: Vec<Key> = (0..9).map(|_| Key::new()).collect();
    let names: Vec<String> = (0..9).map(|n| format!("Authority {n}")).collect();
    let mut sent = Vec::new();
    for (subject, key) in names.iter().zip(&keys) {
        for (issuer, issuer_key) in names.iter().zip(&keys).filter(|(name, _)| *name != subject) {
            sent.push(authority(subject, key, issuer, issuer_key).certificate(issuer_key));
        }
    }
    let leaf = leaf(&Key::new(), &names[0], &keys[0]).certificate(&keys[0]);
    let counting = Counting::default();
    let verdict = verify_chain(&leaf, &sent, &TrustStore::new(), NOW, &counting);
    let budget = matches!(verdict, Verdict::Untrusted { reason: Distrust::Budget });
    assert!(budget, "{verdict}");
    assert!(counting.lookups.get() <= CHECKS_MAX);
}

#[test]
fn intermediate_signature_is_checked_once() {
    let w = World::new();
    let signatures = MemorySignatureCache::bounded(100);
    for _ in 0..5 {
        let key = Key::new();
        let leaf = leaf(&key, "Middle", &w.middle_key).certificate(&w.middle_key);
        assert!(judge(&w.given(leaf, vec![w.middle(as_is)]), &signatures).is_trusted());
    }
    // ECDSA signatures are randomized, so each of the five intermediates is a different certificate.
    assert_eq!(signatures.len(), 10);
    let given = w.given(w.leaf(as_is), vec![w.middle(as_is)]);
    for _ in 0..5 {
        assert!(judge(&given, &signatures).is_trusted());
    }
    assert_eq!(signatures.len(), 12);
}

#[test]
fn cached_invalid_signature_is_honored() {
    struct No;
    impl SignatureCache for No {
        fn get(&self, _: &SpkiHash, _: &Fingerprint) -> Option<bool> {
            Some(false)
        }
        fn put(&self, _: &SpkiHash, _: &Fingerprint, _: bool) {}
    }
    let w = World::new();
    let given = w.given(w.leaf(as_is), vec![w.middle(as_is)]);
    assert!(!judge(&given, &No).is_trusted());
}

#[test]
fn chain_order_problems_are_reported() {
    let w = World::new();
    let (root, middle, lower) = (w.root(as_is), w.middle(as_is), w.lower(as_is));
    let (leaf, cross, stray) = (w.deep_leaf(as_is), w.cross(), w.self_signed());
    // Sent certificates; expected: misordered, strays, duplicates, anchor included.
    type Row<'a> = (&'a [&'a Arc<Certificate>], bool, usize, usize, bool);
    let table: [Row<'_>; 9] = [
        (&[], false, 0, 0, false),
        (&[&lower, &middle], false, 0, 0, false),
        (&[&lower, &middle, &root], false, 0, 0, true),
        (&[&middle, &lower], true, 0, 0, false),
        (&[&root, &middle, &lower], true, 0, 0, true),
        (&[&lower, &stray, &middle], false, 1, 0, false),
        (&[&lower, &middle, &cross], false, 0, 0, false),
        (&[&lower, &middle, &middle], false, 0, 1, false),
        (&[&leaf, &lower, &middle], false, 0, 1, false),
    ];
    for (index, (sent, misordered, strays, duplicates, anchor)) in table.into_iter().enumerate() {
        let sent: Vec<Arc<Certificate>> = sent.iter().map(|&c| c.clone()).collect();
        let order = chain_order(&leaf, &sent);
        let got = (order.misordered, order.strays.len(), order.duplicates.len(), order.anchor_included);
        assert_eq!(got, (misordered, strays, duplicates, anchor), "case {index}");
    }
}

#[test]
fn trust_store_recognizes_reissued_roots_by_name_and_key() {
    let w = World::new();
    let store: TrustStore = [w.root(as_is)].into_iter().collect();
    let reissued = w.root(|s| s.not_after = NOW.plus(9_000 * DAY));
    assert!(store.contains(&reissued) && !store.contains_exactly(&reissued.fingerprint));
    assert!(!store.contains(&w.old_root(as_is)));
    assert!(!verify::TrustStore::new().contains(&reissued));
}

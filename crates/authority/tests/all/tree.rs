//! Tests of roots, intermediates, imports, cross-signing and retirement, verified with OpenSSL on both databases.

use std::sync::Arc;
use std::time::{Duration, Instant};

use authority::names::NameRules;
use authority::profile::Profile;
use authority::tables::{NewIssued, Source};
use authority::tree::{
    Ca, CaError, CaState, DefaultError, ImportError, NameLimits, NewCa, NewCaError, RetireError, Retirement,
};
use keys::{KeyType, PrivateKey, Signer};
use uuid::Uuid;
use x509::build::{self, CertificateSpec, Extension};
use x509::{BasicConstraints, Certificate, DistinguishedName, GeneralName, KeyUsage, SerialNumber, UnixTime};

use crate::fixture::{Fixture, NOW, pem};

const YEAR: i64 = 365 * 86_400;

fn root(name: &str) -> NewCa {
    NewCa { key_type: KeyType::P256, ..NewCa::root(name, &format!("CN=Test {name}, O=Example, C=DE")) }
}

fn intermediate(name: &str) -> NewCa {
    NewCa::intermediate(name, &format!("CN=Test {name}, O=Example, C=DE"))
}

/// Signs any certificate with a CA, without checking rules.
async fn sign(fixture: &Fixture, ca: &Ca, subject: &str, spki: &[u8], extensions: &[Extension]) -> Vec<u8> {
    let subject = DistinguishedName::from_text(subject).unwrap();
    let now = UnixTime(fixture.clock.now_seconds());
    let serial = SerialNumber::from_random(Uuid::new_v4().into_bytes());
    let mut extensions = extensions.to_vec();
    extensions.push(Extension::authority_key_id(&ca.key_identifier()));
    let tbs = build::tbs_certificate(&CertificateSpec {
        serial: &serial,
        signature: ca.signer.algorithm(),
        issuer: &ca.certificate.subject.der,
        subject: &subject.der,
        not_before: now,
        not_after: now.plus(30 * 86_400),
        spki,
        extensions: &extensions,
    });
    let signature = ca.signer.sign(&tbs, Instant::now() + Duration::from_secs(30)).await.unwrap();
    build::signed(&tbs, &ca.signer.algorithm(), &signature)
}

async fn leaf(fixture: &Fixture, ca: &Ca, name: &str) -> Vec<u8> {
    let key = PrivateKey::generate(KeyType::P256).unwrap();
    let names = [GeneralName::Dns(name.to_owned())];
    let extensions = [
        Extension::subject_alt_names(&names),
        Extension::basic_constraints(BasicConstraints { ca: false, path_len: None }),
        Extension::key_usage(KeyUsage(KeyUsage::DIGITAL_SIGNATURE)),
        Extension::extended_key_usage(&["1.3.6.1.5.5.7.3.1".to_owned()]),
    ];
    sign(fixture, ca, &format!("CN={name}"), key.spki(), &extensions).await
}

/// Returns the result of `openssl verify` for a leaf. Only the root is trusted, and the chain is supplied.
fn verify(fixture: &Fixture, root: &[u8], chain: &[Arc<[u8]>], leaf: &[u8]) -> Result<String, String> {
    fixture.write("root.pem", pem(&[root]));
    fixture.write("chain.pem", pem(chain));
    fixture.write("leaf.pem", pem(&[leaf]));
    let untrusted = if chain.is_empty() { "" } else { "-untrusted chain.pem" };
    let now = fixture.clock.now_seconds() + 60;
    fixture.try_openssl(&format!(
        "verify -x509_strict -purpose sslserver -attime {now} -CAfile root.pem {untrusted} leaf.pem"
    ))
}

fn accepted(verdict: Result<String, String>) {
    assert_eq!(verdict.map(|text| text.trim().to_owned()), Ok("leaf.pem: OK".to_owned()));
}

pub(crate) async fn ca_chains_verify_in_openssl(fixture: Fixture) {
    let authority = &fixture.authority;
    for kind in [KeyType::P256, KeyType::P384, KeyType::Ed25519, KeyType::Rsa2048] {
        let (top, middle, low) = (format!("root {kind}"), format!("middle {kind}"), format!("low {kind}"));
        let top_ca = authority.create_root(&NewCa { key_type: kind, ..root(&top) }, "user:a").await.unwrap();
        let new = NewCa { key_type: kind, path_length: Some(1), ..intermediate(&middle) };
        let middle_ca = authority.create_intermediate(&top, &new, "user:a").await.unwrap();
        let new = NewCa { key_type: kind, lifetime_seconds: YEAR, ..intermediate(&low) };
        let low_ca = authority.create_intermediate(&middle_ca.id.to_string(), &new, "user:a").await.unwrap();
        assert!(top_ca.is_root() && !low_ca.is_root());
        assert_eq!((top_ca.chain.len(), middle_ca.chain.len(), low_ca.chain.len()), (0, 1, 2));
        assert_eq!(low_ca.chain[0], low_ca.certificate.der);
        assert_eq!(low_ca.chain[1], middle_ca.certificate.der);
        assert_eq!(low_ca.anchor.as_ref(), Some(&top_ca.certificate.der));
        for ca in [&top_ca, &middle_ca, &low_ca] {
            let der = leaf(&fixture, ca, "www.example.com").await;
            accepted(verify(&fixture, &top_ca.certificate.der, &ca.chain, &der));
        }
        let stranger = authority.create_root(&root(&format!("stranger {kind}")), "user:a").await.unwrap();
        let der = leaf(&fixture, &low_ca, "www.example.com").await;
        assert!(verify(&fixture, &stranger.certificate.der, &low_ca.chain, &der).is_err());
    }
    let low = authority.ca("low p256").await.unwrap();
    let parent = authority.ca("middle p256").await.unwrap();
    let certificate = &low.certificate;
    assert_eq!(certificate.crl_urls, [format!("http://pki.example/crl/{}.crl", parent.id)]);
    assert_eq!(certificate.ocsp_urls, [format!("http://pki.example/ocsp/{}", parent.id)]);
    assert_eq!(certificate.issuer_urls, [format!("http://pki.example/ca/{}.cer", parent.id)]);
    assert_eq!(certificate.authority_key_id, parent.certificate.subject_key_id);
    assert_eq!(certificate.basic_constraints, Some(BasicConstraints { ca: true, path_len: Some(0) }));
    assert_eq!(certificate.not_before, UnixTime(NOW - 300));
    assert_eq!(certificate.not_after, UnixTime(NOW + YEAR - 1));
    assert!(certificate.faults.is_empty() && certificate.serial.content().len() == 16);
    // The inventory and the record of issued certificates contain the intermediate, so it can be revoked.
    let sha256 = certificate.fingerprint.as_bytes();
    assert!(store::Inventory::of(&fixture.store).certificate_by_sha256(sha256).await.unwrap().is_some());
    assert_eq!(
        authority::tables::Issued::of(&fixture.store).by_sha256(sha256).await.unwrap().unwrap().ca,
        parent.id
    );
    assert_eq!(authority.cas().await.unwrap().len(), 16);
    assert_eq!(authority.cas_by_key(&certificate.public_key.spki_sha256).await.unwrap()[0].id, low.id);
    let actions = fixture.actions().await;
    assert_eq!(actions.iter().filter(|action| *action == "ca.create").count(), 16);
    assert_eq!(actions.iter().filter(|action| *action == "key.generate").count(), 16);
}

pub(crate) async fn path_length_constraints_are_enforced(fixture: Fixture) {
    let authority = &fixture.authority;
    let new = NewCa { path_length: Some(1), ..root("root") };
    let top = authority.create_root(&new, "user:a").await.unwrap();
    let requested = NewCa { path_length: Some(1), ..intermediate("one") };
    let error = authority.create_intermediate("root", &requested, "user:a").await.unwrap_err();
    assert!(matches!(error, NewCaError::PathLength { requested: 1, allowed: 0 }), "{error}");
    // If no path length is requested, the CA gets the remaining path length.
    let requested = NewCa { path_length: None, ..intermediate("one") };
    let one = authority.create_intermediate("root", &requested, "user:a").await.unwrap();
    assert_eq!(one.certificate.basic_constraints.unwrap().path_len, Some(0));
    let error = authority.create_intermediate("one", &intermediate("two"), "user:a").await.unwrap_err();
    assert!(matches!(&error, NewCaError::NoneBelow(name) if name == "one"), "{error}");
    // OpenSSL agrees: a CA that violates the path length gives no valid chain.
    let key = PrivateKey::generate(KeyType::P256).unwrap();
    let extensions = [
        Extension::basic_constraints(BasicConstraints { ca: true, path_len: None }),
        Extension::key_usage(KeyUsage(KeyUsage::KEY_CERT_SIGN)),
        Extension::subject_key_id(&build::key_id(key.spki())),
    ];
    let forged = sign(&fixture, &one, "CN=Forged", key.spki(), &extensions).await;
    let below = Ca {
        certificate: Arc::new(Certificate::parse(&forged).unwrap()),
        signer: Arc::new(key),
        ..(*one).clone()
    };
    let der = leaf(&fixture, &below, "www.example.com").await;
    let chain = [forged.as_slice().into(), Arc::clone(&one.certificate.der)];
    let verdict = verify(&fixture, &top.certificate.der, &chain, &der).unwrap_err();
    assert!(verdict.contains("path length constraint exceeded"), "{verdict}");
}

pub(crate) async fn name_constraints_are_enforced_by_openssl(fixture: Fixture) {
    let authority = &fixture.authority;
    let top = authority.create_root(&root("root"), "user:a").await.unwrap();
    let name_limits = NameLimits {
        permitted: vec!["dns:example.com".to_owned(), "ip:10.0.0.0/8".to_owned()],
        excluded: vec!["dns:secret.example.com".to_owned(), "email:.example.org".to_owned()],
    };
    let new = NewCa { name_limits, ..intermediate("limited") };
    let limited = authority.create_intermediate("root", &new, "user:a").await.unwrap();
    let constraints = limited.certificate.name_constraints.as_ref().unwrap();
    assert_eq!((constraints.permitted.len(), constraints.excluded.len()), (2, 2));
    for (name, good) in [
        ("example.com", true),
        ("a.b.example.com", true),
        ("example.org", false),
        ("notexample.com", false),
        ("secret.example.com", false),
        ("a.secret.example.com", false),
    ] {
        let der = leaf(&fixture, &limited, name).await;
        let verdict = verify(&fixture, &top.certificate.der, &limited.chain, &der);
        assert_eq!(verdict.is_ok(), good, "{name}: {verdict:?}");
    }
}

pub(crate) async fn invalid_cas_are_rejected_and_nothing_is_stored(fixture: Fixture) {
    let authority = &fixture.authority;
    authority.create_root(&NewCa { lifetime_seconds: YEAR, ..root("root") }, "user:a").await.unwrap();
    let keys = store::Keys::of(&fixture.store).page(None, 100).await.unwrap().rows.len();
    let error =
        authority.create_root(&NewCa { subject: "O".to_owned(), ..root("x") }, "user:a").await.unwrap_err();
    assert!(matches!(error, NewCaError::Bad(_)), "{error}");
    let error = authority.create_root(&root("root"), "user:a").await.unwrap_err();
    assert!(matches!(&error, NewCaError::NameTaken(name) if name == "root"), "{error}");
    let error = authority.create_intermediate("none", &intermediate("x"), "user:a").await.unwrap_err();
    assert!(matches!(error, NewCaError::Ca(CaError::Unknown(_))), "{error}");
    let error = authority.create_intermediate("root", &intermediate("x"), "user:a").await.unwrap_err();
    assert!(matches!(error, NewCaError::Outlives { seconds: YEAR, .. }), "{error}");
    let new = NewCa { key_provider: Some("pkcs11".to_owned()), ..root("x") };
    let error = authority.create_root(&new, "user:a").await.unwrap_err();
    assert!(matches!(error, NewCaError::Key(_)), "{error}");
    fixture.advance(2 * YEAR as u64);
    let new = NewCa { lifetime_seconds: 3_600, ..intermediate("x") };
    let error = authority.create_intermediate("root", &new, "user:a").await.unwrap_err();
    assert!(matches!(error, NewCaError::NotIssuing(_)), "{error}");
    assert_eq!(store::Keys::of(&fixture.store).page(None, 100).await.unwrap().rows.len(), keys);
    assert_eq!(authority.cas().await.unwrap().len(), 1);
    assert_eq!(fixture.actions().await, ["key.generate", "ca.create"]);
}

pub(crate) async fn ca_name_is_taken_once_under_concurrency(fixture: Fixture) {
    let tasks: Vec<_> = (0..6)
        .map(|_| {
            let authority = fixture.authority.clone();
            tokio::spawn(async move { authority.create_root(&root("root"), "user:a").await })
        })
        .collect();
    let mut made = 0;
    for task in tasks {
        match task.await.unwrap() {
            Ok(_) => made += 1,
            Err(error) => assert!(matches!(error, NewCaError::NameTaken(_)), "{error}"),
        }
    }
    assert_eq!(made, 1);
    assert_eq!(fixture.authority.cas().await.unwrap().len(), 1);
    assert_eq!(store::Keys::of(&fixture.store).page(None, 100).await.unwrap().rows.len(), 1);
}

/// Creates a root and an intermediate with OpenSSL, valid from now for ten years.
fn openssl_authorities(fixture: &Fixture) {
    fixture.openssl("req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout oroot.key -out oroot.pem -days 7300 -subj /CN=OpenSSL-Root -addext keyUsage=critical,keyCertSign,cRLSign");
    fixture.openssl("req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout oint.key -out oint.csr -subj /CN=OpenSSL-Intermediate");
    fixture.write("ca.ext", "basicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign,cRLSign\nsubjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\n");
    fixture.openssl("x509 -req -in oint.csr -CA oroot.pem -CAkey oroot.key -CAcreateserial -out oint.pem -days 3650 -extfile ca.ext");
    // OpenSSL uses the system clock. The clock of the test is an hour ahead, so that certificates signed during the test are
    // already valid.
    fixture.clock.set(store::Clock::system().now_us() + 3_600_000_000);
}

pub(crate) async fn openssl_ca_is_imported(fixture: Fixture) {
    openssl_authorities(&fixture);
    let authority = &fixture.authority;
    let (chain, key) = (fixture.read("oint.pem") + &fixture.read("oroot.pem"), fixture.read("oint.key"));
    let ca = authority.import_ca("theirs", &chain, &key, "user:a").await.unwrap();
    assert_eq!((ca.chain.len(), ca.parent), (1, None));
    let root_der = ca.anchor.clone().unwrap();
    let der = leaf(&fixture, &ca, "www.example.com").await;
    accepted(verify(&fixture, &root_der, &ca.chain, &der));
    for row in [&*ca.certificate.der, &*root_der] {
        let sha256 = *x509::Fingerprint::of(row).as_bytes();
        assert!(store::Inventory::of(&fixture.store).certificate_by_sha256(&sha256).await.unwrap().is_some());
    }
    // When the root is imported with its key, the CA below it gets it as parent.
    let (root_pem, root_key) = (fixture.read("oroot.pem"), fixture.read("oroot.key"));
    let above = authority.import_ca("their root", &root_pem, &root_key, "user:a").await.unwrap();
    assert!(above.is_root() && above.chain.is_empty());
    let second = fixture.openssl(
        "x509 -req -in oint.csr -CA oroot.pem -CAkey oroot.key -CAcreateserial -days 3000 -extfile ca.ext",
    );
    let reimported = authority.import_ca("theirs again", &second, &key, "user:a").await.unwrap();
    assert_eq!((reimported.parent, reimported.chain.len()), (Some(above.id), 1));
    assert_eq!((reimported.key_id, reimported.anchor.as_ref()), (ca.key_id, Some(&root_der)));
    // Signed with an imported key.
    let new = NewCa { lifetime_seconds: YEAR, ..intermediate("ours") };
    let ours = authority.create_intermediate("their root", &new, "user:a").await.unwrap();
    accepted(verify(&fixture, &root_der, &ours.chain, &leaf(&fixture, &ours, "www.example.com").await));

    let error = authority.import_ca("x", &chain, &fixture.read("oroot.key"), "user:a").await.unwrap_err();
    assert!(matches!(error, ImportError::OtherKey), "{error}");
    let swapped = fixture.read("oint.pem") + &fixture.read("oint.pem");
    let error = authority.import_ca("x", &swapped, &key, "user:a").await.unwrap_err();
    assert!(matches!(error, ImportError::NotChain { position: 1 }), "{error}");
    let error = authority.import_ca("theirs", &chain, &key, "user:a").await.unwrap_err();
    assert!(matches!(error, ImportError::NameTaken(_)), "{error}");
    let error = authority.import_ca("x", "nothing", &key, "user:a").await.unwrap_err();
    assert!(matches!(error, ImportError::NoCertificate), "{error}");
    let error = authority.import_ca("x/y", &chain, &key, "user:a").await.unwrap_err();
    assert!(matches!(error, ImportError::Bad(_)), "{error}");
    fixture.write("leaf.ext", "basicConstraints=critical,CA:FALSE\n");
    let plain = fixture.openssl(
        "x509 -req -in oint.csr -CA oroot.pem -CAkey oroot.key -CAcreateserial -days 3000 -extfile leaf.ext",
    );
    let error = authority.import_ca("x", &plain, &key, "user:a").await.unwrap_err();
    assert!(matches!(error, ImportError::NotCa(_)), "{error}");
    fixture.advance(20 * 366 * 86_400);
    let error = authority.import_ca("x", &chain, &key, "user:a").await.unwrap_err();
    assert!(matches!(error, ImportError::Dates { .. }), "{error}");
}

pub(crate) async fn external_parent_signs_the_ca_csr(fixture: Fixture) {
    openssl_authorities(&fixture);
    let authority = &fixture.authority;
    let name_limits = NameLimits { permitted: vec!["dns:example.com".to_owned()], excluded: Vec::new() };
    let request =
        authority.intermediate_csr(&NewCa { name_limits, ..intermediate("ours") }, "user:a").await.unwrap();
    fixture.write("ours.csr", &request.pem);
    let text = fixture.openssl("req -in ours.csr -verify -noout -text");
    for part in ["CA:TRUE, pathlen:0", "Certificate Sign, CRL Sign", "DNS:example.com", "CN = Test ours"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let pending = authority.pending_cas().await.unwrap();
    assert_eq!((pending.len(), pending[0].id, pending[0].name.as_str()), (1, request.pending.id, "ours"));
    assert!(authority.cas().await.unwrap().is_empty());
    assert!(matches!(authority.ca("ours").await.unwrap_err(), CaError::Unknown(_)));
    fixture.openssl("x509 -req -in ours.csr -CA oint.pem -CAkey oint.key -CAcreateserial -out ours.pem -days 365 -copy_extensions copyall");
    let id = request.pending.id;
    let error = authority.install_intermediate(id, &fixture.read("oint.pem"), "user:a").await.unwrap_err();
    assert!(matches!(error, ImportError::OtherKey), "{error}");
    let chain = fixture.read("ours.pem") + &fixture.read("oint.pem") + &fixture.read("oroot.pem");
    let ca = authority.install_intermediate(id, &chain, "user:a").await.unwrap();
    assert_eq!((ca.id, ca.state, ca.chain.len()), (id, CaState::Active, 2));
    let root_der = ca.anchor.clone().unwrap();
    accepted(verify(&fixture, &root_der, &ca.chain, &leaf(&fixture, &ca, "www.example.com").await));
    assert!(verify(&fixture, &root_der, &ca.chain, &leaf(&fixture, &ca, "example.org").await).is_err());
    let error = authority.install_intermediate(id, &chain, "user:a").await.unwrap_err();
    assert!(matches!(error, ImportError::NotPending(_)), "{error}");
    assert!(authority.pending_cas().await.unwrap().is_empty());
    let other = authority.intermediate_csr(&intermediate("other"), "user:a").await.unwrap();
    let error = authority.intermediate_csr(&intermediate("other"), "user:a").await.unwrap_err();
    assert!(matches!(error, NewCaError::NameTaken(_)), "{error}");
    assert!(authority.cancel_request(other.pending.id, "user:a").await.unwrap());
    assert!(!authority.cancel_request(other.pending.id, "user:a").await.unwrap());
    assert!(!authority.cancel_request(id, "user:a").await.unwrap());
    let actions = fixture.actions().await;
    assert!(
        ["ca.request", "ca.install", "ca.cancel"].iter().all(|action| actions.iter().any(|a| a == action))
    );
}

pub(crate) async fn cross_signing_adds_an_alternate_chain(fixture: Fixture) {
    let authority = &fixture.authority;
    let old = authority.create_root(&root("old"), "user:a").await.unwrap();
    let new = authority.create_root(&NewCa { path_length: Some(3), ..root("new") }, "user:a").await.unwrap();
    let low = authority.create_intermediate("new", &intermediate("low"), "user:a").await.unwrap();
    let der = leaf(&fixture, &low, "www.example.com").await;
    accepted(verify(&fixture, &new.certificate.der, &low.chain, &der));
    assert!(verify(&fixture, &old.certificate.der, &low.chain, &der).is_err());
    let crossed = authority.cross_sign("new", "old", "user:a").await.unwrap();
    assert_eq!(crossed.alternates.len(), 1);
    let low = authority.ca("low").await.unwrap();
    assert_eq!((low.chain.len(), low.alternates.len(), low.alternates[0].len()), (1, 1, 2));
    accepted(verify(&fixture, &new.certificate.der, &low.chain, &der));
    accepted(verify(&fixture, &old.certificate.der, &low.alternates[0], &der));
    let cross = Certificate::parse(&low.alternates[0][1]).unwrap();
    assert_eq!((&cross.subject, &cross.issuer), (&new.certificate.subject, &old.certificate.subject));
    assert_eq!(cross.basic_constraints, new.certificate.basic_constraints);
    assert_eq!(cross.not_after, new.certificate.not_after.min(old.certificate.not_after));
    assert_eq!(
        authority::tables::Issued::of(&fixture.store)
            .by_sha256(cross.fingerprint.as_bytes())
            .await
            .unwrap()
            .unwrap()
            .ca,
        old.id
    );
    let error = authority.cross_sign("new", "new", "user:a").await.unwrap_err();
    assert!(matches!(error, NewCaError::SameKey(..)), "{error}");
    let error = authority.cross_sign("low", "new", "user:a").await.unwrap_err();
    assert!(matches!(error, NewCaError::Parent(..)), "{error}");
    let error = authority.cross_sign("old", "low", "user:a").await.unwrap_err();
    assert!(matches!(error, NewCaError::NoneBelow(_)), "{error}");
    let short = NewCa { lifetime_seconds: 3_600, ..root("short") };
    authority.create_root(&short, "user:a").await.unwrap();
    fixture.advance(3_601);
    let error = authority.cross_sign("short", "old", "user:a").await.unwrap_err();
    assert!(matches!(&error, NewCaError::Expired(name) if name == "short"), "{error}");
    assert!(fixture.actions().await.contains(&"ca.cross_sign".to_owned()));
}

pub(crate) async fn renewed_ca_keeps_its_key_and_both_chains_verify(fixture: Fixture) {
    let authority = &fixture.authority;
    let root_before = authority.create_root(&root("root"), "user:a").await.unwrap();
    let before = authority.create_intermediate("root", &intermediate("low"), "user:a").await.unwrap();
    let der = leaf(&fixture, &before, "www.example.com").await;
    fixture.advance(86_400);
    let after = authority.renew_ca("low", None, "user:a").await.unwrap();
    let (old, new) = (&before.certificate, &after.certificate);
    assert_ne!((&old.serial, old.fingerprint), (&new.serial, new.fingerprint));
    assert_eq!((&old.subject, &old.public_key.spki), (&new.subject, &new.public_key.spki));
    assert_eq!((&old.subject_key_id, &old.basic_constraints), (&new.subject_key_id, &new.basic_constraints));
    assert_eq!(new.not_after.since(old.not_after), 86_400, "as long as the old one was made for");
    // Certificates issued before are valid with the new CA certificate, and new certificates with the old one.
    assert_eq!(after.alternates.len(), 1, "the old one is still served");
    assert_eq!(*after.alternates[0][0], *old.der);
    let fresh = leaf(&fixture, &after, "new.example.com").await;
    for leaf in [&der, &fresh] {
        for chain in [&before.chain, &after.chain, &after.alternates[0]] {
            accepted(verify(&fixture, &root_before.certificate.der, chain, leaf));
        }
    }
    let root_after = authority.renew_ca("root", Some(20 * YEAR), "user:a").await.unwrap();
    assert!(root_after.is_root() && root_after.alternates.is_empty());
    for anchor in [&root_before, &root_after] {
        accepted(verify(&fixture, &anchor.certificate.der, &after.chain, &fresh));
    }
    let low = authority.ca("low").await.unwrap();
    assert_eq!(low.anchor.as_deref(), Some(&*root_after.certificate.der));
    let recorded =
        authority::tables::Issued::of(&fixture.store).by_sha256(new.fingerprint.as_bytes()).await.unwrap();
    assert_eq!(recorded.unwrap().ca, root_before.id);
    let error = authority.renew_ca("low", Some(30 * YEAR), "user:a").await.unwrap_err();
    assert!(matches!(error, NewCaError::Outlives { .. }), "{error}");
    let error = authority.renew_ca("low", Some(60), "user:a").await.unwrap_err();
    assert!(matches!(error, NewCaError::TooShort), "{error}");
    authority.force_retire("low", "user:a").await.unwrap();
    let error = authority.renew_ca("low", None, "user:a").await.unwrap_err();
    assert!(matches!(error, NewCaError::NotIssuing(_)), "{error}");
    assert_eq!(fixture.actions().await.iter().filter(|action| *action == "ca.renew").count(), 2);
}

pub(crate) async fn ca_is_retired_in_two_steps(fixture: Fixture) {
    let authority = &fixture.authority;
    authority.create_root(&root("root"), "user:a").await.unwrap();
    authority.create_root(&root("other"), "user:a").await.unwrap();
    let low = authority.create_intermediate("root", &intermediate("low"), "user:a").await.unwrap();
    let certificate = Certificate::parse(&leaf(&fixture, &low, "www.example.com").await).unwrap();
    record(&fixture, &low, &certificate).await;
    assert!(low.may_issue(UnixTime(NOW)) && low.publishes());
    assert_eq!(authority.retire("low", "user:a").await.unwrap(), Retirement::Begun);
    let retiring = authority.ca("low").await.unwrap();
    assert_eq!(retiring.state, CaState::Retiring);
    assert!(!retiring.may_issue(UnixTime(NOW)) && retiring.publishes());
    let error = authority.create_intermediate("low", &intermediate("x"), "user:a").await.unwrap_err();
    assert!(matches!(error, NewCaError::NotIssuing(_)), "{error}");
    let error = authority.retire("low", "user:a").await.unwrap_err();
    assert!(matches!(error, RetireError::StillNeeded { certificates: 1, .. }), "{error}");
    // The root is needed as long as the CA below it exists.
    assert_eq!(authority.retire("root", "user:a").await.unwrap(), Retirement::Begun);
    let error = authority.retire("root", "user:a").await.unwrap_err();
    assert!(matches!(error, RetireError::StillNeeded { certificates: 1, .. }), "{error}");
    fixture.advance(31 * 86_400);
    assert_eq!(authority.retire("low", "user:a").await.unwrap(), Retirement::Done);
    assert!(!authority.ca("low").await.unwrap().publishes());
    let error = authority.retire("low", "user:a").await.unwrap_err();
    assert!(matches!(error, RetireError::Retired(_)), "{error}");
    assert_eq!(authority.retire("root", "user:a").await.unwrap(), Retirement::Done);
    assert_eq!(fixture.actions().await.iter().filter(|action| action.starts_with("ca.retir")).count(), 4);

    authority.create_root(&root("forced"), "user:a").await.unwrap();
    authority.create_intermediate("forced", &intermediate("below"), "user:a").await.unwrap();
    authority.force_retire("forced", "user:a").await.unwrap();
    assert!(authority.retire("forced", "user:a").await.is_err());
    assert_eq!(authority.force_retire("forced", "user:a").await.unwrap(), Retirement::Done);
}

/// Stores a certificate as the issuing code does.
async fn record(fixture: &Fixture, ca: &Ca, certificate: &Certificate) {
    let us = |time: UnixTime| time.0 * 1_000_000;
    let facts = store::NewCertificate {
        sha256: *certificate.fingerprint.as_bytes(),
        der: certificate.der.clone(),
        subject: certificate.subject.text.clone(),
        issuer: certificate.issuer.text.clone(),
        serial: certificate.serial.to_string(),
        not_before_us: us(certificate.not_before),
        not_after_us: us(certificate.not_after),
        key_algorithm: "P-256".to_owned(),
        key_bits: 256,
        spki_sha256: *certificate.public_key.spki_sha256.as_bytes(),
        names: certificate.names(),
    };
    let row = NewIssued {
        id: Uuid::now_v7(),
        certificate: Arc::new(facts),
        ca: ca.id,
        serial: certificate.serial.content().to_vec(),
        profile: "web".to_owned(),
        source: Source::Api,
        requester: "user:a".to_owned(),
        issued_at_us: fixture.clock.now_us(),
        shard: 0,
        idempotency: None,
    };
    let stored = fixture
        .store
        .write("test", |tx| Box::pin(async move { authority::tables::insert_issued(tx, &[row]).await }));
    stored.await.unwrap();
}

pub(crate) async fn ca_changes_are_visible_on_another_node(fixture: Fixture) {
    let other = fixture.another_node();
    assert!(other.cas().await.unwrap().is_empty());
    fixture.authority.create_root(&root("root"), "user:a").await.unwrap();
    let seen = other.ca("root").await.unwrap();
    // The other node loads the signing key from the database.
    assert!(leaf(&fixture, &seen, "www.example.com").await.len() > 300);
    let before = fixture.store.statements_sent();
    for _ in 0..10 {
        other.ca("root").await.unwrap();
    }
    // If nothing has changed, only the change counter is read.
    assert_eq!(fixture.store.statements_sent() - before, 10);
    fixture.authority.force_retire("root", "user:a").await.unwrap();
    assert_eq!(other.ca("root").await.unwrap().state, CaState::Retiring);
}

pub(crate) async fn issuing_ca_is_the_first_intermediate_unless_named(fixture: Fixture) {
    let authority = &fixture.authority;
    assert!(matches!(authority.issuing_ca(None).await.unwrap_err(), CaError::NoneIssues));
    authority.create_root(&root("root"), "user:a").await.unwrap();
    assert_eq!(authority.issuing_ca(None).await.unwrap().name, "root");
    authority.create_intermediate("root", &intermediate("one"), "user:a").await.unwrap();
    assert_eq!(authority.issuing_ca(None).await.unwrap().name, "one");
    // More CAs do not change the default for requests that name no CA.
    authority.create_intermediate("root", &intermediate("two"), "user:a").await.unwrap();
    authority.create_root(&root("another"), "user:a").await.unwrap();
    assert_eq!(authority.issuing_ca(None).await.unwrap().name, "one");
    assert_eq!(authority.issuing_ca(Some("two")).await.unwrap().name, "two");
}

pub(crate) async fn default_ca_is_selected_and_replaced_on_retirement(fixture: Fixture) {
    let authority = &fixture.authority;
    authority.create_root(&root("root"), "user:a").await.unwrap();
    for name in ["one", "two", "three"] {
        authority.create_intermediate("root", &intermediate(name), "user:a").await.unwrap();
    }
    let chosen = authority.make_default("three", "user:a").await.unwrap();
    assert!(chosen.default_since_us.is_some());
    fixture.clock.advance(Duration::from_secs(1));
    authority.make_default("two", "user:a").await.unwrap();
    assert_eq!(authority.issuing_ca(None).await.unwrap().name, "two");
    // When the default CA retires, the previously chosen one becomes the default, then the oldest.
    authority.retire("two", "user:a").await.unwrap();
    assert_eq!(authority.issuing_ca(None).await.unwrap().name, "three");
    authority.retire("three", "user:a").await.unwrap();
    assert_eq!(authority.issuing_ca(None).await.unwrap().name, "one");
    let error = authority.make_default("two", "user:a").await.unwrap_err();
    assert!(matches!(error, DefaultError::NotIssuing(_)), "{error}");
}

pub(crate) async fn last_or_referenced_ca_is_not_retired(fixture: Fixture) {
    let authority = &fixture.authority;
    authority.create_root(&root("root"), "user:a").await.unwrap();
    authority.create_intermediate("root", &intermediate("one"), "user:a").await.unwrap();
    // Without the intermediate, the root itself would issue.
    let error = authority.retire("one", "user:a").await.unwrap_err();
    assert!(matches!(error, RetireError::Last(_)), "{error}");
    authority.create_intermediate("root", &intermediate("two"), "user:a").await.unwrap();
    let profile = Profile {
        ca: Some("one".to_owned()),
        ..Profile::for_servers("web", NameRules { required: false, ..NameRules::default() })
    };
    authority.put_profile(profile, None, "user:a").await.unwrap();
    let error = authority.retire("one", "user:a").await.unwrap_err();
    assert!(error.to_string().contains("web issue from it"), "{error}");
    assert_eq!(authority.force_retire("one", "user:a").await.unwrap(), Retirement::Begun);
    assert_eq!(authority.issuing_ca(None).await.unwrap().name, "two");
}

//! A complete CA whose keys are in a separate signer.

use authority::crl::CrlPart;
use authority::issue::IssuedRef;
use authority::revoke::Selection;
use authority::signer_checks::SIGNER_PROVIDER;
use authority::tree::{ImportError, NewCa};
use keys::{KeyType, PrivateKey};
use x509::Certificate;
use x509::crl::{Crl, Reason};
use x509::ocsp::{CertificateId, OcspHash, Request};

use crate::world::{World, request};

testbed::on_both! { crate::world::World:
    signer_issues_revokes_and_publishes
    server_cannot_use_the_ca_keys_directly
    cas_are_renewed_and_cross_signed
}

async fn signer_issues_revokes_and_publishes(world: World) {
    let issued = world.issue("web", &["a.example"]).await.unwrap();
    let certificate = Certificate::parse(&issued.der).unwrap();
    certificate.signed_by(&world.ca.certificate.public_key).unwrap();
    world.authority.tick().await.unwrap();
    let which = Selection::Fingerprint(issued.fingerprint);
    world.authority.revoke(which, Reason::KeyCompromise, None, "user:test").await.unwrap();
    world.authority.tick().await.unwrap();
    for part in [CrlPart::Full, CrlPart::Delta] {
        let crl = world.authority.crl(world.ca.id, part).await.unwrap().unwrap();
        let crl = Crl::parse(&crl.der).unwrap();
        crl.signed_by(&world.ca.certificate.public_key).unwrap();
        assert!(crl.entries().any(|entry| entry.serial == certificate.serial));
    }
    let id = CertificateId::of(&world.ca.certificate, certificate.serial.clone(), OcspHash::Sha256);
    let question = Request { certificates: vec![id], nonce: None };
    let answer = world.authority.ocsp(&question.encode()).await;
    assert!(answer.freshness.is_some(), "it was answered by a responder that the signer certified");
    assert!(world.authority.issued(&IssuedRef::Id(issued.id)).await.unwrap().is_some());
}

async fn server_cannot_use_the_ca_keys_directly(world: World) {
    for ca in [&world.root, &world.ca] {
        let row = store::Keys::of(&world.store).get(ca.key_id).await.unwrap().unwrap();
        assert_eq!((row.provider.as_str(), row.sealed.is_none()), (SIGNER_PROVIDER, true));
        assert!(world.keystore.signer(ca.key_id).await.is_err());
        assert!(world.keystore.private_key(ca.key_id).await.is_err());
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(5);
        assert!(ca.signer.sign(b"anything", deadline).await.is_err(), "no signature without an order");
    }
    let key = PrivateKey::generate(KeyType::P256).unwrap();
    let refused = world.authority.import_ca("mine", "", &key.to_pkcs8_pem(), "user:test").await;
    assert!(matches!(refused, Err(ImportError::SignerApart)), "{refused:?}");
}

async fn cas_are_renewed_and_cross_signed(world: World) {
    world.clock.advance(std::time::Duration::from_secs(3_600));
    for name in ["root", "web"] {
        let before = world.authority.ca(name).await.unwrap();
        let after = world.authority.renew_ca(name, None, "user:test").await.unwrap();
        assert_ne!(after.certificate.fingerprint, before.certificate.fingerprint);
        assert_eq!(after.certificate.public_key.spki, before.certificate.public_key.spki);
    }
    let other = NewCa { key_type: KeyType::P384, ..NewCa::root("other", "CN=Other Root") };
    world.authority.create_root(&other, "user:test").await.unwrap();
    world.authority.cross_sign("root", "other", "user:test").await.unwrap();
    let below = NewCa::intermediate("below", "CN=Below Another House");
    let csr = world.authority.intermediate_csr(&below, "user:test").await.unwrap();
    x509::csr::CertificateRequest::from_pem_or_der(csr.pem.as_bytes()).unwrap().verify().unwrap();
    let mut request = request("web", &["a.example"]);
    request.ca = Some(world.ca.id);
    world.authority.issue(request).await.unwrap();
}

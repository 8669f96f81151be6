//! CA credentials as seen by Bulla's own certification authority.

use std::sync::Arc;

use authority::crl::CrlPart;
use authority::issue::{IssuedRef, Source};
use authority::revoke::{CertificateStatus, Selection};
use authority::tree::Ca;
use credentials::{Kind, Version};
use serde_json::json;
use tokio_util::sync::CancellationToken;
use x509::Certificate;
use x509::crl::{Crl, Reason};

use crate::certificates::{make, value};
use crate::fixture::{Fixture, PUBLISHED, admin, name};

fn certificate(version: &Version) -> Certificate {
    let pem = value(version).certificate.clone().unwrap();
    let der = x509::pem::certificates(pem.as_bytes()).next().unwrap().1;
    Certificate::parse(&der).unwrap()
}

/// Returns the CA that is registered for this version.
async fn known(fixture: &Fixture, version: &Version) -> Arc<Ca> {
    let own = certificate(version).fingerprint;
    fixture.authority.ca_by_certificate(&own).await.unwrap().expect("it is known as an authority")
}

async fn authority(fixture: &Fixture, at: &str) -> Version {
    make(fixture, at, |p| p.is_ca = true).await
}

async fn leaf(fixture: &Fixture, at: &str, ca: &str) -> Version {
    make(fixture, at, |p| p.ca = Some(ca.to_owned())).await
}

/// Returns the serial numbers on the CA's CRL. Verifies its signature.
async fn revoked(fixture: &Fixture, ca: &Ca) -> Vec<String> {
    fixture.authority.tick().await.unwrap();
    let document = fixture.authority.crl(ca.id, CrlPart::Full).await.unwrap().unwrap();
    let crl = Crl::parse(&document.der).unwrap();
    assert!(crl.signed_by(&ca.certificate.public_key).is_ok());
    crl.entries().map(|entry| entry.serial.to_string()).collect()
}

pub(crate) async fn credential_ca_is_registered_but_not_trusted_for_clients(fixture: Fixture) {
    let root = authority(&fixture, "/Deploy/ca").await;
    let below = make(&fixture, "/deploy/below", |p| {
        p.is_ca = true;
        p.ca = Some("/deploy/ca".to_owned());
    })
    .await;
    let (root, below) = (known(&fixture, &root).await, known(&fixture, &below).await);
    assert_eq!(root.credential.as_deref(), Some("/Deploy/ca"));
    assert!(root.name.starts_with("credential Deploy.ca "), "{}", root.name);
    assert_eq!((root.parent, below.parent), (None, Some(root.id)));
    assert_eq!(below.chain.len(), 1);
    assert_eq!(fixture.authority.all_cas().await.unwrap().len(), 2);
    assert!(fixture.authority.cas().await.unwrap().is_empty(), "clients that it signs are let in nowhere");
    assert!(
        fixture.authority.issuing_ca(None).await.is_err(),
        "nothing is issued from it unless it is named"
    );
    // A restart finds the existing CAs. Writing the same value again creates no other.
    let set = json!({
        "certificate": value(&fixture.credentials.current(&admin(), &name("/deploy/ca")).await.unwrap()[0]).certificate,
        "private_key": value(&fixture.credentials.current(&admin(), &name("/deploy/ca")).await.unwrap()[0]).private_key
            .as_ref().unwrap().expose(),
    });
    let any = credentials::CredentialsOptions { any_key: true, ..Default::default() };
    let reopened = fixture.with_options(any);
    let request = credentials::SetRequest::new(name("/deploy/same"), Kind::Certificate, set);
    reopened.set(&admin(), request).await.unwrap();
    assert_eq!(fixture.authority.all_cas().await.unwrap().len(), 2);
    let refused = fixture.authority.renew_ca(&root.name, None, "user:a").await.unwrap_err();
    assert!(refused.to_string().contains("credential regenerate /Deploy/ca"), "{refused}");
    let log = fixture.log().await;
    assert_eq!(log.iter().filter(|line| line.contains("uaa-client:admin ca.import")).count(), 2, "{log:?}");
}

pub(crate) async fn certificates_of_a_credential_ca_are_revoked_and_published(fixture: Fixture) {
    let ca = authority(&fixture, "/ca").await;
    let (one, two) = (leaf(&fixture, "/one", "/ca").await, leaf(&fixture, "/two", "/ca").await);
    let ca = known(&fixture, &ca).await;
    let (one, two) = (certificate(&one), certificate(&two));
    assert_eq!(one.crl_urls, [format!("{PUBLISHED}/crl/{}.crl", ca.id)]);
    assert_eq!(one.ocsp_urls, [format!("{PUBLISHED}/ocsp/{}", ca.id)]);
    let which = |certificate: &Certificate| IssuedRef::Fingerprint(certificate.fingerprint);
    let record = fixture.authority.issued(&which(&one)).await.unwrap().unwrap();
    assert_eq!(
        (record.ca, record.source, &*record.requester),
        (ca.id, Source::Credential, "uaa-client:admin")
    );
    assert_eq!(revoked(&fixture, &ca).await, Vec::<String>::new());
    let selection = Selection::Serial { ca: ca.id, serial: one.serial.clone() };
    let revocation = fixture.authority.revoke(selection, Reason::Superseded, None, "user:a").await.unwrap();
    assert_eq!(revocation.count, 1);
    assert_eq!(revoked(&fixture, &ca).await, [one.serial.to_string()]);
    let status = fixture.authority.status(&which(&one)).await.unwrap().unwrap();
    assert!(matches!(status, CertificateStatus::Revoked { reason: Reason::Superseded, .. }), "{status:?}");
    let status = fixture.authority.status(&which(&two)).await.unwrap().unwrap();
    assert_eq!(status, CertificateStatus::Good);
    let log = fixture.log().await;
    assert_eq!(log.iter().filter(|line| line.contains("certificate.issue ")).count(), 2, "{log:?}");
}

pub(crate) async fn each_ca_version_is_registered_and_its_crl_outlives_deletion(fixture: Fixture) {
    let old = authority(&fixture, "/ca").await;
    let first = certificate(&leaf(&fixture, "/leaf", "/ca").await);
    let new = fixture.credentials.regenerate(&admin(), &name("/ca"), None).await.unwrap();
    let second = certificate(&fixture.credentials.regenerate(&admin(), &name("/leaf"), None).await.unwrap());
    let (old, new) = (known(&fixture, &old).await, known(&fixture, &new).await);
    assert_ne!(old.id, new.id);
    assert_eq!(old.credential, new.credential);
    assert!(first.signed_by(&old.certificate.public_key).is_ok());
    assert!(second.signed_by(&new.certificate.public_key).is_ok());
    fixture.credentials.delete(&admin(), &name("/ca")).await.unwrap();
    fixture.advance(8 * 86_400);
    fixture.credentials.destroy_past(&CancellationToken::new()).await.unwrap();
    for (ca, leaf) in [(&old, &first), (&new, &second)] {
        let selection = Selection::Fingerprint(leaf.fingerprint);
        fixture.authority.revoke(selection, Reason::KeyCompromise, None, "user:a").await.unwrap();
        assert_eq!(revoked(&fixture, ca).await, [leaf.serial.to_string()], "its CRL goes on");
    }
}

pub(crate) async fn retiring_credential_ca_does_not_sign(fixture: Fixture) {
    let ca = authority(&fixture, "/ca").await;
    let ca = known(&fixture, &ca).await;
    leaf(&fixture, "/leaf", "/ca").await;
    fixture.authority.retire(&ca.id.to_string(), "user:a").await.unwrap();
    let refused = fixture.credentials.regenerate(&admin(), &name("/leaf"), None).await.unwrap_err();
    assert!(refused.to_string().starts_with("The CA is retiring (CA name \"credential ca "), "{refused}");
    fixture.credentials.regenerate(&admin(), &name("/ca"), None).await.unwrap();
    fixture.credentials.regenerate(&admin(), &name("/leaf"), None).await.unwrap();
}

pub(crate) async fn unregistrable_ca_still_signs_without_revocation_urls(fixture: Fixture) {
    make(&fixture, "/ca", |p| {
        p.is_ca = true;
        p.duration = 1;
        p.key_usage = vec!["digital_signature".to_owned()];
    })
    .await;
    let made = certificate(&leaf(&fixture, "/leaf", "/ca").await);
    assert!(made.crl_urls.is_empty() && made.ocsp_urls.is_empty());
    assert!(fixture.authority.all_cas().await.unwrap().is_empty());
    // An expired CA signs only if `allow_expired_ca` is set.
    authority(&fixture, "/ending").await;
    fixture.advance(366 * 86_400);
    let late =
        make(&fixture, "/late", |p| (p.ca, p.allow_expired_ca) = (Some("/ending".to_owned()), true)).await;
    let made = certificate(&late);
    assert_eq!(fixture.authority.all_cas().await.unwrap().len(), 1);
    assert!(!made.crl_urls.is_empty(), "it was known before it ended");
}

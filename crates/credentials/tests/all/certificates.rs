//! Tests of certificate credentials and their CAs.

use std::process::Command;

use credentials::{
    CaVersions, CertificateParameters, CertificateValue, CredentialError, CredentialsOptions,
    GenerateRequest, Kind, Mode, Operations, Parameters, PermissionPath, Regeneration, SetRequest, Value,
    Version,
};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::fixture::{Fixture, NOW, admin, client, name};

pub(crate) async fn make(
    fixture: &Fixture,
    at: &str,
    with: impl FnOnce(&mut CertificateParameters),
) -> Version {
    let mut parameters = CertificateParameters {
        common_name: Some(at.trim_start_matches('/').to_owned()),
        key_type: Some(keys::KeyType::P256),
        ..CertificateParameters::default()
    };
    with(&mut parameters);
    let parameters_json = serde_json::to_value(&parameters).unwrap();
    let request = GenerateRequest {
        name: name(at),
        parameters: Parameters::read(Kind::Certificate, Some(parameters_json), None).unwrap(),
        mode: Mode::Overwrite,
        metadata: None,
        ttl_s: None,
    };
    fixture.credentials.generate(&admin(), request).await.unwrap()
}

pub(crate) fn value(version: &Version) -> &CertificateValue {
    match &version.value {
        Value::Certificate(value) => value,
        other => panic!("{other:?}"),
    }
}

async fn newest(fixture: &Fixture, at: &str) -> Version {
    fixture.credentials.versions(&admin(), &name(at), Some(1)).await.unwrap().remove(0)
}

/// Returns the CA certificates in a leaf's `ca` field, in order.
fn trusted(version: &Version) -> Vec<String> {
    let text = value(version).trusted(CaVersions::All).unwrap();
    text.split_inclusive("-----END CERTIFICATE-----\n").map(str::to_owned).collect()
}

pub(crate) async fn transitional_ca_version_rotates_trust_without_a_gap(fixture: Fixture) {
    let old = make(&fixture, "/ca", |p| p.is_ca = true).await;
    let leaf = make(&fixture, "/leaf", |p| p.ca = Some("/ca".to_owned())).await;
    let pem = |version: &Version| value(version).certificate.clone().unwrap();
    assert_eq!(trusted(&leaf), [pem(&old)]);
    let id = old.credential;
    let how = Regeneration { set_as_transitional: true, ..Regeneration::default() };
    let new = fixture.credentials.regenerate_certificate(&admin(), id, how.clone()).await.unwrap();
    assert!(new.transitional);
    let second = fixture.credentials.regenerate_certificate(&admin(), id, how).await.unwrap_err();
    assert!(second.to_string().starts_with("The maximum number of transitional"), "{second}");
    // Clients trust the new CA before it signs anything.
    assert_eq!(trusted(&newest(&fixture, "/leaf").await), [pem(&old), pem(&new)]);
    let current = fixture.credentials.current(&admin(), &name("/ca")).await.unwrap();
    assert_eq!(current.iter().map(|one| one.id).collect::<Vec<_>>(), [old.id, new.id]);
    assert_eq!(
        trusted(&make(&fixture, "/other", |p| p.ca = Some("/ca".to_owned())).await),
        [pem(&old), pem(&new)]
    );
    // The new CA signs, and the old CA is still trusted.
    let flag = |version: Option<String>| {
        let credentials = fixture.credentials.clone();
        async move { credentials.update_transitional_version(&admin(), id, version.as_deref()).await.unwrap() }
    };
    flag(Some(old.id.to_string())).await;
    assert_eq!(
        trusted(&newest(&fixture, "/leaf").await),
        [pem(&old), pem(&new)],
        "the one that signed is first"
    );
    let done = fixture.credentials.bulk_regenerate(&admin(), &name("/ca")).await.unwrap();
    assert_eq!(done, ["/leaf", "/other"]);
    let leaf = newest(&fixture, "/leaf").await;
    assert_eq!(trusted(&leaf), [pem(&new), pem(&old)]);
    flag(None).await;
    assert_eq!(trusted(&newest(&fixture, "/leaf").await), [pem(&new)]);
    assert_eq!(pem(&newest(&fixture, "/leaf").await), pem(&leaf), "the certificate is the same");
    let view = fixture.credentials.certificate(&admin(), &name("/ca")).await.unwrap();
    assert_eq!((view.signed_by.as_str(), view.versions.len()), ("/ca", 2));
    assert_eq!(view.signs, ["/leaf", "/other"]);
    // A caller sees the names of only those certificates that it may read.
    for at in ["/ca", "/other"] {
        let (at, read) = (PermissionPath::parse(at).unwrap(), Operations::parse(&["read"]).unwrap());
        fixture.credentials.grant(&admin(), "uaa-client:reader", &at, read).await.unwrap();
    }
    let view = fixture.credentials.certificate(&client("reader"), &name("/ca")).await.unwrap();
    assert_eq!(view.signs, ["/other"]);
    let all = fixture.credentials.certificates(&admin()).await.unwrap();
    assert_eq!(all.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), ["/ca", "/leaf", "/other"]);
    assert_eq!((all[0].signs.len(), all[1].signed_by.as_str(), all[1].id), (2, "/ca", leaf.credential));
    // `converge` with unchanged parameters and CA creates no version. With a changed CA it does.
    let parameters = json!({ "common_name": "leaf", "ca": "/ca", "key_type": "p256" });
    let converge = || GenerateRequest {
        name: name("/leaf"),
        parameters: Parameters::read(Kind::Certificate, Some(parameters.clone()), None).unwrap(),
        mode: Mode::Converge,
        metadata: None,
        ttl_s: None,
    };
    let existing = newest(&fixture, "/leaf").await.id;
    assert_eq!(fixture.credentials.generate(&admin(), converge()).await.unwrap().id, existing);
    fixture.credentials.regenerate(&admin(), &name("/ca"), None).await.unwrap();
    assert_ne!(fixture.credentials.generate(&admin(), converge()).await.unwrap().id, existing);
}

pub(crate) async fn bulk_regenerate_renews_all_certificates_below_a_ca(fixture: Fixture) {
    make(&fixture, "/root", |p| p.is_ca = true).await;
    make(&fixture, "/middle", |p| (p.is_ca, p.ca) = (true, Some("/root".to_owned()))).await;
    let leaf = make(&fixture, "/leaf", |p| p.ca = Some("/Middle".to_owned())).await;
    fixture.credentials.regenerate(&admin(), &name("/root"), None).await.unwrap();
    let done = fixture.credentials.bulk_regenerate(&admin(), &name("/root")).await.unwrap();
    assert_eq!(done, ["/leaf", "/middle"]);
    let new = newest(&fixture, "/leaf").await;
    assert_ne!(new.id, leaf.id);
    let middle = newest(&fixture, "/middle").await;
    assert_eq!(value(&new).ca, value(&middle).certificate, "signed by the new one between");
    assert!(value(&new).parsed().unwrap().signed_by(&value(&middle).parsed().unwrap().public_key).is_ok());
}

pub(crate) async fn openssl_accepts_generated_certificates(fixture: Fixture) {
    let write = |file: &str, text: &str| std::fs::write(fixture.path(file), text).unwrap();
    let root = make(&fixture, "/root", |p| (p.is_ca, p.key_type) = (true, None)).await;
    let middle = make(&fixture, "/middle", |p| (p.is_ca, p.ca) = (true, Some("/root".to_owned()))).await;
    let leaf = make(&fixture, "/leaf", |p| {
        p.ca = Some("/middle".to_owned());
        p.alternative_names = vec!["*.a.example".to_owned(), "10.0.0.1".to_owned()];
        p.key_usage = vec!["digital_signature".to_owned(), "key_encipherment".to_owned()];
        p.extended_key_usage = vec!["server_auth".to_owned()];
        p.duration = 90;
        p.key_type = None;
    })
    .await;
    let pem = |version: &Version| value(version).certificate.clone().unwrap();
    write("root.pem", &pem(&root));
    write("middle.pem", &pem(&middle));
    write("leaf.pem", &pem(&leaf));
    write("leaf.key", value(&leaf).private_key.as_ref().unwrap().expose());
    let at = crate::fixture::NOW.to_string();
    let run = |arguments: &[&str]| {
        let output = Command::new("openssl").args(arguments).current_dir(fixture.path("")).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let verify =
        ["verify", "-x509_strict", "-attime", &at, "-CAfile", "root.pem", "-untrusted", "middle.pem"];
    run(&[&verify[..], &["-verify_hostname", "b.a.example", "leaf.pem"]].concat());
    run(&["rsa", "-in", "leaf.key", "-check", "-noout"]);
    let text = run(&["x509", "-in", "leaf.pem", "-noout", "-text"]);
    for line in ["DNS:*.a.example, IP Address:10.0.0.1", "Digital Signature, Key Encipherment", "CA:FALSE"] {
        assert!(text.contains(line), "{text}");
    }
    let days = value(&leaf).parsed().unwrap();
    assert_eq!(days.not_after.since(days.not_before), 90 * 86_400);
    // The inventory contains the generated certificate.
    let known = store::Inventory::of(&fixture.store)
        .certificate_by_sha256(days.fingerprint.as_bytes())
        .await
        .unwrap();
    assert!(known.is_some(), "in the inventory");
}

pub(crate) async fn invalid_certificate_values_are_rejected_like_credhub(fixture: Fixture) {
    let root = make(&fixture, "/root", |p| p.is_ca = true).await;
    let leaf = make(&fixture, "/leaf", |p| (p.ca, p.key_type) = (Some("/root".to_owned()), None)).await;
    let (root, leaf) = (value(&root), value(&leaf));
    let set = |value: serde_json::Value| {
        let credentials = fixture.credentials.clone();
        async move {
            let request = SetRequest {
                name: name("/set"),
                kind: Kind::Certificate,
                value: value.into(),
                metadata: None,
                expected: None,
                expected_number: None,
                ttl_s: None,
            };
            credentials.set(&admin(), request).await.map_err(|error| error.to_string())
        }
    };
    let key = |value: &CertificateValue| value.private_key.as_ref().unwrap().expose().to_owned();
    let rsa = keys::PrivateKey::generate(keys::KeyType::Rsa2048).unwrap();
    let encrypted = rsa.to_encrypted_pem(b"a passphrase").unwrap();
    for (given, why) in [
        (json!({}), "At least one certificate attribute must be set."),
        (json!({ "certificate": "x" }), "The provided certificate value is not a valid X509 certificate."),
        (json!({ "ca": "x" }), "The provided CA value is not a valid X509 certificate authority."),
        (
            json!({ "ca": leaf.certificate }),
            "The provided CA value is not a valid X509 certificate authority.",
        ),
        (json!({ "ca": root.certificate, "ca_name": "/root" }), "Only one of the values 'ca_name' and 'ca'"),
        (
            json!({ "ca": root.certificate, "certificate": issue_from_other_ca(&fixture).await }),
            "The provided certificate was not signed by the CA specified in the 'ca' property.",
        ),
        (
            json!({ "certificate": leaf.certificate, "private_key": &*rsa.to_pkcs8_pem() }),
            "The provided certificate does not match the private key.",
        ),
        (
            json!({ "certificate": root.certificate, "private_key": key(root) }),
            "Private key is malformed. Key file does not contain an RSA private key",
        ),
        (
            json!({ "certificate": leaf.certificate, "private_key": encrypted }),
            "Private key is malformed. Key file is not in PKCS#1 or unencrypted PKCS#8 format",
        ),
        (json!({ "certificate": "x".repeat(7_001) }), "The provided certificate value is too long."),
    ] {
        let error = set(given.clone()).await.unwrap_err();
        assert!(error.starts_with(why), "{given}: {error}");
    }
    let stored =
        set(json!({ "ca_name": "/root", "certificate": leaf.certificate, "private_key": key(leaf) })).await;
    assert_eq!(value(&stored.unwrap()).ca, root.certificate);
    let missing = GenerateRequest {
        name: name("/x"),
        parameters: Parameters::read(
            Kind::Certificate,
            Some(json!({ "common_name": "x", "ca": "/none" })),
            None,
        )
        .unwrap(),
        mode: Mode::Converge,
        metadata: None,
        ttl_s: None,
    };
    let error = fixture.credentials.generate(&admin(), missing).await.unwrap_err();
    assert!(matches!(error, CredentialError::NoCa), "{error}");
    let below_leaf = GenerateRequest {
        name: name("/x"),
        parameters: Parameters::read(
            Kind::Certificate,
            Some(json!({ "common_name": "x", "ca": "/leaf" })),
            None,
        )
        .unwrap(),
        mode: Mode::Converge,
        metadata: None,
        ttl_s: None,
    };
    let error = fixture.credentials.generate(&admin(), below_leaf).await.unwrap_err();
    assert!(error.to_string().contains("the given CA is not a certificate authority"), "{error}");
}

/// Creates a certificate of another CA.
async fn issue_from_other_ca(fixture: &Fixture) -> String {
    let other = make(fixture, "/another", |p| p.self_sign = true).await;
    value(&other).certificate.clone().unwrap()
}

pub(crate) async fn last_certificate_version_cannot_be_deleted(fixture: Fixture) {
    let first = make(&fixture, "/ca", |p| p.is_ca = true).await;
    let second = make(&fixture, "/ca", |p| p.is_ca = true).await;
    let id = first.credential;
    let admin = admin();
    let delete = |version| fixture.credentials.delete_certificate_version(&admin, id, version);
    let unknown = delete(uuid::Uuid::nil()).await.unwrap_err();
    assert!(matches!(unknown, CredentialError::NoVersion), "{unknown}");
    assert_eq!(delete(second.id).await.unwrap().id, second.id);
    let current = fixture.credentials.current(&admin, &name("/ca")).await.unwrap();
    assert_eq!(current[0].id, first.id, "the one before is current again");
    let last = delete(first.id).await.unwrap_err();
    assert!(last.to_string().starts_with("The minimum number of versions"), "{last}");
    // A new version can be written with the remaining version as `expected`.
    let request = GenerateRequest {
        name: name("/ca"),
        parameters: Parameters::read(
            Kind::Certificate,
            Some(json!({ "common_name": "other", "is_ca": true, "key_type": "p256" })),
            None,
        )
        .unwrap(),
        mode: Mode::Converge,
        metadata: None,
        ttl_s: None,
    };
    assert_ne!(fixture.credentials.generate(&admin, request).await.unwrap().id, first.id);
}

pub(crate) async fn certificate_lifetime_is_raised_to_the_configured_minimum(mut fixture: Fixture) {
    let options = CredentialsOptions { ca_minimum_days: 1_825, leaf_minimum_days: 30, ..Default::default() };
    fixture.credentials = fixture.with_options(options);
    let days = |version: &Version| (version.not_after_us.unwrap() / 1_000_000 - NOW) / 86_400;
    let ca = make(&fixture, "/ca", |p| p.is_ca = true).await;
    assert_eq!((days(&ca), ca.facts.unwrap().minimum_days), (1_825, Some(1_825)));
    let leaf =
        async |days| make(&fixture, "/leaf", |p| (p.ca, p.duration) = (Some("/ca".to_owned()), days)).await;
    let short = leaf(7).await;
    assert_eq!((days(&short), short.facts.unwrap().minimum_days), (30, Some(30)));
    let long = leaf(90).await;
    assert_eq!((days(&long), long.facts.unwrap().minimum_days), (90, None));
    // The stored parameters are the requested ones, so that `converge` creates no new version.
    let parameters_json = short.parameters.clone().unwrap();
    assert_eq!(parameters_json["duration"], 7);
}

pub(crate) async fn private_keys_are_returned_only_with_read_permission(fixture: Fixture) {
    let store = &fixture.credentials;
    let path = PermissionPath::parse("/ca").unwrap();
    for (actor, operations) in
        [("changer", &["write", "delete"][..]), ("reader", &["read", "write", "delete"][..])]
    {
        let operations = Operations::parse(operations).unwrap();
        store.grant(&admin(), &format!("uaa-client:{actor}"), &path, operations).await.unwrap();
    }
    let mut versions = Vec::new();
    for _ in 0..3 {
        versions.push(make(&fixture, "/ca", |p| p.is_ca = true).await);
    }
    let id = versions[0].credential;
    let stop = CancellationToken::new();
    let running = tokio::spawn(store.clone().run(stop.clone()));
    for (actor, key, deleted) in [("changer", false, 0), ("reader", true, 1)] {
        let requester = client(actor);
        let current = store.update_transitional_version(&requester, id, Some("latest")).await.unwrap();
        assert_eq!(current.len(), 2);
        let current =
            [current, store.update_transitional_version(&requester, id, None).await.unwrap()].concat();
        let deleted = store.delete_certificate_version(&requester, id, versions[deleted].id).await.unwrap();
        for answered in current.iter().chain([&deleted]) {
            assert!(value(answered).certificate.is_some());
            assert_eq!(value(answered).private_key.is_some(), key, "{actor}");
        }
    }
    stop.cancel();
    running.await.unwrap();
    let log = fixture.log().await;
    let readings = |actor: &str| {
        log.iter().filter(|line| line.starts_with(actor) && line.contains(" credential.read ")).count()
    };
    assert_eq!(readings("uaa-client:changer"), 0, "{log:?}");
    // One read of each version is logged, in one entry or in two.
    assert!(readings("uaa-client:reader") >= 2, "{log:?}");
    // Subscribers to changes receive an event for the flag and one for the deletion.
    let mut found = 0;
    for _ in 0..3_000 {
        let events = fixture.store.outbox_after(store::OutboxPosition::default(), 100).await.unwrap();
        let changed = events.iter().filter(|event| event.kind == "credential.changed");
        found = changed.filter(|event| event.body.contains("uaa-client:reader")).count();
        if found == 3 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    assert_eq!(found, 3);
}

pub(crate) async fn expired_ca_signs_only_when_allowed(fixture: Fixture) {
    make(&fixture, "/ca", |p| (p.is_ca, p.duration) = (true, 10)).await;
    let of_ca = |p: &mut CertificateParameters| p.ca = Some("/ca".to_owned());
    make(&fixture, "/leaf", of_ca).await;
    fixture.advance(11 * 86_400);
    let request = |allow: bool| {
        let mut wanted = CertificateParameters {
            common_name: Some("late".to_owned()),
            key_type: Some(keys::KeyType::P256),
            allow_expired_ca: allow,
            ..CertificateParameters::default()
        };
        of_ca(&mut wanted);
        GenerateRequest::new(name("/late"), Parameters::Certificate(Box::new(wanted)), Mode::Overwrite)
    };
    let refused = fixture.credentials.generate(&admin(), request(false)).await.unwrap_err().to_string();
    assert!(refused.contains("/ca has expired at 20") && refused.contains("allow_expired_ca"), "{refused}");
    let refused = fixture.credentials.regenerate(&admin(), &name("/leaf"), None).await.unwrap_err();
    assert!(refused.to_string().contains("has expired"), "{refused}");
    // `allow_expired_ca` permits it.
    let made = fixture.credentials.generate(&admin(), request(true)).await.unwrap();
    assert_eq!(made.signed_by.as_deref(), Some("/ca"));
    // A regenerated CA signs again.
    fixture.credentials.regenerate(&admin(), &name("/ca"), None).await.unwrap();
    fixture.credentials.generate(&admin(), request(false)).await.unwrap();
}

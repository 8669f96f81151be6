//! Tests with certbot, the most widely used client.

use std::process::Command;

use authority::acme::{DirectoryOptions, NewExternalKey};
use authority::tables::acme::AcmeAccountStatus;
use fleet::free_port;
use x509::crl::Reason;

use super::world::AcmeFixture;
use crate::fixture::Fixture;

/// Runs certbot against a directory URL, with its own data directories.
async fn certbot(fixture: &AcmeFixture, directory: &str, arguments: &[&str]) -> Result<String, String> {
    let mut command = Command::new("certbot");
    let folder = fixture.fixture.path("certbot");
    command
        .args(arguments)
        .args(["--server", directory, "--non-interactive"])
        .arg("--config-dir")
        .arg(folder.join("config"))
        .arg("--work-dir")
        .arg(folder.join("work"))
        .arg("--logs-dir")
        .arg(folder.join("logs"))
        .env("REQUESTS_CA_BUNDLE", fixture.fixture.path("root.pem"))
        .env("TXT_FOLDER", fixture.fixture.path("txt"))
        .env_remove("HTTPS_PROXY")
        .env_remove("https_proxy");
    let run = tokio::task::spawn_blocking(move || command.output()).await.unwrap();
    let run =
        run.unwrap_or_else(|error| panic!("this test needs certbot: apt-get install -y certbot ({error})"));
    let text = format!("{}{}", String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    if run.status.success() { Ok(text) } else { Err(text) }
}

fn verified(fixture: &Fixture, name: &str) {
    let live = format!("certbot/config/live/{name}");
    fixture.openssl(&format!("verify -CAfile root.pem -untrusted {live}/chain.pem {live}/cert.pem"));
}

pub(crate) async fn certbot_registers_issues_renews_revokes_and_unregisters(fixture: Fixture) {
    let port = free_port();
    let (fixture, _server, base) =
        AcmeFixture::served(fixture, |options| options.validation.http_port = port).await;
    let directory = format!("{base}/acme/directory");
    let run = async |arguments: &[&str]| {
        certbot(&fixture, &directory, arguments).await.unwrap_or_else(|text| panic!("{text}"))
    };
    let port = port.to_string();
    run(&["register", "--agree-tos", "-m", "ops@a.test", "--no-eff-email"]).await;
    run(&["update_account", "-m", "other@a.test", "--no-eff-email"]).await;
    run(&[
        "certonly",
        "--standalone",
        "--preferred-challenges",
        "http",
        "--http-01-port",
        &port,
        "--http-01-address",
        "127.0.0.1",
        "-d",
        "a.test",
        "-d",
        "b.test",
        "--key-type",
        "ecdsa",
    ])
    .await;
    verified(&fixture.fixture, "a.test");
    let first = fixture.fixture.read("certbot/config/live/a.test/cert.pem");
    run(&["renew", "--force-renewal", "--no-random-sleep-on-renew"]).await;
    verified(&fixture.fixture, "a.test");
    let second = fixture.fixture.read("certbot/config/live/a.test/cert.pem");
    assert_ne!(first, second);
    run(&["revoke", "--cert-name", "a.test", "--reason", "superseded", "--no-delete-after-revoke"]).await;
    let (_, der) = x509::pem::certificates(second.as_bytes()).next().unwrap();
    let fingerprint = x509::Certificate::parse(&der).unwrap().fingerprint;
    let which = authority::issue::IssuedRef::Fingerprint(fingerprint);
    let record = fixture.fixture.authority.issued(&which).await.unwrap().unwrap();
    assert_eq!(record.revocation.map(|facts| facts.reason), Some(Reason::Superseded));
    run(&["unregister"]).await;
    let accounts = fixture.acme.accounts(None, 10).await.unwrap().rows;
    assert_eq!(accounts.len(), 1);
    assert_eq!(accounts[0].contacts, ["mailto:other@a.test"]);
    assert_eq!(accounts[0].status, AcmeAccountStatus::Deactivated);
}

pub(crate) async fn certbot_binds_an_external_account_and_issues_a_wildcard(fixture: Fixture) {
    let (fixture, _server, base) = AcmeFixture::served(fixture, |options| {
        let bound = DirectoryOptions { external_account_required: true, ..DirectoryOptions::default() };
        options.directories.insert("web".to_owned(), bound);
    })
    .await;
    let directory = format!("{base}/acme/web/directory");
    let folder = fixture.fixture.path("txt");
    std::fs::create_dir(&folder).unwrap();
    fixture.net.txt_from(folder);
    fixture.fixture.write(
        "auth",
        "#!/bin/sh\necho \"$CERTBOT_VALIDATION\" >>\"$TXT_FOLDER/_acme-challenge.$CERTBOT_DOMAIN\"\n",
    );
    let auth = fixture.fixture.path("auth");
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&auth, executable).unwrap();
    let hook = auth.to_str().unwrap().to_owned();
    let order = ["certonly", "--manual", "--preferred-challenges", "dns", "--manual-auth-hook", &hook];
    let names = ["-d", "a.test", "-d", "*.a.test", "--agree-tos", "-m", "ops@a.test", "--no-eff-email"];
    let unbound = certbot(&fixture, &directory, &[&order[..], &names].concat()).await.unwrap_err();
    assert!(unbound.contains("external account"), "{unbound}");
    let key = fixture.acme.create_external_key(NewExternalKey::default(), "user:a").await.unwrap();
    let binding = ["--eab-kid", &key.kid, "--eab-hmac-key", &key.secret];
    let bound = certbot(&fixture, &directory, &[&order[..], &names, &binding].concat()).await;
    bound.unwrap_or_else(|text| panic!("{text}"));
    verified(&fixture.fixture, "a.test");
    let found = fixture.acme.accounts(None, 10).await.unwrap().rows;
    assert_eq!(found[0].external_key, Some(key.id));
}

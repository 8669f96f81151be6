//! Tests with lego, the ACME client inside Traefik and many other programs.

use std::process::Command;

use authority::acme::{DirectoryOptions, NewExternalKey};
use fleet::free_port;

use crate::acme::world::AcmeFixture;
use crate::fixture::Fixture;

/// Runs lego with its own data directory for each ACME directory.
async fn lego(fixture: &AcmeFixture, server: &str, arguments: &[&str]) -> Result<String, String> {
    let mut command = Command::new("lego");
    command
        .args(["--server", server, "--email", "ops@a.test", "--accept-tos"])
        .arg("--path")
        .arg(fixture.fixture.path("lego"))
        .args(arguments)
        .env("LEGO_CA_CERTIFICATES", fixture.fixture.path("root.pem"))
        .env("EXEC_PATH", fixture.fixture.path("hook"))
        .env("EXEC_POLLING_INTERVAL", "1")
        .env("EXEC_SEQUENCE_INTERVAL", "1")
        .env("TXT_FOLDER", fixture.fixture.path("txt"));
    let run = tokio::task::spawn_blocking(move || command.output()).await.unwrap();
    let run = run.unwrap_or_else(|error| panic!("this test needs lego: run .ci/interop acme ({error})"));
    let text = format!("{}{}", String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    if run.status.success() { Ok(text) } else { Err(text) }
}

fn leaf(fixture: &AcmeFixture, name: &str) -> x509::Certificate {
    let pem = fixture.fixture.read(&format!("lego/certificates/{name}.crt"));
    let chain: Vec<Vec<u8>> = x509::pem::certificates(pem.as_bytes()).map(|(_, der)| der).collect();
    assert_eq!(chain.len(), 2);
    fixture.fixture.write("leaf.pem", crate::fixture::pem(&chain[..1]));
    fixture.fixture.write("chain.pem", crate::fixture::pem(&chain[1..]));
    fixture.fixture.openssl("verify -CAfile root.pem -untrusted chain.pem leaf.pem");
    x509::Certificate::parse(&chain[0]).unwrap()
}

async fn served(
    change: impl FnOnce(&mut authority::acme::AcmeOptions),
) -> (AcmeFixture, crate::http::Server, String) {
    AcmeFixture::served(Fixture::sqlite().await, change).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lego_validates_by_http_01_and_renews_when_suggested() {
    let port = free_port();
    let (fixture, _server, base) = served(|options| options.validation.http_port = port).await;
    let directory = format!("{base}/acme/directory");
    let http = format!("127.0.0.1:{port}");
    let common = ["--domains", "a.test", "--domains", "127.0.0.1", "--http", "--http.port", &http];
    let run = async |arguments: &[&str]| {
        let all = [&common[..], arguments].concat();
        lego(&fixture, &directory, &all).await.unwrap_or_else(|text| panic!("{text}"))
    };
    run(&["run"]).await;
    let first = leaf(&fixture, "a.test");
    // The renewal window of the server is in the future.
    run(&["renew", "--days", "1", "--no-random-sleep"]).await;
    assert_eq!(leaf(&fixture, "a.test").serial, first.serial);
    // For a revoked certificate the window is now, and lego obeys it (RFC 9773).
    let which = authority::revoke::Selection::Fingerprint(first.fingerprint);
    let reason = x509::crl::Reason::Superseded;
    fixture.fixture.authority.revoke(which, reason, None, "user:a").await.unwrap();
    let text = run(&["renew", "--days", "1", "--no-random-sleep"]).await;
    let second = leaf(&fixture, "a.test");
    assert_ne!(second.serial, first.serial, "{text}");
    let order = fixture.acme.list_orders(None, None, 10).await.unwrap().rows;
    assert_eq!(order.iter().filter(|one| one.order.replaces.is_some()).count(), 1);
    lego(&fixture, &directory, &["--domains", "a.test", "revoke", "--reason", "4"])
        .await
        .unwrap_or_else(|text| panic!("{text}"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lego_validates_by_tls_alpn_01_with_every_key_type() {
    let port = free_port();
    let (fixture, _server, base) = served(|options| options.validation.https_port = port).await;
    let directory = format!("{base}/acme/directory");
    let tls = format!("127.0.0.1:{port}");
    for (kind, name) in [("ec256", "a.test"), ("ec384", "b.test"), ("rsa2048", "c.test")] {
        let arguments = ["--domains", name, "--key-type", kind, "--tls", "--tls.port", &tls, "run"];
        lego(&fixture, &directory, &arguments).await.unwrap_or_else(|text| panic!("{kind}: {text}"));
        assert_eq!(leaf(&fixture, name).names(), [name]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lego_validates_a_wildcard_by_dns_01_with_eab_and_profile() {
    let (fixture, _server, base) = served(|options| {
        let bound = DirectoryOptions {
            external_account_required: true,
            profiles: vec!["web".to_owned()],
            ..DirectoryOptions::default()
        };
        options.directories.insert("default".to_owned(), bound);
    })
    .await;
    let directory = format!("{base}/acme/directory");
    let folder = fixture.fixture.path("txt");
    std::fs::create_dir(&folder).unwrap();
    fixture.net.txt_from(folder);
    // lego passes the name with a trailing dot.
    let hook = "#!/bin/sh\n[ \"$1\" = present ] && echo \"$3\" >>\"$TXT_FOLDER/${2%.}\"\nexit 0\n";
    fixture.fixture.write("hook", hook);
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(fixture.fixture.path("hook"), executable).unwrap();
    let resolver = fixture.net.dns.to_string();
    let names =
        ["--domains", "*.a.test", "--domains", "a.test", "--dns", "exec", "--dns.resolvers", &resolver];
    let wait = ["--dns.propagation-wait", "1s"];
    let key = fixture.acme.create_external_key(NewExternalKey::default(), "user:a").await.unwrap();
    let binding = ["--eab", "--kid", &key.kid, "--hmac", &key.secret];
    let arguments = [&names[..], &wait, &binding, &["run", "--profile", "web"]].concat();
    lego(&fixture, &directory, &arguments).await.unwrap_or_else(|text| panic!("{text}"));
    let leaf = leaf(&fixture, "_.a.test");
    let which = authority::issue::IssuedRef::Fingerprint(leaf.fingerprint);
    assert_eq!(fixture.fixture.authority.issued(&which).await.unwrap().unwrap().profile, "web");
}

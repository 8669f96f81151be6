//! An ACME server for a [`Fixture`], with servers to validate against.

use std::sync::{Arc, OnceLock};

use authority::acme::{Acme, AcmeOptions, DirectoryOptions, LimitOptions, ValidationOptions};
use authority::issue::{IssueRequest, Source};
use authority::profile::Profile;
use authority::tree::NewCa;
use keys::{KeyType, PrivateKey, Signer as _};
use serde_json::json;
use store::Clock;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use x509::GeneralName;

use super::client::BASE;
use super::net::Net;
use crate::fixture::Fixture;
use crate::http::Server;

pub(crate) use crate::fixture::eventually;

pub(crate) struct AcmeFixture {
    pub(crate) acme: Acme,
    pub(crate) net: Net,
    pub(crate) fixture: Fixture,
    running: Option<(JoinHandle<()>, Arc<Notify>)>,
}

impl AcmeFixture {
    pub(crate) async fn new(fixture: Fixture) -> Self {
        Self::with(fixture, |_| ()).await
    }

    /// Creates a server with options changed by the test.
    pub(crate) async fn with(fixture: Fixture, change: impl FnOnce(&mut AcmeOptions)) -> Self {
        let net = Net::start().await;
        let authority = &fixture.authority;
        if authority.ca("root").await.is_err() {
            authority.create_root(&NewCa::root("root", "CN=Test Root"), "user:a").await.unwrap();
        }
        authority
            .create_intermediate("root", &NewCa::intermediate("ca", "CN=Test CA"), "user:a")
            .await
            .unwrap();
        for name in ["default", "web"] {
            let mut profile = profile(name);
            profile.ca = Some("ca".to_owned());
            authority.put_profile(profile, None, "user:a").await.unwrap();
        }
        let mut options = options(&net);
        change(&mut options);
        let acme = open(&fixture, options);
        let mut this = Self { acme, net, fixture, running: None };
        this.run();
        this
    }

    /// Starts a server that real clients reach over TLS on loopback, at the current time. Returns it with its base URL. The root
    /// that the clients must trust is in `root.pem` in the directory of the fixture.
    pub(crate) async fn served(
        fixture: Fixture,
        change: impl FnOnce(&mut AcmeOptions),
    ) -> (Self, Server, String) {
        fixture.clock.set(Clock::system().now_us());
        let authority = &fixture.authority;
        let root = authority.create_root(&NewCa::root("root", "CN=Test Root"), "user:a").await.unwrap();
        fixture.write("root.pem", crate::fixture::pem(&[&root.certificate.der]));
        let key = PrivateKey::generate(KeyType::P256).unwrap();
        authority.put_profile(profile("server"), None, "user:a").await.unwrap();
        let names = vec![GeneralName::Ip([127, 0, 0, 1].into())];
        let request = IssueRequest::new("server", key.spki().to_vec(), names, Source::System, "user:a");
        let issued = authority.issue(request).await.unwrap();
        let tls = crate::http::tls(&[issued.der], &key.to_pkcs8_der(), &root.certificate.der);
        let acme = Arc::new(OnceLock::<Acme>::new());
        let late = acme.clone();
        let server = crate::http::serve(Some(tls), move |request, peer| {
            let acme = late.clone();
            async move { acme.get().expect("the server is not ready").handle(request, &peer).await }
        })
        .await;
        let base_url = format!("https://{}", server.address);
        let this = Self::with(fixture, |options| {
            options.base_url.clone_from(&base_url);
            change(options);
        })
        .await;
        acme.set(this.acme.clone()).unwrap();
        (this, server, base_url)
    }

    /// Starts the validation worker.
    pub(crate) fn run(&mut self) {
        let (acme, stop) = (self.acme.clone(), Arc::new(Notify::new()));
        let stopped = stop.clone();
        let task = tokio::spawn(async move { acme.run(stopped.notified()).await });
        self.running = Some((task, stop));
    }

    /// Stops the validation worker, and leaves its current work unfinished.
    pub(crate) async fn halt(&mut self) {
        if let Some((task, stop)) = self.running.take() {
            stop.notify_one();
            task.await.unwrap();
        }
    }

    /// Returns the server as after a restart, or on another node.
    pub(crate) fn another(&self) -> Acme {
        open(&self.fixture, self.acme.options().clone())
    }

    /// Replaces this server by one as after a restart.
    pub(crate) async fn restart(&mut self) {
        self.halt().await;
        self.acme = self.another();
        self.run();
    }
}

fn open(fixture: &Fixture, options: AcmeOptions) -> Acme {
    Acme::new(fixture.another_node(), fixture.store.clone(), fixture.clock.clone(), options).unwrap()
}

pub(crate) fn profile(name: &str) -> Profile {
    let names = json!({
        "dns_allowed": [{"suffix": "test", "wildcards": true}],
        "dns_denied": ["secret.test"],
        "ip_allowed": ["127.0.0.0/8", "192.0.2.0/24"],
    });
    Profile::for_servers(name, serde_json::from_value(names).unwrap())
}

fn options(net: &Net) -> AcmeOptions {
    AcmeOptions {
        base_url: BASE.to_owned(),
        other_profiles: Some(DirectoryOptions::default()),
        limits: LimitOptions::none(),
        validation: ValidationOptions {
            name_servers: vec![net.dns],
            http_port: net.http.port(),
            https_port: net.tls.port(),
            try_milliseconds: 5_000,
            ..ValidationOptions::for_tests()
        },
        ..AcmeOptions::default()
    }
}

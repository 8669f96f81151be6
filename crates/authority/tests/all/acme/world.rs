//! An ACME server over a [`Place`], with a world to validate against.

use std::sync::Arc;
use std::time::Duration;

use authority::acme::{Acme, AcmeOptions, DirectoryOptions, LimitOptions, ValidationOptions};
use authority::profile::Profile;
use authority::tree::NewCa;
use serde_json::json;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::client::BASE;
use super::net::Net;
use crate::place::Place;

pub(crate) struct AcmePlace {
    pub(crate) acme: Acme,
    pub(crate) net: Net,
    pub(crate) place: Place,
    running: Option<(JoinHandle<()>, Arc<Notify>)>,
}

impl AcmePlace {
    pub(crate) async fn new(place: Place) -> Self {
        Self::with(place, |_| ()).await
    }

    /// With options changed by the test.
    pub(crate) async fn with(place: Place, change: impl FnOnce(&mut AcmeOptions)) -> Self {
        let net = Net::start().await;
        let authority = &place.authority;
        authority.create_root(&NewCa::root("root", "CN=Test Root"), "user:a").await.unwrap();
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
        let acme = open(&place, options);
        let mut this = Self { acme, net, place, running: None };
        this.run();
        this
    }

    /// Begins to validate.
    pub(crate) fn run(&mut self) {
        let (acme, stop) = (self.acme.clone(), Arc::new(Notify::new()));
        let stopped = stop.clone();
        let task = tokio::spawn(async move { acme.run(stopped.notified()).await });
        self.running = Some((task, stop));
    }

    /// Ends validating; what was under way is left.
    pub(crate) async fn halt(&mut self) {
        if let Some((task, stop)) = self.running.take() {
            stop.notify_one();
            task.await.unwrap();
        }
    }

    /// The server as after a restart, or on another node.
    pub(crate) fn another(&self) -> Acme {
        open(&self.place, self.acme.options().clone())
    }

    /// Puts the server as after a restart in place of this one.
    pub(crate) async fn restart(&mut self) {
        self.halt().await;
        self.acme = self.another();
        self.run();
    }
}

fn open(place: &Place, options: AcmeOptions) -> Acme {
    Acme::new(place.another_node(), place.store.clone(), place.clock.clone(), options).unwrap()
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

/// Waits until `found` finds something.
pub(crate) async fn eventually<T>(what: &str, mut found: impl AsyncFnMut() -> Option<T>) -> T {
    for _ in 0..600 {
        if let Some(found) = found().await {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{what} did not happen");
}

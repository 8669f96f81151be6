//! ACME, EST, SCEP, CRLs and OCSP: the access rule of each operation, and that anonymous requests are rejected.

use authority::keystore::KeyStore;
use authority::tree::NewCa;
use authority::{AccessRule, Authority, AuthorityOptions, Operation, acme, est, publish, scep};
use http::Method;
use keys::Keyring;
use server::Components;
use server::limit::LimitOptions;
use store::Clock;

use crate::world::{self, Plan, World, send};

/// Returns the operations by protocol, from their routing tables.
fn operations() -> Vec<(&'static str, &'static Operation)> {
    let of = |name, all: &'static [Operation]| all.iter().map(move |operation| (name, operation));
    of("ACME", &acme::OPERATIONS)
        .chain(of("EST", &est::OPERATIONS))
        .chain(of("SCEP", &scep::OPERATIONS))
        .chain(of("CRL, OCSP, CA", &publish::OPERATIONS))
        .collect()
}

async fn server() -> World {
    let database = testbed::Database::sqlite();
    let (store, clock) = (database.open().await, Clock::system());
    let keystore = KeyStore::new(store.clone(), Keyring::ephemeral(), clock.clone());
    let authority =
        Authority::open(store.clone(), keystore, clock.clone(), AuthorityOptions::default()).unwrap();
    authority.create_root(&NewCa::root("root", "CN=Root"), "test").await.unwrap();
    let issuance = Some(world::issuance(&authority, &store, &clock));
    let components = Components { issuance, ..Components::default() };
    World::start_with(Plan {
        state: Box::new(|state| state.limits(LimitOptions::unlimited())),
        database,
        components,
        ..Plan::default()
    })
    .await
}

pub(super) async fn table() -> String {
    let world = server().await;
    let (mut rows, mut faults) = (Vec::new(), Vec::new());
    for (protocol, operation) in operations() {
        let path = operation.path.replace("{id}", "00000000-0000-7000-8000-000000000000");
        let path = path.replace("{*path}", "none").replace("{certificate}", "a.b");
        for method in operation.methods {
            let method = Method::from_bytes(method.as_bytes()).unwrap();
            let answer = send(world.bare(method.clone(), &path)).await;
            // Responses of the router itself have another text than those of a protocol.
            let routed = !answer.text.contains("unknown path");
            let carried_out = answer.status.is_success();
            if !routed || carried_out && operation.rule != AccessRule::Anybody {
                faults.push(format!("{method} {path} by nobody: {answer:?}"));
            }
        }
        let what = format!("`{} {}`", operation.methods.join(", "), operation.path);
        rows.push(vec![protocol.to_owned(), what, operation.rule.to_string()]);
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    super::table("Protocols", &["protocol", "operation", "needs"], &rows)
}

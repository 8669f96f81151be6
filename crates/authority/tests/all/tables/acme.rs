//! Rows of the ACME server.

use authority::tables::acme::{AcmeOrder, AcmeOrderStatus, insert_acme_orders};
use uuid::Uuid;

use testbed::tables::{NOW, World};

fn order(number: u128) -> AcmeOrder {
    AcmeOrder {
        id: Uuid::from_u128(number),
        account: Uuid::from_u128(1),
        profile: "web".to_owned(),
        status: AcmeOrderStatus::Pending,
        names: vec![format!("dns:n{number}.example")],
        authorizations: vec![Uuid::from_u128(number)],
        not_before_us: None,
        not_after_us: None,
        created_at_us: NOW,
        expires_at_us: NOW,
        replaces: None,
        csr: None,
        certificate: None,
        error: None,
        claimed_until_us: None,
    }
}

pub(crate) async fn old_orders_go_as_a_set(world: World) {
    let store = &world.store;
    let new: Vec<AcmeOrder> = (0..700).map(order).collect();
    let write = store.write("test", move |tx| Box::pin(async move { insert_acme_orders(tx, &new).await }));
    write.await.unwrap();
    let before = store.statements_sent();
    assert_eq!(authority::tables::Acme::of(store).tidy_orders(Uuid::from_u128(600), 500).await.unwrap(), 500);
    assert_eq!(store.statements_sent() - before, 1, "five hundred by one statement");
    assert_eq!(authority::tables::Acme::of(store).tidy_orders(Uuid::from_u128(600), 500).await.unwrap(), 100);
    let ids: Vec<Uuid> = (0..700).map(Uuid::from_u128).collect();
    let before = store.statements_sent();
    assert_eq!(authority::tables::Acme::of(store).orders_with_authorizations(&ids).await.unwrap().len(), 100);
    assert!(store.statements_sent() - before <= 2, "read as a set too");
}

//! Tests of rows of the ACME server.

use authority::tables::acme::{
    AcmeAuthorization, AcmeAuthorizationStatus, AcmeOrder, AcmeOrderStatus, AcmeProof, Method,
    insert_acme_authorizations, insert_acme_orders,
};
use futures_util::FutureExt;
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

fn authorization(number: u128, proof: Option<AcmeProof>) -> AcmeAuthorization {
    AcmeAuthorization {
        id: Uuid::from_u128(number),
        account: Uuid::from_u128(1),
        profile: "web".to_owned(),
        identifier: format!("dns:n{number}.example"),
        wildcard: false,
        status: AcmeAuthorizationStatus::Pending,
        token: vec![1; 16],
        methods: 3,
        proof,
        created_at_us: NOW,
        expires_at_us: NOW,
        validated_at_us: None,
        reusable_until_us: None,
        error: None,
        claimed_until_us: None,
    }
}

pub(crate) async fn unknown_challenge_type_codes_are_errors(world: World) {
    let store = &world.store;
    let proofs = [None, Some(AcmeProof::NotNeeded), Some(AcmeProof::Challenge(Method::Http01))]
        .into_iter()
        .chain([Some(AcmeProof::Challenge(Method::DnsPersist01))]);
    let new: Vec<_> = (0..).zip(proofs).map(|(number, proof)| authorization(number, proof)).collect();
    let stored = new.clone();
    let write =
        store.write("test", move |tx| async move { insert_acme_authorizations(tx, &stored).await }.boxed());
    write.await.unwrap();
    for one in &new {
        let read = authority::tables::Acme::of(store).authorization(one.id).await.unwrap();
        assert_eq!(read.as_ref(), Some(one));
    }
    for code in [-2, 5, 63, 64] {
        let text = format!("UPDATE acme_authorizations SET method = {code}");
        let write = store.write("test", move |tx| async move { tx.execute(&text, Vec::new()).await }.boxed());
        assert_eq!(write.await.unwrap(), 4);
        let error = authority::tables::Acme::of(store).authorization(new[0].id).await.unwrap_err();
        let expected = format!("acme_authorizations.method: unknown code {code} of ACME challenge type");
        assert!(error.to_string().ends_with(&expected), "{error}");
    }
}

pub(crate) async fn old_orders_are_deleted_in_batches(world: World) {
    let store = &world.store;
    let new: Vec<AcmeOrder> = (0..700).map(order).collect();
    let write = store.write("test", move |tx| Box::pin(async move { insert_acme_orders(tx, &new).await }));
    write.await.unwrap();
    let before = store.statements_sent();
    assert_eq!(
        authority::tables::Acme::of(store).delete_orders_before(Uuid::from_u128(600), 500).await.unwrap(),
        500
    );
    assert_eq!(store.statements_sent() - before, 1, "five hundred by one statement");
    assert_eq!(
        authority::tables::Acme::of(store).delete_orders_before(Uuid::from_u128(600), 500).await.unwrap(),
        100
    );
    let ids: Vec<Uuid> = (0..700).map(Uuid::from_u128).collect();
    let before = store.statements_sent();
    assert_eq!(authority::tables::Acme::of(store).orders_with_authorizations(&ids).await.unwrap().len(), 100);
    assert!(store.statements_sent() - before <= 2, "read as a set too");
}

//! People hear of a certificate whose end comes near, whatever kept it from being renewed.

use alerts::{AlertOptions, AlertReport, Alerts, Channels};
use lifecycle::managed::NewCertificate;
use outbound::resolve::Resolver;
use store::states::AlertState;

use super::world::{LIFE, World};

pub(super) async fn an_end_that_comes_near_is_an_alert_with_the_certificates_tags(world: World) {
    let channels = Channels::new(Resolver::with_upstreams(Vec::new()));
    let (store, keystore, clock) = (world.store.clone(), world.keystore.clone(), world.clock.clone());
    let alerts = Alerts::new(store, keystore, clock, channels, AlertOptions::default());
    let mut new = NewCertificate::new(&["www.example.org"], "web");
    new.tags.insert("cost".to_owned(), "7".to_owned());
    let id = world.life.create(new, "user:ann").await.unwrap().certificate;
    world.life.tick().await.unwrap();
    settle(&world, &alerts).await;
    assert_eq!(
        alerts::tables::Alerts::of(&world.store).page(AlertState::Open, None, 10).await.unwrap().rows,
        []
    );
    // Nobody renews it.
    world.advance(LIFE * 95 / 100);
    settle(&world, &alerts).await;
    let open = alerts::tables::Alerts::of(&world.store).page(AlertState::Open, None, 10).await.unwrap().rows;
    assert_eq!(open.len(), 1, "{open:?}");
    assert_eq!(
        (open[0].kind.as_str(), open[0].subject.clone()),
        ("certificate.expiring", format!("certificate/{id}"))
    );
    let attributes: serde_json::Value = serde_json::from_str(&open[0].attributes).unwrap();
    assert_eq!(attributes["tags"]["cost"], "7", "rules can match it");
    // Renewed after all.
    world.life.tick().await.unwrap();
    settle(&world, &alerts).await;
    assert_eq!(
        alerts::tables::Alerts::of(&world.store).page(AlertState::Open, None, 10).await.unwrap().rows,
        []
    );
}

/// Rounds until all events are read. On PostgreSQL events wait for transactions that began before, also other tests'.
async fn settle(world: &World, alerts: &Alerts) {
    let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
    loop {
        let idle = alerts.round().await.unwrap() == AlertReport::default();
        let end = world.store.outbox_end().await.unwrap();
        if idle && world.store.outbox_place("alerts").await.unwrap() == end {
            return;
        }
        assert!(std::time::Instant::now() < until, "alerts never come to rest");
        tokio::task::yield_now().await;
    }
}

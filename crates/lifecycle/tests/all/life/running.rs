//! Tests of the scheduler's loops.

use std::time::Duration;

use lifecycle::managed::NewCertificate;
use lifecycle::state::State;
use tokio_util::sync::CancellationToken;

use super::world::World;

/// Far longer than the loops need on a loaded machine.
const TIMEOUT: Duration = Duration::from_secs(60);

pub(super) async fn scheduler_issues_until_stopped(world: World) {
    let stop = CancellationToken::new();
    let second = world.second().await;
    let loops: Vec<_> = [world.life.clone(), second]
        .into_iter()
        .map(|life| {
            let stop = stop.clone();
            tokio::spawn(async move { life.run(stop).await })
        })
        .collect();
    let new = (0..30).map(|number| NewCertificate::new(&[&format!("n{number}.example.org")], "web"));
    let created = world.life.create_many(new.collect(), "user:ann").await;
    let active = async {
        loop {
            let counts = world.life.counts().await.unwrap();
            if counts.states.get(&State::Active) == Some(&30) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, active).await.expect("thirty certificates are issued");
    assert_eq!(world.issuer("internal").made(), 30);
    assert!(created.iter().all(Result::is_ok));
    stop.cancel();
    for one in loops {
        tokio::time::timeout(TIMEOUT, one).await.expect("the loops stop").unwrap();
    }
    assert_eq!(world.life.under_way().values().sum::<usize>(), 0);
    let figures = world.life.figures().loops();
    assert!(figures["work"].runs > 0);
    world.check().await;
}

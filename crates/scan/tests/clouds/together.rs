//! Several clouds at once, and all the way into the inventory.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use fleet::cloud::Fault;
use fleet::cloud::aws::{AwsCloud, AwsPlan};
use fleet::cloud::azure::{AzureCloud, AzurePlan};
use fleet::cloud::gcp::{GcpCloud, GcpPlan};
use scan::clouds::{CloudRun, CloudSource, Event, Listed, Observer, State, observe, start};
use scan::{Observation, Outcome, Recorder, ScanOptions, Trusted};
use store::{ChangeKind, Store, StoreUrl};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::world::{http, pools, quick_pools};
use crate::{aws, azure, gcp};

/// One cloud says nothing and one throttles everything: the others have ended long before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_provider_that_hangs_holds_up_no_other() {
    let hanging = AwsCloud::start(&AwsPlan::default()).unwrap();
    let throttling = GcpCloud::start(&GcpPlan { project: "busy".to_owned(), ..GcpPlan::default() }).unwrap();
    let well = GcpCloud::start(&GcpPlan::default()).unwrap();
    let vaults = Arc::new(AzureCloud::start(&AzurePlan::default()).unwrap());
    let pools = pools();
    let mut sources = aws::sources(&hanging, &pools, &http()).await;
    sources.push(gcp::source(&throttling, "busy", &pools).await);
    sources.push(gcp::source(&well, "fleet", &pools).await);
    sources.push(azure::source(&vaults, &pools).0);
    hanging.set_fault(Fault::Hanging);
    throttling.set_fault(Fault::Throttling);
    let mut events = start(sources, HashMap::new(), Duration::from_secs(30), CancellationToken::new());
    let (mut ended, mut failed) = (Vec::new(), Vec::new());
    while let Some(event) = events.recv().await {
        if let Event::Ended(listed) = event {
            failed.push(!listed.failed.is_empty());
            ended.push(listed.source.to_string());
        }
    }
    ended[..2].sort();
    assert_eq!(ended[..2], ["azure/00000000-1111-2222-3333-444444444444", "gcp/fleet"]);
    assert_eq!(failed, [false, false, true, true]);
}

struct Inventory {
    store: Store,
    _folder: tempfile::TempDir,
}

impl Inventory {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&StoreUrl::sqlite(folder.path().join("inventory.db"))).await.unwrap();
        Self { store, _folder: folder }
    }

    /// Lists into the inventory, from what is kept there.
    async fn list(&self, sources: Vec<Arc<dyn CloudSource>>, at_us: i64) -> (Vec<Observation>, Vec<Listed>) {
        let id = Uuid::now_v7();
        self.store.begin_scan(id, at_us, "{}").await.unwrap();
        let states = self.store.source_states().await.unwrap();
        let states =
            states.into_iter().map(|(source, text)| (source, State::from_text(&text).unwrap())).collect();
        let observer = Observer::new(&ScanOptions::default(), Trusted::nobody(), Some(self.store.clone()));
        let CloudRun { mut observations, ended } =
            observe(sources, states, Duration::from_secs(60), observer, CancellationToken::new());
        let (mut seen, mut rows, mut recorder) = (Vec::new(), Vec::new(), Recorder::default());
        while let Some(observation) = observations.recv().await {
            rows.push(recorder.row(&observation, "{}".to_owned()));
            seen.push(observation);
        }
        self.store.record(id, &rows).await.unwrap();
        let ended = ended.await.unwrap().unwrap();
        for listed in &ended {
            self.store.put_source_state(&listed.source, &listed.state.to_text(), at_us).await.unwrap();
        }
        (seen, ended)
    }
}

/// Read once, then known from the inventory, judged anew each time; renewed, deleted and found again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_live_in_the_inventory_as_those_of_endpoints_do() {
    let manners = fleet::cloud::Manners { quotas: aws::free(), ..fleet::cloud::Manners::default() };
    let cloud = AwsCloud::start(&AwsPlan { manners, ..AwsPlan::default() }).unwrap();
    let sources = aws::sources(&cloud, &quick_pools(), &http()).await;
    let inventory = Inventory::new().await;
    let (first, _) = inventory.list(sources.clone(), 1_000).await;
    assert_eq!(first.len(), cloud.truth().len());
    assert!(first.iter().all(|seen| !seen.kept.as_ref().unwrap().unchanged));
    let (renewed, sha256) = cloud.renew_one().unwrap().unwrap();
    let deleted = cloud.delete_one().unwrap();
    let (second, ended) = inventory.list(sources, 2_000).await;
    let of = |name: &str| second.iter().find(|seen| seen.target.host_text() == name).unwrap();
    assert_eq!(of(&deleted).outcome, Outcome::Gone);
    assert_eq!(of(&renewed).leaf().unwrap().fingerprint.to_string(), sha256);
    assert_eq!(ended.iter().map(|listed| listed.read).sum::<u64>(), 1);
    let unchanged: Vec<_> = second.iter().filter(|seen| seen.kept.as_ref().unwrap().unchanged).collect();
    // All that have a certificate, but the renewed one; the deleted one had none yet.
    assert_eq!(unchanged.len(), cloud.truth().iter().filter(|one| one.leaf_sha256.is_some()).count() - 1);
    assert!(unchanged.iter().all(|seen| seen.chain.len() == 2 && !seen.findings.is_empty()));
    let page = inventory.store.diff(2_000, None, 100).await.unwrap();
    let kinds: Vec<_> = page.rows.iter().map(|row| (row.endpoint.host.clone(), row.kind)).collect();
    assert!(kinds.contains(&(renewed, ChangeKind::CertificateChanged)), "{kinds:?}");
}

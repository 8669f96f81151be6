//! Certificates of a cloud, from the listing to the inventory.

use std::sync::Arc;

use clouds::{CloudSource, Listed, State};
use fleet::cloud::CloudBehavior;
use fleet::cloud::aws::{AwsCloud, AwsPlan, unlimited_quotas};
use inventory::Recorder;
use inventory::sources::{CloudRun, Observer, observe};
use scan::{Observation, ProbeOutcome, ScanOptions, Trusted};
use store::{ChangeKind, Store, StoreUrl};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::aws;
use crate::world::{LIMIT, http, quick_pools};

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

    /// Lists into the inventory, starting from the state stored there.
    async fn list(&self, sources: Vec<Arc<dyn CloudSource>>, at_us: i64) -> (Vec<Observation>, Vec<Listed>) {
        let id = Uuid::now_v7();
        store::Scans::of(&self.store).begin(id, at_us, "{}").await.unwrap();
        let states = inventory::tables::Sources::of(&self.store).all().await.unwrap();
        let states =
            states.into_iter().map(|(source, text)| (source, State::from_text(&text).unwrap())).collect();
        let observer =
            Observer::new(&ScanOptions::default(), Trusted::trusting_none(), Some(self.store.clone()));
        let CloudRun { mut observations, ended } =
            observe(sources, states, LIMIT, observer, CancellationToken::new());
        let (mut seen, mut rows, mut recorder) = (Vec::new(), Vec::new(), Recorder::default());
        while let Some(observation) = observations.recv().await {
            rows.push(recorder.row(&observation, "{}".to_owned()));
            seen.push(observation);
        }
        store::Scans::of(&self.store).record(id, &rows).await.unwrap();
        let ended = ended.await.unwrap().unwrap();
        for listed in &ended {
            inventory::tables::Sources::of(&self.store)
                .put(&listed.source, &listed.state.to_text(), at_us)
                .await
                .unwrap();
        }
        (seen, ended)
    }
}

/// Certificates are read once, then known from the inventory and evaluated at each listing. Covers renewal, deletion and
/// rediscovery.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cloud_certificates_are_stored_renewed_and_deleted_in_the_inventory() {
    let manners = CloudBehavior { quotas: unlimited_quotas(), ..CloudBehavior::default() };
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
    assert_eq!(of(&deleted).outcome, ProbeOutcome::Gone);
    assert_eq!(of(&renewed).leaf().unwrap().fingerprint.to_string(), sha256);
    assert_eq!(ended.iter().map(|listed| listed.read).sum::<u64>(), 1);
    let unchanged: Vec<_> = second.iter().filter(|seen| seen.kept.as_ref().unwrap().unchanged).collect();
    // All that have a certificate, except the renewed one. The deleted entry had no certificate yet.
    assert_eq!(unchanged.len(), cloud.truth().iter().filter(|one| one.leaf_sha256.is_some()).count() - 1);
    assert!(unchanged.iter().all(|seen| seen.chain.len() == 2 && !seen.findings.is_empty()));
    let page = store::Inventory::of(&inventory.store).diff(2_000, None, 100).await.unwrap();
    let kinds: Vec<_> = page.rows.iter().map(|row| (row.endpoint.host.clone(), row.kind)).collect();
    assert!(kinds.contains(&(renewed, ChangeKind::CertificateChanged)), "{kinds:?}");
}

//! Several clouds in one listing.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use clouds::{Event, start};
use fleet::cloud::Fault;
use fleet::cloud::aws::{AwsCloud, AwsPlan};
use fleet::cloud::azure::{AzureCloud, AzurePlan};
use fleet::cloud::gcp::{GcpCloud, GcpPlan};
use tokio_util::sync::CancellationToken;

use crate::world::{http, pools};
use crate::{aws, azure, gcp};

/// One cloud hangs and one throttles everything. The other listings end long before them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hanging_and_throttling_providers_do_not_delay_others() {
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

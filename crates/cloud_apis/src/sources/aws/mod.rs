//! AWS: ACM in every enabled region, IAM server certificates, and the resources that use them.
//!
//! Listings contain the expiry of each certificate; a certificate is read only if it is new or changed. Uses come from load
//! balancers, CloudFront and API Gateway. For other services, ACM is queried about new and changed certificates. Tags of these
//! certificates are read one certificate at a time; without permission to read tags, the certificates are still listed.

mod acm;
mod answer;
mod iam;
mod session;
mod tagging;
mod usage;
mod uses;

use std::sync::Arc;

pub use crate::auth::aws::AwsOptions;
use aws_sdk_account::types::RegionOptStatus;
use futures_util::future::{BoxFuture, FutureExt, join_all};
use outbound::Deadline;

use self::session::{GLOBAL_REGION, RegionalAccess, Session};
use self::uses::{merged, shared_lookup};
use crate::auth::http::HttpClient;

pub use clouds::AwsAccount;
use clouds::{CloudSource, Pools, Provider, Sink, SourceError};

/// Maximum regions of an account; AWS has about 40.
const REGIONS_MAX: usize = 128;
/// Regions on one page.
const REGIONS_PAGE: i32 = 50;

/// Source of the certificates of one AWS account.
pub struct AwsSource {
    name: Arc<str>,
    account: AwsAccount,
    session: Session,
}

impl AwsSource {
    /// Creates a source for `account`. Credentials come from the standard chain: environment, shared files and single sign-on, web
    /// identity, containers, instance metadata. Sends no listing request before the first listing.
    ///
    /// # Errors
    /// [`SourceError::Configuration`] for an invalid account.
    #[crate::boxed]
    pub async fn new(
        account: AwsAccount,
        options: &AwsOptions,
        http: HttpClient,
        pools: Pools,
    ) -> Result<Self, SourceError> {
        if account.account.len() != 12 || !account.account.bytes().all(|byte| byte.is_ascii_digit()) {
            let problem = format!("{:?} is not an AWS account ID: twelve digits", account.account);
            return Err(SourceError::Configuration(problem));
        }
        let session = Session::new(&account, options, http, pools).await;
        Ok(Self { name: account.source(), account, session })
    }

    async fn regions(&self, deadline: Deadline) -> Result<Vec<String>, SourceError> {
        if !self.account.regions.is_empty() {
            return Ok(self.account.regions.clone());
        }
        let global = self.session.region(GLOBAL_REGION);
        let client = aws_sdk_account::Client::new(&global.config);
        let (mut regions, mut token) = (Vec::new(), None);
        loop {
            let page = global
                .call("account:ListRegions", deadline, || {
                    client
                        .list_regions()
                        .region_opt_status_contains(RegionOptStatus::Enabled)
                        .region_opt_status_contains(RegionOptStatus::EnabledByDefault)
                        .max_results(REGIONS_PAGE)
                        .set_next_token(token.clone())
                        .send()
                })
                .await?;
            regions
                .extend(page.regions().iter().filter_map(|region| region.region_name().map(str::to_owned)));
            token = page.next_token().map(str::to_owned);
            if token.is_none() || regions.len() >= REGIONS_MAX {
                regions.truncate(REGIONS_MAX);
                return Ok(regions);
            }
        }
    }

    async fn list_all(&self, sink: &Sink, deadline: Deadline) -> Result<(), SourceError> {
        let names = self.regions(deadline).await?;
        let regions: Vec<RegionalAccess> = names.iter().map(|name| self.session.region(name)).collect();
        let global = self.session.region(GLOBAL_REGION);
        let distributions = shared_lookup(usage::distributions_usage(&global, sink, deadline));
        let uses: Vec<_> =
            regions.iter().map(|region| shared_lookup(usage::region_usage(region, sink, deadline))).collect();
        let acm = join_all(regions.iter().zip(&uses).map(|(region, uses)| {
            let far = (region.name == GLOBAL_REGION).then(|| distributions.clone());
            let uses = shared_lookup(merged(vec![uses.clone()], far));
            acm::list(region, sink, uses, deadline)
        }));
        let everywhere = shared_lookup(merged(uses.clone(), Some(distributions.clone())));
        let iam = iam::list(&global, sink, everywhere, deadline);
        futures_util::join!(acm, iam);
        Ok(())
    }
}

impl CloudSource for AwsSource {
    fn name(&self) -> &Arc<str> {
        &self.name
    }

    fn provider(&self) -> Provider {
        Provider::Aws
    }

    fn list<'a>(&'a self, sink: &'a Sink, deadline: Deadline) -> BoxFuture<'a, Result<(), SourceError>> {
        self.list_all(sink, deadline).boxed()
    }
}

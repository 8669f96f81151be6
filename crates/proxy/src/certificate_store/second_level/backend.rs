//! Storage interface of the second level.

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use store::{Store, StoreError};
use uuid::Uuid;

use crate::tables::{self, CleanupCounts, LeafLeaseRequest, LeafLookup, NewLeaf};

/// The lease for deleting expired leaves.
const TIDY_LEASE: &str = "proxy-leaves-tidy";

/// Storage for leaves and their sealed keys, with leases for minting. Shared by all proxies of a cluster.
pub trait Backend: Send + Sync + 'static {
    /// Returns the leaf, or grants the lease to mint it, or reports that another proxy holds the lease.
    fn lookup<'a>(
        &'a self,
        lease_request: LeafLeaseRequest<'a>,
    ) -> BoxFuture<'a, Result<LeafLookup, StoreError>>;

    /// Stores the leaf and ends the lease. Returns false, without storing, if the holder has lost the lease.
    fn put<'a>(&'a self, leaf: NewLeaf<'a>) -> BoxFuture<'a, Result<bool, StoreError>>;

    /// Stores a leaf's key until `ends_at_us` at least.
    fn put_key<'a>(
        &'a self,
        id: &'a str,
        sealed: &'a [u8],
        ends_at_us: i64,
    ) -> BoxFuture<'a, Result<(), StoreError>>;

    /// Releases a lease, if the holder has it.
    fn release<'a>(&'a self, id: &'a str, holder: Uuid) -> BoxFuture<'a, Result<(), StoreError>>;

    /// Deletes a batch of expired leaves, and of the oldest leaves beyond `leaves_max`. Does nothing if another proxy did so within
    /// `every`.
    fn tidy(
        &self,
        holder: Uuid,
        now_us: i64,
        every: Duration,
        leaves_max: u64,
    ) -> BoxFuture<'_, Result<CleanupCounts, StoreError>>;
}

impl Backend for Store {
    fn lookup<'a>(
        &'a self,
        lease_request: LeafLeaseRequest<'a>,
    ) -> BoxFuture<'a, Result<LeafLookup, StoreError>> {
        async move { tables::ProxyLeaves::of(self).lookup(&lease_request).await }.boxed()
    }

    fn put<'a>(&'a self, leaf: NewLeaf<'a>) -> BoxFuture<'a, Result<bool, StoreError>> {
        async move { tables::ProxyLeaves::of(self).put(&leaf).await }.boxed()
    }

    fn put_key<'a>(
        &'a self,
        id: &'a str,
        sealed: &'a [u8],
        ends_at_us: i64,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        tables::ProxyLeaves::of(self).put_key(id, sealed, ends_at_us).boxed()
    }

    fn release<'a>(&'a self, id: &'a str, holder: Uuid) -> BoxFuture<'a, Result<(), StoreError>> {
        tables::ProxyLeaves::of(self).release(id, holder).boxed()
    }

    fn tidy(
        &self,
        holder: Uuid,
        now_us: i64,
        every: Duration,
        leaves_max: u64,
    ) -> BoxFuture<'_, Result<CleanupCounts, StoreError>> {
        let every_us = i64::try_from(every.as_micros()).unwrap_or(i64::MAX);
        async move {
            if !self.lease(TIDY_LEASE, holder, now_us, every_us).await? {
                return Ok(CleanupCounts::default());
            }
            tables::ProxyLeaves::of(self).tidy(now_us, leaves_max).await
        }
        .boxed()
    }
}

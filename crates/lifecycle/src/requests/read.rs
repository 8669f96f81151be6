//! Read operations: one certificate, pages, versions, runs, counters.

use std::collections::BTreeMap;

use store::{Cursor, DAY_US, Page};
use uuid::Uuid;

use crate::error::DataError;
use crate::handle::Lifecycle;
use crate::job::{Job, JobId};
use crate::managed::{ManagedCertificate, Version};
use crate::renewal::SuggestedRenewalWindow;
use crate::state::State;
use crate::tables;
use crate::tables::jobs::JobFilter;
use crate::tables::managed::{
    Facet, GroupBy, Groups, ManagedCount, ManagedFilter, ManagedOrder, ManagedSort, ServedVersion,
};

/// A page of managed certificates, with the cursor of the next page.
pub type CertificatePage = Page<ManagedCertificate>;
/// A page of the versions of a certificate, with the cursor of the next page.
pub type VersionPage = Page<Version>;
/// A page of runs, with the cursor of the next page.
pub type JobPage = Page<Job>;

/// Periods from now in which expiring certificates are counted, in days.
pub(crate) const SPANS_DAYS: [i64; 3] = [7, 30, 90];
/// Maximum due runs that are counted for an issuer, so that the cost does not grow with the database.
pub(crate) const DUE_COUNTED_MAX: i64 = 10_000;

/// Numbers of managed certificates by state, expiry and deployment, and of due runs by issuer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counts {
    /// Certificates that are not archived.
    pub certificates: u64,
    /// Number of certificates by state.
    pub states: BTreeMap<State, u64>,
    /// Today, in days since 1970 (UTC).
    pub today: i64,
    /// Number of expired certificates.
    pub expired: u64,
    /// Number of certificates that expire soon, by period in days from now: 7, 30 or 90.
    pub expiring_days: BTreeMap<u32, u64>,
    /// Number of certificates by the day of their expiry (days since 1970, UTC).
    pub by_day: BTreeMap<i64, u64>,
    /// Certificates whose newest version is not yet deployed to every target.
    pub undeployed: u64,
    /// Number of due runs that have not started, by issuer. A value of `due_counted_to` means "at least".
    pub due: BTreeMap<String, u64>,
    /// Maximum value of a counter in `due`.
    pub due_counted_to: u64,
}

impl Lifecycle {
    /// Returns a certificate by its id.
    ///
    /// # Errors
    /// [`DataError::NotFound`], and database errors.
    #[crate::boxed]
    pub async fn get(&self, id: Uuid) -> Result<ManagedCertificate, DataError> {
        let found = tables::Managed::of(&self.inner.store).get(id).await?;
        let view = found.ok_or_else(|| DataError::not_found("certificate", id))?;
        Ok(ManagedCertificate::from_view(&view)?)
    }

    /// Returns a certificate by its name.
    ///
    /// # Errors
    /// [`DataError::NotFound`], and database errors.
    #[crate::boxed]
    pub async fn named(&self, name: &str) -> Result<ManagedCertificate, DataError> {
        let found = tables::Managed::of(&self.inner.store).named(name).await?;
        let view = found.ok_or_else(|| DataError::not_found("certificate", name))?;
        Ok(ManagedCertificate::from_view(&view)?)
    }

    /// Returns a page of certificates, in ascending order of the sort key `order`.
    ///
    /// # Errors
    /// [`store::StoreError::BadCursor`] for an invalid cursor, and other database errors.
    #[crate::boxed]
    pub async fn page(
        &self,
        filter: &ManagedFilter,
        order: ManagedOrder,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<CertificatePage, DataError> {
        self.sorted_page(filter, order.into(), after, limit).await
    }

    /// Returns a page of certificates with the given sort key and direction.
    ///
    /// # Errors
    /// [`store::StoreError::BadCursor`] for an invalid cursor, and other database errors.
    #[crate::boxed]
    pub async fn sorted_page(
        &self,
        filter: &ManagedFilter,
        sort: ManagedSort,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<CertificatePage, DataError> {
        let page = tables::Managed::of(&self.inner.store).page(filter, sort, after, limit).await?;
        let rows = page.rows.iter().map(ManagedCertificate::from_view).collect::<Result<_, _>>()?;
        Ok(Page { rows, next: page.next })
    }

    /// Returns a page of the certificates that match and that the caller may see: see [`db::visible_page`].
    ///
    /// # Errors
    /// An error for a cursor of another sort order; database errors.
    #[crate::boxed]
    pub async fn visible_page(
        &self,
        filter: &ManagedFilter,
        sort: ManagedSort,
        (after, limit): (Option<&Cursor>, usize),
        sees: &(dyn for<'c> Fn(&'c ManagedCertificate) -> bool + Sync),
    ) -> Result<CertificatePage, DataError> {
        let keystore = &self.inner.keystore;
        let after = after.map(|cursor| keystore.reveal_cursor(cursor)).transpose()?;
        let read = |after: Option<Cursor>, limit| async move {
            self.sorted_page(filter, sort, after.as_ref(), limit).await
        };
        let found = db::visible_page((after.as_ref(), limit), read, sees).await?;
        let hide = |next| if found.is_cursor_secret { keystore.hide_cursor(&next) } else { next };
        Ok(Page { rows: found.page.rows, next: found.page.next.map(hide) })
    }

    /// Counts the certificates that match. [`ManagedCount::exact`] is false if the count stopped at a limit.
    ///
    /// # Errors
    /// Database errors.
    #[crate::boxed]
    pub async fn count(&self, filter: &ManagedFilter) -> Result<ManagedCount, DataError> {
        Ok(tables::Managed::of(&self.inner.store).count(filter).await?)
    }

    /// Counts certificates grouped by the field `by`, such as issuer, owner or day of expiry. Archived certificates are left out
    /// unless the filter names states.
    ///
    /// # Errors
    /// Database errors.
    #[crate::boxed]
    pub async fn groups(&self, by: GroupBy, filter: &ManagedFilter) -> Result<Groups, DataError> {
        Ok(tables::Managed::of(&self.inner.store).groups(by, filter).await?)
    }

    /// Counts certificates by each of several fields, like [`Self::groups`], with a constant number of statements. The count of a
    /// field ignores the filter's condition on the same field.
    ///
    /// # Errors
    /// Database errors.
    #[crate::boxed]
    pub async fn facets(&self, by: &[GroupBy], filter: &ManagedFilter) -> Result<Vec<Groups>, DataError> {
        let facets: Vec<Facet> = by.iter().map(|by| (*by, filter.without(*by))).collect();
        Ok(tables::Managed::of(&self.inner.store).facets(&facets).await?)
    }

    /// Returns the versions of a certificate, newest first.
    ///
    /// # Errors
    /// [`DataError::NotFound`], and database errors.
    #[crate::boxed]
    pub async fn versions(
        &self,
        id: Uuid,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<VersionPage, DataError> {
        let row = self.row(id).await?;
        let page = tables::Managed::of(&self.inner.store).versions(row, after, limit).await?;
        Ok(Page { rows: page.rows.iter().map(Version::from_row).collect(), next: page.next })
    }

    /// Returns the endpoints where scans last saw a version of the certificate, oldest version first.
    ///
    /// # Errors
    /// [`DataError::NotFound`], and database errors.
    #[crate::boxed]
    pub async fn served(
        &self,
        id: Uuid,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<ServedVersion>, DataError> {
        let row = self.row(id).await?;
        Ok(tables::Managed::of(&self.inner.store).served(row, after, limit).await?)
    }

    /// Returns the renewal window that the issuer suggests, and the URL of a page that explains the suggestion. `None` without a
    /// suggestion.
    ///
    /// # Errors
    /// [`DataError::NotFound`], and database errors.
    #[crate::boxed]
    pub async fn suggestion(
        &self,
        id: Uuid,
    ) -> Result<Option<(SuggestedRenewalWindow, Option<String>)>, DataError> {
        let row = self.row(id).await?;
        let found = tables::Managed::of(&self.inner.store).suggestion(row).await?;
        Ok(found.and_then(|one| {
            let (start_us, end_us) = one.window_us?;
            Some((SuggestedRenewalWindow { start_us, end_us }, one.explanation))
        }))
    }

    /// Returns the row id of a certificate.
    pub(crate) async fn row(&self, id: Uuid) -> Result<i64, DataError> {
        let found = tables::Managed::of(&self.inner.store).get(id).await?;
        found.map(|view| view.row.id).ok_or_else(|| DataError::not_found("certificate", id))
    }

    /// Returns a run by its id.
    ///
    /// # Errors
    /// [`DataError::NotFound`], and database errors.
    #[crate::boxed]
    pub async fn job(&self, id: JobId) -> Result<Job, DataError> {
        let found = tables::Jobs::of(&self.inner.store).get(id.row()).await?;
        let job = found.map(|view| Job::from_view(&view, self.now_us()));
        job.filter(|job| job.id == id).ok_or_else(|| DataError::not_found("job", id))
    }

    /// Returns a page of runs, newest first.
    ///
    /// # Errors
    /// [`store::StoreError::BadCursor`] for an invalid cursor, and other database errors.
    #[crate::boxed]
    pub async fn jobs(
        &self,
        filter: &JobFilter,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<JobPage, DataError> {
        let now = self.now_us();
        let page = tables::Jobs::of(&self.inner.store).page(filter, after, limit).await?;
        Ok(Page { rows: page.rows.iter().map(|view| Job::from_view(view, now)).collect(), next: page.next })
    }

    /// Returns a page of a certificate's runs, newest first.
    ///
    /// # Errors
    /// [`DataError::NotFound`]; as [`Lifecycle::jobs`].
    #[crate::boxed]
    pub async fn jobs_of(
        &self,
        id: Uuid,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<JobPage, DataError> {
        let filter = JobFilter { certificate: Some(self.row(id).await?), ..JobFilter::default() };
        self.jobs(&filter, after, limit).await
    }

    /// Returns counters over all certificates. The cost does not depend on their number.
    ///
    /// # Errors
    /// Database errors.
    #[crate::boxed]
    pub async fn counts(&self) -> Result<Counts, DataError> {
        let now = self.now_us();
        let spans = SPANS_DAYS.map(|days| days * DAY_US);
        let summary = tables::Managed::of(&self.inner.store).summary(now, &spans).await?;
        let mut counts = Counts {
            today: now.div_euclid(DAY_US),
            expired: summary.expired,
            undeployed: summary.undeployed,
            by_day: summary.by_day,
            due_counted_to: DUE_COUNTED_MAX as u64,
            ..Counts::default()
        };
        for (state, count) in summary.states {
            counts.states.insert(state, count);
            counts.certificates += if state == State::Archived { 0 } else { count };
        }
        for (days, count) in SPANS_DAYS.iter().zip(summary.expiring) {
            counts.expiring_days.insert(*days as u32, count);
        }
        for issuer in tables::Jobs::of(&self.inner.store).issuers_due(now).await? {
            let due = tables::Jobs::of(&self.inner.store).due(&issuer, now, DUE_COUNTED_MAX).await?;
            counts.due.insert(issuer, due);
        }
        Ok(counts)
    }
}

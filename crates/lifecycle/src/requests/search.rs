//! Search over certificates, owners and teams.

use crate::error::DataError;
use crate::handle::Lifecycle;
use crate::managed::ManagedCertificate;
use crate::tables;
use crate::tables::managed::ManagedSearch;
use crate::tables::people::PeopleKind;

impl Lifecycle {
    /// Returns at most `most` certificates that match, without their runs. Reads a bounded number of rows.
    ///
    /// # Errors
    /// Database errors.
    #[crate::boxed]
    pub async fn search(
        &self,
        what: &ManagedSearch,
        most: usize,
    ) -> Result<Vec<ManagedCertificate>, DataError> {
        let found = tables::Managed::of(&self.inner.store).search(what, most).await?;
        Ok(found.iter().map(ManagedCertificate::from_view).collect::<Result<_, _>>()?)
    }

    /// Returns at most `most` owners or teams with this text in their name.
    ///
    /// # Errors
    /// Database errors.
    #[crate::boxed]
    pub async fn search_people(
        &self,
        kind: PeopleKind,
        text: &str,
        most: usize,
    ) -> Result<Vec<String>, DataError> {
        Ok(tables::People::of(&self.inner.store).search(kind, text, most).await?)
    }
}

//! Search over certificates, owners and teams.

use crate::error::DataError;
use crate::handle::Lifecycle;
use crate::managed::ManagedCertificate;
use crate::tables;
use crate::tables::managed::ManagedSearch;
use crate::tables::people::PeopleKind;

impl Lifecycle {
    /// Certificates that match, at most `most`, without their runs. A bounded number of rows is read.
    ///
    /// # Errors
    /// Those of the database.
    #[crate::boxed]
    pub async fn search(
        &self,
        what: &ManagedSearch,
        most: usize,
    ) -> Result<Vec<ManagedCertificate>, DataError> {
        let found = tables::Managed::of(&self.inner.store).search(what, most).await?;
        Ok(found.iter().map(ManagedCertificate::from_view).collect::<Result<_, _>>()?)
    }

    /// Owners or teams with this text in their name, at most `most`.
    ///
    /// # Errors
    /// Those of the database.
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

//! Query plans of the listings, for a test that prevents full scans of large tables.

use super::handle::Managed;
use db::{Cost, StoreError};

impl Managed<'_> {
    /// Returns each statement of a listing with the database's query plan, one line for each step.
    ///
    /// # Errors
    /// Database errors.
    #[doc(hidden)]
    pub async fn plans(self) -> Result<Vec<(String, Vec<String>)>, StoreError> {
        let mut all = Vec::new();
        for (statement, parameters) in super::page::plans()
            .into_iter()
            .chain(super::groups::plans())
            .chain(super::search::plans(self.0.is_postgres()))
            .chain(crate::tables::jobs::plans())
        {
            let explain = if self.0.is_postgres() { "EXPLAIN" } else { "EXPLAIN QUERY PLAN" };
            let rows = self.0.rows(Cost::Walk, &format!("{explain} {statement}"), parameters).await?;
            let mut plan = Vec::new();
            for mut row in rows {
                if !self.0.is_postgres() {
                    for _ in 0..3 {
                        row.skip()?;
                    }
                }
                plan.push(row.text()?);
            }
            all.push((statement, plan));
        }
        Ok(all)
    }

    /// Updates the database's statistics, so that query plans suit the current table sizes.
    ///
    /// # Errors
    /// Database errors.
    #[doc(hidden)]
    pub async fn analyze(self) -> Result<(), StoreError> {
        self.0.execute("ANALYZE", Vec::new()).await.map(drop)
    }
}

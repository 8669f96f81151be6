//! How the databases answer the listings: for the test that keeps large tables from being walked.

use super::handle::Managed;
use db::{Cost, StoreError};

impl Managed<'_> {
    /// Each statement of a listing with the plan that the database has for it, a line a step.
    ///
    /// # Errors
    /// Those of the database.
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

    /// Updates the database's statistics, so that query plans suit the present sizes.
    ///
    /// # Errors
    /// Those of the database.
    #[doc(hidden)]
    pub async fn analyze(self) -> Result<(), StoreError> {
        self.0.execute("ANALYZE", Vec::new()).await.map(drop)
    }
}

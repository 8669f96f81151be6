//! Checks of the statements of all modules, for tests: the database accepts each statement, and none scans a large table.

use futures_util::FutureExt;

use crate::database::{Backend, Cost, Database};
use crate::error::StoreError;
use crate::statement::ModuleStatements;
use crate::tx::Tx;
use crate::value::{Row, Value};
use crate::{audit, connections, leases, migrate, outbox, postgres};

/// The statements of the engine itself.
const OWN: &[ModuleStatements] = &[
    migrate::MODULE_STATEMENTS,
    leases::MODULE_STATEMENTS,
    audit::MODULE_STATEMENTS,
    outbox::MODULE_STATEMENTS,
    connections::MODULE_STATEMENTS,
    ModuleStatements {
        both: &[],
        sqlite: &[],
        postgres: postgres::STATEMENTS,
        bulks: &[],
        composed: Vec::new,
    },
];

impl Database {
    /// Returns all statements, the engine's first.
    fn every_statement(&self, modules: &[ModuleStatements]) -> Vec<String> {
        let mut all: Vec<String> = Vec::new();
        for module in OWN.iter().chain(modules) {
            all.extend(module.both.iter().map(|text| (*text).to_owned()));
            all.extend((module.composed)());
            let own = if self.is_postgres() { module.postgres } else { module.sqlite };
            all.extend(own.iter().map(|text| (*text).to_owned()));
            all.extend(module.bulks.iter().map(|bulk| bulk.of(self).to_owned()));
        }
        all
    }

    /// Prepares every statement of these modules and of the engine without running it. Returns their number.
    ///
    /// # Errors
    /// [`StoreError::Statement`] with the name of the first statement that the database rejects.
    #[doc(hidden)]
    #[crate::boxed]
    pub async fn check_statements(&self, modules: &[ModuleStatements]) -> Result<usize, StoreError> {
        let all = self.every_statement(modules);
        for statement in &all {
            match &self.backend {
                Backend::Sqlite(sqlite) => sqlite.check(statement.clone()).await?,
                Backend::Postgres(postgres) => postgres.check(statement).await?,
            }
        }
        Ok(all.len())
    }

    /// Adds a column to every table, like a migration of a newer release. Returns the number of tables.
    ///
    /// # Errors
    /// Database errors.
    #[doc(hidden)]
    #[crate::boxed]
    pub async fn expand_every_table(&self) -> Result<usize, StoreError> {
        // Virtual tables and their shadow tables cannot get a column.
        const SQLITE: &str = "-- tables_sqlite
SELECT t.name FROM sqlite_master t WHERE t.type = 'table' AND t.sql LIKE 'CREATE TABLE%' AND t.name NOT LIKE 'sqlite_%'
AND NOT EXISTS (SELECT 1 FROM sqlite_master v WHERE v.sql LIKE 'CREATE VIRTUAL%' AND t.name LIKE v.name || '_%')";
        const POSTGRES: &str = "-- tables_postgres
SELECT CAST(table_name AS TEXT) FROM information_schema.tables
WHERE table_schema = current_schema() AND table_type = 'BASE TABLE'";
        let listing = if self.is_postgres() { POSTGRES } else { SQLITE };
        let tables = self.rows(Cost::Walk, listing, Vec::new()).await?;
        let tables: Vec<String> = tables.into_iter().map(|mut row| row.text()).collect::<Result<_, _>>()?;
        for table in &tables {
            let change = format!("-- expand\nALTER TABLE {table} ADD COLUMN of_a_newer_release TEXT");
            self.execute(&change, Vec::new()).await?;
        }
        Ok(tables.len())
    }

    /// Returns every statement of these modules and of the engine with its generic plan, one line per step. Runs nothing.
    /// PostgreSQL is configured to scan a table only where no index applies, so that plans do not depend on the size of the tables.
    ///
    /// # Errors
    /// Database errors.
    #[doc(hidden)]
    #[crate::boxed]
    pub async fn plans(
        &self,
        modules: &[ModuleStatements],
    ) -> Result<Vec<(String, Vec<String>)>, StoreError> {
        let all = self.every_statement(modules);
        if self.is_postgres() {
            return self.write("plans", move |tx| postgres_plans(tx, all).boxed()).await;
        }
        let mut plans = Vec::with_capacity(all.len());
        for statement in all {
            let nothing = vec![Value::Null; parameters_of(&statement)];
            let rows = self.rows(Cost::Walk, &format!("EXPLAIN QUERY PLAN {statement}"), nothing).await?;
            let text = |mut row: Row| {
                (0..3).try_for_each(|_| row.skip())?;
                row.text()
            };
            let plan = rows.into_iter().map(text).collect::<Result<_, _>>()?;
            plans.push((statement, plan));
        }
        Ok(plans)
    }
}

async fn postgres_plans(tx: &mut Tx, all: Vec<String>) -> Result<Vec<(String, Vec<String>)>, StoreError> {
    for setting in postgres::PLANNED_ONCE.lines().skip(1).flat_map(|line| line.split("; ")) {
        tx.execute(&setting.replace("SET", "SET LOCAL"), Vec::new()).await?;
    }
    let mut plans = Vec::with_capacity(all.len());
    // LOCK statements have no plan.
    let planned = all.into_iter().filter(|statement| !statement.lines().any(|line| line.starts_with("LOCK")));
    for (number, statement) in planned.enumerate() {
        let name = format!("plan_{number}");
        // Keep the name comment in front, so that an error contains it.
        let (comment, text) = statement.split_once('\n').unwrap_or(("", &statement));
        tx.execute(&format!("{comment}\nPREPARE {name} AS {text}"), Vec::new()).await?;
        let nothing = vec!["NULL"; parameters_of(&statement)].join(", ");
        let nothing = if nothing.is_empty() { nothing } else { format!("({nothing})") };
        let rows = tx.rows(&format!("EXPLAIN EXECUTE {name}{nothing}"), Vec::new()).await?;
        tx.execute(&format!("DEALLOCATE {name}"), Vec::new()).await?;
        let plan = rows.into_iter().map(|mut row| row.text()).collect::<Result<_, _>>()?;
        plans.push((statement, plan));
    }
    Ok(plans)
}

/// Returns the highest number of a parameter (`?1`, `?2` …).
fn parameters_of(statement: &str) -> usize {
    let number = |after: &str| {
        let digits = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
        after[..digits].parse::<usize>().ok()
    };
    statement.split('?').skip(1).filter_map(number).max().unwrap_or(0)
}

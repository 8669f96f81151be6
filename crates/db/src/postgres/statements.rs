//! SQL statements of the engine for PostgreSQL.

/// Serializes the migrations of concurrent openers, and the partition changes of concurrent scans.
pub(crate) const SCHEMA_LOCK: &str = "-- schema_lock
SELECT pg_advisory_xact_lock(?1)";

pub(crate) const TABLE_EXISTS: &str = "-- table_exists
SELECT to_regclass(?1::text) IS NOT NULL";

/// Checks whether the server responds.
pub(crate) const PING: &str = "-- ping
SELECT 1";

/// Plans every execution for the actual arrays. A plan cached while a table was empty would scan the whole table until the server's
/// next ANALYZE. Disables JIT, whose benefit the estimated costs do not show.
pub(crate) const PLANNED_EACH_TIME: &str = "-- planned_each_time
SET plan_cache_mode = force_custom_plan; SET enable_seqscan = on; SET enable_bitmapscan = on; SET jit = off";

/// Plans once per connection, with indexes where possible, so that the size of the tables does not matter. For statements about a
/// few rows, whose planning takes several times as long as their execution.
pub(crate) const PLANNED_ONCE: &str = "-- planned_once
SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; SET enable_bitmapscan = off; SET jit = off";

/// Every statement above that can be prepared, for the test that prepares them.
pub(crate) const STATEMENTS: &[&str] = &[SCHEMA_LOCK, TABLE_EXISTS, PING];

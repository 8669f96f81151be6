//! What the engine itself sends to PostgreSQL.

/// Makes concurrent openers wait for each other's migrations, and concurrent scans for each other's partitions.
pub(crate) const SCHEMA_LOCK: &str = "-- schema_lock
SELECT pg_advisory_xact_lock(?1)";

pub(crate) const TABLE_EXISTS: &str = "-- table_exists
SELECT to_regclass(?1::text) IS NOT NULL";

/// Whether the server answers.
pub(crate) const PING: &str = "-- ping
SELECT 1";

/// Plans are made for the arrays at hand: a plan kept from when the tables were empty would read them whole, until the
/// server's next ANALYZE. What a plan seems to cost says nothing about what compiling it would save.
pub(crate) const PLANNED_EACH_TIME: &str = "-- planned_each_time
SET plan_cache_mode = force_custom_plan; SET enable_seqscan = on; SET enable_bitmapscan = on; SET jit = off";

/// Plans are made once a connection, by indexes wherever there is one, so that it does not matter what the tables held
/// then: for statements of a few rows, which take several times as long to plan as to run.
pub(crate) const PLANNED_ONCE: &str = "-- planned_once
SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; SET enable_bitmapscan = off; SET jit = off";

/// Every statement above that can be prepared, for the test that does.
pub(crate) const STATEMENTS: &[&str] = &[SCHEMA_LOCK, TABLE_EXISTS, PING];

//! SQL statements of the inventory that have the same text on SQLite and PostgreSQL.

use crate::inventory::model::{InventoryFilter, InventoryOrder};
use db::{Value, contains};

pub(crate) const SCAN_INSERT: &str = "-- scan_insert
INSERT INTO scans (id, uuid, started_at, state, spec, scope) VALUES (?1, ?2, ?3, 'running', ?4, ?5) ON CONFLICT DO NOTHING";

/// Sets the state of a scan. Also resets `prune_at`: the next pruning pass visits the scan, because it may have new observations.
pub(crate) const SCAN_STATE: &str = "-- scan_state
UPDATE scans SET state = ?2, finished_at = ?3, summary = ?4, prune_at = 0 WHERE uuid = ?1";

macro_rules! scan_columns {
    () => {
        "uuid, started_at, finished_at, state, spec, summary, observations, answered, changes, new_certificates, \
         pruned_at, id"
    };
}

pub(crate) const SCAN_ID: &str = "-- scan_id
SELECT id FROM scans WHERE uuid = ?1";

pub(crate) const SCAN: &str = concat!("-- scan\nSELECT ", scan_columns!(), " FROM scans WHERE uuid = ?1");

/// The newest unfinished scan. Leaves out scans that a watch will resume.
pub(crate) const SCAN_UNFINISHED: &str = concat!(
    "-- scan_unfinished\nSELECT ",
    scan_columns!(),
    " FROM scans WHERE state <> 'finished' AND NOT EXISTS (SELECT 1 FROM watches w WHERE w.run_scan = scans.uuid)
ORDER BY id DESC LIMIT 1"
);

pub(crate) const SCANS: &str =
    concat!("-- scans\nSELECT ", scan_columns!(), " FROM scans WHERE id < ?1 ORDER BY id DESC LIMIT ?2");

pub(crate) const SCANNED_ENDPOINTS: &str = "-- scanned_endpoints
SELECT e.host, e.port, e.protocol, e.server_name, e.address, e.id
FROM observations o JOIN endpoints e ON e.id = o.endpoint_id
WHERE o.scan_id = ?1 AND o.endpoint_id > ?2 ORDER BY o.endpoint_id LIMIT ?3";

pub(crate) const ENDPOINT_ID: &str = "-- endpoint_id
SELECT id FROM endpoints WHERE host = ?1 AND port = ?2 AND protocol = ?3 AND server_name = ?4 AND address = ?5";

pub(crate) const KNOWN_ENDPOINTS: &str = "-- known_endpoints
SELECT host, port, protocol, server_name, address, outcome, answering, last_observed_at, id
FROM endpoints WHERE id > ?1 ORDER BY id LIMIT ?2";

/// Columns of an inventory row. `e` is a page of endpoints, selected first so that the joins touch only one page.
const INVENTORY_HEAD: &str = "SELECT e.host, e.port, e.protocol, e.server_name, e.address, e.first_seen_at, \
e.last_observed_at, e.last_answered_at, e.last_changed_at, e.outcome, e.answering, e.severity, e.chain_id, \
e.leaf_not_after, e.id, l.sha256, l.subject, i.name, l.serial, l.not_before, l.not_after, l.key_algorithm, l.key_bits, \
s.uuid, o.address, o.tls_version, o.cipher_suite, o.trust, o.findings, o.detail\nFROM (";

const INVENTORY_TAIL: &str = ") e
LEFT JOIN certificates l ON l.id = e.leaf_id
LEFT JOIN issuers i ON i.id = e.leaf_issuer_id
LEFT JOIN observations o ON o.scan_id = e.last_scan_id AND o.endpoint_id = e.id
LEFT JOIN scans s ON s.id = o.scan_id\n";

fn inventory(name: &str, page: &str, order: &str) -> String {
    format!("-- {name}\n{INVENTORY_HEAD}{page}{INVENTORY_TAIL}{order}")
}

/// Returns the statement for one endpoint by its key.
pub(crate) fn endpoint() -> String {
    inventory(
        "endpoint",
        "SELECT * FROM endpoints WHERE host = ?1 AND port = ?2 AND protocol = ?3 AND server_name = ?4 AND address = ?5",
        "",
    )
}

/// Returns the statement for a host's endpoints. Parameters: host, lowest and highest port, the key after which to start, and the
/// limit.
pub(crate) fn endpoints_of_host() -> String {
    inventory(
        "endpoints_of_host",
        "SELECT * FROM endpoints WHERE host = ?1 AND port >= ?2 AND port <= ?3 \
         AND (port, protocol, server_name, address) > (?4, ?5, ?6, ?7) \
         ORDER BY port, protocol, server_name, address LIMIT ?8",
        "ORDER BY e.port, e.protocol, e.server_name, e.address",
    )
}

/// Returns the statement for endpoints whose last known chain contains a certificate. The statement returns each endpoint once.
pub(crate) fn endpoints_of_certificate() -> String {
    inventory(
        "endpoints_of_certificate",
        "SELECT ep.* FROM chain_members m JOIN endpoints ep ON ep.chain_id = m.chain_id \
         WHERE m.certificate_id = ?1 AND m.chain_id >= ?2 AND (ep.chain_id, ep.id) > (?2, ?3) \
         AND NOT EXISTS (SELECT 1 FROM chain_members f WHERE f.certificate_id = m.certificate_id \
         AND f.chain_id = m.chain_id AND f.position < m.position) \
         ORDER BY m.chain_id, ep.id LIMIT ?4",
        "ORDER BY e.chain_id, e.id",
    )
}

/// Returns the statement of an inventory page and its parameters. The statement contains only the conditions that are set, so
/// that each combination has its best plan. `after` is the key of the last returned row: (leaf_not_after, id) or the five columns
/// of the key.
pub(crate) fn inventory_page(
    filter: &InventoryFilter,
    after: Option<Vec<Value>>,
    limit: i64,
) -> (String, Vec<Value>) {
    let mut parameters: Vec<Value> = Vec::new();
    let mut conditions: Vec<String> = Vec::new();
    let mut bind = |value: Value| {
        parameters.push(value);
        format!("?{}", parameters.len())
    };
    let key_columns = match filter.order {
        InventoryOrder::Expiry => "leaf_not_after, id",
        InventoryOrder::Host => "host, port, protocol, server_name, address",
    };
    if let Some(before) = filter.expiring_before_us {
        conditions.push(format!("leaf_not_after < {}", bind(before.into())));
    }
    if let Some(from) = filter.expiring_from_us {
        conditions.push(format!("leaf_not_after >= {}", bind(from.into())));
    }
    if let Some(text) = &filter.issuer_contains {
        let pattern = bind(contains(text).into());
        conditions.push(format!(
            "leaf_issuer_id IN (SELECT id FROM issuers WHERE lower(name) LIKE {pattern} ESCAPE '\\')"
        ));
    }
    if let Some(text) = &filter.host_contains {
        conditions.push(format!("lower(host) LIKE {} ESCAPE '\\'", bind(contains(text).into())));
    }
    if let Some(severity) = filter.severity_at_least {
        conditions.push(format!("severity >= {}", bind(severity.code().into())));
    }
    if let Some(since) = filter.changed_since_us {
        conditions.push(format!("last_changed_at >= {}", bind(since.into())));
    }
    match filter.answering {
        Some(true) => conditions.push("answering".to_owned()),
        Some(false) => conditions.push("NOT answering".to_owned()),
        None => {}
    }
    if let Some(key) = after {
        let marks: Vec<String> = key.into_iter().map(&mut bind).collect();
        conditions.push(format!("({key_columns}) > ({})", marks.join(", ")));
    }
    let limit = bind(limit.into());
    let filtered =
        if conditions.is_empty() { String::new() } else { format!("WHERE {}", conditions.join(" AND ")) };
    let page = format!("SELECT * FROM endpoints {filtered} ORDER BY {key_columns} LIMIT {limit}");
    let order: Vec<String> = key_columns.split(", ").map(|column| format!("e.{column}")).collect();
    (inventory("inventory_page", &page, &format!("ORDER BY {}", order.join(", "))), parameters)
}

pub(crate) const ENDPOINT_HISTORY: &str = "-- endpoint_history
SELECT s.uuid, o.observed_at, o.outcome, o.answered, o.address, o.tls_version, o.cipher_suite, l.sha256, o.chain_id,
       o.trust, o.severity, o.findings, o.detail, o.change_kind, o.scan_id
FROM (SELECT * FROM observations WHERE endpoint_id = ?1 AND (observed_at, scan_id) < (?2, ?3)
      ORDER BY observed_at DESC, scan_id DESC LIMIT ?4) o
JOIN scans s ON s.id = o.scan_id
LEFT JOIN certificates l ON l.id = o.leaf_id
ORDER BY o.observed_at DESC, o.scan_id DESC";

pub(crate) const CHANGES: &str = "-- changes
SELECT o.change_kind, e.host, e.port, e.protocol, e.server_name, e.address, o.observed_at, p.sha256, l.sha256,
       o.previous_outcome, o.outcome, o.severity, o.endpoint_id, o.scan_id
FROM (SELECT * FROM observations WHERE change_kind <> 0 AND (observed_at, endpoint_id, scan_id) > (?1, ?2, ?3)
      ORDER BY observed_at, endpoint_id, scan_id LIMIT ?4) o
JOIN endpoints e ON e.id = o.endpoint_id
LEFT JOIN certificates p ON p.id = o.previous_leaf_id
LEFT JOIN certificates l ON l.id = o.leaf_id
ORDER BY o.observed_at, o.endpoint_id, o.scan_id";

/// The endpoint that ends the next part of a scan: the last of ?3 + 1 endpoints after endpoint ?2.
pub(crate) const RANGE_END: &str = "-- range_end
SELECT endpoint_id FROM observations WHERE scan_id = ?1 AND endpoint_id > ?2 ORDER BY endpoint_id LIMIT 1 OFFSET ?3";

/// Endpoints after ?3, up to and including ?5, that scan ?2 observed differently from scan ?1.
pub(crate) const CHANGES_BETWEEN: &str = "-- changes_between
SELECT d.kind, e.host, e.port, e.protocol, e.server_name, e.address, d.observed_at, p.sha256, l.sha256,
       d.old_outcome, d.outcome, d.severity, d.endpoint_id
FROM (SELECT b.endpoint_id, b.observed_at, a.leaf_id AS old_leaf, b.leaf_id, a.outcome AS old_outcome, b.outcome,
             b.severity,
             CASE WHEN a.endpoint_id IS NULL THEN 1
                  WHEN a.answered AND NOT b.answered THEN 2
                  WHEN b.answered AND NOT a.answered THEN 5
                  WHEN COALESCE(a.leaf_id, 0) <> COALESCE(b.leaf_id, 0) THEN 3
                  ELSE 4 END AS kind
      FROM observations b LEFT JOIN observations a ON a.scan_id = ?1 AND a.endpoint_id = b.endpoint_id
      WHERE b.scan_id = ?2 AND b.endpoint_id > ?3 AND b.endpoint_id <= ?5
        AND (a.endpoint_id IS NULL OR a.answered <> b.answered OR a.outcome <> b.outcome
             OR COALESCE(a.leaf_id, 0) <> COALESCE(b.leaf_id, 0))
      ORDER BY b.endpoint_id LIMIT ?4) d
JOIN endpoints e ON e.id = d.endpoint_id
LEFT JOIN certificates p ON p.id = d.old_leaf
LEFT JOIN certificates l ON l.id = d.leaf_id
ORDER BY d.endpoint_id";

/// Endpoints after ?3, up to and including ?5, that scan ?1 observed and scan ?2 did not probe. This is a separate statement,
/// because a combined one would have to read all of ?1 for each page of changes.
pub(crate) const NOT_SCANNED: &str = "-- not_scanned
SELECT 6, e.host, e.port, e.protocol, e.server_name, e.address, d.observed_at, p.sha256, CAST(NULL AS BYTEA),
       d.outcome, CAST(NULL AS TEXT), CAST(NULL AS SMALLINT), d.endpoint_id
FROM (SELECT a.endpoint_id, a.observed_at, a.leaf_id, a.outcome
      FROM observations a
      WHERE a.scan_id = ?1 AND a.endpoint_id > ?3 AND a.endpoint_id <= ?5
        AND NOT EXISTS (SELECT 1 FROM observations b WHERE b.scan_id = ?2 AND b.endpoint_id = a.endpoint_id)
      ORDER BY a.endpoint_id LIMIT ?4) d
JOIN endpoints e ON e.id = d.endpoint_id
LEFT JOIN certificates p ON p.id = d.leaf_id
ORDER BY d.endpoint_id";

macro_rules! certificate_columns {
    () => {
        "c.id, c.sha256, d.der, c.subject, i.name, c.serial, c.not_before, c.not_after, c.key_algorithm, c.key_bits, \
         c.spki_sha256, c.first_seen_at, c.last_seen_at"
    };
}

pub(crate) const CERTIFICATES_IN_RANGE: &str = concat!(
    "-- certificates_in_range\nSELECT ",
    certificate_columns!(),
    "\nFROM certificates c JOIN certificate_ders d ON d.certificate_id = c.id JOIN issuers i ON i.id = c.issuer_id
WHERE c.sha256 >= ?1 AND c.sha256 <= ?2 ORDER BY c.sha256 LIMIT 2"
);

pub(crate) const CERTIFICATE_NAMES: &str = "-- certificate_names
SELECT certificate_id, name FROM certificate_names WHERE certificate_id = ?1 ORDER BY position";

pub(crate) const CHAIN: &str = concat!(
    "-- chain\nSELECT ",
    certificate_columns!(),
    "\nFROM chain_members m JOIN certificates c ON c.id = m.certificate_id
JOIN certificate_ders d ON d.certificate_id = c.id JOIN issuers i ON i.id = c.issuer_id
WHERE m.chain_id = ?1 ORDER BY m.position"
);

pub(crate) const CHAIN_NAMES: &str = "-- chain_names
SELECT n.certificate_id, n.name FROM certificate_names n
WHERE n.certificate_id IN (SELECT certificate_id FROM chain_members WHERE chain_id = ?1)
ORDER BY n.certificate_id, n.position";

/// Certificates with a name at or below a domain. ?1: the reversed domain; ?2: the same with a dot; ?3: the same with the
/// character after a dot; the other parameters are the key after which to start.
pub(crate) const CERTIFICATES_NAMED: &str = "-- certificates_named
SELECT n.name, c.sha256, c.subject, i.name, c.serial, c.not_before, c.not_after, c.key_algorithm, c.key_bits,
       n.name_reversed, n.certificate_id, n.position
FROM (SELECT * FROM certificate_names
      WHERE name_reversed >= ?1 AND name_reversed < ?3 AND (name_reversed = ?1 OR name_reversed >= ?2)
        AND (name_reversed, certificate_id, position) > (?4, ?5, ?6)
      ORDER BY name_reversed, certificate_id, position LIMIT ?7) n
JOIN certificates c ON c.id = n.certificate_id JOIN issuers i ON i.id = c.issuer_id
ORDER BY n.name_reversed, n.certificate_id, n.position";

pub(crate) const ISSUERS: &str = "-- issuers
SELECT i.name, i.certificates, i.endpoints,
       (SELECT min(e.leaf_not_after) FROM endpoints e WHERE e.leaf_issuer_id = i.id), i.id
FROM issuers i WHERE (i.endpoints, i.id) < (?1, ?2) ORDER BY i.endpoints DESC, i.id DESC LIMIT ?3";

pub(crate) const TOTALS: &str = "-- totals
SELECT name, value FROM totals ORDER BY name";

pub(crate) const EXPIRING_COUNT: &str = "-- expiring_count
SELECT count(*) FROM (SELECT 1 FROM endpoints WHERE leaf_not_after >= ?1 AND leaf_not_after < ?2 LIMIT ?3) x";

/// Every statement above with a fixed text, for the test that prepares them.
pub(crate) const ALL: &[&str] = &[
    SCAN_INSERT,
    SCAN_STATE,
    SCAN_ID,
    SCAN,
    SCAN_UNFINISHED,
    SCANS,
    SCANNED_ENDPOINTS,
    ENDPOINT_ID,
    KNOWN_ENDPOINTS,
    ENDPOINT_HISTORY,
    CHANGES,
    RANGE_END,
    CHANGES_BETWEEN,
    NOT_SCANNED,
    CERTIFICATES_IN_RANGE,
    CERTIFICATE_NAMES,
    CHAIN,
    CHAIN_NAMES,
    CERTIFICATES_NAMED,
    ISSUERS,
    TOTALS,
    EXPIRING_COUNT,
];

/// Returns every composed statement, with every combination of conditions.
pub(crate) fn composed() -> Vec<String> {
    let mut all = vec![endpoint(), endpoints_of_host(), endpoints_of_certificate()];
    for bits in 0_u32..1 << 9 {
        let on = |bit: u32| bits & (1 << bit) != 0;
        let text = || "x".to_owned();
        let order = if on(7) { InventoryOrder::Host } else { InventoryOrder::Expiry };
        let key = match order {
            InventoryOrder::Expiry => vec![Value::Int(0), Value::Int(0)],
            InventoryOrder::Host => {
                vec![text().into(), Value::Int(0), text().into(), text().into(), text().into()]
            }
        };
        let filter = InventoryFilter {
            expiring_before_us: on(0).then_some(0),
            expiring_from_us: on(1).then_some(0),
            issuer_contains: on(2).then(text),
            host_contains: on(3).then(text),
            severity_at_least: on(4).then_some(x509::Severity::Info),
            changed_since_us: on(5).then_some(0),
            answering: on(6).then_some(true),
            order,
        };
        all.push(inventory_page(&filter, on(8).then_some(key), 1).0);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_are_named_and_use_only_numbered_parameters() {
        for text in ALL.iter().map(|text| (*text).to_owned()).chain(composed()) {
            assert!(text.starts_with("-- "), "{text}");
            for (at, _) in text.match_indices('?') {
                assert!(text[at + 1..].starts_with(|c: char| c.is_ascii_digit()), "{text}");
            }
        }
    }
}

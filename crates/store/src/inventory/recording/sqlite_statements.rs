//! Write statements for SQLite: one-row statements, prepared once, many per transaction.

pub(crate) const ENDPOINT_STATE: &str = "-- endpoint_state
SELECT id, answering, outcome, severity, leaf_id, leaf_issuer_id, last_observed_at FROM endpoints
WHERE host = ?1 AND port = ?2 AND protocol = ?3 AND server_name = ?4 AND address = ?5";

pub(crate) const ENDPOINT_INSERT: &str = "-- endpoint_insert
INSERT INTO endpoints (host, port, protocol, server_name, address, first_seen_at, last_observed_at, last_answered_at,
                       last_changed_at, last_scan_id, outcome, answering, severity, leaf_id, leaf_issuer_id,
                       leaf_not_after, chain_id)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?6, ?7, ?6, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)";

/// Updates the endpoint's row after each observation. ?3: time of the last observation with a certificate.
pub(crate) const ENDPOINT_OBSERVED: &str = "-- endpoint_observed
UPDATE endpoints SET last_observed_at = ?2, last_answered_at = COALESCE(?3, last_answered_at),
                     last_changed_at = COALESCE(?4, last_changed_at), last_scan_id = ?5, outcome = ?6, answering = ?7,
                     severity = ?8
WHERE id = ?1";

/// Updates the leaf of an endpoint. Executed only if the chain differs, so that an unchanged endpoint updates no index on these
/// columns.
pub(crate) const ENDPOINT_LEAF: &str = "-- endpoint_leaf
UPDATE endpoints SET leaf_id = ?2, leaf_issuer_id = ?3, leaf_not_after = ?4, chain_id = ?5
WHERE id = ?1 AND chain_id IS NOT ?5";

pub(crate) const OBSERVED_ALREADY: &str = "-- observed_already
SELECT 1 FROM observations WHERE scan_id = ?1 AND endpoint_id = ?2";

pub(crate) const OBSERVATION_INSERT: &str = "-- observation_insert
INSERT INTO observations (scan_id, endpoint_id, observed_at, outcome, answered, address, tls_version, cipher_suite,
                          leaf_id, chain_id, trust, severity, findings, detail, change_kind, previous_leaf_id,
                          previous_outcome)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)";

pub(crate) const ISSUER_ID: &str = "-- issuer_id
SELECT id FROM issuers WHERE name_sha256 = ?1";

pub(crate) const ISSUER_INSERT: &str = "-- issuer_insert
INSERT INTO issuers (name_sha256, name) VALUES (?1, ?2)";

pub(crate) const ISSUER_COUNTS: &str = "-- issuer_counts
UPDATE issuers SET certificates = certificates + ?2, endpoints = endpoints + ?3 WHERE id = ?1";

pub(crate) const CERTIFICATE_ID: &str = "-- certificate_id
SELECT id, issuer_id FROM certificates WHERE sha256 = ?1";

pub(crate) const CERTIFICATE_INSERT: &str = "-- certificate_insert
INSERT INTO certificates (sha256, issuer_id, subject, serial, not_before, not_after, key_algorithm, key_bits,
                          spki_sha256, first_seen_at, last_seen_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?10)";

pub(crate) const CERTIFICATE_DER_INSERT: &str = "-- certificate_der_insert
INSERT INTO certificate_ders (certificate_id, der) VALUES (?1, ?2)";

pub(crate) const CERTIFICATE_NAME_INSERT: &str = "-- certificate_name_insert
INSERT INTO certificate_names (certificate_id, position, name, name_reversed) VALUES (?1, ?2, ?3, ?4)";

pub(crate) const CERTIFICATE_SEEN: &str = "-- certificate_seen
UPDATE certificates SET first_seen_at = min(first_seen_at, ?2), last_seen_at = max(last_seen_at, ?3)
WHERE id = ?1 AND (first_seen_at > ?2 OR last_seen_at < ?3)";

pub(crate) const CHAIN_ID: &str = "-- chain_id
SELECT id FROM chains WHERE sha256 = ?1";

pub(crate) const CHAIN_INSERT: &str = "-- chain_insert
INSERT INTO chains (sha256) VALUES (?1)";

pub(crate) const CHAIN_MEMBER_INSERT: &str = "-- chain_member_insert
INSERT INTO chain_members (chain_id, position, certificate_id) VALUES (?1, ?2, ?3)";

pub(crate) const TOTAL_ADD: &str = "-- total_add
INSERT INTO totals (name, value) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET value = value + excluded.value";

pub(crate) const SCAN_COUNTS: &str = "-- scan_counts
UPDATE scans SET observations = observations + ?2, answered = answered + ?3, changes = changes + ?4,
                 new_certificates = new_certificates + ?5
WHERE id = ?1";

/// Every statement above, for the test that prepares them.
pub(crate) const ALL: &[&str] = &[
    ENDPOINT_STATE,
    ENDPOINT_INSERT,
    ENDPOINT_OBSERVED,
    ENDPOINT_LEAF,
    OBSERVED_ALREADY,
    OBSERVATION_INSERT,
    ISSUER_ID,
    ISSUER_INSERT,
    ISSUER_COUNTS,
    CERTIFICATE_ID,
    CERTIFICATE_INSERT,
    CERTIFICATE_DER_INSERT,
    CERTIFICATE_NAME_INSERT,
    CERTIFICATE_SEEN,
    CHAIN_ID,
    CHAIN_INSERT,
    CHAIN_MEMBER_INSERT,
    TOTAL_ADD,
    SCAN_COUNTS,
];

//! Write statements for PostgreSQL: a constant number per batch, with the rows in arrays.
//!
//! Rows are locked in the order of their keys, and tables in the order of this file, so that concurrent writers wait for each other
//! instead of deadlocking.

macro_rules! keys {
    () => {
        "UNNEST(?1::text[], ?2::int4[], ?3::text[], ?4::text[], ?5::text[]) WITH ORDINALITY \
         AS k (host, port, protocol, server_name, address, place)"
    };
}

macro_rules! same_key {
    () => {
        "e.host = k.host AND e.port = k.port AND e.protocol = k.protocol AND e.server_name = k.server_name \
         AND e.address = k.address"
    };
}

pub(crate) const ENDPOINTS_MISSING: &str = concat!(
    "-- endpoints_missing\nSELECT k.place FROM ",
    keys!(),
    "\nWHERE NOT EXISTS (SELECT 1 FROM endpoints e WHERE ",
    same_key!(),
    ")"
);

/// Inserts new endpoints without a state. The same transaction sets the state.
pub(crate) const ENDPOINTS_INSERT: &str = "-- endpoints_insert
INSERT INTO endpoints (host, port, protocol, server_name, address, first_seen_at, last_observed_at, last_changed_at,
                       last_scan_id, outcome, answering, leaf_not_after)
SELECT k.host, k.port, k.protocol, k.server_name, k.address, k.at, k.at, k.at, ?7::bigint, '', FALSE, 9223372036854775807
FROM UNNEST(?1::text[], ?2::int4[], ?3::text[], ?4::text[], ?5::text[], ?6::bigint[])
     AS k (host, port, protocol, server_name, address, at)
ORDER BY k.host COLLATE \"C\", k.port, k.protocol COLLATE \"C\", k.server_name COLLATE \"C\", k.address COLLATE \"C\"
ON CONFLICT DO NOTHING RETURNING id";

pub(crate) const ENDPOINTS_LOCK: &str = concat!(
    "-- endpoints_lock\nSELECT k.place, e.id, e.answering, e.outcome, e.severity, e.leaf_id, e.leaf_issuer_id, \
     e.last_observed_at\nFROM ",
    keys!(),
    " JOIN endpoints e ON ",
    same_key!(),
    "\nORDER BY e.id FOR NO KEY UPDATE OF e"
);

pub(crate) const OBSERVED_ALREADY: &str = "-- observed_already
SELECT endpoint_id FROM observations WHERE scan_id = ?1 AND endpoint_id = ANY(?2::bigint[])";

pub(crate) const ISSUERS_FIND: &str = "-- issuers_find
SELECT name_sha256, id FROM issuers WHERE name_sha256 = ANY(?1::bytea[])";

pub(crate) const ISSUERS_INSERT: &str = "-- issuers_insert
INSERT INTO issuers (name_sha256, name) SELECT * FROM UNNEST(?1::bytea[], ?2::text[]) AS n (hash, name) ORDER BY n.hash
ON CONFLICT DO NOTHING";

pub(crate) const CERTIFICATES_FIND: &str = "-- certificates_find
SELECT sha256, id, issuer_id FROM certificates WHERE sha256 = ANY(?1::bytea[])";

pub(crate) const CERTIFICATES_INSERT: &str = "-- certificates_insert
INSERT INTO certificates (sha256, issuer_id, subject, serial, not_before, not_after, key_algorithm, key_bits,
                          spki_sha256, first_seen_at, last_seen_at)
SELECT n.sha256, n.issuer_id, n.subject, n.serial, n.not_before, n.not_after, n.key_algorithm, n.key_bits,
       n.spki_sha256, n.seen_at, n.seen_at
FROM UNNEST(?1::bytea[], ?2::bigint[], ?3::text[], ?4::text[], ?5::bigint[], ?6::bigint[], ?7::text[], ?8::bigint[],
            ?9::bytea[], ?10::bigint[])
     AS n (sha256, issuer_id, subject, serial, not_before, not_after, key_algorithm, key_bits, spki_sha256, seen_at)
ORDER BY n.sha256 ON CONFLICT DO NOTHING RETURNING sha256, id, issuer_id";

pub(crate) const CERTIFICATE_DERS_INSERT: &str = "-- certificate_ders_insert
INSERT INTO certificate_ders (certificate_id, der) SELECT * FROM UNNEST(?1::bigint[], ?2::bytea[])";

pub(crate) const CERTIFICATE_NAMES_INSERT: &str = "-- certificate_names_insert
INSERT INTO certificate_names (certificate_id, position, name, name_reversed)
SELECT * FROM UNNEST(?1::bigint[], ?2::int4[], ?3::text[], ?4::text[])";

pub(crate) const CERTIFICATES_SEEN: &str = "-- certificates_seen
WITH moved AS (
    SELECT c.id, u.first_at, u.last_at
    FROM UNNEST(?1::bigint[], ?2::bigint[], ?3::bigint[]) AS u (id, first_at, last_at)
    JOIN certificates c ON c.id = u.id AND (c.first_seen_at > u.first_at OR c.last_seen_at < u.last_at)
    ORDER BY c.id FOR NO KEY UPDATE OF c
)
UPDATE certificates c
SET first_seen_at = LEAST(c.first_seen_at, m.first_at), last_seen_at = GREATEST(c.last_seen_at, m.last_at)
FROM moved m WHERE c.id = m.id";

pub(crate) const CHAINS_FIND: &str = "-- chains_find
SELECT sha256, id FROM chains WHERE sha256 = ANY(?1::bytea[])";

pub(crate) const CHAINS_INSERT: &str = "-- chains_insert
INSERT INTO chains (sha256) SELECT n.sha256 FROM UNNEST(?1::bytea[]) AS n (sha256) ORDER BY n.sha256
ON CONFLICT DO NOTHING RETURNING sha256, id";

pub(crate) const CHAIN_MEMBERS_INSERT: &str = "-- chain_members_insert
INSERT INTO chain_members (chain_id, position, certificate_id)
SELECT * FROM UNNEST(?1::bigint[], ?2::int4[], ?3::bigint[])";

pub(crate) const OBSERVATIONS_INSERT: &str = "-- observations_insert
INSERT INTO observations (scan_id, endpoint_id, observed_at, outcome, answered, address, tls_version, cipher_suite,
                          leaf_id, chain_id, trust, severity, findings, detail, change_kind, previous_leaf_id,
                          previous_outcome)
SELECT ?1::bigint, n.*
FROM UNNEST(?2::bigint[], ?3::bigint[], ?4::text[], ?5::bool[], ?6::text[], ?7::int4[], ?8::int4[], ?9::bigint[],
            ?10::bigint[], ?11::text[], ?12::int2[], ?13::text[], ?14::text[], ?15::int2[], ?16::bigint[],
            ?17::text[]) AS n";

pub(crate) const ENDPOINTS_OBSERVED: &str = "-- endpoints_observed
UPDATE endpoints e
SET last_observed_at = u.at, last_answered_at = COALESCE(u.answered_at, e.last_answered_at),
    last_changed_at = COALESCE(u.changed_at, e.last_changed_at), last_scan_id = ?1, outcome = u.outcome,
    answering = u.answered_at IS NOT NULL, severity = u.severity, leaf_id = COALESCE(u.leaf_id, e.leaf_id),
    leaf_issuer_id = COALESCE(u.issuer_id, e.leaf_issuer_id),
    leaf_not_after = COALESCE(u.not_after, e.leaf_not_after), chain_id = COALESCE(u.chain_id, e.chain_id)
FROM UNNEST(?2::bigint[], ?3::bigint[], ?4::bigint[], ?5::bigint[], ?6::text[], ?7::int2[], ?8::bigint[], ?9::bigint[],
            ?10::bigint[], ?11::bigint[])
     AS u (id, at, answered_at, changed_at, outcome, severity, leaf_id, issuer_id, not_after, chain_id)
WHERE e.id = u.id";

pub(crate) const ISSUERS_COUNT: &str = "-- issuers_count
WITH moved AS (
    SELECT i.id, u.certificates, u.endpoints
    FROM UNNEST(?1::bigint[], ?2::bigint[], ?3::bigint[]) AS u (id, certificates, endpoints)
    JOIN issuers i ON i.id = u.id ORDER BY i.id FOR NO KEY UPDATE OF i
)
UPDATE issuers i SET certificates = i.certificates + m.certificates, endpoints = i.endpoints + m.endpoints
FROM moved m WHERE i.id = m.id";

pub(crate) const TOTALS_ADD: &str = "-- totals_add
INSERT INTO totals (name, value)
SELECT n.name, n.moved FROM UNNEST(?1::text[], ?2::bigint[]) AS n (name, moved) ORDER BY n.name COLLATE \"C\"
ON CONFLICT (name) DO UPDATE SET value = totals.value + excluded.value";

pub(crate) const SCAN_COUNTS: &str = "-- scan_counts
UPDATE scans SET observations = observations + ?2, answered = answered + ?3, changes = changes + ?4,
                 new_certificates = new_certificates + ?5
WHERE id = ?1";

/// Every statement above that can be prepared, for the test that prepares them.
pub(crate) const ALL: &[&str] = &[
    ENDPOINTS_MISSING,
    ENDPOINTS_INSERT,
    ENDPOINTS_LOCK,
    OBSERVED_ALREADY,
    ISSUERS_FIND,
    ISSUERS_INSERT,
    CERTIFICATES_FIND,
    CERTIFICATES_INSERT,
    CERTIFICATE_DERS_INSERT,
    CERTIFICATE_NAMES_INSERT,
    CERTIFICATES_SEEN,
    CHAINS_FIND,
    CHAINS_INSERT,
    CHAIN_MEMBERS_INSERT,
    OBSERVATIONS_INSERT,
    ENDPOINTS_OBSERVED,
    ISSUERS_COUNT,
    TOTALS_ADD,
    SCAN_COUNTS,
];

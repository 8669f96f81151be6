//! What the authority has issued: rows beside those of the inventory, and the keys that make issuing idempotent.

pub(crate) mod insert;
pub(crate) mod search;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use coded::named;
pub use insert::insert_issued;
pub use search::IssuedSearch;
use uuid::Uuid;

use db::{Bulk, Cost, Cursor, Page, Row, StoreError, Value, limit_of, reversed};
use store::NewCertificate;
use x509::crl::Reason;

store::handle! {
    /// Certificates that this authority issued.
    Issued
}

named! {
    /// The protocol of a request. Idempotency keys of different sources never meet.
    pub enum Source: "source" {
        /// The REST API.
        Api => "api",
        /// ACME (RFC 8555).
        Acme => "acme",
        /// EST (RFC 7030).
        Est => "est",
        /// SCEP (RFC 8894).
        Scep => "scep",
        /// A managed certificate.
        Lifecycle => "lifecycle",
        /// The server itself: its own TLS, its responders.
        System => "system",
        /// The credential store, by an authority that is a credential itself.
        Credential => "credential",
    }
}

/// A certificate about to be stored as issued.
#[derive(Clone, Debug)]
pub struct NewIssued {
    /// Its id outside, made by the caller.
    pub id: Uuid,
    /// The certificate's row of the inventory.
    pub certificate: Arc<NewCertificate>,
    /// The CA that signed it.
    pub ca: Uuid,
    /// The content bytes of its serial number.
    pub serial: Vec<u8>,
    /// By which profile; empty for those issued without.
    pub profile: String,
    /// The protocol of the request.
    pub source: Source,
    /// The requester.
    pub requester: String,
    /// When, µs.
    pub issued_at_us: i64,
    /// The CRL that will tell of it: 0 for the CA's one.
    pub shard: u32,
    /// What makes a repeat of the same request answer the same certificate.
    pub once: Option<Once>,
}

/// An idempotency key and its request, both hashed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Once {
    /// SHA-256 of the key and its scope.
    pub key_sha256: [u8; 32],
    /// SHA-256 of the request.
    pub request_sha256: [u8; 32],
}

/// What became of one [`NewIssued`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Insertion {
    /// Stored.
    New,
    /// The key was used before: nothing was stored.
    Repeated(UsedKey),
    /// Its public key is blocked: nothing was stored.
    Blocked,
}

/// What a key was used for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct UsedKey {
    /// The certificate issued then.
    pub id: Uuid,
    /// SHA-256 of the first request.
    pub request_sha256: [u8; 32],
}

/// An issued certificate as stored, with its revocation.
#[derive(Clone, Debug, PartialEq)]
pub struct IssuedRow {
    /// Its id outside.
    pub id: Uuid,
    /// The CA that signed it.
    pub ca: Uuid,
    /// The content bytes of its serial number.
    pub serial: Vec<u8>,
    /// By which profile.
    pub profile: String,
    /// The protocol of the request.
    pub source: Source,
    /// The requester.
    pub requester: String,
    /// When it was issued, µs.
    pub issued_at_us: i64,
    /// Its CRL.
    pub shard: i64,
    /// SHA-256 of its DER.
    pub sha256: [u8; 32],
    /// The subject, for people.
    pub subject: String,
    /// Start of validity, µs.
    pub not_before_us: i64,
    /// End of validity, µs.
    pub not_after_us: i64,
    /// The key's algorithm.
    pub key_algorithm: String,
    /// SHA-256 of the SubjectPublicKeyInfo.
    pub spki_sha256: [u8; 32],
    /// The certificate.
    pub der: Vec<u8>,
    /// Set once it is revoked; [`Reason::RemoveFromCrl`] when it was taken off hold again.
    pub revocation: Option<RevocationFacts>,
}

/// That, when and why a certificate was revoked.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RevocationFacts {
    /// The date in the CRL, µs.
    pub revoked_at_us: i64,
    /// Why.
    pub reason: Reason,
    /// Since when the key is thought to be compromised, µs.
    pub invalidity_at_us: Option<i64>,
}

/// Which certificates to list; all conditions together.
#[derive(Clone, Debug, Default)]
pub struct IssuedFilter {
    /// Of this CA.
    pub ca: Option<Uuid>,
    /// By this profile.
    pub profile: Option<String>,
    /// For this requester.
    pub requester: Option<String>,
    /// Only certificates requested over this protocol.
    pub source: Option<Source>,
    /// With a name that is this one or lies below it.
    pub name_suffix: Option<String>,
    /// Issued at this time or later, µs.
    pub issued_from_us: Option<i64>,
    /// Issued before this time, µs.
    pub issued_before_us: Option<i64>,
    /// Ending at this time or later, µs.
    pub ends_from_us: Option<i64>,
    /// With this serial number, its content bytes.
    pub serial: Option<Vec<u8>>,
    /// With this SHA-256.
    pub sha256: Option<[u8; 32]>,
    /// With this public key, by its SHA-256.
    pub spki_sha256: Option<[u8; 32]>,
}

/// In which order to list.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum IssuedOrder {
    /// By the time of issuance, the newest first.
    #[default]
    NewestFirst,
    /// By the time of issuance, the oldest first.
    OldestFirst,
}

impl IssuedOrder {
    fn listing(self) -> &'static str {
        match self {
            Self::NewestFirst => "issued",
            Self::OldestFirst => "issued-asc",
        }
    }
}

/// Lists travel as JSON arrays of hexadecimal texts.
const LOOK_BLOCKED: Bulk = db::bulk! {
    "-- look_blocked
SELECT spki_sha256 FROM blocked_keys
WHERE spki_sha256 {among ?1 bytea}"
};

const LOOK_USED: Bulk = db::bulk! {
    "-- look_used
SELECT key_sha256, request_sha256, issued_uuid FROM issuance_keys
WHERE key_sha256 {among ?1 bytea}"
};

const KEY_USED: &str = "-- issuance_key_used
SELECT request_sha256, issued_uuid FROM issuance_keys WHERE key_sha256 = ?1";

const KEYS_TRIM: &str = "-- issuance_keys_trim
DELETE FROM issuance_keys WHERE created_at < ?1";

macro_rules! columns {
    () => {
        "SELECT i.uuid, i.ca, i.serial, i.profile, i.source, i.requester, i.issued_at, i.shard, c.sha256, c.subject, \
         c.not_before, c.not_after, c.key_algorithm, c.spki_sha256, d.der, r.revoked_at, r.reason, r.invalidity_at, \
         i.certificate_id\n\
         FROM issued i JOIN certificates c ON c.id = i.certificate_id \
         JOIN certificate_ders d ON d.certificate_id = i.certificate_id \
         LEFT JOIN revocations r ON r.certificate_id = i.certificate_id\n"
    };
}

use columns;

const BY_ID: &str = concat!("-- issued_by_id\n", columns!(), "WHERE i.uuid = ?1");
const BY_SERIAL: &str = concat!("-- issued_by_serial\n", columns!(), "WHERE i.serial = ?1 AND i.ca = ?2");
const BY_SHA256: &str = concat!("-- issued_by_sha256\n", columns!(), "WHERE c.sha256 = ?1");

/// For OCSP: nothing but the status.
const STATUS: &str = "-- issued_status
SELECT r.revoked_at, r.reason, r.invalidity_at
FROM issued i LEFT JOIN revocations r ON r.certificate_id = i.certificate_id WHERE i.serial = ?1 AND i.ca = ?2";

pub(crate) const ALL: &[&str] = &[KEY_USED, KEYS_TRIM, BY_ID, BY_SERIAL, BY_SHA256, STATUS];
pub(crate) const BULKS: &[&Bulk] = &[&LOOK_BLOCKED, &LOOK_USED];

impl Issued<'_> {
    /// Which of these public keys are blocked, and which of these idempotency keys were used: two statements, whatever
    /// the number; what came after it is seen by [`insert_issued`].
    ///
    /// # Errors
    /// Those of the database.
    pub async fn issuing_look(
        self,
        spkis: &[[u8; 32]],
        keys: &[[u8; 32]],
    ) -> Result<(HashSet<[u8; 32]>, HashMap<[u8; 32], UsedKey>), StoreError> {
        let (mut blocked, mut used) = (HashSet::new(), HashMap::new());
        let hex = |hashes: &[[u8; 32]]| -> Vec<String> { hashes.iter().map(|hash| db::hex(hash)).collect() };
        for mut row in self.0.among(&LOOK_BLOCKED, hex(spkis)).await? {
            blocked.insert(row.hash()?);
        }
        for mut row in self.0.among(&LOOK_USED, hex(keys)).await? {
            used.insert(row.hash()?, UsedKey { request_sha256: row.hash()?, id: row.uuid()? });
        }
        Ok((blocked, used))
    }

    /// An issued certificate by its id.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn by_id(self, id: Uuid) -> Result<Option<IssuedRow>, StoreError> {
        self.0.row(BY_ID, vec![id.into()]).await?.map(row_of).transpose()
    }

    /// An issued certificate by its CA and the content bytes of its serial number.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn by_serial(self, ca: Uuid, serial: &[u8]) -> Result<Option<IssuedRow>, StoreError> {
        self.0.row(BY_SERIAL, vec![serial.into(), ca.into()]).await?.map(row_of).transpose()
    }

    /// An issued certificate by its SHA-256.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn by_sha256(self, sha256: &[u8; 32]) -> Result<Option<IssuedRow>, StoreError> {
        self.0.row(BY_SHA256, vec![(*sha256).into()]).await?.map(row_of).transpose()
    }

    /// Whether a serial number is revoked: `None` when this CA never issued it, `Some(None)` when it is good.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn status(
        self,
        ca: Uuid,
        serial: &[u8],
    ) -> Result<Option<Option<RevocationFacts>>, StoreError> {
        let found = self.0.row(STATUS, vec![serial.into(), ca.into()]).await?;
        found.map(|mut row| facts_of(&mut row)).transpose()
    }

    /// What an idempotency key was used for.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn key(self, key_sha256: &[u8; 32]) -> Result<Option<UsedKey>, StoreError> {
        let found = self.0.row(KEY_USED, vec![(*key_sha256).into()]).await?;
        found.map(|mut row| Ok(UsedKey { request_sha256: row.hash()?, id: row.uuid()? })).transpose()
    }

    /// Forgets idempotency keys used before `before_us`; says how many.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn trim_keys(self, before_us: i64) -> Result<u64, StoreError> {
        self.0.execute(KEYS_TRIM, vec![before_us.into()]).await
    }

    /// A page of issued certificates, newest first.
    ///
    /// # Errors
    /// [`StoreError::BadCursor`]; those of the database.
    pub async fn page(
        self,
        filter: &IssuedFilter,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<IssuedRow>, StoreError> {
        self.sorted_page(filter, IssuedOrder::NewestFirst, after, limit).await
    }

    /// A page of issued certificates, in either order.
    ///
    /// # Errors
    /// [`StoreError::BadCursor`]; those of the database.
    pub async fn sorted_page(
        self,
        filter: &IssuedFilter,
        order: IssuedOrder,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<IssuedRow>, StoreError> {
        let key =
            after.map(|cursor| cursor.key(order.listing(), &[Value::Int(0), Value::Int(0)])).transpose()?;
        let (limit, asked) = limit_of(limit);
        let (statement, parameters) = page(filter, order, key, asked);
        let mut found = self.0.rows(Cost::Walk, &statement, parameters).await?;
        let more = found.len() > limit;
        found.truncate(limit);
        let (mut rows, mut last) = (Vec::with_capacity(found.len()), 0);
        for mut row in found {
            let read = take_row(&mut row)?;
            last = row.int()?;
            rows.push(read);
        }
        let next = rows
            .last()
            .filter(|_| more)
            .map(|row: &IssuedRow| Cursor::new(order.listing(), &[row.issued_at_us.into(), last.into()]));
        Ok(Page { rows, next })
    }
}

fn row_of(mut row: Row) -> Result<IssuedRow, StoreError> {
    take_row(&mut row)
}

fn take_row(row: &mut Row) -> Result<IssuedRow, StoreError> {
    Ok(IssuedRow {
        id: row.uuid()?,
        ca: row.uuid()?,
        serial: row.blob()?,
        profile: row.text()?,
        source: row.named("issued.source")?,
        requester: row.text()?,
        issued_at_us: row.int()?,
        shard: row.int()?,
        sha256: row.hash()?,
        subject: row.text()?,
        not_before_us: row.int()?,
        not_after_us: row.int()?,
        key_algorithm: row.text()?,
        spki_sha256: row.hash()?,
        der: row.blob()?,
        revocation: facts_of(row)?,
    })
}

fn facts_of(row: &mut Row) -> Result<Option<RevocationFacts>, StoreError> {
    let revoked_at = row.maybe_int()?;
    let (reason, invalidity_at_us) = (row.maybe_coded("revocations.reason")?, row.maybe_int()?);
    Ok(revoked_at.zip(reason).map(|(revoked_at_us, reason)| RevocationFacts {
        revoked_at_us,
        reason,
        invalidity_at_us,
    }))
}

/// The conditions of a filter on `issued i`, as text and parameters; parameters are counted from `first`.
pub(crate) fn conditions(filter: &IssuedFilter, first: usize) -> (Vec<String>, Vec<Value>) {
    let (mut conditions, mut parameters): (Vec<String>, Vec<Value>) = (Vec::new(), Vec::new());
    let mut add = |condition: &str, value: Value| {
        parameters.push(value);
        conditions.push(condition.replace("{}", &format!("?{}", first + parameters.len() - 1)));
    };
    if let Some(ca) = filter.ca {
        add("i.ca = {}", ca.into());
    }
    let texts = [
        ("i.profile = {}", filter.profile.as_deref()),
        ("i.requester = {}", filter.requester.as_deref()),
        ("i.source = {}", filter.source.map(Source::name)),
    ];
    for (condition, text) in texts {
        if let Some(text) = text {
            add(condition, text.into());
        }
    }
    let times = [
        ("i.issued_at >= {}", filter.issued_from_us),
        ("i.issued_at < {}", filter.issued_before_us),
        ("i.not_after >= {}", filter.ends_from_us),
    ];
    for (condition, time) in times {
        if let Some(time) = time {
            add(condition, time.into());
        }
    }
    if let Some(serial) = &filter.serial {
        add("i.serial = {}", Value::Blob(serial.clone()));
    }
    if let Some(spki) = filter.spki_sha256 {
        add("i.spki_sha256 = {}", spki.into());
    }
    if let Some(sha256) = filter.sha256 {
        add("i.certificate_id = (SELECT f.id FROM certificates f WHERE f.sha256 = {})", sha256.into());
    }
    if let Some(suffix) = &filter.name_suffix {
        // The name itself, and what begins with its letters backwards and a dot: '/' follows '.'.
        let name = reversed(suffix.trim_start_matches('.'));
        parameters.extend([name.as_str().into(), format!("{name}.").into(), format!("{name}/").into()]);
        let at = first + parameters.len() - 3;
        conditions.push(format!(
            "i.certificate_id IN (SELECT n.certificate_id FROM certificate_names n WHERE n.name_reversed = ?{at} \
             UNION SELECT n.certificate_id FROM certificate_names n WHERE n.name_reversed >= ?{} \
             AND n.name_reversed < ?{})",
            at + 1,
            at + 2
        ));
    }
    (conditions, parameters)
}

/// A page and its parameters, holding only the conditions asked for.
fn page(
    filter: &IssuedFilter,
    order: IssuedOrder,
    after: Option<Vec<Value>>,
    limit: i64,
) -> (String, Vec<Value>) {
    let (mut conditions, mut parameters) = conditions(filter, 1);
    let (than, end) = match order {
        IssuedOrder::NewestFirst => ("<", " DESC"),
        IssuedOrder::OldestFirst => (">", ""),
    };
    if let Some(key) = after {
        let first = parameters.len() + 1;
        conditions.push(format!("(i.issued_at, i.certificate_id) {than} (?{first}, ?{})", first + 1));
        parameters.extend(key);
    }
    parameters.push(limit.into());
    let condition =
        if conditions.is_empty() { String::new() } else { format!("WHERE {}\n", conditions.join(" AND ")) };
    let statement = format!(
        "-- issued_page\n{}{condition}ORDER BY i.issued_at{end}, i.certificate_id{end} LIMIT ?{}",
        columns!(),
        parameters.len()
    );
    (statement, parameters)
}

/// A filter with every condition, for the tests that prepare statements.
pub(crate) fn full_filter() -> IssuedFilter {
    let some = || Some("a".to_owned());
    IssuedFilter {
        ca: Some(Uuid::nil()),
        profile: some(),
        requester: some(),
        source: Some(Source::Api),
        name_suffix: some(),
        issued_from_us: Some(0),
        issued_before_us: Some(0),
        ends_from_us: Some(0),
        serial: Some(vec![0]),
        sha256: Some([0; 32]),
        spki_sha256: Some([0; 32]),
    }
}

/// The page in its least and its fullest form, for the test that prepares all statements.
pub(crate) fn composed() -> Vec<String> {
    let key = || Some(vec![0.into(), 0.into()]);
    let orders = [IssuedOrder::NewestFirst, IssuedOrder::OldestFirst];
    let forms = |order| {
        let filters = [
            full_filter(),
            IssuedFilter { serial: Some(vec![0]), ..IssuedFilter::default() },
            IssuedFilter { sha256: Some([0; 32]), ..IssuedFilter::default() },
            IssuedFilter { spki_sha256: Some([0; 32]), ..IssuedFilter::default() },
        ];
        let with_key = filters.map(|filter| page(&filter, order, key(), 1).0);
        with_key.into_iter().chain([page(&IssuedFilter::default(), order, None, 1).0])
    };
    orders.into_iter().flat_map(forms).collect()
}

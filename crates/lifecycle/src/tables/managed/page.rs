//! Pages of managed certificates. Each page reads one index.

use std::borrow::Cow;

use super::handle::Managed;
use super::name_part::{self, NamePartSource};
use crate::tables::managed::row::{
    ManagedRow, ManagedView, managed_columns, managed_row, run_columns, run_join, view, with_run_states,
};
use db::{Cost, Cursor, Page, StoreError, Tx, Value, limit_of, page, reversed};
use store::states::{JobKind, JobState, ManagedState};
use uuid::Uuid;

/// Filter for certificates. Conditions that are `None` or empty match everything.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ManagedFilter {
    /// The certificate has exactly this name.
    pub name: Option<String>,
    /// The certificate is in one of these states.
    pub states: Vec<ManagedState>,
    /// The certificate has this profile.
    pub profile: Option<String>,
    /// The certificate is in one of these scopes. Set for callers that are not permitted to see all certificates.
    pub within: Option<Vec<ManagedScope>>,
    /// The certificate has this issuer.
    pub issuer: Option<String>,
    /// The certificate belongs to this owner.
    pub owner: Option<String>,
    /// The certificate belongs to this team.
    pub team: Option<String>,
    /// The certificate is in this environment.
    pub environment: Option<String>,
    /// The certificate names this policy.
    pub policy: Option<String>,
    /// The private key is on the host of this agent.
    pub agent: Option<Uuid>,
    /// The certificate has a tag with this name and value.
    pub tag: Option<(String, String)>,
    /// The certificate expires before this time, in µs since 1970.
    pub expires_before_us: Option<i64>,
    /// The certificate expires at this time or later, in µs since 1970. Certificates without a version do not match.
    pub expires_from_us: Option<i64>,
    /// The name or a DNS name contains this text.
    pub contains: Option<String>,
    /// Source of the certificates that match `contains`. Set while a statement is composed.
    pub name_part_source: NamePartSource,
    /// A DNS name ends with this text.
    pub suffix: Option<String>,
    /// The current version has this serial number, in lower-case hexadecimal.
    pub serial: Option<String>,
    /// The current version was issued by the CA with this name. No index covers this condition: rows are read in sort order until the
    /// page is full, with two lookups each.
    pub ca: Option<String>,
    /// The SHA-256 of the current version's leaf.
    pub fingerprint: Option<[u8; 32]>,
    /// The key has this type.
    pub key_type: Option<String>,
    /// The certificate violates this rule of a policy.
    pub finding: Option<String>,
}

impl ManagedFilter {
    /// Returns whether names must be read to find those that contain a text.
    pub(super) fn reads_names(&self) -> bool {
        self.contains.is_some() && self.name_part_source == NamePartSource::Names
    }
}

/// A subset of the managed certificates.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ManagedScope {
    /// Certificates of this profile.
    Profile(String),
    /// Certificates of this issuer.
    Issuer(String),
    /// Certificates of this team.
    Team(String),
    /// Certificates that are in all of these scopes.
    Every(Vec<Self>),
}

/// Sort key of a page of managed certificates.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum ManagedOrder {
    /// Earliest expiry first. Certificates without a version are last.
    #[default]
    Expiry,
    /// Sorted by name, compared byte by byte.
    Name,
    /// Sorted by time of creation.
    Created,
    /// Earliest start of the current version first. Certificates without a version come before all others.
    Issued,
}

/// Sort direction of a page of managed certificates.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Direction {
    /// Smallest value first.
    #[default]
    Ascending,
    /// Largest value first.
    Descending,
}

/// Sort order of a page: key and direction.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ManagedSort {
    /// Sort key. Rows with equal keys are sorted by row id.
    pub by: ManagedOrder,
    /// Direction of the sort key. Default: ascending.
    pub direction: Direction,
}

impl From<ManagedOrder> for ManagedSort {
    fn from(by: ManagedOrder) -> Self {
        Self { by, direction: Direction::Ascending }
    }
}

impl ManagedOrder {
    fn columns(self) -> &'static [&'static str] {
        match self {
            Self::Expiry => &["ends_at", "id"],
            Self::Name => &["name"],
            Self::Created => &["id"],
            Self::Issued => &["not_before", "id"],
        }
    }
}

impl ManagedSort {
    fn listing(self) -> &'static str {
        match (self.by, self.direction) {
            (ManagedOrder::Expiry, Direction::Ascending) => "managed-expiry",
            (ManagedOrder::Expiry, Direction::Descending) => "managed-expiry-desc",
            (ManagedOrder::Name, Direction::Ascending) => "managed-name",
            (ManagedOrder::Name, Direction::Descending) => "managed-name-desc",
            (ManagedOrder::Created, Direction::Ascending) => "managed-created",
            (ManagedOrder::Created, Direction::Descending) => "managed-created-desc",
            (ManagedOrder::Issued, Direction::Ascending) => "managed-issued",
            (ManagedOrder::Issued, Direction::Descending) => "managed-issued-desc",
        }
    }

    /// Returns the columns for `ORDER BY`, each with the prefix `before`.
    fn columns(self, before: &str) -> String {
        let end = match self.direction {
            Direction::Ascending => "",
            Direction::Descending => " DESC",
        };
        let columns = self.by.columns().iter().map(|column| format!("{before}{column}{end}"));
        columns.collect::<Vec<_>>().join(", ")
    }

    fn shape(self) -> Vec<Value> {
        match self.by {
            ManagedOrder::Expiry | ManagedOrder::Issued => vec![Value::Int(0), Value::Int(0)],
            ManagedOrder::Name => vec![Value::Text(String::new())],
            ManagedOrder::Created => vec![Value::Int(0)],
        }
    }

    fn key(self, row: &ManagedRow) -> Vec<Value> {
        match self.by {
            ManagedOrder::Expiry => vec![row.ends_at_us().into(), row.id.into()],
            ManagedOrder::Name => vec![row.name.as_str().into()],
            ManagedOrder::Created => vec![row.id.into()],
            ManagedOrder::Issued => vec![row.not_before_us.into(), row.id.into()],
        }
    }
}

/// SQL conditions of a filter, and their parameters.
pub(super) struct Conditions {
    texts: Vec<String>,
    pub(super) parameters: Vec<Value>,
}

/// Maximum number of matches that SQLite sorts. With more matches, SQLite reads the index in sort order. Either takes a few
/// milliseconds.
const SORTED_MAX: i64 = 10_000;

impl Conditions {
    pub(super) fn bind(&mut self, value: Value) -> String {
        self.parameters.push(value);
        format!("?{}", self.parameters.len())
    }

    pub(super) fn of(filter: &ManagedFilter) -> Self {
        Self::with(filter, "")
    }

    /// Leaves out archived certificates, unless the filter names states.
    pub(super) fn exclude_archived(&mut self, filter: &ManagedFilter) {
        if filter.states.is_empty() {
            let archived = self.bind(ManagedState::Archived.code().into());
            self.texts.push(format!("+state <> {archived}"));
        }
    }

    /// Adds the conditions on the current version, which are index lookups.
    fn version(&mut self, filter: &ManagedFilter) {
        if let Some(serial) = &filter.serial {
            let serial = self.bind(serial.as_str().into());
            self.texts.push(format!(
                "id IN (SELECT certificate_id FROM managed_versions WHERE serial = {serial}) \
                 AND version_id IN (SELECT id FROM managed_versions WHERE serial = {serial})"
            ));
        }
        if let Some(fingerprint) = filter.fingerprint {
            let fingerprint = self.bind(fingerprint.into());
            self.texts.push(format!(
                "id IN (SELECT certificate_id FROM managed_versions WHERE fingerprint = {fingerprint}) \
                 AND fingerprint = {fingerprint}"
            ));
        }
        if let Some(ca) = &filter.ca {
            let ca = self.bind(ca.as_str().into());
            self.texts.push(format!(
                "EXISTS (SELECT 1 FROM certificates c JOIN issued i ON i.certificate_id = c.id \
                 WHERE c.sha256 = fingerprint AND i.ca = (SELECT id FROM cas WHERE name = {ca}))"
            ));
        }
        if let Some(rule) = &filter.finding {
            let rule = self.bind(rule.as_str().into());
            self.texts
                .push(format!("id IN (SELECT certificate_id FROM policy_violations WHERE rule = {rule})"));
        }
    }

    fn within(&mut self, scope: &ManagedScope) -> String {
        match scope {
            ManagedScope::Profile(name) => format!("profile = {}", self.bind(name.as_str().into())),
            ManagedScope::Issuer(name) => format!("issuer = {}", self.bind(name.as_str().into())),
            ManagedScope::Team(name) => format!("team = {}", self.bind(name.as_str().into())),
            ManagedScope::Every(scopes) => {
                let every: Vec<String> = scopes.iter().map(|scope| self.within(scope)).collect();
                // An empty list of scopes matches nothing. An empty conjunction would match everything.
                if every.is_empty() { "1 = 0".to_owned() } else { format!("({})", every.join(" AND ")) }
            }
        }
    }

    fn with(filter: &ManagedFilter, mark: &str) -> Self {
        Self::with_mark_and_parameters(filter, mark, Vec::new())
    }

    /// Returns the conditions of a filter as text. `mark` is put before each column that has its own index: with `+`, SQLite does
    /// not use that index. `parameters` are the parameters of the text before the conditions.
    pub(super) fn with_mark_and_parameters(
        filter: &ManagedFilter,
        mark: &str,
        parameters: Vec<Value>,
    ) -> Self {
        let mut all = Self { texts: Vec::new(), parameters };
        if !filter.states.is_empty() {
            let marks: Vec<String> =
                filter.states.iter().map(|state| all.bind(state.code().into())).collect();
            all.texts.push(format!("{mark}state IN ({})", marks.join(", ")));
        }
        if let Some(scopes) = &filter.within {
            let any: Vec<String> = scopes.iter().map(|scope| all.within(scope)).collect();
            // Without any scope, nothing matches.
            all.texts.push(if any.is_empty() {
                "1 = 0".to_owned()
            } else {
                format!("({})", any.join(" OR "))
            });
        }
        for (column, wanted) in [
            ("name", &filter.name),
            ("profile", &filter.profile),
            ("issuer", &filter.issuer),
            ("owner", &filter.owner),
            ("team", &filter.team),
            ("environment", &filter.environment),
            ("policy", &filter.policy),
            ("key_type", &filter.key_type),
        ] {
            if let Some(text) = wanted {
                let value = all.bind(text.as_str().into());
                all.texts.push(format!("{mark}{column} = {value}"));
            }
        }
        if let Some(agent) = filter.agent {
            let value = all.bind(agent.into());
            all.texts.push(format!("{mark}agent = {value}"));
        }
        if let Some((tag, value)) = &filter.tag {
            let (tag, value) = (all.bind(tag.as_str().into()), all.bind(value.as_str().into()));
            all.texts.push(format!(
                "id IN (SELECT certificate_id FROM managed_tags WHERE tag = {tag} AND value = {value})"
            ));
        }
        if let Some(before) = filter.expires_before_us {
            let mark = all.bind(before.into());
            all.texts.push(format!("ends_at < {mark}"));
        }
        if let Some(from) = filter.expires_from_us {
            let (from, never) = (all.bind(from.into()), all.bind(super::row::NEVER_ISSUED_US.into()));
            all.texts.push(format!("ends_at >= {from} AND ends_at < {never}"));
        }
        if let Some(text) = &filter.contains {
            let condition = name_part::condition(text, filter.name_part_source, |value| all.bind(value));
            all.texts.push(condition);
        }
        if let Some(suffix) = &filter.suffix {
            let low = reversed(suffix);
            let high = format!("{low}\u{10ffff}");
            let (low, high) = (all.bind(low.into()), all.bind(high.into()));
            all.texts.push(format!(
                "id IN (SELECT certificate_id FROM managed_names WHERE name_reversed >= {low} AND name_reversed < {high})"
            ));
        }
        all.version(filter);
        all
    }

    fn after(&mut self, sort: ManagedSort, key: Option<Vec<Value>>) {
        if let Some(key) = key {
            let marks: Vec<String> = key.into_iter().map(|value| self.bind(value)).collect();
            let than = match sort.direction {
                Direction::Ascending => ">",
                Direction::Descending => "<",
            };
            self.texts.push(format!("({}) {than} ({})", sort.by.columns().join(", "), marks.join(", ")));
        }
    }

    pub(super) fn clause(&self) -> String {
        if self.texts.is_empty() { String::new() } else { format!("WHERE {} ", self.texts.join(" AND ")) }
    }
}

/// Returns the statement of a page. It selects the rows first, and joins other tables only for these rows.
fn statement(
    filter: &ManagedFilter,
    sort: ManagedSort,
    key: Option<Vec<Value>>,
    limit: i64,
    mark: &str,
) -> (String, Vec<Value>) {
    let mut conditions = Conditions::with(filter, mark);
    conditions.after(sort, key);
    let limit = conditions.bind(limit.into());
    let (columns, qualified_columns) = (sort.columns(""), sort.columns("m."));
    let text = format!(
        "-- managed_page\nSELECT {}, {} FROM (SELECT * FROM managed_certificates {}ORDER BY {columns} LIMIT {limit}) m{} \
         ORDER BY {}",
        managed_columns!(),
        run_columns!(),
        conditions.clause(),
        with_run_states!(run_join!()),
        qualified_columns
    );
    (text, conditions.parameters)
}

/// Selects rows without joins, in order of creation, for bulk operations on all matches of a filter.
fn rows_statement(filter: &ManagedFilter, after: i64, limit: i64) -> (String, Vec<Value>) {
    let mut conditions = Conditions::of(filter);
    conditions.after(ManagedOrder::Created.into(), Some(vec![after.into()]));
    let limit = conditions.bind(limit.into());
    let text = format!(
        "-- managed_selected\nSELECT {} FROM managed_certificates m {}ORDER BY id LIMIT {limit}",
        managed_columns!(),
        conditions.clause()
    );
    (text, conditions.parameters)
}

impl Managed<'_> {
    /// Returns a page of certificates with their open runs.
    ///
    /// # Errors
    /// [`StoreError::BadCursor`] for a cursor of another sort order; database errors.
    pub async fn page(
        self,
        filter: &ManagedFilter,
        sort: ManagedSort,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<ManagedView>, StoreError> {
        let key = after.map(|cursor| cursor.key(sort.listing(), &sort.shape())).transpose()?;
        let (limit, fetch_limit) = limit_of(limit);
        let filter = &*self.with_name_part_source(filter).await?;
        let mark = if self.is_order_scan_cheaper(filter, sort.by).await? { "+" } else { "" };
        let (text, parameters) = statement(filter, sort, key, fetch_limit, mark);
        let rows = self.0.rows(Cost::Walk, &text, parameters).await?;
        page(rows, limit, sort.listing(), |row| {
            let found = view(row)?;
            let key = sort.key(&found.row);
            Ok((found, key))
        })
    }
}

impl Managed<'_> {
    /// Returns the filter with the source of certificates with a part of a name.
    pub(super) async fn with_name_part_source<'f>(
        self,
        filter: &'f ManagedFilter,
    ) -> Result<Cow<'f, ManagedFilter>, StoreError> {
        let text = filter.contains.as_deref();
        let Some((statement, parameters, source)) =
            text.and_then(|text| name_part::count(text, self.0.is_postgres()))
        else {
            return Ok(Cow::Borrowed(filter));
        };
        let found = self.0.row(statement, parameters).await?;
        match found.map_or(Ok(0), |mut row| row.int())? {
            count if count > name_part::RARE_MAX => Ok(Cow::Borrowed(filter)),
            _ => Ok(Cow::Owned(ManagedFilter { name_part_source: source, ..filter.clone() })),
        }
    }

    /// Returns whether reading in sort order is cheaper than sorting the matches. Only for SQLite, which would otherwise always
    /// sort; PostgreSQL decides this itself.
    async fn is_order_scan_cheaper(
        self,
        filter: &ManagedFilter,
        order: ManagedOrder,
    ) -> Result<bool, StoreError> {
        let is_part_indexed = filter.name_part_source != NamePartSource::Names;
        if self.0.is_postgres() || order == ManagedOrder::Expiry || is_part_indexed {
            return Ok(false);
        }
        // Conditions that a single index answers.
        let equal = ManagedFilter {
            name: None,
            tag: None,
            expires_before_us: None,
            expires_from_us: None,
            contains: None,
            suffix: None,
            within: None,
            serial: None,
            ca: None,
            fingerprint: None,
            finding: None,
            ..filter.clone()
        };
        // A name, a serial number or a fingerprint matches a single row.
        let single = filter.name.is_some() || filter.serial.is_some() || filter.fingerprint.is_some();
        if equal == ManagedFilter::default() || single {
            return Ok(false);
        }
        let (text, parameters) = matches(&equal);
        let found = self.0.row(&text, parameters).await?;
        Ok(found.map_or(Ok(0), |mut row| row.int())? > SORTED_MAX)
    }
}

/// Returns a statement that counts matching certificates, up to slightly more than [`SORTED_MAX`].
fn matches(filter: &ManagedFilter) -> (String, Vec<Value>) {
    let mut conditions = Conditions::of(filter);
    let limit = conditions.bind((SORTED_MAX + 1).into());
    let text = format!(
        "-- managed_matches\nSELECT count(*) FROM (SELECT 1 FROM managed_certificates {}LIMIT {limit}) x",
        conditions.clause()
    );
    (text, conditions.parameters)
}

/// Returns at most `limit` matching certificates with a row id above `after`, in row order.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn managed_matching(
    tx: &mut Tx,
    filter: &ManagedFilter,
    after: i64,
    limit: i64,
) -> Result<Vec<ManagedRow>, StoreError> {
    let (text, parameters) = rows_statement(filter, after, limit);
    tx.rows(&text, parameters).await?.into_iter().map(|mut row| managed_row(&mut row)).collect()
}

/// Returns the page statements: one for each condition and sort order, and one with all conditions.
pub(crate) fn composed() -> Vec<String> {
    let mut all = Vec::new();
    for filter in samples() {
        for sort in sorts() {
            all.push(statement(&filter, sort, None, 1, "").0);
            all.push(statement(&filter, sort, Some(sort.shape()), 1, "").0);
        }
        all.push(rows_statement(&filter, 0, 1).0);
        all.push(matches(&filter).0);
    }
    all
}

fn sorts() -> impl Iterator<Item = ManagedSort> {
    let orders = [ManagedOrder::Expiry, ManagedOrder::Name, ManagedOrder::Created, ManagedOrder::Issued];
    let directions = [Direction::Ascending, Direction::Descending];
    orders.into_iter().flat_map(move |by| directions.map(|direction| ManagedSort { by, direction }))
}

pub(super) fn samples() -> Vec<ManagedFilter> {
    let text = || Some("x".to_owned());
    let none = ManagedFilter::default;
    let full = ManagedFilter {
        name: text(),
        states: vec![ManagedState::AwaitingApproval, ManagedState::Active],
        profile: text(),
        within: Some(vec![
            ManagedScope::Profile("x".to_owned()),
            ManagedScope::Issuer("x".to_owned()),
            ManagedScope::Every(vec![
                ManagedScope::Team("x".to_owned()),
                ManagedScope::Profile("x".to_owned()),
            ]),
            ManagedScope::Team("x".to_owned()),
        ]),
        issuer: text(),
        owner: text(),
        team: text(),
        environment: text(),
        policy: text(),
        agent: Some(Uuid::nil()),
        tag: Some(("x".to_owned(), "y".to_owned())),
        expires_before_us: Some(0),
        expires_from_us: Some(0),
        contains: text(),
        name_part_source: NamePartSource::Names,
        suffix: text(),
        serial: text(),
        ca: text(),
        fingerprint: Some([0; 32]),
        key_type: text(),
        finding: text(),
    };
    vec![
        none(),
        ManagedFilter { states: vec![ManagedState::Active], ..none() },
        ManagedFilter { name: text(), ..none() },
        ManagedFilter { profile: text(), ..none() },
        ManagedFilter { within: Some(Vec::new()), ..none() },
        ManagedFilter { within: full.within.clone(), ..none() },
        ManagedFilter { issuer: text(), ..none() },
        ManagedFilter { owner: text(), ..none() },
        ManagedFilter { team: text(), ..none() },
        ManagedFilter { environment: text(), ..none() },
        ManagedFilter { policy: text(), ..none() },
        ManagedFilter { agent: Some(Uuid::nil()), ..none() },
        ManagedFilter { tag: full.tag.clone(), ..none() },
        ManagedFilter { expires_before_us: Some(0), ..none() },
        ManagedFilter { expires_from_us: Some(0), ..none() },
        ManagedFilter { contains: text(), ..none() },
        ManagedFilter { suffix: text(), ..none() },
        ManagedFilter { serial: text(), ..none() },
        ManagedFilter { ca: text(), ..none() },
        ManagedFilter { fingerprint: full.fingerprint, ..none() },
        ManagedFilter { key_type: text(), ..none() },
        ManagedFilter { finding: text(), ..none() },
        full,
    ]
}

/// Returns the statements whose query plans a test checks, with parameters that match few rows.
#[doc(hidden)]
pub(crate) fn plans() -> Vec<(String, Vec<Value>)> {
    let mut all = Vec::new();
    for filter in samples() {
        for sort in sorts() {
            all.push(statement(&filter, sort, None, 21, ""));
        }
    }
    all
}

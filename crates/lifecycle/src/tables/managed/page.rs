//! Pages of certificates under management, each walking one index.

use super::handle::Managed;
use crate::tables::managed::row::{
    ManagedRow, ManagedView, managed_columns, managed_row, run_columns, run_join, view, with_run_states,
};
use db::{Cost, Cursor, Page, StoreError, Tx, Value, contains, limit_of, page, reversed};
use store::states::{JobKind, JobState, ManagedState};
use uuid::Uuid;

/// Which certificates to list. Conditions that are `None` or empty allow everything.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ManagedFilter {
    /// With exactly this name.
    pub name: Option<String>,
    /// In one of these states.
    pub states: Vec<ManagedState>,
    /// Issued by this profile.
    pub profile: Option<String>,
    /// In one of these; for callers that may see no others.
    pub within: Option<Vec<ManagedScope>>,
    /// By this issuer.
    pub issuer: Option<String>,
    /// Of this owner.
    pub owner: Option<String>,
    /// Of this team.
    pub team: Option<String>,
    /// In this environment.
    pub environment: Option<String>,
    /// Naming this policy.
    pub policy: Option<String>,
    /// With its key at this agent.
    pub agent: Option<Uuid>,
    /// With this tag of this value.
    pub tag: Option<(String, String)>,
    /// Ending before this time, µs.
    pub expires_before_us: Option<i64>,
    /// Ending at this time or later, µs; never those that were never issued.
    pub expires_from_us: Option<i64>,
    /// Whose name, or one of whose DNS names, holds this text. No index holds substrings: the page walks its order until
    /// it is full.
    pub contains: Option<String>,
    /// With a DNS name that ends so.
    pub suffix: Option<String>,
}

/// A part of everything under management.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ManagedScope {
    /// What is issued by this profile.
    Profile(String),
    /// What comes from this issuer.
    Issuer(String),
    /// What belongs to this team.
    Team(String),
    /// What lies in all of these.
    Every(Vec<Self>),
}

/// In which order.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum ManagedOrder {
    /// The soonest end of validity first; those never issued last.
    #[default]
    Expiry,
    /// By name, octet by octet.
    Name,
    /// In the order in which they were entered.
    Created,
}

impl ManagedOrder {
    fn listing(self) -> &'static str {
        match self {
            Self::Expiry => "managed-expiry",
            Self::Name => "managed-name",
            Self::Created => "managed-created",
        }
    }

    fn columns(self) -> &'static str {
        match self {
            Self::Expiry => "not_after, id",
            Self::Name => "name",
            Self::Created => "id",
        }
    }

    fn shape(self) -> Vec<Value> {
        match self {
            Self::Expiry => vec![Value::Int(0), Value::Int(0)],
            Self::Name => vec![Value::Text(String::new())],
            Self::Created => vec![Value::Int(0)],
        }
    }

    fn key(self, row: &ManagedRow) -> Vec<Value> {
        match self {
            Self::Expiry => vec![row.not_after_us.into(), row.id.into()],
            Self::Name => vec![row.name.as_str().into()],
            Self::Created => vec![row.id.into()],
        }
    }
}

/// The conditions and their parameters.
struct Conditions {
    texts: Vec<String>,
    parameters: Vec<Value>,
}

/// Up to so many matches SQLite sorts them; above, it walks the order. Either is some milliseconds.
const SORTED_MAX: i64 = 10_000;

impl Conditions {
    fn bind(&mut self, value: Value) -> String {
        self.parameters.push(value);
        format!("?{}", self.parameters.len())
    }

    fn of(filter: &ManagedFilter) -> Self {
        Self::with(filter, "")
    }

    fn within(&mut self, scope: &ManagedScope) -> String {
        match scope {
            ManagedScope::Profile(name) => format!("profile = {}", self.bind(name.as_str().into())),
            ManagedScope::Issuer(name) => format!("issuer = {}", self.bind(name.as_str().into())),
            ManagedScope::Team(name) => format!("team = {}", self.bind(name.as_str().into())),
            ManagedScope::Every(scopes) => {
                let every: Vec<String> = scopes.iter().map(|scope| self.within(scope)).collect();
                // Of nothing named, nothing: an empty conjunction would be everything.
                if every.is_empty() { "1 = 0".to_owned() } else { format!("({})", every.join(" AND ")) }
            }
        }
    }

    /// With `mark` before each column that has an index of its own: SQLite's `+` keeps it from using that index.
    fn with(filter: &ManagedFilter, mark: &str) -> Self {
        let mut all = Self { texts: Vec::new(), parameters: Vec::new() };
        if !filter.states.is_empty() {
            let marks: Vec<String> =
                filter.states.iter().map(|state| all.bind(state.code().into())).collect();
            all.texts.push(format!("{mark}state IN ({})", marks.join(", ")));
        }
        if let Some(scopes) = &filter.within {
            let any: Vec<String> = scopes.iter().map(|scope| all.within(scope)).collect();
            // Nothing lies in no scope.
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
            all.texts.push(format!("not_after < {mark}"));
        }
        if let Some(from) = filter.expires_from_us {
            let (from, never) = (all.bind(from.into()), all.bind(super::row::NEVER_ISSUED_US.into()));
            all.texts.push(format!("not_after >= {from} AND not_after < {never}"));
        }
        if let Some(text) = &filter.contains {
            let mark = all.bind(contains(text).into());
            all.texts.push(format!(
                "(lower(name) LIKE {mark} ESCAPE '\\' OR lower(names) LIKE {mark} ESCAPE '\\')"
            ));
        }
        if let Some(suffix) = &filter.suffix {
            let low = reversed(suffix);
            let high = format!("{low}\u{10ffff}");
            let (low, high) = (all.bind(low.into()), all.bind(high.into()));
            all.texts.push(format!(
                "id IN (SELECT certificate_id FROM managed_names WHERE name_reversed >= {low} AND name_reversed < {high})"
            ));
        }
        all
    }

    fn after(&mut self, order: ManagedOrder, key: Option<Vec<Value>>) {
        if let Some(key) = key {
            let marks: Vec<String> = key.into_iter().map(|value| self.bind(value)).collect();
            self.texts.push(format!("({}) > ({})", order.columns(), marks.join(", ")));
        }
    }

    fn clause(&self) -> String {
        if self.texts.is_empty() { String::new() } else { format!("WHERE {} ", self.texts.join(" AND ")) }
    }
}

/// The page's statement: its rows first, then the joins of those only.
fn statement(
    filter: &ManagedFilter,
    order: ManagedOrder,
    key: Option<Vec<Value>>,
    limit: i64,
    mark: &str,
) -> (String, Vec<Value>) {
    let mut conditions = Conditions::with(filter, mark);
    conditions.after(order, key);
    let limit = conditions.bind(limit.into());
    let columns = order.columns();
    let again: Vec<String> = columns.split(", ").map(|column| format!("m.{column}")).collect();
    let text = format!(
        "-- managed_page\nSELECT {}, {} FROM (SELECT * FROM managed_certificates {}ORDER BY {columns} LIMIT {limit}) m{} \
         ORDER BY {}",
        managed_columns!(),
        run_columns!(),
        conditions.clause(),
        with_run_states!(run_join!()),
        again.join(", ")
    );
    (text, conditions.parameters)
}

/// Rows alone, in created order, for actions on everything a filter matches.
fn rows_statement(filter: &ManagedFilter, after: i64, limit: i64) -> (String, Vec<Value>) {
    let mut conditions = Conditions::of(filter);
    conditions.after(ManagedOrder::Created, Some(vec![after.into()]));
    let limit = conditions.bind(limit.into());
    let text = format!(
        "-- managed_selected\nSELECT {} FROM managed_certificates m {}ORDER BY id LIMIT {limit}",
        managed_columns!(),
        conditions.clause()
    );
    (text, conditions.parameters)
}

impl Managed<'_> {
    /// A page of certificates with their open runs.
    ///
    /// # Errors
    /// [`StoreError::BadCursor`] for a cursor of another order; those of the database.
    pub async fn page(
        self,
        filter: &ManagedFilter,
        order: ManagedOrder,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<ManagedView>, StoreError> {
        let key = after.map(|cursor| cursor.key(order.listing(), &order.shape())).transpose()?;
        let (limit, asked) = limit_of(limit);
        let mark = if self.walks_order(filter, order).await? { "+" } else { "" };
        let (text, parameters) = statement(filter, order, key, asked, mark);
        let rows = self.0.rows(Cost::Walk, &text, parameters).await?;
        page(rows, limit, order.listing(), |row| {
            let found = view(row)?;
            let key = order.key(&found.row);
            Ok((found, key))
        })
    }
}

impl Managed<'_> {
    /// Whether walking the order is cheaper than sorting what matches. PostgreSQL judges that by itself; SQLite would
    /// always sort, however much it is.
    async fn walks_order(self, filter: &ManagedFilter, order: ManagedOrder) -> Result<bool, StoreError> {
        if self.0.is_postgres() || order == ManagedOrder::Expiry {
            return Ok(false);
        }
        // What is found by one index alone.
        let equal = ManagedFilter {
            name: None,
            tag: None,
            expires_before_us: None,
            expires_from_us: None,
            contains: None,
            suffix: None,
            within: None,
            ..filter.clone()
        };
        if equal == ManagedFilter::default() || filter.name.is_some() {
            return Ok(false);
        }
        let (text, parameters) = matches(&equal);
        let found = self.0.row(&text, parameters).await?;
        Ok(found.map_or(Ok(0), |mut row| row.int())? > SORTED_MAX)
    }
}

/// How many match, counted a little past [`SORTED_MAX`].
fn matches(filter: &ManagedFilter) -> (String, Vec<Value>) {
    let mut conditions = Conditions::of(filter);
    let limit = conditions.bind((SORTED_MAX + 1).into());
    let text = format!(
        "-- managed_matches\nSELECT count(*) FROM (SELECT 1 FROM managed_certificates {}LIMIT {limit}) x",
        conditions.clause()
    );
    (text, conditions.parameters)
}

/// The certificates that a filter matches, with a number above `after`, in the order of their numbers, at most `limit`.
///
/// # Errors
/// Those of the database.
#[crate::boxed]
pub async fn managed_selected(
    tx: &mut Tx,
    filter: &ManagedFilter,
    after: i64,
    limit: i64,
) -> Result<Vec<ManagedRow>, StoreError> {
    let (text, parameters) = rows_statement(filter, after, limit);
    tx.rows(&text, parameters).await?.into_iter().map(|mut row| managed_row(&mut row)).collect()
}

/// Each condition alone in each order, and all together.
pub(crate) fn composed() -> Vec<String> {
    let mut all = Vec::new();
    for filter in samples() {
        for order in [ManagedOrder::Expiry, ManagedOrder::Name, ManagedOrder::Created] {
            all.push(statement(&filter, order, None, 1, "").0);
            all.push(statement(&filter, order, Some(order.shape()), 1, "").0);
        }
        all.push(rows_statement(&filter, 0, 1).0);
        all.push(matches(&filter).0);
    }
    all
}

fn samples() -> Vec<ManagedFilter> {
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
        suffix: text(),
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
        full,
    ]
}

/// The statements whose plans a test looks at, with the parameters of a question that matches little.
#[doc(hidden)]
pub(crate) fn plans() -> Vec<(String, Vec<Value>)> {
    let mut all = Vec::new();
    for filter in samples() {
        for order in [ManagedOrder::Expiry, ManagedOrder::Name, ManagedOrder::Created] {
            all.push(statement(&filter, order, None, 21, ""));
        }
    }
    all
}

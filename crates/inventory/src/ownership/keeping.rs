//! Stores the rules: creates, changes and deletes them, with an audit trail.

use futures_util::FutureExt;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use store::{AuditEvent, Clock, Cursor, Page, Store, StoreError, audit};
use uuid::Uuid;

use super::assignment::Assignment;
use super::conditions::{Conditions, RuleConditions};
use super::error::BadRule;
use super::rule::{Rule, Rules};
use super::tagged::TagKeys;
use crate::tables;
use crate::tables::ownership::{
    OWNERSHIP_RULES_MAX, OwnershipInsertion, OwnershipRow, OwnershipSettings, delete_ownership_rule,
    insert_ownership_rule, last_ownership_position, update_ownership_rule,
};

/// Maximum characters of a rule name.
pub const NAME_MAX: usize = 64;
/// Maximum position. It leaves room to place rules between others.
pub const POSITION_MAX: u32 = 1_000_000;
/// Distance between the last rule and a new one without a position, so that other rules fit between them.
const POSITION_STEP: u32 = 10;
/// Reserved name, because it is a path of the API.
const RESERVED: &str = "explain";

/// An ownership rule to create, or the new settings of an existing rule.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NewRule {
    /// Unique name: ASCII letters, digits, `.`, `_` and `-`, at most [`NAME_MAX`].
    pub name: String,
    /// Position among the rules, at most [`POSITION_MAX`], lowest first. `None`: after all others, or unchanged.
    pub position: Option<u32>,
    /// The conditions of the rule; all of them must hold.
    pub when: Conditions,
    /// The owner, team and environment that the rule assigns.
    pub assign: Assignment,
    /// Values that are taken from tags.
    pub from_tags: TagKeys,
}

/// An ownership rule as stored, with its revision and times.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RuleRecord {
    /// The name, position, conditions and assigned values of the rule.
    pub rule: Rule,
    /// Number of the rule's version. Changes with every update.
    pub revision: i64,
    /// Creation time, µs since 1970-01-01 UTC.
    pub created_at_us: i64,
    /// Time of the last change, µs since 1970-01-01 UTC.
    pub updated_at_us: i64,
}

/// Reason why a request about ownership rules failed.
#[derive(Debug, thiserror::Error)]
pub enum OwnershipError {
    /// A database error.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The request is invalid. Caller: correct the named value.
    #[error("{0}")]
    Invalid(String),
    /// The rule does not exist.
    #[error("there is no ownership rule {0}")]
    Unknown(String),
    /// Another rule has the name. Caller: choose another name.
    #[error("another ownership rule is called {0}")]
    Taken(String),
    /// There are too many rules. Operator: remove some, or merge several with wider patterns.
    #[error("there are {OWNERSHIP_RULES_MAX} ownership rules already: remove or combine some")]
    Full,
    /// Another request changed the rule first. Caller: read it again.
    #[error("another request changed the ownership rule: read it again")]
    Changed,
}

impl From<BadRule> for OwnershipError {
    fn from(error: BadRule) -> Self {
        Self::Invalid(error.to_string())
    }
}

/// The part of a rule that is stored as JSON.
#[derive(Deserialize, Serialize)]
struct Body {
    when: RuleConditions,
    assign: Assignment,
    #[serde(default, skip_serializing_if = "TagKeys::is_empty")]
    from_tags: TagKeys,
}

/// Access to the stored rules of a cluster. Cheap to clone.
#[derive(Clone)]
pub struct Ownership {
    store: Store,
    clock: Clock,
}

impl Rules {
    /// Reads all ownership rules with one statement.
    ///
    /// # Errors
    /// Database errors.
    #[crate::boxed]
    pub async fn read(store: &Store) -> Result<Self, StoreError> {
        let page = tables::Ownership::of(store).rules(None, OWNERSHIP_RULES_MAX).await?;
        let rules = page.rows.into_iter().map(|row| record_of(row).map(|record| record.rule));
        Ok(Self::new(rules.collect::<Result<_, _>>()?))
    }
}

impl Ownership {
    /// Creates the access to the rules in `store`.
    #[must_use]
    pub fn new(store: Store, clock: Clock) -> Self {
        Self { store, clock }
    }

    /// Reads all rules, for matching.
    ///
    /// # Errors
    /// Database errors.
    #[crate::boxed]
    pub async fn rules(&self) -> Result<Rules, OwnershipError> {
        Ok(Rules::read(&self.store).await?)
    }

    /// Returns a page of the rules, in their order.
    ///
    /// # Errors
    /// Database errors; a cursor of another listing.
    #[crate::boxed]
    pub async fn list(
        &self,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<RuleRecord>, OwnershipError> {
        let page = tables::Ownership::of(&self.store).rules(after, limit).await?;
        let rows = page.rows.into_iter().map(record_of).collect::<Result<_, _>>()?;
        Ok(Page { rows, next: page.next })
    }

    /// Returns a rule by its id or name.
    ///
    /// # Errors
    /// [`OwnershipError::Unknown`]; database errors.
    #[crate::boxed]
    pub async fn get(&self, named: &str) -> Result<RuleRecord, OwnershipError> {
        let found = match named.parse::<Uuid>() {
            Ok(id) => tables::Ownership::of(&self.store).rule(id).await?,
            Err(_) => tables::Ownership::of(&self.store).rule_named(named).await?,
        };
        Ok(record_of(found.ok_or_else(|| OwnershipError::Unknown(named.to_owned()))?)?)
    }

    /// Creates a rule, after all others if it has no position.
    ///
    /// # Errors
    /// [`OwnershipError::Invalid`], [`OwnershipError::Taken`], [`OwnershipError::Full`]; database errors.
    #[crate::boxed]
    pub async fn create(&self, new: &NewRule, actor: &str) -> Result<RuleRecord, OwnershipError> {
        let body = checked(new)?;
        let (id, at_us) = (Uuid::now_v7(), self.clock.now_us());
        let mut event = self.event(actor, "ownership_rule.create", id, json!({"name": new.name}));
        let (name, position) = (new.name.clone(), new.position);
        let inserted = self.store.write("ownership_rule_create", move |tx| {
            async move {
                let position = match position {
                    Some(position) => position,
                    None => (last_ownership_position(tx).await? + POSITION_STEP).min(POSITION_MAX),
                };
                event.details = details(&name, position, &body);
                let settings = OwnershipSettings { name, position, body: json!(body).to_string() };
                let inserted = insert_ownership_rule(tx, id, &settings, at_us).await?;
                if inserted == OwnershipInsertion::Made {
                    audit(tx, vec![event]).await?;
                }
                Ok(inserted)
            }
            .boxed()
        });
        match inserted.await? {
            OwnershipInsertion::Made => self.get(&id.to_string()).await,
            OwnershipInsertion::Taken => Err(OwnershipError::Taken(new.name.clone())),
            OwnershipInsertion::Full => Err(OwnershipError::Full),
        }
    }

    /// Changes a rule, unless it changed since it was read.
    ///
    /// # Errors
    /// [`OwnershipError::Invalid`], [`OwnershipError::Taken`], [`OwnershipError::Changed`]; database errors.
    #[crate::boxed]
    pub async fn update(
        &self,
        read: &RuleRecord,
        new: &NewRule,
        actor: &str,
    ) -> Result<RuleRecord, OwnershipError> {
        let body = checked(new)?;
        let (id, revision, at_us) = (read.rule.id, read.revision, self.clock.now_us());
        let position = new.position.unwrap_or(read.rule.position);
        let event = self.event(actor, "ownership_rule.update", id, details(&new.name, position, &body));
        let settings = OwnershipSettings { name: new.name.clone(), position, body: json!(body).to_string() };
        let changed = self.store.write("ownership_rule_update", move |tx| {
            async move {
                let changed = update_ownership_rule(tx, id, revision, &settings, at_us).await?;
                if changed {
                    audit(tx, vec![event]).await?;
                }
                Ok(changed)
            }
            .boxed()
        });
        match changed.await {
            Ok(true) => self.get(&id.to_string()).await,
            Ok(false) => Err(OwnershipError::Changed),
            Err(StoreError::Conflict { .. }) => Err(OwnershipError::Taken(new.name.clone())),
            Err(error) => Err(error.into()),
        }
    }

    /// Deletes a rule. Its past assignments stay on claimed certificates and in sent alerts.
    ///
    /// # Errors
    /// [`OwnershipError::Unknown`]; database errors.
    #[crate::boxed]
    pub async fn delete(&self, read: &RuleRecord, actor: &str) -> Result<(), OwnershipError> {
        let (id, at_us) = (read.rule.id, self.clock.now_us());
        let event = self.event(actor, "ownership_rule.delete", id, json!({"name": read.rule.name}));
        let deleted = self.store.write("ownership_rule_delete", move |tx| {
            async move {
                let deleted = delete_ownership_rule(tx, id, at_us).await?;
                if deleted {
                    audit(tx, vec![event]).await?;
                }
                Ok(deleted)
            }
            .boxed()
        });
        if deleted.await? { Ok(()) } else { Err(OwnershipError::Unknown(read.rule.name.clone())) }
    }

    fn event(&self, actor: &str, action: &'static str, id: Uuid, details: Value) -> AuditEvent {
        AuditEvent {
            at_us: self.clock.now_us(),
            actor: actor.to_owned(),
            action,
            resource: format!("ownership_rule/{id}"),
            details,
        }
    }
}

fn details(name: &str, position: u32, body: &Body) -> Value {
    json!({"name": name, "position": position, "when": body.when, "assign": body.assign,
        "from_tags": body.from_tags})
}

fn checked(new: &NewRule) -> Result<Body, OwnershipError> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    let name = &new.name;
    let good = (1..=NAME_MAX).contains(&name.len()) && name.bytes().all(plain);
    if !good || name == RESERVED || name.parse::<Uuid>().is_ok() {
        return Err(OwnershipError::Invalid(format!(
            "a name must have 1 to {NAME_MAX} letters, digits, '.', '_' or '-', and must be neither a UUID nor {RESERVED:?}"
        )));
    }
    if new.position.is_some_and(|position| position > POSITION_MAX) {
        return Err(OwnershipError::Invalid(format!("the maximum position is {POSITION_MAX}")));
    }
    new.assign.check_texts()?;
    new.from_tags.check()?;
    if new.from_tags.is_empty() {
        new.assign.check()?;
    }
    Ok(Body {
        when: RuleConditions::parse(&new.when)?,
        assign: new.assign.clone(),
        from_tags: new.from_tags.clone(),
    })
}

fn record_of(row: OwnershipRow) -> Result<RuleRecord, StoreError> {
    let OwnershipSettings { name, position, body } = row.settings;
    let body: Body = serde_json::from_str(&body)
        .map_err(|error| StoreError::Corrupt(format!("the ownership rule {name}: {error}")))?;
    Ok(RuleRecord {
        rule: Rule {
            id: row.id,
            name,
            position,
            when: body.when,
            assign: body.assign,
            from_tags: body.from_tags,
        },
        revision: row.revision,
        created_at_us: row.created_at_us,
        updated_at_us: row.updated_at_us,
    })
}

//! Operations on owners and teams.

use authority::tables::{OwnedRow, put_team};
use authority::teams::{OwnedKind, Owns, Quota};
use futures_util::FutureExt;
use serde_json::json;
use store::{Cursor, Page};
use uuid::Uuid;

use crate::error::{DataError, Missing, NameTaken, RemoveError, Stale, from_data};
use crate::handle::Lifecycle;
use crate::ledger::{Ledger, transaction};
use crate::managed::json as json_text;
use crate::people::{BadPerson, Person};
use crate::tables;
use crate::tables::people::{
    PeopleKind, delete_person, insert_person, person_user, team_revision, update_person,
};
use crate::tables::policies::NamedDocument;

/// An owner or team with its name, revision and timestamps.
#[derive(Clone, Debug, PartialEq)]
pub struct PersonRecord {
    /// Name of the owner or team.
    pub name: String,
    /// Description, contacts, team, owned objects and quota of the owner or team.
    pub person: Person,
    /// Revision, incremented with every change.
    pub revision: i64,
    /// Creation time, in µs since 1970.
    pub created_at_us: i64,
    /// Time of the last change, in µs since 1970.
    pub updated_at_us: i64,
}

impl PersonRecord {
    fn of(document: NamedDocument) -> Result<Self, DataError> {
        let person = serde_json::from_str(&document.body)
            .map_err(|error| DataError::Unreadable(format!("{}: {error}", document.name)))?;
        let NamedDocument { name, revision, created_at_us, updated_at_us, .. } = document;
        Ok(Self { name, person, revision, created_at_us, updated_at_us })
    }
}

fn with_article(kind: PeopleKind) -> &'static str {
    match kind {
        PeopleKind::Owner => "an owner",
        PeopleKind::Team => "a team",
    }
}

/// Reason why the owner or team was not stored.
#[derive(Clone, Debug, thiserror::Error)]
pub enum PersonChangeError {
    /// The owner or team is invalid.
    #[error(transparent)]
    Bad(#[from] BadPerson),
    /// The request names an object that does not exist.
    #[error(transparent)]
    Missing(#[from] Missing),
    /// The name is already in use.
    #[error(transparent)]
    Taken(#[from] NameTaken),
    /// Another team already owns one of the objects.
    #[error("the {kind} {object:?} already belongs to the team {team:?}: remove it from that team first")]
    Owned {
        /// Kind of the object.
        kind: OwnedKind,
        /// Name of the object.
        object: String,
        /// Team that owns the object.
        team: String,
    },
    /// The object was changed after the caller read it.
    #[error(transparent)]
    Stale(#[from] Stale),
    /// Stored data is missing or cannot be read.
    #[error(transparent)]
    Data(#[from] DataError),
}

from_data!(PersonChangeError);

/// Result of storing an owner or team.
enum PutResult {
    Done,
    /// The owner or team was not stored: the revision differs, or the name is in use.
    NotDone,
    /// Another team owns this object.
    Owned(OwnedRow),
}

/// Returns whether the team has the expected revision. Its owned objects are changed in the same transaction.
async fn unchanged(tx: &mut store::Tx, name: &str, expected: Option<i64>) -> Result<bool, store::StoreError> {
    Ok(team_revision(tx, name).await? == expected)
}

/// Result of deleting an object.
pub(super) enum Deletion {
    Done,
    Used(Uuid),
    Missing,
}

impl Lifecycle {
    /// Returns an owner or team by its name.
    ///
    /// # Errors
    /// [`DataError::NotFound`], and database errors.
    #[crate::boxed]
    pub async fn person(&self, kind: PeopleKind, name: &str) -> Result<PersonRecord, DataError> {
        let found = tables::People::of(&self.inner.store).get(kind, name).await?;
        PersonRecord::of(found.ok_or_else(|| DataError::not_found(kind.name(), name))?)
    }

    /// Returns a page of owners or teams, sorted by name.
    ///
    /// # Errors
    /// [`store::StoreError::BadCursor`] for an invalid cursor, and other database errors.
    #[crate::boxed]
    pub async fn people(
        &self,
        kind: PeopleKind,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<PersonRecord>, DataError> {
        let page = tables::People::of(&self.inner.store).page(kind, after, limit).await?;
        let rows = page.rows.into_iter().map(PersonRecord::of).collect::<Result<_, _>>()?;
        Ok(Page { rows, next: page.next })
    }

    /// Creates or replaces an owner or team. `revision` is the revision that the caller read, `None` for a new object.
    ///
    /// # Errors
    /// [`PersonChangeError::Taken`], [`PersonChangeError::Stale`], [`PersonChangeError::Missing`] if the team of an owner does not
    /// exist; [`PersonChangeError::Bad`].
    #[crate::boxed]
    pub async fn put_person(
        &self,
        kind: PeopleKind,
        name: &str,
        person: &Person,
        revision: Option<i64>,
        actor: &str,
    ) -> Result<PersonRecord, PersonChangeError> {
        person.check(kind, name)?;
        if let Some(team) = &person.team
            && tables::People::of(&self.inner.store).get(PeopleKind::Team, team).await?.is_none()
        {
            return Err(Missing { what: "team", name: team.clone() }.into());
        }
        let (now_us, body) = (self.now_us(), json_text(person));
        let (word, article) = (kind.name(), with_article(kind));
        let mut ledger = Ledger::new(now_us, actor);
        let action = match (kind, revision.is_some()) {
            (PeopleKind::Owner, false) => "owner.create",
            (PeopleKind::Owner, true) => "owner.update",
            (PeopleKind::Team, false) => "team.create",
            (PeopleKind::Team, true) => "team.update",
        };
        let details = if person.owns.is_empty() && person.quota.is_none() {
            json!({})
        } else {
            json!({ "owns": person.owns, "quota": person.quota })
        };
        ledger.audit_resource(format!("{word}/{name}"), action, details);
        let key = name.to_owned();
        let (owns, quota) = (person.owns.clone(), person.quota);
        let work = transaction(move |tx| {
            async move {
                let revision_checked = kind == PeopleKind::Team && unchanged(tx, &key, revision).await?;
                if revision_checked && let Some(taken) = put_team(tx, &key, &owns, quota, now_us).await? {
                    return Ok(PutResult::Owned(taken));
                }
                let done = match revision {
                    None => insert_person(tx, kind, &key, &body, now_us).await?,
                    Some(revision) => update_person(tx, kind, &key, &body, now_us, revision).await?,
                };
                if !done && revision_checked {
                    // The objects are already written: the error rolls the transaction back.
                    return Err(store::StoreError::Stale(
                        "the team was changed by another request".to_owned(),
                    ));
                }
                if !done {
                    return Ok(PutResult::NotDone);
                }
                ledger.write(tx).await?;
                Ok(PutResult::Done)
            }
            .boxed()
        });
        let put = self.inner.store.write("person_put", work).await?;
        self.inner.teams.forget();
        match put {
            PutResult::Done => return Ok(self.person(kind, name).await?),
            PutResult::Owned(OwnedRow { kind, object, team, .. }) => {
                return Err(PersonChangeError::Owned { kind, object, team });
            }
            PutResult::NotDone => {}
        }
        match revision {
            None => Err(NameTaken { what: article, name: name.to_owned() }.into()),
            Some(_) => Err(Stale { revision: self.person(kind, name).await?.revision }.into()),
        }
    }

    /// Deletes an owner or team that no certificate names.
    ///
    /// # Errors
    /// [`RemoveError::InUse`], [`DataError::NotFound`], and database errors.
    #[crate::boxed]
    pub async fn delete_person(&self, kind: PeopleKind, name: &str, actor: &str) -> Result<(), RemoveError> {
        let (word, now_us) = (kind.name(), self.now_us());
        let mut ledger = Ledger::new(now_us, actor);
        let action = if kind == PeopleKind::Owner { "owner.delete" } else { "team.delete" };
        ledger.audit_resource(format!("{word}/{name}"), action, json!({}));
        let key = name.to_owned();
        let work = transaction(move |tx| {
            async move {
                if let Some(user) = person_user(tx, kind, &key).await? {
                    return Ok(Deletion::Used(user));
                }
                if !delete_person(tx, kind, &key).await? {
                    return Ok(Deletion::Missing);
                }
                if kind == PeopleKind::Team {
                    put_team(tx, &key, &Owns::default(), Quota::default(), now_us).await?;
                }
                ledger.write(tx).await?;
                Ok(Deletion::Done)
            }
            .boxed()
        });
        let deleted = self.inner.store.write("person_delete", work).await?;
        self.inner.teams.forget();
        match deleted {
            Deletion::Used(by) => Err(RemoveError::InUse { what: word, name: name.to_owned(), by }),
            Deletion::Missing => Err(DataError::not_found(word, name).into()),
            Deletion::Done => Ok(()),
        }
    }
}

//! Storage of the marks of principals, that is, further identifiers of an actor. Marks are kept after the identity is deleted, so
//! that a person who deletes a token cannot appear as another person.

use std::collections::BTreeSet;

use db::{BulkStatement, Column, StoreError, Tx};

use crate::principal::Principal;

const NOTE: BulkStatement = db::bulk! { (actor text, mark text)
    "-- principals_note
INSERT INTO principals (actor, mark) VALUES (:actor, :mark) ON CONFLICT DO NOTHING"
};
const OF: BulkStatement = db::bulk! { (actor text)
    "-- principals_of
SELECT mark FROM principals WHERE actor = :actor"
};

pub(crate) const BULKS: &[&BulkStatement] = &[&NOTE, &OF];

/// Stores the identifiers of a principal (owner of a token, email address and others), so that they stay known after the identity
/// is deleted.
///
/// # Errors
/// Fails if the database fails.
#[crate::boxed]
pub async fn store_principal_marks(tx: &mut Tx, principal: &Principal) -> Result<(), StoreError> {
    let marks: Vec<String> = principal.marks().map(str::to_owned).collect();
    let actors = vec![principal.actor().to_owned(); marks.len()];
    tx.bulk(&NOTE, vec![Column::Text(actors), Column::Text(marks)]).await.map(drop)
}

/// Returns all marks of these actors, including their own names, and transitively the marks of these marks. For example, a token
/// leads to its owner, and the owner to an email address.
///
/// # Errors
/// Fails if the database fails.
#[crate::boxed]
pub async fn marks_of(tx: &mut Tx, actors: Vec<String>) -> Result<BTreeSet<String>, StoreError> {
    let mut marks: BTreeSet<String> = actors.iter().cloned().collect();
    let mut next = actors;
    while !next.is_empty() {
        for mut row in tx.bulk(&OF, vec![Column::Text(std::mem::take(&mut next))]).await? {
            let mark = row.text()?;
            if marks.insert(mark.clone()) {
                next.push(mark);
            }
        }
    }
    Ok(marks)
}

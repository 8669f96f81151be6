//! Marks of principals: by what else an actor is known. They are kept when the identity goes, so that nobody becomes another
//! person by removing a token.

use std::collections::BTreeSet;

use db::{Bulk, Column, StoreError, Tx};

use crate::principal::Principal;

const NOTE: Bulk = db::bulk! { (actor text, mark text)
    "-- principals_note
INSERT INTO principals (actor, mark) VALUES (:actor, :mark) ON CONFLICT DO NOTHING"
};
const OF: Bulk = db::bulk! { (actor text)
    "-- principals_of
SELECT mark FROM principals WHERE actor = :actor"
};

pub(crate) const BULKS: &[&Bulk] = &[&NOTE, &OF];

/// Notes the marks of a principal.
///
/// # Errors
/// Those of the database.
#[crate::boxed]
pub async fn note_principal(tx: &mut Tx, principal: &Principal) -> Result<(), StoreError> {
    let marks: Vec<String> = principal.marks().map(str::to_owned).collect();
    let actors = vec![principal.actor().to_owned(); marks.len()];
    tx.bulk(&NOTE, vec![Column::Text(actors), Column::Text(marks)]).await.map(drop)
}

/// Every mark of these actors, their own names among them, and the marks of those marks: a token is its owner, and the owner has an
/// address.
///
/// # Errors
/// Those of the database.
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

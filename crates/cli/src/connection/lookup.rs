//! Finds objects by id or name, because the API only takes ids.

use api::listing::PageQuery;
use serde::Deserialize;
use uuid::Uuid;

use super::Client;
use super::listing::PAGE_ROWS;
use crate::exit::{Exit, Outcome, Problem};

/// The id and name of an object in a listing.
#[derive(Deserialize)]
struct Named {
    id: Uuid,
    name: String,
}

/// Returns the path of the object in the listing `path` with the id or name `given`. `what` is the noun for errors, such as `token`.
///
/// # Errors
/// The server does not respond, or the name matches no object or several objects.
pub async fn path_of(client: &Client, path: &str, what: &str, given: &str) -> Outcome<String> {
    let id = match given.parse() {
        Ok(id) => id,
        Err(_) => id_of(client, path, what, given).await?,
    };
    Ok(format!("{path}/{id}"))
}

/// Returns the id of the object in the listing `path` with the name `given`.
async fn id_of(client: &Client, path: &str, what: &str, given: &str) -> Outcome<Uuid> {
    let (mut found, mut cursor) = (Vec::new(), None);
    loop {
        let page = PageQuery { limit: Some(PAGE_ROWS), cursor, fields: None };
        let listing: api::listing::Listing<Named> = client.fetch(path, &page.of(&())).await?;
        found.extend(listing.items.into_iter().filter(|one| one.name == given).map(|one| one.id));
        cursor = listing.next;
        if cursor.is_none() {
            return only(&found, what, given);
        }
    }
}

fn only(found: &[Uuid], what: &str, given: &str) -> Outcome<Uuid> {
    match found {
        [id] => Ok(*id),
        [] => Err(Problem::new(Exit::Refused, format_args!("unknown {what} {given:?}"))
            .hint("the command `list` shows names and IDs")),
        several => {
            let ids: Vec<String> = several.iter().map(Uuid::to_string).collect();
            Err(Problem::usage(format_args!("{} objects have the name {given:?}", several.len()))
                .hint(format!("give the ID of one {what}: {}", ids.join(", "))))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_or_ambiguous_name_is_rejected() {
        let (one, other) = (Uuid::from_u128(1), Uuid::from_u128(2));
        assert_eq!(only(&[one], "token", "ci").unwrap(), one);
        assert!(only(&[], "token", "ci").unwrap_err().message.contains("unknown token \"ci\""));
        assert!(only(&[one, other], "token", "ci").unwrap_err().message.contains("2 objects have the name"));
    }
}

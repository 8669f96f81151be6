//! The tree of names: the names directly below a path, or all names that contain a text.

use std::collections::BTreeMap;

use askama::Template;
use axum::Router;
use axum::extract::RawQuery;
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use http::StatusCode;
use serde_json::Value;

use super::one::{PAGE, href};
use crate::api::Api;
use crate::cell::Cell;
use crate::failure::Failure;
use crate::json;
use crate::query::parameter;
use crate::session::Session;
use crate::shell::Page;
use crate::table::Table;

/// Maximum rows of a page. To select fewer rows, users enter a longer path or a search text.
const ROWS_MAX: usize = 500;

pub(super) fn routes() -> Router<Api> {
    // The second path is the API path of a credential, to which search results link.
    Router::new().route(PAGE, get(page)).route("/console/data", get(redirect_to_page))
}

#[derive(Template)]
#[template(path = "credentials.html")]
struct Tree {
    path: String,
    contains: String,
    crumbs: Vec<(String, String)>,
    folders: Table,
    credentials: Table,
    cut: bool,
    below: usize,
}

/// The folders and credentials directly below a path.
#[derive(Debug, Default, PartialEq)]
struct Level<'a> {
    /// Folders by name in lower case: the name as written, and the number of credentials below it.
    folders: BTreeMap<String, (&'a str, usize)>,
    /// Credentials: the name, and the time of the newest version.
    credentials: Vec<(&'a str, &'a str)>,
}

async fn redirect_to_page(RawQuery(query): RawQuery) -> Response {
    Redirect::to(&href(&parameter::<String>(query.as_deref(), "name"))).into_response()
}

/// Returns a path with leading and trailing slash: `/` or `/team/`.
fn folder(path: &str) -> String {
    let inner = path.trim().trim_matches('/');
    if inner.is_empty() { "/".to_owned() } else { format!("/{inner}/") }
}

fn folder_href(path: &str) -> String {
    format!("{PAGE}?path={}", api::path::segment(path))
}

/// Returns the parts of a path, each with the path to it, starting with the root.
fn crumbs(path: &str) -> Vec<(String, String)> {
    let mut all = vec![("All".to_owned(), folder_href("/"))];
    let mut so_far = "/".to_owned();
    for part in path.split('/').filter(|part| !part.is_empty()) {
        so_far = format!("{so_far}{part}/");
        all.push((part.to_owned(), folder_href(&so_far)));
    }
    all
}

impl<'a> Level<'a> {
    /// Returns the level of a path (with leading and trailing slash) from a search result. Names are compared without case.
    fn of(found: &'a Value, path: &str) -> Self {
        let mut level = Self::default();
        for credential in json::list(found, "/credentials") {
            let (name, at) = (json::text(credential, "/name"), json::text(credential, "/version_created_at"));
            let Some((begin, rest)) = name.split_at_checked(path.len()) else { continue };
            if !begin.eq_ignore_ascii_case(path) {
                continue;
            }
            match rest.split_once('/') {
                Some((part, _)) => {
                    level.folders.entry(part.to_ascii_lowercase()).or_insert((part, 0)).1 += 1;
                }
                None => level.credentials.push((name, at)),
            }
        }
        level.credentials.sort_unstable();
        level
    }
}

async fn page(session: Session, RawQuery(query): RawQuery) -> Result<Response, Failure> {
    let of = |name| parameter::<String>(query.as_deref(), name);
    let (path, contains) = (folder(&of("path")), of("contains").trim().to_owned());
    let filters = match contains.is_empty() {
        true => format!("path={}", api::path::segment(&path)),
        false => format!("name-like={}", api::path::segment(&contains)),
    };
    let found =
        session.api.credential_store()?.get(&format!("/api/v1/data?{filters}")).await.map_err(too_many)?;
    let level = match contains.is_empty() {
        true => Level::of(&found, &path),
        false => Level { credentials: matching(&found), ..Level::default() },
    };
    let body = Tree {
        crumbs: crumbs(&path),
        cut: level.folders.len().max(level.credentials.len()) > ROWS_MAX,
        below: json::list(&found, "/credentials").len(),
        folders: folders(&level, &path),
        credentials: credentials(&session, &level).filtered(&filters).exported("credentials"),
        path,
        contains,
    };
    let command = match body.contains.is_empty() {
        true => format!("bulla credential find --path {}", body.path),
        false => format!("bulla credential find --like {}", body.contains),
    };
    Page::new(&session, "Credentials").command(command).show(&body)
}

fn matching(found: &Value) -> Vec<(&str, &str)> {
    let all = json::list(found, "/credentials").iter();
    all.map(|one| (json::text(one, "/name"), json::text(one, "/version_created_at"))).collect()
}

/// Returns the error for a response that is too long for a page.
fn too_many(failure: Failure) -> Failure {
    match failure {
        Failure::Unreadable(_) => Failure::refused(
            StatusCode::UNPROCESSABLE_ENTITY,
            "There are too many credentials below this path for one page.",
            "open a longer path, or search for a part of the name",
        ),
        other => other,
    }
}

fn folders(level: &Level<'_>, path: &str) -> Table {
    let rows = level.folders.values().take(ROWS_MAX).map(|(name, count)| {
        let count = i64::try_from(*count).unwrap_or(i64::MAX);
        vec![Cell::link(folder_href(&format!("{path}{name}/")), format!("{name}/")), Cell::number(count)]
    });
    Table::new("Folders", &["Folder", "Credentials below"], rows)
}

fn credentials(session: &Session, level: &Level<'_>) -> Table {
    let rows = level.credentials.iter().take(ROWS_MAX);
    let rows = rows.map(|(name, at)| vec![Cell::link(href(name), *name), Cell::time(at, session.now)]);
    Table::new("Credentials", &["Name", "Newest version"], rows)
        .empty("No credential here that you may read. Set or generate one, or open another folder.")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn found(names: &[&str]) -> Value {
        let all: Vec<Value> =
            names.iter().map(|name| json!({ "name": name, "version_created_at": "t" })).collect();
        json!({ "credentials": all })
    }

    #[test]
    fn tree_level_lists_folders_and_direct_credentials() {
        let found = found(&["/team/a/x", "/Team/A/y", "/team/b", "/team/c/d/e", "/teams/x"]);
        let level = Level::of(&found, "/team/");
        let folders: Vec<(&str, usize)> = level.folders.values().copied().collect();
        assert_eq!(folders, [("a", 2), ("c", 1)]);
        assert_eq!(level.credentials, [("/team/b", "t")]);
        let top = Level::of(&found, "/");
        assert_eq!(top.folders.keys().collect::<Vec<_>>(), ["team", "teams"]);
        assert_eq!(Level::of(&found, "/nothing/"), Level::default());
    }

    #[test]
    fn credential_paths_are_normalized_and_split_into_breadcrumbs() {
        for (given, path) in [("", "/"), ("/", "/"), ("a", "/a/"), ("//a/b", "/a/b/"), (" /a/ ", "/a/")] {
            assert_eq!(folder(given), path);
        }
        let parts: Vec<String> = crumbs("/a/b&c/").into_iter().map(|(part, _)| part).collect();
        assert_eq!(parts, ["All", "a", "b&c"]);
        assert_eq!(crumbs("/a/b&c/")[2].1, "/console/credentials?path=%2Fa%2Fb%26c%2F");
    }
}

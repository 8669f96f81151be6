//! Compares the kinds of problem documents in the server with `docs/reference/errors.md`.

use std::collections::BTreeSet;

use crate::{files_below, read, root};

/// Returns the kinds in a source file: `Problem::new(StatusCode::X, "kind", …)`, `unprocessable("kind", …)`, and
/// `StatusCode::X => ("kind", "Title")`.
fn kinds(source: &str) -> BTreeSet<String> {
    let text = source.split("#[cfg(test)]").next().unwrap_or_default();
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let after = |form| text.split(form).skip(1).map(str::trim_start);
    let created = after("::new(").filter_map(|rest| {
        let (status, rest) = rest.trim_start_matches("http::").split_once(", ")?;
        (status == "status" || status.starts_with("StatusCode::")).then_some(rest)
    });
    // The function that names the problems of statuses.
    let statuses = text.split_once("fn of_status(").map_or("", |(_, rest)| rest);
    let of_a_status = statuses.split("=> (").skip(1);
    let literals = created.chain(of_a_status).chain(after("unprocessable("));
    let kinds = literals.filter_map(|rest| rest.strip_prefix('"')?.split('"').next());
    let is_kind =
        |kind: &&str| !kind.is_empty() && kind.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-');
    kinds.filter(is_kind).map(str::to_owned).collect()
}

#[test]
fn problem_types_are_documented() {
    let sources = files_below(&root().join("crates/server/src"), &["rs"]);
    let used: BTreeSet<String> = sources
        .iter()
        .map(|file| read(file))
        .filter(|text| text.contains("Problem"))
        .flat_map(|text| kinds(&text))
        .collect();
    let page = read(&root().join("docs/reference/errors.md"));
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let documented: BTreeSet<String> = rows.map(str::to_owned).collect();
    assert!(used.len() > 20, "the rule sees only {used:?}");
    let missing: Vec<_> = used.difference(&documented).collect();
    let unused: Vec<_> = documented.difference(&used).collect();
    assert!(
        missing.is_empty() && unused.is_empty(),
        "docs/reference/errors.md lacks {missing:?} and has {unused:?}"
    );
}

/// The check above is only useful if it sees the kinds.
#[test]
fn kinds_are_found_in_every_form() {
    let source = r#"
        match error { Error::Other => ("no-kind", "Title") }
        Problem::new(StatusCode::CONFLICT, "in-one-line", "Title").detail("a-detail");
        unprocessable("of-issuance", &error).with("member", "value");
        Self::new(
            http::StatusCode::NOT_FOUND,
            "in-several", "Title");
        fn of_status(status: StatusCode) { match status { StatusCode::OK => ("of-status", "Title") } }
        #[cfg(test)] Problem::new(StatusCode::OK, "of-a-test", "Title");"#;
    let found: Vec<String> = kinds(source).into_iter().collect();
    assert_eq!(found, ["in-one-line", "in-several", "of-issuance", "of-status"]);
}

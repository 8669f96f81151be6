//! The authorization matrix: every operation of every listener, by role and scope, on objects of the caller's team and of another
//! team. It is generated from the routing tables, so an operation without a row fails the test. The result is
//! `docs/internals/authorisation.md`; `BULLA_WRITE_MATRIX=1 cargo test -p server --test all matrix` writes it.

mod api;
mod console;
mod credential_pages;
mod credentials;
mod protocols;

use std::fmt::Write as _;
use std::path::Path;

/// The outcome of a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Verdict {
    /// The operation was executed, or failed for a reason other than authorization.
    In,
    /// 401 or 403.
    Refused,
    /// The response is the same as for a missing object.
    Hidden,
}

impl Verdict {
    fn of(status: u16) -> Self {
        match status {
            401 | 403 => Self::Refused,
            404 => Self::Hidden,
            _ => Self::In,
        }
    }

    fn is_in(self) -> bool {
        self == Self::In
    }
}

/// Returns a Markdown table.
fn table(title: &str, columns: &[&str], rows: &[Vec<String>]) -> String {
    let mut text =
        format!("## {title}\n\n| {} |\n|{}\n", columns.join(" | "), " --- |".repeat(columns.len()));
    for row in rows {
        writeln!(text, "| {} |", row.join(" | ")).unwrap();
    }
    text.push('\n');
    text
}

const HEAD: &str = "# Who may do what

Every operation of the server's listeners, and the roles that may perform it. The test `matrix` sends each operation with every role and
writes down which requests are allowed. Do not edit this page: `BULLA_WRITE_MATRIX=1 cargo test -p server --test all matrix` writes it, and the
test fails if it differs.

- *holders*: every built-in role that has the permission. *–*: no role. A list names the allowed roles.
- *any*, *team*, *profile*: the scope of the caller's grant. *own*: an object of the same team or profile; *other*: an object of another
  team or profile. An object that the caller may not see is answered like one that does not exist (404).
- *recent sign-in*: a session is refused unless its user signed in within the last 15 minutes. Tokens and client certificates authenticate
  with each request.
- Enrolment requests of devices (`/enrolments`) have no object in this test, so an allowed request is answered 404.
- A role without the permission is refused (403) in every scope. A caller without a valid credential is refused (401) by all operations
  except those for *anybody*.
- *The web console*: a page or action sends its API requests with the caller's credential, so the routes of these requests decide. The test
  records them: each request that the API authorizes needs a permission of the caller's role. A page is listed for each role that may open
  it; a role sees only the parts that the API returns to it. *all*: every built-in role. For a list, *own* and *other* are the objects in it.
  An empty cell: the test server does not run the component of this action.

";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn authorization_matrix_matches_the_documentation() {
    let text = [
        api::table().await,
        console::table().await,
        credentials::table().await,
        credential_pages::table().await,
    ];
    let text = format!("{HEAD}{}{}", text.concat(), protocols::table().await);
    let text = format!("{}\n", text.trim_end());
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/internals/authorisation.md");
    if std::env::var_os("BULLA_WRITE_MATRIX").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    let differing: Vec<String> = {
        let (before, after): (Vec<&str>, Vec<&str>) = (written.lines().collect(), text.lines().collect());
        let removed = before.iter().filter(|line| !after.contains(line)).map(|line| format!("- {line}"));
        let new = after.iter().filter(|line| !before.contains(line)).map(|line| format!("+ {line}"));
        removed.chain(new).collect()
    };
    assert!(
        written == text,
        "docs/internals/authorisation.md is not what the server does. Look at each line, then write it \
         (BULLA_WRITE_MATRIX=1):\n{}",
        differing.join("\n")
    );
}

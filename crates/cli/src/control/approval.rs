//! Approvals of the two-person rule. Each shows the plan that it approves.

use api::approvals::{ApprovalQuery, ApprovalView, PlanChangeView, PlanFieldView};
use clap::Subcommand;
use serde::Serialize;
use serde_json::{Map, Value};

use super::Run;
use super::consent::confirm;
use super::decision::{self, ApproveArgs, RejectArgs, ShowArgs, show_with_plan, values, with_short_hash};
use super::signature::VerifyArgs;
use crate::columns;
use crate::connection::{Client, Columns, Listing, Output, read_as, show_one};
use crate::exit::{Outcome, Problem};
use crate::format::Format;
use crate::terminal::{Colour, clean};

const PATH: &str = "/api/v1/approvals";

/// Commands for approvals by a second person.
#[derive(Debug, Subcommand)]
pub enum ApprovalCommand {
    /// List approvals and their plans, newest first
    List {
        /// State: open, approved, rejected, expired, withdrawn or void
        #[arg(long, value_name = "STATE", default_value = "open")]
        state: String,
        #[command(flatten)]
        listing: Listing,
    },
    /// Show an approval: its plan, the changes since the previous approval, and the people who may not approve it
    Show(ShowArgs),
    /// Approve a plan: the job starts once the profile's required number of people have approved. At a terminal, shows the plan and
    /// asks for confirmation
    Approve(ApproveArgs),
    /// Reject an approval: the job is cancelled
    Reject(RejectArgs),
    /// Verify the signatures of an approval's approvers; with --file without a server
    ///
    /// Checks that the shown plan has the signed SHA-256, and that each security key signed it. --key names the keys of approvers, as
    /// the audit events `user.security-key-add` record them. Exit code 1 when the plan or a signature is wrong.
    Verify(VerifyArgs),
}

impl Run for ApprovalCommand {
    async fn run(&self, client: &Client) -> Outcome<()> {
        match self {
            Self::List { state, listing } => list(client, state, listing).await,
            Self::Show(ShowArgs { id, show }) => {
                show_approval(&client.get(&decision::object(PATH, id), &()).await?, show)
            }
            Self::Approve(args) => {
                args.run(client, PATH, async |path| confirm_plan(client, path).await).await
            }
            Self::Reject(args) => args.run(client, PATH).await,
            Self::Verify(args) => args.run(client, PATH).await,
        }
    }

    fn run_offline(&self) -> Option<Outcome<()>> {
        if let Self::Verify(args) = self { args.run_offline() } else { None }
    }
}

async fn list(client: &Client, state: &str, listing: &Listing) -> Outcome<()> {
    const TABLE: Columns = columns!(
        ApprovalView:
        ("Certificate", name),
        ("Names", plan, "/names"),
        ("Profile", profile),
        ("Issuer", plan, "/issuer"),
        ("Asked by", requested_by),
        ("Ends", expires_at),
        ("State", state),
        ("Approvals", approvals_given),
        ("Of", approvals_needed),
        ("Plan", plan_sha256),
        ("Id", id),
    );
    // New columns are added at the end.
    const CSV: Columns = columns!(
        ApprovalView:
        ("Certificate", name),
        ("Asked by", requested_by),
        ("Asked", requested_at),
        ("Ends", expires_at),
        ("Reason", reason),
        ("State", state),
        ("Id", id),
        ("Plan", plan_sha256),
        ("Names", plan, "/names"),
        ("Key", plan, "/key"),
        ("Profile", profile),
        ("Profile version", plan, "/profile_version"),
        ("Issuer", plan, "/issuer"),
        ("Targets", plan, "/targets"),
        ("Lifetime s", plan, "/lifetime_seconds"),
        ("Cannot approve", barred),
        ("Approvals", approvals_given),
        ("Approvals needed", approvals_needed),
    );
    let query = ApprovalQuery { state: Some(state.to_owned()) };
    match listing.show.output {
        Format::Csv => listing.print_mapped(client, PATH, &query, CSV, plan_fields_as_object).await,
        Format::Wide if listing.show.is_table() => {
            listing.print_mapped(client, PATH, &query, CSV, plan_fields_as_object).await
        }
        Format::Table if listing.show.is_table() => {
            listing.print_mapped(client, PATH, &query, TABLE, to_table_row).await
        }
        _ => listing.print(client, PATH, &query, TABLE).await,
    }
}

/// Converts the list of the plan's fields to one object, so that columns can point at fields.
fn plan_fields_as_object(mut approval: Value) -> Value {
    let Some(Value::Array(plan)) = approval.get_mut("plan").map(Value::take) else { return approval };
    let fields = plan.into_iter().filter_map(|mut field| {
        let name = field.get("name")?.as_str()?.to_owned();
        Some((name, field.get_mut("values")?.take()))
    });
    approval["plan"] = Value::Object(fields.collect::<Map<_, _>>());
    approval
}

/// Like [`plan_fields_as_object`], and shortens the plan's SHA-256.
fn to_table_row(approval: Value) -> Value {
    with_short_hash(plan_fields_as_object(approval))
}

/// Shows the approval at the terminal and asks for confirmation. Returns the SHA-256 of the shown plan.
async fn confirm_plan(client: &Client, path: &str) -> Outcome<String> {
    let document = client.get(path, &()).await?;
    let approval: ApprovalView = read_as(&document)?;
    show_approval(&document, &Output { output: Format::Table, color: Colour::Auto, query: None })?;
    let Some(hash) = approval.plan_sha256 else {
        return Err(Problem::usage(format_args!(
            "the approval {} has no plan, so it cannot be approved",
            approval.id
        )));
    };
    confirm("Approve this plan?")?;
    Ok(hash)
}

/// Prints an approval. In table output the plan is a separate table, which shows the values of the previous approval next to the
/// new ones.
fn show_approval(document: &Value, show: &Output) -> Outcome<()> {
    const PLAN: Columns = columns!(PlanRow: ("Plan", field), ("Value", value));
    const CHANGED: Columns = columns!(PlanRow: ("Plan", field), ("Value", value), ("Before", before));
    if !show.is_table() {
        return show_one(document, show);
    }
    let approval: ApprovalView = read_as(document)?;
    let columns = if approval.changes.is_empty() { PLAN } else { CHANGED };
    show_with_plan(document, &plan_rows(&approval.plan, &approval.changes), columns, show)
}

/// A field of a plan as a row of the table.
#[derive(Debug, Eq, PartialEq, Serialize)]
struct PlanRow {
    field: String,
    value: String,
    /// The value in the previous approval, if it differs.
    before: Option<String>,
}

fn plan_rows(plan: &[PlanFieldView], changes: &[PlanChangeView]) -> Vec<PlanRow> {
    let row = |field: &PlanFieldView| PlanRow {
        field: clean(&field.name).replace('_', " "),
        value: values(&field.values),
        before: changes.iter().find(|change| change.name == field.name).map(|change| values(&change.before)),
    };
    plan.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use serde_json::json;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use x509::Fingerprint;

    use super::*;

    fn field(name: &str, values: &[&str]) -> PlanFieldView {
        PlanFieldView { name: name.to_owned(), values: values.iter().map(ToString::to_string).collect() }
    }

    #[test]
    fn changed_plan_fields_show_the_previous_value() {
        let plan = [
            field("names", &["a.example", "b\u{1b}[2J.example"]),
            field("issuer", &["internal"]),
            field("lifetime_seconds", &[]),
        ];
        let changes = [
            PlanChangeView { name: "names".to_owned(), before: vec![], after: plan[0].values.clone() },
            PlanChangeView {
                name: "lifetime_seconds".to_owned(),
                before: vec!["60".to_owned()],
                after: vec![],
            },
        ];
        let row = |field: &str, value: &str, before: Option<&str>| PlanRow {
            field: field.to_owned(),
            value: value.to_owned(),
            before: before.map(str::to_owned),
        };
        let rows = plan_rows(&plan, &changes);
        assert_eq!(
            rows,
            [
                row("names", "a.example, b\u{fffd}[2J.example", Some("not set")),
                row("issuer", "internal", None),
                row("lifetime seconds", "not set", Some("60")),
            ]
        );
    }

    #[test]
    fn approval_list_shows_plan_fields_and_a_short_hash() {
        let names = json!({ "name": "names", "values": ["a.example"] });
        let approval = json!({ "name": "a", "plan": [names], "plan_sha256": "0123456789abcdef" });
        let full =
            json!({ "name": "a", "plan": { "names": ["a.example"] }, "plan_sha256": "0123456789abcdef" });
        assert_eq!(plan_fields_as_object(approval.clone()), full);
        assert_eq!(to_table_row(approval)["plan_sha256"], "0123456789ab");
        // Servers of older versions send no plans.
        assert_eq!(to_table_row(json!({ "name": "a" })), json!({ "name": "a" }));
    }

    /// Returns the request that a server receives. The server responds with `{}`.
    async fn requested(arguments: &[&str]) -> String {
        #[derive(Parser)]
        struct Line {
            #[command(subcommand)]
            command: ApprovalCommand,
        }
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let served = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut read = String::new();
            while !read.ends_with('}') {
                let mut some = [0; 4_096];
                let count = stream.read(&mut some).await.unwrap();
                assert!(count > 0, "{read}");
                read.push_str(std::str::from_utf8(&some[..count]).unwrap());
            }
            let answer = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}";
            stream.write_all(answer.as_bytes()).await.unwrap();
            read
        });
        let line = Line::try_parse_from([&["approval"], arguments].concat()).ok().unwrap();
        let client = Client::at(&url, None, None).ok().unwrap();
        assert!(line.command.run(&client).await.is_ok());
        served.await.unwrap()
    }

    #[tokio::test]
    async fn approval_sends_the_plan_hash() {
        let hash = Fingerprint::of(b"plan").to_string();
        let sent = requested(&["approve", "7", "--plan", &hash.to_uppercase(), "--note", "fine"]).await;
        assert!(sent.starts_with("POST /api/v1/approvals/7/approve "), "{sent}");
        assert!(sent.ends_with(&json!({ "note": "fine", "plan_sha256": hash }).to_string()), "{sent}");
    }
}

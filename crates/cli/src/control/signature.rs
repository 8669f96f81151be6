//! Verification of approvers' signatures by security keys.

use std::path::PathBuf;

use api::approvals::PlanFieldView;
use api::plan::{CHANGE_PLAN, ISSUANCE_PLAN, encoded};
use api::security_keys::ApprovalSignatureView;
use clap::Args;
use serde::{Deserialize, Serialize};
use uuid::Uuid;
use webauthn::approval::ApprovalSignature;
use x509::Fingerprint;

use super::{decision, input};
use crate::columns;
use crate::connection::{Client, Columns, Output, document_of, print_rows};
use crate::exit::{Exit, Outcome, Problem};

/// Arguments of `bulla approval verify`.
#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("document").args(["id", "file"]).required(true)))]
pub struct VerifyArgs {
    /// Id of the approval
    id: Option<String>,
    /// Verify this file offline: the output of `bulla approval show ID -o json`
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    rules: Rules,
    #[command(flatten)]
    show: Output,
}

/// Requirements on signatures, in addition to validity.
#[derive(Debug, Default, Args)]
struct Rules {
    /// SHA-256 of a public key with which this approver signs, such as user:ann=9f86…; repeatable. Without it, the
    /// keys in the document are trusted
    #[arg(long = "key", value_name = "ACTOR=SHA256", value_parser = pinned_key)]
    keys: Vec<(String, Fingerprint)>,
    /// Exit with 1 if there is no approval, or an approver has no valid signature. With --key, only signatures by these keys count
    #[arg(long)]
    require_signatures: bool,
}

/// Parses `ACTOR=SHA256`.
fn pinned_key(text: &str) -> Result<(String, Fingerprint), String> {
    let pair = text.rsplit_once('=').filter(|(actor, _)| !actor.is_empty());
    let (actor, key) = pair.ok_or("give ACTOR=SHA256, such as user:ann=9f86…")?;
    Ok((actor.to_owned(), key.parse::<Fingerprint>().map_err(|error| error.to_string())?))
}

/// The members of an approval, change or enrolment that its signatures refer to.
#[derive(Debug, Deserialize)]
struct Signed {
    id: Uuid,
    plan_sha256: Option<String>,
    #[serde(default)]
    plan: Vec<PlanFieldView>,
    #[serde(default)]
    approvers: Vec<String>,
    #[serde(default)]
    signatures: Vec<ApprovalSignatureView>,
}

/// The result of verifying the signature of one approver.
#[derive(Debug, Eq, PartialEq, Serialize)]
struct Checked {
    approver: String,
    signature: &'static str,
    user_verified: Option<bool>,
    signed_at: Option<String>,
    host: Option<String>,
    public_key_sha256: Option<String>,
}

impl VerifyArgs {
    /// Verifies a document without a server, if the command names one.
    pub(super) fn run_offline(&self) -> Option<Outcome<()>> {
        let file = self.file.as_deref()?;
        Some(input::document(file).and_then(|document| {
            let signed = Signed::deserialize(&document).map_err(|error| {
                Problem::usage(format_args!("{} is not an approval: {error}", file.display()))
                    .hint("give the whole output of `bulla approval show ID -o json` or `bulla change show ID -o json`")
            })?;
            self.verify(&signed)
        }))
    }

    /// Verifies the signatures of the approval that the server returns.
    pub(super) async fn run(&self, client: &Client, path: &str) -> Outcome<()> {
        let id = self.id.as_deref().unwrap_or_default();
        self.verify(&client.fetch(&decision::object(path, id), &()).await?)
    }

    fn verify(&self, signed: &Signed) -> Outcome<()> {
        const COLUMNS: Columns = columns!(
            Checked:
            ("Approver", approver),
            ("Signature", signature),
            ("User verified", user_verified),
            ("Signed", signed_at),
            ("Host", host),
            ("Public key SHA-256", public_key_sha256),
        );
        let checked = self.rules.check(signed)?;
        let rows = checked.rows.iter().map(document_of).collect::<Outcome<Vec<_>>>()?;
        print_rows(rows, COLUMNS, &self.show)?;
        match self.rules.finding(&checked) {
            Some((what, hint)) => Err(Problem::new(Exit::Findings, what).hint(hint)),
            None => Ok(()),
        }
    }
}

/// The signature is valid, by a key that `--key` names for the approver.
const VALID: &str = "valid";
/// The signature is valid, but `--key` names no key of the approver.
const UNCHECKED: &str = "valid, key not checked";
/// The signature is valid, but by another key than `--key` names for the approver.
const OTHER_KEY: &str = "other key";
const WRONG: &str = "wrong";
/// The signature is valid, but for another hash than the shown plan's.
const PLAN_DIFFERS: &str = "plan differs";
/// The signature is for an earlier plan of the same approval, and does not approve the shown plan.
const OTHER_PLAN: &str = "other plan";
/// The signature is valid, but the approval does not list its signer as an approver, for example because it was rejected or is
/// void.
const NO_APPROVAL: &str = "no approval";
/// The approval has no signature.
const NONE: &str = "none";

/// The results of verifying the signatures of all approvers.
struct Verified {
    /// Whether the shown plan has the hash that the document states.
    plan_matches: bool,
    approved: bool,
    rows: Vec<Checked>,
}

impl Rules {
    /// Verifies the hash of the plan and each signature, and lists approvers without a valid signature.
    fn check(&self, signed: &Signed) -> Outcome<Verified> {
        let bad = |what: &str| Problem::usage(format_args!("the document has no valid {what}"));
        let plan = signed.plan_sha256.as_deref().ok_or_else(|| bad("plan_sha256"))?;
        let plan: Fingerprint = plan.parse().map_err(|_| bad("plan_sha256"))?;
        let plan_matches = [ISSUANCE_PLAN, CHANGE_PLAN].into_iter().any(|encoding| {
            let fields = signed.plan.iter().map(|field| (field.name.as_str(), field.values.as_slice()));
            Fingerprint::of(&encoded(encoding, fields)) == plan
        });
        let mut rows: Vec<Checked> = signed
            .signatures
            .iter()
            .map(|view| {
                let parsed = ApprovalSignature::deserialize(&view.signature).ok();
                let verified = parsed
                    .as_ref()
                    .map(|one| one.verify(signed.id.into_bytes(), *plan.as_bytes(), &view.actor));
                let key = parsed.as_ref().map(|one| Fingerprint::from_bytes(one.key_sha256()));
                let signature = if view.plan_sha256.parse::<Fingerprint>() != Ok(plan) {
                    OTHER_PLAN
                } else if !matches!(verified, Some(Ok(_))) {
                    WRONG
                } else if !signed.approvers.contains(&view.actor) {
                    NO_APPROVAL
                } else if !plan_matches {
                    PLAN_DIFFERS
                } else {
                    self.judge_key(&view.actor, key)
                };
                Checked {
                    approver: view.actor.clone(),
                    signature,
                    user_verified: verified.and_then(Result::ok),
                    signed_at: Some(view.signed_at.clone()),
                    host: parsed.as_ref().map(|one| one.rp_id.clone()),
                    public_key_sha256: key.map(|key| key.to_string()),
                }
            })
            .collect();
        let signers: Vec<String> =
            rows.iter().filter(|row| row.is_signed()).map(|row| row.approver.clone()).collect();
        rows.extend(
            signed.approvers.iter().filter(|one| !signers.contains(one)).map(|one| Checked::none(one)),
        );
        Ok(Verified { plan_matches, approved: !signed.approvers.is_empty(), rows })
    }

    /// Compares the key of a valid signature with the keys of `--key`.
    fn judge_key(&self, actor: &str, key: Option<Fingerprint>) -> &'static str {
        let mut pinned = self.keys.iter().filter(|(of, _)| of == actor).map(|(_, key)| *key).peekable();
        if pinned.peek().is_none() {
            return UNCHECKED;
        }
        if pinned.any(|one| Some(one) == key) { VALID } else { OTHER_KEY }
    }

    /// Returns why the document does not prove its approval, and a hint.
    fn finding(&self, verified: &Verified) -> Option<(&'static str, &'static str)> {
        let any = |result: &str| verified.rows.iter().any(|row| row.signature == result);
        if !verified.plan_matches {
            return Some((
                "the shown plan does not have the hash plan_sha256, so the signatures are not for it",
                "the document must be the whole output of `bulla approval show ID -o json` or `bulla change show ID -o json`",
            ));
        }
        if any(WRONG) {
            return Some((
                "a signature does not match the plan",
                "compare with the audit log: bulla audit list --action approval.sign",
            ));
        }
        if any(OTHER_KEY) {
            return Some((
                "an approver signed with a key that is not the one given with --key",
                "compare with the audit log: bulla audit list --action user.security-key-add",
            ));
        }
        if !self.require_signatures {
            return None;
        }
        if !verified.approved {
            return Some(("the plan has no approval", "verify again after the approval"));
        }
        let unchecked = !self.keys.is_empty() && any(UNCHECKED);
        (any(NONE) || unchecked).then_some((
            "an approver has no valid signature",
            "the column Signature says why; give --key ACTOR=SHA256 for each approver, or for none",
        ))
    }
}

impl Checked {
    fn none(approver: &str) -> Self {
        Self {
            approver: approver.to_owned(),
            signature: NONE,
            user_verified: None,
            signed_at: None,
            host: None,
            public_key_sha256: None,
        }
    }

    /// Returns whether the approver has a valid signature for this approval, even if `--key` does not name its key, or the hash of
    /// the shown plan differs.
    fn is_signed(&self) -> bool {
        [VALID, UNCHECKED, OTHER_KEY, PLAN_DIFFERS].contains(&self.signature)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// The signature of the approval with the nil UUID and the plan of [`document`].
    const SIGNATURE: &str = r#"{
        "public_key": "pAEBAycgBiFYIOpKbGPinFIKvvVQexMuxfmVR3auvr57kkIe6mkURtIs",
        "rp_id": "bulla.example",
        "origin": "https://bulla.example",
        "nonce": "AwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwM",
        "credential_id": "CAgICAgICAgICAgICAgICA",
        "client_data_json": "eyJ0eXBlIjoid2ViYXV0aG4uZ2V0IiwiY2hhbGxlbmdlIjoiQ09fZ3BsLTd1LUJOdndISzhNdVJQbFJLdF9pQmZWcFNsaWxlMFdDVUk3byIsIm9yaWdpbiI6Imh0dHBzOi8vYnVsbGEuZXhhbXBsZSIsImNyb3NzT3JpZ2luIjpmYWxzZX0",
        "authenticator_data": "tN-RUfqVy6fCTQ6d01--sIJYeoKzJ5TkUV2bezHL6qYFAAAACQ",
        "signature": "TMxCWys8ZiRSCtvnuxKOaZnhnSLC_35jqKOK4ZoW9HEK33Pka2dfTsqPwPhWYZdR1F1nlwZL1j0IFJ5kJ15vAg"
    }"#;

    /// SHA-256 of the plan of [`document`].
    const PLAN: &str = "9abc1d14050d1d89e7322fd4beedc46c124a328cea12d10f8aaa8bcd2ca45521";

    /// SHA-256 of the key of [`SIGNATURE`].
    const KEY: &str = "4beb1501392c1eadd7f3c9461387637ae075404c422bd3ff5ee4fa601957df13";

    fn document(approvers: &[&str]) -> Value {
        let signature = json!({
            "actor": "user:ann", "plan_sha256": PLAN, "security_key": Uuid::nil(), "public_key_sha256": KEY,
            "signed_at": "2026-01-01T00:00:00Z", "signature": serde_json::from_str::<Value>(SIGNATURE).unwrap(),
        });
        json!({
            "id": Uuid::nil(), "plan_sha256": PLAN, "approvers": approvers, "signatures": [signature],
            "plan": [
                { "name": "object", "values": ["certificate/1"] },
                { "name": "names", "values": ["a.example", "b.example"] },
                { "name": "subject", "values": [] },
            ],
        })
    }

    fn rules(required: bool, keys: &[&str]) -> Rules {
        Rules {
            keys: keys.iter().map(|key| pinned_key(key).unwrap()).collect(),
            require_signatures: required,
        }
    }

    /// Returns the results by approver, and whether there is a finding.
    fn result(rules: &Rules, document: &Value) -> (Vec<(String, &'static str)>, bool) {
        let verified = rules.check(&Signed::deserialize(document).unwrap()).unwrap();
        let found = rules.finding(&verified).is_some();
        (verified.rows.into_iter().map(|row| (row.approver, row.signature)).collect(), found)
    }

    fn one(rules: &Rules, document: &Value) -> (&'static str, bool) {
        let (rows, found) = result(rules, document);
        (rows[0].1, found)
    }

    #[test]
    fn a_signature_counts_for_its_plan_and_for_an_approver() {
        let (plain, document) = (Rules::default(), document(&["user:ann"]));
        assert_eq!(one(&plain, &document), (UNCHECKED, false));
        let changed = |member: &str, value: Value| {
            let mut changed = document.clone();
            changed[member] = value;
            changed
        };
        assert_eq!(one(&plain, &changed("approvers", json!(["user:bob"]))), (NO_APPROVAL, false));
        assert_eq!(one(&plain, &changed("id", json!(Uuid::max()))), (WRONG, true));
        // Ann's signature, shown as Bob's.
        let mut renamed = changed("approvers", json!(["user:bob"]));
        renamed["signatures"][0]["actor"] = json!("user:bob");
        assert_eq!(one(&plain, &renamed), (WRONG, true));
        assert_eq!(one(&plain, &changed("plan_sha256", json!("cd".repeat(32)))), (OTHER_PLAN, true));
    }

    #[test]
    fn the_shown_plan_must_have_the_signed_hash() {
        let mut shown = document(&["user:ann"]);
        for (at, values) in [(1, json!(["evil.example", "b.example"])), (2, json!([""]))] {
            let before = std::mem::replace(&mut shown["plan"][at]["values"], values);
            assert_eq!(one(&Rules::default(), &shown), (PLAN_DIFFERS, true));
            shown["plan"][at]["values"] = before;
        }
        assert_eq!(one(&Rules::default(), &shown), (UNCHECKED, false));
        shown["plan"] = json!([]);
        assert_eq!(one(&Rules::default(), &shown), (PLAN_DIFFERS, true));
    }

    #[test]
    fn keys_are_checked_against_those_that_the_command_names() {
        let document = document(&["user:ann"]);
        let [ann, other] = [KEY, PLAN].map(|key| format!("user:ann={key}"));
        assert_eq!(one(&rules(true, &[&other, &ann]), &document), (VALID, false));
        assert_eq!(one(&rules(false, &[&other]), &document), (OTHER_KEY, true));
        // A key of another approver does not count.
        let bob = format!("user:bob={KEY}");
        assert_eq!(one(&rules(false, &[&bob]), &document), (UNCHECKED, false));
        assert_eq!(one(&rules(true, &[&bob]), &document), (UNCHECKED, true));
        assert!(pinned_key("user:ann").is_err() && pinned_key(&format!("={KEY}")).is_err());
        assert_eq!(pinned_key(&format!("user:a=b={KEY}")).unwrap().0, "user:a=b");
    }

    #[test]
    fn verification_needs_an_approval_or_a_file() {
        #[derive(Debug, clap::Parser)]
        struct Line {
            #[command(flatten)]
            verify: VerifyArgs,
        }
        let parse = |arguments: &str| {
            let line = format!("verify {arguments}");
            <Line as clap::Parser>::try_parse_from(line.split_whitespace()).map_err(|error| error.to_string())
        };
        let missing = parse("").unwrap_err();
        assert!(missing.contains("<ID|--file <FILE>>"), "{missing}");
        assert!(parse("7 --file a.json").is_err());
        for arguments in ["--file a.json --key ", "--require-signatures --key "] {
            let id = if arguments.contains("--file") { "" } else { " 7" };
            let parsed = parse(&format!("{arguments}user:ann={KEY}{id}")).unwrap();
            assert_eq!(parsed.verify.rules.keys.len(), 1);
        }
    }

    #[test]
    fn another_file_is_refused_by_its_name() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "{\"name\":\"a\"}").unwrap();
        let verify = VerifyArgs {
            id: None,
            file: Some(file.path().to_owned()),
            rules: Rules::default(),
            show: Output {
                output: crate::format::Format::Json,
                color: crate::terminal::Colour::Never,
                query: None,
            },
        };
        let refused = verify.run_offline().unwrap().unwrap_err();
        assert_eq!(refused.exit, Exit::Usage);
        assert!(refused.message.contains("is not an approval: missing field"), "{}", refused.message);
    }

    #[test]
    fn approvers_without_a_signature_are_listed_and_can_be_refused() {
        let shown = document(&["user:ann", "user:bob"]);
        let (rows, found) = result(&rules(false, &[]), &shown);
        assert_eq!(rows, [("user:ann".to_owned(), UNCHECKED), ("user:bob".to_owned(), NONE)]);
        assert!(!found && result(&rules(true, &[]), &shown).1);
        assert!(!result(&rules(true, &[]), &document(&["user:ann"])).1);
        let mut nobody = document(&[]);
        nobody["signatures"] = json!([]);
        assert_eq!(result(&rules(false, &[]), &nobody), (Vec::new(), false));
        assert!(result(&rules(true, &[]), &nobody).1);
        let mut wrong = shown;
        wrong["signatures"][0]["signature"] = json!({ "rp_id": "bulla.example" });
        let (rows, _) = result(&rules(false, &[]), &wrong);
        assert_eq!(rows.iter().map(|row| row.1).collect::<Vec<_>>(), [WRONG, NONE, NONE]);
        let empty = Signed::deserialize(json!({ "id": Uuid::nil() })).unwrap();
        assert!(Rules::default().check(&empty).is_err());
    }
}

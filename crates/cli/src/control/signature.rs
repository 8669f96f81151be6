//! Verification of approvers' signatures by security keys.

use std::path::PathBuf;

use api::security_keys::ApprovalSignatureView;
use clap::Args;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;
use webauthn::approval::ApprovalSignature;
use x509::Fingerprint;

use super::{decision, input};
use crate::columns;
use crate::connection::{Client, Columns, DocumentRow, Output, document_of, read_as};
use crate::exit::{Exit, Outcome, Problem};
use crate::printer::Printer;

/// The options of `verify`.
#[derive(Debug, Args)]
pub struct VerifyArgs {
    /// Id of the approval
    #[arg(required_unless_present = "file")]
    id: Option<String>,
    /// Verify this document of `bulla approval show ID -o json` offline
    #[arg(long, value_name = "FILE", conflicts_with = "id")]
    file: Option<PathBuf>,
    #[command(flatten)]
    show: Output,
}

/// The members of an approval, change or enrollment that its signatures refer to.
#[derive(Debug, Deserialize)]
struct Signed {
    id: Uuid,
    plan_sha256: Option<String>,
    #[serde(default)]
    approvers: Vec<String>,
    #[serde(default)]
    signatures: Vec<ApprovalSignatureView>,
}

/// The result for one approver.
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
        Some(input::document(file).and_then(|document| self.verify(&document)))
    }

    /// Verifies the signatures of the approval that the server returns.
    pub(super) async fn run(&self, client: &Client, path: &str) -> Outcome<()> {
        let id = self.id.as_deref().unwrap_or_default();
        self.verify(&client.get(&decision::object(path, id), &()).await?)
    }

    fn verify(&self, document: &Value) -> Outcome<()> {
        const COLUMNS: Columns = columns!(
            Checked:
            ("Approver", approver),
            ("Signature", signature),
            ("User verified", user_verified),
            ("Signed", signed_at),
            ("Host", host),
            ("Public key SHA-256", public_key_sha256),
        );
        let checked = check(&read_as(document)?)?;
        let rows = checked.iter().map(|row| document_of(row).map(DocumentRow::of));
        let rows = rows.collect::<Outcome<Vec<_>>>()?;
        let mut printer = Printer::new(self.show.output, self.show.color)?;
        printer.documents(&rows, COLUMNS).map_err(|error| Problem::output(&error))?;
        printer.end(None).map_err(|error| Problem::output(&error))?;
        if checked.iter().any(|row| row.signature == WRONG) {
            return Err(Problem::new(Exit::Findings, "a signature does not match the plan")
                .hint("compare with the audit log: bulla audit list --action approval.sign"));
        }
        Ok(())
    }
}

const VALID: &str = "valid";
const WRONG: &str = "wrong";
/// For an earlier plan of the same approval; it does not count.
const OTHER_PLAN: &str = "other plan";
/// Valid, but the person's approval was refused or is void.
const NO_APPROVAL: &str = "no approval";
/// An approval without a signature.
const NONE: &str = "none";

/// Verifies each signature, and lists approvers without a valid one.
fn check(signed: &Signed) -> Outcome<Vec<Checked>> {
    let bad = |what: &str| Problem::usage(format_args!("the document has no valid {what}"));
    let plan = signed.plan_sha256.as_deref().ok_or_else(|| bad("plan_sha256"))?;
    let hash: Fingerprint = plan.parse().map_err(|_| bad("plan_sha256"))?;
    let mut rows: Vec<Checked> = signed
        .signatures
        .iter()
        .map(|view| {
            let parsed = ApprovalSignature::deserialize(&view.signature).ok();
            let verified = parsed.as_ref().map(|one| one.verify(signed.id.into_bytes(), *hash.as_bytes()));
            Checked {
                approver: view.actor.clone(),
                signature: if view.plan_sha256 != plan {
                    OTHER_PLAN
                } else if !matches!(verified, Some(Ok(_))) {
                    WRONG
                } else if signed.approvers.contains(&view.actor) {
                    VALID
                } else {
                    NO_APPROVAL
                },
                user_verified: verified.and_then(Result::ok),
                signed_at: Some(view.signed_at.clone()),
                host: parsed.as_ref().map(|one| one.rp_id.clone()),
                public_key_sha256: parsed.map(|one| Fingerprint::from_bytes(one.key_sha256()).to_string()),
            }
        })
        .collect();
    for approver in &signed.approvers {
        if !rows.iter().any(|row| &row.approver == approver && row.signature == VALID) {
            rows.push(Checked {
                approver: approver.clone(),
                signature: NONE,
                user_verified: None,
                signed_at: None,
                host: None,
                public_key_sha256: None,
            });
        }
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The signature of the approval with the nil UUID and a plan of 32 bytes 0xab.
    const SIGNATURE: &str = r#"{
        "public_key": "pAEBAycgBiFYIOpKbGPinFIKvvVQexMuxfmVR3auvr57kkIe6mkURtIs",
        "rp_id": "bulla.example",
        "origin": "https://bulla.example",
        "nonce": "AwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwM",
        "credential_id": "CAgICAgICAgICAgICAgICA",
        "client_data_json": "eyJ0eXBlIjoid2ViYXV0aG4uZ2V0IiwiY2hhbGxlbmdlIjoiRllaLUhVazJrZWQzSGhqYWJwS2xCZVgxdnpJR1c1M3NINUI0ang2V1ZHYyIsIm9yaWdpbiI6Imh0dHBzOi8vYnVsbGEuZXhhbXBsZSIsImNyb3NzT3JpZ2luIjpmYWxzZX0",
        "authenticator_data": "tN-RUfqVy6fCTQ6d01--sIJYeoKzJ5TkUV2bezHL6qYFAAAACQ",
        "signature": "Y4F7AdAR-vKT6sdq6-E7KgVNzbxvZ1PmOssxPHCrEqLL6zVmg3dA27nQoCe9dIoyWe9_viAxRkPNXGMTnMJNBg"
    }"#;

    #[test]
    fn a_signature_counts_for_its_plan_and_for_an_approver() {
        let [hash, other] = ["ab", "cd"].map(|byte| byte.repeat(32));
        let result = |id: Uuid, plan: &str, approvers: &[&str]| {
            let signature = json!({
                "actor": "user:ann", "plan_sha256": hash, "security_key": Uuid::nil(), "public_key_sha256": "",
                "signed_at": "2026-01-01T00:00:00Z", "signature": serde_json::from_str::<Value>(SIGNATURE).unwrap(),
            });
            let document =
                json!({ "id": id, "plan_sha256": plan, "approvers": approvers, "signatures": [signature] });
            let rows = check(&Signed::deserialize(&document).unwrap()).unwrap();
            (rows[0].signature, rows[0].user_verified, rows.len())
        };
        assert_eq!(result(Uuid::nil(), &hash, &["user:ann"]), (VALID, Some(true), 1));
        assert_eq!(result(Uuid::nil(), &hash, &["user:bob"]), (NO_APPROVAL, Some(true), 2));
        assert_eq!(result(Uuid::max(), &hash, &["user:ann"]), (WRONG, None, 2));
        assert_eq!(result(Uuid::nil(), &other, &[]), (OTHER_PLAN, None, 1));
    }

    #[test]
    fn approvers_without_a_signature_are_listed() {
        let hash = "ab".repeat(32);
        let signature = json!({
            "actor": "user:ann", "plan_sha256": hash, "security_key": Uuid::nil(), "public_key_sha256": hash,
            "signed_at": "2026-01-01T00:00:00Z", "signature": { "rp_id": "bulla.example" },
        });
        let document = json!({
            "id": Uuid::nil(), "plan_sha256": hash, "approvers": ["user:ann", "user:bob"], "signatures": [signature],
        });
        let rows = check(&Signed::deserialize(&document).unwrap()).unwrap();
        let found: Vec<_> = rows.iter().map(|row| (row.approver.as_str(), row.signature)).collect();
        assert_eq!(found, [("user:ann", WRONG), ("user:ann", NONE), ("user:bob", NONE)]);
        assert!(check(&Signed::deserialize(json!({ "id": Uuid::nil() })).unwrap()).is_err());
    }
}

//! Policies, and violations by certificates.

use uuid::Uuid;

use db::{BulkStatement, Column, Cost, Cursor, Page, Row, StoreError, Tx, Value, key_or, limit_of, page};
use store::states::PolicySeverity;

store::handle! {
    /// Policies for certificates, and violations of them.
    Policies
}

/// A stored policy, owner or team: its name, JSON content and revision.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedDocument {
    /// Name of the document.
    pub name: String,
    /// Content as JSON.
    pub body: String,
    /// Revision, from 1. Increases with every change.
    pub revision: i64,
    /// Creation time, in µs since 1970.
    pub created_at_us: i64,
    /// Time of the last change, in µs since 1970.
    pub updated_at_us: i64,
}

/// A stored violation of a policy rule by a certificate.
#[derive(Clone, Debug, PartialEq)]
pub struct ViolationRow {
    /// Row id of the certificate.
    pub certificate: i64,
    /// Name of the policy.
    pub policy: String,
    /// Identifier of the rule, such as `key_types`.
    pub rule: String,
    /// Severity of the violation: info, warning, error or critical.
    pub severity: PolicySeverity,
    /// Human-readable message.
    pub message: String,
    /// Time when the violation was first found, in µs since 1970.
    pub found_at_us: i64,
}

/// A violation, with its certificate.
#[derive(Clone, Debug, PartialEq)]
pub struct ViolationView {
    /// The violation, as stored.
    pub violation: ViolationRow,
    /// Id of the certificate.
    pub certificate: Uuid,
    /// Name of the certificate.
    pub name: String,
    /// Name of the certificate's profile.
    pub profile: String,
}

/// Filter for violations. An index supports at most one of the three conditions; the others are checked on each row.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ViolationFilter {
    /// Name of the policy.
    pub policy: Option<String>,
    /// Row id of the certificate.
    pub certificate: Option<i64>,
    /// Minimum severity.
    pub severity_from: Option<PolicySeverity>,
}

const POLICY: &str = "-- policy
SELECT name, body, revision, created_at, updated_at FROM policies WHERE name = ?1";
const POLICIES: &str = "-- policies
SELECT name, body, revision, created_at, updated_at FROM policies WHERE name > ?1 ORDER BY name LIMIT ?2";
const POLICY_INSERT: &str = "-- policy_insert
INSERT INTO policies (name, body, revision, created_at, updated_at) VALUES (?1, ?2, 1, ?3, ?3) ON CONFLICT DO NOTHING";
const POLICY_UPDATE: &str = "-- policy_update
UPDATE policies SET body = ?2, revision = revision + 1, updated_at = ?3 WHERE name = ?1 AND revision = ?4";
const POLICY_DELETE: &str = "-- policy_delete
DELETE FROM policies WHERE name = ?1";
const POLICY_USED: &str = "-- policy_used
SELECT uuid FROM managed_certificates WHERE policy = ?1 LIMIT 1";

const VIOLATIONS_CLEAR: BulkStatement = db::bulk! { (certificate_id bigint)
    "-- violations_clear
DELETE FROM policy_violations WHERE certificate_id = {any certificate_id}"
};
const VIOLATIONS_CLEAR_POLICY: &str = "-- violations_clear_policy
DELETE FROM policy_violations WHERE policy = ?1";
/// Inserts violations. A violation with the same message keeps the time at which it was first found.
const VIOLATIONS_INSERT: BulkStatement = db::bulk! {
    (certificate_id bigint, policy text, rule text, severity bigint, message text, found_at bigint)
    "-- violations_insert
INSERT INTO policy_violations (certificate_id, policy, rule, severity, message, found_at)
VALUES (:certificate_id, :policy, :rule, :severity, :message, :found_at)
ON CONFLICT (certificate_id, policy, rule) DO UPDATE SET severity = excluded.severity, message = excluded.message"
};

pub(crate) const ALL: &[&str] =
    &[POLICY, POLICIES, POLICY_INSERT, POLICY_UPDATE, POLICY_DELETE, POLICY_USED, VIOLATIONS_CLEAR_POLICY];
pub(crate) const BULKS: &[&BulkStatement] = &[&VIOLATIONS_CLEAR, &VIOLATIONS_INSERT];

/// Inserts a policy. Returns false if the name is in use.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn insert_policy(tx: &mut Tx, name: &str, body: &str, at_us: i64) -> Result<bool, StoreError> {
    Ok(tx.execute(POLICY_INSERT, vec![name.into(), body.into(), at_us.into()]).await? == 1)
}

/// Replaces a policy with this revision. Returns false if the revision differs.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn update_policy(
    tx: &mut Tx,
    name: &str,
    body: &str,
    at_us: i64,
    revision: i64,
) -> Result<bool, StoreError> {
    Ok(tx.execute(POLICY_UPDATE, vec![name.into(), body.into(), at_us.into(), revision.into()]).await? == 1)
}

/// Deletes a policy and its violations.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn delete_policy(tx: &mut Tx, name: &str) -> Result<bool, StoreError> {
    tx.execute(VIOLATIONS_CLEAR_POLICY, vec![name.into()]).await?;
    Ok(tx.execute(POLICY_DELETE, vec![name.into()]).await? == 1)
}

/// Returns the id of one certificate that names the policy.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn policy_user(tx: &mut Tx, name: &str) -> Result<Option<Uuid>, StoreError> {
    tx.row(POLICY_USED, vec![name.into()]).await?.map(|mut row| row.uuid()).transpose()
}

/// Replaces all violations of these certificates.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn replace_violations(
    tx: &mut Tx,
    certificates: Vec<i64>,
    found: &[ViolationRow],
) -> Result<(), StoreError> {
    tx.bulk(&VIOLATIONS_CLEAR, vec![Column::Int(certificates)]).await?;
    let columns = vec![
        Column::Int(found.iter().map(|one| one.certificate).collect()),
        Column::Text(found.iter().map(|one| one.policy.clone()).collect()),
        Column::Text(found.iter().map(|one| one.rule.clone()).collect()),
        Column::Int(found.iter().map(|one| one.severity.code()).collect()),
        Column::Text(found.iter().map(|one| one.message.clone()).collect()),
        Column::Int(found.iter().map(|one| one.found_at_us).collect()),
    ];
    tx.bulk(&VIOLATIONS_INSERT, columns).await.map(drop)
}

impl Policies<'_> {
    /// Returns a policy by its name.
    ///
    /// # Errors
    /// Database errors.
    pub async fn get(self, name: &str) -> Result<Option<NamedDocument>, StoreError> {
        self.0.row(POLICY, vec![name.into()]).await?.map(document).transpose()
    }

    /// Returns a page of policies, sorted by name.
    ///
    /// # Errors
    /// [`StoreError::BadCursor`], and other database errors.
    pub async fn page(self, after: Option<&Cursor>, limit: usize) -> Result<Page<NamedDocument>, StoreError> {
        let mut parameters = key_or(after, "policies", &[Value::Text(String::new())])?;
        let (limit, fetch_limit) = limit_of(limit);
        parameters.push(fetch_limit.into());
        let rows = self.0.rows(Cost::Walk, POLICIES, parameters).await?;
        page(rows, limit, "policies", named)
    }

    /// Returns a page of violations. With a policy or a certificate in the filter, the order is certificate, then policy. Otherwise
    /// the most severe violations come first.
    ///
    /// # Errors
    /// [`StoreError::BadCursor`], and other database errors.
    pub async fn violations(
        self,
        filter: &ViolationFilter,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<ViolationView>, StoreError> {
        let text = || Value::Text(String::new());
        let shape = [Value::Int(0), Value::Int(0), text(), text()];
        let key = after.map(|cursor| cursor.key("violations", &shape)).transpose()?;
        let (limit, fetch_limit) = limit_of(limit);
        let (statement, parameters) = violations(filter, key, fetch_limit);
        let rows = self.0.rows(Cost::Walk, &statement, parameters).await?;
        page(rows, limit, "violations", |mut row| {
            let violation = ViolationRow {
                certificate: row.int()?,
                policy: row.text()?,
                rule: row.text()?,
                severity: row.coded("policy_violations.severity")?,
                message: row.text()?,
                found_at_us: row.int()?,
            };
            let key = vec![
                violation.severity.code().into(),
                violation.certificate.into(),
                violation.policy.as_str().into(),
                violation.rule.as_str().into(),
            ];
            let view = ViolationView {
                violation,
                certificate: row.uuid()?,
                name: row.text()?,
                profile: row.text()?,
            };
            Ok((view, key))
        })
    }
}

fn violations(filter: &ViolationFilter, key: Option<Vec<Value>>, limit: i64) -> (String, Vec<Value>) {
    let mut parameters: Vec<Value> = Vec::new();
    let mut conditions: Vec<String> = Vec::new();
    let mut bind = |value: Value| {
        parameters.push(value);
        format!("?{}", parameters.len())
    };
    if let Some(policy) = &filter.policy {
        conditions.push(format!("policy = {}", bind(policy.as_str().into())));
    }
    if let Some(certificate) = filter.certificate {
        conditions.push(format!("certificate_id = {}", bind(certificate.into())));
    }
    if let Some(severity) = filter.severity_from {
        conditions.push(format!("severity >= {}", bind(severity.code().into())));
    }
    let by_severity = filter.policy.is_none() && filter.certificate.is_none();
    let (inner, outer) = if by_severity {
        (
            "severity DESC, certificate_id DESC, policy DESC, rule DESC",
            "x.severity DESC, x.certificate_id DESC, x.policy DESC, x.rule DESC",
        )
    } else {
        ("certificate_id, policy, rule", "x.certificate_id, x.policy, x.rule")
    };
    if let Some(mut key) = key {
        if !by_severity {
            // Removes the severity, which this sort order does not use.
            key.remove(0);
        }
        let marks: Vec<String> = key.into_iter().map(&mut bind).collect();
        conditions.push(if by_severity {
            format!("(severity, certificate_id, policy, rule) < ({})", marks.join(", "))
        } else {
            format!("(certificate_id, policy, rule) > ({})", marks.join(", "))
        });
    }
    let limit = bind(limit.into());
    let clause =
        if conditions.is_empty() { String::new() } else { format!("WHERE {} ", conditions.join(" AND ")) };
    let statement = format!(
        "-- violations\nSELECT x.certificate_id, x.policy, x.rule, x.severity, x.message, x.found_at, m.uuid, m.name, \
         m.profile FROM (SELECT * FROM policy_violations {clause}ORDER BY {inner} LIMIT {limit}) x \
         JOIN managed_certificates m ON m.id = x.certificate_id ORDER BY {outer}"
    );
    (statement, parameters)
}

/// Returns the listing statement for several combinations of conditions.
pub(crate) fn composed() -> Vec<String> {
    let text = || Value::Text("x".to_owned());
    let key = || Some(vec![Value::Int(0), Value::Int(0), text(), text()]);
    let policy = || Some("x".to_owned());
    [
        ViolationFilter::default(),
        ViolationFilter { policy: policy(), ..ViolationFilter::default() },
        ViolationFilter { certificate: Some(1), ..ViolationFilter::default() },
        ViolationFilter {
            policy: policy(),
            certificate: Some(1),
            severity_from: Some(PolicySeverity::Warning),
        },
    ]
    .iter()
    .flat_map(|filter| [violations(filter, None, 1).0, violations(filter, key(), 1).0])
    .collect()
}

pub(crate) fn document(mut row: Row) -> Result<NamedDocument, StoreError> {
    Ok(NamedDocument {
        name: row.text()?,
        body: row.text()?,
        revision: row.int()?,
        created_at_us: row.int()?,
        updated_at_us: row.int()?,
    })
}

pub(crate) fn named(row: Row) -> Result<(NamedDocument, Vec<Value>), StoreError> {
    let document = document(row)?;
    let key = vec![document.name.as_str().into()];
    Ok((document, key))
}

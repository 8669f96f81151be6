//! Services with the API of crt.sh. A response contains all valid certificates, newest first, with separate rows for precertificate
//! and certificate, and there is no cursor. The highest id returned serves as the cursor: rows far below it are skipped.

use std::collections::HashMap;

use outbound::http::percent_encoded;
use serde::Deserialize;
use x509::SerialNumber;

use super::answer::{InvalidResponse, IssuancesFound, time};
use crate::issuance::{Issuance, IssuanceId, NAMES_MAX};
use crate::merkle::sha256;

/// Distance below the cursor from which rows are returned again. Ids are assigned before rows become visible, so a new row may
/// have a lower id than the highest one returned. About ten million rows are added per day, and a row becomes visible within a
/// day.
const OVERLAP: u64 = 10_000_000;

/// Returns the URL of a query. `q` finds a name and all its subdomains. Expired certificates are excluded, and so are duplicates of
/// precertificate and certificate.
pub(super) fn url(base: &str, domain: &str) -> String {
    format!("{base}/?q={}&output=json&exclude=expired&deduplicate=Y", percent_encoded(domain))
}

#[derive(Deserialize)]
struct RowJson {
    id: u64,
    issuer_name: Option<String>,
    common_name: Option<String>,
    /// Names, one per line.
    name_value: Option<String>,
    not_before: Option<String>,
    not_after: Option<String>,
    serial_number: Option<String>,
}

/// Parses a response: returns the issuances at and below `domain`, except those with ids far below `after`.
///
/// # Errors
/// When the body is not a JSON array of objects with an id.
pub fn read(body: &[u8], domain: &str, after: Option<&str>) -> Result<IssuancesFound, InvalidResponse> {
    let rows: Vec<RowJson> = serde_json::from_slice(body)?;
    let highest = rows.iter().map(|row| row.id).max();
    let before: u64 = after.and_then(|after| after.parse().ok()).unwrap_or(0);
    let from = before.saturating_sub(OVERLAP);
    let mut found =
        IssuancesFound { issuances: Vec::new(), after: highest.map(|id| id.max(before).to_string()) };
    let mut indexes: HashMap<[u8; 32], usize> = HashMap::new();
    for row in rows.into_iter().filter(|row| row.id > from || before == 0) {
        let issuance = issuance(row);
        if !issuance.names.iter().any(|name| is_at_or_below(name, domain)) {
            continue;
        }
        // Merges a precertificate and its certificate if the service returns both.
        let index = *indexes.entry(issuance.id.issuer_serial).or_insert(found.issuances.len());
        match found.issuances.get_mut(index) {
            Some(same) => {
                same.names.extend(issuance.names);
                same.names.sort_unstable();
                same.names.dedup();
                same.names.truncate(NAMES_MAX);
            }
            None => found.issuances.push(issuance),
        }
    }
    Ok(found)
}

fn issuance(row: RowJson) -> Issuance {
    let serial: Option<SerialNumber> = row.serial_number.as_deref().and_then(|serial| serial.parse().ok());
    let issuer = row.issuer_name.unwrap_or_default();
    let id = match &serial {
        Some(serial) => IssuanceId::new(&issuer, serial, None),
        None => IssuanceId { issuer_serial: sha256(format!("crt.sh {}", row.id).as_bytes()), tbs: None },
    };
    let text = row.name_value.unwrap_or_default();
    let common = row.common_name.filter(|name| name.contains('.') && !name.contains(' '));
    let mut names: Vec<String> =
        text.lines().chain(common.as_deref()).map(|name| name.trim().to_lowercase()).collect();
    names.retain(|name| !name.is_empty());
    names.sort_unstable();
    names.dedup();
    names.truncate(NAMES_MAX);
    let at = |text: Option<String>| text.as_deref().map(time).unwrap_or_default();
    Issuance {
        id,
        issuer,
        readable: serial.is_some(),
        serial,
        names,
        not_before: at(row.not_before),
        not_after: at(row.not_after),
        spki_sha256: None,
        certificate_sha256: None,
        precertificate: false,
        der: None,
    }
}

fn is_at_or_below(name: &str, domain: &str) -> bool {
    let name = name.strip_prefix("*.").unwrap_or(name);
    name == domain || name.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: &[u8] = br#"[
        {"issuer_ca_id":16418,"issuer_name":"C=US, O=Let's Encrypt, CN=R3","common_name":"a.example.com",
         "name_value":"a.example.com\nb.example.com","id":90000001,"entry_timestamp":"2020-11-07T16:46:43.456",
         "not_before":"2020-11-07T15:46:43","not_after":"2021-02-05T15:46:43",
         "serial_number":"03ffeea57322e24cd6fd207682f59ead324f","result_count":3},
        {"issuer_ca_id":16418,"issuer_name":"C=US, O=Let's Encrypt, CN=R3","common_name":"a.example.com",
         "name_value":"a.example.com","id":90000000,"entry_timestamp":null,
         "not_before":"2020-11-07T15:46:43","not_after":"2021-02-05T15:46:43",
         "serial_number":"03ffeea57322e24cd6fd207682f59ead324f","result_count":3},
        {"issuer_ca_id":1,"issuer_name":"CN=X","common_name":"example.com.evil.test","name_value":"example.com.evil.test",
         "id":3,"not_before":"2020-11-07T15:46:43","not_after":"2021-02-05T15:46:43","serial_number":"01"}]"#;

    #[test]
    fn precertificate_and_certificate_rows_merge_into_one_issuance() {
        let found = read(ROWS, "example.com", None).unwrap();
        assert_eq!(found.after.as_deref(), Some("90000001"));
        assert_eq!(found.issuances.len(), 1);
        let one = &found.issuances[0];
        assert_eq!(one.names, ["a.example.com", "b.example.com"]);
        assert_eq!((one.not_before.0, one.not_after.0), (1_604_764_003, 1_612_540_003));
        assert_eq!(one.serial.as_ref().unwrap().to_string(), "03ffeea57322e24cd6fd207682f59ead324f");
    }

    #[test]
    fn rows_before_the_cursor_overlap_are_skipped() {
        let found = read(ROWS, "example.com", Some("200000000")).unwrap();
        assert!(found.issuances.is_empty());
        assert_eq!(found.after.as_deref(), Some("200000000"), "the cursor does not go back");
        assert_eq!(
            read(ROWS, "example.com", Some("90000001")).unwrap().issuances.len(),
            1,
            "within the overlap"
        );
    }
}

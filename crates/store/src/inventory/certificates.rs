//! Lookup of certificates by fingerprint, name or chain, and of their endpoints.

use std::collections::HashMap;

use crate::inventory::endpoints::{inventory_row, leaf_facts};
use crate::inventory::handle::Inventory;
use crate::inventory::model::{CertificateRow, ChainId, InventoryRow, LeafFacts};
use crate::inventory::statements as sql;
use db::{
    Cost, Cursor, PREFIX_DIGITS_MIN, Page, Row, StoreError, Value, key_or, limit_of, page, reversed,
    with_limit,
};

/// A certificate found by one of its names.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedCertificate {
    /// Name in the certificate that matched the search.
    pub name: String,
    /// Subject, issuer, validity and key of the certificate.
    pub certificate: LeafFacts,
}

impl Inventory<'_> {
    /// Returns the certificate whose SHA-256 begins with these hexadecimal digits. Needs at least four digits; ignores colons and
    /// case.
    ///
    /// # Errors
    /// [`StoreError::BadFingerprint`], [`StoreError::AmbiguousFingerprint`]; database errors.
    pub async fn certificate(self, fingerprint: &str) -> Result<Option<CertificateRow>, StoreError> {
        let (low, high) =
            prefix_range(fingerprint).ok_or_else(|| StoreError::BadFingerprint(fingerprint.to_owned()))?;
        let mut found = self.certificates_in(&low, &high).await?.into_iter();
        match (found.next(), found.next()) {
            (Some(_), Some(_)) => Err(StoreError::AmbiguousFingerprint(fingerprint.to_owned())),
            (one, _) => Ok(one),
        }
    }

    /// Returns the certificate with this SHA-256.
    ///
    /// # Errors
    /// Database errors.
    pub async fn certificate_by_sha256(
        self,
        sha256: &[u8; 32],
    ) -> Result<Option<CertificateRow>, StoreError> {
        Ok(self.certificates_in(sha256, sha256).await?.into_iter().next())
    }

    async fn certificates_in(
        self,
        low: &[u8; 32],
        high: &[u8; 32],
    ) -> Result<Vec<CertificateRow>, StoreError> {
        let range = vec![Value::Blob(low.to_vec()), Value::Blob(high.to_vec())];
        let mut found = Vec::new();
        for row in self.0.rows(Cost::Point, sql::CERTIFICATES_IN_RANGE, range).await? {
            let (id, mut certificate) = certificate_row(row)?;
            for mut row in self.0.rows(Cost::Point, sql::CERTIFICATE_NAMES, vec![id.into()]).await? {
                row.skip()?;
                certificate.names.push(row.text()?);
            }
            found.push(certificate);
        }
        Ok(found)
    }

    /// Returns the certificates of a chain in the order in which the endpoint sent them, leaf first.
    ///
    /// # Errors
    /// Database errors.
    pub async fn chain(self, chain: ChainId) -> Result<Vec<CertificateRow>, StoreError> {
        let mut names: HashMap<i64, Vec<String>> = HashMap::new();
        for mut row in self.0.rows(Cost::Point, sql::CHAIN_NAMES, vec![chain.0.into()]).await? {
            names.entry(row.int()?).or_default().push(row.text()?);
        }
        let mut members = Vec::new();
        for row in self.0.rows(Cost::Point, sql::CHAIN, vec![chain.0.into()]).await? {
            let (id, mut certificate) = certificate_row(row)?;
            certificate.names = names.get(&id).cloned().unwrap_or_default();
            members.push(certificate);
        }
        Ok(members)
    }

    /// Returns the endpoints whose last known chain contains this certificate, as the leaf or above it.
    ///
    /// # Errors
    /// [`StoreError::BadCursor`]; database errors.
    pub async fn endpoints_of_certificate(
        self,
        sha256: &[u8; 32],
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<InventoryRow>, StoreError> {
        let range = vec![Value::Blob(sha256.to_vec()), Value::Blob(sha256.to_vec())];
        let Some(mut certificate) = self.0.row(sql::CERTIFICATES_IN_RANGE, range).await? else {
            return Ok(Page { rows: Vec::new(), next: None });
        };
        let mut parameters = vec![Value::Int(certificate.int()?)];
        parameters.extend(key_or(after, "certificate-endpoints", &[Value::Int(0), Value::Int(0)])?);
        let (limit, fetch_limit) = limit_of(limit);
        let rows = self
            .0
            .rows(Cost::Walk, &sql::endpoints_of_certificate(), with_limit(parameters, fetch_limit))
            .await?;
        page(rows, limit, "certificate-endpoints", |row| {
            let found = inventory_row(row)?;
            let chain = found.row.chain.map_or(0, |chain| chain.0);
            Ok((found.row, vec![chain.into(), found.id.into()]))
        })
    }

    /// Returns certificates with a name equal to `domain` or below it (`a.example`, `*.example` for `example`), one row per name.
    ///
    /// # Errors
    /// [`StoreError::BadCursor`]; database errors.
    pub async fn certificates_below_domain(
        self,
        domain: &str,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page<NamedCertificate>, StoreError> {
        let name = reversed(domain);
        // In ASCII, "/" follows "."; so "/" is the exclusive end of the range.
        let mut parameters: Vec<Value> =
            vec![name.as_str().into(), format!("{name}.").into(), format!("{name}/").into()];
        let first = [Value::Text(String::new()), Value::Int(0), Value::Int(0)];
        parameters.extend(key_or(after, "named", &first)?);
        let (limit, fetch_limit) = limit_of(limit);
        let rows =
            self.0.rows(Cost::Walk, sql::CERTIFICATES_NAMED, with_limit(parameters, fetch_limit)).await?;
        page(rows, limit, "named", |mut row| {
            let name = row.text()?;
            let certificate = leaf_facts(&mut row)?
                .ok_or_else(|| StoreError::Corrupt(format!("the name {name:?} has no certificate")))?;
            let key = vec![row.text()?.into(), row.int()?.into(), row.int()?.into()];
            Ok((NamedCertificate { name, certificate }, key))
        })
    }
}

fn certificate_row(mut row: Row) -> Result<(i64, CertificateRow), StoreError> {
    let id = row.int()?;
    let certificate = CertificateRow {
        sha256: row.hash()?,
        der: row.blob()?,
        subject: row.text()?,
        issuer: row.text()?,
        serial: row.text()?,
        not_before_us: row.int()?,
        not_after_us: row.int()?,
        key_algorithm: row.text()?,
        key_bits: row.number()?,
        spki_sha256: row.hash()?,
        first_seen_us: row.int()?,
        last_seen_us: row.int()?,
        names: Vec::new(),
    };
    Ok((id, certificate))
}

/// Returns the lowest and the highest fingerprint that begin with these digits.
fn prefix_range(text: &str) -> Option<([u8; 32], [u8; 32])> {
    let digits: Option<Vec<u8>> = text
        .chars()
        .filter(|c| *c != ':')
        .map(|c| c.to_digit(16).and_then(|d| u8::try_from(d).ok()))
        .collect();
    let digits = digits.filter(|digits| (PREFIX_DIGITS_MIN..=64).contains(&digits.len()))?;
    let (mut low, mut high) = ([0; 32], [0xff; 32]);
    for (at, digit) in digits.into_iter().enumerate() {
        let (shift, keep) = if at % 2 == 0 { (4, 0x0f) } else { (0, 0xf0) };
        low[at / 2] = (low[at / 2] & keep) | digit << shift;
        high[at / 2] = (high[at / 2] & keep) | digit << shift;
    }
    Some((low, high))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprint_prefix_is_converted_to_a_range() {
        let (low, high) = prefix_range("A1:b2:3").unwrap();
        assert_eq!((&low[..4], &high[..4]), (&[0xa1, 0xb2, 0x30, 0][..], &[0xa1, 0xb2, 0x3f, 0xff][..]));
        let whole = "00".repeat(32);
        assert_eq!(prefix_range(&whole).unwrap(), ([0; 32], [0; 32]));
        for text in ["", "abc", "abcg", &format!("{whole}0")] {
            assert!(prefix_range(text).is_none(), "{text}");
        }
    }
}

//! Tags of the cloud resources that contain certificates.

use std::collections::HashMap;

use futures_util::FutureExt;

use db::{BulkStatement, Column, StoreError, Tx};
use store::{EndpointKey, stored_key};

store::handle! {
    /// Table of tags by resource.
    ResourceTags
}

/// Maximum resources of a certificate whose tags are read: the first ones by protocol and host. A certificate can be in a
/// thousand namespaces of a cluster.
pub const RESOURCES_PER_CERTIFICATE_MAX: usize = 16;

/// Tags of a resource to store.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TagsRow {
    /// Kind of resource: the endpoint's protocol.
    pub protocol: String,
    /// Name of the resource: the endpoint's host.
    pub host: String,
    /// SHA-256 of the certificate that the resource contains.
    pub sha256: Option<[u8; 32]>,
    /// Tags as a JSON object. `None` if the resource has no tags.
    pub tags: Option<String>,
}

const PUT: BulkStatement = db::bulk! { (protocol text, host text, sha256 bytea, tags text)
    "-- kept_tags_put
INSERT INTO kept_tags (protocol, host, sha256, tags) VALUES (:protocol, :host, :sha256, :tags)
ON CONFLICT (protocol, host) DO UPDATE SET sha256 = excluded.sha256, tags = excluded.tags"
};

const DROP: BulkStatement = db::bulk! { (protocol text, host text)
    "-- kept_tags_drop
DELETE FROM kept_tags WHERE protocol = :protocol AND host = :host"
};

const OF_PLACES: BulkStatement = db::bulk! { (number bigint, protocol text, host text)
    "-- kept_tags_of_places
SELECT :number, t.tags FROM kept_tags t WHERE t.protocol = :protocol AND t.host = :host"
};

const OF_CERTIFICATES: BulkStatement = BulkStatement {
    sqlite: "-- kept_tags_of_certificates
SELECT t.sha256, t.tags FROM kept_tags t WHERE t.sha256 = ?1 ORDER BY t.protocol, t.host LIMIT ?2",
    postgres: "-- kept_tags_of_certificates
SELECT k.sha256, k.tags FROM UNNEST(?1::bytea[], ?2::bigint[]) AS u (sha256, most)
CROSS JOIN LATERAL (SELECT t.sha256, t.tags, t.protocol, t.host FROM kept_tags t WHERE t.sha256 = u.sha256
                    ORDER BY t.protocol, t.host LIMIT u.most) k
ORDER BY k.sha256, k.protocol, k.host",
};

pub(crate) const BULKS: &[&BulkStatement] = &[&PUT, &DROP, &OF_PLACES, &OF_CERTIFICATES];

/// Stores the tags of these resources and replaces earlier ones. Resources must be distinct.
///
/// # Errors
/// Database errors.
#[crate::boxed]
pub async fn put_resource_tags(tx: &mut Tx, rows: Vec<TagsRow>) -> Result<(), StoreError> {
    let (mut put, mut deleted) = ((Vec::new(), Vec::new(), Vec::new(), Vec::new()), (Vec::new(), Vec::new()));
    for one in rows {
        let (protocol, host) = stored(one.protocol, one.host);
        match one.tags {
            Some(tags) => {
                put.0.push(protocol);
                put.1.push(host);
                put.2.push(one.sha256.map(|sha256| sha256.to_vec()));
                put.3.push(tags);
            }
            None => {
                deleted.0.push(protocol);
                deleted.1.push(host);
            }
        }
    }
    let (protocols, hosts, leaves, tags) = put;
    let columns =
        vec![Column::Text(protocols), Column::Text(hosts), Column::MaybeBlob(leaves), Column::Text(tags)];
    tx.bulk(&PUT, columns).await?;
    tx.bulk(&DROP, vec![Column::Text(deleted.0), Column::Text(deleted.1)]).await.map(drop)
}

/// Converts the names of a resource to the form in which endpoints are stored, so that the same key finds both.
fn stored(protocol: String, host: String) -> (String, String) {
    let key = EndpointKey { host, port: 0, protocol, server_name: String::new(), address: String::new() };
    let EndpointKey { host, protocol, .. } = stored_key(&key);
    (protocol, host)
}

impl ResourceTags<'_> {
    /// Returns the tags of resources as JSON, by index in `resources`; resources without tags are missing. One statement.
    ///
    /// # Errors
    /// Database errors.
    pub async fn of_resources(self, resources: &[EndpointKey]) -> Result<HashMap<usize, String>, StoreError> {
        let (protocols, hosts): (Vec<_>, Vec<_>) =
            resources.iter().map(stored_key).map(|key| (key.protocol, key.host)).unzip();
        let numbers = (0..resources.len()).map(|number| number as i64).collect();
        let columns = vec![Column::Int(numbers), Column::Text(protocols), Column::Text(hosts)];
        let rows =
            self.0.write("kept_tags_of_places", move |tx| tx.bulk(&OF_PLACES, columns).boxed()).await?;
        rows.into_iter().map(|mut row| Ok((row.number()?, row.text()?))).collect()
    }

    /// Returns the tags of certificates as JSON, from the first [`RESOURCES_PER_CERTIFICATE_MAX`] resources that contain each. One statement.
    ///
    /// # Errors
    /// Database errors.
    pub async fn tags_of_certificates(
        self,
        leaves: Vec<[u8; 32]>,
    ) -> Result<HashMap<[u8; 32], Vec<String>>, StoreError> {
        let most = vec![RESOURCES_PER_CERTIFICATE_MAX as i64; leaves.len()];
        let columns =
            vec![Column::Blob(leaves.into_iter().map(|leaf| leaf.to_vec()).collect()), Column::Int(most)];
        let read =
            self.0.write("kept_tags_of_certificates", move |tx| tx.bulk(&OF_CERTIFICATES, columns).boxed());
        let mut tags: HashMap<[u8; 32], Vec<String>> = HashMap::new();
        for mut row in read.await? {
            tags.entry(row.hash()?).or_default().push(row.text()?);
        }
        Ok(tags)
    }
}

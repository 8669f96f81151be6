//! Creation, listing, change and deletion of sites.

use futures_util::FutureExt;
use keyless::places::Attributes;
use serde_json::json;
use store::{Cursor, PAGE_ROWS_MAX, Page};
use uuid::Uuid;

use crate::directory::{SITES_MAX, Sites, check_site_name, stored_attributes, to_store};
use crate::error::SiteError;
use crate::tables;
use crate::tables::{NodeFilter, SiteRow};

/// Settings of a site to create or change.
#[derive(Clone, Debug)]
pub struct NewSite {
    /// Unique name.
    pub name: String,
    /// Attributes of all nodes at the site.
    pub attributes: Attributes,
}

enum Creation {
    Created,
    NameTaken,
    Full,
}

impl Sites {
    /// Creates a site, with revision 1, and returns the stored row.
    ///
    /// # Errors
    /// [`SiteError`].
    #[crate::boxed]
    pub async fn create_site(&self, new: NewSite, actor: &str) -> Result<SiteRow, SiteError> {
        check_site_name(&new.name)?;
        let at = self.now_us();
        let row = SiteRow {
            id: Uuid::now_v7(),
            name: new.name,
            attributes: to_store(&new.attributes),
            revision: 1,
            created_at_us: at,
            updated_at_us: at,
        };
        let details = json!({"name": row.name, "attributes": new.attributes});
        let event = self.event(actor, "key_site.create", format!("key-site/{}", row.id), details);
        let site = row.clone();
        let made = self
            .store()
            .write("key_site_create", move |tx| {
                async move {
                    if tables::count_sites(tx).await? >= SITES_MAX {
                        return Ok(Creation::Full);
                    }
                    let done = tables::insert_site(tx, &site).await?;
                    Ok(if store::audit_if(tx, done, event).await? {
                        Creation::Created
                    } else {
                        Creation::NameTaken
                    })
                }
                .boxed()
            })
            .await?;
        match made {
            Creation::Created => Ok(row),
            Creation::NameTaken => Err(SiteError::NameTaken(row.name)),
            Creation::Full => Err(SiteError::Full { what: "sites", max: SITES_MAX }),
        }
    }

    /// Returns a site by its name or id.
    ///
    /// # Errors
    /// [`SiteError::NotFound`]; database errors.
    #[crate::boxed]
    pub async fn site(&self, name: &str) -> Result<SiteRow, SiteError> {
        let found = match name.parse() {
            Ok(id) => tables::SiteTables::of(self.store()).site(id).await?,
            Err(_) => tables::SiteTables::of(self.store()).site_named(name).await?,
        };
        found.ok_or(SiteError::NotFound("site"))
    }

    /// Lists sites, ordered by name.
    ///
    /// # Errors
    /// Database errors.
    #[crate::boxed]
    pub async fn sites(&self, after: Option<&Cursor>, limit: usize) -> Result<Page<SiteRow>, SiteError> {
        Ok(tables::SiteTables::of(self.store()).sites(after, limit).await?)
    }

    /// Changes a site. Its nodes get statements with the new attributes within a second.
    ///
    /// # Errors
    /// [`SiteError`].
    #[crate::boxed]
    pub async fn update_site(
        &self,
        id: Uuid,
        revision: i64,
        new: NewSite,
        actor: &str,
    ) -> Result<SiteRow, SiteError> {
        check_site_name(&new.name)?;
        self.check_node_attributes(id, &new.attributes).await?;
        let details = json!({"name": new.name, "attributes": new.attributes});
        let event = self.event(actor, "key_site.update", format!("key-site/{id}"), details);
        let (at, name, attributes) = (self.now_us(), new.name.clone(), to_store(&new.attributes));
        let done = self
            .store()
            .write("key_site_update", move |tx| {
                async move {
                    let done = tables::update_site(tx, id, revision, &name, &attributes, at).await?;
                    if done {
                        // Lock the change numbers before writing rows of several nodes, to prevent a deadlock.
                        tables::take_changes(tx, 0).await?;
                        tables::sign_nodes_of_site(tx, id).await?;
                    }
                    store::audit_if(tx, done, event).await
                }
                .boxed()
            })
            .await?;
        if done {
            return self.site(&id.to_string()).await;
        }
        let other = tables::SiteTables::of(self.store()).site_named(&new.name).await?;
        let taken = other.is_some_and(|other| other.id != id);
        Err(if taken { SiteError::NameTaken(new.name) } else { SiteError::Changed })
    }

    /// Deletes a site without nodes, and its tokens.
    ///
    /// # Errors
    /// [`SiteError::NotEmpty`], [`SiteError::NotFound`]; database errors.
    #[crate::boxed]
    pub async fn delete_site(&self, id: Uuid, actor: &str) -> Result<(), SiteError> {
        let event = self.event(actor, "key_site.delete", format!("key-site/{id}"), json!({}));
        self.store()
            .write("key_site_delete", move |tx| {
                async move {
                    // Lock first: a node that joins meanwhile is either counted or finds no site.
                    if tables::lock_site(tx, id).await?.is_none() {
                        return Ok(Err(SiteError::NotFound("site")));
                    }
                    let nodes = tables::live_nodes(tx, Some(id)).await?;
                    if nodes > 0 {
                        return Ok(Err(SiteError::NotEmpty(nodes)));
                    }
                    tables::delete_node_tokens_of(tx, id).await?;
                    let done = tables::delete_site(tx, id).await?;
                    store::audit_if(tx, done, event).await.map(|_| Ok(()))
                }
                .boxed()
            })
            .await?
    }

    /// Checks that the attributes of every node of a site can be combined with the site's new attributes.
    async fn check_node_attributes(&self, site: Uuid, attributes: &Attributes) -> Result<(), SiteError> {
        let filter = NodeFilter { site: Some(site), retired: false };
        let mut after = None;
        loop {
            let page =
                tables::SiteTables::of(self.store()).nodes(&filter, after.as_ref(), PAGE_ROWS_MAX).await?;
            for node in page.rows {
                attributes.with(&stored_attributes(&node.attributes)).map_err(|error| {
                    SiteError::Invalid(format!(
                        "combined with the attributes of the node {:?}: {error}",
                        node.name
                    ))
                })?;
            }
            match page.next {
                Some(next) => after = Some(next),
                None => return Ok(()),
            }
        }
    }
}

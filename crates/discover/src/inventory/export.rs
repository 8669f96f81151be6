//! `bulla inventory export`: certificates as PEM.

use std::collections::HashSet;
use std::io::Write;

use cli::exit::{Outcome, Problem};
use store::{ChainId, Cursor, Inventory, InventoryFilter, InventoryOrder, InventoryRow, Page, Store};

use super::pages::inventory_error;
use super::show::{fingerprint_digits, unknown};
use crate::database;
use crate::endpoint::host_and_port;

/// Endpoints read per page.
const PAGE_ROWS: usize = 1_000;

/// An export of certificates as PEM. Each certificate is printed once.
struct Export<'a> {
    store: &'a Store,
    printed: HashSet<[u8; 32]>,
    chains: HashSet<ChainId>,
}

/// Exports the named chains, or the chains of all endpoints if no names are given.
pub(super) async fn run(store: &Store, what: &[String]) -> Outcome<()> {
    let mut export = Export { store, printed: HashSet::new(), chains: HashSet::new() };
    if what.is_empty() {
        let filter = InventoryFilter { order: InventoryOrder::Host, ..InventoryFilter::default() };
        return export
            .all(async |after: Option<Cursor>| {
                Inventory::of(store).page(&filter, after.as_ref(), PAGE_ROWS).await
            })
            .await
            .map(|_| ());
    }
    for word in what {
        let found = match fingerprint_digits(word) {
            Some(digits) => export.certificate(&digits).await?,
            None => {
                let (host, port) = host_and_port(word);
                let inventory = Inventory::of(store);
                let of_host = async |after: Option<Cursor>| {
                    inventory.endpoints_of_host(&host, port, after.as_ref(), PAGE_ROWS).await
                };
                export.all(of_host).await?
            }
        };
        if !found {
            return Err(unknown(word));
        }
    }
    Ok(())
}

impl Export<'_> {
    /// Prints the chains of all endpoints that `fetch` returns. Returns whether there was a chain.
    async fn all(
        &mut self,
        fetch: impl AsyncFn(Option<Cursor>) -> Result<Page<InventoryRow>, store::StoreError>,
    ) -> Outcome<bool> {
        let (mut after, mut found) = (None, false);
        loop {
            let page = fetch(after).await.map_err(|error| inventory_error(&error))?;
            for chain in page.rows.into_iter().filter_map(|row| row.chain) {
                found = true;
                self.chain(chain).await?;
            }
            after = page.next;
            if after.is_none() {
                return Ok(found);
            }
        }
    }

    async fn chain(&mut self, chain: ChainId) -> Outcome<()> {
        if !self.chains.insert(chain) {
            return Ok(());
        }
        let certificates =
            Inventory::of(self.store).chain(chain).await.map_err(|error| database::problem(&error))?;
        certificates.iter().try_for_each(|certificate| self.print(certificate.sha256, &certificate.der))
    }

    async fn certificate(&mut self, digits: &str) -> Outcome<bool> {
        let found =
            Inventory::of(self.store).certificate(digits).await.map_err(|error| inventory_error(&error))?;
        let Some(certificate) = found else { return Ok(false) };
        self.print(certificate.sha256, &certificate.der)?;
        Ok(true)
    }

    fn print(&mut self, sha256: [u8; 32], der: &[u8]) -> Outcome<()> {
        if !self.printed.insert(sha256) {
            return Ok(());
        }
        let pem = x509::pem::encode("CERTIFICATE", der);
        std::io::stdout().write_all(pem.as_bytes()).map_err(|error| Problem::output(&error))
    }
}

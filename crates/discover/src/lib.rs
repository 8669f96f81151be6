//! The commands that discover certificates: `scan`, `inventory`, `rules`, `fleet`.
//!
//! They need the scanner and a database, but no server, no keys and no SDK of a cloud. So `bulla-scan`, which has only these
//! commands, builds in a third of the time of `bulla`.

pub mod database;
mod endpoint;
mod fail_on;
pub mod fleet_command;
pub mod inventory;
mod output;
pub mod rules;
pub mod running_scans;
pub mod scan_command;
mod settings;
mod store_settings;

pub use fail_on::FailOn;
pub use output::record::Detail;
pub use settings::{
    FamilySetting, InventorySettings, KEYS, RevocationSetting, ScanSettings, ScannerSettings,
};
pub use store_settings::StoreSettings;
